"""Real processes that sleep (SIGSTOP) at every point until their lease is over and others have gone on, then wake up.

Invariant 10: no reader sees anything of what they still try.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.process.cases import TIME_MS, Sleeper, points
from tests.process.forge import Forge, side_by_side
from tests.usecases.plant import GO, WHAT_NOW
from turnkeep.usecases.state import LEASE_RESERVE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.process, pytest.mark.exhaustive, pytest.mark.timeout(600)]


def sleepers(forge: Forge) -> Iterator[Sleeper]:
    """All points under ``sync``; half of them are recovered by the same request, the others by a new message."""
    for number, point in enumerate(points(forge, "sync")):
        yield Sleeper(forge, "sync", point, ("stopped-retry", "stopped-message")[number % 2])


def test_what_wakes_up_behind_its_lease_changes_nothing(forge: Forge) -> None:
    cases = list(sleepers(forge))
    side_by_side(Sleeper.sleep, cases)
    time.sleep((TIME_MS + LEASE_RESERVE_MS) / 1000 + 0.5)

    def recover(case: Sleeper) -> str | None:
        """Another process goes on, wakes the sleeper, and looks whether anything has changed."""
        try:
            request = (
                {"message": GO, "key": "one"} if "retry" in case.conversation else {"message": WHAT_NOW, "key": "two"}
            )
            done = forge.run(**case.job, name="second", look=True, **request)
            assert done["status"] == "complete"
            book = case.world.book
            had_claimed = done["before"] is not None
            case.worker.wake()
            assert case.worker.wait() == ("exit", 0)
            woke = case.worker.report()
            seen = forge.run(**case.job, name="looks", look=True)["after"]
            if not had_claimed:
                assert woke.get("error") or woke["status"] == "complete"
                return None
            assert seen == done["after"]
            late = case.world.book[len(book) :]
            inside = case.point.startswith(("before step", "before pay"))
            # Inside a tool, its effect may still come, unless the process ends with its reply before.
            assert [line.process for line in late] in ([[], ["first"]] if inside else [[]])
            landed = done["before"]["turns"][0][1] == "complete"
            assert landed or woke.get("error") in ("LostClaimError", "TurnOutOfTimeError", "StoreUnavailableError")
        except AssertionError as error:
            return f"{case.conversation}: {error!r}"
        return None

    assert [fault for fault in side_by_side(recover, cases) if fault is not None] == []
    assert len(cases) >= 46
