"""Turns that end, or are rung for, by somebody else than their own run. Each move is a compare-and-set."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.closing import OUTCOME_UNKNOWN, answered_mark, closed

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Deps
    from turnkeep.usecases.state import State


def close_dead(deps: Deps, dead: TurnRecord, state: State) -> TurnRecord | None:
    """Closes a turn whose attempt died or gave up, as ``failed``; its durable prefix stays.

    Returns:
        The turn as it is now; None where somebody else was faster.
    """
    loaded = load_segments(deps.ledger.store, [dead], deps.clock.now_ms())
    error = {"code": "ERR_RUN_FAILED", "message": "The run of this turn ended without an answer, and nobody went on."}
    after = closed(
        dead,
        Status.FAILED,
        now_ms=deps.clock.now_ms(),
        durable=loaded.messages[dead.turn],
        own_segments=loaded.durable_segments[dead.turn],
        error=error,
    )
    done = deps.ledger.close(dead, after, state.conversation)
    if done is not None:
        deps.note("closed_dead", {"turn": dead.turn, "attempt": dead.attempt, "runId": dead.run_id})
        deps.events.tell("turn.ended", done)
    return done


def close_dead_resume(deps: Deps, dead: TurnRecord, state: State) -> TurnRecord | None:
    """Closes a turn whose resume cannot go on: ``failed``, with the mark, never resumed again.

    Returns:
        The turn as it is now; None where somebody else was faster.
    """
    now_ms = deps.clock.now_ms()
    loaded = load_segments(deps.ledger.store, [dead], now_ms)
    had_begun = dead.status is Status.RUNNING
    said = "died after it had begun" if had_begun else "could not begin"
    error = {"code": "ERR_RUN_FAILED", "message": f"The process that was to run this turn on {said}."}
    after = closed(
        dead,
        Status.FAILED,
        now_ms=now_ms,
        durable=loaded.messages[dead.turn],
        own_segments=loaded.durable_segments[dead.turn],
        error=error,
        reason=OUTCOME_UNKNOWN if had_begun else None,
    )
    after = replace(after, answered_mark=answered_mark(dead, error, now_ms))
    done = deps.ledger.close(dead, after, state.conversation)
    if done is not None:
        deps.events.tell("turn.ended", done)
    return done


def expire(deps: Deps, record: TurnRecord, state: State) -> TurnRecord | None:
    """Closes an ask that nobody answered in time; None where somebody was faster (an answer, most of all)."""
    loaded = load_segments(deps.ledger.store, [record], deps.clock.now_ms())
    after = closed(
        record,
        Status.EXPIRED,
        now_ms=deps.clock.now_ms(),
        durable=loaded.messages[record.turn],
        error={"code": "ERR_ASK_EXPIRED", "message": "Nobody answered in time."},
    )
    done = deps.ledger.close(record, after, state.conversation)
    if done is not None:
        deps.events.tell("ask.closed", replace(done, ask=record.ask))
        deps.events.tell("turn.ended", done)
    return done


def ring(deps: Deps, record: TurnRecord, *, again: str = "") -> None:
    """Rings for a queued turn; what fails here is done again by ``reconcile``.

    The claim's own id is part of the ring: the queue forgets a ring only after minutes, and a conversation that was
    erased and used again has a turn of the same number.
    """
    try:
        deps.doorbell.ring(record.key, record.turn, again=f"{record.run_id}{again}")
        deps.probe("rung")
    except StoreUnavailableError as error:
        deps.note("ring_failed", {"turn": record.turn, "cause": type(error).__name__})
