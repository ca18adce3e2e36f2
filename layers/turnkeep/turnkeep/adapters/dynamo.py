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

import json
import random
import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import (
    ClientError,
    HTTPClientError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from turnkeep.adapters.dynamo_expressions import item_of, query_arguments, wire_key, write_arguments
from turnkeep.clock import Clock, SystemClock
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.store import (
    HELD,
    Applied,
    Check,
    Delete,
    Get,
    Item,
    Key,
    Page,
    Put,
    Query,
    Read,
    Refused,
    Result,
    Unavailable,
    Update,
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

BELOW_HTTP = (BotoConnectionError, HTTPClientError, ResponseParserError, ConnectionError)
"""No connection, a broken one, a time-out, an answer cut short: the call may have taken place."""

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 20, 1_000
LONGEST_TRY_MS = 12_000
"""No single operation holds a caller longer than this, however much time is left."""
BATCH = 25
COMPACT_UP_TO_BYTES = 64_000
SIDE_BY_SIDE = 12


class DynamoItemStore:
    """One DynamoDB table.

    Args:
        client: a DynamoDB client, made with ``client_config``.
        table: the table's name.
        left_ms: milliseconds that the caller has left; retries end inside it.
        clock: for pauses.
        rand: a number in [0, 1) for jitter.

    Attributes:
        round_trips: how often somebody waited for the table; what goes side by side is one.
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
        _send_compactly(client)
        self._client = client
        self._table = table
        self._left_ms = left_ms
        self._clock = clock or SystemClock()
        self._rand = rand
        self.round_trips = 0
        self._calls: list[None] = []  # a list, because threads append to it one at a time

    @property
    def calls(self) -> int:
        """How many single calls were made, those that were tried again included."""
        return len(self._calls)

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
                    Refused(item_of(reason.get("Item")))
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
            strongly: Any = {"ConsistentRead": True} if read.consistent else {}
            answer = self._until_answered(
                lambda: self._client.get_item(TableName=self._table, Key=wire_key(read.key), **strongly)
            )
            item = item_of(answer.get("Item"))
            return Page([item] if item is not None else [])
        arguments = query_arguments(read, self._table)
        if isinstance(read, Query):
            return self._pages(arguments, read.limit)
        # DynamoDB says "more" at a limit whether or not there is more; an item too many knows it.
        page = self._pages(arguments, read.limit + 1)
        return Page(page.items[: read.limit], more=len(page.items) > read.limit)

    def _pages(self, arguments: dict[str, Any], limit: int | None) -> Page:
        items: list[Item] = []
        while True:
            if limit is not None:
                arguments["Limit"] = limit - len(items)
            answer = self._until_answered(lambda: self._client.query(**arguments))
            items.extend(item for found in answer["Items"] if (item := item_of(found)) is not None)
            last = answer.get("LastEvaluatedKey")
            if last is None or (limit is not None and len(items) >= limit):
                return Page(items, more=last is not None)
            arguments["ExclusiveStartKey"] = last

    def _write(self, write: Write) -> Applied | Refused:
        arguments, expressions = write_arguments(write, self._table)
        arguments |= expressions.as_arguments()
        if write.condition is not None:
            arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if isinstance(write, Update) and write.wants_item:
            arguments["ReturnValues"] = "ALL_NEW"

        def call() -> Applied | Refused:
            try:
                if isinstance(write, Put):
                    self._client.put_item(**arguments)
                    return Applied()
                if isinstance(write, Delete):
                    self._client.delete_item(**arguments)
                    return Applied()
                answer = self._client.update_item(**arguments)
                return Applied(item_of(answer.get("Attributes")))
            except ClientError as error:
                if _code(error) != "ConditionalCheckFailedException":
                    raise
                response: Mapping[str, Any] = error.response
                return Refused(item_of(response.get("Item")))

        return self._until_answered(call)

    def _transact_item(self, write: Write | Check) -> dict[str, Any]:
        arguments, expressions = write_arguments(write, self._table)
        arguments |= expressions.as_arguments()
        if write.condition is not None:
            arguments["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        kind = "ConditionCheck" if isinstance(write, Check) else type(write).__name__
        return {kind: arguments}

    def _delete_batch(self, keys: Sequence[Key]) -> None:
        pending: list[Any] = [{"DeleteRequest": {"Key": wire_key(key)}} for key in keys]

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
            self._calls.append(None)
            try:
                return call()
            except (ClientError, *BELOW_HTTP, _PartialError) as error:
                if isinstance(error, ClientError) and not _is_passing(error):
                    raise
                pause_ms = 1 + self._rand() * ceiling
                if self._clock.monotonic_ms() + pause_ms >= give_up_at:
                    raise StoreUnavailableError from error
                self._clock.sleep_ms(pause_ms)
                ceiling = min(2 * ceiling, LONGEST_PAUSE_MS)


def _send_compactly(client: DynamoDBClient) -> None:
    """Lets a client's requests leave without the blanks that botocore's JSON has, and non-ASCII text unescaped."""
    events = getattr(getattr(client, "meta", None), "events", None)
    if events is not None:
        events.register("before-call.dynamodb", _compact, unique_id="turnkeep-compact")


def _compact(params: dict[str, Any], **_: Any) -> None:
    body = params.get("body")
    if isinstance(body, bytes | str) and len(body) <= COMPACT_UP_TO_BYTES:
        values = json.loads(body)
        params["body"] = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


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
