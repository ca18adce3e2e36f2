"""Real processes on the endpoint alone: killed at every point there is, asleep past their leases, under wrong clocks.

The processes, their points and what is looked at are those of ``tests/process``.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.chaos.stage import MODES, Row
from tests.process.cases import TIME_MS, Case, Sleeper, points
from tests.process.forge import Forge, side_by_side
from tests.process.worker import make_table
from tests.usecases.plant import GO
from turnkeep.usecases.state import LEASE_RESERVE_MS

if TYPE_CHECKING:
    from pathlib import Path

    from local.stack import LocalStack

LIVES_FOR_MS: Final = 25_000
"""The time of a process that is alive while somebody with a wrong clock takes its turn over."""

PLACES: Final = {
    "before step 2": "in a tool, before it acts",
    "before pay 2": "in a tool that acts once, before it acts",
    "before update TURN 1": "before the commit",
}
ANSWERED: Final = "All done."


@dataclass(frozen=True)
class EveryPoint:
    """What became of all points of one mode.

    Attributes:
        killed: points, one process killed at each.
        answered: turns that the same request, sent again, answered.
        once: those in which what acts once acted exactly once.
        again: how many of the tools that may run twice ran again, and at how many points.
        lost: turns whose message or durable history was not what it has to be.
    """

    mode: str
    killed: int
    answered: int
    once: int
    again: Counter[int]
    lost: int


def set_up(stack: LocalStack, folder: Path) -> Forge:
    """The processes' table on a stack's endpoint, and what forks them."""
    make_table(stack.aws_url)
    return Forge(stack.aws_url, folder)


def every_point(forge: Forge, mode: str) -> EveryPoint:
    """A process killed at every point of a turn; behind each the same request, on another machine."""

    def one(point: str) -> tuple[bool, bool, int, bool]:
        case = Case(forge, mode, point, "chaos")
        case.die()
        book, before = case.world.book, case.world.times("step")
        done = case.recover(message=GO, key="one")
        whole = True
        try:
            case.check_prefix(done["before"], book)
        except AssertionError:
            whole = False
        shown = [one["content"] for one in done["after"]["transcript"]] == [GO, ANSWERED]
        again = sum(1 for n in before if case.world.times("step")[n] > before[n])
        return done.get("output") == ANSWERED, case.world.times("pay") == {1: 1, 2: 1, 3: 1}, again, whole and shown

    found = side_by_side(one, points(forge, mode))
    return EveryPoint(
        mode,
        len(found),
        sum(answered for answered, *_ in found),
        sum(once for _, once, *_ in found),
        Counter(again for _, _, again, _ in found),
        sum(not there for *_, there in found),
    )


def sleepers(forge: Forge) -> list[Row]:
    """Processes that sleep past their lease; others answer their turns; then they wake up."""
    cases = [Sleeper(forge, mode, point, "slept") for point in PLACES for mode in MODES]
    side_by_side(Sleeper.sleep, cases)
    time.sleep((TIME_MS + LEASE_RESERVE_MS) / 1000 + 0.5)
    did = "SIGSTOP {}; its lease passes, another process answers; SIGCONT"
    return side_by_side(lambda case: _wakes(case, did, 0), cases)


def wrong_clocks(forge: Forge) -> list[Row]:
    """Processes that are alive while a machine whose clock is an hour ahead takes their turns over."""
    cases = [Sleeper(forge, mode, point, "clock") for point in PLACES for mode in MODES]
    side_by_side(lambda case: case.sleep(LIVES_FOR_MS), cases)
    did = "A machine whose clock is an hour ahead takes over from a process that is alive, {}"
    return side_by_side(lambda case: _wakes(case, did, 3_600_000), cases)


def _wakes(case: Sleeper, did: str, ahead_ms: int) -> Row:
    job: dict[str, Any] = case.job | {"ahead_ms": ahead_ms}
    done = case.forge.run(**job, name="second", look=True, message=GO, key="one")
    book = case.world.book
    case.worker.wake()
    case.worker.wait()
    woke = case.worker.report()
    after = case.forge.run(**case.job, name="looks", look=True)["after"]
    late = case.world.book[len(book) :]
    strange = [act for act in late if act.key not in {one.key for one in book}]
    broken = [] if after == done["after"] else ["what is stored has changed"]
    broken += ["a late act has a key of its own"] if strange else []
    broken += [] if done.get("output") == ANSWERED else ["the turn is not answered"]
    acted = " · ".join(f"{name} {sum(case.world.times(name).values())} ×" for name in ("step", "pay"))
    if late:
        acted += f"; {' and '.join(f'{act.name} {act.n}' for act in late)} late, under the same idempotency key"
    return Row(
        case.mode, f"`{done['status']}`; the sleeper: `{woke.get('error') or woke['status']}`",
        "the fence: what wakes up changes nothing that is read", f"`{done['status']}`", acted, (), tuple(broken),
        did.format(PLACES[case.point]),
    )  # fmt: skip
