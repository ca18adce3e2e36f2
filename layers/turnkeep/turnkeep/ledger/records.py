"""What the ledger's items say, as values: turns, conversations, requests, and which moves a turn may make.

How a record lies in an item is ``items``'s business alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from turnkeep.decisions import is_decision, pending_ask

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
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
    IMPORT = "import"


MOVES: dict[tuple[Status | None, Status], frozenset[Mover]] = {
    (None, Status.RUNNING): frozenset({Mover.CALLER}),
    (None, Status.QUEUED): frozenset({Mover.CALLER}),
    (None, Status.SKIPPED): frozenset({Mover.CALLER}),
    (None, Status.COMPLETE): frozenset({Mover.IMPORT}),
    (None, Status.FAILED): frozenset({Mover.IMPORT}),
    (None, Status.AWAITING): frozenset({Mover.IMPORT}),
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


def may_move(before: Status | None, after: Status, mover: Mover) -> bool:
    """Whether the table allows this move to this mover."""
    return mover in MOVES.get((before, after), frozenset())


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


def verdict_of(value: Any) -> dict[str, Any] | None:
    """What a turn's record says of a decision that is too large for it: whether and by whom it approves."""
    if not is_decision(value):
        return None
    return {"approved": value["approved"], "by": value["by"][:200]}


@dataclass(frozen=True)
class TurnRecord:
    """One turn, as its record says. See ``docs/data-model.md`` for the attributes.

    Attributes:
        previous: the number of this life's record before this one (0: none), the link that proves that none is missing.
        base_count: transcript messages of all turns before this one.
        shown_count: transcript messages of this turn, from the write that ended or paused it.
        user: the user message where it lies in the record itself; None for a skipped number, and where it lies in
            segments, because it or the turn's ask was too large.
        messages: the turn's other messages that lie in the record itself, behind those in segments.
        segments: how many segments of ``attempt`` belong to the turn.
        adopted: (attempt, segments) of earlier attempts whose segments belong to the turn, in order. A large user
            message lies in front of them, under a number that no attempt ever has.
        claim_id: the run id that claimed a queued turn, once the worker's own stands in ``run_id``.
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
    claim_id: str | None = None
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
