"""Records as items: how a turn, a conversation and a request lie in the table (``parsing`` reads them back).

What conditions, indexes and the state machine read are attributes of their own. Everything else that a turn came to
lies in one, ``body``, because what is deflated together gets smaller together. What is absent, empty or a default is
left out, and so is what follows from the rest: a kilobyte is a unit of money.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from turnkeep.ledger.codec import pack_text, to_text
from turnkeep.ledger.keys import audience_key, due_shard, owner_key, turn_sk
from turnkeep.ledger.records import (
    REQUEST_V1,
    Ask,
    ConversationRecord,
    Decision,
    PastAsk,
    RequestRecord,
    Status,
    TurnRecord,
    verdict_of,
)
from turnkeep.messages import shown_count

if TYPE_CHECKING:
    from turnkeep.ledger.store import Item, Value

# fmt: off
TURN_ATTRIBUTES = frozenset({
    "format", "epoch", "status", "attempt", "runId", "leaseUntil", "principal", "previous", "startedAt", "savedAt",
    "before", "shown", "segments", "request", "digest", "claim", "taskToken", "starts", "startedFor", "deleteAfter_s",
    "due", "dueAt", "askId", "audience", "askPart", "askedAt", "expiresAt", "audienceKey", "decisionParts",
    "decisionFor", "answeredBy", "answeredAt", "decisionMark", "move", "unrun",
    "user", "body", "adopted", "checkpoint", "pastAsks", "ask", "decision", "answered",
})
# fmt: on
"""Every attribute that a TURN item may have beside its keys."""

_RUN_ID = re.compile(r"run-(\d{1,16})-")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


def turn_item(record: TurnRecord) -> Item:
    """The whole item of a turn (a claim puts it; later writes change attributes).

    Raises:
        UnstorableValueError: a part of it is no JSON that the ledger can keep.
    """
    item: Item = {"pk": record.key.pk, "sk": turn_sk(record.turn), **_plain(record)}
    for name, (text, behind) in _texts(record).items():
        item[name] = pack_text(text, behind=behind)
    return item


def changes(before: TurnRecord, after: TurnRecord) -> tuple[dict[str, Value], tuple[str, ...]]:
    """What an update has to set and to remove to turn one record into the other.

    Raises:
        UnstorableValueError: a part of it is no JSON that the ledger can keep.
    """
    old, new = _plain(before), _plain(after)
    to_set: dict[str, Value] = {name: value for name, value in new.items() if old.get(name) != value}
    old_texts, new_texts = _texts(before), _texts(after)
    for name, (text, behind) in new_texts.items():
        # Compared as text and packed only where it differs: deflating costs more than all the rest.
        if old_texts.get(name) != (text, behind):
            to_set[name] = pack_text(text, behind=behind)
    removed = [name for name in (*old, *old_texts) if name not in new and name not in new_texts]
    return to_set, tuple(removed)


def _plain(record: TurnRecord) -> Item:
    """The attributes that are kept as they are."""
    found: dict[str, Value | None] = {
        "format": record.format,
        "epoch": record.epoch,
        "status": record.status.value,
        "attempt": record.attempt,
        "runId": record.run_id or None,
        "leaseUntil": record.lease_until_ms or None,
        "principal": record.principal,
        "previous": record.previous if record.previous != record.turn - 1 else None,
        "startedAt": record.started_at_ms if record.started_at_ms != began_ms(record.run_id) else None,
        "savedAt": record.saved_at_ms or None,
        "before": record.base_count or None,
        "shown": record.shown_count if record.shown_count != shown_in(record) else None,
        "segments": record.segments or None,
        "request": hash_value(record.request),
        "digest": hash_value(record.digest),
        "claim": record.claim_id,
        "taskToken": record.task_token,
        "starts": record.start_number if record.start_number != 1 else None,
        "startedFor": record.execution_ask,
        "deleteAfter_s": record.delete_after_s,
    }
    if record.due_at_ms is not None:
        found |= {"due": due_shard(record.key.pk), "dueAt": record.due_at_ms}
    if record.ask is not None:
        found |= _ask_keys(record, record.ask)
    if record.decision is not None:
        found |= {
            "decisionParts": record.decision.parts or None,
            "decisionFor": record.decision.ask_id,
            "answeredBy": record.decision.answered_by,
            "answeredAt": record.decision.answered_at_ms,
            "decisionMark": record.decision.mark,
        }
    return {name: value for name, value in found.items() if value is not None}


def _ask_keys(record: TurnRecord, ask: Ask) -> dict[str, Value | None]:
    found: dict[str, Value | None] = {
        "askId": ask.ask_id,
        "audience": ask.audience,
        "askPart": None if ask.whole else 1,
        "askedAt": ask.asked_at_ms,
        "expiresAt": ask.expires_at_ms,
    }
    if record.status is Status.AWAITING:
        # The index holds open asks only: the key leaves with the answer.
        found["audienceKey"] = audience_key(record.key.tenant, ask.audience, record.principal)
    return found


def _texts(record: TurnRecord) -> dict[str, tuple[str, str]]:
    """The attributes that are kept as JSON text: each with the text that it stands behind."""
    user = "" if record.user is None else to_text(record.user, name="message")
    body = _body(record)
    found: dict[str, tuple[str, str]] = {}
    if record.user is not None:
        found["user"] = (user, "")
    if body:
        found["body"] = (to_text(body, name="turn"), user)
    if record.adopted:
        found["adopted"] = (to_text([list(pair) for pair in record.adopted]), "")
    if record.checkpoint_segment is not None:
        found["checkpoint"] = (to_text(list(record.checkpoint_segment)), "")
    if record.past_asks:
        found["pastAsks"] = (to_text([_past_row(one) for one in record.past_asks]), "")
    if record.ask is not None:
        found["ask"] = (to_text(record.ask.pause_data, name="ask"), "")
    if record.decision is not None:
        found["decision"] = (to_text(_inline(record.decision), name="decision"), "")
    if record.answered_mark:
        found["answered"] = (to_text(_mark_to_keep(record), name="decision"), "")
    return found


def _body(record: TurnRecord) -> dict[str, Any]:
    """What the turn came to."""
    found: dict[str, Any] = {
        "messages": list(record.messages),
        "usage": record.usage,
        "evidence": record.evidence,
        "agentId": record.agent_id,
        "agentVersion": record.agent_version,
        "iteration": record.iteration,
        "error": record.error,
    }
    return {name: value for name, value in found.items() if value}


def _past_row(ask: PastAsk) -> list[Any]:
    return [ask.ask_id, ask.ended, ask.at_ms, ask.audience, ask.mark]


def _inline(decision: Decision) -> Any:
    """What of a decision lies in its turn's record."""
    return decision.value if decision.parts == 0 else verdict_of(decision.value)


def _mark_to_keep(record: TurnRecord) -> dict[str, Any]:
    """The ``answered`` mark; the decision in it is not kept twice, as it may be large."""
    mark, decision = dict(record.answered_mark or {}), record.decision
    if decision is not None and "decision" in mark and to_text(mark["decision"]) == to_text(_inline(decision)):
        del mark["decision"]
    return mark


def began_ms(run_id: str) -> int:
    """When a run began, as its id says; 0 where that says nothing."""
    match = _RUN_ID.match(run_id)
    return int(match.group(1)) if match is not None else 0


def shown_in(record: TurnRecord) -> int:
    """How many messages a transcript shows of a turn that is complete and lies in its record as a whole, else 0."""
    if record.status is not Status.COMPLETE or record.segments or record.adopted:
        return 0
    return shown_count([record.user, *record.messages])


def hash_value(text: str | None) -> str | bytes | None:
    """A SHA-256 is kept as its bytes, half the size of its digits."""
    return bytes.fromhex(text) if text is not None and _SHA256.match(text) else text


def conversation_attributes(record: ConversationRecord) -> Item:
    """The attributes of a CONVERSATION item."""
    found: dict[str, Value | None] = {
        "epoch": record.epoch,
        "owner": record.owner,
        "ownerKey": owner_key(record.key.tenant, record.owner) if record.owner is not None else None,
        "createdAt": record.created_at_ms,
        "savedAt": record.saved_at_ms,
        "turn": record.turn,
        "attempt": record.attempt,
        "status": record.status or None,
        "format": record.format,
        "messageCount": record.message_count,
        "agentId": record.agent_id,
        "agentVersion": record.agent_version,
        "erasing": 1 if record.erasing else None,
        "deleteAfter_s": record.delete_after_s,
    }
    return {name: value for name, value in found.items() if value is not None}


def request_attributes(record: RequestRecord) -> Item:
    """The attributes of a REQUEST item."""
    digest = hash_value(record.digest)
    return {
        "format": REQUEST_V1,
        "turn": record.turn,
        "epoch": record.epoch,
        "digest": record.digest if digest is None else digest,
        "deleteAfter_s": record.delete_after_s,
    }
