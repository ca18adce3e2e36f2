"""The owner takes something back: an open ask, or a turn that is still queued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import AlreadyAnsweredError, ConcurrentRunError, TurnNotFoundError
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.closing import closed
from turnkeep.usecases.door import require_own, verify
from turnkeep.usecases.state import State

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deadline, Deps


def withdraw_turn(deps: Deps, caller: Caller, key: ConversationKey, turn: int, *, deadline: Deadline) -> TurnRecord:
    """Withdraws the turn's open ask, or cancels it while it is queued. Withdrawing twice is once.

    Raises:
        SessionNotFoundError, TurnNotFoundError: nothing of the caller's.
        AlreadyAnsweredError: the ask has its answer.
        ConcurrentRunError: the turn runs, and a run is not taken back.
    """
    verify(deps, caller)
    del deadline
    while True:
        found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
        require_own(found, caller)
        record = found.wanted()
        if record is None or record.status is Status.SKIPPED:
            raise TurnNotFoundError
        if not record.is_open:
            return record
        if record.status is Status.ANSWERED and record.decision is not None:
            raise AlreadyAnsweredError(answered_at_ms=record.decision.answered_at_ms)
        if record.status is Status.RUNNING:
            raise ConcurrentRunError(turn=turn)
        done = close_withdrawn(deps, record, State.of(found))
        if done is not None:
            return done


def close_withdrawn(deps: Deps, record: TurnRecord, state: State) -> TurnRecord | None:
    """Closes an awaiting or queued turn as ``cancelled`` and ends what waits on it; None where somebody was faster."""
    awaiting = record.status is Status.AWAITING
    durable = load_segments(deps.ledger.store, [record], deps.clock.now_ms()).messages[record.turn] if awaiting else ()
    after = closed(record, Status.CANCELLED, now_ms=deps.clock.now_ms(), durable=durable)
    done = deps.ledger.close(record, after, state.conversation)
    if done is None:
        return None
    if awaiting:
        deps.probe("withdrawn")
        deps.gate.stop(record, "withdrawn")
        deps.events.tell("ask.closed", done)
    deps.events.tell("turn.ended", done)
    return done
