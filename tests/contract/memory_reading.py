"""Listing in pages and searching."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.contract.memory_bench import ADA, BO, MemoryBench, all_pages, an_entry
from turnkeep.errors import InvalidRequestError

if TYPE_CHECKING:
    from turnkeep.clock import ManualClock
    from turnkeep.memory.store import SearchableMemoryStore


class MemoryReading(MemoryBench):
    """Listing in pages and searching."""

    # --- listing --------------------------------------------------------------------------------------------

    def test_every_entry_is_on_one_page_also_when_all_are_of_one_moment(self, store: SearchableMemoryStore) -> None:
        ids = {f"e{number}" for number in range(11)}
        store.put_many(ADA, [an_entry(entry_id, updatedAt=5) for entry_id in ids])
        for limit in (1, 2, 3, 11, 12):
            listed = [entry["id"] for entry in all_pages(store, limit=limit)]
            assert len(listed) == 11
            assert set(listed) == ids

    def test_pages_hold_while_entries_come_go_and_expire(
        self, store: SearchableMemoryStore, clock: ManualClock
    ) -> None:
        short = {"ttl": clock.now_ms() + 1}
        store.put_many(ADA, [an_entry(f"e{n}", updatedAt=n, **(short if n == 3 else {})) for n in range(1, 7)])
        first = store.list(ADA, limit=2)
        assert [entry["id"] for entry in first.entries] == ["e6", "e5"]
        store.put(ADA, an_entry("newer", updatedAt=99))
        store.delete(ADA, "e5")
        clock.advance_ms(1)
        second = store.list(ADA, limit=2, cursor=first.cursor)
        assert [entry["id"] for entry in second.entries] == ["e4", "e2"]
        third = store.list(ADA, limit=2, cursor=second.cursor)
        assert [entry["id"] for entry in third.entries] == ["e1"]
        assert third.cursor is None

    def test_a_cursor_is_text_for_a_url_and_says_nothing(self, store: SearchableMemoryStore) -> None:
        store.put_many(ADA, [an_entry("a"), an_entry("b")])
        cursor = store.list(ADA, limit=1).cursor
        assert cursor is not None
        assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)

    def test_a_cursor_that_was_not_made_here_for_this_identity_is_refused(self, store: SearchableMemoryStore) -> None:
        for identity in (ADA, BO):
            store.put_many(identity, [an_entry("a"), an_entry("b", updatedAt=2)])
        mine = store.list(ADA, limit=1).cursor
        assert mine is not None
        for foreign in ("", "x", "-1", "0", mine + "AAAA", mine[:-3], "é", 0, "W10", "W" * 9000):
            with pytest.raises(InvalidRequestError) as caught:
                store.list(ADA, cursor=foreign)  # type: ignore[arg-type]
            assert caught.value.fields == ["cursor"]
        with pytest.raises(InvalidRequestError):
            store.list(BO, cursor=mine)

    def test_a_limit_is_at_least_1_at_most_1000_and_100_by_default(self, store: SearchableMemoryStore) -> None:
        store.put_many(ADA, [an_entry(f"e{number}") for number in range(1001)])
        assert [len(store.list(ADA, limit=limit).entries) for limit in (-5, 0, 1, 1000, 5000)] == [1, 1, 1, 1000, 1000]
        page = store.list(ADA)
        assert len(page.entries) == 100
        assert page.cursor is not None

    def test_a_filter_by_tier_is_filled_up_over_the_pages(self, store: SearchableMemoryStore) -> None:
        tiers: list[dict[str, str]] = [{"tier": "hot"}, {"tier": "cold"}, {}]
        store.put_many(ADA, [an_entry(f"e{n:02}", updatedAt=n, **tiers[n % 3]) for n in range(12)])
        assert [entry["id"] for entry in all_pages(store, tiers={"hot"}, limit=1)] == ["e09", "e06", "e03", "e00"]
        assert len(store.list(ADA, tiers=["hot"], limit=4).entries) == 4
        assert all_pages(store, tiers=["warm"]) == []

    # --- search ---------------------------------------------------------------------------------------------

    def test_search_keeps_to_its_bounds(self, store: SearchableMemoryStore) -> None:
        if not self.searches:
            return
        store.put_many(
            ADA,
            [an_entry(f"e{number:02}", embedding=[1, number / 10], tier="hot") for number in range(12)]
            + [an_entry("against", embedding=[-1, 0]), an_entry("nowhere", embedding=[0, 0])],
        )
        assert [hit.entry["id"] for hit in store.search(ADA, [2, 0])] == [f"e{number:02}" for number in range(10)]
        everything = store.search(ADA, [1, 0], k=50)
        assert [hit.entry["id"] for hit in everything[-2:]] == ["nowhere", "against"]
        assert everything[-1].score == pytest.approx(-1)
        assert everything[-2].score == 0
        assert list(store.search(ADA, [1, 0], k=0)) == list(store.search(ADA, [1, 0], k=-1)) == []
        assert list(store.search(ADA, [1, 0], tiers=["cold"])) == []
        assert len(store.search(ADA, [1, 0], tiers=["hot"], k=50)) == 12
        assert [hit.entry["id"] for hit in store.search(ADA, [1, 0], min_score=1)] == ["e00"]
        assert list(store.search(ADA, [1, 0, 0])) == []
        assert store.list(ADA).entries[0]["accessCount"] == 0
