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
    assert {sub.rpartition("/index/")[2] for sub in subs if "/index/" in sub} == MAY_READ_INDEX.get(role, set())


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
    assert "ALL_OLD" not in returned
    assert "ALL_NEW" not in returned
    assert by_action["lambda:InvokeFunction"]["Resource"] == {"Fn::GetAtt": ["ResumeFunction", "Arn"]}
