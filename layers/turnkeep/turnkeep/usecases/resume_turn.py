"""What the state machine asks for: go on behind an answered ask, close an expired one, mark a failed one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.agent.history import has_result
from turnkeep.errors import (
    LeaseHeldError,
    LostClaimError,
    MalformedStoredItemError,
    RetryableError,
    RunFailedError,
    SessionNotFoundError,
    StoreUnavailableError,
    TurnOutOfTimeError,
)
from turnkeep.ledger.hydrate import Hydrated, load_segments
from turnkeep.ledger.large_decisions import with_whole_decision
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.asks import restart
from turnkeep.usecases.attempt import Attempt, Begin
from turnkeep.usecases.ending import close_dead_resume, expire
from turnkeep.usecases.run_claimed import history_before
from turnkeep.usecases.state import State, look, next_attempt, widened

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Deadline, Deps

RESUME_ATTENTION_RESERVE_MS = 5_000
"""How long behind its lease a resume is looked at: the state machine's own retries come first."""


@dataclass(frozen=True)
class Resumed:
    """What the state machine is told.

    Attributes:
        record: the turn as it stands; None where it is gone.
        asks_again: the execution waits on, for the turn's ask as it is now: another one than it was started for, open
            or just answered. ``AwaitAnswer`` finds out which.
    """

    record: TurnRecord | None
    asks_again: bool = False


# --- resume -------------------------------------------------------------------------------------------------


def resume_turn(deps: Deps, key: ConversationKey, turn: int, ask_id: str, *, deadline: Deadline) -> Resumed:
    """Continues a turn whose ask has its decision; harmless to call again.

    Raises:
        LeaseHeldError: another attempt may be alive, or this one stopped by itself; try again behind its lease.
        StoreUnavailableError: nothing was lost; try again.
        UnreadableError: what is stored cannot be read; nothing was changed.
    """
    found = look(deps, key, turn=turn)
    record = found.wanted()
    if record is None or found.erasing:
        return Resumed(None)
    if record.decision is None or record.decision.ask_id != ask_id or not record.is_open:
        # An earlier call of this very step did its work and its answer was lost: the ask is another one by now.
        if record.status is Status.AWAITING and record.ask is not None and record.ask.ask_id != ask_id:
            deps.events.tell("ask.opened", record)
        return Resumed(record, asks_again=record.status in (Status.AWAITING, Status.ANSWERED))
    now_ms = deps.clock.now_ms()
    if record.status is Status.RUNNING and not record.is_dead(now_ms):
        raise LeaseHeldError(turn=turn, lease_left_ms=max(0, record.lease_until_ms - now_ms))
    return _go_on(deps, found, record, deadline)


def _go_on(deps: Deps, found: Hydrated, record: TurnRecord, deadline: Deadline) -> Resumed:
    """Reads everything first, then claims, then runs: what cannot be read is refused before anything is changed."""
    loaded = load_segments(deps.ledger.store, [record], deps.clock.now_ms())
    messages, checkpoint = loaded.messages[record.turn], loaded.checkpoints.get(record.turn)
    if record.status is Status.RUNNING and not can_go_on(record, messages, checkpoint):
        done = close_dead_resume(deps, record, State.of(found))
        return Resumed(done or deps.ledger.turn(record.key, record.turn))
    if checkpoint is None:
        raise MalformedStoredItemError(
            found=record.format, part="checkpoint", conversation_id=record.key.conversation_id
        )
    state = State.of(widened(deps, found, turn=record.turn))
    history = history_before(deps, state, record.turn)
    decided = with_whole_decision(deps.ledger.store, record)
    running = next_attempt(deps, decided, deadline, durable_segments=loaded.durable_segments[record.turn])
    running = replace(running, due_at_ms=running.lease_until_ms + RESUME_ATTENTION_RESERVE_MS)
    if not _claim(deps, record, running, state):
        raise LeaseHeldError(turn=record.turn)
    begin = Begin(
        record=running,
        conversation=state.conversation,
        history=history.messages,
        history_turns=history.turns,
        left_out=history.left_out,
        messages=messages,
        checkpoint=checkpoint,
    )
    return _run(deps, begin, deadline)


def _claim(deps: Deps, record: TurnRecord, running: TurnRecord, state: State) -> bool:
    """Makes the turn this process's; False where somebody else was first."""
    ledger, dead = deps.ledger, record.status is Status.RUNNING
    try:
        claimed = (
            ledger.take_over(record, running, state.conversation) if dead else ledger.begin_queued(record, running)
        )
    except StoreUnavailableError:
        # It may have landed all the same, and then nobody else can be at it: a decision must not be lost to that.
        stored = ledger.turn(record.key, record.turn)
        if stored is None or stored.run_id != running.run_id:
            raise
        claimed = running
    if claimed is None:
        return False
    deps.probe("taken over" if dead else "resume claimed")
    facts = {"turn": running.turn, "attempt": running.attempt, "runId": running.run_id}
    deps.note("takeover" if dead else "resumed", facts)
    return True


def _run(deps: Deps, begin: Begin, deadline: Deadline) -> Resumed:
    record = begin.record
    try:
        record = Attempt(deps, begin, deadline).run()
    except (RunFailedError, LostClaimError):
        return Resumed(deps.ledger.turn(record.key, record.turn))
    except SessionNotFoundError:
        return Resumed(None)
    except StoreUnavailableError:
        raise
    except (TurnOutOfTimeError, RetryableError) as error:
        # The lease was handed back: the retry finds out whether the decided call's result is durable.
        raise LeaseHeldError(turn=record.turn) from error
    return Resumed(record, asks_again=record.status is Status.AWAITING)


def can_go_on(dead: TurnRecord, messages: list[Message], checkpoint: dict[str, object] | None) -> bool:
    """Whether a resume that died may be resumed: the decided call's result is durable, or the decision declined it."""
    value = dead.decision.value if dead.decision is not None else None
    declined = isinstance(value, dict) and value.get("approved") is False
    pause_data = (checkpoint or {}).get("pauseData")
    call_id = pause_data.get("toolCallId") if isinstance(pause_data, dict) else None
    return declined or has_result(messages, call_id)


# --- expire and fail ----------------------------------------------------------------------------------------


def expire_ask(deps: Deps, key: ConversationKey, turn: int, ask_id: str) -> Resumed:
    """Closes an ask whose time is up, if nobody answered it; an answer that came first is told.

    Where its time is not up (the execution's year ended first, or a clock is off), another execution waits on.

    Raises:
        StoreUnavailableError: nothing was lost; try again.
        UnreadableError: what is stored cannot be read; nothing was changed.
    """
    found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
    record = found.wanted()
    if record is None or record.status is not Status.AWAITING or record.ask is None or record.ask.ask_id != ask_id:
        return Resumed(record)
    if record.ask.expires_at_ms > deps.clock.now_ms():
        return Resumed(restart(deps, record) or deps.ledger.turn(key, turn))
    done = expire(deps, record, State.of(found))
    return Resumed(done or deps.ledger.turn(key, turn))


def fail_resume(deps: Deps, key: ConversationKey, turn: int, ask_id: str) -> Resumed:
    """The state machine gave up on a resume: its turn ends ``failed``, with the mark, unless somebody else is at it.

    Raises:
        StoreUnavailableError: nothing was lost; try again.
        UnreadableError: what is stored cannot be read; nothing was changed.
    """
    found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
    record = found.wanted()
    if record is None or record.decision is None or record.decision.ask_id != ask_id:
        return Resumed(record)
    over = record.status is Status.ANSWERED or record.is_dead(deps.clock.now_ms())
    if not over:
        return Resumed(record)
    done = close_dead_resume(deps, record, State.of(found))
    return Resumed(done or deps.ledger.turn(key, turn))
