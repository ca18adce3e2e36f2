"""The item store in memory, on DynamoDB in the process, and on DynamoDB behind a server: one contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.item_store_contract import ItemStoreContract
from tests.contract.tables import OneAtATime, new_table
from turnkeep.adapters.dynamo import DynamoItemStore
from turnkeep.ledger.memory import ItemTooLargeError, MemoryItemStore, size_bytes
from turnkeep.ledger.store import Put

if TYPE_CHECKING:
    from tests.contract.dynamo_server import DynamoServer
    from turnkeep.ledger.store import ItemStore


class TestInMemory(ItemStoreContract):
    def make_store(self) -> ItemStore:
        return MemoryItemStore()


class TestOnDynamoDBInTheProcess(ItemStoreContract):
    @pytest.fixture(autouse=True)
    def _on(self, moto_client: Any) -> None:
        self.client = moto_client

    def make_store(self) -> ItemStore:
        return DynamoItemStore(OneAtATime(self.client), new_table(self.client))  # type: ignore[arg-type]


class TestOnDynamoDBBehindAServer(ItemStoreContract):
    """Every test meets throttles and lost answers on its way, in the order in which its calls happen to be."""

    @pytest.fixture(autouse=True)
    def _on(self, server_store: ItemStore, dynamo_server: DynamoServer) -> None:
        self.shared = server_store
        dynamo_server.faults.add("throttle", service="dynamodb", skip=1, times=1)
        dynamo_server.faults.add("lost", service="dynamodb", operation="GetItem", skip=1, times=1)
        dynamo_server.faults.add("cut", service="dynamodb", operation="Query", skip=1, times=1)

    def make_store(self) -> ItemStore:
        return self.shared


def test_an_item_over_the_limit_is_refused_in_memory_as_on_dynamodb(moto_client: Any) -> None:
    from botocore.exceptions import ClientError

    fits = {"pk": "p", "sk": "s", "blob": bytes(409_600 - 2 - 1 - 2 - 1 - 4)}
    over = {**fits, "blob": fits["blob"] + b"x"}  # type: ignore[operator]
    assert size_bytes(fits) == 409_600
    dynamo = DynamoItemStore(moto_client, new_table(moto_client))
    for store in (MemoryItemStore(), dynamo):
        store.write([Put(fits)])
        with pytest.raises((ItemTooLargeError, ClientError)):
            store.write([Put(over)])
