"""The reconcile function's door: the schedule, and executions that ended abnormally."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from turnkeep.entry.machine import Step
from turnkeep.errors import InvalidRequestError
from turnkeep.usecases.reconcile import reconcile, reconcile_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnkeep.entry.observability import Observation
    from turnkeep.entry.wiring import Invocation

STATUS_CHANGE = "Step Functions Execution Status Change"


def attend(event: Mapping[str, Any], invocation: Invocation, observation: Observation) -> dict[str, Any]:
    """Does what is due: of one turn where its execution ended abnormally, of all where the schedule calls.

    Returns:
        ``{"done": {what: how many}}``.
    """
    if event.get("detail-type") == STATUS_CHANGE:
        return _execution_ended(event, invocation, observation)
    report = reconcile(invocation.deps, deadline=invocation.deadline)
    for what in report.done:
        observation.notes[what] += report.done[what]
    return {"done": report.done}


def _execution_ended(event: Mapping[str, Any], invocation: Invocation, observation: Observation) -> dict[str, Any]:
    detail = event.get("detail") or {}
    try:
        card = json.loads(detail.get("input") or "null")
        step = Step.read(card if isinstance(card, dict) else {})
    except (ValueError, InvalidRequestError):
        # An execution that somebody started by hand, or an input that the event left out: the schedule finds the turn.
        observation.tell(outcome="foreign")
        return {"done": {}}
    observation.tell(
        conversationId=step.key.conversation_id, turn=step.turn, askId=step.ask_id, status=str(detail.get("status", ""))
    )
    done = reconcile_turn(invocation.deps, step.key, step.turn, ended_abnormally=True)
    observation.tell(outcome=done)
    return {"done": {done: 1}}
