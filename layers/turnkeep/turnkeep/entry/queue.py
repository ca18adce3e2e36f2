"""The worker's door: doorbells of the queue in, the conversation's lowest queued turn run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.adapters.queue import read_doorbell
from turnkeep.errors import TurnkeepError
from turnkeep.usecases.work_queue import work_queue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnkeep.entry.observability import Observation
    from turnkeep.entry.wiring import Invocation


def take_messages(event: Mapping[str, Any], invocation: Invocation, observation: Observation) -> dict[str, Any]:
    """Answers every doorbell of a batch (one, by the template).

    Returns:
        ``{"batchItemFailures": [{"itemIdentifier"}]}``: the messages that come again. In a FIFO batch everything
        behind a failure comes again too, so that order within a conversation holds.
    """
    failures: list[dict[str, str]] = []
    for record in event.get("Records", []):
        if failures or not _take(record, invocation, observation):
            failures.append({"itemIdentifier": str(record.get("messageId", ""))})
    return {"batchItemFailures": failures}


def _take(record: Mapping[str, Any], invocation: Invocation, observation: Observation) -> bool:
    try:
        key, turn = read_doorbell(str(record.get("body", "")))
    except ValueError as error:
        # Nobody's message: it goes the way of every message that keeps failing, to the dead letters, where one looks.
        observation.refused(error, "ERR_FOREIGN_MESSAGE", is_fault=True)
        return False
    observation.tell(conversationId=key.conversation_id, turn=turn, lag_ms=_lag_ms(record, invocation))
    try:
        done = work_queue(invocation.deps, key, deadline=invocation.deadline)
    except TurnkeepError as error:
        observation.refused(error, error.code or type(error).__name__, is_fault=False)
        return False
    if done is not None:
        observation.tell(turn=done.turn, attempt=done.attempt, runId=done.run_id)
        observation.outcome(done.status.value)
    return True


def _lag_ms(record: Mapping[str, Any], invocation: Invocation) -> int:
    sent = record.get("attributes", {}).get("SentTimestamp", "0")
    return max(0, invocation.deps.clock.now_ms() - int(sent)) if str(sent).isdigit() and int(sent) else 0
