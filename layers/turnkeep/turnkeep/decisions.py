"""Asks and the decisions that answer them: who has to decide what, and whether an answer fits (CONTRACT.md 5).

A pause carries its facts in ``pauseData``, whatever the tool put there. A *gate* is a pause that only a decision
answers: a tool's check-in, or a middleware's ask. Any other pause takes any value.
"""

from __future__ import annotations

from typing import Any, Final

from turnkeep.errors import (
    DecisionRequiredError,
    InvalidAskComponentError,
    PauseAnswerRequiredError,
    StaleDecisionError,
)
from turnkeep.json_values import ABSENT, Absent, shape_of

JsonObject = dict[str, Any]

NOT_A_DECISION: Final = "an object that is not a CheckInDecision"
"""The shape of an object that came where a decision was wanted, in the reference's words."""


# --- decisions ----------------------------------------------------------------------------------------------


def approved(by: str, note: str | None = None, value: Any = ABSENT, *, now_ms: int) -> JsonObject:
    """The decision that lets the gate's call run.

    Args:
        by: who decides, in their own word; who is believed is the verified caller, recorded beside it.
        note: for the record and, with a decline, for the model; an empty one is left out.
        value: what was chosen: ``{"kind", "value", "from"?, "coverage"?}``; left out when absent.
        now_ms: the time of the decision, milliseconds since the Unix epoch.
    """
    return _decision(True, by, note, value, now_ms)


def declined(by: str, note: str | None = None, value: Any = ABSENT, *, now_ms: int) -> JsonObject:
    """The decision that the gate's call does not run. Arguments as ``approved`` takes them."""
    return _decision(False, by, note, value, now_ms)


def _decision(verdict: bool, by: str, note: str | None, value: Any, now_ms: int) -> JsonObject:
    decision: JsonObject = {"approved": verdict, "by": by, "at": now_ms}
    if note:
        decision["note"] = note
    if value is not ABSENT:
        decision["value"] = value
    return decision


def is_decision(value: Any) -> bool:
    """Whether this is a decision: an object with a boolean ``approved`` and a string ``by``, which may be empty."""
    return isinstance(value, dict) and isinstance(value.get("approved"), bool) and isinstance(value.get("by"), str)


def received_shape(value: Any) -> str:
    """What came where a decision was wanted: its shape in words, never its content."""
    return NOT_A_DECISION if shape_of(value) == "an object" else shape_of(value)


# --- asks ---------------------------------------------------------------------------------------------------


def gate_of(pause_data: Any) -> dict[str, str] | None:
    """Which gate a pause is; None for a plain ask, which any value answers.

    Returns:
        ``{"kind": "checkIn" or "ask", "toolName"?, "middleware"?}``. A check-in wins where both are there.
    """
    if not isinstance(pause_data, dict):
        return None
    ask = pause_data.get("ask")
    if isinstance(pause_data.get("checkIn"), dict | list):
        gate = {"kind": "checkIn"}
    elif isinstance(ask, dict | list):
        gate = {"kind": "ask"}
    else:
        return None
    if isinstance(pause_data.get("toolName"), str):
        gate["toolName"] = pause_data["toolName"]
    if gate["kind"] == "ask" and isinstance(ask, dict) and isinstance(ask.get("middleware"), str):
        gate["middleware"] = ask["middleware"]
    return gate


def component_of(pause_data: Any) -> JsonObject | None:
    """The component a pause nominates to be shown with its ask; None where it names none that could be.

    The first that is not null of the pause's own, its check-in's and its ask's is the one that counts, also when it
    is no component.
    """
    places = (pause_data, _get(pause_data, "checkIn"), _get(pause_data, "ask"))
    nominated = next((found for place in places if (found := _get(place, "component")) is not None), None)
    component_id = _get(nominated, "componentId")
    return nominated if isinstance(nominated, dict) and isinstance(component_id, str) and component_id else None


def assert_component(component: Any, door: str) -> None:
    """Refuses a component that nothing could show, at the moment the ask is raised.

    Args:
        component: what the ask nominates.
        door: who raises the ask, in the program's own words, for the refusal.

    Raises:
        InvalidAskComponentError: reason ``shape``: no object, no ``componentId`` with a character that shows,
            ``props`` that are no object, or an empty ``propsRef``.
    """
    sound = (
        isinstance(component, dict)
        and isinstance(component.get("componentId"), str)
        and component["componentId"].strip() != ""
        and isinstance(component.get("props", {}), dict)
        and isinstance(component.get("propsRef", "absent"), str)
        and component.get("propsRef", "absent") != ""
    )
    if not sound:
        raise InvalidAskComponentError(reason="shape", door=door)


def pending_ask(pause_data: Any, session_id: str | None = None) -> JsonObject:
    """What may be shown of an ask to its audience (CONTRACT.md 5.2). It never carries a checkpoint.

    Args:
        pause_data: what the tool passed; handed on uninterpreted, not copied.
        session_id: the conversation's id, left out when None.

    Returns:
        ``{"sessionId"?, "tool"?, "question"?, "checkIn"? or "ask"?, "component"?, "pauseData"}``.
    """
    pending: JsonObject = {} if session_id is None else {"sessionId": session_id}
    if isinstance(tool := _get(pause_data, "toolName"), str):
        pending["tool"] = tool
    if isinstance(question := _get(pause_data, "question"), str):
        pending["question"] = question
    if gate := gate_of(pause_data):
        pending[gate["kind"]] = pause_data[gate["kind"]]
    if component := component_of(pause_data):
        pending["component"] = component
    pending["pauseData"] = pause_data
    return pending


def question_of(pending: Any) -> str | None:
    """An ask's question in one line: its question, else its ``ask``'s, else what its check-in will do.

    Returns:
        None where the ask says none of these in words. Empty texts are passed over.
    """
    check_in = _get(pending, "checkIn")
    candidates = (
        _get(pending, "question"),
        _get(_get(pending, "ask"), "question"),
        _get(_get(check_in, "evidence"), "willDo"),
        _get(check_in, "willDo"),
    )
    return next((text for text in candidates if isinstance(text, str) and text), None)


# --- whether an answer fits its ask -------------------------------------------------------------------------


def staleness(pause_data: Any, answer: Any) -> None:
    """Refuses an answer that chose from something other than what the ask showed.

    Only an ask whose component pinned a ``propsRef`` and an answer whose value says ``from`` can disagree.

    Raises:
        StaleDecisionError: they differ; ``asked`` and ``answered`` are the two references.
    """
    asked = _get(component_of(pause_data), "propsRef")
    answered = _get(_get(answer, "value"), "from")
    if asked is not None and answered is not None and asked != answered:
        raise StaleDecisionError(asked=asked, answered=answered)


def check_answer(pause_data: Any, decision: Any | Absent) -> None:
    """Judges an answer before anything runs, in the order of CONTRACT.md 5.6; returns when it fits.

    Args:
        pause_data: of the pause that is answered.
        decision: the answer; ``ABSENT`` for none at all, while None is JSON's ``null`` and a value.

    Raises:
        DecisionRequiredError: the pause is a gate and this is no decision. It names the shape that came.
        PauseAnswerRequiredError: the pause is a plain ask and there is no answer at all.
        StaleDecisionError: the answer chose from something other than what the ask showed.
    """
    gate = gate_of(pause_data)
    if gate is not None and not is_decision(decision):
        raise DecisionRequiredError(
            gate=gate["kind"],
            tool_name=gate.get("toolName"),
            middleware=gate.get("middleware"),
            received=received_shape(decision),
        )
    if gate is None and decision is ABSENT:
        raise PauseAnswerRequiredError(
            tool_name=_text(_get(pause_data, "toolName")), tool_call_id=_text(_get(pause_data, "toolCallId"))
        )
    staleness(pause_data, decision)


def _get(holder: Any, key: str) -> Any:
    return holder.get(key) if isinstance(holder, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
