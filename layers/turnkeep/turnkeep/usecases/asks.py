"""An ask and the execution that waits on it, as every use case that meets one needs them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import ExecutionClosedError, StoreUnavailableError
from turnkeep.ledger.records import Status, TurnRecord

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Deps

START_ATTENTION_MS = 60_000
"""When a paused turn whose execution never reported is looked at."""


def with_whole_ask(deps: Deps, record: TurnRecord) -> TurnRecord:
    """The record with all that its ask shows; a large one lies in the checkpoint (one more round trip)."""
    if record.ask is None or record.ask.whole:
        return record
    _, checkpoint = deps.ledger.checkpoint_of(record)
    return replace(record, ask=replace(record.ask, pause_data=(checkpoint or {}).get("pauseData"), whole=True))


def pause_data_of(deps: Deps, record: TurnRecord) -> Any:
    """What the tool passed when it asked."""
    ask = with_whole_ask(deps, record).ask
    return None if ask is None else ask.pause_data


def start_execution(deps: Deps, record: TurnRecord) -> None:
    """Starts the execution that waits on the ask; what fails here ``reconcile`` does, or the next touch."""
    try:
        deps.gate.start(record)
        deps.probe("started")
    except (StoreUnavailableError, ExecutionClosedError) as error:
        deps.note("start_failed", {"turn": record.turn, "cause": type(error).__name__})


def wake(deps: Deps, record: TurnRecord) -> None:
    """Tells the execution that the decision is there; starts one where none waits. ``reconcile`` does the rest."""
    try:
        if record.task_token is not None and deps.gate.signal(record.task_token):
            deps.probe("signalled")
            return
        # No token yet: AwaitAnswer finds the decision by itself, if there is an execution; starting it twice is once.
        deps.gate.start(record)
    except ExecutionClosedError:
        restart(deps, record)
    except StoreUnavailableError as error:
        deps.note("signal_failed", {"turn": record.turn, "cause": type(error).__name__})


def restart(deps: Deps, record: TurnRecord) -> TurnRecord | None:
    """Starts the ask's execution under the next number, once, where the last one ended and its work did not."""
    due_at_ms = deps.clock.now_ms() + START_ATTENTION_MS
    moved = deps.ledger.set_start(record, record.start_number + 1, due_at_ms)
    if moved is None:
        return None
    deps.note("restarted", {"turn": record.turn, "start": moved.start_number})
    try:
        deps.gate.start(moved)
    except (StoreUnavailableError, ExecutionClosedError) as error:
        deps.note("start_failed", {"turn": record.turn, "cause": type(error).__name__})
    return moved


def needs_output(record: TurnRecord) -> bool:
    """Whether a complete turn's last message lies in a segment and not in its record."""
    return record.status is Status.COMPLETE and not record.messages and bool(record.segments or record.adopted)


def load_output(deps: Deps, record: TurnRecord) -> TurnRecord:
    """The record with its last message in it, where that lies in a segment."""
    if not needs_output(record):
        return record
    messages = deps.ledger.messages_of([record])[record.turn]
    return replace(record, messages=tuple(messages[-1:]))
