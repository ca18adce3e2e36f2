"""Makes moto's DynamoDB keep AWS's size limits, and cancel a transaction without copying every item there is."""

from __future__ import annotations

import base64
import copy
import math
import threading
from typing import TYPE_CHECKING, Any

from local.replacing import put

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEM_LIMIT_BYTES = 409_600
TRANSACTION_LIMIT_BYTES = 4_194_304

_transaction = threading.local()


def item_size_bytes(item: dict[str, dict[str, Any]]) -> int:
    """An item's size by the documented rules: names and values, a number by its significant digits."""
    return sum(len(name.encode()) + _value_size_bytes(value) for name, value in item.items())


def _value_size_bytes(typed: dict[str, Any]) -> int:
    ((kind, value),) = typed.items()
    match kind:
        case "S":
            return len(str(value).encode())
        case "B":
            return len(value if isinstance(value, bytes) else base64.b64decode(value))
        case "N":
            return _number_size_bytes(str(value))
        case "L":
            return 3 + sum(1 + _value_size_bytes(part) for part in value)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_size_bytes(part) for name, part in value.items())
        case "SS" | "NS" | "BS":
            return sum(_value_size_bytes({kind[0]: part}) for part in value)
        case _:
            return 1


def _number_size_bytes(number: str) -> int:
    digits = number.lower().split("e")[0].lstrip("-").replace(".", "").strip("0") or "0"
    return math.ceil(len(digits) / 2) + 1 + number.startswith("-")


def transaction_size_bytes(parts: list[dict[str, Any]]) -> int:
    """What a transaction carries, near enough for its limit: items put, keys, and values of expressions."""
    size = 0
    for part in parts:
        for operation in part.values():
            for name in ("Item", "Key", "ExpressionAttributeValues"):
                size += item_size_bytes(operation.get(name) or {})
    return size


def install() -> None:
    """Changes moto in place."""
    _limit_items_as_aws_does()
    _copy_only_what_a_transaction_touches()


def _limit_items_as_aws_does() -> None:
    """Moto adds old and new size when an attribute is replaced, refuses at half of the limit, and writes half."""
    from moto.dynamodb.exceptions import ItemSizeTooLarge, ItemSizeToUpdateTooLarge
    from moto.dynamodb.models import DynamoDBBackend, dynamo_type
    from moto.dynamodb.models.table import Table

    put_item, update_item = Table.put_item, DynamoDBBackend.update_item

    def set_item(attributes: dict[Any, Any], name: Any, value: Any) -> None:
        dict.__setitem__(attributes, name, value)

    def put_within_limit(table: Table, item_attrs: dict[str, Any], *arguments: Any, **named: Any) -> Any:
        if item_size_bytes(item_attrs) > ITEM_LIMIT_BYTES:
            raise ItemSizeTooLarge
        return put_item(table, item_attrs, *arguments, **named)

    def update_within_limit(
        backend: DynamoDBBackend, table_name: str, key: dict[str, Any], *arguments: Any, **named: Any
    ) -> Any:
        before = copy.deepcopy(backend.get_item(table_name, key))
        after = update_item(backend, table_name, key, *arguments, **named)
        if item_size_bytes(after.to_json()["Attributes"]) > ITEM_LIMIT_BYTES:
            _put_back(backend.get_table(table_name), after, before)
            raise ItemSizeToUpdateTooLarge
        return after

    put(dynamo_type.LimitedSizeDict, "__setitem__", set_item)
    put(Table, "put_item", put_within_limit)
    put(DynamoDBBackend, "update_item", update_within_limit)


def _put_back(table: Any, after: Any, before: Any) -> None:
    place, key = (table.items[after.hash_key], after.range_key) if after.range_key else (table.items, after.hash_key)
    if before is None:
        del place[key]
    else:
        place[key] = before


def _copy_only_what_a_transaction_touches() -> None:
    """Moto deep-copies whole tables before a transaction: half a second for some thousand items."""
    from moto.dynamodb.models import DynamoDBBackend
    from moto.dynamodb.models.table import Table

    transact = DynamoDBBackend.transact_write_items

    def transact_write_items(backend: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
        _transaction.keys = list(_updated_keys(transact_items))
        try:
            transact(backend, transact_items)
        finally:
            del _transaction.keys

    def deepcopy(table: Table, memo: dict[int, Any]) -> Table:
        copied = copy.copy(table)
        keys = getattr(_transaction, "keys", None)
        if keys is None:
            vars(copied).update(copy.deepcopy(vars(table), memo))
            return copied
        # Puts and deletes replace what is at a place; only updates change an item where it stands.
        copied.items = copy.copy(table.items)
        if table.has_range_key:
            copied.items.update({hash_key: dict(items) for hash_key, items in table.items.items()})
        for table_name, key in keys:
            if table_name == table.name:
                _keep_a_copy(table, copied, key)
        return copied

    put(DynamoDBBackend, "transact_write_items", transact_write_items)
    put(Table, "__deepcopy__", deepcopy)


def _updated_keys(parts: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in parts:
        if "Update" in part:
            yield part["Update"]["TableName"], part["Update"]["Key"]


def _keep_a_copy(table: Any, copied: Any, key: dict[str, Any]) -> None:
    from moto.dynamodb.models.dynamo_type import DynamoType

    hash_key = DynamoType(key[table.hash_key_attr])
    if not table.has_range_key:
        if hash_key in table.items:
            copied.items[hash_key] = copy.deepcopy(table.items[hash_key])
        return
    range_key = DynamoType(key[table.range_key_attr])
    if range_key in copied.items.get(hash_key, {}):
        copied.items[hash_key][range_key] = copy.deepcopy(table.items[hash_key][range_key])
