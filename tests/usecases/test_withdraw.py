"""The owner takes back what has not run: an open ask, a queued turn."""

from __future__ import annotations

import pytest

from tests.usecases.desk import SAM, Desk
from tests.usecases.workshop import ALICE, BOB, KEY, NOBODY, Crash
from turnkeep.errors import (
    AlreadyAnsweredError,
    ConcurrentRunError,
    IdentityNotVerifiedError,
    SessionNotFoundError,
    TurnNotFoundError,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Update
from turnkeep.usecases.deps import Caller


def test_a_withdrawn_ask_is_closed_its_execution_ends_and_the_conversation_goes_on() -> None:
    desk = Desk()
    desk.say("look:0")
    asked = desk.say("look:1 pay:2")
    desk.steps.play()
    execution = desk.steps.running[0]
    withdrawn = desk.withdraw(2)
    assert withdrawn.status is desk.turn(2).status is Status.CANCELLED
    assert execution.status == "ABORTED"
    desk.heal()
    assert len(desk.steps.executions) == 1, "what was stopped on purpose is not replaced"
    assert desk.events.kinds()[-2:] == ["ask.closed", "turn.ended"]
    assert desk.events.told[-2][1]["askId"] == asked.ask.ask_id  # type: ignore[union-attr]
    assert desk.events.told[-2][1]["status"] == "cancelled"
    following = desk.say("thanks")
    assert (following.turn, following.status) == (3, Status.COMPLETE)
    assert desk.paid == ["looked at 0", "looked at 1"]


def test_withdrawing_twice_is_once() -> None:
    desk = Desk()
    desk.say("pay")
    first = desk.withdraw(1)
    assert desk.withdraw(1) == first
    assert desk.events.kinds().count("ask.closed") == 1


def test_a_later_ask_of_the_turn_is_withdrawn_with_the_execution_of_the_first() -> None:
    desk = Desk()
    asked = desk.say("pay then pay")
    desk.steps.play()
    desk.answer(asked)
    desk.steps.settle()
    desk.withdraw(1)
    assert [one.status for one in desk.steps.executions.values()] == ["ABORTED"]
    assert desk.say("thanks").status is Status.COMPLETE


def test_an_answered_ask_is_not_taken_back_and_neither_is_its_resume() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)
    with pytest.raises(AlreadyAnsweredError) as refused:
        desk.withdraw(1)
    assert refused.value.facts() == {"answeredAt": desk.shop.clock.now_ms()}
    seen = []

    def meanwhile(point: str) -> bool:
        if point == "resume claimed":
            desk.dies = lambda here: False
            with pytest.raises(AlreadyAnsweredError):
                desk.withdraw(1)
            seen.append(point)
        return False

    desk.dies = meanwhile
    desk.steps.settle()
    assert seen
    assert desk.withdraw(1).output == "paid B-200", "what has ended stands as it ended"


def test_a_run_is_not_taken_back() -> None:
    desk = Desk()
    seen = []

    def meanwhile(point: str) -> bool:
        if point == "claimed":
            desk.dies = lambda here: False
            with pytest.raises(ConcurrentRunError):
                desk.withdraw(1)
            seen.append(point)
        return False

    desk.dies = meanwhile
    desk.say("hello")
    assert seen


@pytest.mark.parametrize("caller", [BOB, SAM, NOBODY, Caller("alice", tenant="acme")])
@pytest.mark.parametrize("turn", [1, 2])
def test_it_is_the_owners_alone(caller: Caller, turn: int) -> None:
    """A role-holder answers what they are asked; they do not take it away from its owner."""
    desk = Desk()
    desk.shop.with_settings(allow_anonymous=True)
    desk.say("pay")
    with pytest.raises(SessionNotFoundError):
        desk.withdraw(turn, caller=caller, key=ConversationKey(KEY.conversation_id, caller.tenant))
    assert desk.turn().status is Status.AWAITING


def test_what_is_not_there_is_not_found() -> None:
    desk = Desk()
    with pytest.raises(SessionNotFoundError):
        desk.withdraw(1)
    desk.say("hello", host_turn=5)
    for turn in (1, 4, 6):
        with pytest.raises(TurnNotFoundError):
            desk.withdraw(turn)
    with pytest.raises(IdentityNotVerifiedError):
        desk.withdraw(1, caller=NOBODY)


def test_a_pause_that_cannot_be_read_is_withdrawn_as_well() -> None:
    desk = Desk()
    desk.say("pay")
    for item in desk.shop.items("SEG#"):
        desk.shop.memory.write([Update((str(item["pk"]), str(item["sk"])), set={"data": b"cut"})])
    assert desk.withdraw(1).status is Status.CANCELLED
    assert desk.say("thanks").status is Status.COMPLETE


@pytest.mark.parametrize("point", ["before transact", "after transact", "withdrawn", "before stop_execution"])
def test_a_crash_while_withdrawing_is_healed_by_withdrawing_or_by_time(point: str) -> None:
    desk = Desk()
    desk.say("pay")
    desk.steps.play()
    desk.dies = lambda here: here == point
    with pytest.raises(Crash):
        desk.withdraw(1)
    desk.dies = lambda here: False
    assert desk.withdraw(1).status is Status.CANCELLED
    assert desk.say("thanks").status is Status.COMPLETE
    # An execution that nobody could stop any more finds its ask closed when that would have expired, and ends.
    desk.shop.pass_ms(8 * 86_400_000)
    desk.steps.settle()
    assert desk.steps.running == []
    assert desk.turn().status is Status.CANCELLED


def test_an_execution_that_cannot_be_stopped_now_is_noted() -> None:
    desk = Desk()
    desk.say("pay")
    desk.steps.unreachable = True
    assert desk.withdraw(1, caller=ALICE).status is Status.CANCELLED
    assert ("stop_failed", {"turn": 1, "cause": "ThrottlingException"}) in desk.notes
