"""Sizes and capacity units of DynamoDB items, by the rules that AWS documents.

* an item's size: names and values in UTF-8; a number about half a byte a digit and one more; binary as it is;
* a write: its larger side (before or after) in kilobytes, rounded up, at least 1; twice that in a transaction;
* a read: what was read in 4 KB, rounded up; half of that where it is eventual;
* an index: a write of the projected item wherever that changes; two where its key changes (one out, one in).
"""

from __future__ import annotations

import base64
import math
from typing import Any

Typed = dict[str, dict[str, Any]]


def item_bytes(item: Typed | None) -> int:
    """The size of an item in the wire's own types; 0 of none."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in (item or {}).items())


def _value_bytes(typed: dict[str, Any]) -> int:
    ((kind, value),) = typed.items()
    match kind:
        case "S":
            return len(value.encode())
        case "B":
            return len(value if isinstance(value, bytes | bytearray) else base64.b64decode(value))
        case "N":
            return _number_bytes(str(value))
        case "L":
            return 3 + sum(1 + _value_bytes(each) for each in value)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(each) for name, each in value.items())
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: each}) for each in value)
        case _:
            return 1  # BOOL, NULL


def _number_bytes(number: str) -> int:
    digits = number.lstrip("-").replace(".", "").strip("0") or "0"
    return math.ceil(len(digits) / 2) + 1 + number.startswith("-")


def write_units(before: Typed | None, after: Typed | None) -> int:
    """Units of a write that made ``after`` of ``before``."""
    return max(1, math.ceil(max(item_bytes(before), item_bytes(after)) / 1024))


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Units of a read of so many bytes."""
    return max(1, math.ceil(size_bytes / 4096)) * (1.0 if consistent else 0.5)


def index_units(index: dict[str, Any], before: Typed | None, after: Typed | None, table_key: list[str]) -> int:
    """Units that a write of the table costs in one of its indexes.

    Args:
        index: as DescribeTable gives it.
        before: the table's item as it was.
        after: the item as it is now.
        table_key: the names of the table's key.
    """
    old, new = _entry(index, before, table_key), _entry(index, after, table_key)
    if old is None and new is None:
        return 0
    if old is None or new is None:
        return write_units(old, new)
    key = [*_names(index["KeySchema"]), *table_key]
    if any(old[name] != new[name] for name in key):
        return write_units(old, None) + write_units(None, new)
    return 0 if old == new else write_units(old, new)


def _entry(index: dict[str, Any], item: Typed | None, table_key: list[str]) -> Typed | None:
    key = _names(index["KeySchema"])
    if item is None or any(name not in item for name in key):
        return None
    projection = index["Projection"]
    if projection["ProjectionType"] == "ALL":
        return item
    kept = {*key, *table_key, *projection.get("NonKeyAttributes", [])}
    return {name: value for name, value in item.items() if name in kept}


def _names(schema: list[dict[str, str]]) -> list[str]:
    return [each["AttributeName"] for each in schema]
