"""Queued turns: their doorbells are lost and doubled, their workers killed once and again and again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.chaos.stage import ANSWER, GO_ON, MODES, WORK, Row, Scene, Stage, Thread, said, settle, soon, until

if TYPE_CHECKING:
    from local.demo import Reply

ATTEMPTS = 4
"""As often as a queued turn is tried."""


def queue_up(thread: Thread, message: str = WORK) -> Reply:
    """A message whose turn is run by the worker."""
    return thread.say(message, idempotency_key="one", prefer="respond-async")


def close(thread: Thread, saw: str, healed: str, *, status: str = "complete") -> Row:
    """The row of a thread whose first turn ends."""
    until(lambda: thread.item().get("status", {}).get("S") == status, f"{thread.id} is {status}")
    broken = []
    if status == "complete" and (thread.turn()["output"] != ANSWER or set(thread.times("pay").values()) != {1}):
        broken.append("what acts once did not act once")
    more = thread.say("what now?", idempotency_key="more")
    if more.body.get("output") != GO_ON:
        broken.append("the conversation does not go on")
    return Row(
        thread.mode, saw, healed, f"`{status}`", thread.acted(), thread.lost(thread.first, "what now?"), tuple(broken)
    )


def the_bell_was_lost(stage: Stage, mode: str) -> Row:
    """SendMessage cut, every try."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "sqs", "operation": "SendMessage", "contains": [thread.id]}
    with stage.stack.faults.during("cut", times=None, **facts):
        reply = queue_up(thread)
    thread.reconcile()
    return close(thread, said(reply), "reconcile")


def it_died_before_it_rang(stage: Stage, mode: str) -> Row:
    """SIGKILL between the claim of a queued turn and its doorbell."""
    thread = Thread(stage, mode)
    held = thread.held("hold_answer", "TurnFunction", operation="PutItem", contains=["queued", "TURN#"])
    reply = soon(lambda: queue_up(thread))
    thread.slay(held)
    saw = said(reply())
    held.remove()
    thread.reconcile()
    return close(thread, saw, "reconcile")


def it_rang_three_times(stage: Stage, mode: str) -> Row:
    """One doorbell delivered three times."""
    thread = Thread(stage, mode)
    reply = queue_up(thread)
    url = stage.stack.deployment()["outputs"]["TurnQueueUrl"]
    for number in range(2):
        body = json.dumps({"conversationId": thread.id, "turn": 1})
        stage.stack.client("sqs").send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=thread.id, MessageDeduplicationId=f"{thread.id}-{number}"
        )
    until(lambda: thread.item()["status"]["S"] == "complete", "it is run")
    settle()
    row = close(thread, said(reply), "the claim: the turn runs once")
    return row if thread.item()["attempt"] == {"N": "1"} else row.breaks("it ran more than once")


def the_worker_died(stage: Stage, mode: str) -> Row:
    """SIGKILL of the worker in a tool, after it acted."""
    thread = Thread(stage, mode)
    thread.doom("after step 2")
    reply = queue_up(thread)
    until(lambda: not thread.is_doomed(), "the worker dies")
    thread.pass_time(1, "leaseUntil")
    return close(thread, said(reply), "the queue's redelivery")


def the_worker_kept_dying(stage: Stage, mode: str) -> Row:
    """SIGKILL of the worker in the model's first call, four times."""
    thread = Thread(stage, mode)
    thread.doom("model 1")
    reply = queue_up(thread)
    for attempt in range(1, ATTEMPTS + 1):
        if attempt > 1:
            thread.doom("model 1")
            thread.pass_time(1, "leaseUntil")
        until(lambda: not thread.is_doomed(), f"attempt {attempt} dies")
    thread.pass_time(1, "leaseUntil")
    thread.reconcile()
    row = close(thread, said(reply), "nobody, after four: failed by name, its doorbell a dead letter", status="failed")
    return row.breaks("a tool acted") if thread.acts() else row


ONCE = ("exit",)
SCENES: tuple[tuple[Scene, tuple[str, ...]], ...] = (
    (the_bell_was_lost, ONCE),
    (it_died_before_it_rang, ONCE),
    (it_rang_three_times, ONCE),
    (the_worker_died, MODES),
    (the_worker_kept_dying, ONCE),
)
