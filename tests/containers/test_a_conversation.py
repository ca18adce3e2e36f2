"""A conversation whose every turn is a container of its own: HTTP, sam, moto, the state machine, sam, and back."""

from __future__ import annotations

import subprocess
import threading
from contextlib import suppress
from http.client import HTTPException
from typing import TYPE_CHECKING

import pytest

from tests.containers.conftest import InContainers, running
from tests.e2e.scenes import Conversation, Person

if TYPE_CHECKING:
    from pathlib import Path

    from local.demo import Reply

pytestmark = pytest.mark.containers
PATIENCE_S = 60.0
MESSAGE = "Where is order A-100?"


def contained_conversation(stack: InContainers, name: str) -> Conversation:
    """A conversation of somebody anonymous, because `sam local start-api` checks no token."""
    conversation = Conversation(stack, name)
    conversation.owner = Person(stack, None)
    return conversation


def test_a_conversation_with_a_pause_and_an_answer(contained: InContainers) -> None:
    desk = contained_conversation(contained, "pause")
    before = len(contained.containers())
    first = desk.say(MESSAGE)
    assert (first.status, first.body["status"]) == (200, "complete")
    assert "desk lamp" in first.body["output"]

    asked = desk.say("Refund order B-200, please")
    assert (asked.status, asked.body["status"]) == (202, "awaiting")
    desk.token(2)
    assert [one["status"] for one in desk.executions()] == ["RUNNING"]

    # Who has a role comes in by the door that checks tokens; the containers behind it are the same.
    supervisor = Person(contained.gateway, contained.token("sam", roles=["supervisor"]))
    answered = desk.answer(asked.body["awaiting"]["askId"], who=supervisor)
    assert answered.status == 202, answered.body

    turn = desk.until("complete", 2, PATIENCE_S)
    assert turn["output"] == "Order B-200 is refunded: 250.00."
    assert desk.ended() == ["SUCCEEDED"]
    # Two turns, the answer, the resumption and one read: five processes that never met, and what else ran meanwhile.
    used = contained.containers()[before:]
    assert len(used) == len(set(used)) >= 5
    # The machine's call, and the supervisor's, went through `sam local start-lambda`.
    output = contained.output.read_text("utf-8", "replace")
    assert "POST /2015-03-31/functions/ResumeFunction/invocations" in output
    assert "POST /2015-03-31/functions/AnswerFunction/invocations" in output


def test_a_queued_turn(contained: InContainers) -> None:
    desk = contained_conversation(contained, "queued")
    queued = desk.say(MESSAGE, prefer="respond-async")
    assert (queued.status, queued.body["status"]) == (202, "queued")
    assert "desk lamp" in desk.until("complete", 1, PATIENCE_S)["output"]


def test_a_stack_that_stops_takes_the_containers_along_in_which_something_runs(tmp_path: Path) -> None:
    with InContainers(tmp_path) as stack:
        desk = contained_conversation(stack, "left")
        held = stack.faults.add("hold", service="dynamodb", operation="PutItem", contains=[desk.id])

        def send() -> None:
            with suppress(OSError, HTTPException):  # nobody is there any more to answer
                desk.say(MESSAGE)

        sending = threading.Thread(target=send)
        sending.start()
        held.wait_until_met(timeout_s=PATIENCE_S)
        assert not running().isdisjoint(stack.containers())
    sending.join(PATIENCE_S)
    assert running().isdisjoint(stack.containers())


def test_a_killed_container_leaves_a_turn_that_the_same_request_takes_over(contained: InContainers) -> None:
    desk = contained_conversation(contained, "killed")
    replies: list[Reply] = []

    def send() -> None:
        replies.append(desk.say(MESSAGE, idempotency_key="once-only"))

    before = len(contained.containers())
    # Its claim lands, and it never hears of that.
    claim = {"service": "dynamodb", "operation": "PutItem", "contains": [desk.id, "TURN#"]}
    with contained.faults.during("hold_answer", **claim) as held:
        sending = threading.Thread(target=send)
        sending.start()
        held.wait_until_met(timeout_s=PATIENCE_S)
        (container,) = contained.containers()[before:]
        subprocess.run(["docker", "kill", container], check=True, capture_output=True)
        sending.join(PATIENCE_S)
    assert [reply.status for reply in replies] == [502]  # start-api's word for a container that died

    early = desk.say(MESSAGE, idempotency_key="once-only")
    assert (early.status, early.body["error"]["code"]) == (409, "ERR_CONCURRENT_RUN")  # its lease says it may be alive
    desk.pass_time(1, "leaseUntil")
    again = desk.say(MESSAGE, idempotency_key="once-only")
    assert (again.status, again.body["turn"]) == (200, 1)
    assert "desk lamp" in again.body["output"]
    assert desk.item(2) == {}
