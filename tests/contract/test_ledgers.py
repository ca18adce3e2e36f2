"""The ledger in memory, on DynamoDB in the process, and on DynamoDB behind a server with faults: one contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.ledger_contract import LedgerContract
from tests.contract.tables import OneAtATime, new_table
from turnkeep.adapters.dynamo import DynamoItemStore
from turnkeep.ledger.memory import MemoryItemStore

if TYPE_CHECKING:
    from tests.contract.dynamo_server import DynamoServer
    from turnkeep.ledger.store import ItemStore


class TestInMemory(LedgerContract):
    def make_store(self) -> ItemStore:
        return MemoryItemStore()


@pytest.fixture(scope="module")
def table(moto_client: Any) -> DynamoItemStore:
    return DynamoItemStore(OneAtATime(moto_client), new_table(moto_client))  # type: ignore[arg-type]


class TestOnDynamoDBInTheProcess(LedgerContract):
    @pytest.fixture(autouse=True)
    def _on(self, table: DynamoItemStore) -> None:
        self.table = table

    def make_store(self) -> ItemStore:
        return self.table


class TestOnDynamoDBBehindAServer(LedgerContract):
    """Every test meets a throttle, a cut and two lost answers on its way, wherever its calls happen to be."""

    @pytest.fixture(autouse=True)
    def _on(self, server_store: ItemStore, dynamo_server: DynamoServer) -> None:
        self.shared = server_store
        for kind, operation, skip in (
            ("lost", "PutItem", 0),
            ("lost", "UpdateItem", 1),
            ("lost", "TransactWriteItems", 0),
            ("throttle", "UpdateItem", 0),
            ("cut", "Query", 2),
        ):
            dynamo_server.faults.add(kind, service="dynamodb", operation=operation, skip=skip, times=1)

    def make_store(self) -> ItemStore:
        return self.shared
