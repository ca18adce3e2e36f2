"""The ledger's table in moto, made as the template makes it, and clients whose calls are atomic as DynamoDB's are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from turnkeep.adapters.dynamo import DynamoItemStore, client_config

if TYPE_CHECKING:
    from turnkeep.clock import Clock

REGION = "eu-central-1"
INDEXES = {"byOwner": ("ownerKey", "savedAt"), "byAudience": ("audienceKey", "askedAt"), "byDue": ("due", "dueAt")}
PROJECTED = {
    "byOwner": ["format", "status", "turn", "messageCount", "createdAt", "deleteAfter_s"],
    "byAudience": ["format", "status", "askId", "expiresAt", "deleteAfter_s"],
    "byDue": ["format", "status", "askId", "expiresAt", "starts", "deleteAfter_s"],
}


def make_table(client: Any, name: str) -> None:
    keys = [("pk", "S"), ("sk", "S")]
    keys += [pair for hashed, ranged in INDEXES.values() for pair in ((hashed, "S"), (ranged, "N"))]
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=_schema("pk", "sk"),
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in keys],
        GlobalSecondaryIndexes=[
            {
                "IndexName": index,
                "KeySchema": _schema(*names),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": PROJECTED[index]},
            }
            for index, names in INDEXES.items()
        ],
    )


def _schema(hashed: str, ranged: str) -> list[dict[str, str]]:
    return [{"AttributeName": hashed, "KeyType": "HASH"}, {"AttributeName": ranged, "KeyType": "RANGE"}]


class OneAtATime:
    """A client whose calls are atomic; moto reads and writes an item in two steps."""

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.RLock()

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)

        def atomic(**arguments: Any) -> Any:
            with self._lock:
                return call(**arguments)

        return atomic


def item_store(client: Any, table: str, clock: Clock | None = None) -> DynamoItemStore:
    return DynamoItemStore(client, table, left_ms=lambda: 20_000, clock=clock)


__all__ = ["REGION", "OneAtATime", "client_config", "item_store", "make_table"]
