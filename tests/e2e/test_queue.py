"""Queued turns on the whole stack: claimed over HTTP, rung for on SQS, run by the deployed worker."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.scenes import Conversation, wait_for

if TYPE_CHECKING:
    from local.demo import Reply
    from local.stack import LocalStack

pytestmark = pytest.mark.process
ASYNC = {"prefer": "respond-async"}
RETRIES = 2
"""How often a function's client sends a message that is not taken."""


def queue_up(conversation: Conversation, *messages: str) -> list[int]:
    """The numbers that the messages' turns have at once."""
    replies = [conversation.say(message, **ASYNC) for message in messages]
    assert [reply.status for reply in replies] == [202] * len(messages), replies
    assert {reply.body["status"] for reply in replies} == {"queued"}
    return [reply.body["turn"] for reply in replies]


def transcript(conversation: Conversation) -> list[str]:
    reply: Reply = conversation.owner.call("GET", f"/conversations/{conversation.id}/transcript?limit=100")
    return [message["content"] for message in reply.body["messages"]]


def test_turns_are_queued_in_order_and_run_in_order(asking: LocalStack) -> None:
    one, other = Conversation(asking, "queued"), Conversation(asking, "beside")
    assert queue_up(one, "look:1", "look:2", "look:3") == [1, 2, 3]
    assert queue_up(other, "look:7") == [1]
    assert one.until("complete", 3)["output"] == "RESULT-of-looking-at-3"
    other.until("complete")
    assert transcript(one) == [text for n in (1, 2, 3) for text in (f"look:{n}", f"RESULT-of-looking-at-{n}")]
    assert one.item(1)["savedAt"]["N"] <= one.item(2)["startedAt"]["N"] or one.item(2)["attempt"] == {"N": "1"}
    assert "RESULT-of-" not in one.logged()


def test_doorbells_that_are_lost_and_doubled(asking: LocalStack) -> None:
    one = Conversation(asking, "lost")
    with asking.faults.during("cut", service="sqs", operation="SendMessage", function="TurnFunction", times=RETRIES):
        assert queue_up(one, "look:1") == [1]
    assert queue_up(one, "look:2") == [2]
    assert one.until("complete", 1)["output"] == "RESULT-of-looking-at-1", "the bell that rang runs the lowest one"
    assert one.turn(2)["status"] == "queued"
    one.reconcile(2)
    one.until("complete", 2)
    url = asking.deployment()["outputs"]["TurnQueueUrl"]
    for number in range(2):
        double = json.dumps({"conversationId": one.id, "turn": 1})
        asking.client("sqs").send_message(
            QueueUrl=url, MessageBody=double, MessageGroupId=one.id, MessageDeduplicationId=f"{one.id}-{number}"
        )
    time.sleep(0.5)
    assert [one.item(number)["attempt"] for number in (1, 2)] == [{"N": "1"}, {"N": "1"}]
    assert len(transcript(one)) == 4


def test_a_process_that_is_killed_between_claim_and_send(asking: LocalStack) -> None:
    one = Conversation(asking, "unrung")
    held = one.held("hold_answer", "TurnFunction", operation="PutItem", contains=["queued", "TURN#"])
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(one.say, "look:1", **ASYNC)
        held.wait_until_met()
        one.kill("TurnFunction")
        assert killed.result().status >= 500
    held.remove()
    assert one.turn()["status"] == "queued", "what was said is durable, and its number is given"
    one.reconcile()
    one.until("complete")


def test_a_turn_behind_a_question_is_refused_with_it_and_one_that_waits_is_cancelled(asking: LocalStack) -> None:
    one = Conversation(asking, "behind")
    held = one.held("hold", "WorkerFunction", operation="UpdateItem", contains=["awaiting", "TURN#"])
    queue_up(one, "ask:1", "look:2", "look:3")
    held.wait_until_met()
    cancelled = one.owner.call("DELETE", f"/conversations/{one.id}/turns/2")
    assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
    refused = one.owner.call("DELETE", f"/conversations/{one.id}/turns/1")
    assert (refused.status, refused.body["error"]["code"]) == (409, "ERR_CONCURRENT_RUN")
    held.remove()
    ask = one.until("awaiting", 1)["awaiting"]
    turn = one.until("refused", 3)
    assert turn["error"]["code"] == "ERR_AWAITING_DECISION"
    assert turn["error"]["awaiting"]["askId"] == ask["askId"]
    assert one.answer(ask["askId"], "blue", who=one.owner).status == 202
    assert one.until("complete", 1)["output"] == "blue"
    assert one.say("look:4").body["turn"] == 4


def test_a_worker_that_keeps_dying(asking: LocalStack) -> None:
    """Redelivered, the same turn goes on; after the fourth death it is failed, and its doorbell a dead letter."""
    one = Conversation(asking, "dying")
    dead = asking.deployment()["outputs"]["TurnDeadLettersUrl"]
    for attempt in (1, 2, 3, 4):
        # The attempt's claim landed, and its process never hears of it.
        held = one.held("hold_answer", "WorkerFunction", contains=["running", "TURN#"])
        if attempt == 1:
            queue_up(one, "look:1")
        held.wait_until_met()
        assert one.item()["attempt"] == {"N": str(attempt)}
        worker = next(each for each in asking.lambdas.running("WorkerFunction"))
        assert asking.lambdas.signal(worker["request_id"], "KILL")
        # As if its lease had run out: twenty seconds that nobody has to wait for here.
        one.pass_time(1, "leaseUntil")
        held.remove()
    assert one.turn()["stalled"] is True
    one.reconcile()
    turn = one.until("failed")
    assert turn["error"]["code"] == "ERR_RUN_FAILED"

    def dead_letter() -> dict[str, Any] | None:
        found = asking.client("sqs").receive_message(QueueUrl=dead, MaxNumberOfMessages=10).get("Messages", [])
        bodies = [json.loads(message["Body"]) for message in found]
        return next((body for body in bodies if body["conversationId"] == one.id), None)

    assert wait_for(dead_letter, "a dead letter") == {"conversationId": one.id, "turn": 1}
    assert queue_up(one, "look:2") == [2]
    one.until("complete", 2)
