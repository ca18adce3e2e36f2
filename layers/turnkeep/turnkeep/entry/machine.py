"""The resume function's door: payloads of every released ``PausedRun`` definition in, how the turn stands out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnkeep.errors import InvalidRequestError, TurnkeepError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.usecases.resume_turn import Resumed, expire_ask, fail_resume, resume_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnkeep.entry.observability import Observation
    from turnkeep.entry.wiring import Invocation

GONE = "gone"
"""How a turn stands that is not there any more: erased, or expired."""


@dataclass(frozen=True)
class Step:
    """What the state machine asks for: ``resume``, ``expire`` or ``failed``, of one ask of one turn."""

    action: str
    key: ConversationKey
    turn: int
    ask_id: str

    @classmethod
    def read(cls, payload: Mapping[str, Any]) -> Step:
        """The step that a payload names; what later definitions add is ignored.

        Raises:
            InvalidRequestError: the payload is of no released definition.
        """
        action, ask_id, turn = payload.get("action", "resume"), payload.get("askId"), payload.get("turn")
        conversation_id, tenant = payload.get("conversationId"), payload.get("tenant")
        if action not in ("resume", "expire", "failed"):
            raise InvalidRequestError("action is resume, expire or failed.", fields=["action"])
        if not isinstance(ask_id, str) or not isinstance(conversation_id, str) or not conversation_id:
            raise InvalidRequestError("A step names a conversation and an ask.", fields=["conversationId", "askId"])
        if isinstance(turn, bool) or not isinstance(turn, int | float) or turn != int(turn):
            raise InvalidRequestError("turn is a whole number.", fields=["turn"])
        key = ConversationKey(conversation_id, tenant if isinstance(tenant, str) else None)
        return cls(action, key, int(turn), ask_id)


def take_step(payload: Mapping[str, Any], invocation: Invocation, observation: Observation) -> dict[str, Any]:
    """Does what the state machine asks for.

    Returns:
        ``{"status"}``; where the turn asks again also the card of the new ask (``adapters.step_functions.ask_card``).

    Raises:
        LeaseHeldError, StoreUnavailableError: try again later; the definition retries both by name.
    """
    step = Step.read(payload)
    observation.tell(action=step.action, conversationId=step.key.conversation_id, turn=step.turn, askId=step.ask_id)
    try:
        done = _do(step, invocation)
    except TurnkeepError as error:
        observation.refused(error, error.code or type(error).__name__, is_fault=False)
        raise
    return _told(done, observation)


def _do(step: Step, invocation: Invocation) -> Resumed:
    deps = invocation.deps
    if step.action == "resume":
        return resume_turn(deps, step.key, step.turn, step.ask_id, deadline=invocation.deadline)
    if step.action == "expire":
        return expire_ask(deps, step.key, step.turn, step.ask_id)
    return fail_resume(deps, step.key, step.turn, step.ask_id)


def _told(done: Resumed, observation: Observation) -> dict[str, Any]:
    record = done.record
    if record is None:
        observation.outcome(GONE)
        return {"status": GONE}
    observation.tell(attempt=record.attempt, runId=record.run_id)
    observation.outcome(record.status.value)
    if not done.asks_again:
        return {"status": record.status.value}
    from turnkeep.adapters.step_functions import ask_card

    # Also of an ask that was answered within the moment: the machine learns that from AwaitAnswer, as it always does.
    return {**ask_card(record), "status": Status.AWAITING.value}
