"""The worker: runs a conversation's lowest queued turn, whatever message rang for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turnkeep.errors import (
    ConversationMismatchError,
    LostClaimError,
    RunFailedError,
    SessionNotFoundError,
    UnreadableError,
)
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.parsing import turn_record
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.ask_view import ask_view
from turnkeep.usecases.closing import closed
from turnkeep.usecases.ending import close_dead, expire, ring
from turnkeep.usecases.run_claimed import history_before, run_claimed
from turnkeep.usecases.state import (
    State,
    delete_after_s,
    lease_until_ms,
    look,
    new_run_id,
    next_attempt,
    shown_by,
    widened,
)
from turnkeep.usecases.waiting import between_looks_ms

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Deadline, Deps

MAX_ATTEMPTS = 4
"""A queued turn whose process died this often ends as ``failed``: it would die again."""

RESERVE_MS = 20_000
"""With less than this left (or than half of a short process's time), no turn is begun and nobody is waited for."""

ATTENTION_RESERVE_MS = 5_000
"""How long behind its lease a queued turn is looked at: the queue's redelivery comes first."""

LOOK_BACK_TURNS = 64
"""How many turns are looked through for the queued one, where the conversation cannot be read as a whole."""


def work_queue(deps: Deps, key: ConversationKey, *, deadline: Deadline) -> TurnRecord | None:
    """Runs the conversation's lowest queued turn.

    A live predecessor is waited for, inside this process's own time; then the bell is rung again, which is no failure.

    Returns:
        The turn that ended (or asks, or was refused); None where nothing is left to do, or the bell was rung again.

    Raises:
        RetryableError, TurnOutOfTimeError: nothing was lost; the redelivery continues the same turn.
        UnreadableError: even the queued turn's own record cannot be read; nothing was changed.
    """
    reserve_ms = min(RESERVE_MS, deadline.left_ms() // 2)
    while True:
        try:
            state = State.of(widened(deps, look(deps, key)))
        except UnreadableError as error:
            return _close_unreadable(deps, key, error)
        first = state.first_open
        if first is None or not _is_for_worker(state, first):
            return None
        if deadline.left_ms() < reserve_ms:
            ring(deps, first, again=deps.random_id(9))
            return None
        if _is_at_work_elsewhere(deps, first):
            _wait_for(deps, first, deadline, reserve_ms)
            continue
        try:
            done = _step(deps, first, state, deadline)
        except (RunFailedError, ConversationMismatchError, LostClaimError, SessionNotFoundError):
            # It is stored as failed or refused, or it is somebody else's by now, or erased: the message has done its
            # work.
            return deps.ledger.turn(key, first.turn)
        except UnreadableError as error:
            return _close_unreadable(deps, key, error)
        if done is not None:
            return done


def _is_for_worker(state: State, first: TurnRecord) -> bool:
    return _came_by_queue(first) or any(turn.status is Status.QUEUED for turn in state.turns)


def _came_by_queue(record: TurnRecord) -> bool:
    """Whether a running turn was queued: such a one stays in the index of what is due while it runs."""
    return record.status is Status.RUNNING and record.due_at_ms is not None and record.decision is None


def _is_at_work_elsewhere(deps: Deps, first: TurnRecord) -> bool:
    """Whether the first open turn ends without this process: it runs, or its answer is being taken up.

    A resume that died is among them: the state machine, or ``reconcile``, goes on with it or closes it.
    """
    if first.status is Status.RUNNING:
        return first.decision is not None or not first.is_dead(deps.clock.now_ms())
    return first.status is Status.ANSWERED


def _wait_for(deps: Deps, first: TurnRecord, deadline: Deadline, reserve_ms: int) -> None:
    """Waits until the turn has moved, or the time is up; looks at that one record only."""
    seen = first
    while deadline.left_ms() >= reserve_ms and _is_at_work_elsewhere(deps, seen):
        deps.clock.sleep_ms(4 * between_looks_ms())
        again = deps.ledger.turn(first.key, first.turn)
        if again is None:
            return
        seen = again


def _step(deps: Deps, first: TurnRecord, state: State, deadline: Deadline) -> TurnRecord | None:
    """Does what the first open turn needs; None means: look again."""
    now_ms = deps.clock.now_ms()
    if first.status is Status.QUEUED:
        return _begin(deps, first, state, deadline)
    if first.status is Status.AWAITING and first.ask is not None:
        if first.ask.expires_at_ms <= now_ms:
            expire(deps, first, state)
            return None
        return _refuse_behind(deps, first, state)
    if _came_by_queue(first):
        return _continue(deps, first, state, deadline)
    close_dead(deps, first, state)
    return None


def _begin(deps: Deps, queued: TurnRecord, state: State, deadline: Deadline) -> TurnRecord | None:
    history = history_before(deps, state, queued.turn)
    messages = load_segments(deps.ledger.store, [queued], deps.clock.now_ms()).messages[queued.turn]
    stale = state.stale_conversation()
    if stale is not None:
        state = replace(state, conversation=deps.ledger.heal(stale, state.conversation))
    before = state.before(queued.turn)
    last = before[-1] if before else None
    lease_ms = lease_until_ms(deps, deadline)
    running = replace(
        queued,
        status=Status.RUNNING,
        run_id=new_run_id(deps),
        lease_until_ms=lease_ms,
        base_count=shown_by(before),
        due_at_ms=lease_ms + ATTENTION_RESERVE_MS,
        delete_after_s=delete_after_s(deps, last),
    )
    begun = deps.ledger.begin_queued(queued, running)
    if begun is None:
        return None
    deps.probe("claimed")
    queued_ms = max(0, deps.clock.now_ms() - queued.started_at_ms)
    deps.note("begun", {"turn": running.turn, "attempt": 1, "runId": running.run_id, "queuedMs": queued_ms})
    return run_claimed(deps, begun, state, deadline, messages=messages, history=history)


def _continue(deps: Deps, dead: TurnRecord, state: State, deadline: Deadline) -> TurnRecord | None:
    """A redelivery goes on from the durable prefix of the attempt that died; one that keeps dying ends as failed."""
    if dead.attempt >= MAX_ATTEMPTS:
        return close_dead(deps, dead, state)
    history = history_before(deps, state, dead.turn)
    loaded = load_segments(deps.ledger.store, [dead], deps.clock.now_ms())
    running = next_attempt(deps, dead, deadline, durable_segments=loaded.durable_segments[dead.turn])
    running = replace(running, due_at_ms=running.lease_until_ms + ATTENTION_RESERVE_MS)
    if deps.ledger.take_over(dead, running, state.conversation) is None:
        return None
    deps.probe("taken over")
    deps.note("takeover", {"turn": running.turn, "attempt": running.attempt, "runId": running.run_id})
    return run_claimed(deps, running, state, deadline, messages=loaded.messages[dead.turn], history=history)


def _refuse_behind(deps: Deps, awaiting: TurnRecord, state: State) -> TurnRecord | None:
    """A queued turn that finds its predecessor awaiting a person ends as ``refused``, with that ask."""
    queued = next((turn for turn in state.turns if turn.status is Status.QUEUED), None)
    if queued is None or awaiting.ask is None:
        return awaiting
    error = {
        "code": "ERR_AWAITING_DECISION",
        "message": f"Turn {awaiting.turn} waits for an answer; answer its ask and send the message again.",
        "turn": awaiting.turn,
        "awaiting": ask_view(awaiting.ask, to_audience=False),
    }
    return _close_queued(deps, queued, Status.REFUSED, error)


def _close_unreadable(deps: Deps, key: ConversationKey, error: UnreadableError) -> TurnRecord | None:
    """A queued turn of a conversation that cannot be read ends as ``failed``, by name: it would fail again and again.

    Raises:
        UnreadableError: its own record cannot be read either.
    """
    found = deps.ledger.hydrate(key, last_turns=LOOK_BACK_TURNS)
    for item in found.turn_items.values():
        if item.get("status") == Status.QUEUED.value and item.get("epoch") == found.epoch:
            facts: dict[str, object] = {"code": error.code, "message": str(error), "cause": type(error).__name__}
            return _close_queued(deps, turn_record(item, key), Status.FAILED, facts)
    raise error


def _close_queued(deps: Deps, queued: TurnRecord, status: Status, error: dict[str, object]) -> TurnRecord | None:
    user = [queued.user] if queued.user is not None else []
    after = closed(queued, status, now_ms=deps.clock.now_ms(), durable=user, error=error)
    done = deps.ledger.close(queued, after, None)
    if done is not None:
        deps.events.tell("turn.ended", done)
    return done
