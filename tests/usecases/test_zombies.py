"""A process that falls asleep anywhere, and wakes up when its lease is over and somebody else has gone on.

Invariant 10: whatever it still tries, no reader sees anything of it.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.usecases.plant import GO, MODES, ONE, TWO, WHAT_NOW, Mode, Plant, Process
from tests.usecases.test_crashes import points, visible
from turnkeep.errors import TurnkeepError
from turnkeep.ledger.records import Status

EVERY_POINT = [(mode, point) for mode in MODES for point in points(mode)]


class Sleeper:
    """The first process of a plant, on a thread: asleep at a point until it is woken."""

    def __init__(self, plant: Plant, point: str) -> None:
        self.outcome: Any = None
        self._asleep, self._wake = threading.Event(), threading.Event()

        def at(passed: str) -> None:
            if passed == point:
                self._asleep.set()
                assert self._wake.wait(60)

        self.process: Process = plant.process("first", at)

        def run() -> None:
            try:
                self.outcome = plant.take(self.process, idempotency=ONE)
            except TurnkeepError as error:
                self.outcome = error

        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert self._asleep.wait(60)

    def wake(self) -> Any:
        """Lets it go on, to its end."""
        self._wake.set()
        if self.process.hold_writes is not None:
            self.process.hold_writes.set()
        left_behind = [one for one in threading.enumerate() if one.name.startswith("turnkeep-")]
        for thread in (self._thread, *left_behind):
            thread.join(60)
            assert not thread.is_alive()
        return self.outcome


def ledger(plant: Plant) -> list[Any]:
    """What decides: CONVERSATION and the turns.

    Segments count by the attempt that wrote them, and that a request became its turn, or that a call acted, is true
    however late it is said.
    """
    return [item for item in plant.shop.items() if str(item["sk"]).split("#")[0] in ("CONVERSATION", "TURN")]


@pytest.mark.parametrize("message", [GO, WHAT_NOW])
@pytest.mark.parametrize(("mode", "point"), EVERY_POINT)
def test_what_wakes_up_late_changes_nothing(mode: Mode, point: str, message: str) -> None:
    plant = Plant(mode)
    sleeper = Sleeper(plant, point)
    had_claimed = "after put TURN 1" in sleeper.process.points
    plant.lease_passes()
    second = plant.process("second")
    if message == GO:
        done = plant.decide_doubts(plant.take(second), second)
        assert (done.turn, done.output) == (1, "All done.")
    else:
        done = plant.take(second, WHAT_NOW, idempotency=TWO)
        assert done.output == "On we go."
    seen, stored, effects = visible(plant), ledger(plant), len(plant.world.book)
    outcome = sleeper.wake()
    if not had_claimed:
        # It is only late: it finds the request's turn, or another one in its place, or takes the next number.
        assert isinstance(outcome, TurnkeepError) or outcome.status is Status.COMPLETE
        assert len(plant.shop.items("TURN#")) <= 2
        return
    landed = "after update TURN 1" in sleeper.process.points
    assert visible(plant) == seen
    # What it had committed before it slept is the conversation's, and so it may still show it in a listing.
    assert landed or ledger(plant) == stored
    late = plant.world.book[effects:]
    if point.startswith(("before step", "before pay")):
        # It slept inside the tool, where only the key that the tool hands on can help.
        assert [(line.name, line.process) for line in late] == [(point.split()[1], "first")]
        (line,) = late
        assert {one.key for one in plant.world.book if (one.name, one.n) == (line.name, line.n)} == {line.key}
    else:
        assert late == []
    assert isinstance(outcome, TurnkeepError) or landed
    # And the conversation goes on.
    assert plant.take(plant.process("third"), WHAT_NOW, host_turn=1).output == "On we go."


@pytest.mark.parametrize("mode", MODES)
def test_a_sleeper_whose_lease_only_looks_over_is_fenced_by_conditions_alone(mode: Mode) -> None:
    """The other machine's clock is an hour ahead: by its own clock the first process is fine, and goes on."""
    for point in ("after put TURN 1", "before step 2", "after pay 2", "before put ONCE 3", "before update TURN 1"):
        plant = Plant(mode)
        sleeper = Sleeper(plant, point)
        ahead = Plant(mode, shop=plant.shop.elsewhere(ahead_ms=3_600_000), world=plant.world)
        second = ahead.process("second")
        done = ahead.take(second, WHAT_NOW, idempotency=TWO)
        assert (done.turn, done.output) == (2, "On we go.")
        seen, stored = visible(ahead), ledger(plant)
        outcome = sleeper.wake()
        assert isinstance(outcome, TurnkeepError), point
        assert visible(ahead) == seen
        assert ledger(plant) == stored
