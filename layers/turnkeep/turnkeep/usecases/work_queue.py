"""The worker: runs a conversation's lowest queued turn, whatever message rang for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turnkeep.errors import LostClaimError, RunFailedError
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.ask_view import ask_view
from turnkeep.usecases.closing import closed
from turnkeep.usecases.ending import close_dead, expire, ring
from turnkeep.usecases.run_claimed import run_claimed
from turnkeep.usecases.state import State, delete_after_s, lease_until_ms, look, new_run_id, next_attempt, widened
from turnkeep.usecases.waiting import between_looks_ms

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Deadline, Deps

MAX_ATTEMPTS = 4
"""A queued turn whose process died this often ends as ``failed``: it would die again."""

RESERVE_MS = 20_000
"""With less than this left, no turn is begun and nobody is waited for."""

ATTENTION_RESERVE_MS = 5_000


def work_queue(deps: Deps, key: ConversationKey, *, deadline: Deadline) -> TurnRecord | None:
    """Runs the conversation's lowest queued turn.

    A live predecessor is waited for, inside this process's own time; then the bell is rung again, which is no failure.

    Returns:
        The turn that ended (or asks, or was refused); None where nothing is left to do, or the bell was rung again.

    Raises:
        StoreUnavailableError, TurnOutOfTimeError: nothing was lost; the redelivery continues the same turn.
    """
    while True:
        state = State.of(widened(deps, look(deps, key)))
        first = state.first_open
        queued = next((turn for turn in state.turns if turn.status is Status.QUEUED), None)
        if first is None or (queued is None and not _is_workers_own(first)):
            return None
        if _waits(deps, first):
            if deadline.left_ms() < RESERVE_MS:
                ring(deps, first, again=deps.random_id(9))
                return None
            deps.clock.sleep_ms(4 * between_looks_ms())
            continue
        try:
            done = _step(deps, first, state, deadline)
        except (RunFailedError, LostClaimError):
            # The turn is stored as failed, or is somebody else's by now: the message has done its work.
            return deps.ledger.turn(key, first.turn)
        if done is not None:
            return done


def _is_workers_own(record: TurnRecord) -> bool:
    """Whether the turn came through the queue: such a one stays in the index of what is due while it runs."""
    return record.status is Status.RUNNING and record.due_at_ms is not None and record.decision is None


def _waits(deps: Deps, first: TurnRecord) -> bool:
    """Whether the first open turn is at work elsewhere and will end by itself."""
    now_ms = deps.clock.now_ms()
    return first.status is Status.ANSWERED or (first.status is Status.RUNNING and not first.is_dead(now_ms))


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
    if _is_workers_own(first):
        return _continue(deps, first, state, deadline)
    close_dead(deps, first, state)
    return None


def _begin(deps: Deps, queued: TurnRecord, state: State, deadline: Deadline) -> TurnRecord | None:
    stale = state.stale_conversation()
    if stale is not None:
        deps.ledger.heal(stale, state.conversation)
    before = state.before(queued.turn)
    last = before[-1] if before else None
    lease_ms = lease_until_ms(deps, deadline)
    running = replace(
        queued,
        status=Status.RUNNING,
        run_id=new_run_id(deps),
        lease_until_ms=lease_ms,
        base_count=0 if last is None else last.base_count + last.shown_count,
        due_at_ms=lease_ms + ATTENTION_RESERVE_MS,
        delete_after_s=delete_after_s(deps, last),
    )
    if deps.ledger.begin_queued(queued, running) is None or running.user is None:
        return None
    deps.probe("claimed")
    deps.note(
        "begun", {"turn": running.turn, "attempt": 1, "runId": running.run_id, "queuedMs": _queued_ms(deps, queued)}
    )
    return run_claimed(deps, running, state, deadline, messages=[running.user])


def _queued_ms(deps: Deps, queued: TurnRecord) -> int:
    return max(0, deps.clock.now_ms() - queued.started_at_ms)


def _continue(deps: Deps, dead: TurnRecord, state: State, deadline: Deadline) -> TurnRecord | None:
    """A redelivery goes on from the durable prefix of the attempt that died; one that keeps dying ends as failed."""
    if dead.attempt >= MAX_ATTEMPTS:
        return close_dead(deps, dead, state)
    loaded = load_segments(deps.ledger.store, [dead], deps.clock.now_ms())
    running = next_attempt(deps, dead, deadline, durable_segments=loaded.durable_segments[dead.turn])
    running = replace(running, due_at_ms=running.lease_until_ms + ATTENTION_RESERVE_MS)
    if deps.ledger.take_over(dead, running, state.conversation) is None:
        return None
    deps.note("takeover", {"turn": running.turn, "attempt": running.attempt, "runId": running.run_id})
    return run_claimed(deps, running, state, deadline, messages=loaded.messages[dead.turn])


def _refuse_behind(deps: Deps, awaiting: TurnRecord, state: State) -> TurnRecord | None:
    """A queued turn that finds its predecessor awaiting a person ends as ``refused``, with that ask."""
    queued = next((turn for turn in state.turns if turn.status is Status.QUEUED), None)
    if queued is None or awaiting.ask is None:
        return awaiting
    error = {
        "code": "ERR_AWAITING_DECISION",
        "message": f"Turn {awaiting.turn} waits for an answer; answer its ask and send the message again.",
        "awaiting": ask_view(awaiting.ask, to_audience=False),
    }
    done = deps.ledger.close(
        queued, closed(queued, Status.REFUSED, now_ms=deps.clock.now_ms(), error=error), state.conversation
    )
    if done is not None:
        deps.events.tell("turn.ended", done)
    return done
