"""The item store's values in DynamoDB's own words: items, keys, conditions and updates as request arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.ledger.store import (
    INDEX_KEYS,
    AllOf,
    AnyOf,
    AtMost,
    Check,
    Condition,
    Differs,
    Equals,
    IndexQuery,
    Item,
    Key,
    LessThan,
    Missing,
    Present,
    Put,
    Query,
    Update,
    Value,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# fmt: off
AS_THEY_ARE = frozenset({
    "pk", "sk", "epoch", "attempt", "runId", "leaseUntil", "principal", "previous", "startedAt", "savedAt", "shown",
    "body", "adopted", "checkpoint", "digest", "claim", "pastAsks", "taskToken", "starts", "startedFor", "answered",
    "deleteAfter_s", "due", "dueAt", "askId", "audience", "ask", "askPart", "askedAt", "expiresAt", "audienceKey",
    "decision", "decisionParts", "decisionFor", "answeredBy", "answeredAt", "decisionMark", "move", "ownerKey",
    "createdAt", "turn", "messageCount", "agentId", "agentVersion", "erasing", "unrun",
})
# fmt: on
"""Attributes that stand in expressions under their own names: none is on DynamoDB's list of reserved words.

All others get a placeholder, which is always right and a few bytes longer.
"""


def _attribute(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bytes):
        return {"B": value}
    return {"N": str(value)}


def wire(item: Mapping[str, Value]) -> dict[str, Any]:
    """An item as a request carries it."""
    return {name: _attribute(value) for name, value in item.items()}


def wire_key(key: Key) -> dict[str, Any]:
    """A key as a request carries it."""
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def item_of(found: Mapping[str, Any] | None) -> Item | None:
    """An item off the wire. An attribute of a type that the ledger never writes becomes text no reader accepts."""
    if not found:
        return None
    item: Item = {}
    for name, typed in found.items():
        if "S" in typed:
            item[name] = typed["S"]
        elif "N" in typed:
            item[name] = _number(typed["N"])
        elif "B" in typed:
            item[name] = bytes(typed["B"])
        else:
            item[name] = f"unreadable: an attribute of type {next(iter(typed), 'none')}"
    return item


def _number(text: str) -> Value:
    try:
        return int(text)
    except ValueError:
        return f"unreadable: the number {text[:40]}"


class Expressions:
    """Collects placeholders for the names and values of one request."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self._placeholders: dict[tuple[type, Value], str] = {}
        self.condition = ""
        self.update = ""

    def name(self, attribute: str) -> str:
        """How an expression says an attribute."""
        if attribute in AS_THEY_ARE:
            return attribute
        return self.names.setdefault(attribute, f"#{len(self.names)}")

    def value(self, value: Value) -> str:
        """How an expression says a value; one that comes twice is sent once."""
        placeholder = self._placeholders.setdefault((type(value), value), f":{len(self.values)}")
        self.values[placeholder] = _attribute(value)
        return placeholder

    def compile(self, condition: Condition, *, inside_and: bool = False) -> str:
        """A condition as an expression.

        DynamoDB binds AND tighter than OR, and refuses parentheses that it can spare.
        """
        match condition:
            case AllOf((one,)) | AnyOf((one,)):
                return self.compile(one, inside_and=inside_and)
            case AllOf(conditions):
                return " AND ".join(self.compile(one, inside_and=True) for one in conditions)
            case AnyOf(conditions):
                either = " OR ".join(self.compile(one) for one in conditions)
                return f"({either})" if inside_and else either
            case _:
                return self._compare(condition)

    def _compare(self, condition: Missing | Present | Equals | Differs | AtMost | LessThan) -> str:
        match condition:
            case Missing(attribute):
                return f"attribute_not_exists({self.name(attribute)})"
            case Present(attribute):
                return f"attribute_exists({self.name(attribute)})"
            case Equals(attribute, value):
                return f"{self.name(attribute)}={self.value(value)}"
            case Differs(attribute, value):
                # A missing attribute differs from everything in DynamoDB's <>, and is no match here.
                name = self.name(attribute)
                return f"attribute_exists({name}) AND {name}<>{self.value(value)}"
            case AtMost(attribute, value):
                return f"{self.name(attribute)}<={self.value(value)}"
            case LessThan(attribute, value):
                return f"{self.name(attribute)}<{self.value(value)}"

    def change(self, update: Update) -> None:
        """Takes an update's changes as the update expression."""
        sets = [f"{self.name(name)}={self.value(value)}" for name, value in update.set.items()]
        for name, value in update.set_if_absent.items():
            place = self.name(name)
            sets.append(f"{place}=if_not_exists({place},{self.value(value)})")
        clauses = []
        if sets:
            clauses.append("SET " + ",".join(sets))
        if update.remove:
            clauses.append("REMOVE " + ",".join(self.name(name) for name in update.remove))
        if update.add:
            clauses.append(
                "ADD " + ",".join(f"{self.name(name)} {self.value(amount)}" for name, amount in update.add.items())
            )
        self.update = " ".join(clauses)

    def as_arguments(self) -> dict[str, Any]:
        """The request's arguments; what is empty is left out, as DynamoDB wants it."""
        found = {
            "ConditionExpression": self.condition,
            "UpdateExpression": self.update,
            "ExpressionAttributeNames": {place: name for name, place in self.names.items()},
            "ExpressionAttributeValues": self.values,
        }
        return {name: value for name, value in found.items() if value}


def write_arguments(write: Write | Check, table: str) -> tuple[dict[str, Any], Expressions]:
    """A write as a request: its arguments, and its expressions, which the caller adds."""
    expressions = Expressions()
    arguments: dict[str, Any] = {"TableName": table}
    if isinstance(write, Put):
        arguments["Item"] = wire(write.item)
    else:
        arguments["Key"] = wire_key(write.key)
    if isinstance(write, Update):
        expressions.change(write)
    if write.condition is not None:
        expressions.condition = expressions.compile(write.condition)
    return arguments, expressions


def query_arguments(read: Query | IndexQuery, table: str) -> dict[str, Any]:
    """The request of a query, without its limit."""
    if isinstance(read, Query):
        arguments: dict[str, Any] = {
            "TableName": table,
            "KeyConditionExpression": "pk=:p AND sk BETWEEN :l AND :h",
            "ExpressionAttributeValues": {":p": {"S": read.pk}, ":l": {"S": read.low}, ":h": {"S": read.high}},
        }
        if read.consistent:
            arguments["ConsistentRead"] = True
        if not read.forward:
            arguments["ScanIndexForward"] = False
        if read.attributes is not None:
            names = {f"#{index}": name for index, name in enumerate(read.attributes)}
            arguments["ProjectionExpression"] = ",".join(names)
            arguments["ExpressionAttributeNames"] = names
        return arguments
    hash_name, range_name = INDEX_KEYS[read.index]
    expressions = Expressions()
    condition = f"{expressions.name(hash_name)}={expressions.value(read.value)}"
    if read.upto is not None:
        condition += f" AND {expressions.name(range_name)}<={expressions.value(read.upto)}"
    arguments = {
        "TableName": table,
        "IndexName": read.index,
        "KeyConditionExpression": condition,
        "ScanIndexForward": read.forward,
        **expressions.as_arguments(),
    }
    if read.after is not None:
        arguments["ExclusiveStartKey"] = wire(read.after)
    return arguments
