"""What is put comes back exactly, is nobody else's, expires, and is refused where it cannot be kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.memory_bench import ADA, BO, MemoryBench, all_pages, an_entry, in_parallel
from turnkeep.errors import UnstorableValueError
from turnkeep.memory.entries import MAX_ID_BYTES
from turnkeep.memory.store import Applied, Feedback

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.clock import ManualClock
    from turnkeep.memory.store import SearchableMemoryStore

ODD_IDS = [
    *("msg-1-0", "msg-1", "a", "a/b", "a#b", "a%2Fb", "..", "%2F", " ", "A", "e", "\u00e9", "e\u0301", "\u0000"),
    "x" * MAX_ID_BYTES,
]


class MemoryKeeping(MemoryBench):
    """What is put comes back exactly, is nobody else's, expires, and is refused where it cannot be kept."""

    # --- what goes in comes out -----------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "value",
        [
            None,
            False,
            0,
            0.1,
            1e300,
            10**40,
            "",
            "é é 😀 \u0000 \u2028",
            [],
            {},
            {"": [None, {"a": [1, 1.5, "x"]}]},
            "x" * 60_000,
        ],
        ids=repr,
    )
    def test_a_value_comes_back_exactly(self, store: SearchableMemoryStore, value: Any) -> None:
        store.put(ADA, an_entry(value=value, metadata={"k": value}, unknown=[value]))
        read = store.get(ADA, "a")
        assert read is not None
        for part in (read["value"], read["metadata"]["k"], read["unknown"][0]):
            assert part == value
            assert type(part) is type(value)
        assert store.list(ADA).entries == [read]

    @pytest.mark.parametrize("entry_id", ODD_IDS)
    def test_an_odd_id_is_an_id_of_its_own(self, store: SearchableMemoryStore, entry_id: str) -> None:
        others = [other for other in ODD_IDS if other != entry_id]
        store.put_many(ADA, [an_entry(other, value="other") for other in others])
        store.put(ADA, an_entry(entry_id, value="mine"))
        read = store.get(ADA, entry_id)
        assert read is not None
        assert (read["id"], read["value"]) == (entry_id, "mine")
        assert len(all_pages(store)) == len(ODD_IDS)

    def test_nobody_reaches_what_is_stored_through_an_object_they_hold(self, store: SearchableMemoryStore) -> None:
        entry = an_entry(value={"list": [1]}, embedding=[1, 0])
        store.put(ADA, entry)
        entry["value"]["list"].append(2)
        holders: list[Callable[[], Any]] = [lambda: store.get(ADA, "a"), lambda: store.list(ADA).entries[0]]
        if self.searches:
            holders.append(lambda: store.search(ADA, [1, 0])[0].entry)
        for read in holders:
            assert read()["value"] == {"list": [1]}
            read()["value"]["list"].append(3)
            assert read()["value"] == {"list": [1]}

    @pytest.mark.parametrize(
        ("broken", "path"),
        [
            ({"id": ""}, "entry.id"),
            ({"id": 7}, "entry.id"),
            ({"id": "x" * (MAX_ID_BYTES + 1)}, "entry.id"),
            ({"value": float("nan")}, "entry.value"),
            ({"value": {"a": [b"bytes"]}}, "entry.value.a[0]"),
            ({"value": "lone \ud800"}, "entry.value"),
            ({"version": "1"}, "entry.version"),
            ({"version": True}, "entry.version"),
            ({"updatedAt": None}, "entry.updatedAt"),
            ({"accessCount": "0"}, "entry.accessCount"),
            ({"tier": "lukewarm"}, "entry.tier"),
            ({"metadata": []}, "entry.metadata"),
            ({"source": "turn 1"}, "entry.source"),
            ({"decayPolicy": 1}, "entry.decayPolicy"),
            ({"embedding": "0.1"}, "entry.embedding"),
            ({"embedding": [1, True]}, "entry.embedding"),
            ({"embedding": [10**400]}, "entry.embedding"),
            ({"embeddingModel": 3}, "entry.embeddingModel"),
        ],
    )
    def test_what_cannot_be_kept_is_refused_by_its_path_and_stores_nothing(
        self, store: SearchableMemoryStore, broken: dict[str, Any], path: str
    ) -> None:
        bad = an_entry() | broken
        writes: list[Callable[[], Any]] = [
            lambda: store.put(ADA, bad),
            lambda: store.put_many(ADA, [an_entry("good"), bad]),
            lambda: store.put_if_version(ADA, bad, 0),
        ]
        for write in writes:
            with pytest.raises(UnstorableValueError) as caught:
                write()
            assert caught.value.path == path
        assert store.list(ADA).entries == []

    def test_an_entry_without_a_value_is_none(self, store: SearchableMemoryStore) -> None:
        entry = an_entry()
        del entry["value"]
        with pytest.raises(UnstorableValueError):
            store.put(ADA, entry)
        with pytest.raises(UnstorableValueError):
            store.put(ADA, [])  # type: ignore[arg-type]

    def test_in_one_batch_the_later_of_two_wins(self, store: SearchableMemoryStore) -> None:
        store.put_many(ADA, [an_entry(value=1), an_entry("b"), an_entry(value=2)])
        read = store.get(ADA, "a")
        assert read is not None
        assert read["value"] == 2
        assert len(store.list(ADA).entries) == 2

    def test_a_large_batch(self, store: SearchableMemoryStore) -> None:
        ids = {f"msg-1-{index}" for index in range(130)}
        store.put_many(ADA, [an_entry(entry_id) for entry_id in sorted(ids)])
        assert {entry["id"] for entry in all_pages(store)} == ids

    # --- identities -----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "stranger",
        [
            BO,
            ADA | {"tenant": "other"},
            ADA | {"conversationId": "c-2"},
            {"principal": "ada", "conversationId": "c-1"},
            {"tenant": "acme/ada", "conversationId": "c-1"},
        ],
    )
    def test_another_identity_finds_no_data_and_changes_nothing(
        self, store: SearchableMemoryStore, stranger: dict[str, str]
    ) -> None:
        store.put(ADA, an_entry(embedding=[1, 0]))
        store.record_signature(ADA, "sig")
        store.feedback(ADA, "a", 1)
        assert store.get(stranger, "a") is None
        assert store.list(stranger).entries == []
        assert not store.seen(stranger, "sig")
        assert store.get_feedback(stranger, "a") is None
        if self.searches:
            assert list(store.search(stranger, [1, 0])) == []
        assert store.put_if_version(stranger, an_entry(value="theirs"), 1) == Applied(applied=False)
        store.delete(stranger, "a")
        store.forget(stranger)
        read = store.get(ADA, "a")
        assert read is not None
        assert read["value"] == "v-a"
        assert store.seen(ADA, "sig")
        assert store.get_feedback(ADA, "a") == Feedback(1, 1)

    def test_an_identity_of_another_kind_is_a_type_error_that_does_not_quote_it(
        self, store: SearchableMemoryStore
    ) -> None:
        with pytest.raises(TypeError) as caught:
            store.get({"principal": 4711, "conversationId": "c"}, "a")
        assert "4711" not in str(caught.value)

    # --- expiry ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("ttl", ["1", None, True, [1]])
    def test_a_ttl_that_is_no_number_never_expires(self, store: SearchableMemoryStore, ttl: Any) -> None:
        store.put(ADA, an_entry(ttl=ttl))
        assert store.get(ADA, "a") is not None
        assert len(store.list(ADA).entries) == 1

    def test_no_read_returns_an_expired_entry(self, store: SearchableMemoryStore, clock: ManualClock) -> None:
        store.put(ADA, an_entry(ttl=clock.now_ms() + 1.5, embedding=[1, 0], tier="hot"))
        clock.advance_ms(2)
        assert store.list(ADA).entries == []
        assert store.list(ADA, tiers=["hot"]).entries == []
        if self.searches:
            assert list(store.search(ADA, [1, 0])) == []
        assert store.get(ADA, "a") is None
        clock.advance_ms(-2)
        assert store.get(ADA, "a") is None  # The read before evicted it.

    def test_a_put_revives_an_expired_entry_as_a_new_one(
        self, store: SearchableMemoryStore, clock: ManualClock
    ) -> None:
        store.put(ADA, an_entry(ttl=clock.now_ms(), accessCount=7, embeddingModel="old"))
        store.put(ADA, an_entry(value="new"))
        assert store.get(ADA, "a") == an_entry(value="new", accessCount=1, lastAccessedAt=clock.now_ms())

    # --- conditional puts -----------------------------------------------------------------------------------

    def test_a_version_is_compared_as_a_number(self, store: SearchableMemoryStore) -> None:
        store.put(ADA, an_entry(version=2.5))
        assert store.put_if_version(ADA, an_entry(version=3), 2) == Applied(applied=False, current_version=2.5)
        assert store.put_if_version(ADA, an_entry(version=3), 2.5) == Applied(applied=True)
        assert store.put_if_version(ADA, an_entry(version=4), 3.0) == Applied(applied=True)

    def test_reading_does_not_move_the_version(self, store: SearchableMemoryStore) -> None:
        store.put(ADA, an_entry(version=3))
        store.get(ADA, "a")
        assert store.put_if_version(ADA, an_entry(version=4), 3).applied

    @pytest.mark.parametrize("expected", [0, 5])
    def test_of_many_with_one_expectation_one_is_applied(self, store: SearchableMemoryStore, expected: int) -> None:
        if expected:
            store.put(ADA, an_entry(version=expected))
        outcomes: list[tuple[int, Applied]] = []
        go = threading.Barrier(8)

        def contend(number: int) -> None:
            go.wait()
            outcomes.append((number, store.put_if_version(ADA, an_entry(value=number, version=9), expected)))

        in_parallel([lambda number=number: contend(number) for number in range(8)])
        winners = [number for number, outcome in outcomes if outcome.applied]
        assert len(winners) == 1
        read = store.get(ADA, "a")
        assert read is not None
        assert read["value"] == winners[0]
        assert {outcome for _, outcome in outcomes if not outcome.applied} == {Applied(False, 9)}

    def test_no_access_and_no_feedback_is_lost_to_another(self, store: SearchableMemoryStore) -> None:
        store.put(ADA, an_entry())
        go = threading.Barrier(6)

        def read() -> None:
            go.wait()
            for _ in range(5):
                store.get(ADA, "a")
                store.feedback(ADA, "a", 0.5)

        in_parallel([read] * 6)
        assert store.list(ADA).entries[0]["accessCount"] == 30
        assert store.get_feedback(ADA, "a") == Feedback(0.5, 30)

    # --- feedback and recognition ---------------------------------------------------------------------------

    @pytest.mark.parametrize("given", [True, None, "1", float("-inf")])
    def test_what_is_no_finite_number_is_no_feedback(self, store: SearchableMemoryStore, given: Any) -> None:
        store.feedback(ADA, "a", given)
        assert store.get_feedback(ADA, "a") is None

    def test_feedback_needs_no_entry_and_survives_a_new_one(self, store: SearchableMemoryStore) -> None:
        store.feedback(ADA, "a", -1)
        store.put(ADA, an_entry())
        store.put(ADA, an_entry(value=2))
        assert store.get_feedback(ADA, "a") == Feedback(-1, 1)

    def test_everything_can_be_forgotten_and_begun_anew(self, store: SearchableMemoryStore) -> None:
        store.put_many(ADA, [an_entry(f"e{number}") for number in range(60)])
        store.feedback(ADA, "never put", 1)
        store.forget(ADA)
        assert store.list(ADA).entries == []
        assert store.get_feedback(ADA, "never put") is None
        assert store.put_if_version(ADA, an_entry("e1"), 0).applied
        assert len(store.list(ADA).entries) == 1
