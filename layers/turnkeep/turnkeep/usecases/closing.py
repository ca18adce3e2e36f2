"""How a turn ends without its own run: what its record says then, and what of it stays in the history.

A turn that failed or expired contributes its durable prefix, closed so that a provider accepts it; a refused or
cancelled one contributes nothing (DESIGN.md, The ledger).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.agent.history import close_dangling
from turnkeep.ledger.records import CONVERSATION_V1, PastAsk, Status, TurnRecord, verdict_of
from turnkeep.messages import Message, shown_count

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTRIBUTES_NOTHING = frozenset({Status.REFUSED, Status.CANCELLED, Status.SKIPPED, Status.QUEUED})

REASONS = {
    Status.FAILED: "not run: the turn failed before this call had a result",
    Status.EXPIRED: "not run: nobody answered in time",
    Status.CANCELLED: "not run: the question was withdrawn",
}
"""What a model later reads as the result of a call that never got one."""

OUTCOME_UNKNOWN = "outcome unknown: the run died while this call may have been at work; it was not run again"


def contribution(record: TurnRecord, messages: Sequence[Message]) -> list[Message]:
    """What a turn that has ended puts into the history of the turns after it."""
    if record.status in CONTRIBUTES_NOTHING:
        return []
    return close_dangling(messages, REASONS.get(record.status, REASONS[Status.FAILED]))


def closed(
    before: TurnRecord,
    status: Status,
    *,
    now_ms: int,
    durable: Sequence[Message] = (),
    own_segments: int | None = None,
    error: dict[str, Any] | None = None,
    reason: str | None = None,
) -> TurnRecord:
    """The record of a turn that somebody else than its run closes.

    The attempt moves on, so that whatever the old one still sends is refused everywhere (invariant 10), and its
    segments that count are named.

    Args:
        before: the turn as it was read.
        status: how it ends.
        now_ms: the wall time.
        error: what its record says of why.
        durable: the turn's messages as they are durable, the user message first.
        own_segments: how many segments of the old attempt count; None takes what the record says.
        reason: what a call without a result gets as its result.
    """
    kept = before.segments if own_segments is None else own_segments
    missing: tuple[Message, ...] = ()
    if status not in CONTRIBUTES_NOTHING and durable:
        whole = close_dangling(durable, reason or REASONS.get(status, REASONS[Status.FAILED]))
        missing = _added(durable, whole)
        shown = shown_count(whole)
    else:
        shown = 0
    return replace(
        before,
        status=status,
        format=CONVERSATION_V1,
        attempt=before.attempt + 1,
        adopted=(*before.adopted, (before.attempt, kept)),
        segments=0,
        lease_until_ms=0,
        saved_at_ms=now_ms,
        messages=(*before.messages, *missing),
        shown_count=shown,
        error=error,
        due_at_ms=None,
        task_token=None,
        ask=None,
        past_asks=past(before, _ENDS.get(status, status.value), now_ms),
        # A marked pause is handed out with its checkpoint (CONTRACT.md 17.1); of any other, the pause is over.
        checkpoint_segment=before.checkpoint_segment if status is Status.FAILED and before.decision else None,
    )


def _added(durable: Sequence[Message], whole: Sequence[Message]) -> tuple[Message, ...]:
    """What closing added to a turn's durable messages, in order.

    Usually the tail. A framework may have run calls behind the one that waits, so that the results that are missing
    belong in front of results that are there; they are stored behind them, and readers put results in call order.
    """
    if list(whole[: len(durable)]) == list(durable):
        return tuple(whole[len(durable) :])
    rest = list(durable)
    added = []
    for message in whole:
        if message in rest:
            rest.remove(message)
        else:
            added.append(message)
    return tuple(added)


_ENDS = {Status.FAILED: "answered", Status.COMPLETE: "answered", Status.AWAITING: "answered"}


def past(before: TurnRecord, ended: str, at_ms: int) -> tuple[PastAsk, ...]:
    """The turn's asks that are over, the one that was open until now included."""
    if before.ask is None:
        return before.past_asks
    decision, mark = before.decision, ""
    if decision is not None and decision.ask_id == before.ask.ask_id:
        ended, at_ms, mark = "answered", decision.answered_at_ms, decision.mark
    return (*before.past_asks, PastAsk(before.ask.ask_id, ended, at_ms, before.ask.audience, mark))


def answered_mark(record: TurnRecord, error: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """CONTRACT.md 17.1's mark: the decision was used, its resume started and failed, and it is never used again."""
    decision = record.decision
    if decision is None:
        return {}
    # A large decision stays where it lies; whoever hands the mark out puts it in (ledger.large_decisions).
    value = decision.value if decision.parts == 0 else verdict_of(decision.value)
    mark: dict[str, Any] = {"decision": value, "atMs": now_ms, "runId": record.run_id, "error": error}
    if decision.answered_by is not None:
        mark["answeredBy"] = decision.answered_by
    return mark
