"""What the endpoint notes for IAM: actions and resources of every call, and the condition keys of a machine's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from local.permissions import conditions_of, permissions_of
from local.settings import ACCOUNT, REGION
from local.web import Request

HERE = f"{REGION}:{ACCOUNT}"


def asked(service: str, operation: str, body: dict[str, Any], path: str = "/") -> list[str]:
    return permissions_of(service, operation, Request("POST", path, (), json.dumps(body).encode(), "127.0.0.1"))


@pytest.mark.parametrize(
    ("service", "operation", "body", "permissions"),
    [
        ("dynamodb", "GetItem", {"TableName": "T"}, [f"dynamodb:GetItem arn:aws:dynamodb:{HERE}:table/T"]),
        (
            "dynamodb",
            "Query",
            {"TableName": "T", "IndexName": "I"},
            [f"dynamodb:Query arn:aws:dynamodb:{HERE}:table/T/index/I"],
        ),
        (
            "dynamodb",
            "TransactWriteItems",
            {"TransactItems": [{"Put": {"TableName": "T"}}, {"ConditionCheck": {"TableName": "T"}}]},
            [f"dynamodb:{kind} arn:aws:dynamodb:{HERE}:table/T" for kind in ("ConditionCheckItem", "PutItem")],
        ),
        ("sqs", "SendMessage", {"QueueUrl": "http://h/1/q.fifo"}, [f"sqs:SendMessage arn:aws:sqs:{HERE}:q.fifo"]),
        ("states", "StopExecution", {"executionArn": "arn:e"}, ["states:StopExecution arn:e"]),
        ("states", "SendTaskSuccess", {"taskToken": "t"}, ["states:SendTaskSuccess *"]),
        ("s3", "GetObject", {}, []),
    ],
)
def test_the_permissions_of_a_call(service: str, operation: str, body: dict[str, Any], permissions: list[str]) -> None:
    assert asked(service, operation, body) == permissions


def test_a_function_is_invoked_by_its_arn() -> None:
    arn = f"arn:aws:lambda:{HERE}:function:f"
    for named in ("f", arn, arn.replace(":", "%3A")):
        path = f"/2015-03-31/functions/{named}/invocations"
        assert asked("lambda", "Invoke", {}, path) == [f"lambda:InvokeFunction {arn}"]


def test_the_attributes_of_a_call_are_all_that_it_names() -> None:
    update = {
        "Key": {"pk": {"S": "p"}, "sk": {"S": "s"}},
        "ConditionExpression": "askId = :ask AND #status = :open AND attribute_not_exists(decision)",
        "UpdateExpression": "SET taskToken = :token, due = if_not_exists(dueAt, :due) REMOVE #map.inner",
        "ExpressionAttributeNames": {"#status": "status", "#map": "map"},
        "ExpressionAttributeValues": {":ask": {"S": "x"}},
    }
    assert conditions_of("dynamodb", "UpdateItem", json.dumps(update).encode()) == {
        "dynamodb:Attributes": ["askId", "decision", "due", "dueAt", "map", "pk", "sk", "status", "taskToken"],
        "dynamodb:ReturnValues": ["NONE"],
    }


@pytest.mark.parametrize(
    ("projection", "select"), [({"ProjectionExpression": "a, b"}, "SPECIFIC_ATTRIBUTES"), ({}, "ALL_ATTRIBUTES")]
)
def test_a_read_says_whether_it_reads_everything(projection: dict[str, str], select: str) -> None:
    read = {"Key": {"pk": {"S": "p"}}, **projection}
    found = conditions_of("dynamodb", "GetItem", json.dumps(read).encode())
    assert found["dynamodb:Select"] == [select]
    assert found["dynamodb:Attributes"] == (["a", "b", "pk"] if projection else ["pk"])


def test_other_calls_have_no_condition_keys() -> None:
    assert conditions_of("states", "StartExecution", b"{}") == {}
    assert conditions_of("dynamodb", "Query", b"{}") == {}
