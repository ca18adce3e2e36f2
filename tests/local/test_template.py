"""What is deployed is what the template says: folders, definitions, parameters, conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local.intrinsics import Resolver
from local.routes import Route, read_routes
from local.settings import Settings
from local.template import load_yaml, transform_template

TOY = Path(__file__).parent / "toy" / "template.yaml"
PARAMETERS = {"JwtIssuer": "https://issuer.example", "JwtAudience": "a", "NotDeclared": "x"}


def test_short_forms_are_read_as_their_long_ones_and_dates_stay_text() -> None:
    read = load_yaml(
        "Version: 2010-09-09\nA: !Ref B\nC: !GetAtt D.E.F\nG: !Sub '${A}-x'\nH: !If [UseIt, !Ref A, !Ref B]\n"
        "I: !Condition UseIt\nJ: !FindInMap [M, !Ref A, b]\n"
    )
    assert read == {
        "Version": "2010-09-09",
        "A": {"Ref": "B"},
        "C": {"Fn::GetAtt": ["D", "E.F"]},
        "G": {"Fn::Sub": "${A}-x"},
        "H": {"Fn::If": ["UseIt", {"Ref": "A"}, {"Ref": "B"}]},
        "I": {"Condition": "UseIt"},
        "J": {"Fn::FindInMap": ["M", {"Ref": "A"}, "b"]},
    }


def test_folders_and_definitions_take_the_place_of_local_paths(tmp_path: Path) -> None:
    template = transform_template(TOY, PARAMETERS, cache_dir=tmp_path)
    assert template.folders["EchoFunction"] == TOY.parent / "functions" / "echo"
    assert template.folders["SharedLayer"] == TOY.parent / "layers" / "shared"
    assert "NotDeclared" not in template.parameters
    assert template.parameters["Greeting"] == "hello"
    definition, substitutions = template.plain["Resources"]["Waiter"]["Properties"]["DefinitionString"]["Fn::Sub"]
    assert set(substitutions) == {"Table", "ResumeFunctionArn"}
    states = json.loads(definition)["States"]
    assert states["Await"]["Arguments"]["TableName"] == "${Table}"
    assert states["Await"]["Arguments"]["ExpressionAttributeNames"] == {"#status": "status"}


def test_a_placeholder_that_nobody_fills_stays_as_it_is(tmp_path: Path) -> None:
    machine = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Result": "${Known} ${Unknown}", "End": True}}}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    (tmp_path / "template.yaml").write_text(
        "Transform: AWS::Serverless-2016-10-31\nResources:\n  M:\n    Type: AWS::Serverless::StateMachine\n"
        "    Properties: {DefinitionUri: machine.json, DefinitionSubstitutions: {Known: yes-it-is}}\n"
    )
    template = transform_template(tmp_path / "template.yaml", {}, cache_dir=None)
    definition = Resolver(template.plain, {}, {}, {}).value(
        template.plain["Resources"]["M"]["Properties"]["DefinitionString"]
    )
    assert json.loads(definition)["States"]["A"]["Result"] == "yes-it-is ${Unknown}"


def test_a_transform_is_kept_and_a_changed_template_is_transformed_anew(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = transform_template(TOY, PARAMETERS, cache_dir=cache)
    (kept,) = cache.iterdir()
    changed = json.loads(kept.read_text())
    changed["Resources"]["Marked"] = {"Type": "AWS::SNS::Topic"}
    kept.write_text(json.dumps(changed))
    assert "Marked" in transform_template(TOY, PARAMETERS, cache_dir=cache).plain["Resources"]
    other = transform_template(TOY, {**PARAMETERS, "Greeting": "other"}, cache_dir=cache)
    assert "Marked" not in other.plain["Resources"]
    assert "Marked" not in first.plain["Resources"]


def test_a_parameter_without_a_value_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "Transform: AWS::Serverless-2016-10-31\nParameters: {Wanted: {Type: String}}\n"
        "Resources: {T: {Type: AWS::SNS::Topic}}\n"
    )
    with pytest.raises(ValueError, match="Wanted"):
        transform_template(tmp_path / "t.yaml", {}, cache_dir=None)
    assert transform_template(tmp_path / "t.yaml", {"Wanted": "x"}, cache_dir=None).parameters == {"Wanted": "x"}


def test_what_sam_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "Transform: AWS::Serverless-2016-10-31\nResources: {T: {Type: AWS::Serverless::StateMachine}}\n"
    )
    with pytest.raises(ValueError, match="the SAM transform refuses the template"):
        transform_template(tmp_path / "t.yaml", {}, cache_dir=None)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ({"Ref": "P"}, "v"),
        ({"Ref": "List"}, ["a", "b"]),
        ({"Ref": "Queue"}, "https://sqs/123/q.fifo"),
        ({"Ref": "AWS::Region"}, "us-east-1"),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, "arn:aws:sqs:us-east-1:123456789012:q.fifo"),
        ({"Fn::GetAtt": "Queue.QueueName"}, "q.fifo"),
        ({"Fn::GetAtt": ["Function", "Arn"]}, "arn:aws:lambda:us-east-1:123456789012:function:f-1"),
        ({"Fn::Sub": "${P}/${Queue.Arn}/${!kept}"}, "v/arn:aws:sqs:us-east-1:123456789012:q.fifo/${kept}"),
        ({"Fn::Sub": ["${x}-${P}", {"x": {"Ref": "P"}}]}, "v-v"),
        ({"Fn::If": ["Yes", {"Ref": "P"}, "other"]}, "v"),
        ({"Fn::If": ["No", "x", {"Ref": "AWS::NoValue"}]}, None),
        ({"a": {"Fn::If": ["No", "x", {"Ref": "AWS::NoValue"}]}, "b": 1}, {"b": 1}),
        ([{"Ref": "AWS::NoValue"}, 1], [1]),
        ({"Fn::Join": [",", {"Ref": "List"}]}, "a,b"),
        ({"Fn::Select": [1, {"Fn::Split": ["-", "x-y"]}]}, "y"),
        ({"Fn::FindInMap": ["Map", {"Ref": "P"}, "k"]}, 7),
    ],
)
def test_functions_are_resolved_as_cloudformation_does(template: object, value: object) -> None:
    plain = {
        "Parameters": {"P": {"Type": "String"}, "List": {"Type": "CommaDelimitedList"}},
        "Mappings": {"Map": {"v": {"k": 7}}},
        "Conditions": {
            "Yes": {"Fn::Equals": [{"Ref": "P"}, "v"]},
            "No": {"Fn::And": [{"Condition": "Yes"}, {"Fn::Not": [{"Condition": "Yes"}]}]},
        },
        "Resources": {"Queue": {"Type": "AWS::SQS::Queue"}, "Function": {"Type": "AWS::Lambda::Function"}},
    }
    physical = {"Queue": "https://sqs/123/q.fifo", "Function": "f-1"}
    assert Resolver(plain, {"P": "v", "List": "a,b"}, physical, {}).value(template) == value


def test_routes_come_from_the_functions_events(tmp_path: Path) -> None:
    template = transform_template(TOY, PARAMETERS, cache_dir=tmp_path)
    resolver = Resolver(
        template.plain, template.parameters, {"EchoFunction": "echo-1", "SingleFunction": "single-1"}, {}
    )
    assert sorted(read_routes(template.source, template.plain, resolver), key=lambda route: route.key) == [
        Route("GET", "/health", "echo-1", open=True),
        Route("GET", "/single", "single-1"),
        Route("GET", "/things/{id}", "echo-1"),
        Route("POST", "/act", "echo-1"),
        Route("POST", "/things/{id}/parts", "echo-1"),
    ]


def test_settings_travel_as_json() -> None:
    settings = Settings(port=0, environment={"A": "1", "F": {"B": 2}}, schedule_s=0.5, retry_delays_s=(0.1,))
    assert Settings.from_json(settings.to_json()) == settings
    assert settings.environment_of("F")["B"] == "2"
    assert "B" not in settings.environment_of("G")
