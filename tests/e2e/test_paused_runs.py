"""Paused runs on the whole stack: over HTTP, in fresh processes, with the deployed machine executed.

Every test ends with a search of its whole execution histories, of all that was replied and of all that was logged, for
what must not be there: a task token anywhere, and in an execution anything that was said.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.scenes import YES, Conversation, Person, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.stack import LocalStack

pytestmark = pytest.mark.process

SAID = ("PROMPT-that-nobody", "RESULT-of-", "ANSWER-to-you", "SECRET-in-the-message", "NOTE-of-the-supervisor")
"""What only the conversation's owner, or the model, ever reads."""


class Scenes:
    """Conversations, looked through at the test's end."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack
        self._made: list[Conversation] = []

    def begin(self, name: str) -> Conversation:
        self._made.append(Conversation(self._stack, name))
        return self._made[-1]

    def search(self) -> None:
        for one in self._made:
            history, logged = one.history(), one.logged()
            assert one.id in history, "the search has something to look through"
            assert one.id in logged
            for text in SAID:
                assert text not in history
                assert text not in logged
            shown = [each["input"] + each.get("output", "") for each in one.executions()]
            heard = one.owner.heard + one.supervisor.heard
            for token in one.tokens:
                assert len(token) > 20
                assert token not in "\n".join([*shown, *heard, logged])


@pytest.fixture
def scenes(asking: LocalStack) -> Iterator[Scenes]:
    found = Scenes(asking)
    yield found
    found.search()


def asked(conversation: Conversation, message: str) -> dict[str, Any]:
    """The ask that a message leads to."""
    reply = conversation.say(message)
    assert reply.status == 202, reply.body
    ask: dict[str, Any] = reply.body["awaiting"]
    return ask


def test_an_answer_right_behind_the_reply_is_taken_up_by_the_machine_itself(scenes: Scenes) -> None:
    one = scenes.begin("at-once")
    ask = asked(one, "look:1 pay:2 look:3 SECRET-in-the-message")
    answered = one.answer(ask["askId"], YES | {"note": "NOTE-of-the-supervisor"})
    began = time.monotonic()
    assert (answered.status, answered.body["status"]) == (202, "answered")
    turn = one.until("complete", within_s=5)
    assert time.monotonic() - began < 5
    assert turn["output"] == "RESULT-of-looking-at-1; RESULT-of-paying-2; RESULT-of-looking-at-3"
    assert one.ended() == ["SUCCEEDED"]

    # What somebody reads who looks at it in the console.
    (execution,) = one.executions()
    card = json.loads(execution["input"])
    assert execution["name"].startswith(one.id)
    assert card["conversationId"] == one.id
    assert card["question"] == "Pays an order back. — with at=2"
    assert (card["tool"], card["audience"], card["turn"]) == ("pay", "role:supervisor", 1)
    assert f"POST /conversations/{one.id}/answers" in card["howToAnswer"]
    assert card["askId"] in card["howToAnswer"]
    assert "role:supervisor" in card["howToAnswer"]
    assert card["askedAt"] < card["expiresAt"]
    assert json.loads(execution["output"]) == {"conversationId": one.id, "turn": 1, "status": "complete"}


def test_a_question_waits_with_its_token_and_the_answer_ends_the_wait(scenes: Scenes) -> None:
    one = scenes.begin("waits")
    ask = asked(one, "pay:1 then ask:2")
    first = one.token()
    assert one.answer(ask["askId"], prefer="wait=20").body == {
        "conversationId": one.id,
        "turn": 1,
        "status": "awaiting",
    }, "a role-holder is told the status, and nothing of the next ask"
    again = one.turn()["awaiting"]
    assert (again["question"], again["audience"]) == ("Which colour for 2?", "owner")
    assert again["pauseData"]["choices"] == ["blue", "red"]
    one.token(other_than=first)
    waited = one.answer(again["askId"], "blue", who=one.owner, prefer="wait=20")
    assert waited.status == 200
    assert waited.body["output"] == "RESULT-of-paying-1; blue"
    assert one.ended() == ["SUCCEEDED"], "one execution a pausing turn, however often it asks"
    assert len(one.tokens) == 2, "each ask has its own token"


@pytest.mark.parametrize("where", ["before the start", "before the signal, answered again", "before the signal"])
def test_a_process_is_killed_and_nothing_is_lost(scenes: Scenes, where: str) -> None:
    one = scenes.begin("killed")
    with ThreadPoolExecutor(1) as pool:
        if where == "before the start":
            # The commit landed; its answer is held back until its process is dead.
            held = one.held("hold_answer", "TurnFunction", operation="UpdateItem", contains=["awaiting", "TURN#"])
            killed = pool.submit(one.say, "pay:1")
            held.wait_until_met()
            one.kill("TurnFunction")
            assert killed.result().status >= 500
            held.remove()
            assert one.executions() == []
            ask_id = one.item()["askId"]["S"]
            one.reconcile()
            one.token()
            assert one.answer(ask_id).status == 202
        else:
            ask_id = asked(one, "pay:1")["askId"]
            one.token()
            held = one.held("hold_answer", "AnswerFunction", operation="UpdateItem", contains=["answered", "TURN#"])
            killed = pool.submit(one.answer, ask_id)
            held.wait_until_met()
            one.kill("AnswerFunction")
            assert killed.result().status >= 500
            held.remove()
            assert one.item()["status"]["S"] == "answered"
            if where == "before the signal":
                one.reconcile()
            else:
                again = one.answer(ask_id)
                assert (again.status, again.body["error"]["code"]) == (409, "ERR_ALREADY_ANSWERED")
    assert one.until("complete")["output"] == "RESULT-of-paying-1"
    assert one.ended() == ["SUCCEEDED"]


def test_an_execution_that_is_stopped_in_the_console_is_replaced(scenes: Scenes) -> None:
    one = scenes.begin("stopped")
    ask = asked(one, "pay:1")
    first = one.token()
    one.stop_execution()
    one.token(other_than=first)
    assert one.answer(ask["askId"]).status == 202
    one.until("complete")
    assert one.ended() == ["ABORTED", "SUCCEEDED"]
    names = [each["name"] for each in one.executions()]
    assert [name.rpartition("-")[2] for name in names] == ["1", "2"]
    assert names[0][:-2] == names[1][:-2]


def test_nobody_answers_in_time(scenes: Scenes) -> None:
    one = scenes.begin("late")
    ask = asked(one, "soon:1")
    turn = one.until("expired")
    assert turn["error"]["code"] == "ERR_ASK_EXPIRED"
    refused = one.answer(ask["askId"], "now", who=one.owner)
    assert (refused.status, refused.body["error"]["code"]) == (410, "ERR_ASK_EXPIRED")
    assert one.ended() == ["SUCCEEDED"]
    assert json.loads(one.executions()[0]["output"])["status"] == "expired"
    assert one.say("hello").body["output"] == "ANSWER-to-you"


def test_an_ask_is_withdrawn(scenes: Scenes) -> None:
    one = scenes.begin("withdrawn")
    ask = asked(one, "pay:1")
    refused = one.say("hello")
    assert (refused.status, refused.body["error"]["code"]) == (409, "ERR_AWAITING_DECISION")
    assert refused.body["error"]["awaiting"]["askId"] == ask["askId"]
    assert one.supervisor.call("DELETE", f"/conversations/{one.id}/turns/1").status == 404
    withdrawn = one.owner.call("DELETE", f"/conversations/{one.id}/turns/1")
    assert (withdrawn.status, withdrawn.body["status"]) == (200, "cancelled")
    assert one.ended() == ["ABORTED"]
    assert one.answer(ask["askId"]).status == 410
    assert one.say("hello").status == 200
    assert one.ended() == ["ABORTED"], "and it is not replaced"


def test_who_sees_and_who_answers(scenes: Scenes, asking: LocalStack) -> None:
    one = scenes.begin("roles")
    ask = asked(one, "look:9 pay:1 SECRET-in-the-message")
    assert "pauseData" not in ask, "its owner sees that it is asked, and not what only a supervisor decides on"
    strangers = [
        Person(asking, asking.token("bob")),
        Person(asking, asking.token("tim", roles=["clerk"])),
        Person(asking, asking.token("sam", "acme", ["supervisor"])),
        Person(asking, None),
    ]
    for stranger in strangers:
        assert one.answer(ask["askId"], who=stranger).status == 404
    boss_herself = Person(asking, asking.token("alice", roles=["supervisor"]))
    for owner in (one.owner, boss_herself):
        refused = one.answer(ask["askId"], who=owner)
        assert (refused.status, refused.body["error"]["code"]) == (403, "ERR_NOT_YOURS_TO_ANSWER")

    listed = one.supervisor.call("GET", "/asks?limit=100").body["asks"]
    (seen,) = [each for each in listed if each["conversationId"] == one.id]
    assert seen["checkIn"]["args"] == {"at": "1"}
    assert "RESULT-of-" not in json.dumps(seen)
    assert "PROMPT-" not in json.dumps(seen)
    for nobody in (boss_herself, strangers[0], strangers[2]):
        listed = nobody.call("GET", "/asks?limit=100").body["asks"]
        assert one.id not in [each["conversationId"] for each in listed]
    assert one.supervisor.call("GET", f"/conversations/{one.id}").status == 404

    refused = one.answer(ask["askId"], True)
    assert (refused.status, refused.body["error"]["code"]) == (400, "ERR_DECISION_REQUIRED")
    assert one.answer(ask["askId"], prefer="wait=20").body == {
        "conversationId": one.id,
        "turn": 1,
        "status": "complete",
    }, "to a role-holder the status only, ever"


def test_many_answer_at_once_and_one_is_taken(scenes: Scenes, asking: LocalStack) -> None:
    one = scenes.begin("many")
    ask = asked(one, "pay:1")
    one.token()
    people = [Person(asking, asking.token(f"sup-{number}", roles=["supervisor"])) for number in range(12)]

    def answer(number: int) -> Any:
        return one.answer(ask["askId"], {"approved": number % 2 == 0, "by": str(number)}, who=people[number])

    with ThreadPoolExecutor(len(people)) as pool:
        replies = list(pool.map(answer, range(len(people))))
    assert sorted(reply.status for reply in replies) == [202] + [409] * (len(people) - 1)
    winner = next(number for number, reply in enumerate(replies) if reply.status == 202)
    output = one.until("complete")["output"]
    assert output == ("RESULT-of-paying-1" if winner % 2 == 0 else "declined by human")
    assert one.item()["answeredBy"] == {"S": f"sup-{winner}"}
    times = {reply.body["error"]["answeredAt"] for reply in replies if reply.status == 409}
    assert times == {int(one.item()["answeredAt"]["N"])}


def test_what_happens_to_an_ask_is_told_on_the_bus_by_ids_only(scenes: Scenes, asking: LocalStack) -> None:
    sqs, events = asking.client("sqs"), asking.client("events")
    url = sqs.create_queue(QueueName="told")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="told", EventPattern=json.dumps({"source": ["turnkeep"]}))
    events.put_targets(Rule="told", Targets=[{"Id": "told", "Arn": arn}])
    one = scenes.begin("told")
    ask = asked(one, "pay:1 SECRET-in-the-message")
    one.answer(ask["askId"], YES | {"note": "NOTE-of-the-supervisor"})
    one.until("complete")

    told: list[dict[str, Any]] = []

    def all_told() -> list[dict[str, Any]] | None:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            event = json.loads(message["Body"])
            if event["detail"]["conversationId"] == one.id:
                told.append(event)
        return told if len(told) >= 3 else None

    wait_for(all_told, "three events")
    by_kind = {event["detail-type"]: event["detail"] for event in told}
    ids = {"conversationId": one.id, "turn": 1}
    card = {"askId": ask["askId"], "audience": "role:supervisor", "expiresAt": ask["expiresAt"]}
    assert by_kind == {
        "ask.opened": ids | card | {"status": "awaiting"},
        "ask.closed": ids | card | {"status": "answered"},
        "turn.ended": ids | {"status": "complete"},
    }
