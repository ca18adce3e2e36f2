"""What of an ask leaves the house, and to whom. The only place that shapes one for a person.

Never a checkpoint, a system prompt or a tool's result: of a check-in's evidence the texts of the channels ``system``
and ``result`` stay inside, their ids and scores go out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from turnkeep.decisions import question_of

if TYPE_CHECKING:
    from turnkeep.ledger.records import Ask
    from turnkeep.usecases.deps import Caller

HIDDEN_CHANNELS: Final = frozenset({"system", "result"})
_HIDDEN_ID: Final = re.compile(r"(?:system|result)-\d+")
_KEPT_OF_HIDDEN: Final = ("id", "channel", "score")


def is_audience(ask: Ask, caller: Caller) -> bool:
    """Whether a caller who may open the conversation is also the one who answers.

    Its owner answers what is for the owner, and nothing that is for a role. An anonymous caller, who can only open what
    nobody owns, answers either.
    """
    return ask.audience == "owner" or caller.principal is None


def ask_view(ask: Ask, *, to_audience: bool) -> dict[str, Any]:
    """API.md's ASK.

    Args:
        ask: the open ask.
        to_audience: whether the reader may answer it; others see only that it is there.

    Returns:
        ``{"askId", "question"?, "tool"?, "audience", "askedAt", "expiresAt"}``, times in milliseconds, and to the
        audience also ``"checkIn"?, "ask"?, "component"?, "pauseData"``.
    """
    pending = ask.pending
    view: dict[str, Any] = {"askId": ask.ask_id}
    if (question := question_of(pending)) is not None:
        view["question"] = question
    if isinstance(pending.get("tool"), str):
        view["tool"] = pending["tool"]
    view |= {"audience": ask.audience, "askedAt": ask.asked_at_ms, "expiresAt": ask.expires_at_ms}
    if not to_audience:
        return view
    if "checkIn" in pending:
        view["checkIn"] = _without_texts(pending["checkIn"])
    for name in ("ask", "component"):
        if name in pending:
            view[name] = pending[name]
    pause_data = pending.get("pauseData")
    if isinstance(pause_data, dict) and "checkIn" in pause_data:
        pause_data = {**pause_data, "checkIn": _without_texts(pause_data["checkIn"])}
    view["pauseData"] = pause_data
    return view


def _without_texts(check_in: Any) -> Any:
    if isinstance(check_in, dict) and "evidence" in check_in:
        return {**check_in, "evidence": redacted_evidence(check_in["evidence"])}
    return check_in


def redacted_evidence(evidence: Any) -> Any:
    """Evidence without what the system prompt and the tools said. A copy; the original is not touched.

    An entry belongs to a channel by its ``channel``, or by an id such as ``result-2`` where it names none. An evidence
    assembler of somebody's own may nest entries where it likes.
    """
    if isinstance(evidence, list):
        return [redacted_evidence(inner) for inner in evidence]
    if not isinstance(evidence, dict):
        return evidence
    if _is_hidden(evidence):
        return {name: evidence[name] for name in _KEPT_OF_HIDDEN if name in evidence}
    return {name: redacted_evidence(inner) for name, inner in evidence.items()}


def _is_hidden(entry: dict[str, Any]) -> bool:
    channel, entry_id = entry.get("channel"), entry.get("id")
    if isinstance(channel, str):
        return channel in HIDDEN_CHANNELS
    return isinstance(entry_id, str) and _HIDDEN_ID.fullmatch(entry_id) is not None
