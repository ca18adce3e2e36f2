"""Memory on the ledger's table keeps the contract of all memory stores, on the table in memory and on DynamoDB."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from tests.contract.memory_bench import ADA, NOW_MS, all_pages, an_entry
from tests.contract.memory_contract import MemoryContract
from turnkeep.adapters.dynamo import DynamoItemStore, client_config
from turnkeep.clock import ManualClock
from turnkeep.errors import (
    MalformedStoredItemError,
    StoreUnavailableError,
    UnknownStoredFormatError,
    UnstorableValueError,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.store import Applied as Written
from turnkeep.ledger.store import Put, Refused, Result, Unavailable, Update, Write
from turnkeep.memory.entries import new_entry
from turnkeep.memory.in_ledger import MAX_STORED_BYTES, LedgerMemory
from turnkeep.memory.readers import read_window
from turnkeep.memory.store import Applied, Feedback, ranking_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REGION, TABLE = "eu-central-1", "Ledger-memory"


@pytest.fixture(scope="module")
def dynamo() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("dynamodb", region_name=REGION, config=client_config())
        yield client


@pytest.fixture
def table(dynamo: Any) -> Iterator[Any]:
    dynamo.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    )
    yield dynamo
    dynamo.delete_table(TableName=TABLE)


class OneAtATime:
    """A client whose calls are atomic, as DynamoDB's are; moto reads and writes an item in two steps."""

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.Lock()

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)

        def atomic(**arguments: Any) -> Any:
            with self._lock:
                return call(**arguments)

        return atomic


class TestOnATableInMemory(MemoryContract):
    def make_store(self, clock: ManualClock) -> LedgerMemory:
        return LedgerMemory(MemoryItemStore(), clock)


class TestOnDynamoDB(MemoryContract):
    @pytest.fixture(autouse=True)
    def _on(self, table: Any) -> None:
        self.client: Any = OneAtATime(table)

    def make_store(self, clock: ManualClock) -> LedgerMemory:
        return LedgerMemory(DynamoItemStore(self.client, TABLE), clock)


# --- where things lie ---------------------------------------------------------------------------------------


@dataclass
class Bench:
    items: MemoryItemStore
    clock: ManualClock
    store: LedgerMemory


@pytest.fixture
def bench() -> Bench:
    items, clock = MemoryItemStore(), ManualClock(wall_ms=NOW_MS)
    return Bench(items, clock, LedgerMemory(items, clock))


def test_entries_lie_beside_the_conversations_turns_and_show_no_principal(bench: Bench) -> None:
    bench.store.put_many(ADA, [an_entry("snap-3"), an_entry("beat-3-0"), an_entry("msg-3-0"), an_entry("snap-03")])
    bench.store.record_signature(ADA, "what ada said")
    bench.store.feedback(ADA, "snap-3", 1)
    items = bench.items.items()
    assert {item["pk"] for item in items} == {ConversationKey("c-1", "acme").pk}
    kinds = [str(item["sk"]).split("#")[0] for item in items]
    assert kinds == ["BEAT", "FEEDBACK", "NOTE", "NOTE", "SIGNATURE", "SNAP"]
    assert str(items[-1]["sk"]).endswith("#0000000000000003")
    for item in items:
        assert "ada" not in str(item["sk"])
        assert item["format"] == "memory-v1"


def test_an_identity_without_a_conversation_has_a_partition_that_is_no_conversations(bench: Bench) -> None:
    bench.store.put({"tenant": "acme", "principal": "ada"}, an_entry())
    bench.store.put({"tenant": "acme"}, an_entry())
    for item in bench.items.items():
        with pytest.raises(ValueError, match="not a conversation"):
            ConversationKey.from_pk(str(item["pk"]))


def test_what_expires_says_so_to_dynamodb_in_whole_seconds(bench: Bench) -> None:
    bench.store.put_many(
        ADA,
        [
            an_entry("later", ttl=NOW_MS + 1_500.5),
            an_entry("already", ttl=0),
            an_entry("never", ttl=1e300),
            an_entry("text", ttl="soon"),
        ],
    )
    stamps = {json.loads(str(i["entry"]))["id"]: (i.get("expiresAt"), i.get("deleteAfter_s")) for i in plain(bench)}
    assert stamps == {
        "later": (NOW_MS + 1_501, NOW_MS // 1000 + 2),
        "already": (0, NOW_MS // 1000),
        "never": (None, None),
        "text": (None, None),
    }


def plain(bench: Bench) -> list[dict[str, Any]]:
    """The items, their entries as text (small ones are not compressed, larger ones may be)."""
    from turnkeep.ledger.codec import unpack_text

    return [item | {"entry": unpack_text(item["entry"])} for item in bench.items.items()]


# --- what does not fit --------------------------------------------------------------------------------------


def noise(size: int) -> str:
    """Text that does not get smaller."""
    import random

    chance = random.Random(7)
    return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(size // 3))


def test_an_entry_that_no_item_holds_is_refused_by_its_size_and_nothing_of_its_batch_is_stored(bench: Bench) -> None:
    with pytest.raises(UnstorableValueError) as caught:
        bench.store.put_many(ADA, [an_entry("small"), an_entry("large", value=noise(700_000))])
    assert str(MAX_STORED_BYTES) in caught.value.reason
    assert bench.items.items() == []


def test_an_entry_just_under_the_limit_fits_an_item_whatever_its_keys_are(table: Any) -> None:
    store = LedgerMemory(DynamoItemStore(table, TABLE), ManualClock(wall_ms=NOW_MS))
    identity = {"tenant": "t" * 500, "principal": "p" * 500, "conversationId": "c" * 1400}
    value = noise(700_000)
    entry = an_entry("x" * 512)
    low, high = 0, len(value)
    while high - low > 100:
        middle = (low + high) // 2
        try:
            store.put(identity, entry | {"value": value[:middle]})
            low = middle
        except UnstorableValueError:
            high = middle
    store.put(identity, entry | {"value": value[:low]})
    read = store.get(identity, "x" * 512)
    assert read is not None
    assert read["value"] == value[:low]


# --- what cannot be read ------------------------------------------------------------------------------------


def test_what_a_newer_release_wrote_is_refused_by_name(bench: Bench) -> None:
    bench.store.put(ADA, an_entry("snap-1"))
    (item,) = bench.items.items()
    bench.items.write([Put(item | {"format": "memory-v2"})])
    for read in (lambda: bench.store.get(ADA, "snap-1"), lambda: bench.store.list(ADA)):
        with pytest.raises(UnknownStoredFormatError) as caught:
            read()
        assert "memory-v2" in str(caught.value)


@pytest.mark.parametrize("broken", ["{", '"text"', b"\x00\x01", 7, None])
def test_what_is_stored_and_cannot_be_read_is_not_absent(bench: Bench, broken: Any) -> None:
    bench.store.put(ADA, an_entry("snap-1", value="what ada said"))
    (item,) = bench.items.items()
    changed = {name: value for name, value in item.items() if name != "entry"}
    bench.items.write([Put(changed if broken is None else changed | {"entry": broken})])
    for read in (lambda: bench.store.get(ADA, "snap-1"), lambda: bench.store.newest(ADA, "snap", 1)):
        with pytest.raises(MalformedStoredItemError) as caught:
            read()
        assert "ada" not in str(caught.value)


# --- an answer that was lost --------------------------------------------------------------------------------


class LosesAnswers(MemoryItemStore):
    """Every conditional put lands, is sent again as the adapter would, and answers with what the second try found."""

    def write(self, writes: Sequence[Write]) -> list[Result]:
        first = super().write(writes)
        again = any(isinstance(one, Put) and one.condition is not None for one in writes)
        return super().write(writes) if again else first


def test_a_put_that_landed_and_lost_its_answer_is_applied_and_an_opinion_counts_once() -> None:
    store = LedgerMemory(LosesAnswers(), ManualClock(wall_ms=NOW_MS))
    assert store.put_if_version(ADA, an_entry(version=1), 0) == Applied(applied=True)
    assert store.put_if_version(ADA, an_entry(version=2), 1) == Applied(applied=True)
    store.feedback(ADA, "a", 0.5)
    store.feedback(ADA, "a", 1)
    assert store.get_feedback(ADA, "a") == Feedback(0.75, 2)


class Down(MemoryItemStore):
    def write(self, writes: Sequence[Write]) -> list[Result]:
        return [Unavailable(StoreUnavailableError()) for _ in writes]


def test_a_store_that_is_not_there_is_never_an_empty_one() -> None:
    store = LedgerMemory(Down(), ManualClock(wall_ms=NOW_MS))
    calls: list[Any] = [
        lambda: store.put(ADA, an_entry()),
        lambda: store.get(ADA, "a"),
        lambda: store.put_if_version(ADA, an_entry(), 0),
        lambda: store.feedback(ADA, "a", 1),
        lambda: store.record_signature(ADA, "s"),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            call()


def test_an_entry_with_a_ttl_that_changes_under_a_conditional_put_is_not_overwritten_by_it(bench: Bench) -> None:
    """Between the refused first try and the second one, somebody else puts the entry of a later version."""
    bench.store.put(ADA, an_entry(version=1, ttl=NOW_MS + 50))
    tries = 0

    class Races(MemoryItemStore):
        def write(self, writes: Sequence[Write]) -> list[Result]:
            nonlocal tries
            results = bench.items.write(writes)
            if isinstance(results[0], Refused) and tries == 0:
                tries += 1
                bench.store.put(ADA, an_entry(version=5, ttl=NOW_MS + 60))
            return results

    outcome = LedgerMemory(Races(), bench.clock).put_if_version(ADA, an_entry(version=2), 1)
    assert outcome == Applied(applied=False, current_version=5)
    assert tries == 1


def test_a_read_of_an_entry_that_expires_evicts_only_what_has_expired(bench: Bench) -> None:
    """Between the count and the eviction somebody puts the entry anew: it stays."""
    bench.store.put(ADA, an_entry(ttl=NOW_MS))

    class Races(MemoryItemStore):
        def write(self, writes: Sequence[Write]) -> list[Result]:
            results = bench.items.write(writes)
            if isinstance(writes[0], Update) and isinstance(results[0], Written):
                bench.store.put(ADA, an_entry(value="anew"))
            return results

    assert LedgerMemory(Races(), bench.clock).get(ADA, "a") is None
    read = bench.store.get(ADA, "a")
    assert read is not None
    assert read["value"] == "anew"


# --- newest -------------------------------------------------------------------------------------------------


def test_the_newest_are_read_backwards_and_no_more_than_that(bench: Bench) -> None:
    seen: list[int] = []
    items = MemoryItemStore(before=lambda _, reads: seen.append(getattr(reads[0], "limit", -1)))
    store = LedgerMemory(items, bench.clock)
    for turn in range(1, 31):
        ttl_ms = 0 if turn in (28, 29) else None
        store.put_many(
            ADA,
            [
                new_entry(f"beat-{turn}-{index}", {"summary": f"{turn}.{index}"}, turn=turn, identity=ADA,
                          now_ms=NOW_MS + turn, ttl_ms=ttl_ms)
                for index in range(2)
            ],
        )  # fmt: skip
    store.put(ADA, an_entry("snap-31"))
    bench.clock.advance_ms(30)
    seen.clear()
    found = store.newest(ADA, "beat", 4)
    assert found is not None
    assert [entry["id"] for entry in found] == ["beat-30-1", "beat-30-0", "beat-27-1", "beat-27-0"]
    assert seen == [4, 4]
    assert [entry["id"] for entry in read_window(store, ADA, kind="beat", count=3)] == [
        "beat-27-1",
        "beat-30-0",
        "beat-30-1",
    ]
    assert store.newest(ADA, "msg", 3) is None
    assert store.newest(ADA, "beat", 0) == []
    assert len(store.newest(ADA, "beat", 500) or []) == 56
    assert [entry["id"] for entry in read_window(store, ADA, kind="snap", count=9)] == ["snap-31"]


def test_reads_are_counted_on_top_of_what_the_entry_says(bench: Bench) -> None:
    bench.store.put(ADA, an_entry(accessCount=7))
    bench.clock.advance_ms(5)
    for reads in (8, 9):
        read = bench.store.get(ADA, "a")
        assert read is not None
        assert (read["accessCount"], read["lastAccessedAt"]) == (reads, NOW_MS + 5)
    assert all_pages(bench.store) == [an_entry(accessCount=9, lastAccessedAt=NOW_MS + 5)]


def test_it_declares_what_it_does(bench: Bench) -> None:
    assert ranking_of(bench.store) == "vector"
