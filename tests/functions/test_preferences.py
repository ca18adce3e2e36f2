"""What a request prefers, and where its reply says to look: ``Prefer``, ``Location``, keys that end, request ids."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.functions.stage import saved_event

if TYPE_CHECKING:
    from tests.functions.stage import Reply, Stage

WORDY = "order #7 / Zoë?"


def post(stage: Stage, name: str, conversation: str | None = None, **headers: str) -> Reply:
    event = saved_event(name)
    if conversation is not None:
        event["pathParameters"]["id"] = conversation
    event["headers"] |= {header.replace("_", "-"): value for header, value in headers.items()}
    return stage.call("answer" if name.startswith("answer") else "turn", event)


def follow(stage: Stage, location: str) -> Reply:
    """Reads what a ``Location`` names, as the gateway would route it."""
    event, parts = saved_event("read-turn"), location.strip("/").split("/")
    template = "/conversations/{id}" + ("/turns/{n}" if len(parts) == 4 else "")
    event |= {"routeKey": f"GET {template}", "rawPath": location, "pathParameters": {"id": parts[1]}}
    if len(parts) == 4:
        event["pathParameters"]["n"] = parts[3]
    return stage.call("read", event)


def test_a_turn_that_goes_on_is_found_where_its_reply_says(stage: Stage) -> None:
    from turnkeep.ids import path_form

    for conversation in ("plain-1", path_form(WORDY)):
        queued = post(stage, "turn-respond-async", conversation)
        assert (queued.status, queued.body["status"], queued.headers["preference-applied"]) == (
            202, "queued", "respond-async",
        )  # fmt: skip
        assert queued.headers["location"] == f"/conversations/{conversation}/turns/1"
        assert follow(stage, queued.headers["location"]).body["status"] == "queued"
    assert follow(stage, queued.headers["location"]).body["conversationId"] == WORDY


def test_a_created_conversation_is_found_where_its_reply_says(stage: Stage) -> None:
    created = post(stage, "conversation-create")
    assert follow(stage, created.headers["location"]).body["conversationId"] == created.body["conversationId"]


def test_an_ask_is_found_where_its_reply_says(stage: Stage) -> None:
    asked = post(stage, "turn-asks", prefer="wait=5")
    assert asked.headers["preference-applied"] == "wait=5"
    read = follow(stage, asked.headers["location"])
    assert read.body["awaiting"] == asked.body["awaiting"]


@pytest.mark.parametrize("prefer", ["", "wait=ten", "wait=-1", "handling=lenient", 'foo="bar', ","])
def test_a_preference_that_means_nothing_is_not_applied(stage: Stage, prefer: str) -> None:
    done = post(stage, "turn-message", prefer=prefer)
    assert (done.status, done.headers.get("preference-applied")) == (200, None)


def test_an_answer_waits_as_long_as_it_was_asked_to(stage: Stage) -> None:
    ask_id = post(stage, "turn-asks").body["awaiting"]["askId"]
    event = saved_event("answer-approve")
    event["headers"]["prefer"] = "wait=1"
    event["body"] = json.dumps({"askId": ask_id, "decision": {"approved": True, "by": "sue"}})
    began = time.monotonic()
    taken = stage.call("answer", event)
    # Nothing resumes it here, so it stands as answered when the wait is over.
    assert 0.9 < time.monotonic() - began < 10
    assert (taken.status, taken.body["status"], taken.headers["preference-applied"]) == (202, "answered", "wait=1")
    assert taken.headers["location"] == "/conversations/desk-1/turns/1"


def test_a_key_ends_when_the_stack_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNKEEP_REQUEST_KEY_TTL_S", "1")
    first = post(stage, "turn-idempotent")
    assert (first.status, first.body["turn"]) == (200, 1)
    time.sleep(2.1)
    assert post(stage, "turn-idempotent").body["turn"] == 2


def test_without_a_key_every_request_is_one_of_its_own(stage: Stage) -> None:
    assert [post(stage, "turn-message").body["turn"] for _ in range(2)] == [1, 2]


def test_two_people_may_use_one_key(stage: Stage) -> None:
    def create(sub: str) -> dict[str, Any]:
        event = saved_event("conversation-create-with-message")
        event["requestContext"]["authorizer"]["jwt"]["claims"]["sub"] = sub
        body: dict[str, Any] = stage.call("turn", event).body
        return body

    assert create("ann")["conversationId"] != create("bob")["conversationId"]
    assert create("ann") == create("ann")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("turn", "turn-refused-not-json"),
        ("answer", "answer-null"),
        ("read", "read-conversation"),
        ("read", "read-refused-no-claims"),
    ],
)
def test_every_error_names_its_request(stage: Stage, function: str, name: str) -> None:
    event = saved_event(name)
    event["requestContext"]["requestId"] = "the-gateways"
    assert stage.call(function, event).body["error"]["requestId"] == "the-gateways"
    del event["requestContext"]["requestId"]
    assert stage.call(function, event).body["error"]["requestId"] == "lambda-request"
