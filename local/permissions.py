"""What IAM would be asked about a call: the actions and the ARNs that a policy has to allow."""

from __future__ import annotations

import re
from typing import Final

from local.settings import ACCOUNT, REGION

# A member of a request's JSON. Inside a text the quotes would be escaped: what somebody said cannot pose as one.
_MEMBER: Final = r'(?<!\\)"{}"\s*:\s*"((?:[^"\\]|\\.)*)"'
_PARTS: Final = re.compile(r'(?<!\\)"(Put|Update|Delete|ConditionCheck)"\s*:\s*\{')
_TRANSACTION_ACTIONS: Final = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
_BATCH_TABLE: Final = re.compile(r'"RequestItems"\s*:\s*\{\s*"([^"\\]+)"')


def permissions_of(service: str, operation: str, body: bytes) -> list[str]:
    """The permissions that a call needs, each as `action resource`; empty for services that functions never call.

    A transaction needs the actions of its parts. `SendTaskSuccess` names no resource: a token is all that is sent.
    """
    text = body.decode("utf-8", "replace")
    match service:
        case "dynamodb":
            return _of_dynamodb(operation, text)
        case "states":
            machine = _member(text, "stateMachineArn") or _member(text, "executionArn") or "*"
            return [f"states:{operation} {machine}"]
        case "sqs":
            return [f"sqs:{operation} {_arn('sqs', _member(text, 'QueueUrl').rpartition('/')[2])}"]
        case "events":
            bus = _member(text, "EventBusName") or "default"
            return [f"events:{operation} {_arn('events', f'event-bus/{bus}')}"]
    return []


def _of_dynamodb(operation: str, text: str) -> list[str]:
    if operation == "BatchWriteItem":
        found = _BATCH_TABLE.search(text)
        table = found[1] if found else "*"
    else:
        table = _member(text, "TableName")
    resource = _arn("dynamodb", f"table/{table}")
    if index := _member(text, "IndexName"):
        resource = f"{resource}/index/{index}"
    if operation == "TransactWriteItems":
        kinds = sorted({_TRANSACTION_ACTIONS[kind] for kind in _PARTS.findall(text)})
        return [f"dynamodb:{kind} {resource}" for kind in kinds]
    return [f"dynamodb:{operation} {resource}"]


def _member(text: str, name: str) -> str:
    found = re.search(_MEMBER.format(name), text)
    return found[1] if found else ""


def _arn(service: str, resource: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"
