"""The item store: the few operations on one table that the ledger needs, as data.

An item is a flat dict of text, integers and bytes (DynamoDB's S, N and B): no floats, no maps. Conditions are values,
so that one description is compiled for DynamoDB, evaluated in memory, and named in a test. A condition on an attribute
that an item lacks is false, as in DynamoDB; use ``Missing``.

A third implementation is an object with the methods of ``ItemStore`` that passes ``tests/contract``'s suite.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnkeep.errors import StoreUnavailableError

Value = str | int | bytes
Item = dict[str, Value]
Key = tuple[str, str]

# --- conditions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Missing:
    """The item lacks the attribute (of ``pk``: there is no such item)."""

    attribute: str


@dataclass(frozen=True)
class Present:
    """The item has the attribute."""

    attribute: str


@dataclass(frozen=True)
class Equals:
    """The attribute is there and equal."""

    attribute: str
    value: Value


@dataclass(frozen=True)
class Differs:
    """The attribute is there and not equal."""

    attribute: str
    value: Value


@dataclass(frozen=True)
class AtMost:
    """The attribute is there and less than or equal to the value."""

    attribute: str
    value: int


@dataclass(frozen=True)
class LessThan:
    """The attribute is there and less than the value."""

    attribute: str
    value: int


@dataclass(frozen=True)
class AllOf:
    """Every one of them holds; there is at least one."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one of them holds; there is at least one."""

    conditions: tuple[Condition, ...]


Condition = Missing | Present | Equals | Differs | AtMost | LessThan | AllOf | AnyOf


def all_of(*conditions: Condition) -> Condition:
    """Every one of the conditions."""
    return AllOf(conditions)


def any_of(*conditions: Condition) -> Condition:
    """At least one of the conditions."""
    return AnyOf(conditions)


def holds(condition: Condition, item: Mapping[str, Value] | None) -> bool:
    """Whether the condition is true of the item (None: there is no item), by DynamoDB's rules."""
    found = item or {}
    match condition:
        case Missing(attribute):
            return attribute not in found
        case Present(attribute):
            return attribute in found
        case Equals(attribute, value):
            return attribute in found and type(found[attribute]) is type(value) and found[attribute] == value
        case Differs(attribute, value):
            return attribute in found and found[attribute] != value
        case AtMost(attribute, value):
            stored = found.get(attribute)
            return isinstance(stored, int) and stored <= value
        case LessThan(attribute, value):
            stored = found.get(attribute)
            return isinstance(stored, int) and stored < value
        case AllOf(conditions):
            return all(holds(one, item) for one in conditions)
        case AnyOf(conditions):
            return any(holds(one, item) for one in conditions)


# --- reads --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Get:
    """One item by its key, strongly consistent unless said otherwise."""

    key: Key
    consistent: bool = True


@dataclass(frozen=True)
class Query:
    """Items of one partition with ``low <= sk <= high``, in order of ``sk``.

    Attributes:
        limit: at most so many items; None reads to the end, page after page.
        forward: ascending when true.
        consistent: strongly consistent when true.
        attributes: the attributes to bring back; None brings all.
    """

    pk: str
    low: str
    high: str
    limit: int | None = None
    forward: bool = True
    consistent: bool = True
    attributes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class IndexQuery:
    """Items of one hash value of an index, in order of its range key; equal ones in an order of the store's own.

    Read eventually, as DynamoDB reads an index, and with the index's attributes only (``INDEX_ATTRIBUTES``).

    Attributes:
        index: ``byOwner``, ``byAudience`` or ``byDue``.
        value: the hash key's value.
        limit: at most so many items.
        forward: ascending when true.
        upto: only items whose range key is at most this (inclusive).
        after: the position of the last item that was seen, as ``position_of`` gives it; None starts at the beginning.
    """

    index: str
    value: str
    limit: int
    forward: bool = True
    upto: int | None = None
    after: Item | None = None


@dataclass(frozen=True)
class Page:
    """Items, and whether more exist behind them.

    Behind a ``Query`` that met its limit, ``more`` says only that there may be more; of an ``IndexQuery`` it is exact.
    """

    items: list[Item] = field(default_factory=list)
    more: bool = False


INDEX_KEYS: Mapping[str, tuple[str, str]] = {
    "byOwner": ("ownerKey", "savedAt"),
    "byAudience": ("audienceKey", "askedAt"),
    "byDue": ("due", "dueAt"),
}

"""The hash and the range key of each index. An item without both is not in it."""

INDEX_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "byOwner": frozenset({"format", "status", "turn", "messageCount", "createdAt", "deleteAfter_s"}),
    "byAudience": frozenset({"format", "status", "askId", "expiresAt", "deleteAfter_s"}),
    "byDue": frozenset({"format", "status", "askId", "expiresAt", "starts", "deleteAfter_s"}),
}
"""What an index keeps of an item beside the keys of both: ``template.yaml``'s projections, nothing from inside."""


def index_item(index: str, item: Item) -> Item:
    """The part of an item that an index keeps."""
    kept = INDEX_ATTRIBUTES[index] | {*INDEX_KEYS[index], "pk", "sk"}
    return {name: value for name, value in item.items() if name in kept}


def position_of(index: str, item: Item) -> Item:
    """The part of an item that says where it stands in an index: its keys."""
    return {name: item[name] for name in (*INDEX_KEYS[index], "pk", "sk")}


Read = Get | Query | IndexQuery

# --- writes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Put:
    """Puts a whole item where the condition holds of what is there."""

    item: Item
    condition: Condition | None = None


@dataclass(frozen=True)
class Update:
    """Changes attributes of an item where the condition holds; creates the item if nothing in it forbids that.

    Attributes:
        set: attributes to set.
        remove: attributes to remove.
        set_if_absent: attributes to set only where the item lacks them.
        add: integers to add to attributes (absent counts 0).
        wants_item: bring the item back as it is after the update.
    """

    key: Key
    set: Mapping[str, Value] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    condition: Condition | None = None
    set_if_absent: Mapping[str, Value] = field(default_factory=dict)
    add: Mapping[str, int] = field(default_factory=dict)
    wants_item: bool = False


@dataclass(frozen=True)
class Delete:
    """Deletes an item where the condition holds."""

    key: Key
    condition: Condition | None = None


@dataclass(frozen=True)
class Check:
    """In a transaction only: the condition must hold of the item."""

    key: Key
    condition: Condition


Write = Put | Update | Delete


@dataclass(frozen=True)
class Applied:
    """The write took place; ``item`` is the item after an update (None for a put or a delete)."""

    item: Item | None = None


@dataclass(frozen=True)
class Refused:
    """The condition failed; ``item`` is what was there (None: nothing)."""

    item: Item | None = None


@dataclass(frozen=True)
class Unavailable:
    """Nobody answered in time: the write may or may not have taken place."""

    error: StoreUnavailableError


Result = Applied | Refused | Unavailable


class ItemStore(Protocol):
    """One table. Every method is one round trip, however many operations it is given (side by side)."""

    def read(self, reads: Sequence[Read]) -> list[Page]:
        """Does the reads side by side; a ``Get`` gives a page of one item or none.

        Raises:
            StoreUnavailableError: the store did not answer in the time that is left.
        """
        ...

    def write(self, writes: Sequence[Write]) -> list[Result]:
        """Does the writes side by side, each with an outcome of its own; at most one of them touches an item."""
        ...

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        """All or none: every result is ``Applied``, or every one is ``Refused``.

        In a refused transaction an operation whose condition failed brings what was there, as in ``write``. One whose
        own condition held (or was not looked at) brings the marker ``HELD``: it did not take place either.

        Raises:
            StoreUnavailableError: the store did not answer in the time that is left.
        """
        ...

    def delete(self, keys: Sequence[Key]) -> None:
        """Deletes items without a condition, in batches.

        Raises:
            StoreUnavailableError: some are not deleted yet; deleting again is harmless.
        """
        ...


HELD: Item = {"pk": "", "sk": "HELD"}
"""Stands in a refused transaction's results for an operation whose own condition held."""


def unwrap(result: Result) -> Applied | Refused:
    """The result of a write that answered.

    Raises:
        StoreUnavailableError: it did not.
    """
    if isinstance(result, Unavailable):
        raise result.error
    return result
