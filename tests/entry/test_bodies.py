"""Bodies of replies: API.md's shapes, and what never leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.entry.doors import CHECK_IN, NOW_MS, asking, completed, record
from turnkeep.entry.http.bodies import (
    conversation_body,
    created_reply,
    listed_ask,
    listed_conversation,
    shown_status,
    status_reply,
    to_json,
    turn_body,
    turn_reply,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import ConversationRecord, Decision, Status
from turnkeep.usecases.ask_view import ask_view, redacted_evidence
from turnkeep.usecases.deps import Caller

ANN = Caller(principal="ann", tenant="acme")
ANONYMOUS = Caller()
WHERE = "/conversations/c1/turns/3"
PLAIN = {"toolCallId": "call-1", "toolName": "ask_human", "question": "Which size?", "detail": [1, None]}
MIDDLEWARE = {"toolCallId": "call-1", "toolName": "pay", "ask": {"question": "Pay now?", "middleware": "limits"}}
DECIDED = Decision("ask-3-abc", True, "sue", NOW_MS, "mark")


# --- replies to a turn --------------------------------------------------------------------------------------


def test_a_turn_that_ended() -> None:
    reply = turn_reply(completed("Your order is on its way."), ANN)
    assert (reply.status, reply.headers) == (200, {})
    assert reply.body == {
        "conversationId": "c1",
        "turn": 3,
        "status": "complete",
        "output": "Your order is on its way.",
        "runId": "run-1-x",
        "savedAt": NOW_MS - 1_000,
        "usage": {"inputTokens": 3, "outputTokens": 2},
    }


def test_an_empty_answer_is_an_answer() -> None:
    assert turn_reply(completed(""), ANN).body["output"] == ""


def test_a_turn_that_asks() -> None:
    reply = turn_reply(asking(pause_data=PLAIN), ANN)
    assert (reply.status, reply.headers) == (202, {"Location": WHERE})
    assert reply.body == {
        "conversationId": "c1",
        "turn": 3,
        "status": "awaiting",
        "runId": "run-1-x",
        "savedAt": NOW_MS - 1_000,
        "awaiting": {
            "askId": "ask-3-abc",
            "question": "Which size?",
            "tool": "ask_human",
            "audience": "owner",
            "askedAt": NOW_MS - 1_000,
            "expiresAt": NOW_MS + 600_000,
            "pauseData": PLAIN,
        },
    }


@pytest.mark.parametrize("status", [Status.QUEUED, Status.ANSWERED, Status.RUNNING])
def test_a_turn_that_goes_on_is_named_and_located(status: Status) -> None:
    reply = turn_reply(record(status), ANN)
    assert (reply.status, reply.headers) == (202, {"Location": WHERE})
    assert reply.body == {"conversationId": "c1", "turn": 3, "status": status.value}


@pytest.mark.parametrize("status", [Status.FAILED, Status.EXPIRED, Status.REFUSED, Status.CANCELLED])
def test_a_repeat_describes_what_became_of_the_turn(status: Status) -> None:
    error = {"code": "ERR_RUN_FAILED", "message": "It failed.", "stack": "SECRET"}
    reply = turn_reply(record(status, error=error), ANN)
    assert (reply.status, reply.body["status"]) == (200, status.value)
    assert reply.body["error"] == {"code": "ERR_RUN_FAILED", "message": "It failed."}
    assert "SECRET" not in to_json(reply.body)


def test_from_the_decision_on_a_turn_is_answered_until_its_resume_ends() -> None:
    resuming = replace(asking(), status=Status.RUNNING, decision=DECIDED)
    assert shown_status(resuming) == "answered"
    assert turn_reply(resuming, ANN).body == {"conversationId": "c1", "turn": 3, "status": "answered"}
    assert shown_status(record(Status.RUNNING)) == "running"
    assert shown_status(replace(completed(), decision=DECIDED)) == "complete"


@pytest.mark.parametrize(
    ("turn", "status", "located"),
    [
        (asking(), "awaiting", True),
        (replace(asking(), status=Status.ANSWERED), "answered", True),
        (completed("SECRET output"), "complete", False),
        (record(Status.FAILED, error={"code": "X", "message": "SECRET"}), "failed", False),
    ],
)
def test_a_role_holder_is_told_the_status_and_nothing_else(turn: Any, status: str, located: bool) -> None:
    reply = status_reply(turn)
    assert reply.body == {"conversationId": "c1", "turn": 3, "status": status}
    assert (reply.status, "Location" in reply.headers) == ((202, True) if located else (200, False))


# --- a turn as it is read -----------------------------------------------------------------------------------


def test_a_turn_that_is_read() -> None:
    assert turn_body(completed("Done."), ANN, now_ms=NOW_MS) == {
        "conversationId": "c1",
        "turn": 3,
        "status": "complete",
        "startedAt": NOW_MS - 5_000,
        "savedAt": NOW_MS - 1_000,
        "output": "Done.",
        "usage": {"inputTokens": 3, "outputTokens": 2},
    }


def test_a_running_turn_is_stalled_from_the_end_of_its_lease_on() -> None:
    running = record(Status.RUNNING, lease_until_ms=NOW_MS, usage={})
    assert "stalled" not in turn_body(running, ANN, now_ms=NOW_MS - 1)
    assert turn_body(running, ANN, now_ms=NOW_MS)["stalled"] is True


def test_an_open_turn_shows_no_error_of_an_earlier_attempt() -> None:
    assert "error" not in turn_body(record(Status.RUNNING, error={"code": "X"}), ANN, now_ms=0)


# --- what of an ask leaves the house ------------------------------------------------------------------------


def test_the_audience_sees_a_check_in_without_what_the_system_prompt_and_the_tools_said() -> None:
    turn = asking()
    assert turn.ask is not None
    view = ask_view(turn.ask, to_audience=True)
    text = to_json(view)
    assert "SECRET" not in text
    assert view["question"] == "Refund an order — with order=B-200"
    for check_in in (view["checkIn"], view["pauseData"]["checkIn"]):
        assert check_in["args"] == {"order": "B-200"}
        assert check_in["evidence"] == {
            "willDo": "Refund an order — with order=B-200",
            "read": [{"channel": "system"}, {"channel": "task", "summary": "Refund order B-200, please"}],
            "drivers": [
                {"id": "task-1", "channel": "task", "text": "Refund order B-200, please", "score": 0.5},
                {"id": "system-1", "channel": "system", "score": 0.25},
                {"id": "result-1", "channel": "result", "score": 0.125},
            ],
            "trail": {"iteration": 1, "toolCalls": [{"name": "look_up", "ok": True}], "summary": "1 tool ran"},
        }
    assert "SECRET-PROMPT" in json.dumps(CHECK_IN), "the stored ask keeps its evidence"


def test_who_only_sees_that_an_ask_is_there() -> None:
    view = turn_reply(asking("role:supervisor"), ANN).body["awaiting"]
    assert view == {
        "askId": "ask-3-abc",
        "question": "Refund an order — with order=B-200",
        "tool": "refund",
        "audience": "role:supervisor",
        "askedAt": NOW_MS - 1_000,
        "expiresAt": NOW_MS + 600_000,
    }


def test_on_a_conversation_of_nobodys_an_anonymous_caller_is_either_audience() -> None:
    for audience in ("owner", "role:supervisor"):
        assert "checkIn" in turn_reply(asking(audience, principal=None), ANONYMOUS).body["awaiting"]


def test_the_owner_is_not_the_audience_of_a_role_even_when_they_hold_it() -> None:
    holder = Caller(principal="ann", tenant="acme", roles=frozenset({"supervisor"}))
    assert "pauseData" not in turn_reply(asking("role:supervisor"), holder).body["awaiting"]


def test_a_middlewares_ask_and_a_component() -> None:
    pause_data = {**MIDDLEWARE, "component": {"componentId": "slider", "props": {"max": 5}}}
    view = turn_reply(asking(pause_data=pause_data), ANN).body["awaiting"]
    assert view["question"] == "Pay now?"
    assert view["ask"] == {"question": "Pay now?", "middleware": "limits"}
    assert view["component"] == {"componentId": "slider", "props": {"max": 5}}
    assert view["pauseData"] == pause_data


@pytest.mark.parametrize("body", ["turn", "reply", "conversation", "asks"])
def test_no_token_principal_tenant_or_checkpoint_is_in_any_body(body: str) -> None:
    turn = asking(checkpoint_segment=(1, 1))
    bodies: dict[str, Any] = {
        "turn": turn_body(turn, ANN, now_ms=NOW_MS),
        "reply": turn_reply(turn, ANN).body,
        "conversation": conversation_body(conversation(), turn, ANN, now_ms=NOW_MS),
        "asks": listed_ask(turn),
    }
    text = to_json(bodies[body])
    for secret in ("TOKEN-SECRET", "SECRET-PROMPT", "SECRET-RESULT", '"ann"', "acme", "checkpoint", '"e1"'):
        assert secret not in text


def test_evidence_of_an_assembler_of_ones_own_is_cut_wherever_it_nests() -> None:
    evidence = {
        "groups": [{"items": [{"id": "result-7", "text": "SECRET"}, {"id": "task-7", "text": "open"}]}],
        "note": {"channel": "system", "score": 1, "text": "SECRET", "deep": {"text": "SECRET"}},
        "plain": "text",
    }
    assert redacted_evidence(evidence) == {
        "groups": [{"items": [{"id": "result-7"}, {"id": "task-7", "text": "open"}]}],
        "note": {"channel": "system", "score": 1},
        "plain": "text",
    }


# --- conversations and listings -----------------------------------------------------------------------------


def conversation(**changes: Any) -> ConversationRecord:
    base = ConversationRecord(
        key=ConversationKey("c1", "acme"),
        epoch="e1",
        owner="ann",
        created_at_ms=NOW_MS - 9_000,
        saved_at_ms=NOW_MS - 1_000,
        turn=2,
        status="complete",
        message_count=4,
    )
    return replace(base, **changes)


LISTED = {
    "conversationId": "c1",
    "savedAt": NOW_MS - 1_000,
    "format": "conversation-v1",
    "status": "complete",
    "turn": 2,
    "messageCount": 4,
}


def test_a_line_of_a_listing_shows_nothing_from_inside() -> None:
    assert listed_conversation(conversation()) == LISTED


def test_a_summary_shows_the_open_ask() -> None:
    assert conversation_body(conversation(), None, ANN, now_ms=NOW_MS) == {**LISTED, "createdAt": NOW_MS - 9_000}
    body = conversation_body(conversation(), asking(), ANN, now_ms=NOW_MS)
    assert (body["status"], body["turn"], body["awaiting"]["askId"]) == ("awaiting", 3, "ask-3-abc")
    running = record(Status.RUNNING, lease_until_ms=NOW_MS - 1)
    body = conversation_body(conversation(), running, ANN, now_ms=NOW_MS)
    assert (body["status"], body["stalled"]) == ("running", True)


def test_an_empty_conversation() -> None:
    empty = conversation(key=ConversationKey("a b"), turn=0, status="", message_count=0)
    reply = created_reply(empty)
    assert (reply.status, reply.headers["Location"]) == (201, "/conversations/~YSBi")
    assert (reply.body["conversationId"], reply.body["turn"], reply.body["status"]) == ("a b", 0, "empty")


def test_a_listed_ask_is_the_ask_and_where_it_is() -> None:
    line = listed_ask(asking("role:supervisor"))
    assert set(line) == {
        "conversationId", "turn", "askId", "question", "tool", "audience", "askedAt", "expiresAt", "checkIn",
        "pauseData",
    }  # fmt: skip
