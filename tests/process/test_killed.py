"""Real processes on a real endpoint, killed before and after every call to the store and everything a tool does.

Every point of a turn, in every mode, one run a point; then a process on another machine recovers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.cases import MODES, Case, points
from tests.process.forge import Forge, side_by_side
from tests.usecases.plant import GO, WHAT_NOW

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.process, pytest.mark.exhaustive, pytest.mark.timeout(600)]


def every_case(forge: Forge, mode: str, recovery: str, check: Callable[[Case], None]) -> None:
    """Runs the check at every point, and reports all points at which it failed."""
    cases = [Case(forge, mode, point, recovery) for point in points(forge, mode)]

    def one(case: Case) -> str | None:
        try:
            case.die()
            check(case)
        except AssertionError as error:
            return f"{case.point}: {error!r}"
        return None

    failed = [fault for fault in side_by_side(one, cases) if fault is not None]
    assert failed == []
    assert len(cases) >= 40


@pytest.mark.parametrize("mode", MODES)
def test_killed_anywhere_then_the_same_request(forge: Forge, mode: str) -> None:
    def check(case: Case) -> None:
        book = case.world.book
        done = case.recover(message=GO, key="one", again=True)
        case.check_prefix(done["before"], book)
        assert (done["turn"], done["status"], done["output"]) == (1, "complete", "All done.")
        after = done["after"]
        assert [turn[1] for turn in after["turns"]] == ["complete"]
        assert after["transcript"] == [{"role": "user", "content": GO}, {"role": "assistant", "content": "All done."}]
        pays = case.world.times("pay")
        assert pays == {1: 1, 2: 1, 3: 1}
        assert set(case.world.times("step")) == {1, 2, 3}
        first = {(line.name, line.n) for line in book}
        again = [(line.name, line.n) for line in case.world.did("second") if (line.name, line.n) in first]
        if mode == "sync":
            assert len(again) <= 2
            assert {n for _, n in again} <= {book[-1].n if book else 0}
        assert done["again"]["runId"] == after["turns"][0][2]
        assert len(case.world.did("second")) == len(set(case.world.did("second")))

    every_case(forge, mode, "retry", check)


@pytest.mark.parametrize("mode", MODES)
def test_killed_anywhere_then_a_new_message(forge: Forge, mode: str) -> None:
    def check(case: Case) -> None:
        book = case.world.book
        done = case.recover(message=WHAT_NOW, key="two")
        said = case.check_prefix(done["before"], book)
        assert (done["status"], done["output"]) == ("complete", "On we go.")
        assert case.world.book == book
        assert all(count == 1 for count in case.world.times("pay").values())
        if said is None:
            assert done["turn"] == 1
            return
        landed = done["before"]["turns"][0][1] == "complete"
        assert [turn[1] for turn in done["after"]["turns"]] == ["complete" if landed else "failed", "complete"]
        assert done["after"]["said"] == said
        assert done["requests"] == [[*said, {"role": "user", "content": WHAT_NOW}]]

    every_case(forge, mode, "message", check)
