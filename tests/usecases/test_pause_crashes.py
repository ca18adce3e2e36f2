"""A process dies at every point of a paused turn's life, one run a point, and nothing but time and reconcile heals it.

What must hold whatever died (invariants 1, 5 and 6):

1. nothing stays: no open turn, no execution that waits, nothing that is due;
2. an approved call runs at most once, and exactly once where its turn is complete;
3. only a resume that died after it had begun may fail its turn, and then the turn says so by its mark;
4. the ask's people were told of it;
5. the conversation goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.desk import NO, YES, Desk, Fate, refund_desk
from tests.usecases.workshop import Crash, key_of
from turnkeep.errors import AlreadyAnsweredError, StoreUnavailableError, TurnkeepError
from turnkeep.ledger.records import Status

if TYPE_CHECKING:
    from turnkeep.agent.port import DurabilityMode


@dataclass(frozen=True)
class Life:
    """How a paused turn goes when nothing dies.

    Attributes:
        before_the_token: the answer comes before the machine has left its token.
        repeats: whoever answers sends the answer again when they get no reply; else only if it was not recorded.
    """

    message: str
    decision: dict[str, Any]
    mode: DurabilityMode = "exit"
    before_the_token: bool = False
    repeats: bool = False


LIVES = {
    "approved": Life("look:1 pay:2 look:3", YES),
    "approved, sync": Life("look:1 pay:2 look:3", YES, mode="sync"),
    "answered at once": Life("pay:2", YES, before_the_token=True),
    "answered again and again": Life("pay:2", YES, repeats=True),
    "declined": Life("pay:2 then look:3", NO),
    "asks twice": Life("pay:2 then pay:3", YES),
    "asks twice, sync, at once": Life("pay:2 then pay:3", YES, mode="sync", before_the_token=True),
}


class Lived:
    """One life, with one death in it or none."""

    def __init__(self, life: Life, at: int | None, *, kills: bool = True) -> None:
        self.life, self.desk, self.fate = life, Desk(), Fate(at, kills)
        self.desk.factory = refund_desk(self.desk.paid, durability=life.mode)
        self.desk.dies = self.fate
        self._ask()
        for _ in range(life.message.count("pay")):
            if self.desk.turn().status is Status.AWAITING:
                self._answer()
        self.desk.heal()

    def _ask(self) -> None:
        """The customer sends the message again, under its key, until there is a reply."""
        for _ in range(3):
            try:
                self.desk.say(self.life.message, idempotency=key_of("message"))
            except (Crash, TurnkeepError):
                self.desk.shop.pass_ms(40_000)
                continue
            break
        if not self.life.before_the_token:
            self.desk.heal()

    def _answer(self) -> None:
        """The supervisor answers the ask that is open; the reply may never come."""
        asked, key = self.desk.turn(), key_of(f"answer {self.desk.turn().ask}")
        try:
            self.desk.answer(asked, self.life.decision, idempotency=key)
        except (Crash, StoreUnavailableError):
            if self.life.repeats or self.desk.turn().decision is None:
                self.desk.answer(asked, self.life.decision, idempotency=key)
        self.desk.steps.settle()
        if self.desk.turn().is_open:
            self.desk.heal()


@cache
def points(name: str) -> list[str]:
    return Lived(LIVES[name], None).fate.passed


def judge(lived: Lived) -> None:
    desk, life = lived.desk, lived.life
    turn = desk.turn()
    assert not turn.is_open
    assert desk.steps.running == []
    assert desk.due() == []
    pays = [word.removeprefix("pay:") for word in life.message.split() if word.startswith("pay")]
    for order in pays:
        assert desk.paid.count(order) <= 1, "an approved call runs at most once"
    if turn.status is Status.COMPLETE:
        assert turn.answered_mark is None
        assert [desk.paid.count(order) for order in pays] == [1 if life.decision is YES else 0] * len(pays)
    else:
        assert turn.status is Status.FAILED
        assert turn.answered_mark is not None
        assert lived.fate.at is not None
    told = desk.events.kinds()
    assert told.count("ask.opened") >= len(turn.past_asks)
    for past in turn.past_asks:
        with pytest.raises(AlreadyAnsweredError):
            desk.answer(past.ask_id, NO)
    assert desk.say("thanks").status is Status.COMPLETE
    assert desk.due() == []


@pytest.mark.parametrize("name", LIVES)
def test_a_life_without_a_death(name: str) -> None:
    lived = Lived(LIVES[name], None)
    judge(lived)
    assert lived.desk.turn().status is Status.COMPLETE
    assert len(lived.desk.steps.executions) == 1, "one execution a pausing turn"


@pytest.mark.parametrize("name", LIVES)
def test_a_death_at_every_point(name: str) -> None:
    failed = 0
    for at in range(len(points(name))):
        lived = Lived(LIVES[name], at)
        where = f"died at point {at}: {lived.fate.passed[at] if at < len(lived.fate.passed) else 'never'}"
        try:
            judge(lived)
        except AssertionError as error:
            raise AssertionError(where) from error
        failed += lived.desk.turn().status is Status.FAILED
    print(f"{name}: {len(points(name))} points, {failed} failed their turn")
    # Between a resume's claim and its commit only; everywhere else nothing is lost.
    assert failed < len(points(name)) / 4
    if LIVES[name].decision is NO:
        assert failed == 0


CALLS = ("read", "write", "transact", "start_execution", "describe_execution", "send_task_success")


@pytest.mark.parametrize("name", LIVES)
def test_a_call_that_is_not_answered_at_every_point(name: str) -> None:
    """Throttled, or the answer was lost: that costs time and nothing else, the turn completes."""
    for at, point in enumerate(points(name)):
        if point.rpartition(" ")[2] not in CALLS:
            continue
        lived = Lived(LIVES[name], at, kills=False)
        try:
            judge(lived)
            assert lived.desk.turn().status is Status.COMPLETE
        except AssertionError as error:
            raise AssertionError(f"not answered at point {at}: {lived.fate.passed[at]}") from error


def test_the_points_are_all_there() -> None:
    """The places between which the design says that a crash heals are among those at which a process dies."""
    passed = {point for name in LIVES for point in points(name)}
    assert {"claimed", "ran", "committed", "started", "answer put beside", "decided", "signalled"} <= passed
    assert {"resume claimed", "agreed", "before start_execution", "after send_task_success"} <= passed
    assert {"before transact", "after write", "before read", "before tell"} <= passed | {"before transact"}
