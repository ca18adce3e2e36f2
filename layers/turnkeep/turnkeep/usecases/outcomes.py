"""What a run came to, as its turn's record says it: an answer, an ask, a failure, a refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.agent.history import close_dangling
from turnkeep.agent.port import Answered, Asked
from turnkeep.decisions import pending_ask, question_of
from turnkeep.errors import AgentContractError, TurnkeepError
from turnkeep.ledger.codec import pack, size_of
from turnkeep.ledger.records import CONVERSATION_V1, FLOWCHART_V1, Ask, ConversationRecord, Status, TurnRecord
from turnkeep.messages import Message, shown_count
from turnkeep.usecases.asks import START_ATTENTION_MS
from turnkeep.usecases.closing import answered_mark, closed, past
from turnkeep.usecases.evidence import kept_evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.usecases.deps import Deps
    from turnkeep.usecases.progress import Progress

INLINE_BYTES = 200_000
"""Messages of a turn above this go to segments, so that its record stays well under an item's limit."""

REWRITTEN_BYTES = 8_000
"""Up to this, an answered turn whose messages lie in segments is written whole into its record: a few units once, and
no turn behind it has to read segments for its history."""

INLINE_ASK_BYTES = 2_000
"""An ask above this stays in the checkpoint, and a user message above it moves to segments, so that a pausing turn's
record stays under 4 KB."""

EXECUTION_LIFE_MS = 364 * 86_400_000
"""An execution lives a year at most; an ask that would outlast its turn's gets one of its own."""

BEFORE_ANYTHING_RAN = frozenset({"ERR_CONVERSATION_MISMATCH", "ERR_DECISION_REQUIRED", "ERR_STALE_DECISION"})
"""Codes of an agent's refusals to resume at all: the decision was not used, so it leaves no mark (CONTRACT.md 17.1)."""

_AUDIENCE = re.compile(r"owner|role:[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Begin:
    """Where an attempt begins.

    Attributes:
        record: the turn as this attempt claimed it (running, its run id).
        conversation: CONVERSATION as it was read; None where there is none yet.
        history: messages of earlier turns that count, closed, oldest first.
        history_turns: (turn, messages) of those turns, oldest first.
        left_out: what was not read: ``{"turns", "messages"}``.
        messages: this turn's durable messages, the user message first.
        checkpoint: a paused run's checkpoint that is to be resumed; None for a message.
    """

    record: TurnRecord
    conversation: ConversationRecord | None
    history: Sequence[Message]
    history_turns: Sequence[tuple[int, int]]
    left_out: dict[str, int]
    messages: Sequence[Message]
    checkpoint: dict[str, Any] | None = None


@dataclass(frozen=True)
class NamedAgent:
    """What an agent calls itself, or what the conversation was recorded under."""

    agent_id: str | None = None
    version: str | None = None


def ended(deps: Deps, begin: Begin, progress: Progress, agent: NamedAgent, outcome: Any) -> TurnRecord:
    """The turn's record behind a run that returned. Writes to segments what the record does not hold.

    Raises:
        AgentContractError: the outcome is none that the port allows.
        UnstorableValueError: with the path to what JSON cannot keep.
        LostClaimError, StoreUnavailableError: see ``Progress.write``.
    """
    if not isinstance(outcome, Answered | Asked):
        raise AgentContractError("a run returns Answered or Asked")
    progress.agree(outcome.messages)
    if isinstance(outcome, Asked):
        return _asked(deps, begin, progress, agent, outcome)
    return _answered(deps, begin, progress, agent, outcome)


def _answered(deps: Deps, begin: Begin, progress: Progress, agent: NamedAgent, outcome: Answered) -> TurnRecord:
    _check_answer(outcome, progress.agreed)
    in_segments = progress.segments or begin.record.adopted
    whole = progress.whole(REWRITTEN_BYTES) if in_segments else None
    kept: dict[str, Any]
    if whole is not None:
        kept = {"user": whole[0], "messages": whole[1:], "segments": 0, "adopted": ()}
    else:
        kept = {"messages": progress.keep_inline(INLINE_BYTES), "segments": progress.segments}
    return _after(
        deps,
        begin,
        agent,
        outcome,
        status=Status.COMPLETE,
        format=CONVERSATION_V1,
        **kept,
        shown_count=shown_count(progress.agreed),
        ask=None,
        checkpoint_segment=None,
        past_asks=past(begin.record, "answered", deps.clock.now_ms()),
        due_at_ms=None,
    )


def _check_answer(outcome: Answered, agreed: Sequence[Message]) -> None:
    last = agreed[-1]
    if len(close_dangling(agreed)) != len(agreed):
        raise AgentContractError("an answer leaves no tool call without its result")
    said = last["content"] if last["role"] == "assistant" else ""
    if outcome.output != said:
        raise AgentContractError("an answer's output is the content of its last message, which is the assistant's")


def _asked(deps: Deps, begin: Begin, progress: Progress, agent: NamedAgent, outcome: Asked) -> TurnRecord:
    record = begin.record
    ask = _new_ask(deps, record, outcome)
    # An awaiting turn lives to its ask's expiry and a day, and so does all that belongs to it.
    delete_after_s = record.delete_after_s
    keep_s = ask.expires_at_ms // 1000 + 86_400
    if delete_after_s is not None and keep_s > delete_after_s:
        progress.outlive(keep_s)
        delete_after_s = keep_s
    user = record.user if record.user is not None and _packed_bytes(record.user) <= INLINE_ASK_BYTES else None
    if user is None and record.user is not None:
        progress.write_anew()
    else:
        progress.write(progress.agreed)
    # Where the record holds an abstract only, readers look for the whole in the checkpoint.
    checkpoint = outcome.checkpoint if ask.whole else {**outcome.checkpoint, "pauseData": outcome.pause_data}
    checkpoint_segment = progress.write_checkpoint(checkpoint)
    new_execution = record.ask is None or _outlives_execution(record, ask)
    return _after(
        deps,
        begin,
        agent,
        outcome,
        status=Status.AWAITING,
        format=FLOWCHART_V1,
        user=user,
        messages=(),
        segments=progress.segments,
        shown_count=shown_count(progress.agreed),
        ask=ask,
        decision=None,
        checkpoint_segment=checkpoint_segment,
        due_at_ms=deps.clock.now_ms() + START_ATTENTION_MS,
        past_asks=past(record, "answered", deps.clock.now_ms()),
        start_number=1 if new_execution else record.start_number,
        execution_ask=None if new_execution else _execution_ask(record),
        delete_after_s=delete_after_s,
    )


def _new_ask(deps: Deps, record: TurnRecord, outcome: Asked) -> Ask:
    if not isinstance(outcome.audience, str) or not _AUDIENCE.fullmatch(outcome.audience):
        raise AgentContractError("an ask's audience is owner or role:NAME")
    now_ms = deps.clock.now_ms()
    expires_in_s = deps.settings.ask_expires_s if outcome.expires_in_s is None else outcome.expires_in_s
    whole = _packed_bytes(outcome.pause_data) <= INLINE_ASK_BYTES
    return Ask(
        ask_id=f"ask-{record.turn}-{deps.random_id(12)}",
        audience=outcome.audience,
        pause_data=outcome.pause_data if whole else _abstract(outcome.pause_data),
        whole=whole,
        asked_at_ms=now_ms,
        expires_at_ms=now_ms + expires_in_s * 1000,
    )


def _after(deps: Deps, begin: Begin, agent: NamedAgent, outcome: Answered | Asked, **facts: Any) -> TurnRecord:
    return replace(
        begin.record,
        lease_until_ms=0,
        saved_at_ms=deps.clock.now_ms(),
        usage=dict(outcome.usage),
        evidence=kept_evidence(outcome.evidence, pausing=isinstance(outcome, Asked)),
        iteration=outcome.iteration,
        task_token=None,
        agent_id=agent.agent_id,
        agent_version=agent.version,
        **facts,
    )


def failed(deps: Deps, begin: Begin, progress: Progress, facts: dict[str, Any]) -> TurnRecord:
    """The turn's record behind a run that raised: what it had agreed on until then stays."""
    now_ms = deps.clock.now_ms()
    rest = progress.keep_inline(INLINE_BYTES)
    own = replace(begin.record, segments=progress.segments, messages=rest)
    after = closed(own, Status.FAILED, now_ms=now_ms, durable=progress.agreed, error=facts)
    # It is this attempt that ends the turn; a new number is for whoever takes a turn from another.
    after = replace(after, attempt=own.attempt, adopted=own.adopted, segments=own.segments)
    if begin.record.decision is None or facts["code"] in BEFORE_ANYTHING_RAN:
        return after
    return replace(after, answered_mark=answered_mark(begin.record, facts, now_ms))


def refused(deps: Deps, begin: Begin, facts: dict[str, Any]) -> TurnRecord:
    """The turn's record where nothing ran: it leaves no mark on the conversation."""
    return replace(
        begin.record,
        status=Status.REFUSED,
        lease_until_ms=0,
        saved_at_ms=deps.clock.now_ms(),
        shown_count=0,
        due_at_ms=None,
        error=facts,
    )


def error_facts(error: BaseException) -> dict[str, Any]:
    """What of an error is stored: its code, its class and our own sentence; never somebody else's text."""
    if isinstance(error, TurnkeepError):
        return {"code": error.code or "ERR_RUN_FAILED", "message": str(error), "cause": type(error).__name__}
    return {
        "code": "ERR_RUN_FAILED",
        "message": "The agent raised an error; the log of this request names where.",
        "cause": type(error).__name__,
    }


def _execution_ask(record: TurnRecord) -> str | None:
    """The ask that the turn's execution was started for: it goes on waiting, now on the next one."""
    return record.execution_ask or (record.ask.ask_id if record.ask is not None else None)


def _outlives_execution(record: TurnRecord, ask: Ask) -> bool:
    return ask.expires_at_ms - record.started_at_ms > EXECUTION_LIFE_MS


def _packed_bytes(value: Any) -> int:
    return size_of(pack(value, name="ask"))


def _abstract(pause_data: Any) -> dict[str, Any]:
    """What the record says of an ask that is too large for it; the whole lies in the checkpoint."""
    pending = pending_ask(pause_data)
    texts = {"toolName": pending.get("tool"), "question": question_of(pending)}
    return {name: text[:300] for name, text in texts.items() if isinstance(text, str)}
