"""The house rules: silent on template.yaml, loud on a copy of it with one fault."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cfnlint.template.template import Template

from tools.cfn_rules.functions import FunctionsHaveTheirLogGroup, OneRuntime
from tools.cfn_rules.parameters import ParametersExplainThemselves
from tools.cfn_rules.permissions import ARGUED_STARS, NoStarResources, names_everything, statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from cfnlint.rules import CloudFormationLintRule

ROOT = Path(__file__).resolve().parents[2]
RULES = (FunctionsHaveTheirLogGroup, OneRuntime, NoStarResources, ParametersExplainThemselves)


def complaints(rule: type[CloudFormationLintRule], template: dict[str, Any]) -> list[str]:
    return [match.message for match in rule().match(Template(str(ROOT / "template.yaml"), template))]


@pytest.mark.parametrize("rule", RULES)
def test_the_template_follows_the_rules(plain: dict[str, Any], rule: type[CloudFormationLintRule]) -> None:
    assert complaints(rule, plain) == []


def test_the_rules_are_switched_on() -> None:
    assert "tools/cfn_rules" in (ROOT / ".cfnlintrc.yaml").read_text(encoding="utf-8")


def drop_log_group(resources: dict[str, Any]) -> None:
    del resources["TurnFunction"]["Properties"]["LoggingConfig"]["LogGroup"]


def drop_retention(resources: dict[str, Any]) -> None:
    del resources["TurnLogs"]["Properties"]["RetentionInDays"]


def share_log_group(resources: dict[str, Any]) -> None:
    resources["TurnFunction"]["Properties"]["LoggingConfig"]["LogGroup"] = {"Ref": "ReadLogs"}


def other_runtime(resources: dict[str, Any]) -> None:
    resources["ReadFunction"]["Properties"]["Runtime"] = "python3.12"


def other_layer(resources: dict[str, Any]) -> None:
    (layer,) = [each for name, each in resources.items() if name.startswith("AgentLayer")]
    layer["Properties"]["CompatibleRuntimes"] = ["python3.14"]


def _first_statement(resources: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resources["ReadFunctionRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]
    return found


def star_resource(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Resource"] = "*"


def star_among_resources(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Resource"] = ["arn:aws:s3:::b", "*"]


def star_action(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Action"] = ["dynamodb:*"]


def any_table(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Resource"] = {"Fn::Sub": "arn:${AWS::Partition}:dynamodb:eu-west-1:1:table/*"}


def any_region(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Resource"] = "arn:aws:dynamodb:*:1:table/T"


def any_account(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Resource"] = "arn:aws:dynamodb:eu-west-1:*:table/T"


def two_services(resources: dict[str, Any]) -> None:
    _first_statement(resources)["Action"] = ["dynamodb:GetItem", "sqs:SendMessage"]


def managed(resources: dict[str, Any]) -> None:
    resources["ReadFunctionRole"]["Properties"]["ManagedPolicyArns"] = ["arn:aws:iam::aws:policy/ReadOnlyAccess"]


def nameless(resources: dict[str, Any]) -> None:
    del _first_statement(resources)["Sid"]


@pytest.mark.parametrize(
    ("rule", "fault", "said"),
    [
        (FunctionsHaveTheirLogGroup, drop_log_group, "TurnFunction names no log group"),
        (FunctionsHaveTheirLogGroup, drop_retention, "TurnLogs has no RetentionInDays"),
        (FunctionsHaveTheirLogGroup, share_log_group, "shares ReadLogs"),
        (OneRuntime, other_runtime, "python3.12 beside python3.13"),
        (OneRuntime, other_layer, "python3.14 beside python3.13"),
        (NoStarResources, star_resource, "Resource *"),
        (NoStarResources, star_among_resources, "Resource *"),
        (NoStarResources, any_table, "Resource *"),
        (NoStarResources, any_region, "Resource *"),
        (NoStarResources, any_account, "Resource *"),
        (NoStarResources, star_action, "dynamodb:* is every action"),
        (NoStarResources, two_services, "actions of dynamodb and sqs"),
        (NoStarResources, managed, "ReadFunctionRole carries AWS-managed policies"),
        (NoStarResources, nameless, "without a Sid"),
    ],
)
def test_a_rule_notices(
    plain: dict[str, Any], rule: type[CloudFormationLintRule], fault: Callable[[dict[str, Any]], None], said: str
) -> None:
    broken = copy.deepcopy(plain)
    fault(broken["Resources"])
    found = complaints(rule, broken)
    assert len(found) == 1
    assert said in found[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Description": "Days"}, "no Description"),
        ({"Default": None}, "no Default"),
        ({"MinValue": None, "MaxValue": None}, "no AllowedValues"),
    ],
)
def test_the_rule_for_parameters_notices(plain: dict[str, Any], change: dict[str, Any], said: str) -> None:
    broken = copy.deepcopy(plain)
    changed = broken["Parameters"]["RetentionDays"] | change
    broken["Parameters"]["RetentionDays"] = {name: value for name, value in changed.items() if value is not None}
    found = complaints(ParametersExplainThemselves, broken)
    assert len(found) == 1
    assert said in found[0]


def test_every_argued_star_is_still_there(plain: dict[str, Any]) -> None:
    """An argument without its statement is an open door for the next one of that name."""
    starred = {
        each["Sid"]
        for _, each in statements(Template("", plain))
        if any(
            names_everything(one)
            for one in (each["Resource"] if isinstance(each["Resource"], list) else [each["Resource"]])
        )
    }
    assert starred == set(ARGUED_STARS)
