"""Reconcile: does what is due and was not done, each thing once, however many reconcilers run.

It reads the sparse index ``byDue``, re-reads each record strongly, and moves the record's due time on by
compare-and-set before it acts: whoever moved it acts. So nothing waits on a person's patience (invariant 5), and
nothing is done twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnkeep.errors import StoreUnavailableError, TurnkeepError
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.keys import CONVERSATION, DUE_SHARDS, ConversationKey, turn_of_sk
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import IndexQuery, Item, position_of
from turnkeep.usecases.asks import attention_ms, ensure_execution, wake
from turnkeep.usecases.ending import close_dead, close_dead_resume, expire, ring
from turnkeep.usecases.erase import go_on_erasing
from turnkeep.usecases.resume_turn import RESUME_ATTENTION_RESERVE_MS, can_go_on
from turnkeep.usecases.state import State
from turnkeep.usecases.work_queue import MAX_ATTEMPTS

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Deadline, Deps

PAGE = 50
LOOK_AGAIN_MS = 60_000
"""When a thing that was just done is looked at again, in case that came to nothing."""

EXPIRY_ATTENTION_MS = 300_000
"""How long behind its expiry an ask is looked at whose execution waits (``AwaitAnswer`` sets the same)."""

QUICK_STARTS = 3
"""An execution up to this number is replaced at once when it ends abnormally; a later one when it is due."""

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
    # Each time from another one on: where there is more to do than time, no part of the table always comes last.
    first = random.randrange(DUE_SHARDS)
    for shard in range(DUE_SHARDS):
        try:
            _reconcile_shard(deps, (first + shard) % DUE_SHARDS, report, deadline)
        except TurnkeepError as error:
            report.count(_failed(deps, error))
    return report


def _reconcile_shard(deps: Deps, shard: int, report: Report, deadline: Deadline) -> None:
    after: Item | None = None
    while deadline.left_ms() > RESERVE_MS:
        query = IndexQuery("byDue", f"due#{shard}", limit=PAGE, upto=deps.clock.now_ms(), after=after)
        (page,) = deps.ledger.store.read([query])
        for item in page.items:
            if deadline.left_ms() > RESERVE_MS:
                report.count(_reconcile_item(deps, item, deadline))
        if not page.more or not page.items:
            return
        after = position_of("byDue", page.items[-1])


def _reconcile_item(deps: Deps, item: Item, deadline: Deadline) -> str:
    """One item that cannot be read, or one throttle, must not keep the others waiting: it is noted, and due again."""
    try:
        key = ConversationKey.from_pk(str(item["pk"]))
        if item["sk"] == CONVERSATION:
            return "erased" if go_on_erasing(deps, key, deadline=deadline) else "erasing"
        return _reconcile_turn(deps, key, turn_of_sk(str(item["sk"])), ended_abnormally=False)
    except (TurnkeepError, ValueError) as error:
        return _failed(deps, error)


def reconcile_turn(deps: Deps, key: ConversationKey, turn: int, *, ended_abnormally: bool = False) -> str:
    """Looks at one turn and does what is due of it.

    Args:
        deps: the ports.
        key: the conversation.
        turn: the turn's number.
        ended_abnormally: an execution of it was stopped, failed or timed out as a whole; whatever the record says is
            due.

    Returns:
        What was done, as one word.

    Raises:
        StoreUnavailableError: nothing was done; try again (that an execution ended is told once).
    """
    try:
        return _reconcile_turn(deps, key, turn, ended_abnormally=ended_abnormally)
    except StoreUnavailableError:
        raise
    except TurnkeepError as error:
        return _failed(deps, error)


def _failed(deps: Deps, error: Exception) -> str:
    deps.note("reconcile_failed", {"cause": type(error).__name__, "error": error})
    return "failed"


def _reconcile_turn(deps: Deps, key: ConversationKey, turn: int, *, ended_abnormally: bool) -> str:
    now_ms = deps.clock.now_ms()
    found = deps.ledger.hydrate(key, last_turns=1, turn=turn)
    record = found.wanted()
    if record is None or not record.is_open or found.erasing:
        return "nothing"
    if not ended_abnormally and (record.due_at_ms is None or record.due_at_ms > now_ms):
        return "nothing"
    # Executions that end at once, one after the other, would run in a circle: a later one waits its turn out.
    waits = ended_abnormally and record.start_number > QUICK_STARTS
    moved = deps.ledger.postpone(record, _next_look_ms(record, now_ms, waits=waits))
    if moved is None:
        return "taken"
    deps.probe("postponed")
    if waits:
        return "postponed"
    state = State.of(found)
    if moved.status is Status.QUEUED:
        ring(deps, moved, again=deps.random_id(9))
        return "rung"
    if moved.status is Status.AWAITING:
        return _awaiting(deps, moved, state, ended_abnormally=ended_abnormally)
    if moved.status is Status.ANSWERED:
        wake(deps, moved)
        return "woken"
    return _running(deps, moved, state)


def _next_look_ms(record: TurnRecord, now_ms: int, *, waits: bool) -> int:
    if record.status is Status.RUNNING and not record.is_dead(now_ms):
        return record.lease_until_ms + RESUME_ATTENTION_RESERVE_MS
    return now_ms + (attention_ms(record.start_number) if waits else LOOK_AGAIN_MS)


def _awaiting(deps: Deps, record: TurnRecord, state: State, *, ended_abnormally: bool) -> str:
    if record.ask is None:
        return "nothing"
    if record.ask.expires_at_ms <= deps.clock.now_ms():
        return "taken" if expire(deps, record, state) is None else "expired"
    if record.task_token is None and not ended_abnormally:
        # Whoever committed it died before it started one, and maybe before it told anybody: an event may come twice.
        deps.events.tell("ask.opened", record)
    done = ensure_execution(deps, record)
    if done == "started" and record.task_token is not None and not ended_abnormally:
        # It waits, as it should: there is nothing to look at before the expiry. (Right behind an abnormal end, Step
        # Functions may still call the execution running; so then the next look decides.)
        deps.ledger.postpone(record, record.ask.expires_at_ms + EXPIRY_ATTENTION_MS)
    return done


def _running(deps: Deps, record: TurnRecord, state: State) -> str:
    """A dead attempt that nobody took over: a resume that the state machine gave up on, or a worker that kept dying."""
    if not record.is_dead(deps.clock.now_ms()):
        return "alive"
    if record.decision is None:
        if record.attempt >= MAX_ATTEMPTS:
            return "taken" if close_dead(deps, record, state) is None else "closed"
        ring(deps, record, again=deps.random_id(9))
        return "rung"
    loaded = load_segments(deps.ledger.store, [record], deps.clock.now_ms())
    if not can_go_on(record, loaded.messages[record.turn], loaded.checkpoints.get(record.turn)):
        return "taken" if close_dead_resume(deps, record, state) is None else "closed"
    wake(deps, record)
    return "woken"
