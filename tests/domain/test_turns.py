"""Turn numbers: every golden case with its list calls, and the rules as properties (CONTRACT.md 9)."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.domain.golden_cases import case_id, load, scored, untag
from turnkeep.identity import identity_namespace
from turnkeep.json_values import ABSENT
from turnkeep.turns import MAX_PAGES, max_stored_turn, normalize_host_turn, resolve_turn_number

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = scored("turn-resolution")
NOW_MS = load("turn-resolution")["now"]
ME = {"conversationId": "conv-1"}


class ListedStore:
    """A store of the port that hands out prepared pages and remembers what it was asked."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.definition = definition
        self.asked: list[dict[str, Any]] = []
        self.pages = self._pages()

    def list(self, identity: Any, *, cursor: Any = None, limit: int = 1000) -> Any:
        self.asked.append({"limit": limit, "cursor": cursor})
        self.identity = identity
        return next(self.pages)

    def _pages(self) -> Iterator[Any]:
        kind, definition = self.definition["kind"], self.definition
        if kind == "throws":
            raise ConnectionError(definition["message"])
        if kind == "memory":
            yield {"entries": self._live_entries()}
        elif kind == "endless":
            for call in range(1000):
                yield {"entries": [turn_entry(call + 1)], "cursor": f"c{call}"}
        elif kind == "scripted":
            yield from definition["pages"]
            while True:
                yield definition["pages"][-1]
        else:
            raise AssertionError(f"a kind of store that the cases did not have: {kind}")

    def _live_entries(self) -> list[Any]:
        mine = identity_namespace(self.identity)
        puts = [put for put in self.definition["puts"] if identity_namespace(put["identity"]) == mine]
        entries = [entry for put in puts for entry in put["entries"]]
        return [entry for entry in entries if not (isinstance(entry.get("ttl"), int) and entry["ttl"] <= NOW_MS)]


class DirectStore:
    """A store that knows its highest turn and must not be scanned."""

    def __init__(self, highest: Any) -> None:
        self.highest = highest

    def list(self, identity: Any, *, cursor: Any = None, limit: int = 1000) -> Any:
        raise AssertionError("a store that answers directly was scanned")

    def highest_turn(self, identity: Any) -> Any:
        return self.highest


def turn_entry(turn: Any) -> dict[str, Any]:
    return {"id": "x", "source": {"turn": turn}}


def paged(*pages: dict[str, Any]) -> ListedStore:
    return ListedStore({"kind": "scripted", "pages": list(pages)})


def test_only_the_cases_beyond_2_to_53_are_left_out() -> None:
    reason = "JavaScript rounds above 2^53 and Python does not"
    assert CASES.left_out == {"turn-026": reason, "turn-027": reason, "turn-050": reason}


@pytest.mark.parametrize("case", CASES.cases, ids=case_id)
def test_golden_case(case: dict[str, Any]) -> None:
    stores = {name: ListedStore(untag(definition)) for name, definition in case["storeDefs"].items()}
    arguments = ([stores[name] for name in case["stores"]], untag(case["identity"]))
    host = (untag(case["hostTurn"]),) if "hostTurn" in case else ()
    expect = case["expect"]
    if "turn" in expect:
        turn = resolve_turn_number(*arguments, *host)
        assert (turn, type(turn)) == (expect["turn"], int)
    else:
        with pytest.raises(ConnectionError, match=f"^{expect['message']}$"):
            resolve_turn_number(*arguments, *host)
    assert {name: len(store.asked) for name, store in stores.items()} == expect["listCalls"]
    for name, options in expect.get("listOptions", {}).items():
        assert stores[name].asked == options


def test_numbers_beyond_2_to_53_stay_exact() -> None:
    assert resolve_turn_number([], ME, 2**53 + 1) == 2**53 + 1
    assert resolve_turn_number([paged({"entries": [turn_entry(2**53)]})], ME) == 2**53 + 1
    assert resolve_turn_number([paged({"entries": [turn_entry(10**400)]})], ME) == 10**400 + 1


def test_a_stuck_cursor_costs_two_calls() -> None:
    store = paged({"entries": [turn_entry(3)], "cursor": "same"})
    assert (max_stored_turn(store, ME), len(store.asked)) == (3, 2)


def test_alternating_cursors_cost_a_hundred_calls() -> None:
    pages = [{"entries": [turn_entry(3)], "cursor": "ab"[call % 2]} for call in range(200)]
    store = paged(*pages)
    assert (max_stored_turn(store, ME), len(store.asked)) == (3, MAX_PAGES)
    assert MAX_PAGES == 100


def test_a_null_cursor_ends_the_scan() -> None:
    store = paged({"entries": [turn_entry(3)], "cursor": None}, {"entries": [turn_entry(9)]})
    assert (max_stored_turn(store, ME), len(store.asked)) == (3, 1)


def test_a_store_after_one_that_raises_is_not_asked() -> None:
    later = paged({"entries": []})
    with pytest.raises(ConnectionError):
        resolve_turn_number([ListedStore({"kind": "throws", "message": "down"}), later], ME)
    assert later.asked == []


def test_stores_that_are_equal_but_not_the_same_are_each_asked() -> None:
    class Equal(ListedStore):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    first = Equal({"kind": "scripted", "pages": [{"entries": [turn_entry(1)]}]})
    second = Equal({"kind": "scripted", "pages": [{"entries": [turn_entry(8)]}]})
    assert resolve_turn_number([first, second, first], ME) == 9
    assert (len(first.asked), len(second.asked)) == (1, 1)


def test_entries_and_pages_may_be_objects() -> None:
    entry = SimpleNamespace(source=SimpleNamespace(turn=4))
    store = SimpleNamespace(list=lambda identity, *, cursor=None, limit=1000: SimpleNamespace(entries=[entry]))
    assert resolve_turn_number([store], ME) == 5


@pytest.mark.parametrize(("highest", "turn"), [(0, 1), (7, 8), (-3, 1), (True, 1), (None, 1), (2.9, 3)])
def test_a_direct_answer_is_used_instead_of_a_scan(highest: Any, turn: int) -> None:
    assert resolve_turn_number([DirectStore(highest)], ME) == turn


def test_a_direct_answer_that_raises_is_not_swallowed() -> None:
    store = DirectStore(0)
    store.highest_turn = lambda identity: 1 // 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        resolve_turn_number([store], ME)


def test_another_reading_of_an_entry_scans_even_a_direct_store() -> None:
    class Both(ListedStore):
        def highest_turn(self, identity: Any) -> int:
            return 99

    store = Both({"kind": "scripted", "pages": [{"entries": [{"n": 5}, {"n": "6"}, {"n": 7.9}]}]})
    assert max_stored_turn(store, ME, turn_for=lambda entry: entry["n"]) == 7


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.integers(),
    st.floats(),
    st.just(ABSENT),
)


@given(ODD)
@example(True)
@example(-0.5)
@example(2.999)
def test_a_host_turn_is_floored_and_at_least_one(value: Any) -> None:
    turn = normalize_host_turn(value)
    assert isinstance(turn, int) and not isinstance(turn, bool) and turn >= 1
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not (isinstance(value, float) and not math.isfinite(value)) and value >= 1:
        assert turn <= value and value - turn < 1
    else:
        assert turn == 1


@given(st.lists(st.lists(ODD, max_size=4), min_size=1, max_size=4), ODD)
def test_a_turn_is_above_everything_stored_and_not_below_the_host(pages: list[list[Any]], host: Any) -> None:
    entries = [{"entries": [turn_entry(turn) for turn in page], "cursor": f"c{n}"} for n, page in enumerate(pages)]
    del entries[-1]["cursor"]
    turn = resolve_turn_number([paged(*entries)], ME, host)
    stored = [normalize_host_turn(value) for page in pages for value in page if _at_least_one(value)]
    assert turn == max([normalize_host_turn(host), *(value + 1 for value in stored)])


def _at_least_one(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.inf > value >= 1
