"""The item store in memory: the same rules as DynamoDB's, for tests, simulations and trying things out."""

from __future__ import annotations

import threading
from copy import copy
from typing import TYPE_CHECKING

from turnkeep.ledger.store import (
    HELD,
    INDEX_KEYS,
    Applied,
    Check,
    Delete,
    Get,
    IndexQuery,
    Item,
    Key,
    Page,
    Put,
    Query,
    Read,
    Refused,
    Result,
    Write,
    holds,
    index_item,
    position_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ITEM_LIMIT_BYTES = 409_600


class ItemTooLargeError(ValueError):
    """An item over DynamoDB's 400 KB: a bug of the caller, which has to split it."""


def size_bytes(item: Item) -> int:
    """The item's size by DynamoDB's documented rules (names and values; a number about half a byte a digit)."""
    total = 0
    for name, value in item.items():
        total += len(name.encode())
        if isinstance(value, str):
            total += len(value.encode())
        elif isinstance(value, bytes):
            total += len(value)
        else:
            total += (len(str(abs(value)).strip("0") or "0") + 1) // 2 + 1 + (1 if value < 0 else 0)
    return total


class MemoryItemStore:
    """A table in memory. Thread-safe; items go in and come out as copies.

    Args:
        before: called with the operations before every call, without the lock: a test's place to pause, fail or crash.
    """

    def __init__(self, before: Callable[[str, Sequence[object]], None] | None = None) -> None:
        self._items: dict[Key, Item] = {}
        self._lock = threading.RLock()
        self._before = before
        self.round_trips = 0

    def read(self, reads: Sequence[Read]) -> list[Page]:
        """See ``ItemStore.read``."""
        self._enter("read", reads)
        with self._lock:
            return [self._one(read) for read in reads]

    def write(self, writes: Sequence[Write]) -> list[Result]:
        """See ``ItemStore.write``."""
        self._enter("write", writes)
        with self._lock:
            return [self._apply(write) if self._allowed(write) else self._refused(write) for write in writes]

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        """See ``ItemStore.transact``."""
        self._enter("transact", writes)
        with self._lock:
            keys = [_key_of(write) for write in writes]
            if len(set(keys)) != len(keys):
                raise ValueError("a transaction may touch an item once only")
            allowed = [self._allowed(write) for write in writes]
            if all(allowed):
                return [Applied() if isinstance(write, Check) else self._apply(write) for write in writes]
            return [
                Refused(HELD) if fine else self._refused(write) for write, fine in zip(writes, allowed, strict=True)
            ]

    def delete(self, keys: Sequence[Key]) -> None:
        """See ``ItemStore.delete``."""
        self._enter("delete", keys)
        with self._lock:
            for key in keys:
                self._items.pop(key, None)

    def items(self) -> list[Item]:
        """Every item, in order of its key (for tests)."""
        with self._lock:
            return [dict(self._items[key]) for key in sorted(self._items)]

    def _enter(self, operation: str, what: Sequence[object]) -> None:
        self.round_trips += 1
        if self._before is not None:
            self._before(operation, what)

    def _one(self, read: Read) -> Page:
        if isinstance(read, Get):
            item = self._items.get(read.key)
            return Page([dict(item)] if item is not None else [])
        if isinstance(read, Query):
            return self._query(read)
        return self._index(read)

    def _query(self, read: Query) -> Page:
        keys = sorted(key for key in self._items if key[0] == read.pk and read.low <= key[1] <= read.high)
        if not read.forward:
            keys.reverse()
        chosen = keys if read.limit is None else keys[: read.limit]
        items = [dict(self._items[key]) for key in chosen]
        if read.attributes is not None:
            items = [{name: item[name] for name in read.attributes if name in item} for item in items]
        return Page(items, more=len(chosen) < len(keys))

    def _index(self, read: IndexQuery) -> Page:
        hash_name, range_name = INDEX_KEYS[read.index]
        rows = [item for item in self._items.values() if item.get(hash_name) == read.value and range_name in item]

        def order(item: Item) -> tuple[int, str, str]:
            return (int(item[range_name]), str(item["pk"]), str(item["sk"]))

        rows.sort(key=order, reverse=not read.forward)
        if read.upto is not None:
            rows = [row for row in rows if int(row[range_name]) <= read.upto]
        if read.after is not None:
            start = order(position_of(read.index, read.after))
            rows = [row for row in rows if (order(row) > start if read.forward else order(row) < start)]
        return Page([index_item(read.index, row) for row in rows[: read.limit]], more=len(rows) > read.limit)

    def _allowed(self, write: Write | Check) -> bool:
        return write.condition is None or holds(write.condition, self._items.get(_key_of(write)))

    def _refused(self, write: Write | Check) -> Refused:
        old = self._items.get(_key_of(write))
        return Refused(dict(old) if old is not None else None)

    def _apply(self, write: Write) -> Applied:
        key = _key_of(write)
        if isinstance(write, Delete):
            self._items.pop(key, None)
            return Applied()
        if isinstance(write, Put):
            self._keep(key, dict(write.item))
            return Applied()
        item = copy(self._items.get(key)) or {"pk": key[0], "sk": key[1]}
        for name, value in write.set_if_absent.items():
            item.setdefault(name, value)
        item.update(write.set)
        for name, amount in write.add.items():
            item[name] = int(item.get(name, 0)) + amount
        for name in write.remove:
            item.pop(name, None)
        self._keep(key, item)
        return Applied(dict(item) if write.wants_item else None)

    def _keep(self, key: Key, item: Item) -> None:
        if size_bytes(item) > ITEM_LIMIT_BYTES:
            raise ItemTooLargeError(f"an item of {size_bytes(item)} bytes is over {ITEM_LIMIT_BYTES}")
        self._items[key] = item


def _key_of(write: Write | Check) -> Key:
    if isinstance(write, Put):
        return (str(write.item["pk"]), str(write.item["sk"]))
    return write.key


__all__ = ["ITEM_LIMIT_BYTES", "ItemTooLargeError", "MemoryItemStore", "size_bytes"]
