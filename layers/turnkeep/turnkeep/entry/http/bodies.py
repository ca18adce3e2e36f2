"""Bodies of replies, exactly as API.md's "Bodies". Everything that a caller reads passes through here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from turnkeep.entry.http.paths import conversation_location, turn_location
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.usecases.ask_view import ask_view, is_audience

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Caller

MAX_PAGE_BYTES: Final = 4_000_000
"""Where a page ends: Lambda's replies end at 6 MB, and JSON inside JSON escapes quotes once more."""

SHOWN_OF_ERRORS: Final = ("code", "message", "turn", "awaiting")
"""What callers see of why a turn ended; the last two of one that found the turn in front of it asking."""

EMPTY: Final = "empty"
"""The status of a conversation that has no turn yet."""


@dataclass(frozen=True)
class Reply:
    """What goes back: ``body`` is JSON, None for no body."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


def to_json(body: Any) -> str:
    """A body's text."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# --- a turn -------------------------------------------------------------------------------------------------


def shown_status(record: TurnRecord) -> str:
    """A turn's status as callers see it: from the decision on it is ``answered`` until the resume ends."""
    resuming = record.status is Status.RUNNING and record.ask is not None and record.decision is not None
    return Status.ANSWERED.value if resuming else record.status.value


def turn_reply(record: TurnRecord, caller: Caller) -> Reply:
    """The answer to a request that was about one turn: how it ended, or what it waits for and where to look."""
    status = shown_status(record)
    base = {"conversationId": record.key.conversation_id, "turn": record.turn, "status": status}
    where = {"Location": turn_location(record.key.conversation_id, record.turn)}
    if status == Status.COMPLETE:
        ended = {"output": record.output, "runId": record.run_id, "savedAt": _saved_at(record), "usage": record.usage}
        return Reply(200, base | ended)
    if status == Status.AWAITING and record.ask is not None:
        view = ask_view(record.ask, to_audience=is_audience(record.ask, caller))
        return Reply(202, base | {"runId": record.run_id, "savedAt": _saved_at(record), "awaiting": view}, where)
    if status in {Status.QUEUED, Status.RUNNING, Status.ANSWERED}:
        return Reply(202, base, where)
    return Reply(200, turn_body(record, caller, now_ms=0))


def status_reply(record: TurnRecord) -> Reply:
    """The same for somebody who may answer the turn's ask and not read the conversation: its status, ever."""
    status = shown_status(record)
    going_on = status in {Status.QUEUED, Status.RUNNING, Status.AWAITING, Status.ANSWERED}
    body = {"conversationId": record.key.conversation_id, "turn": record.turn, "status": status}
    where = {"Location": turn_location(record.key.conversation_id, record.turn)}
    return Reply(202, body, where) if going_on else Reply(200, body)


def turn_body(record: TurnRecord, caller: Caller, *, now_ms: int) -> dict[str, Any]:
    """API.md's Turn, for somebody who may read the conversation.

    Args:
        record: the turn, its output in it.
        caller: who reads.
        now_ms: the wall time that a lease is compared with.
    """
    body: dict[str, Any] = {
        "conversationId": record.key.conversation_id,
        "turn": record.turn,
        "status": shown_status(record),
        "startedAt": record.started_at_ms,
        "savedAt": _saved_at(record),
    }
    if record.status is Status.COMPLETE:
        body["output"] = record.output
    if record.status is Status.AWAITING and record.ask is not None:
        body["awaiting"] = ask_view(record.ask, to_audience=is_audience(record.ask, caller))
    if record.error is not None and not record.is_open:
        body["error"] = {name: record.error[name] for name in SHOWN_OF_ERRORS if name in record.error}
    if record.usage:
        body["usage"] = record.usage
    if record.is_dead(now_ms):
        body["stalled"] = True
    return body


def _saved_at(record: TurnRecord) -> int:
    return record.saved_at_ms or record.started_at_ms


# --- a conversation -----------------------------------------------------------------------------------------


def conversation_body(
    record: ConversationRecord, open_turn: TurnRecord | None, caller: Caller, *, now_ms: int
) -> dict[str, Any]:
    """The summary of a conversation, with its open ask where there is one."""
    body = listed_conversation(record) | {"createdAt": record.created_at_ms}
    if open_turn is not None:
        body["status"] = shown_status(open_turn)
        body["turn"] = max(record.turn, open_turn.turn)
        if open_turn.status is Status.AWAITING and open_turn.ask is not None:
            body["awaiting"] = ask_view(open_turn.ask, to_audience=is_audience(open_turn.ask, caller))
        if open_turn.is_dead(now_ms):
            body["stalled"] = True
    return body


def created_reply(record: ConversationRecord) -> Reply:
    """The answer to the creation of an empty conversation."""
    body = listed_conversation(record) | {"createdAt": record.created_at_ms}
    return Reply(201, body, {"Location": conversation_location(record.key.conversation_id)})


def listed_conversation(record: ConversationRecord) -> dict[str, Any]:
    """One line of a listing: nothing from inside the conversation."""
    return {
        "conversationId": record.key.conversation_id,
        "savedAt": record.saved_at_ms or record.created_at_ms,
        "format": record.format,
        "status": record.status or EMPTY,
        "turn": record.turn,
        "messageCount": record.message_count,
    }


def listed_ask(record: TurnRecord) -> dict[str, Any]:
    """One line of the open asks that a caller may answer: the ask, and nothing else of the conversation."""
    if record.ask is None:
        raise ValueError("a listed ask has an ask")
    return {
        "conversationId": record.key.conversation_id,
        "turn": record.turn,
        **ask_view(record.ask, to_audience=True),
    }
