"""What the state machine asks for: go on behind an answered ask, close an expired one, mark a failed one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.errors import LeaseHeldError, LostClaimError, RunFailedError, TurnOutOfTimeError
from turnkeep.ledger.hydrate import Hydrated, load_segments
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.attempt import Attempt, Begin
from turnkeep.usecases.ending import close_dead_resume, expire
from turnkeep.usecases.run_claimed import history_before
from turnkeep.usecases.state import State, look, next_attempt, widened

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Deadline, Deps

RESUME_ATTENTION_RESERVE_MS = 5_000


@dataclass(frozen=True)
class Resumed:
    """What the state machine is told.

    Attributes:
        record: the turn as it stands; None where it is gone.
        asks_again: the execution waits on: another ask of this turn is open and has no execution of its own.
    """

    record: TurnRecord | None
    asks_again: bool = False


def resume_turn(deps: Deps, key: ConversationKey, turn: int, ask_id: str, *, deadline: Deadline) -> Resumed:
    """Continues a turn whose ask has its decision; harmless to call again.

    Raises:
        LeaseHeldError: another attempt may be alive; try again behind its lease.
        StoreUnavailableError: nothing was lost; try again.
    """
    found = look(deps, key, turn=turn)
    record = found.wanted()
    if record is None or found.erasing:
        return Resumed(None)
    if record.decision is None or record.decision.ask_id != ask_id or not record.is_open:
        return Resumed(record, asks_again=record.status is Status.AWAITING)
    if record.status is Status.ANSWERED:
        return _begin(deps, found, record, deadline)
    now_ms = deps.clock.now_ms()
    if not record.is_dead(now_ms):
        raise LeaseHeldError(turn=turn, lease_left_ms=max(0, record.lease_until_ms - now_ms))
    return _after_death(deps, found, record, deadline)


def _begin(deps: Deps, found: Hydrated, record: TurnRecord, deadline: Deadline) -> Resumed:
    running = next_attempt(deps, record, deadline, durable_segments=record.segments)
    running = replace(running, due_at_ms=running.lease_until_ms + RESUME_ATTENTION_RESERVE_MS)
    if deps.ledger.begin_queued(record, running) is None:
        raise LeaseHeldError(turn=record.turn)
    deps.probe("resume claimed")
    return _go_on(deps, found, running, deadline)


def _after_death(deps: Deps, found: Hydrated, dead: TurnRecord, deadline: Deadline) -> Resumed:
    """Goes on only where the decided call's result is durable, or the decision declined it (DESIGN.md, Resume)."""
    state = State.of(found)
    loaded = load_segments(deps.ledger.store, [dead], deps.clock.now_ms())
    messages, checkpoint = loaded.messages[dead.turn], loaded.checkpoints.get(dead.turn)
    if not can_go_on(dead, messages, checkpoint):
        return Resumed(close_dead_resume(deps, dead, state) or deps.ledger.turn(dead.key, dead.turn))
    running = next_attempt(deps, dead, deadline, durable_segments=loaded.durable_segments[dead.turn])
    running = replace(running, due_at_ms=running.lease_until_ms + RESUME_ATTENTION_RESERVE_MS)
    if deps.ledger.take_over(dead, running, state.conversation) is None:
        raise LeaseHeldError(turn=dead.turn)
    deps.note("takeover", {"turn": running.turn, "attempt": running.attempt, "runId": running.run_id})
    return _go_on(deps, found, running, deadline)


def can_go_on(dead: TurnRecord, messages: list[Message], checkpoint: dict[str, object] | None) -> bool:
    """Whether a resume that died may be resumed: the decided call's result is durable, or the decision declined it."""
    value = dead.decision.value if dead.decision is not None else None
    declined = isinstance(value, dict) and value.get("approved") is False
    return declined or _has_result(messages, checkpoint)


def _has_result(messages: list[Message], checkpoint: dict[str, object] | None) -> bool:
    pause_data = (checkpoint or {}).get("pauseData")
    call_id = pause_data.get("toolCallId") if isinstance(pause_data, dict) else None
    last_call = next(
        (
            index
            for index in reversed(range(len(messages)))
            if any(call.get("id") == call_id for call in messages[index].get("toolCalls") or [])
        ),
        None,
    )
    if last_call is None:
        return False
    return any(message.get("toolCallId") == call_id for message in messages[last_call + 1 :])


def _go_on(deps: Deps, found: Hydrated, running: TurnRecord, deadline: Deadline) -> Resumed:
    state = State.of(widened(deps, found, turn=running.turn))
    messages, checkpoint = deps.ledger.checkpoint_of(running)
    history = history_before(deps, state, running.turn)
    begin = Begin(
        record=running,
        conversation=state.conversation,
        history=history.messages,
        history_turns=history.turns,
        left_out=history.left_out,
        messages=messages,
        checkpoint=checkpoint,
    )
    try:
        record = Attempt(deps, begin, deadline).run()
    except (RunFailedError, LostClaimError):
        return Resumed(deps.ledger.turn(running.key, running.turn))
    except TurnOutOfTimeError as error:
        # The lease was handed back: the retry finds out whether the decided call's result is durable.
        raise LeaseHeldError(turn=running.turn) from error
    return Resumed(record, asks_again=record.status is Status.AWAITING)


def expire_ask(deps: Deps, key: ConversationKey, turn: int, ask_id: str) -> Resumed:
    """Closes an ask whose time is up, if nobody answered it; an answer that came first is told."""
    found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
    record = found.wanted()
    if record is None or record.status is not Status.AWAITING or record.ask is None or record.ask.ask_id != ask_id:
        return Resumed(record)
    done = expire(deps, record, State.of(found))
    return Resumed(done or deps.ledger.turn(key, turn))


def fail_resume(deps: Deps, key: ConversationKey, turn: int, ask_id: str) -> Resumed:
    """The state machine gave up on a resume: its turn ends ``failed``, with the mark, unless somebody else is at it."""
    found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
    record = found.wanted()
    if record is None or record.decision is None or record.decision.ask_id != ask_id:
        return Resumed(record)
    over = record.status is Status.ANSWERED or record.is_dead(deps.clock.now_ms())
    if not over:
        return Resumed(record)
    done = close_dead_resume(deps, record, State.of(found))
    return Resumed(done or deps.ledger.turn(key, turn))
