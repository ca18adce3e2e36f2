"""The owner takes something back: an open ask, or a turn that is still queued."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turnkeep.errors import AlreadyAnsweredError, ConcurrentRunError, TurnNotFoundError
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.asks import load_output
from turnkeep.usecases.closing import closed
from turnkeep.usecases.door import require_own, verify
from turnkeep.usecases.state import State

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deadline, Deps


def withdraw_turn(deps: Deps, caller: Caller, key: ConversationKey, turn: int, *, deadline: Deadline) -> TurnRecord:
    """Withdraws the turn's open ask, or cancels it while it is queued. Withdrawing twice is once.

    Returns:
        The turn as it stands: ``cancelled``, or how it had ended before.

    Raises:
        SessionNotFoundError, TurnNotFoundError: nothing of the caller's.
        AlreadyAnsweredError: the ask has its answer, whether or not its resume has ended.
        ConcurrentRunError: the turn runs, and a run is not taken back.
        UnreadableError: what is stored cannot be read; nothing was changed.
        StoreUnavailableError: nothing was lost; withdrawing again finds out.
    """
    del deadline  # every round trip of this ends inside it
    verify(deps, caller)
    while True:
        found = deps.ledger.hydrate(key, history=False, turn=turn)
        require_own(found, caller)
        found.conversation()  # of a newer release, it says that the turns may mean something else
        record = found.wanted()
        if record is None or record.status is Status.SKIPPED:
            raise TurnNotFoundError
        if not record.is_open:
            return load_output(deps, record)
        refuse_taken(record)
        done = close_withdrawn(deps, record, State.of(found))
        if done is not None:
            return done
        # Somebody moved the turn on in between. It only moves forward, so this ends.


def refuse_taken(record: TurnRecord) -> None:
    """Refuses to take back what is answered or runs.

    Raises:
        AlreadyAnsweredError, ConcurrentRunError: it is.
    """
    if record.decision is not None and record.status in (Status.ANSWERED, Status.RUNNING):
        raise AlreadyAnsweredError(answered_at_ms=record.decision.answered_at_ms)
    if record.status is Status.RUNNING:
        raise ConcurrentRunError(turn=record.turn)


def close_withdrawn(deps: Deps, record: TurnRecord, state: State) -> TurnRecord | None:
    """Closes an awaiting or queued turn as ``cancelled`` and ends what waits on it; None where somebody was faster."""
    awaiting = record.status is Status.AWAITING
    # Of its messages nothing is asked: it contributes nothing, so a pause that nobody can read is withdrawn as well.
    after = closed(record, Status.CANCELLED, now_ms=deps.clock.now_ms())
    done = deps.ledger.close(record, after, state.conversation)
    if done is None:
        return None
    deps.probe("withdrawn")
    if awaiting:
        deps.gate.stop(record, "withdrawn")
        deps.events.tell("ask.closed", replace(done, ask=record.ask))
    deps.events.tell("turn.ended", done)
    return done
