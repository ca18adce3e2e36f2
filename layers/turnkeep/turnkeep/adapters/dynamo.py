"""The item store on DynamoDB: conditions compiled to expressions, every retry inside the time that is left.

botocore's own retries are off: here each failure is classified once, by its code, and what is retried is retried with
jitter until the time is up. A write whose answer was lost may have landed; sending it again is harmless, because its
condition then fails on what it wrote itself and brings that item back for the ledger to recognise.

Classification (AWS's error codes):

* refused: ``ConditionalCheckFailed``, alone or as a reason of a cancelled transaction;
* again: throttling, ``TransactionConflict``, ``TransactionInProgress``, internal errors, 5xx, and a connection that
  could not be made, broke or timed out;
* a fault of ours or of the deployment (validation, permissions, no such table): raised as it is, never retried.
"""

from __future__ import annotations

import random
import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError, HTTPClientError

from turnkeep.clock import Clock, SystemClock
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.store import (
    HELD,
    INDEX_KEYS,
    AllOf,
    AnyOf,
    Applied,
    AtMost,
    Check,
    Condition,
    Delete,
    Differs,
    Equals,
    Get,
    IndexQuery,
    Item,
    Key,
    LessThan,
    Missing,
    Page,
    Present,
    Put,
    Query,
    Read,
    Refused,
    Result,
    Unavailable,
    Update,
    Value,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

T = TypeVar("T")

AGAIN = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "ThrottlingException",
        "ThrottlingError",
        "Throttling",
        "RequestLimitExceeded",
        "InternalServerError",
        "InternalFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "TransactionConflictException",
        "TransactionConflict",
        "TransactionInProgressException",
        "ReplicatedWriteConflictException",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)
"""Codes after which the same call may be made again: nothing is wrong with it."""

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 20, 1_000
LONGEST_TRY_MS = 12_000
"""No single operation holds a caller longer than this, however much time is left."""
BATCH = 25
SIDE_BY_SIDE = 12


class DynamoItemStore:
    """One DynamoDB table.

    Args:
        client: a DynamoDB client, made with ``client_config``.
        table: the table's name.
        left_ms: milliseconds that the caller has left; retries end inside it.
        clock: for pauses.
        rand: a number in [0, 1) for jitter.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        *,
        left_ms: Callable[[], int] = lambda: 10_000,
        clock: Clock | None = None,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._table = table
        self._left_ms = left_ms
        self._clock = clock or SystemClock()
        self._rand = rand
        self.round_trips = 0
        self.calls = 0

    # --- the port -------------------------------------------------------------------------------------------

    def read(self, reads: Sequence[Read]) -> list[Page]:
        """See ``ItemStore.read``."""
        self.round_trips += 1
        found = _side_by_side([partial(self._one, read) for read in reads])
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return [one for one in found if isinstance(one, Page)]

    def write(self, writes: Sequence[Write]) -> list[Result]:
        """See ``ItemStore.write``."""
        self.round_trips += 1
        found = _side_by_side([partial(self._write, write) for write in writes])
        results: list[Result] = []
        for one in found:
            if isinstance(one, StoreUnavailableError):
                results.append(Unavailable(one))
            elif isinstance(one, BaseException):
                raise one
            else:
                results.append(one)
        return results

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        """See ``ItemStore.transact``."""
        self.round_trips += 1
        items = [self._transact_item(write) for write in writes]
        token = str(uuid.uuid4())

        def call() -> list[Result]:
            try:
                self._client.transact_write_items(TransactItems=items, ClientRequestToken=token)  # type: ignore[arg-type]
            except ClientError as error:
                reasons = error.response.get("CancellationReasons") or []
                if not any(reason.get("Code") == "ConditionalCheckFailed" for reason in reasons):
                    raise
                return [
                    Refused(_item(reason.get("Item")))
                    if reason.get("Code") == "ConditionalCheckFailed"
                    else Refused(HELD)
                    for reason in reasons
                ]
            return [Applied() for _ in writes]

        return self._until_answered(call)

    def delete(self, keys: Sequence[Key]) -> None:
        """See ``ItemStore.delete``."""
        self.round_trips += 1
        for at in range(0, len(keys), BATCH):
            self._delete_batch(keys[at : at + BATCH])

    # --- calls ----------------------------------------------------------------------------------------------

    def _one(self, read: Read) -> Page:
        if isinstance(read, Get):
            answer = self._until_answered(
                lambda: self._client.get_item(TableName=self._table, Key=_key(read.key), ConsistentRead=read.consistent)
            )
            item = _item(answer.get("Item"))
            return Page([item] if item is not None else [])
        return self._pages(self._query_arguments(read), read.limit)

    def _pages(self, arguments: dict[str, Any], limit: int | None) -> Page:
        items: list[Item] = []
        while True:
            if limit is not None:
                arguments["Limit"] = limit - len(items)
            answer = self._until_answered(lambda: self._client.query(**arguments))
            items.extend(item for found in answer["Items"] if (item := _item(found)) is not None)
            last = answer.get("LastEvaluatedKey")
            if last is None or (limit is not None and len(items) >= limit):
                return Page(items, more=last is not None)
            arguments["ExclusiveStartKey"] = last

    def _query_arguments(self, read: Query | IndexQuery) -> dict[str, Any]:
        if isinstance(read, Query):
            arguments: dict[str, Any] = {
                "TableName": self._table,
                "KeyConditionExpression": "pk = :p AND sk BETWEEN :l AND :h",
                "ExpressionAttributeValues": {":p": {"S": read.pk}, ":l": {"S": read.low}, ":h": {"S": read.high}},
                "ConsistentRead": read.consistent,
                "ScanIndexForward": read.forward,
            }
            if read.attributes is not None:
                names = {f"#{index}": name for index, name in enumerate(read.attributes)}
                arguments["ProjectionExpression"] = ", ".join(names)
                arguments["ExpressionAttributeNames"] = names
            return arguments
        hash_name, range_name = INDEX_KEYS[read.index]
        arguments = {
            "TableName": self._table,
            "IndexName": read.index,
            "KeyConditionExpression": "#h = :h" + (" AND #r <= :r" if read.upto is not None else ""),
            "ExpressionAttributeNames": {"#h": hash_name},
            "ExpressionAttributeValues": {":h": {"S": read.value}},
            "ScanIndexForward": read.forward,
        }
        if read.upto is not None:
            arguments["ExpressionAttributeNames"]["#r"] = range_name
            arguments["ExpressionAttributeValues"][":r"] = {"N": str(read.upto)}
        if read.after is not None:
            arguments["ExclusiveStartKey"] = _wire(read.after)
        return arguments

    def _write(self, write: Write) -> Applied | Refused:
        arguments, expressions = _write_arguments(write, self._table)
        arguments |= expressions.as_arguments()
        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if isinstance(write, Update):
            arguments["ReturnValues"] = "ALL_NEW" if write.wants_item else "NONE"

        def call() -> Applied | Refused:
            try:
                if isinstance(write, Put):
                    self._client.put_item(**arguments)
                    return Applied()
                if isinstance(write, Delete):
                    self._client.delete_item(**arguments)
                    return Applied()
                answer = self._client.update_item(**arguments)
                return Applied(_item(answer.get("Attributes")))
            except ClientError as error:
                if _code(error) != "ConditionalCheckFailedException":
                    raise
                response: Mapping[str, Any] = error.response
                return Refused(_item(response.get("Item")))

        return self._until_answered(call)

    def _transact_item(self, write: Write | Check) -> dict[str, Any]:
        arguments, expressions = _write_arguments(write, self._table)
        arguments |= expressions.as_arguments()
        arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        kind = "ConditionCheck" if isinstance(write, Check) else type(write).__name__
        return {kind: arguments}

    def _delete_batch(self, keys: Sequence[Key]) -> None:
        pending: list[Any] = [{"DeleteRequest": {"Key": _key(key)}} for key in keys]

        def call() -> None:
            nonlocal pending
            answer = self._client.batch_write_item(RequestItems={self._table: pending})
            pending = list(answer.get("UnprocessedItems", {}).get(self._table, []))
            if pending:
                raise _PartialError

        self._until_answered(call)

    def _until_answered(self, call: Callable[[], T]) -> T:
        """Calls until somebody answers, with jitter, inside the time that is left.

        Raises:
            StoreUnavailableError: the time is up; the call may or may not have landed.
            ClientError: a fault that trying again does not mend.
        """
        give_up_at = self._clock.monotonic_ms() + min(self._left_ms(), LONGEST_TRY_MS)
        ceiling = FIRST_PAUSE_MS
        while True:
            self.calls += 1
            try:
                return call()
            except (ClientError, HTTPClientError, ConnectionError, _PartialError) as error:
                if isinstance(error, ClientError) and not _is_passing(error):
                    raise
                pause_ms = 1 + self._rand() * ceiling
                if self._clock.monotonic_ms() + pause_ms >= give_up_at:
                    raise StoreUnavailableError from error
                self._clock.sleep_ms(pause_ms)
                ceiling = min(2 * ceiling, LONGEST_PAUSE_MS)


class _PartialError(Exception):
    """A batch of which some items are still to be done."""


def client_config(*, read_timeout_s: float = 5.0) -> Any:
    """The botocore configuration the store's client is made with: short time-outs, and no retries of botocore's own."""
    from botocore.config import Config

    return Config(
        connect_timeout=2.0,
        read_timeout=read_timeout_s,
        max_pool_connections=SIDE_BY_SIDE + 4,
        retries={"mode": "standard", "total_max_attempts": 1},
    )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _is_passing(error: ClientError) -> bool:
    """Whether the same call may succeed when it is made again."""
    if _code(error) == "TransactionCanceledException":
        reasons: Any = error.response.get("CancellationReasons") or []
        codes = {str(reason.get("Code", "None")) for reason in reasons} - {"None"}
        return bool(codes) and codes <= AGAIN
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _code(error) in AGAIN or status >= 500


def _side_by_side(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Makes the calls at once, each in a thread but the last; what a call raised is its result."""
    results: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except BaseException as error:
            results[index] = error

    at = 0
    while at < len(calls):
        group = range(at, min(at + SIDE_BY_SIDE, len(calls)))
        threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in group[:-1]]
        for thread in threads:
            thread.start()
        run(group[-1])
        for thread in threads:
            thread.join()
        at += SIDE_BY_SIDE
    return results


# --- items and expressions ----------------------------------------------------------------------------------


def _attribute(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bytes):
        return {"B": value}
    return {"N": str(value)}


def _wire(item: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _attribute(value) for name, value in item.items()}


def _key(key: Key) -> dict[str, Any]:
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def _item(found: Mapping[str, Any] | None) -> Item | None:
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


class _Expressions:
    """Collects placeholders for the names and values of one request."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.condition = ""
        self.update = ""

    def name(self, attribute: str) -> str:
        if attribute in ("pk", "sk"):
            return attribute
        return self.names.setdefault(attribute, f"#{len(self.names)}")

    def value(self, value: Value) -> str:
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = _attribute(value)
        return placeholder

    def compile(self, condition: Condition) -> str:
        match condition:
            case Missing(attribute):
                return f"attribute_not_exists({self.name(attribute)})"
            case Present(attribute):
                return f"attribute_exists({self.name(attribute)})"
            case Equals(attribute, value):
                return f"{self.name(attribute)} = {self.value(value)}"
            case Differs(attribute, value):
                # A missing attribute differs from everything in DynamoDB's <>, and is no match here.
                name = self.name(attribute)
                return f"(attribute_exists({name}) AND {name} <> {self.value(value)})"
            case AtMost(attribute, value):
                return f"{self.name(attribute)} <= {self.value(value)}"
            case LessThan(attribute, value):
                return f"{self.name(attribute)} < {self.value(value)}"
            case AllOf(conditions):
                return "(" + " AND ".join(self.compile(one) for one in conditions) + ")"
            case AnyOf(conditions):
                return "(" + " OR ".join(self.compile(one) for one in conditions) + ")"

    def change(self, update: Update) -> None:
        sets = [f"{self.name(name)} = {self.value(value)}" for name, value in update.set.items()]
        for name, value in update.set_if_absent.items():
            place = self.name(name)
            sets.append(f"{place} = if_not_exists({place}, {self.value(value)})")
        clauses = []
        if sets:
            clauses.append("SET " + ", ".join(sets))
        if update.remove:
            clauses.append("REMOVE " + ", ".join(self.name(name) for name in update.remove))
        if update.add:
            clauses.append(
                "ADD " + ", ".join(f"{self.name(name)} {self.value(amount)}" for name, amount in update.add.items())
            )
        self.update = " ".join(clauses)

    def as_arguments(self) -> dict[str, Any]:
        found = {
            "ConditionExpression": self.condition,
            "UpdateExpression": self.update,
            "ExpressionAttributeNames": {place: name for name, place in self.names.items()},
            "ExpressionAttributeValues": self.values,
        }
        return {name: value for name, value in found.items() if value}


def _write_arguments(write: Write | Check, table: str) -> tuple[dict[str, Any], _Expressions]:
    expressions = _Expressions()
    arguments: dict[str, Any] = {"TableName": table}
    if isinstance(write, Put):
        arguments["Item"] = _wire(write.item)
    else:
        arguments["Key"] = _key(write.key)
    if isinstance(write, Update):
        expressions.change(write)
    if write.condition is not None:
        expressions.condition = expressions.compile(write.condition)
    return arguments, expressions
