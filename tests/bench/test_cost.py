"""What a turn costs is a promise: round trips, units and bytes are counted here as ``make bench`` counts them."""

from __future__ import annotations

import pytest

from bench.measure import LENGTHS, broken_bounds, measure_turnkeep
from bench.report import Ours, Row, page
from bench.sizes import index_units, item_bytes, read_units, write_units


@pytest.fixture(scope="module")
def ours() -> Ours:
    return measure_turnkeep(lengths=(1, 2, 100, 300), kinds=("words", "tokens"))


def test_a_turn_costs_the_same_however_long_the_conversation_is(ours: Ours) -> None:
    assert broken_bounds(ours) == []


def test_a_turn_is_three_round_trips_and_six_calls(ours: Ours) -> None:
    for rows in ours.turns.values():
        assert [(row.turn, row.round_trips, row.calls) for row in rows] == [(turn, 3, 6) for turn in (1, 2, 100, 300)]


def test_claim_commit_listing_and_index_are_all_counted(ours: Ours) -> None:
    words = {row.turn: (row.table_units, row.index_units) for row in ours.turns["words"]}
    assert words == {1: (4, 1), 2: (4, 2), 100: (4, 2), 300: (4, 2)}


def test_a_window_reads_the_same_behind_any_length(ours: Ours) -> None:
    behind = {row.turn: row.read_units for row in ours.turns["words"]}
    assert behind[100] == behind[300] <= 6


def test_a_bound_that_breaks_is_told() -> None:
    fine = Row(turn=2, round_trips=3, calls=6, table_units=4, index_units=2, read_units=6, request_bytes=3_900,
               largest_item_bytes=1)  # fmt: skip
    worse = Row(turn=99, round_trips=4, calls=7, table_units=5, index_units=2, read_units=6, request_bytes=4_200,
                largest_item_bytes=1)  # fmt: skip
    whole = Row(turn=200, round_trips=1, calls=3, table_units=0, index_units=0, read_units=41, request_bytes=1,
                largest_item_bytes=0)  # fmt: skip
    told = broken_bounds(Ours({"words": [fine, worse]}, {"words": fine}, {"words": whole}))
    for part in ("4 round trips", "7 write units", "4200 bytes", "not flat", "a whole read of 41"):
        assert any(part in sentence for sentence in told), part


def test_the_page_says_what_was_measured(ours: Ours) -> None:
    text = page(ours, [])
    for row in ours.turns["words"]:
        assert f"| {row.turn:,} | 3 | 6 | {row.write_units} |" in text
    assert LENGTHS[-1] == 10_000


# --- the meter's own rules, as AWS documents them ---------------------------------------------------------------


def test_sizes_are_names_and_values() -> None:
    assert item_bytes({"pk": {"S": "é"}, "n": {"N": "-1200"}, "b": {"B": b"123"}}) == (2 + 2) + (1 + 3) + (1 + 3)
    assert item_bytes({"m": {"M": {"a": {"L": [{"BOOL": True}, {"NULL": True}]}}}}) == 1 + 3 + (1 + 1 + 3 + 2 + 2)
    assert item_bytes(None) == 0


@pytest.mark.parametrize(("size", "units"), [(1, 1), (1_024, 1), (1_025, 2), (2_048, 2), (409_600, 400)])
def test_a_write_is_paid_by_its_larger_side(size: int, units: int) -> None:
    item = {"a": {"S": "x" * (size - 1)}} if size > 1 else {"a": {"S": ""}}
    assert write_units(item, None) == write_units(None, item) == write_units(item, {"a": {"S": ""}}) == units


def test_a_read_is_paid_by_four_kilobytes_and_half_of_it_where_it_is_eventual() -> None:
    assert [read_units(size, consistent=True) for size in (0, 4_096, 4_097)] == [1, 1, 2]
    assert read_units(4_097, consistent=False) == 1


def test_an_index_is_paid_where_its_entry_changes() -> None:
    index = {
        "KeySchema": [{"AttributeName": "o"}, {"AttributeName": "at"}],
        "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["shown"]},
    }
    base = {"pk": {"S": "p"}, "sk": {"S": "s"}, "other": {"S": "1"}}
    inside = base | {"o": {"S": "ann"}, "at": {"N": "1"}, "shown": {"S": "a"}}

    def paid(before: dict[str, dict[str, str]] | None, after: dict[str, dict[str, str]] | None) -> int:
        return index_units(index, before, after, ["pk", "sk"])

    assert paid(None, base) == paid(base, None) == paid(base, base) == 0
    assert paid(None, inside) == paid(inside, None) == paid(base, inside) == 1
    assert paid(inside, inside | {"other": {"S": "2"}}) == 0, "it keeps nothing of that"
    assert paid(inside, inside | {"shown": {"S": "b"}}) == 1
    assert paid(inside, inside | {"at": {"N": "2"}}) == 2, "one out, one in"
