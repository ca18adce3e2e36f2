"""What the ledger's items say: records, and the one place that turns items into records and back.

An item names its format. What a newer release wrote, and what lacks a part, is refused by name (invariant 4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from turnkeep.decisions import is_decision, pending_ask
from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError
from turnkeep.ledger.codec import pack, unpack
from turnkeep.ledger.keys import ConversationKey, audience_key, due_shard, owner_key, turn_of_sk, turn_sk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnkeep.ledger.store import Item
    from turnkeep.messages import Message

CONVERSATION_V1, FLOWCHART_V1 = "conversation-v1", "flowchart-v1"
SEGMENT_V1, REQUEST_V1, SKIPPED_V1 = "segment-v1", "request-v1", "skipped-v1"
KNOWN_FORMATS = [CONVERSATION_V1, FLOWCHART_V1]


class Status(StrEnum):
    """A turn's status, as it is stored and shown."""

    QUEUED = "queued"
    RUNNING = "running"
    AWAITING = "awaiting"
    ANSWERED = "answered"
    COMPLETE = "complete"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Mover(StrEnum):
    """Who moves a turn from one status to another."""

    CALLER = "caller"
    RUN = "run"
    WORKER = "worker"
    ANSWER = "answer"
    RESUME = "resume"
    OWNER = "owner"
    EXPIRY = "expiry"
    NEXT_MESSAGE = "next message"
    RETRY = "same request"


MOVES: dict[tuple[Status | None, Status], frozenset[Mover]] = {
    (None, Status.RUNNING): frozenset({Mover.CALLER}),
    (None, Status.QUEUED): frozenset({Mover.CALLER}),
    (None, Status.SKIPPED): frozenset({Mover.CALLER}),
    (Status.QUEUED, Status.RUNNING): frozenset({Mover.WORKER}),
    (Status.QUEUED, Status.REFUSED): frozenset({Mover.WORKER}),
    (Status.QUEUED, Status.CANCELLED): frozenset({Mover.OWNER}),
    (Status.QUEUED, Status.FAILED): frozenset({Mover.WORKER}),
    (Status.RUNNING, Status.RUNNING): frozenset({Mover.RETRY, Mover.WORKER, Mover.RESUME}),
    (Status.RUNNING, Status.COMPLETE): frozenset({Mover.RUN}),
    (Status.RUNNING, Status.AWAITING): frozenset({Mover.RUN}),
    (Status.RUNNING, Status.REFUSED): frozenset({Mover.RUN}),
    (Status.RUNNING, Status.FAILED): frozenset({Mover.RUN, Mover.NEXT_MESSAGE, Mover.WORKER, Mover.RESUME}),
    (Status.AWAITING, Status.ANSWERED): frozenset({Mover.ANSWER}),
    (Status.AWAITING, Status.EXPIRED): frozenset({Mover.EXPIRY}),
    (Status.AWAITING, Status.CANCELLED): frozenset({Mover.OWNER}),
    (Status.ANSWERED, Status.RUNNING): frozenset({Mover.RESUME}),
    (Status.ANSWERED, Status.FAILED): frozenset({Mover.RESUME}),
}
"""The moves that are allowed, and who makes them. A pair that is not here never happens."""

OPEN = frozenset({Status.QUEUED, Status.RUNNING, Status.AWAITING, Status.ANSWERED})
"""The statuses of a turn that has not ended."""


@dataclass(frozen=True)
class Ask:
    """The question a paused run waits on.

    Attributes:
        ask_id: ``ask-<turn>-<random>``; names its turn so that an answer finds it by one point read.
        audience: ``owner`` or ``role:NAME``.
        pause_data: what the tool passed, uninterpreted.
        asked_at_ms, expires_at_ms: wall times.
        whole: False where the record holds only an abstract of a large one, whose whole lies in the checkpoint.
    """

    ask_id: str
    audience: str
    pause_data: Any
    asked_at_ms: int
    expires_at_ms: int
    whole: bool = True

    @property
    def pending(self) -> dict[str, Any]:
        """The PendingAsk of CONTRACT.md 5.2, which follows from the pause data."""
        return pending_ask(self.pause_data)


@dataclass(frozen=True)
class PastAsk:
    """An ask of this turn that is over.

    Attributes:
        ended: ``answered``, ``expired`` or ``cancelled``.
        at_ms: when it was.
        audience: whom it was for: they still learn how it ended.
        mark: its decision's mark, so that a repeat of the request that answered it is known; empty without a decision.
    """

    ask_id: str
    ended: str
    at_ms: int
    audience: str = "owner"
    mark: str = ""


@dataclass(frozen=True)
class Decision:
    """An answer as it was taken.

    Attributes:
        value: the answer. Of a large one that was read from its turn's record: only whether and by whom it approves
            (None for anything but a gate's decision); the whole lies beside the record (``ledger.large_decisions``).
        answered_by: the verified principal; None for an anonymous caller.
        mark: unique to the call that recorded it, so that a retried write knows its own.
        parts: into how many items a large one was cut; 0 where the value lies in the record.
    """

    ask_id: str
    value: Any
    answered_by: str | None
    answered_at_ms: int
    mark: str
    parts: int = 0


@dataclass(frozen=True)
class TurnRecord:
    """One turn, as its record says. See ``docs/data-model.md`` for the attributes.

    Attributes:
        previous: the number of the record before this one (0: none), the link that proves that none is missing.
        base_count: transcript messages of all turns before this one.
        shown_count: transcript messages of this turn, from the write that ended or paused it.
        user: the user message; None for a skipped number.
        messages: the turn's other messages that lie in the record itself, behind those in segments.
        segments: how many segments of ``attempt`` belong to the turn.
        adopted: (attempt, segments) of earlier attempts whose segments a takeover adopted, in order.
        checkpoint_segment: (attempt, index of its last part) of the paused run's checkpoint.
        execution_ask: the ask that the waiting execution was started for, where that was an earlier one of this turn.
        answered_mark: CONTRACT.md 17.1's mark, where a resume started and failed.
    """

    key: ConversationKey
    turn: int
    status: Status
    epoch: str
    format: str = CONVERSATION_V1
    attempt: int = 1
    run_id: str = ""
    lease_until_ms: int = 0
    principal: str | None = None
    previous: int = 0
    started_at_ms: int = 0
    saved_at_ms: int = 0
    base_count: int = 0
    shown_count: int = 0
    user: Message | None = None
    messages: tuple[Message, ...] = ()
    segments: int = 0
    adopted: tuple[tuple[int, int], ...] = ()
    checkpoint_segment: tuple[int, int] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    agent_id: str | None = None
    agent_version: str | None = None
    request: str | None = None
    digest: str | None = None
    iteration: int = 0
    ask: Ask | None = None
    past_asks: tuple[PastAsk, ...] = ()
    decision: Decision | None = None
    task_token: str | None = None
    start_number: int = 1
    execution_ask: str | None = None
    due_at_ms: int | None = None
    error: dict[str, Any] | None = None
    answered_mark: dict[str, Any] | None = None
    delete_after_s: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether the turn has not ended."""
        return self.status in OPEN

    def is_dead(self, now_ms: int) -> bool:
        """Whether it is running and its holder cannot be alive any more."""
        return self.status is Status.RUNNING and self.lease_until_ms <= now_ms

    @property
    def output(self) -> str:
        """The answer's text; empty where there is none in the record."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.get("role") != "assistant" or last.get("toolCalls"):
            return ""
        content = last.get("content")
        return content if isinstance(content, str) else ""


@dataclass(frozen=True)
class ConversationRecord:
    """What a listing shows of a conversation, and whose it is."""

    key: ConversationKey
    epoch: str
    owner: str | None = None
    created_at_ms: int = 0
    saved_at_ms: int = 0
    turn: int = 0
    attempt: int = 0
    status: str = ""
    format: str = CONVERSATION_V1
    message_count: int = 0
    agent_id: str | None = None
    agent_version: str | None = None
    erasing: bool = False
    delete_after_s: int | None = None


@dataclass(frozen=True)
class RequestRecord:
    """Which turn an Idempotency-Key became, and the digest of the request's body."""

    hashed: str
    turn: int
    epoch: str
    digest: str
    delete_after_s: int


# --- records to items ---------------------------------------------------------------------------------------


def turn_item(record: TurnRecord) -> Item:
    """The whole item of a turn (a claim puts it; later writes change attributes)."""
    item: Item = {"pk": record.key.pk, "sk": turn_sk(record.turn)}
    item.update(turn_attributes(record))
    return item


def turn_attributes(record: TurnRecord) -> Item:
    """The record's attributes; what is absent, empty or a default is left out (a unit is a kilobyte)."""
    found: dict[str, Any] = {
        "format": record.format,
        "epoch": record.epoch,
        "status": record.status.value,
        "attempt": record.attempt,
        "runId": record.run_id or None,
        "leaseUntil": record.lease_until_ms or None,
        "principal": record.principal,
        "previous": record.previous,
        "startedAt": record.started_at_ms,
        "savedAt": record.saved_at_ms or None,
        "before": record.base_count,
        "shown": record.shown_count or None,
        "user": pack(record.user, name="message") if record.user is not None else None,
        "messages": pack(list(record.messages), name="messages") if record.messages else None,
        "segments": record.segments or None,
        "adopted": pack([list(pair) for pair in record.adopted]) if record.adopted else None,
        "checkpoint": pack(list(record.checkpoint_segment)) if record.checkpoint_segment else None,
        "usage": pack(record.usage) if record.usage else None,
        "evidence": pack(record.evidence, name="evidence") if record.evidence else None,
        "agentId": record.agent_id,
        "agentVersion": record.agent_version,
        "request": record.request,
        "digest": record.digest,
        "iteration": record.iteration or None,
        "pastAsks": pack([_past_row(one) for one in record.past_asks]) if record.past_asks else None,
        "taskToken": record.task_token,
        "starts": record.start_number if record.start_number != 1 else None,
        "startedFor": record.execution_ask,
        "error": pack(record.error) if record.error else None,
        "answered": pack(record.answered_mark, name="decision") if record.answered_mark else None,
        "deleteAfter_s": record.delete_after_s,
    }
    if record.due_at_ms is not None:
        found |= {"due": due_shard(record.key.pk), "dueAt": record.due_at_ms}
    found |= _ask_attributes(record)
    found |= _decision_attributes(record.decision)
    return {name: value for name, value in found.items() if value is not None}


def _ask_attributes(record: TurnRecord) -> dict[str, Any]:
    ask = record.ask
    if ask is None:
        return {}
    found: dict[str, Any] = {
        "askId": ask.ask_id,
        "audience": ask.audience,
        "ask": pack(ask.pause_data, name="ask"),
        "askPart": None if ask.whole else 1,
        "askedAt": ask.asked_at_ms,
        "expiresAt": ask.expires_at_ms,
    }
    if record.status is Status.AWAITING:
        # The index holds open asks only: the key leaves with the answer.
        found["audienceKey"] = audience_key(record.key.tenant, ask.audience, record.principal)
    return found


def _decision_attributes(decision: Decision | None) -> dict[str, Any]:
    if decision is None:
        return {}
    inline = decision.value if decision.parts == 0 else verdict_of(decision.value)
    return {
        "decision": pack(inline, name="decision"),
        "decisionParts": decision.parts or None,
        "decisionFor": decision.ask_id,
        "answeredBy": decision.answered_by,
        "answeredAt": decision.answered_at_ms,
        "decisionMark": decision.mark,
    }


def _past_row(ask: PastAsk) -> list[Any]:
    return [ask.ask_id, ask.ended, ask.at_ms, ask.audience, ask.mark]


def verdict_of(value: Any) -> dict[str, Any] | None:
    """What a turn's record says of a decision that is too large for it: whether and by whom it approves."""
    if not is_decision(value):
        return None
    return {"approved": value["approved"], "by": value["by"][:200]}


ALL_TURN_ATTRIBUTES = [
    "format",
    "epoch",
    "status",
    "attempt",
    "runId",
    "leaseUntil",
    "principal",
    "previous",
    "startedAt",
    "savedAt",
    "before",
    "shown",
    "user",
    "messages",
    "segments",
    "adopted",
    "checkpoint",
    "usage",
    "evidence",
    "agentId",
    "agentVersion",
    "request",
    "digest",
    "iteration",
    "pastAsks",
    "taskToken",
    "starts",
    "startedFor",
    "error",
    "answered",
    "deleteAfter_s",
    "due",
    "dueAt",
    "askId",
    "audience",
    "ask",
    "askPart",
    "askedAt",
    "expiresAt",
    "audienceKey",
    "decision",
    "decisionParts",
    "decisionFor",
    "answeredBy",
    "answeredAt",
    "decisionMark",
]


def changes(before: TurnRecord, after: TurnRecord) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an update has to set and to remove to turn one record into the other."""
    old, new = turn_attributes(before), turn_attributes(after)
    to_set = {name: value for name, value in new.items() if old.get(name) != value}
    to_remove = tuple(name for name in ALL_TURN_ATTRIBUTES if name in old and name not in new)
    return to_set, to_remove


def conversation_attributes(record: ConversationRecord) -> Item:
    """The attributes of a CONVERSATION item."""
    found: dict[str, Any] = {
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
    return {
        "format": REQUEST_V1,
        "turn": record.turn,
        "epoch": record.epoch,
        "digest": record.digest,
        "deleteAfter_s": record.delete_after_s,
    }


# --- items to records ---------------------------------------------------------------------------------------


class _Reader:
    """Reads one item's attributes strictly, and names the part that cannot be read."""

    def __init__(self, item: Item, known: Iterable[str], *, conversation_id: str | None = None) -> None:
        self.item, self.conversation_id = item, conversation_id
        found = item.get("format")
        if not isinstance(found, str):
            raise MalformedStoredItemError(found="unknown", part="format", conversation_id=conversation_id)
        if found not in set(known):
            raise UnknownStoredFormatError(found=found[:64], known=list(known), conversation_id=conversation_id)
        self.format = found

    def fail(self, part: str) -> MalformedStoredItemError:
        return MalformedStoredItemError(found=self.format, part=part, conversation_id=self.conversation_id)

    def text(self, name: str) -> str:
        value = self.item.get(name)
        if not isinstance(value, str):
            raise self.fail(name)
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if name not in self.item else self.text(name)

    def integer(self, name: str) -> int:
        value = self.item.get(name)
        if not isinstance(value, int):
            raise self.fail(name)
        return value

    def maybe_integer(self, name: str, default: int = 0) -> int:
        return default if name not in self.item else self.integer(name)

    def json(self, name: str) -> Any:
        try:
            return unpack(self.item[name])
        except (KeyError, ValueError) as error:
            raise self.fail(name) from error

    def maybe_object(self, name: str) -> dict[str, Any] | None:
        if name not in self.item:
            return None
        value = self.json(name)
        if not isinstance(value, dict):
            raise self.fail(name)
        return value

    def list_of(self, name: str, kind: type) -> list[Any]:
        if name not in self.item:
            return []
        value = self.json(name)
        if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
            raise self.fail(name)
        return value

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        rows = self.list_of(name, list)
        if not all(len(row) == 2 and all(type(one) is int for one in row) for row in rows):
            raise self.fail(name)
        return tuple((row[0], row[1]) for row in rows)


def turn_record(item: Item, key: ConversationKey) -> TurnRecord:
    """The record of a TURN item.

    Raises:
        UnknownStoredFormatError: a format that this release does not know.
        MalformedStoredItemError: a known format with a part missing or unreadable.
    """
    read = _Reader(item, [*KNOWN_FORMATS, SKIPPED_V1], conversation_id=key.conversation_id)
    try:
        turn, status = turn_of_sk(read.text("sk")), Status(read.text("status"))
    except ValueError as error:
        raise read.fail("status") from error
    user = read.maybe_object("user")
    if user is None and status is not Status.SKIPPED:
        raise read.fail("user")
    checkpoint = read.list_of("checkpoint", int)
    if checkpoint and len(checkpoint) != 2:
        raise read.fail("checkpoint")
    return TurnRecord(
        key=key,
        turn=turn,
        status=status,
        epoch=read.text("epoch"),
        format=read.format,
        attempt=read.maybe_integer("attempt", 1),
        run_id=read.maybe_text("runId") or "",
        lease_until_ms=read.maybe_integer("leaseUntil"),
        principal=read.maybe_text("principal"),
        previous=read.integer("previous"),
        started_at_ms=read.maybe_integer("startedAt"),
        saved_at_ms=read.maybe_integer("savedAt"),
        base_count=read.maybe_integer("before"),
        shown_count=read.maybe_integer("shown"),
        user=user,
        messages=tuple(read.list_of("messages", dict)),
        segments=read.maybe_integer("segments"),
        adopted=read.pairs("adopted"),
        checkpoint_segment=(checkpoint[0], checkpoint[1]) if checkpoint else None,
        usage=read.maybe_object("usage") or {},
        evidence=read.maybe_object("evidence") or {},
        agent_id=read.maybe_text("agentId"),
        agent_version=read.maybe_text("agentVersion"),
        request=read.maybe_text("request"),
        digest=read.maybe_text("digest"),
        iteration=read.maybe_integer("iteration"),
        ask=_ask(read),
        past_asks=_past_asks(read),
        decision=_decision(read),
        task_token=read.maybe_text("taskToken"),
        start_number=read.maybe_integer("starts", 1),
        execution_ask=read.maybe_text("startedFor"),
        due_at_ms=read.integer("dueAt") if "dueAt" in item else None,
        error=read.maybe_object("error"),
        answered_mark=read.maybe_object("answered"),
        delete_after_s=read.integer("deleteAfter_s") if "deleteAfter_s" in item else None,
    )


def _ask(read: _Reader) -> Ask | None:
    if "askId" not in read.item:
        return None
    return Ask(
        ask_id=read.text("askId"),
        audience=read.text("audience"),
        pause_data=read.json("ask"),
        asked_at_ms=read.integer("askedAt"),
        expires_at_ms=read.integer("expiresAt"),
        whole="askPart" not in read.item,
    )


def _past_asks(read: _Reader) -> tuple[PastAsk, ...]:
    rows = read.list_of("pastAsks", list)
    try:
        return tuple(PastAsk(str(row[0]), str(row[1]), int(row[2]), *map(str, row[3:5])) for row in rows)
    except (IndexError, TypeError, ValueError) as error:
        raise read.fail("pastAsks") from error


def _decision(read: _Reader) -> Decision | None:
    if "decision" not in read.item:
        return None
    return Decision(
        ask_id=read.text("decisionFor"),
        value=read.json("decision"),
        answered_by=read.maybe_text("answeredBy"),
        answered_at_ms=read.integer("answeredAt"),
        mark=read.text("decisionMark"),
        parts=read.maybe_integer("decisionParts"),
    )


def conversation_record(item: Item, key: ConversationKey) -> ConversationRecord:
    """The record of a CONVERSATION item.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: as ``turn_record``.
    """
    read = _Reader(item, KNOWN_FORMATS, conversation_id=key.conversation_id)
    return ConversationRecord(
        key=key,
        epoch=read.text("epoch"),
        owner=read.maybe_text("owner"),
        created_at_ms=read.maybe_integer("createdAt"),
        saved_at_ms=read.integer("savedAt"),
        turn=read.integer("turn"),
        attempt=read.maybe_integer("attempt"),
        status=read.maybe_text("status") or "",
        format=read.format,
        message_count=read.maybe_integer("messageCount"),
        agent_id=read.maybe_text("agentId"),
        agent_version=read.maybe_text("agentVersion"),
        erasing="erasing" in item,
        delete_after_s=read.integer("deleteAfter_s") if "deleteAfter_s" in item else None,
    )


def request_record(item: Item, hashed: str) -> RequestRecord:
    """The record of a REQUEST item.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: as ``turn_record``.
    """
    read = _Reader(item, [REQUEST_V1])
    return RequestRecord(
        hashed=hashed,
        turn=read.integer("turn"),
        epoch=read.text("epoch"),
        digest=read.text("digest"),
        delete_after_s=read.integer("deleteAfter_s"),
    )


def is_expired(item: Item, now_ms: int) -> bool:
    """Whether DynamoDB may delete the item by now; it does so days late, so every read asks this itself."""
    until = item.get("deleteAfter_s")
    return isinstance(until, int) and until <= now_ms // 1000


def lenient_owner(item: Item) -> str | None:
    """The owner that a CONVERSATION item names, read without judging the rest of it."""
    owner = item.get("owner")
    return owner if isinstance(owner, str) and owner else None
