"""Every place where a turn's process can die, in every mode of durability, and what the next process makes of it.

Invariants 1, 3, 8, 9 and 10 of the design, one run a point, all points enumerated.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.usecases.plant import (
    BOUNDARIES,
    GO,
    MODES,
    TWO,
    WHAT_NOW,
    WHOLE_TURN,
    Mode,
    Plant,
    Process,
)
from tests.usecases.workshop import ALICE, KEY, Crash
from turnkeep.errors import AwaitingDecisionError, ConcurrentRunError, SessionNotFoundError
from turnkeep.ledger.records import Status
from turnkeep.usecases.read import read_conversation, read_transcript, read_turn, read_turns

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def points(mode: Mode) -> list[str]:
    """Every point of an undisturbed turn."""
    plant = Plant(mode)
    process = plant.process("first")
    plant.take(process)
    return process.points


EVERY_POINT = [(mode, point) for mode in MODES for point in points(mode)]


def test_the_enumeration_has_every_store_call_and_every_tool_call() -> None:
    for mode in MODES:
        named = points(mode)
        assert len(set(named)) == len(named)
        for what in ("put TURN 1", "put REQUEST 1", "put ONCE 3", "update ONCE 3", "update TURN 1", "pay 3", "step 1"):
            assert {f"before {what}", f"after {what}"} <= set(named)
        progress = {"exit": 0, "async": 3, "slow async": 2, "sync": 3}[mode]
        assert sum(1 for point in named if point.startswith("before put SEG")) == progress


# --- what holds after any death -----------------------------------------------------------------------------


def visible(plant: Plant) -> dict[str, Any] | None:
    """What readers are shown; None where there is no conversation yet. Reading itself must always work."""
    deps = plant.shop.deps()
    try:
        conversation = read_conversation(deps, ALICE, KEY)
    except SessionNotFoundError:
        assert plant.shop.items("TURN#") == []
        return None
    turns, _ = read_turns(deps, ALICE, KEY, after=None, limit=100)
    transcript, _ = read_transcript(deps, ALICE, KEY, after=None, limit=1000, max_bytes=10**6)
    return {
        "conversation": conversation,
        "turns": [read_turn(deps, ALICE, KEY, turn.turn) for turn in turns],
        "transcript": transcript,
    }


def check_prefix(plant: Plant, died: Process) -> list[dict[str, Any]] | None:
    """What is stored of the turn is a whole prefix of the run, as long as its mode promises."""
    if visible(plant) is None:
        assert "after put TURN 1" not in died.points
        assert plant.world.book == []
        return None
    said = plant.shop.said(1)
    assert said == WHOLE_TURN[: len(said)]
    assert len(said) in BOUNDARIES
    if plant.mode == "sync" and plant.world.book:
        # Iteration N's tools start only behind iteration N-1's results: those are here.
        assert len(said) >= 1 + 3 * (plant.world.book[-1].n - 1)
    return said


def check_bound(plant: Plant, first: str, second: str) -> None:
    """How much ran twice: under ``sync`` at most the current iteration's tools, and what acts once never."""
    before = {(line.name, line.n) for line in plant.world.did(first)}
    again = [(line.name, line.n) for line in plant.world.did(second) if (line.name, line.n) in before]
    if plant.mode == "sync":
        assert len({n for _, n in again}) <= 1
        assert all(n == plant.world.did(first)[-1].n for _, n in again)
        assert len(again) <= 2
    assert all(count == 1 for count in plant.world.times("pay").values())


def check_whole(plant: Plant) -> None:
    """The turn is answered, once, with everything in it."""
    seen = visible(plant)
    assert seen is not None
    assert [turn.status for turn in seen["turns"]][:1] == [Status.COMPLETE]
    said = plant.shop.said(1)
    declined = {"declined by human: it acted", "declined by human"}
    assert [m["content"] if m["content"] not in declined else "paid" for m in said if m["role"] == "user"] == [GO]
    for stored, wanted in zip(said, WHOLE_TURN, strict=True):
        assert stored == wanted or (stored["content"] in declined and wanted["content"].startswith("paid"))
    assert set(plant.world.times("pay")) == set(plant.world.times("step")) == {1, 2, 3}
    assert seen["transcript"][:2] == [
        {"role": "user", "content": GO},
        {"role": "assistant", "content": "All done."},
    ]


@pytest.mark.parametrize(("mode", "point"), EVERY_POINT)
def test_death_then_the_same_request(mode: Mode, point: str) -> None:
    plant = Plant(mode)
    died = plant.dies_at(point)
    assert died is not None
    said = check_prefix(plant, died)
    if said is not None and plant.shop.turn(1).status is Status.RUNNING:
        with pytest.raises(ConcurrentRunError):
            plant.take(plant.process("too early"))
    plant.lease_passes()
    second = plant.process("second")
    done = plant.decide_doubts(plant.take(second), second)
    assert (done.turn, done.output) == (1, "All done.")
    check_whole(plant)
    check_bound(plant, "first", "second")
    assert plant.take(plant.process("third")).run_id == plant.shop.turn(1).run_id
    assert plant.world.did("third") == []


@pytest.mark.parametrize(("mode", "point"), EVERY_POINT)
def test_death_then_a_new_message(mode: Mode, point: str) -> None:
    plant = Plant(mode)
    died = plant.dies_at(point)
    assert died is not None
    said = check_prefix(plant, died)
    landed = said is not None and plant.shop.turn(1).status is Status.COMPLETE
    plant.lease_passes()
    second = plant.process("second")
    done = plant.take(second, WHAT_NOW, idempotency=TWO)
    assert (done.turn, done.output) == (1 if said is None else 2, "On we go.")
    assert plant.world.did("second") == []
    assert all(count == 1 for count in plant.world.times("pay").values())
    if said is None:
        return
    assert plant.shop.turn(1).status is (Status.COMPLETE if landed else Status.FAILED)
    assert plant.shop.said(1) == said
    shown = list(second.requests[0].messages)
    assert shown == [*said, {"role": "user", "content": WHAT_NOW}]
    # The first request learns what became of it, and nothing runs for it any more.
    again = plant.take(plant.process("third"))
    assert (again.turn, again.status) == (1, plant.shop.turn(1).status)
    assert plant.world.did("third") == []


@pytest.mark.parametrize("mode", MODES)
def test_death_inside_a_call_that_says_run_again_costs_that_call_only(mode: Mode) -> None:
    for n in (1, 2, 3):
        for point in (f"before pay {n}", f"after pay {n}", f"before update ONCE {n}"):
            plant = Plant(mode, in_doubt="run_again")
            assert plant.dies_at(point) is not None
            plant.lease_passes()
            done = plant.take(plant.process("second"))
            assert done.output == "All done."
            acted = 1 if point.startswith("before pay") else 2
            assert plant.world.times("pay") == {1: 1, 2: 1, 3: 1} | {n: acted}


# --- deaths one after the other -----------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    deaths=st.lists(st.tuples(st.integers(0, 45), st.booleans()), min_size=1, max_size=5),
)
def test_any_row_of_deaths_leaves_a_conversation_that_goes_on(mode: Mode, deaths: list[tuple[int, bool]]) -> None:
    """Each process of a row dies at some point: the first request is sent again and again, or something else is said.

    What no process ever does: show a provider a history that it would refuse (``check_request``), or pay twice.
    """
    plant = Plant(mode)
    for number, (where, same_request) in enumerate(deaths):
        process = plant.process(f"process {number}", dying_behind(where))
        with contextlib.suppress(Crash, AwaitingDecisionError):
            plant.take(process) if same_request else plant.take(process, WHAT_NOW, host_turn=1)
        plant.lease_passes()
        visible(plant)
    last = plant.process("last")
    for item in plant.shop.items("TURN#"):
        plant.decide_doubts(plant.shop.turn(int(str(item["sk"])[5:])), last)
    done = plant.take(last, WHAT_NOW, host_turn=1)
    assert done.output == "On we go."
    assert all(count == 1 for count in plant.world.times("pay").values())
    seen = visible(plant)
    assert seen is not None
    assert {turn.status for turn in seen["turns"]} <= {Status.COMPLETE, Status.FAILED}


def dying_behind(count: int) -> Callable[[str], None]:
    """Death at the point behind so many."""
    passed = 0

    def at(point: str) -> None:
        nonlocal passed
        passed += 1
        if passed > count:
            raise Crash

    return at
