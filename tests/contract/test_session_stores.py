"""The session store on the ledger keeps the battery and the reference's traces, on every item store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.session_store_contract import SessionStoreContract, envelope
from tests.contract.tables import OneAtATime, new_table
from turnkeep.adapters.dynamo import DynamoItemStore
from turnkeep.clock import SystemClock
from turnkeep.ledger.keys import ConversationKey, turn_sk
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.store import Update
from turnkeep.sessions import SessionStore

if TYPE_CHECKING:
    from tests.contract.dynamo_server import DynamoServer
    from turnkeep.ledger.store import ItemStore


class OnTheLedger(SessionStoreContract):
    """Sessions on an item store, which is kept so that it can be tampered with."""

    def make_items(self) -> ItemStore:
        raise NotImplementedError

    def make_store(self) -> SessionStore:
        self.items = self.make_items()
        return SessionStore(Ledger(self.items, SystemClock()))

    def corrupt(self, store: SessionStore, session_id: str) -> None:
        self.items.write([Update((ConversationKey(session_id).pk, turn_sk(1)), set={"user": b"\x01nothing"})])


class TestInMemory(OnTheLedger):
    def make_items(self) -> ItemStore:
        return MemoryItemStore()


class TestOnDynamoDBInTheProcess(OnTheLedger):
    @pytest.fixture(autouse=True)
    def _on(self, moto_client: Any) -> None:
        self.client = moto_client

    def make_items(self) -> ItemStore:
        return DynamoItemStore(OneAtATime(self.client), new_table(self.client))  # type: ignore[arg-type]


class TestOnDynamoDBBehindAServer(OnTheLedger):
    """Every case meets a throttle and a lost answer of a transaction."""

    @pytest.fixture(autouse=True)
    def _on(self, dynamo_server: DynamoServer) -> None:
        self.server = dynamo_server

    def make_items(self) -> ItemStore:
        client = self.server.client()
        store = DynamoItemStore(client, new_table(client))
        self.server.faults.add("lost", service="dynamodb", operation="TransactWriteItems", times=1)
        self.server.faults.add("throttle", service="dynamodb", skip=2, times=1)
        return store


class KeepsEnvelopesInAMap:
    """The reference's in-memory store in a few lines: no more than the two required members."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def hydrate(self, session_id: str) -> Any:
        return self.kept.get(session_id)

    def persist(self, session_id: str, what: Any) -> None:
        self.kept[session_id] = what


class TestTheHarnessItself:
    def test_optional_members_that_are_missing_are_told_and_not_failed(self) -> None:
        store, contract = KeepsEnvelopesInAMap(), SessionStoreContract()
        contract.test_persist_hydrate_round_trip(store, "s")
        with pytest.raises(pytest.skip.Exception, match="has no owner_of"):
            contract.test_ownership_fills_in_on_a_later_signed_turn(store, "s")

    def test_a_store_that_answers_unreadable_with_absent_fails(self) -> None:
        class Forgetful(SessionStoreContract):
            def corrupt(self, store: Any, session_id: str) -> None:
                del store.kept[session_id]

        with pytest.raises(AssertionError):
            Forgetful().test_unreadable_is_not_absent(KeepsEnvelopesInAMap(), "s")

    def test_a_store_that_folds_ids_fails(self) -> None:
        class Folding(KeepsEnvelopesInAMap):
            def persist(self, session_id: str, what: Any) -> None:
                super().persist(session_id.lower(), what)

            def hydrate(self, session_id: str) -> Any:
                return super().hydrate(session_id.lower())

        with pytest.raises(AssertionError):
            SessionStoreContract().test_awkward_session_ids_round_trip(Folding())

    def test_envelopes_are_signed_by_whom_they_say(self) -> None:
        assert "identity" not in envelope("x")["data"]
        assert envelope("x", "ada")["data"]["identity"] == {"principal": "ada"}
