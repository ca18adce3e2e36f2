"""Reconcile: does what is due and was not done, each thing once, however many reconcilers run.

It reads the sparse index ``byDue``, re-reads each record strongly, and moves the record's due time on by
compare-and-set before it acts: whoever moved it acts. So nothing waits on a person's patience (invariant 5), and
nothing is done twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnkeep.errors import ExecutionClosedError, StoreUnavailableError, UnreadableError
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.keys import CONVERSATION, DUE_SHARDS, ConversationKey, turn_of_sk
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import IndexQuery, Item, position_of
from turnkeep.usecases.asks import restart, wake
from turnkeep.usecases.ending import close_dead, close_dead_resume, expire, ring
from turnkeep.usecases.erase import go_on_erasing
from turnkeep.usecases.resume_turn import can_go_on
from turnkeep.usecases.state import State
from turnkeep.usecases.work_queue import MAX_ATTEMPTS

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Deadline, Deps

PAGE = 50
LOOK_AGAIN_MS = 60_000
"""When a thing that was just done is looked at again, in case that came to nothing."""

RESERVE_MS = 5_000


@dataclass
class Report:
    """What a reconcile did: how many of each kind."""

    done: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        """Counts one."""
        self.done[what] = self.done.get(what, 0) + 1


def reconcile(deps: Deps, *, deadline: Deadline) -> Report:
    """Does everything that is due by now, inside the time that is left; the next one goes on with the rest."""
    report = Report()
    for shard in range(DUE_SHARDS):
        after: Item | None = None
        while deadline.left_ms() > RESERVE_MS:
            query = IndexQuery("byDue", f"due#{shard}", limit=PAGE, upto=deps.clock.now_ms(), after=after)
            (page,) = deps.ledger.store.read([query])
            for item in page.items:
                if deadline.left_ms() > RESERVE_MS:
                    report.count(_safely(deps, item, deadline))
            if not page.more or not page.items:
                break
            after = position_of("byDue", page.items[-1])
    return report


def _safely(deps: Deps, item: Item, deadline: Deadline) -> str:
    """One item that cannot be read, or one throttle, must not keep the others waiting: it is noted, and due again."""
    try:
        key = ConversationKey.from_pk(str(item["pk"]))
        if item["sk"] == CONVERSATION:
            return "erased" if go_on_erasing(deps, key, deadline=deadline) else "erasing"
        return reconcile_turn(deps, key, turn_of_sk(str(item["sk"])))
    except (UnreadableError, StoreUnavailableError, ValueError) as error:
        deps.note("reconcile_failed", {"cause": type(error).__name__})
        return "failed"


def reconcile_turn(deps: Deps, key: ConversationKey, turn: int, *, ended_abnormally: bool = False) -> str:
    """Looks at one turn and does what is due of it.

    Args:
        deps: the ports.
        key: the conversation.
        turn: the turn's number.
        ended_abnormally: its execution was stopped, failed or timed out as a whole; whatever the record says is due.

    Returns:
        What was done, as one word.
    """
    now_ms = deps.clock.now_ms()
    found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
    record = found.wanted()
    if record is None or not record.is_open or found.erasing:
        return "nothing"
    if not ended_abnormally and (record.due_at_ms is None or record.due_at_ms > now_ms):
        return "nothing"
    moved = deps.ledger.postpone(record, now_ms + LOOK_AGAIN_MS)
    if moved is None:
        return "taken"
    state = State.of(found)
    if moved.status is Status.QUEUED:
        ring(deps, moved, again=deps.random_id(9))
        return "rung"
    if moved.status is Status.AWAITING:
        return _awaiting(deps, moved, state, ended_abnormally=ended_abnormally)
    if moved.status is Status.ANSWERED:
        return _answered(deps, moved, ended_abnormally=ended_abnormally)
    return _running(deps, moved, state, ended_abnormally=ended_abnormally)


def _awaiting(deps: Deps, record: TurnRecord, state: State, *, ended_abnormally: bool) -> str:
    if record.ask is not None and record.ask.expires_at_ms <= deps.clock.now_ms():
        expire(deps, record, state)
        return "expired"
    if ended_abnormally:
        restart(deps, record)
        return "restarted"
    try:
        deps.gate.start(record)
    except ExecutionClosedError:
        restart(deps, record)
        return "restarted"
    return "started"


def _answered(deps: Deps, record: TurnRecord, *, ended_abnormally: bool) -> str:
    if ended_abnormally:
        restart(deps, record)
        return "restarted"
    wake(deps, record)
    return "woken"


def _running(deps: Deps, record: TurnRecord, state: State, *, ended_abnormally: bool) -> str:
    """A dead attempt that nobody took over: a resume that the state machine gave up on, or a worker that kept dying."""
    if not record.is_dead(deps.clock.now_ms()):
        return "alive"
    if record.decision is None:
        if record.attempt >= MAX_ATTEMPTS:
            close_dead(deps, record, state)
            return "closed"
        ring(deps, record, again=deps.random_id(9))
        return "rung"
    loaded = load_segments(deps.ledger.store, [record], deps.clock.now_ms())
    if not can_go_on(record, loaded.messages[record.turn], loaded.checkpoints.get(record.turn)):
        close_dead_resume(deps, record, state)
        return "closed"
    if ended_abnormally:
        restart(deps, record)
        return "restarted"
    wake(deps, record)
    return "woken"
