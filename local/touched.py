"""Which items a call to DynamoDB names, so that a call can be told to the turn that it was made for."""

from __future__ import annotations

import json
import re
from typing import Any, Final

MOST: Final = 100
"""As many as a transaction or a batch may name."""

# Inside a text the quotes would be escaped: what somebody said cannot pose as a member.
_STRONGLY: Final = re.compile(rb'(?<!\\)"ConsistentRead"\s*:\s*true')
_PARTITION: Final = re.compile(r"\bpk\s*=\s*(:\w+)")


def touched_by(service: str, operation: str, body: bytes) -> list[list[str]]:
    """The items that a call names, each as partition and sort key (empty where only the partition is named).

    Empty for other services, and for a body that is not what the operation takes.
    """
    if service != "dynamodb":
        return []
    try:
        request = json.loads(body)
        return [list(key) for key in dict.fromkeys(_keys(operation, request))][:MOST]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def reads_strongly(service: str, body: bytes) -> bool:
    """Whether a read asks for the newest state."""
    return service == "dynamodb" and _STRONGLY.search(body) is not None


def _keys(operation: str, request: dict[str, Any]) -> list[tuple[str, str]]:
    match operation:
        case "TransactWriteItems":
            parts = [part for each in request["TransactItems"] for part in each.values()]
            return [_key(part.get("Key") or part["Item"]) for part in parts]
        case "BatchWriteItem":
            writes = [write for table in request["RequestItems"].values() for write in table]
            parts = [part for write in writes for part in write.values()]
            return [_key(part.get("Key") or part["Item"]) for part in parts]
        case "BatchGetItem":
            return [_key(key) for table in request["RequestItems"].values() for key in table["Keys"]]
        case "Query":
            return [] if "IndexName" in request else [(_partition(request), "")]
    named = request.get("Key") or request.get("Item")
    return [_key(named)] if named else []


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _partition(request: dict[str, Any]) -> str:
    found = _PARTITION.search(request["KeyConditionExpression"])
    return str(request["ExpressionAttributeValues"][found[1]]["S"]) if found else ""
