"""Queued turns: claimed first, rung for, run in order within a conversation, whatever becomes of the doorbells."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.desk import Desk, refund_desk
from tests.usecases.fifo_queue import URL
from tests.usecases.workshop import ALICE, KEY, Crash, answer, doing, key_of, scripted
from turnkeep.errors import (
    AwaitingDecisionError,
    ConcurrentRunError,
    IdempotencyMismatchError,
    StoreUnavailableError,
    UnreadableError,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Update
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.read import read_conversation, read_transcript
from turnkeep.usecases.work_queue import MAX_ATTEMPTS, work_queue

if TYPE_CHECKING:
    from turnkeep.agent.port import Outcome, TurnContext

MINUTE_MS = 60_000


def statuses(desk: Desk, count: int, key: ConversationKey = KEY) -> list[str]:
    return [desk.shop.turn(number, key).status.value for number in range(1, count + 1)]


def transcript(desk: Desk) -> list[str]:
    messages, _ = read_transcript(desk.shop.deps(), ALICE, KEY, after=None, limit=100, max_bytes=10**6)
    return [message["content"] for message in messages]


# --- the claim ----------------------------------------------------------------------------------------------


def test_a_queued_turn_has_its_number_at_once_and_runs_when_the_worker_comes() -> None:
    desk = Desk()
    queued = desk.queue_up("look:1")
    assert (queued.turn, queued.status) == (1, Status.QUEUED)
    assert desk.queue.sent == [{"conversationId": "c-1", "turn": 1}], "a doorbell, and nothing of the turn"
    assert desk.paid == []
    desk.work()
    turn = desk.turn()
    assert (turn.status, turn.output, turn.attempt) == (Status.COMPLETE, "1 is a chair", 1)
    assert desk.queue.messages == []
    assert desk.due() == []
    assert desk.events.kinds() == ["turn.ended"]


def test_several_are_queued_and_run_in_their_order() -> None:
    desk = Desk()
    assert [desk.queue_up(f"look:{n}").turn for n in (1, 2, 3)] == [1, 2, 3]
    desk.work()
    assert statuses(desk, 3) == ["complete"] * 3
    assert desk.paid == ["looked at 1", "looked at 2", "looked at 3"]
    assert transcript(desk) == [text for n in (1, 2, 3) for text in (f"look:{n}", "One moment.", f"{n} is a chair")]


def test_each_sees_what_the_one_before_it_left() -> None:
    desk = Desk()
    desk.factory = scripted(lambda scene: str(len(scene.messages)))
    for _ in range(4):
        desk.queue_up("x")
    desk.work()
    assert [desk.turn(n).output for n in (1, 2, 3, 4)] == ["1", "3", "5", "7"]
    assert read_conversation(desk.shop.deps(), ALICE, KEY).record.message_count == 8


def test_a_message_that_wants_its_answer_now_is_refused_behind_them() -> None:
    desk = Desk()
    desk.queue_up("x")
    with pytest.raises(ConcurrentRunError) as refused:
        desk.say("y")
    assert refused.value.facts() == {"turn": 1}


def test_a_repeat_attaches_and_rings_once_more() -> None:
    desk = Desk()
    desk.queue.loses = 1
    first = desk.queue_up("x", idempotency=key_of("k"))
    assert desk.queue_up("x", idempotency=key_of("k")).turn == first.turn
    with pytest.raises(IdempotencyMismatchError):
        desk.queue_up("y", idempotency=key_of("k", "other"))
    desk.work()
    assert desk.turn().status is Status.QUEUED, "to the queue it is the same ring; the lost one is rung for by time"
    desk.heal()
    assert desk.turn().status is Status.COMPLETE
    assert desk.queue_up("x", idempotency=key_of("k")).output == desk.turn().output
    assert len(desk.shop.items("TURN#")) == 1


# --- doorbells ----------------------------------------------------------------------------------------------


def test_doorbells_in_another_order_run_the_turns_in_theirs() -> None:
    desk = Desk()
    for n in (1, 2, 3):
        desk.queue_up(f"look:{n}")
    desk.queue.messages.reverse()
    desk.work()
    assert desk.paid == ["looked at 1", "looked at 2", "looked at 3"]
    assert desk.queue.messages == []


def test_doorbells_that_are_doubled_run_nothing_twice() -> None:
    desk = Desk()
    for n in (1, 2):
        desk.queue_up(f"look:{n}")
    doubles = list(desk.queue.messages)
    desk.work()
    for message in [*doubles, *doubles]:
        desk.deliver(message)
    assert desk.paid == ["looked at 1", "looked at 2"]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_doorbells_that_are_lost_are_rung_again(lost: int) -> None:
    desk = Desk()
    desk.queue.loses = lost
    for n in (1, 2, 3):
        desk.queue_up(f"look:{n}")
    desk.work()
    assert desk.paid == [f"looked at {n}" for n in range(1, 4 - lost)], "those that rang run the lowest ones"
    desk.shop.pass_ms(MINUTE_MS)
    assert desk.reconcile().done == {"rung": lost}
    desk.work()
    assert statuses(desk, 3) == ["complete"] * 3
    assert desk.queue.messages == []


def test_a_queue_that_cannot_be_reached_loses_no_turn() -> None:
    desk = Desk()
    desk.queue.unreachable = True
    assert desk.queue_up("x").status is Status.QUEUED
    assert ("ring_failed", {"turn": 1, "cause": "StoreUnavailableError"}) in desk.notes
    desk.queue.unreachable = False
    desk.heal()
    assert desk.turn().status is Status.COMPLETE


@pytest.mark.parametrize("point", ["claimed", "before send_message", "after send_message", "rung"])
def test_a_crash_between_claim_and_send_is_rung_for(point: str) -> None:
    desk = Desk()
    desk.dies = lambda here: here == point
    with pytest.raises(Crash):
        desk.queue_up("look:1")
    desk.dies = lambda here: False
    desk.heal()
    assert desk.turn().status is Status.COMPLETE
    assert desk.paid == ["looked at 1"]


def test_an_id_used_again_after_its_erasure_is_rung_for_within_the_queues_memory() -> None:
    desk = Desk()
    desk.queue_up("x")
    desk.work()
    erase_conversation(desk.process(), ALICE, KEY, deadline=FixedDeadline.after(desk.shop.clock, 29_000))
    desk.shop.memory.delete([(str(item["pk"]), str(item["sk"])) for item in desk.shop.items()])
    desk.queue_up("y")
    desk.work()
    assert desk.turn().status is Status.COMPLETE


def test_a_foreign_message_goes_to_the_dead_letters() -> None:
    desk = Desk()
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    for body in ('"text"', "[]", '{"conversationId": ""}', '{"conversationId": "c", "turn": "1"}'):
        desk.queue.send_message(
            QueueUrl=URL,
            MessageBody=body,
            **ids | {"MessageDeduplicationId": body},
        )
    for _ in range(30):
        desk.work()
        desk.shop.pass_ms(330_000)
    assert len(desk.queue.dead) == 4
    assert desk.queue.messages == []


def test_a_doorbell_for_nothing_is_answered() -> None:
    desk = Desk()
    assert work_queue(desk.process(), KEY, deadline=FixedDeadline.after(desk.shop.clock, 300_000)) is None
    desk.say("hello")
    assert work_queue(desk.process(), KEY, deadline=FixedDeadline.after(desk.shop.clock, 300_000)) is None


# --- predecessors -------------------------------------------------------------------------------------------


def test_a_live_predecessor_is_waited_for() -> None:
    desk = Desk()
    began = []
    desk.shop.hand.sleep_ms = lambda duration_ms: time.sleep(0.002)  # type: ignore[method-assign]

    def meanwhile(point: str) -> bool:
        if point == "claimed":
            desk.dies = lambda here: False
            desk.queue_up("look:2")
            message = desk.queue.receive()
            assert message is not None
            began.append(threading.Thread(target=desk.deliver, args=[message]))
            began[0].start()
        return False

    desk.dies = meanwhile
    desk.say("look:1")
    began[0].join()
    desk.heal()
    assert statuses(desk, 2) == ["complete"] * 2
    assert desk.paid == ["looked at 1", "looked at 2"]
    assert desk.queue.dead == []


def test_waiting_longer_than_a_process_may_is_no_failure() -> None:
    """The bell is rung again, as a new message: nothing comes nearer to the dead letters by that."""
    desk = Desk()
    desk.dies = lambda here: here == "claimed"
    with pytest.raises(Crash):
        desk.say("look:1")
    desk.dies = lambda here: False
    desk.queue_up("look:2")
    rounds = []
    for _ in range(8):
        alive = {"leaseUntil": desk.shop.clock.now_ms() + 400_000}
        desk.shop.memory.write([Update((KEY.pk, "TURN#0000000000000001"), set=alive)])
        message = desk.queue.receive()
        assert message is not None
        desk.deliver(message)
        rounds.append((message.id, message.receives))
    assert statuses(desk, 2) == ["running", "queued"]
    assert len(set(rounds)) == 8
    assert {receives for _, receives in rounds} == {1}
    desk.heal()
    assert statuses(desk, 2) == ["failed", "complete"]
    assert desk.queue.dead == []


def test_waiting_looks_at_one_record() -> None:
    desk = Desk()
    for n in range(30):
        desk.say(f"hello {n}")
    asked = desk.say("ask")
    desk.answer(asked, "blue", caller=ALICE)
    desk.queue_up("look:1")
    message = desk.queue.receive()
    assert message is not None
    reads: list[int] = []
    read = desk.shop.memory.read

    def noted(wanted: Any) -> Any:
        pages = read(wanted)
        reads.append(sum(len(page.items) for page in pages))
        return pages

    desk.shop.memory.read = noted  # type: ignore[method-assign]
    desk.deliver(message)
    assert desk.turn(32).status is Status.QUEUED
    assert reads.count(1) > 100
    assert sum(reads) < len(reads) + 150, "the conversation is read once or twice, not at every look"


@pytest.mark.parametrize("asks", ["pay", "ask"])
def test_a_predecessor_that_awaits_a_person_refuses_it_with_that_ask(asks: str) -> None:
    desk = Desk()
    desk.queue_up(asks)
    for n in (2, 3):
        desk.queue_up(f"look:{n}")
    desk.work()
    assert statuses(desk, 3) == ["awaiting", "refused", "refused"]
    ask = desk.turn(1).ask
    assert ask is not None
    for n in (2, 3):
        error = desk.turn(n).error
        assert error is not None
        assert error["code"] == "ERR_AWAITING_DECISION"
        assert error["turn"] == 1
        assert error["awaiting"]["askId"] == ask.ask_id
        assert "pauseData" not in error["awaiting"], "who may answer it sees it where it is asked"
    assert desk.events.kinds().count("turn.ended") == 2
    with pytest.raises(AwaitingDecisionError):
        desk.queue_up("look:4")
    desk.withdraw(1)
    assert desk.say("thanks").turn == 4
    assert desk.paid == ([] if asks == "pay" else ["asked B-200"])


def test_an_answer_that_is_being_taken_up_is_waited_for() -> None:
    desk = Desk()
    desk.queue_up("pay:1")
    desk.work()
    desk.steps.play()
    desk.answer(desk.turn())
    desk.queue_up("look:2")
    desk.steps.settle()
    desk.heal()
    assert statuses(desk, 2) == ["complete"] * 2
    assert desk.paid == ["1", "looked at 2"]


def test_an_expired_ask_in_front_of_it_is_closed() -> None:
    desk = Desk()
    desk.dies = lambda here: here == "before start_execution"
    with pytest.raises(Crash):
        desk.say("pay")
    desk.dies = lambda here: False
    desk.queue.unreachable = True
    desk.shop.pass_ms(8 * 86_400_000)
    desk.queue_up("look:2")
    desk.queue.unreachable = False
    desk.heal()
    assert statuses(desk, 2) == ["expired", "complete"]


def test_a_dead_predecessor_of_its_own_caller_is_closed() -> None:
    desk = Desk()
    desk.dies = lambda here: here == "claimed"
    with pytest.raises(Crash):
        desk.say("look:1")
    desk.dies = lambda here: False
    desk.queue_up("look:2")
    desk.heal()
    assert statuses(desk, 2) == ["failed", "complete"]


def test_a_dead_resume_in_front_of_it_is_not_closed_by_the_worker() -> None:
    """It may be one that goes on; that is for the machine or reconcile to find out."""
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked, {"approved": False, "by": "sam"})
    desk.dies = lambda here: here == "resume claimed"
    desk.steps.play()
    desk.dies = lambda here: False
    desk.queue_up("look:2")
    desk.shop.pass_ms(400_000)
    message = desk.queue.receive()
    assert message is not None
    desk.deliver(message)
    assert statuses(desk, 2) == ["running", "queued"]
    desk.heal()
    assert statuses(desk, 2) == ["complete"] * 2


# --- cancelled ----------------------------------------------------------------------------------------------


def test_a_queued_turn_is_cancelled_and_the_others_run() -> None:
    desk = Desk()
    for n in (1, 2, 3):
        desk.queue_up(f"look:{n}")
    assert desk.withdraw(2).status is Status.CANCELLED
    desk.work()
    assert statuses(desk, 3) == ["complete", "cancelled", "complete"]
    assert desk.paid == ["looked at 1", "looked at 3"]
    assert "look:2" not in transcript(desk)
    assert read_conversation(desk.shop.deps(), ALICE, KEY).record.message_count == len(transcript(desk))
    assert desk.due() == []


# --- failures -----------------------------------------------------------------------------------------------


def failing(context: TurnContext) -> Outcome:
    raise KeyError("said")


def test_an_agent_that_raises_fails_its_turn_and_the_next_one_runs() -> None:
    desk = Desk()
    desk.queue_up("x")
    desk.queue_up("y")
    well, desk.factory = desk.factory, doing(failing, agent_id="desk")
    message = desk.queue.receive()
    assert message is not None
    desk.deliver(message)
    desk.factory = well
    desk.work()
    assert statuses(desk, 2) == ["failed", "complete"]
    assert desk.queue.dead == [], "it is stored as failed: the message has done its work"


def test_an_agent_of_another_name_refuses_its_turn_once() -> None:
    desk = Desk()
    desk.say("hello")
    desk.queue_up("x")
    desk.factory = doing(failing, agent_id="somebody-else")
    desk.work()
    assert desk.turn(2).status is Status.REFUSED
    assert desk.queue.messages == []


def test_a_redelivery_goes_on_with_the_same_turn() -> None:
    desk = Desk()
    desk.factory = refund_desk(desk.paid, durability="sync")
    desk.queue_up("look:1 then look:2")
    agreed = []

    def dies(here: str) -> bool:
        agreed.append(here)
        return here == "agreed" and agreed.count("agreed") == 2

    desk.dies = dies
    desk.work()
    desk.dies = lambda here: False
    assert desk.turn().status is Status.RUNNING
    desk.shop.pass_ms(330_000)
    desk.work()
    turn = desk.turn()
    assert (turn.status, turn.attempt) == (Status.COMPLETE, 2)
    assert desk.paid.count("looked at 1") == 1, "what was durable did not run again"


def test_one_that_keeps_dying_ends_as_failed_and_in_the_dead_letters() -> None:
    desk = Desk()
    desk.queue_up("look:1")
    desk.queue_up("look:2")
    desk.dies = lambda here: here == "ran"
    attempts = []
    for _ in range(MAX_ATTEMPTS):
        desk.work()
        attempts.append(desk.turn().attempt)
        desk.shop.pass_ms(330_000)
    assert attempts == [1, 2, 3, 4]
    desk.dies = lambda here: False
    desk.heal()
    turn = desk.turn()
    assert turn.status is Status.FAILED
    assert turn.error is not None
    assert turn.error["code"] == "ERR_RUN_FAILED"
    assert [one.receives for one in desk.queue.dead] == [MAX_ATTEMPTS]
    assert desk.turn(2).status is Status.COMPLETE, "and the next one runs"
    assert desk.queue.messages == []


def test_a_store_that_is_away_costs_deliveries_and_no_turn() -> None:
    desk = Desk()
    desk.queue_up("look:1")
    left = [2]

    def away(here: str) -> bool:
        if here == "ran" and left[0]:
            left[0] -= 1
            raise StoreUnavailableError
        return False

    desk.dies = away
    desk.heal(20)
    assert desk.turn().status is Status.COMPLETE
    assert desk.turn().attempt == 3
    assert desk.queue.dead == []


def test_what_cannot_be_read_fails_its_turn_by_name_once() -> None:
    desk = Desk()
    desk.say("hello")
    desk.queue_up("x")
    desk.queue_up("y")
    desk.shop.memory.write([Update((KEY.pk, "TURN#0000000000000001"), set={"format": "conversation-v7"})])
    desk.heal()
    for n in (2, 3):
        turn = desk.turn(n)
        assert turn.status is Status.FAILED
        assert turn.error is not None
        assert turn.error["code"] == "ERR_UNKNOWN_FORMAT"
    assert desk.queue.dead == []
    assert desk.queue.messages == []
    assert desk.due() == []


def test_a_queued_turn_that_cannot_be_read_itself_is_left_and_named() -> None:
    desk = Desk()
    desk.queue_up("x")
    desk.shop.memory.write([Update((KEY.pk, "TURN#0000000000000001"), set={"format": "conversation-v7"})])
    with pytest.raises(UnreadableError):
        work_queue(desk.process(), KEY, deadline=FixedDeadline.after(desk.shop.clock, 300_000))
    for _ in range(30):
        desk.work()
        desk.reconcile()
        desk.shop.pass_ms(330_000)
    assert len(desk.queue.dead) == 1, "the dead letters have it once, with its alarm"


def test_a_short_process_begins_a_turn_all_the_same() -> None:
    """TurnTimeoutSeconds may be 10: half of that is time enough to begin in."""
    desk = Desk()
    desk.queue_up("look:1")
    done = work_queue(desk.process(), KEY, deadline=FixedDeadline.after(desk.shop.clock, 10_000))
    assert done is not None
    assert done.status is Status.COMPLETE


# --- in parallel --------------------------------------------------------------------------------------------


def test_conversations_run_side_by_side_and_each_in_its_order() -> None:
    desk = Desk()
    keys = [ConversationKey(f"c-{n}") for n in range(6)]
    order: dict[str, list[str]] = {key.conversation_id: [] for key in keys}
    together = threading.Barrier(len(keys), timeout=20)

    def work(context: TurnContext) -> Outcome:
        together.wait()  # all six are at work at the same moment, or this breaks
        order[context.info.conversation_id].append(str(context.messages[0]["content"]))
        return answer(context, "done")

    desk.factory = doing(work)
    for n in range(3):
        for key in keys:
            desk.queue_up(f"{n}", key=key)
    workers = [threading.Thread(target=desk.work) for _ in keys]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    desk.work()
    assert all(said == ["0", "1", "2"] for said in order.values())
    assert desk.queue.messages == []


def test_two_workers_at_one_conversation_are_one() -> None:
    """A visibility time-out ran out too early, or a message came twice."""
    desk = Desk()
    for n in range(1, 5):
        desk.queue_up(f"look:{n}")
    messages = list(desk.queue.messages)
    threads = [threading.Thread(target=desk.deliver, args=[message]) for message in [*messages, *messages]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.heal()
    assert statuses(desk, 4) == ["complete"] * 4
    # Who waits moves the clock of all: where the scheduler lets others wait for long, a lease runs out, its turn is
    # taken over, and the tool, which is no ``once``, may look again. What a turn came to is committed once even so.
    assert sorted(set(desk.paid)) == [f"looked at {n}" for n in range(1, 5)]
