"""Many answer at once, or answer while something else closes the ask: one thing happens, and everybody hears which."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.desk import YES, Desk
from tests.usecases.workshop import ALICE, KEY, noise
from turnkeep.errors import AlreadyAnsweredError, AskExpiredError, SessionNotFoundError, TurnkeepError
from turnkeep.ledger.records import Status
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.resume_turn import expire_ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.ledger.records import TurnRecord


def supervisor(number: int) -> Caller:
    return Caller(f"sup-{number}", roles=frozenset({"supervisor"}))


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Runs all of them at the same moment; what one raised is its result."""
    gate = threading.Barrier(len(acts))

    def one(act: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return act()
        except TurnkeepError as error:
            return error

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(one, acts))


def answers(desk: Desk, asked: TurnRecord, count: int, value: Any = None) -> list[Callable[[], Any]]:
    def act(number: int) -> Callable[[], Any]:
        decision = {"approved": number % 2 == 0, "by": f"sup-{number}"} if value is None else value
        return lambda: desk.answer(asked, decision, caller=supervisor(number))

    return [act(number) for number in range(count)]


def test_two_hundred_answer_at_once_and_one_is_taken() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    results = at_once(*answers(desk, asked, 200))

    taken = [one for one in results if not isinstance(one, Exception)]
    refused = [one for one in results if isinstance(one, AlreadyAnsweredError)]
    assert len(taken) == 1
    assert len(refused) == 199
    decision = taken[0].record.decision
    assert {one.answered_at_ms for one in refused} == {decision.answered_at_ms}
    desk.steps.settle()
    turn = desk.turn()
    assert turn.status is Status.COMPLETE
    assert turn.decision == decision
    assert desk.paid == (["B-200"] if decision.value["approved"] else [])


def test_of_large_answers_at_once_only_the_taken_one_stays() -> None:
    desk = Desk()
    desk.shop.with_settings(max_message_bytes=1_000_000)
    asked = desk.say("pay")
    results = at_once(*answers(desk, asked, 20, YES | {"note": noise(20_000)}))
    assert sum(not isinstance(one, Exception) for one in results) == 1
    turn = desk.turn()
    assert turn.decision is not None
    kept = {str(item["sk"]) for item in desk.shop.items("ANSWER#")}
    assert kept == {f"ANSWER#{1:016d}#{turn.decision.mark}#{part:016d}" for part in range(turn.decision.parts)}


# --- against what closes the ask ----------------------------------------------------------------------------


class Closing:
    """A desk whose ask is about to be closed by something else than its answer."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.asked = self.desk.say("pay")
        self.desk.steps.play()

    @property
    def ask_id(self) -> str:
        assert self.asked.ask is not None
        return self.asked.ask.ask_id

    def answer(self) -> Any:
        return self.desk.answer(self.asked)

    def withdraw(self) -> Any:
        return self.desk.withdraw(1)

    def expire(self) -> Any:
        """The machine's clock says that the time is up, the answerer's that there is some left."""
        assert self.asked.ask is not None
        ahead_ms = self.asked.ask.expires_at_ms + 1 - self.desk.shop.clock.now_ms()
        return expire_ask(self.desk.shop.elsewhere(ahead_ms=ahead_ms).deps(), KEY, 1, self.ask_id)

    def outcome(self) -> Status:
        """How the turn ends: with the answer used once, or closed with nothing used."""
        self.desk.heal()
        turn = self.desk.turn()
        if turn.status is Status.EXPIRED:  # by a clock that was ahead: the execution's own time-out is still to come
            self.desk.shop.pass_ms(8 * 86_400_000)
            self.desk.heal()
        used = turn.status is Status.COMPLETE
        assert used or turn.status in (Status.EXPIRED, Status.CANCELLED)
        assert (turn.decision is not None) is used
        assert self.desk.paid == (["B-200"] if used else [])
        assert self.desk.steps.running == []
        assert self.desk.say("thanks").status is Status.COMPLETE
        return turn.status


@pytest.mark.parametrize("closing", ["expire", "withdraw"])
def test_an_answer_first_is_used(closing: str) -> None:
    ask = Closing()
    assert ask.answer().record.status is Status.ANSWERED
    if closing == "expire":
        assert ask.expire().record.status is Status.ANSWERED
    else:
        with pytest.raises(AlreadyAnsweredError):
            ask.withdraw()
    assert ask.outcome() is Status.COMPLETE


@pytest.mark.parametrize(("closing", "ends"), [("expire", Status.EXPIRED), ("withdraw", Status.CANCELLED)])
def test_a_closed_ask_takes_no_answer(closing: str, ends: Status) -> None:
    ask = Closing()
    getattr(ask, closing)()
    with pytest.raises(AskExpiredError):
        ask.answer()
    assert ask.outcome() is ends


@pytest.mark.parametrize("closing", ["expire", "withdraw"])
def test_at_the_same_moment_it_is_one_or_the_other(closing: str) -> None:
    for _ in range(25):
        ask = Closing()
        answered, closed = at_once(ask.answer, getattr(ask, closing))
        taken = not isinstance(answered, Exception)
        if not taken:
            assert isinstance(answered, AskExpiredError)
            assert closed is not None
        assert (ask.outcome() is Status.COMPLETE) is taken


@pytest.mark.parametrize("closing", ["expire", "withdraw", "answer"])
def test_between_the_look_and_the_write_somebody_else_is_first(closing: str) -> None:
    """The answer's own read saw an open ask; its write finds another state, and a second look says which."""
    ask = Closing()
    moved = []

    def meanwhile(point: str) -> bool:
        if point == "answer put beside":
            ask.desk.dies = lambda point: False
            moved.append(getattr(ask, closing)())
        return False

    ask.desk.dies = meanwhile
    with pytest.raises(AlreadyAnsweredError if closing == "answer" else AskExpiredError):
        ask.answer()
    assert len(moved) == 1
    ask.outcome()


def test_an_erased_conversation_is_not_there_for_an_answer_that_is_under_way() -> None:
    ask = Closing()
    deadline = FixedDeadline.after(ask.desk.shop.clock, 29_000)

    def meanwhile(point: str) -> bool:
        if point == "answer put beside":
            ask.desk.dies = lambda point: False
            erase_conversation(ask.desk.process(), ALICE, KEY, deadline=deadline)
        return False

    ask.desk.dies = meanwhile
    with pytest.raises(SessionNotFoundError):
        ask.answer()
    ask.desk.steps.settle()
    assert ask.desk.steps.running == []
    assert ask.desk.shop.items("TURN#") == []
