"""The API: API.md's routes, each with its function, and nobody in without a token unless that was said."""

from __future__ import annotations

from typing import Any

import pytest

# API.md, Routes.
ROUTES = {
    ("POST", "/conversations"): "TurnFunction",
    ("POST", "/conversations/{id}/turns"): "TurnFunction",
    ("POST", "/conversations/{id}/answers"): "AnswerFunction",
    ("DELETE", "/conversations/{id}/turns/{n}"): "AnswerFunction",
    ("GET", "/conversations/{id}"): "ReadFunction",
    ("GET", "/conversations/{id}/turns"): "ReadFunction",
    ("GET", "/conversations/{id}/turns/{n}"): "ReadFunction",
    ("GET", "/conversations/{id}/turns/{n}/evidence"): "ReadFunction",
    ("GET", "/conversations/{id}/transcript"): "ReadFunction",
    ("GET", "/conversations"): "ReadFunction",
    ("DELETE", "/conversations/{id}"): "TurnFunction",
    ("GET", "/asks"): "ReadFunction",
    ("GET", "/health"): "ReadFunction",
}


@pytest.fixture
def operations(plain: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    paths = plain["Resources"]["HttpApi"]["Properties"]["Body"]["paths"]
    return {(method.upper(), path): each for path, methods in paths.items() for method, each in methods.items()}


def test_the_api_has_the_contracts_routes(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    called = {
        route: each["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"].split("${")[-1].split(".")[0]
        for route, each in operations.items()
    }
    assert called == ROUTES


def test_every_route_may_call_its_function(source: dict[str, Any]) -> None:
    """The events give the permission; a route without one answers 500."""
    allowed = {
        (event["Properties"]["Method"], event["Properties"]["Path"]): name
        for name, resource in source["Resources"].items()
        for event in resource.get("Properties", {}).get("Events", {}).values()
        if event["Type"] == "HttpApi"
    }
    assert allowed == ROUTES


def test_the_api_calls_what_snapstart_works_on(source: dict[str, Any]) -> None:
    """A version behind an alias; the parameter alone would do nothing."""
    for name in set(ROUTES.values()):
        properties = source["Resources"][name]["Properties"]
        assert properties["AutoPublishAlias"] == "live"
        assert properties["SnapStart"]["Fn::If"][:2] == ["UseSnapStart", {"ApplyOn": "PublishedVersions"}]
    paths = source["Resources"]["HttpApi"]["Properties"]["DefinitionBody"]["paths"]
    called = [each["x-amazon-apigateway-integration"]["uri"] for methods in paths.values() for each in methods.values()]
    assert all(uri["Fn::Sub"].endswith("Function.Alias}/invocations") for uri in called)


def test_every_integration_speaks_payload_2(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    for operation in operations.values():
        integration = operation["x-amazon-apigateway-integration"]
        assert integration["payloadFormatVersion"] == "2.0"
        assert (integration["type"], integration["httpMethod"]) == ("aws_proxy", "POST")


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_but_health_wants_a_token_unless_everybody_is_anonymous(
    operations: dict[tuple[str, str], dict[str, Any]], route: tuple[str, str]
) -> None:
    with_a_token = {"Fn::If": ["VerifyCallers", [{"Jwt": []}], []]}
    assert operations[route]["security"] == ([] if route[1] == "/health" else with_a_token)


def test_the_authorizer_checks_issuer_and_audience(plain: dict[str, Any]) -> None:
    condition, scheme, otherwise = plain["Resources"]["HttpApi"]["Properties"]["Body"]["components"]["securitySchemes"][
        "Jwt"
    ]["Fn::If"]
    assert (condition, otherwise) == ("VerifyCallers", {"Ref": "AWS::NoValue"})
    authorizer = scheme["x-amazon-apigateway-authorizer"]
    assert authorizer["type"] == "jwt"
    assert authorizer["identitySource"] == "$request.header.Authorization"
    assert authorizer["jwtConfiguration"] == {
        "issuer": {"Ref": "JwtIssuer"},
        "audience": {"Fn::Split": [",", {"Ref": "JwtAudience"}]},
    }


@pytest.mark.parametrize(
    ("values", "deploys"),
    [
        ({}, False),
        ({"JwtIssuer": "https://issuer.example"}, False),
        ({"JwtAudience": "me"}, False),
        ({"JwtIssuer": "https://issuer.example", "JwtAudience": "me"}, True),
        ({"AllowAnonymous": "true"}, True),
    ],
)
def test_an_open_door_does_not_happen_by_accident(
    source: dict[str, Any], values: dict[str, str], deploys: bool
) -> None:
    parameters = {name: str(each["Default"]) for name, each in source["Parameters"].items()} | values
    (rule,) = source["Rules"].values()
    assert all(holds(each["Assert"], parameters) for each in rule["Assertions"]) is deploys


def test_anonymity_is_said_aloud(source: dict[str, Any]) -> None:
    assert source["Parameters"]["AllowAnonymous"]["Default"] == "false"
    assert source["Parameters"]["AllowAnonymous"]["Description"].startswith("DANGER")
    assert source["Outputs"]["AnonymousWarning"]["Condition"] == "EverybodyIsAnonymous"
    conditions = source["Conditions"]
    for anonymous in ("true", "false"):
        parameters = {"AllowAnonymous": anonymous}
        assert holds(conditions["EverybodyIsAnonymous"], parameters) is (anonymous == "true")
        assert holds(conditions["VerifyCallers"], parameters) is (anonymous == "false")


def test_the_access_log_holds_no_path_and_no_caller(plain: dict[str, Any]) -> None:
    stage = plain["Resources"]["HttpApiApiGatewayDefaultStage"]["Properties"]
    logged = stage["AccessLogSettings"]["Format"]
    assert "$context.routeKey" in logged
    for leak in ("$context.path", "claims", "identity", "userAgent", "sourceIp", "principal"):
        assert leak not in logged


def holds(condition: dict[str, Any], parameters: dict[str, str]) -> bool:
    """A condition's value, as CloudFormation computes it."""
    ((function, arguments),) = condition.items()
    match function:
        case "Fn::Equals":
            left, right = (parameters[each["Ref"]] if isinstance(each, dict) else each for each in arguments)
            return bool(left == right)
        case "Fn::Not":
            return not holds(arguments[0], parameters)
        case "Fn::And":
            return all(holds(each, parameters) for each in arguments)
        case "Fn::Or":
            return any(holds(each, parameters) for each in arguments)
    raise AssertionError(function)
