"""Readers: each its own kind, newest by time and place, inside a budget, and found by likeness only."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.memory_bench import ADA, BO, an_entry
from turnkeep.clock import ManualClock
from turnkeep.memory.in_memory import InMemoryMemoryStore
from turnkeep.memory.readers import find_snapshots, pick_within, read_window, tell_story, tokens_of
from turnkeep.memory.writers import TurnScope, write_beats, write_messages, write_snapshot


def a_turn(turn: int) -> TurnScope:
    return TurnScope(ADA, turn, [{"role": "user", "content": f"q{turn}"}, {"role": "assistant", "content": f"a{turn}"}])


@pytest.fixture
def shared() -> InMemoryMemoryStore:
    """One store that holds three turns' entries of every kind, and rows of nobody's."""
    clock = ManualClock()
    store = InMemoryMemoryStore(clock)
    for turn in (1, 2, 3):
        clock.advance_ms(1000)
        write_messages(store, a_turn(turn), clock=clock)
        write_beats(store, a_turn(turn), clock=clock)
        write_snapshot(store, a_turn(turn), clock=clock, embed=lambda text, turn=turn: [1, turn])
    store.put(ADA, an_entry("note", value=None, updatedAt=2_000_000_000_000, embedding=[1, 2]))
    return store


def ids(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["id"] for entry in entries]


# --- the window ---------------------------------------------------------------------------------------------


def test_a_window_is_the_newest_of_one_kind_oldest_first(shared: InMemoryMemoryStore) -> None:
    assert ids(read_window(shared, ADA, count=3)) == ["msg-2-1", "msg-3-0", "msg-3-1"]
    assert ids(read_window(shared, ADA, kind="beat", count=1)) == ["beat-3-1"]
    assert ids(read_window(shared, ADA, kind="snap")) == ["snap-1", "snap-2", "snap-3"]
    assert len(read_window(shared, ADA)) == 6
    assert read_window(shared, ADA, count=0) == read_window(shared, BO) == []


def test_a_window_is_filled_past_pages_of_other_kinds(shared: InMemoryMemoryStore) -> None:
    shared.put_many(ADA, [an_entry(f"beat-9-{n}", updatedAt=3_000_000_000_000) for n in range(1500)])
    assert ids(read_window(shared, ADA, count=2)) == ["msg-3-0", "msg-3-1"]


@given(order=st.permutations(range(60)), count=st.integers(1, 70))
def test_entries_of_one_moment_are_in_the_order_of_their_place(order: list[int], count: int) -> None:
    store = InMemoryMemoryStore(ManualClock())
    store.put_many(ADA, [an_entry(f"msg-{n // 7 + 1}-{n % 7}", updatedAt=n // 30) for n in order])
    wanted = [f"msg-{n // 7 + 1}-{n % 7}" for n in range(60)]
    assert ids(read_window(store, ADA, count=count)) == wanted[-count:]


# --- the budget ---------------------------------------------------------------------------------------------


def test_the_newest_that_fit_are_picked_oldest_first() -> None:
    entries = [an_entry(f"msg-1-{n}", value="x" * 398) for n in range(5)]  # 400 characters of JSON: 100 tokens each.
    assert [tokens_of(entry) for entry in entries] == [100] * 5
    assert ids(pick_within(entries, 256 + 250)) == ["msg-1-3", "msg-1-4"]
    assert ids(pick_within(entries, 256 + 300)) == ["msg-1-2", "msg-1-3", "msg-1-4"]
    assert ids(pick_within(entries, 256 + 100)) == ["msg-1-4"]
    assert pick_within(entries, 256 + 99) == pick_within(entries, 0) == pick_within([], 9999) == []
    assert len(pick_within(entries, 500, reserve_tokens=0)) == 5


def test_the_first_that_does_not_fit_ends_the_picking() -> None:
    sizes = {"msg-1-0": 40, "msg-1-1": 4000, "msg-1-2": 40}
    entries = [an_entry(entry_id, value="x" * size) for entry_id, size in sizes.items()]
    assert ids(pick_within(entries, 256 + 200)) == ["msg-1-2"]


@given(
    sizes=st.lists(st.integers(0, 2000), max_size=20),
    budget=st.integers(0, 3000),
)
def test_what_is_picked_fits_and_is_the_newest(sizes: list[int], budget: int) -> None:
    entries = [an_entry(f"beat-1-{n}", value={"summary": "s" * size}) for n, size in enumerate(sizes)]
    picked = pick_within(entries, budget)
    assert picked == entries[len(entries) - len(picked) :]
    spent = sum(tokens_of(entry) for entry in picked)
    assert not picked or spent <= budget - 256
    if budget >= 356 and len(picked) < len(entries):
        assert spent + tokens_of(entries[-len(picked) - 1]) > budget - 256


# --- the story ----------------------------------------------------------------------------------------------


def test_a_story_is_one_system_message_of_beats_that_name_their_sources(shared: InMemoryMemoryStore) -> None:
    everything = shared.list(ADA).entries
    story = tell_story(everything)
    assert story is not None
    assert story["role"] == "system"
    lines = story["content"].splitlines()[1:]
    assert len(lines) == 6
    assert "- User said: q2 (msg-2-0)" in lines


def test_no_beats_no_story_and_odd_rows_are_passed_by() -> None:
    odd = [an_entry("beat-1-0", value=value) for value in (None, "text", {}, {"summary": 3}, [])]
    assert tell_story([]) is tell_story(odd) is None
    story = tell_story([*odd, an_entry("beat-1-1", value={"summary": "tea", "refs": [3]})])
    assert story is not None
    assert story["content"].splitlines()[1:] == ["- tea"]


# --- snapshots ----------------------------------------------------------------------------------------------


def test_the_snapshot_most_like_the_question_is_found_and_nothing_below_the_score(shared: InMemoryMemoryStore) -> None:
    def find(vector: list[float], **options: Any) -> list[str]:
        return [hit.entry["id"] for hit in find_snapshots(shared, ADA, "q", embed=lambda _: vector, **options)]

    assert find([1, 2]) == ["snap-2"]
    assert find([1, 2], k=9) == ["snap-2", "snap-3", "snap-1"]
    assert find([-1, 0]) == []
    assert find([1, 0], k=9) == ["snap-1"]
    assert find([1, 0], k=9, min_score=0.4) == ["snap-1", "snap-2"]
    assert find([1, 2], embedder_id="another") == []
    assert find([1, 2], embedder_id=None) == ["snap-2"]
    assert find([1, 2], k=0) == []


def test_embedded_messages_do_not_take_the_place_of_snapshots(shared: InMemoryMemoryStore) -> None:
    shared.put_many(ADA, [an_entry(f"msg-8-{n}", embedding=[1, 2]) for n in range(50)])
    found = find_snapshots(shared, ADA, "q", embed=lambda _: [1, 2], k=2)
    assert [hit.entry["id"] for hit in found] == ["snap-2", "snap-3"]


def test_an_empty_question_embeds_nothing(shared: InMemoryMemoryStore) -> None:
    def embed(text: str) -> list[float]:
        raise AssertionError("nothing to embed")

    assert find_snapshots(shared, ADA, "", embed=embed) == []
