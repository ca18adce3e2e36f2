"""The HTTP functions as deployed, on the events of ``events/``: what each answers, and what it leaves in the ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.functions.stage import ROOT, SECRETS, Stage, saved_event

TURN_REPLIES = {
    "turn-message": (200, "complete"),
    "turn-asks": (202, "awaiting"),
    "turn-host-counter": (200, "complete"),
    "turn-idempotent": (200, "complete"),
    "turn-respond-async": (202, "queued"),
    "turn-encoded-id": (200, "complete"),
    "turn-with-tenant-and-roles": (200, "complete"),
    "conversation-create": (201, "empty"),
    "conversation-create-with-message": (200, "complete"),
}
REFUSALS = {
    "turn-anonymous": ("turn", 401, "ERR_IDENTITY_NOT_VERIFIED"),
    "turn-refused-not-json": ("turn", 400, "ERR_INVALID_REQUEST"),
    "turn-refused-no-message": ("turn", 400, "ERR_INVALID_REQUEST"),
    "turn-refused-bad-id": ("turn", 400, "ERR_INVALID_REQUEST"),
    "turn-refused-duplicate-key": ("turn", 400, "ERR_INVALID_REQUEST"),
    "conversation-erase": ("turn", 404, "ERR_SESSION_NOT_FOUND"),
    "answer-approve": ("answer", 404, "ERR_SESSION_NOT_FOUND"),
    "answer-decline": ("answer", 404, "ERR_SESSION_NOT_FOUND"),
    "answer-null": ("answer", 404, "ERR_SESSION_NOT_FOUND"),
    "answer-refused-no-decision": ("answer", 404, "ERR_SESSION_NOT_FOUND"),
    "answer-refused-no-ask": ("answer", 400, "ERR_INVALID_REQUEST"),
    "turn-withdraw": ("answer", 404, "ERR_SESSION_NOT_FOUND"),
    "read-conversation": ("read", 404, "ERR_SESSION_NOT_FOUND"),
    "read-turns": ("read", 404, "ERR_SESSION_NOT_FOUND"),
    "read-turn": ("read", 404, "ERR_SESSION_NOT_FOUND"),
    "read-evidence": ("read", 404, "ERR_SESSION_NOT_FOUND"),
    "read-transcript": ("read", 404, "ERR_SESSION_NOT_FOUND"),
    "read-refused-bad-cursor": ("read", 400, "ERR_INVALID_REQUEST"),
    "read-refused-bad-turn": ("read", 400, "ERR_INVALID_REQUEST"),
    "read-refused-no-claims": ("read", 401, "ERR_IDENTITY_NOT_VERIFIED"),
    "refused-rest-api": ("read", 401, "ERR_IDENTITY_NOT_VERIFIED"),
    "refused-lambda-authorizer": ("read", 401, "ERR_IDENTITY_NOT_VERIFIED"),
}
ELSEWHERE = {"health", "read-conversations", "read-asks"}
OTHER_FUNCTIONS = ("resume-", "worker-", "reconcile-")


def test_every_event_is_tried() -> None:
    saved = {path.stem for path in (ROOT / "events").glob("*.json")}
    http = {name for name in saved if not name.startswith(OTHER_FUNCTIONS)}
    assert http == {*TURN_REPLIES, *REFUSALS, *ELSEWHERE}


@pytest.mark.parametrize("name", TURN_REPLIES)
def test_turns(stage: Stage, name: str) -> None:
    reply = stage.call("turn", saved_event(name))
    assert (reply.status, reply.body["status"]) == TURN_REPLIES[name]
    stored = {item["sk"]["S"]: item for item in stage.items()}
    assert any(sk.startswith("TURN#") for sk in stored) is (name != "conversation-create")
    if name == "turn-host-counter":
        assert reply.body["turn"] == 7


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_writes_nothing_and_says_nothing(stage: Stage, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    function, status, code = REFUSALS[name]
    reply = stage.call(function, saved_event(name))
    assert (reply.status, reply.code) == (status, code)
    assert reply.body["error"]["requestId"] == f"request-{name}"
    assert stage.items() == []
    assert not SECRETS.search(capsys.readouterr().out)


def test_a_conversation_is_read_back(stage: Stage) -> None:
    assert stage.call("turn", saved_event("turn-message")).status == 200
    assert stage.call("read", saved_event("read-conversation")).body["turn"] == 1
    assert stage.call("read", saved_event("read-turn")).body["output"] == "You said: Where is order A-100?"
    assert [turn["turn"] for turn in stage.call("read", saved_event("read-turns")).body["turns"]] == [1]
    messages = stage.call("read", saved_event("read-transcript")).body["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert stage.call("read", saved_event("read-evidence")).status == 200
    listed = stage.call("read", saved_event("read-conversations")).body["conversations"]
    assert [line["conversationId"] for line in listed] == ["desk-1"]


def test_an_ask_is_seen_answered_and_withdrawn_by_those_who_may(stage: Stage) -> None:
    asked = stage.call("turn", saved_event("turn-asks"))
    ask_id = asked.body["awaiting"]["askId"]
    assert "pauseData" not in asked.body["awaiting"]
    (execution,) = stage.executions()
    assert execution["name"].startswith("desk-1-t1-")
    (line,) = stage.call("read", saved_event("read-asks")).body["asks"]
    assert (line["askId"], line["question"]) == (ask_id, "Refund B-200?")

    mine = saved_event("answer-null")
    mine["body"] = json.dumps({"askId": ask_id, "decision": True})
    assert stage.call("answer", mine).code == "ERR_NOT_YOURS_TO_ANSWER"
    theirs = saved_event("answer-approve")
    theirs["body"] = json.dumps({"askId": ask_id, "decision": {"approved": True, "by": "sue"}})
    taken = stage.call("answer", theirs)
    assert (taken.status, taken.body) == (202, {"conversationId": "desk-1", "turn": 1, "status": "answered"})
    assert stage.call("answer", theirs).code == "ERR_ALREADY_ANSWERED"
    assert stage.call("answer", saved_event("turn-withdraw")).code == "ERR_ALREADY_ANSWERED"


def test_an_open_ask_is_withdrawn(stage: Stage) -> None:
    stage.call("turn", saved_event("turn-asks"))
    reply = stage.call("answer", saved_event("turn-withdraw"))
    assert (reply.status, reply.body["status"]) == (200, "cancelled")
    (execution,) = stage.executions()
    assert execution["status"] == "ABORTED"


def test_an_answer_without_a_decision_is_asked_for_one(stage: Stage) -> None:
    ask_id = stage.call("turn", saved_event("turn-asks")).body["awaiting"]["askId"]
    event = saved_event("answer-approve")
    event["body"] = json.dumps({"askId": ask_id})
    reply = stage.call("answer", event)
    assert (reply.status, reply.code) == (400, "ERR_DECISION_REQUIRED")


def test_a_queued_turn_rings(stage: Stage) -> None:
    reply = stage.call("turn", saved_event("turn-respond-async"))
    assert reply.headers["location"] == "/conversations/desk-1/turns/1"
    assert reply.headers["preference-applied"] == "respond-async"
    assert stage.rings() == [{"conversationId": "desk-1", "turn": 1}]


def test_one_request_sent_twice_is_one_turn(stage: Stage) -> None:
    first = stage.call("turn", saved_event("turn-idempotent"))
    assert stage.call("turn", saved_event("turn-idempotent")).body == first.body
    other = saved_event("turn-idempotent")
    other["body"] = '{"message": "Something else"}'
    assert stage.call("turn", other).code == "ERR_IDEMPOTENCY_MISMATCH"


def test_creating_twice_with_one_key_is_one_conversation(stage: Stage) -> None:
    first = stage.call("turn", saved_event("conversation-create-with-message"))
    assert stage.call("turn", saved_event("conversation-create-with-message")).body == first.body


def test_erasing(stage: Stage) -> None:
    stage.call("turn", saved_event("turn-message"))
    assert stage.call("turn", saved_event("conversation-erase")).status == 202
    assert stage.call("read", saved_event("read-conversation")).code == "ERR_SESSION_NOT_FOUND"


def test_a_line_a_request_says_what_happened_and_nothing_of_what_was_said(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("turn-message", "turn-asks", "turn-idempotent"):
        stage.call("turn", saved_event(name))
    out = capsys.readouterr().out
    lines = [json.loads(line) for line in out.splitlines()]
    requests = [line for line in lines if line.get("message") == "request"]
    assert [line["outcome"] for line in requests if "outcome" in line] == ["complete", "awaiting"]
    assert requests[0].keys() >= {"conversation", "turn", "attempt", "run", "duration_ms", "store_round_trips"}
    assert requests[2]["code"] == "ERR_AWAITING_DECISION"
    metrics = [line for line in lines if "_aws" in line]
    assert metrics[0]["TurnsComplete"] == [1.0]
    assert not SECRETS.search(out)


HOSTILE: dict[str, Any] = {
    "1 MB": json.dumps({"message": "x" * 1_000_000}),
    "deep": "[" * 50_000 + "]" * 50_000,
    "deep decision": '{"askId":"a","message":"m","decision":' + "[" * 500 + "]" * 500 + "}",
    "huge integer": '{"message":"m","turn":' + "9" * 4_000 + "}",
    "huger integer": '{"message":"m","turn":' + "9" * 5_000 + "}",
    "out of range": '{"message":"m","turn":1000002}',
    "surrogate": '{"message":"\\ud800","askId":"\\ud800","decision":"\\udfff"}',
    "a list": '[{"message":"m"}]',
    "not UTF-8": None,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(("function", "event_name"), [("turn", "turn-message"), ("answer", "answer-null")])
def test_hostile_bodies(stage: Stage, function: str, event_name: str, name: str) -> None:
    event = saved_event(event_name)
    event |= {"body": HOSTILE[name]} if HOSTILE[name] else {"body": "//79", "isBase64Encoded": True}
    reply = stage.call(function, event)
    assert reply.status in {400, 404, 413}, reply.body
    assert reply.status != 404 or function == "answer"
    assert stage.items() == []


def test_a_host_counter_that_is_out_of_range_is_refused_by_its_name(stage: Stage) -> None:
    event = saved_event("turn-message")
    event["body"] = '{"message":"m","turn":1000002}'
    assert stage.call("turn", event).body["error"]["fields"] == ["turn"]


@pytest.mark.parametrize("function", ["turn", "answer", "read"])
def test_a_missing_setting_is_named_in_the_log_and_not_to_the_caller(
    stage: Stage, function: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TURNKEEP_TABLE")
    names = {"turn": "turn-message", "answer": "answer-null", "read": "read-conversation"}
    reply = stage.call(function, saved_event(names[function]))
    assert (reply.status, reply.code) == (500, "ERR_INTERNAL")
    assert "TURNKEEP_TABLE" not in json.dumps(reply.body)
    assert "The environment variable TURNKEEP_TABLE is missing." in capsys.readouterr().out


def test_health(stage: Stage) -> None:
    assert stage.call("read", saved_event("health")).body["status"] == "ok"
