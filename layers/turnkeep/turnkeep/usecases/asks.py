"""An ask and the execution that waits on it, as every use case that meets one needs them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import ExecutionClosedError, StoreUnavailableError, UnreadableError
from turnkeep.ledger.hydrate import load_checkpoints
from turnkeep.ledger.records import Status, TurnRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.usecases.deps import Deps

START_ATTENTION_MS = 60_000
"""When a paused turn whose execution never reported is looked at."""

LONGEST_ATTENTION_MS = 3_600_000
"""The longest pause between two executions of one ask, when each of them ends without doing its work."""


# --- what an ask shows --------------------------------------------------------------------------------------


def with_whole_ask(deps: Deps, record: TurnRecord) -> TurnRecord:
    """The record with all that its ask shows; a large one lies in the checkpoint (one more round trip).

    Raises:
        UnreadableError: the checkpoint cannot be read.
    """
    (whole,) = _whole(deps, [record])
    if isinstance(whole, UnreadableError):
        raise whole
    return whole


def with_whole_asks(deps: Deps, records: Sequence[TurnRecord]) -> list[TurnRecord]:
    """The same for several records, of one conversation or of many; one round trip where any of them is large.

    One whose checkpoint cannot be read stays as it is: its question is asked all the same.
    """
    found = zip(_whole(deps, records), records, strict=True)
    return [record if isinstance(whole, UnreadableError) else whole for whole, record in found]


def _whole(deps: Deps, records: Sequence[TurnRecord]) -> list[TurnRecord | UnreadableError]:
    cut = [record for record in records if _is_cut(record)]
    checkpoints = iter(load_checkpoints(deps.ledger.store, cut, deps.clock.now_ms()) if cut else ())
    return [_with_pause_data(record, next(checkpoints)) if _is_cut(record) else record for record in records]


def _is_cut(record: TurnRecord) -> bool:
    return record.ask is not None and not record.ask.whole


def _with_pause_data(
    record: TurnRecord, checkpoint: dict[str, Any] | UnreadableError | None
) -> TurnRecord | UnreadableError:
    if isinstance(checkpoint, UnreadableError) or record.ask is None:
        return checkpoint if isinstance(checkpoint, UnreadableError) else record
    pause_data = (checkpoint or {}).get("pauseData")
    return replace(record, ask=replace(record.ask, pause_data=pause_data, whole=True))


def pause_data_of(deps: Deps, record: TurnRecord) -> Any:
    """What the tool passed when it asked."""
    ask = with_whole_ask(deps, record).ask
    return None if ask is None else ask.pause_data


# --- the execution that waits on it -------------------------------------------------------------------------


def start_execution(deps: Deps, record: TurnRecord) -> None:
    """Starts the execution that waits on the ask. Writes nothing; what fails here ``reconcile`` does later."""
    try:
        deps.gate.start(record)
        deps.probe("started")
    except (StoreUnavailableError, ExecutionClosedError) as error:
        deps.note("start_failed", {"turn": record.turn, "cause": type(error).__name__})


def open_again(deps: Deps, record: TurnRecord) -> None:
    """An open ask whose execution never reported is met: whoever committed it may have died before it did more.

    Tells of the ask once more, too: an event may come twice, and must not be missing.
    """
    deps.events.tell("ask.opened", record)
    start_execution(deps, record)


def wake(deps: Deps, record: TurnRecord) -> None:
    """Tells the execution that the decision is there; starts one where none waits.

    What fails here is done when the same answer comes again, or by ``reconcile``.
    """
    try:
        if record.task_token is not None and deps.gate.signal(record.task_token):
            deps.probe("signalled")
            return
        # No token, or a used one: an execution that is at work finds the decision by itself. Starting one that runs
        # does nothing, so only what is missing or closed is started here.
        ensure_execution(deps, record)
    except StoreUnavailableError as error:
        deps.note("signal_failed", {"turn": record.turn, "cause": type(error).__name__})


def ensure_execution(deps: Deps, record: TurnRecord) -> str:
    """Starts the ask's execution where there is none, under the next number where the last one has ended.

    Returns:
        ``started`` (it runs by now), ``restarted``, or ``taken``: somebody else moved the turn on.

    Raises:
        StoreUnavailableError: it could not be started now.
    """
    try:
        deps.gate.start(record)
    except ExecutionClosedError:
        return "taken" if restart(deps, record) is None else "restarted"
    deps.probe("started")
    return "started"


def restart(deps: Deps, record: TurnRecord) -> TurnRecord | None:
    """Starts the ask's execution under the next number, once, where the last one ended and its work did not.

    Returns:
        The turn under its new number; None where somebody else moved it on.
    """
    following = record.start_number + 1
    moved = deps.ledger.set_start(record, following, deps.clock.now_ms() + attention_ms(following))
    if moved is None:
        return None
    deps.probe("renumbered")
    deps.note("restarted", {"turn": record.turn})
    start_execution(deps, moved)
    return moved


def attention_ms(start_number: int) -> int:
    """When an execution of this number is looked at: later with every one that ended without doing its work."""
    return min(START_ATTENTION_MS << min(max(0, start_number - 2), 16), LONGEST_ATTENTION_MS)


# --- what an ended turn shows -------------------------------------------------------------------------------


def needs_output(record: TurnRecord) -> bool:
    """Whether a complete turn's last message lies in a segment and not in its record."""
    return record.status is Status.COMPLETE and not record.messages and bool(record.segments or record.adopted)


def load_output(deps: Deps, record: TurnRecord) -> TurnRecord:
    """The record with its last message in it, where that lies in a segment."""
    if not needs_output(record):
        return record
    messages = deps.ledger.messages_of([record])[record.turn]
    return replace(record, messages=tuple(messages[-1:]))
