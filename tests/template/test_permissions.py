"""Permissions by what a function is for: nobody may do more to the ledger than its work needs."""

from __future__ import annotations

from typing import Any

import pytest

WRITES = {"dynamodb:PutItem", "dynamodb:UpdateItem"}
DELETES = {"dynamodb:BatchWriteItem", "dynamodb:DeleteItem"}
# What each role may do to the table itself, beside reading it.
MAY_CHANGE = {
    "TurnFunctionRole": WRITES | DELETES,
    "AnswerFunctionRole": WRITES | {"dynamodb:BatchWriteItem"},
    "ReadFunctionRole": set(),
    "ResumeFunctionRole": WRITES | {"dynamodb:DeleteItem"},
    "WorkerFunctionRole": WRITES | {"dynamodb:DeleteItem"},
    "ReconcileFunctionRole": {"dynamodb:UpdateItem"} | DELETES,
    "PausedRunRole": {"dynamodb:UpdateItem"},
}
MAY_READ_INDEX = {"ReadFunctionRole": {"byOwner", "byAudience"}, "ReconcileFunctionRole": {"byDue"}}
MAY_SIGNAL = {"TurnFunctionRole", "AnswerFunctionRole", "ReconcileFunctionRole"}
READS = {"dynamodb:GetItem", "dynamodb:Query"}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def statements(plain: dict[str, Any], role: str) -> list[dict[str, Any]]:
    policies = plain["Resources"][role]["Properties"].get("Policies", [])
    return [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]


def actions(plain: dict[str, Any], role: str) -> set[str]:
    return {action for statement in statements(plain, role) for action in as_list(statement["Action"])}


@pytest.mark.parametrize("role", MAY_CHANGE)
def test_what_a_role_may_change_in_the_ledger(plain: dict[str, Any], role: str) -> None:
    on_the_table = {action for action in actions(plain, role) if action.startswith("dynamodb:")}
    assert on_the_table - READS == MAY_CHANGE[role]
    assert "dynamodb:Scan" not in on_the_table


@pytest.mark.parametrize("role", MAY_CHANGE)
def test_which_indexes_a_role_may_read(plain: dict[str, Any], role: str) -> None:
    resources = [resource for each in statements(plain, role) for resource in as_list(each["Resource"])]
    subs = [resource["Fn::Sub"] for resource in resources if isinstance(resource, dict) and "Fn::Sub" in resource]
    arns = [sub if isinstance(sub, str) else sub[0] for sub in subs]
    assert {arn.rpartition("/index/")[2] for arn in arns if "/index/" in arn} == MAY_READ_INDEX.get(role, set())


@pytest.mark.parametrize("role", MAY_CHANGE)
def test_who_may_signal_an_answer(plain: dict[str, Any], role: str) -> None:
    assert ("states:SendTaskSuccess" in actions(plain, role)) is (role in MAY_SIGNAL)


def test_the_machine_sees_how_a_turn_stands_and_nothing_of_it(plain: dict[str, Any]) -> None:
    by_action = {as_list(each["Action"])[0]: each for each in statements(plain, "PausedRunRole")}
    readable = by_action["dynamodb:GetItem"]["Condition"]["ForAllValues:StringEquals"]["dynamodb:Attributes"]
    assert set(readable) == {"pk", "sk", "askId", "status"}
    touched = by_action["dynamodb:UpdateItem"]["Condition"]["ForAllValues:StringEquals"]["dynamodb:Attributes"]
    assert set(touched) == {"pk", "sk", "askId", "status", "decision", "taskToken", "dueAt"}
    returned = by_action["dynamodb:UpdateItem"]["Condition"]["StringEqualsIfExists"]["dynamodb:ReturnValues"]
    assert returned == "NONE", "what was there before, or is now, is not told"
    assert by_action["lambda:InvokeFunction"]["Resource"] == {"Fn::GetAtt": ["ResumeFunction", "Arn"]}


def test_functions_are_called_by_what_the_template_names_and_by_nothing_else(plain: dict[str, Any]) -> None:
    permissions = [
        each["Properties"] for each in plain["Resources"].values() if each["Type"] == "AWS::Lambda::Permission"
    ]
    principals = {"apigateway.amazonaws.com": 0, "events.amazonaws.com": 0}
    for permission in permissions:
        principals[permission["Principal"]] += 1
        assert permission["SourceArn"], "or anybody's API, or rule, could call it"
        assert permission["Action"] == "lambda:InvokeFunction"
    assert principals == {"apigateway.amazonaws.com": 13, "events.amazonaws.com": 2}


@pytest.mark.parametrize("role", MAY_CHANGE)
def test_a_role_is_for_its_service_and_carries_nothing_of_aws(plain: dict[str, Any], role: str) -> None:
    properties = plain["Resources"][role]["Properties"]
    (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
    service = "states.amazonaws.com" if role == "PausedRunRole" else "lambda.amazonaws.com"
    assert trust["Principal"] == {"Service": service}
    assert "ManagedPolicyArns" not in properties


def test_a_function_writes_its_own_log_and_the_worker_hears_its_own_queue(plain: dict[str, Any]) -> None:
    """As AWS documents what Lambda needs; no call of the functions would show that it is missing."""
    for role in MAY_CHANGE:
        named = {each["Sid"]: each for each in statements(plain, role)}
        assert {"xray:PutTraceSegments", "xray:PutTelemetryRecords"} <= set(named["SendTraces"]["Action"])
        if role != "PausedRunRole":
            assert named["WriteItsLog"]["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
            group = role.replace("FunctionRole", "Logs")
            assert named["WriteItsLog"]["Resource"] == {"Fn::GetAtt": [group, "Arn"]}
    heard = {each["Sid"]: each for each in statements(plain, "WorkerFunctionRole")}["HearDoorbells"]
    assert heard["Action"] == ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
    assert heard["Resource"] == {"Fn::GetAtt": ["TurnQueue", "Arn"]}
