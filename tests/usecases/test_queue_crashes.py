"""A process dies at every point of queued turns' lives, one run a point; redeliveries, time and reconcile heal it.

Whatever died: every turn that was claimed runs, in its order, once as far as anybody can read; nothing stays open,
due or on the queue; and nothing is a dead letter.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.usecases.desk import Desk, Fate, refund_desk
from tests.usecases.workshop import ALICE, KEY, Crash, key_of
from turnkeep.errors import TurnkeepError
from turnkeep.ledger.records import Status
from turnkeep.usecases.read import read_transcript

if TYPE_CHECKING:
    from turnkeep.agent.port import DurabilityMode

MESSAGES = ("look:1", "look:2 then look:3", "hello")
SAID = ["look:1", "One moment.", "1 is a chair", "look:2 then look:3", "One moment.", "One moment."]
SAID += ["2 is a chair; 3 is a chair", "hello", "You are welcome."]


class Queued:
    """Three messages that are queued one after the other, and what becomes of them."""

    def __init__(self, mode: DurabilityMode, at: int | None, *, kills: bool = True) -> None:
        self.desk, self.fate = Desk(), Fate(at, kills)
        self.desk.factory = refund_desk(self.desk.paid, durability=mode)
        self.desk.dies = self.fate
        for message in MESSAGES:
            self._send(message)
        self.desk.heal()

    def _send(self, message: str) -> None:
        """Sent again under its key where no reply came; the caller never waits for the turn."""
        for _ in range(2):
            try:
                self.desk.queue_up(message, idempotency=key_of(message))
            except (Crash, TurnkeepError):
                continue
            return


@cache
def points(mode: DurabilityMode) -> list[str]:
    return Queued(mode, None).fate.passed


def judge(queued: Queued) -> None:
    desk = queued.desk
    assert [desk.turn(number).status for number in (1, 2, 3)] == [Status.COMPLETE] * 3
    assert len(desk.shop.items("TURN#")) == 3
    messages, _ = read_transcript(desk.shop.deps(), ALICE, KEY, after=None, limit=100, max_bytes=10**6)
    assert [message["content"] for message in messages] == SAID
    assert desk.due() == []
    assert desk.queue.messages == []
    assert desk.queue.dead == []
    assert desk.say("thanks").turn == 4


@pytest.mark.parametrize("kills", [True, False], ids=["dies", "is not answered"])
@pytest.mark.parametrize("mode", ["exit", "async", "sync"])
def test_at_every_point(mode: DurabilityMode, kills: bool) -> None:
    for at, point in enumerate(points(mode)):
        if not kills and not point.endswith((" read", " write", " transact", " send_message")):
            continue
        queued = Queued(mode, at, kills=kills)
        try:
            judge(queued)
        except AssertionError as error:
            raise AssertionError(f"at point {at}: {point}") from error
        if mode == "sync" and kills:
            # Invariant 8: after a crash at most the current iteration's tools run again.
            assert max(queued.desk.paid.count(f"looked at {n}") for n in (1, 2, 3)) <= 2


def test_the_points_are_all_there() -> None:
    assert {"claimed", "before send_message", "after send_message", "rung", "ran", "committed"} <= set(points("exit"))
    assert len(points("exit")) > 50
