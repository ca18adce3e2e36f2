"""Reconcile: what is due and was not done is done, each thing once, however many reconcilers run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.desk import NO, Desk
from tests.usecases.workshop import ALICE, KEY, Crash
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Put, Update
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.reconcile import reconcile, reconcile_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.ledger.records import TurnRecord

MINUTE_MS, DAY_MS = 60_000, 86_400_000


def ask_and_die(desk: Desk, point: str, message: str = "pay", key: ConversationKey = KEY) -> TurnRecord:
    """A turn whose process dies on its way."""
    desk.dies = lambda here: here == point
    with pytest.raises(Crash):
        desk.say(message, key=key)
    desk.dies = lambda here: False
    return desk.shop.turn(1, key)


def many(desk: Desk, count: int = 8) -> dict[str, int]:
    """So many reconcilers at the same moment; what all of them did."""
    gate, done, lock = threading.Barrier(count), dict[str, int](), threading.Lock()

    def one() -> None:
        deps = desk.process()
        gate.wait()
        report = reconcile(deps, deadline=FixedDeadline.after(desk.shop.clock, MINUTE_MS))
        with lock:
            for what, times in report.done.items():
                done[what] = done.get(what, 0) + times

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {what: times for what, times in done.items() if what not in ("taken", "nothing")}


# --- each thing once ----------------------------------------------------------------------------------------


def missing_execution(desk: Desk) -> str:
    ask_and_die(desk, "before start_execution")
    return "started"


def stopped_execution(desk: Desk) -> str:
    desk.say("pay")
    desk.steps.stop(desk.steps.running[0])  # before it left its token
    return "restarted"


def unsignalled_answer(desk: Desk) -> str:
    asked = desk.say("pay")
    desk.steps.play()
    desk.dies = lambda here: here == "before send_task_success"
    with pytest.raises(Crash):
        desk.answer(asked)
    desk.dies = lambda here: False
    return "woken"


def stopped_behind_the_answer(desk: Desk) -> str:
    unsignalled_answer(desk)
    desk.steps.stop(desk.steps.running[0])
    return "woken"


@pytest.mark.parametrize(
    "left_over", [missing_execution, stopped_execution, unsignalled_answer, stopped_behind_the_answer]
)
def test_eight_reconcilers_do_it_once(left_over: Callable[[Desk], str]) -> None:
    desk = Desk()
    done = left_over(desk)
    assert many(desk) == {}, "nothing is due yet"
    desk.shop.pass_ms(MINUTE_MS)
    assert many(desk) == {done: 1}
    assert len(desk.steps.running) == 1
    assert many(desk) == {}
    if desk.turn().status is Status.AWAITING:
        desk.steps.play()
        desk.answer(desk.turn())
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert desk.paid == ["B-200"]


def test_eight_reconcilers_expire_an_ask_once() -> None:
    desk = Desk()
    ask_and_die(desk, "before start_execution")
    desk.shop.pass_ms(8 * DAY_MS)
    assert many(desk) == {"expired": 1}
    assert desk.turn().status is Status.EXPIRED
    assert desk.events.kinds().count("ask.closed") == 1
    assert desk.steps.executions == {}


def test_eight_reconcilers_close_a_dead_resume_once() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)
    desk.dies = lambda here: here == "resume claimed"
    desk.steps.play()
    desk.dies = lambda here: False
    desk.shop.pass_ms(320_000)
    assert many(desk) == {"closed": 1}
    turn = desk.turn()
    assert turn.status is Status.FAILED
    assert turn.answered_mark is not None
    assert desk.events.kinds().count("turn.ended") == 1


# --- the execution that waits -------------------------------------------------------------------------------


def test_an_execution_that_waits_is_left_alone() -> None:
    """No polling: between its token and its expiry nobody looks at a paused turn."""
    desk = Desk()
    desk.say("pay")
    desk.steps.play()
    looks = desk.shop.memory.round_trips
    for _ in range(60):
        desk.shop.pass_ms(60 * MINUTE_MS)
        assert desk.reconcile().done == {}
    per_run = (desk.shop.memory.round_trips - looks) / 60
    assert per_run == 8, "the index's shards, and nothing else"


def test_one_that_ended_abnormally_is_replaced_at_once() -> None:
    desk = Desk()
    desk.say("pay")
    desk.steps.play()
    first = desk.steps.running[0]
    desk.steps.stop(first)
    desk.hear_of_ends()
    (second,) = desk.steps.running
    assert second.name == first.name.removesuffix("-1") + "-2"
    assert second.card["start"] == 2
    desk.steps.play()
    desk.answer(desk.turn())
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE


def test_an_end_that_is_told_twice_or_late_is_replaced_once() -> None:
    desk = Desk()
    desk.say("pay")
    desk.steps.play()
    first = desk.steps.running[0]
    desk.steps.stop(first)
    desk.steps.ended.clear()
    assert desk.tell_of_end(first) == {"done": {"restarted": 1}}
    desk.steps.play()
    assert desk.tell_of_end(first) == {"done": {"started": 1}}, "the new one runs: that is all there is to do"
    desk.shop.pass_ms(3 * MINUTE_MS)
    desk.reconcile()
    desk.shop.pass_ms(DAY_MS)
    assert desk.reconcile().done == {}, "and looking at it every minute for it is over, too"
    assert len(desk.steps.running) == 1


def test_an_end_that_nobody_could_attend_to_is_told_again() -> None:
    """Lambda tries an event again where the function raised; between token and expiry nobody else would look."""
    desk = Desk()
    desk.say("pay")
    desk.steps.play()
    first = desk.steps.running[0]
    desk.steps.stop(first)
    for where in ("before read", "before write"):

        def away(point: str, where: str = where) -> bool:
            if point == where:
                raise StoreUnavailableError
            return False

        desk.dies = away
        with pytest.raises(StoreUnavailableError):
            desk.tell_of_end(first)
        assert desk.steps.running == []
    desk.dies = lambda here: False
    assert desk.tell_of_end(first) == {"done": {"restarted": 1}}


def test_an_end_that_is_told_behind_the_turns_own_is_nothing() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    execution = desk.steps.running[0]
    desk.withdraw(asked.turn)
    assert execution.status == "ABORTED"
    assert desk.tell_of_end(execution) == {"done": {"nothing": 1}}
    assert desk.steps.running == []


@pytest.mark.parametrize(
    "card", ["null", "[]", "{}", '{"conversationId": "c-1", "askId": "a", "turn": "seven"}', "not json", None]
)
def test_a_foreign_executions_end_is_none_of_ours(card: str | None) -> None:
    desk = Desk()
    desk.say("pay")
    execution = desk.steps.executions[next(iter(desk.steps.executions))]
    execution.input = card  # type: ignore[assignment]
    assert desk.tell_of_end(execution) == {"done": {}}


def test_executions_that_end_at_once_do_not_run_in_a_circle() -> None:
    """A deployment whose function cannot even start: the answer waits for a better one, with growing pauses."""
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    desk.answer(asked)
    inner = desk.steps.resume

    def broken(payload: dict[str, Any]) -> dict[str, Any]:
        raise ImportError

    desk.steps.resume = broken
    for _ in range(240):
        desk.steps.settle()
        desk.hear_of_ends()
        desk.reconcile()
        desk.shop.pass_ms(MINUTE_MS)
    assert desk.turn().status is Status.ANSWERED
    assert 5 < len(desk.steps.executions) < 15, "four hours cost a dozen executions"

    desk.steps.resume = inner
    for _ in range(70):
        desk.steps.settle()
        desk.hear_of_ends()
        desk.reconcile()
        desk.shop.pass_ms(MINUTE_MS)
    assert desk.turn().status is Status.COMPLETE
    assert desk.paid == ["B-200"]


def test_a_lost_ask_is_told_of_again_by_whoever_starts_its_execution() -> None:
    desk = Desk()
    ask_and_die(desk, "before tell")
    assert desk.events.told == []
    desk.shop.pass_ms(MINUTE_MS)
    assert desk.reconcile().done == {"started": 1}
    assert desk.events.kinds() == ["ask.opened"]


def test_step_functions_away_for_an_hour_loses_no_question() -> None:
    desk = Desk()
    desk.steps.unreachable = True
    asked = desk.say("pay")
    assert asked.status is Status.AWAITING, "the reply does not wait for it"
    for _ in range(60):
        desk.shop.pass_ms(MINUTE_MS)
        desk.reconcile()
    desk.answer(asked)
    desk.steps.unreachable = False
    desk.heal()
    assert desk.turn().status is Status.COMPLETE


# --- resumes and runs that nobody goes on with --------------------------------------------------------------


def test_a_resume_is_left_alone_while_it_may_be_alive() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)
    reports = []

    def meanwhile(point: str) -> bool:
        if point == "resume claimed":
            desk.dies = lambda here: False
            desk.steps.stop(desk.steps.running[0])
            desk.hear_of_ends()
            reports.append(desk.reconcile().done)
        return False

    desk.dies = meanwhile
    desk.steps.play()
    assert reports == [{}]
    assert desk.turn().status is Status.COMPLETE
    assert desk.paid == ["B-200"]


def test_a_declined_resume_that_died_with_its_execution_goes_on_in_another() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked, NO)
    desk.dies = lambda here: here == "resume claimed"
    desk.steps.play()
    desk.dies = lambda here: False
    desk.steps.stop(desk.steps.running[0])
    desk.steps.ended.clear()  # and the event is lost as well
    desk.heal()
    assert desk.turn().status is Status.COMPLETE
    assert [one.status for one in desk.steps.executions.values()] == ["ABORTED", "SUCCEEDED"]


def test_a_message_goes_through_behind_what_reconcile_closed() -> None:
    desk = Desk()
    ask_and_die(desk, "before start_execution")
    desk.shop.pass_ms(8 * DAY_MS)
    desk.reconcile()
    assert desk.say("thanks").turn == 2


# --- what stands in the way ---------------------------------------------------------------------------------


def test_one_item_that_cannot_be_read_does_not_keep_the_others_waiting() -> None:
    desk = Desk()
    keys = [ConversationKey(f"c-{number}") for number in range(40)]
    for key in keys:
        ask_and_die(desk, "before start_execution", key=key)
    for key in keys[::4]:
        desk.shop.memory.write([Update((key.pk, "TURN#0000000000000001"), set={"format": "flowchart-v9"})])
    foreign = {"pk": "nobody's partition", "sk": "TURN#0000000000000001", "due": "due#3", "dueAt": 1}
    desk.shop.memory.write([Put(foreign)])
    desk.shop.pass_ms(MINUTE_MS)
    assert desk.reconcile().done == {"started": 30, "failed": 11}
    assert len(desk.steps.running) == 30
    noted = [facts for name, facts in desk.notes if name == "reconcile_failed"]
    assert {fact["cause"] for fact in noted} == {"UnknownStoredFormatError", "ValueError"}


def test_what_the_time_does_not_suffice_for_the_next_one_does() -> None:
    desk = Desk()
    for number in range(30):
        ask_and_die(desk, "before start_execution", key=ConversationKey(f"c-{number}"))
    desk.shop.pass_ms(MINUTE_MS)
    write = desk.shop.memory.write

    def slow(writes: Any) -> Any:
        desk.shop.pass_ms(1_000)
        return write(writes)

    desk.shop.memory.write = slow  # type: ignore[method-assign]
    started = []
    while not started or started[-1]:
        report = reconcile(desk.process(), deadline=FixedDeadline.after(desk.shop.clock, 15_000))
        started.append(report.done.get("started", 0))
    assert all(count <= 10 for count in started)
    assert sum(started) == len(desk.steps.executions) == 30


def test_pages_of_the_index_are_all_read() -> None:
    desk = Desk()
    for number in range(120):
        key = ConversationKey(f"same-shard-{number}")
        desk.shop.memory.write(
            [Put({"pk": key.pk, "sk": "TURN#0000000000000001", "due": "due#0", "dueAt": 1, "n": number})]
        )
    assert desk.reconcile().done == {"failed": 120}, "each is looked at, and named"


def test_what_is_erased_or_answered_meanwhile_is_nothing() -> None:
    desk = Desk()
    assert reconcile_turn(desk.process(), KEY, 1) == "nothing"
    asked = desk.say("pay")
    assert reconcile_turn(desk.process(), KEY, 1) == "nothing"
    desk.shop.pass_ms(MINUTE_MS)
    moved = []

    def answer_first(point: str) -> bool:
        if point == "after read" and not moved:
            moved.append(desk.answer)
            desk.dies = lambda here: False
            desk.answer(asked)
        return False

    desk.dies = answer_first
    deps = desk.process()
    assert reconcile_turn(deps, KEY, 1) == "taken", "whoever moved it does what is due"
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert desk.say("ask", caller=ALICE).status is Status.AWAITING
