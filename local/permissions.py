"""What IAM would be asked about a call: the actions and the ARNs that a policy has to allow."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from local.settings import ACCOUNT, REGION

if TYPE_CHECKING:
    from local.web import Request

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
_INVOKED: Final = re.compile(r"/functions/([^/]+)/invocations")
_NAME: Final = re.compile(r"(?<![:#.\w])#?[A-Za-z_]\w*")
# What stands in a DynamoDB expression and is no attribute.
_WORDS: Final = frozenset(
    {"SET", "REMOVE", "ADD", "DELETE", "AND", "OR", "NOT", "IN", "BETWEEN"}
    | {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains", "size"}
    | {"if_not_exists", "list_append"}
)


def permissions_of(service: str, operation: str, request: Request) -> list[str]:
    """The permissions that a call needs, each as `action resource`; empty for services that nothing here calls.

    A transaction needs the actions of its parts. `SendTaskSuccess` names no resource: a token is all that is sent.
    """
    text = request.body.decode("utf-8", "replace")
    match service:
        case "lambda":
            found = _INVOKED.search(unquote(request.path))
            if operation == "Invoke" and found:
                function = found[1] if found[1].startswith("arn:") else _arn("lambda", f"function:{found[1]}")
                return [f"lambda:InvokeFunction {function}"]
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


def conditions_of(service: str, operation: str, body: bytes) -> dict[str, list[str]]:
    """The condition keys that IAM sees of a call to one item of DynamoDB; empty for every other call.

    `dynamodb:Attributes` are the names that a request reads, compares and writes, its key's among them.
    """
    if service != "dynamodb" or operation not in ("GetItem", "UpdateItem"):
        return {}
    members: dict[str, Any] = json.loads(body)
    aliases: dict[str, str] = members.get("ExpressionAttributeNames", {})
    expressions = [members.get(f"{kind}Expression", "") for kind in ("Projection", "Update", "Condition")]
    words = {word for expression in expressions for word in _NAME.findall(expression)} - _WORDS
    found = {"dynamodb:Attributes": sorted({*members.get("Key", {}), *(aliases.get(word, word) for word in words)})}
    if operation == "UpdateItem":
        found["dynamodb:ReturnValues"] = [members.get("ReturnValues", "NONE")]
    else:
        projected = "SPECIFIC_ATTRIBUTES" if members.get("ProjectionExpression") else "ALL_ATTRIBUTES"
        found["dynamodb:Select"] = [projected]
    return found


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
