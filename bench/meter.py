"""A meter at botocore's two ends: what every DynamoDB or S3 call costs by AWS's documented rules.

moto's own capacity figures are constants, so units are computed here from the items themselves, looked at before and
after each write (those looks are not counted). Works for whoever makes the client, so that other libraries are measured
by the same meter.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import botocore.client
import botocore.endpoint
import botocore.session

from bench.sizes import Typed, index_units, item_bytes, read_units, write_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QUERY = ("TableName", "IndexName", "KeyConditionExpression", "ScanIndexForward", "Limit", "ExclusiveStartKey")


@dataclass
class Tally:
    """What was counted.

    Attributes:
        calls: calls by operation.
        table_units: write units of the table's items.
        index_units: write units of their index entries.
        read_units: read units.
        request_bytes: bytes of serialized request bodies, as they leave.
        largest_item_bytes: the largest item that was written.
    """

    calls: Counter[str] = field(default_factory=Counter)
    table_units: int = 0
    index_units: int = 0
    read_units: float = 0.0
    request_bytes: int = 0
    largest_item_bytes: int = 0

    @property
    def write_units(self) -> int:
        """All write units."""
        return self.table_units + self.index_units

    @property
    def call_count(self) -> int:
        """All calls."""
        return sum(self.calls.values())


class Meter:
    """Counts while it is installed (``with Meter() as meter``); ``measure`` counts a stretch of its own."""

    def __init__(self) -> None:
        self._tallies: list[Tally] = []
        self._lock = threading.RLock()
        self._quiet = threading.local()
        self._tables: dict[str, tuple[list[str], list[dict[str, Any]]]] = {}
        self._raw: Any = None

    def __enter__(self) -> Meter:
        self._api_call = botocore.client.BaseClient._make_api_call
        self._request = botocore.endpoint.Endpoint.make_request
        meter = self

        def api_call(client: Any, operation: str, parameters: dict[str, Any]) -> Any:
            return meter._counted(client, operation, parameters)

        def make_request(endpoint: Any, model: Any, request: dict[str, Any]) -> Any:
            if not getattr(meter._quiet, "on", False) and model.service_model.service_name in ("dynamodb", "s3"):
                body = request.get("body") or b""
                meter._each(lambda tally: _add_bytes(tally, len(body) if isinstance(body, bytes | str) else 0))
            return meter._request(endpoint, model, request)

        botocore.client.BaseClient._make_api_call = api_call
        botocore.endpoint.Endpoint.make_request = make_request
        return self

    def __exit__(self, *_: object) -> None:
        botocore.client.BaseClient._make_api_call = self._api_call
        botocore.endpoint.Endpoint.make_request = self._request

    @contextlib.contextmanager
    def measure(self) -> Iterator[Tally]:
        """Counts what happens inside the ``with`` block."""
        tally = Tally()
        self._tallies.append(tally)
        try:
            yield tally
        finally:
            self._tallies.remove(tally)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing that this thread does inside is counted."""
        was = getattr(self._quiet, "on", False)
        self._quiet.on = True
        try:
            yield
        finally:
            self._quiet.on = was

    # --- one call -----------------------------------------------------------------------------------------------

    def _counted(self, client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        service = client.meta.service_model.service_name
        if getattr(self._quiet, "on", False) or service not in ("dynamodb", "s3"):
            return self._api_call(client, operation, parameters)
        with self._lock:
            self._each(lambda tally: tally.calls.update([operation]))
            if service == "s3":
                return self._api_call(client, operation, parameters)
            low = _low_level(client, operation, parameters)
            places = _written(operation, low)
            before = [self._peek(*place[:2]) for place in places]
            try:
                answer = self._api_call(client, operation, parameters)
            except Exception:
                for old in before:  # a refused write is paid by what is there
                    self._pay(write_units(old, None))
                raise
            for (table, key, weight), old in zip(places, before, strict=True):
                new = self._peek(table, key)
                self._pay(weight * write_units(old, new), self._indexes(table, old, new), item_bytes(new))
            units = self._read_units(operation, low)
            self._each(lambda tally: _add_reads(tally, units))
            return answer

    def _pay(self, table: int, indexes: int = 0, size_bytes: int = 0) -> None:
        def add(tally: Tally) -> None:
            tally.table_units += table
            tally.index_units += indexes
            tally.largest_item_bytes = max(tally.largest_item_bytes, size_bytes)

        self._each(add)

    def _each(self, act: Callable[[Tally], None]) -> None:
        with self._lock:
            for tally in self._tallies:
                act(tally)

    # --- looks that are not counted -----------------------------------------------------------------------------

    def _client(self) -> Any:
        if self._raw is None:
            session = botocore.session.Session()
            self._raw = session.create_client("dynamodb", region_name=session.get_config_variable("region"))
        return self._raw

    def _described(self, table: str) -> tuple[list[str], list[dict[str, Any]]]:
        if table not in self._tables:
            with self.quiet():
                found = self._client().describe_table(TableName=table)["Table"]
            key = [each["AttributeName"] for each in found["KeySchema"]]
            self._tables[table] = (key, found.get("GlobalSecondaryIndexes", []))
        return self._tables[table]

    def _peek(self, table: str, item: Typed) -> Typed | None:
        key, _ = self._described(table)
        with self.quiet():
            answer = self._client().get_item(
                TableName=table, Key={name: item[name] for name in key}, ConsistentRead=True
            )
        found: Typed | None = answer.get("Item")
        return found

    def _indexes(self, table: str, old: Typed | None, new: Typed | None) -> int:
        key, indexes = self._described(table)
        return sum(index_units(index, old, new, key) for index in indexes)

    def _read_units(self, operation: str, low: dict[str, Any]) -> float:
        consistent = bool(low.get("ConsistentRead"))
        match operation:
            case "GetItem":
                return read_units(item_bytes(self._peek(low["TableName"], low["Key"])), consistent=consistent)
            case "Query":
                asked = {name: low[name] for name in _QUERY if name in low}
                condition = low.get("KeyConditionExpression", "")
                for placeholders in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
                    used = {name: value for name, value in low.get(placeholders, {}).items() if name in condition}
                    if used:
                        asked[placeholders] = used
                with self.quiet():
                    items = self._client().query(**asked)["Items"]
                return read_units(sum(map(item_bytes, items)), consistent=consistent)
            case "BatchGetItem":
                return sum(
                    read_units(item_bytes(self._peek(table, key)), consistent=bool(wanted.get("ConsistentRead")))
                    for table, wanted in low["RequestItems"].items()
                    for key in wanted["Keys"]
                )
            case _:
                return 0.0


def _add_bytes(tally: Tally, count: int) -> None:
    tally.request_bytes += count


def _add_reads(tally: Tally, units: float) -> None:
    tally.read_units += units


def _written(operation: str, low: dict[str, Any]) -> list[tuple[str, Typed, int]]:
    """What a call writes: the table, an item or a key that names the place, and by how much it is weighed."""
    match operation:
        case "PutItem":
            return [(low["TableName"], low["Item"], 1)]
        case "UpdateItem" | "DeleteItem":
            return [(low["TableName"], low["Key"], 1)]
        case "BatchWriteItem":
            return [
                (table, each["PutRequest"]["Item"] if "PutRequest" in each else each["DeleteRequest"]["Key"], 1)
                for table, requests in low["RequestItems"].items()
                for each in requests
            ]
        case "TransactWriteItems":
            parts = [part for each in low["TransactItems"] for part in each.values()]
            return [(part["TableName"], part.get("Item") or part["Key"], 2) for part in parts]
        case _:
            return []


def _low_level(client: Any, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters in the wire's own types, whether they came from a client or from boto3's resource."""
    handlers = client.meta.events._emitter._handlers.prefix_search("provide-client-params.dynamodb.PutItem")
    if not any("copy_dynamodb_params" in getattr(each, "__name__", "") for each in handlers):
        return parameters
    from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
    from boto3.dynamodb.types import TypeSerializer

    serialize = TypeSerializer().serialize

    def typed(values: dict[str, Any]) -> Typed:
        return {name: serialize(value) for name, value in values.items()}

    low = dict(parameters)
    for name in ("Item", "Key", "ExpressionAttributeValues", "ExclusiveStartKey"):
        if name in low:
            low[name] = typed(low[name])
    condition = low.get("KeyConditionExpression")
    if isinstance(condition, ConditionBase):
        built = ConditionExpressionBuilder().build_expression(condition, is_key_condition=True)
        low["KeyConditionExpression"] = built.condition_expression
        low["ExpressionAttributeNames"] = low.get("ExpressionAttributeNames", {}) | built.attribute_name_placeholders
        values = typed(built.attribute_value_placeholders)
        low["ExpressionAttributeValues"] = low.get("ExpressionAttributeValues", {}) | values
    if operation == "BatchWriteItem":
        low["RequestItems"] = {
            table: [
                {"PutRequest": {"Item": typed(each["PutRequest"]["Item"])}}
                if "PutRequest" in each
                else {"DeleteRequest": {"Key": typed(each["DeleteRequest"]["Key"])}}
                for each in requests
            ]
            for table, requests in low["RequestItems"].items()
        }
    return low
