"""One death, or one long sleep, of a real process: its conversation, its world, and what was found before and after."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tests.process.worker import KILL, STOP, FileWorld
from tests.usecases.plant import BOUNDARIES, GO, WHOLE_TURN, Did

if TYPE_CHECKING:
    from tests.process.forge import Forge, Worker

MODES = ("exit", "async", "sync")
HOUR_MS = 3_600_000


@cache
def points(forge: Forge, mode: str) -> list[str]:
    """Every point of an undisturbed turn, as a worker passed them."""
    case = Case(forge, mode, "nowhere", "points")
    report = forge.run(**case.job, name="first", message=GO, key="one")
    assert report["output"] == "All done."
    found = [str(point) for point in report["points"]]
    assert len(set(found)) == len(found)
    for what in ("put TURN 1", "put REQUEST 1", "put ONCE 3", "update ONCE 3", "update TURN 1", "pay 3", "step 1"):
        assert {f"before {what}", f"after {what}"} <= set(found)
    assert sum(1 for point in found if point.startswith("before put SEG")) == (0 if mode == "exit" else 3)
    return found


class Case:
    """One death at a point of a turn, in a conversation and a world of its own."""

    def __init__(self, forge: Forge, mode: str, point: str, recovery: str) -> None:
        self.forge, self.mode, self.point = forge, mode, point
        self.conversation = f"{recovery}-{mode}-{point}".replace(" ", "-")
        path = forge.world(self.conversation)
        self.world = FileWorld(path)
        self.job: dict[str, Any] = {"conversation": self.conversation, "world": str(path), "mode": mode}

    def die(self) -> None:
        worker = self.forge.start(**self.job, name="first", message=GO, key="one", at=self.point, signal=KILL)
        assert worker.wait() == ("signal", KILL)

    def recover(self, **request: Any) -> dict[str, Any]:
        """Another machine goes on, to which the dead one's lease is over."""
        return self.forge.run(**self.job, name="second", ahead_ms=HOUR_MS, look=True, **request)

    def check_prefix(self, seen: dict[str, Any] | None, book: list[Did]) -> list[dict[str, Any]] | None:
        if seen is None:
            assert book == []
            return None
        said: list[dict[str, Any]] = seen["said"]
        assert said == WHOLE_TURN[: len(said)]
        assert len(said) in BOUNDARIES
        if self.mode == "sync" and book:
            assert len(said) >= 1 + 3 * (book[-1].n - 1)
        return said


TIME_MS = 8_000
"""What the sleepers are given; their lease is over that and its reserve later."""


class Sleeper(Case):
    """A case whose process sleeps instead of dying."""

    worker: Worker

    def sleep(self, time_ms: int = TIME_MS) -> None:
        self.worker = self.forge.start(
            **self.job, name="first", message=GO, key="one", at=self.point, signal=STOP, time_ms=time_ms
        )
        assert self.worker.wait() == ("stopped", STOP)
