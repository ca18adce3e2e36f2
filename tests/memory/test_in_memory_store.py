"""The store in memory keeps the contract of all memory stores; paging holds for any entries; rankings are declared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.memory_bench import ADA, all_pages, an_entry
from tests.contract.memory_contract import MemoryContract
from tests.contract.memory_traces import DIFFERENT_ON_PURPOSE
from turnkeep.clock import ManualClock
from turnkeep.errors import InvalidRequestError
from turnkeep.memory.in_memory import InMemoryMemoryStore
from turnkeep.memory.store import ranking_of


class TestInMemoryStore(MemoryContract):
    def make_store(self, clock: ManualClock) -> InMemoryMemoryStore:
        return InMemoryMemoryStore(clock)

    def test_entries_of_one_moment_are_listed_in_the_order_they_came(self, store: InMemoryMemoryStore) -> None:
        for entry_id in ("c", "a", "b", "c"):
            store.put(ADA, an_entry(entry_id))
        assert [entry["id"] for entry in store.list(ADA).entries] == ["c", "a", "b"]

    def test_the_traces_that_differ_on_purpose(self, store: InMemoryMemoryStore) -> None:
        assert set(DIFFERENT_ON_PURPOSE) == {"ms-09", "ms-10"}
        store.put(ADA, an_entry("a"))
        assert [entry["id"] for entry in store.list(ADA, limit=0).entries] == ["a"]
        assert store.list(ADA, limit=0).cursor is None
        with pytest.raises(InvalidRequestError):
            store.list(ADA, limit=1, cursor="-1")


ROWS = st.lists(
    st.fixed_dictionaries(
        {"updatedAt": st.integers(0, 5) | st.floats(0, 5), "ttl": st.sampled_from([None, 99, 100, 101])},
        optional={"tier": st.sampled_from(["hot", "warm", "cold"])},
    ),
    max_size=25,
)


@given(rows=ROWS, limit=st.integers(1, 8), tiers=st.none() | st.sets(st.sampled_from(["hot", "warm", "cold"])))
def test_pages_are_the_live_entries_newest_first_each_once(rows: list[Any], limit: int, tiers: Any) -> None:
    store = InMemoryMemoryStore(ManualClock(wall_ms=100))
    entries = [an_entry(f"e{number}", **row) for number, row in enumerate(rows)]
    store.put_many(ADA, entries)
    live = [entry for entry in entries if entry["ttl"] in (None, 101) and (tiers is None or entry.get("tier") in tiers)]
    assert all_pages(store, limit=limit, tiers=tiers) == sorted(live, key=lambda entry: -entry["updatedAt"])


class Store:
    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


def search() -> None: ...


@pytest.mark.parametrize(
    ("members", "ranking"),
    [
        ({}, None),
        ({"supports_vector_search": False}, None),
        ({"search": search}, "vector"),
        ({"search": search, "supports_vector_search": True}, "vector"),
        ({"search": search, "supports_vector_search": True, "ranks_by": "vector"}, "vector"),
        ({"search": search, "supports_vector_search": False}, None),
        ({"search": search, "supports_vector_search": False, "ranks_by": "server-text"}, "server-text"),
        ({"search": search, "ranks_by": "server-text"}, "server-text"),
    ],
)
def test_how_a_store_ranks(members: dict[str, Any], ranking: Any) -> None:
    assert ranking_of(Store(**members)) == ranking


@pytest.mark.parametrize(
    "members",
    [
        {"supports_vector_search": True},
        {"ranks_by": "vector"},
        {"search": search, "supports_vector_search": True, "ranks_by": "server-text"},
        {"search": search, "supports_vector_search": False, "ranks_by": "vector"},
        {"search": search, "ranks_by": "luck"},
        {"search": search, "supports_vector_search": "yes"},
    ],
)
def test_contradicting_declarations_are_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"search|ranks_by"):
        ranking_of(Store(**members))


def test_the_store_in_memory_declares_what_it_does() -> None:
    assert ranking_of(InMemoryMemoryStore()) == "vector"
