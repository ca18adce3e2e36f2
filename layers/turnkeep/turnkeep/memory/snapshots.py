"""Snapshots: one turn's question, answer and what led to it, to be found again by a like question (CONTRACT.md 8.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnkeep.json_values import ABSENT, is_number
from turnkeep.ledger.codec import to_text
from turnkeep.memory.beats import text_of
from turnkeep.memory.entries import Identity, place_of
from turnkeep.turns import TurnStore, max_stored_turn, normalize_host_turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnkeep.messages import Message

MAX_PREVIEW_CHARS: Final = 200
MAX_SERIALISED_CHARS: Final = 2000
UNKNOWN_EMBEDDER: Final = "unknown-embedder"


def snapshot_turn(store: TurnStore, identity: Identity, host_turn: Any = ABSENT) -> int:
    """The turn of the next snapshot in a store that nobody resolved the turn for: past all live ``snap-`` ids.

    A run whose turn is claimed does not need this: its snapshot takes the turn's own number, so that writing it
    again writes the same one.
    """
    return max(normalize_host_turn(host_turn), max_stored_turn(store, identity, turn_for=_turn_in_id) + 1)


def snapshot_value(messages: Sequence[Message], evidence: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """What a snapshot holds; None where there is nothing to ask for: no first user message, or an empty one.

    The answer is the first assistant message that only answers: the writers get all messages of the turn, those that
    call tools too (CONTRACT.md 17.13).

    Args:
        messages: all of the turn.
        evidence: ``{"iterations"?, "decisions"?, "toolCalls"?, "durationMs"?, "tokenUsage"?, "narrative"?,
            "evalScore"?}``; long parts are cut.

    Raises:
        UnstorableValueError: a decision's evidence or a call's arguments are no JSON.
    """
    query = next((_words(message) for message in messages if message.get("role") == "user"), "")
    if not query:
        return None
    answers = (_words(m) for m in messages if m.get("role") == "assistant" and not m.get("toolCalls"))
    known = evidence or {}
    usage = known.get("tokenUsage") or {}
    value: dict[str, Any] = {
        "query": query,
        "finalContent": next(answers, ""),
        "iterations": _count(known.get("iterations")),
        "decisions": [_decision(decision) for decision in known.get("decisions") or []],
        "toolCalls": [_tool_call(call) for call in known.get("toolCalls") or []],
        "durationMs": _count(known.get("durationMs")),
        "tokenUsage": {"input": _count(usage.get("input")), "output": _count(usage.get("output"))},
    }
    return value | {key: known[key] for key in ("narrative", "evalScore") if known.get(key) is not None}


def _decision(decision: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: decision[key] for key in ("stageId", "chosen", "rule") if key in decision}
    if "evidence" in decision:
        kept["evidence"] = _bounded(decision["evidence"], "decisions.evidence")
    return kept


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    result = call.get("resultPreview", "")
    preview = result if isinstance(result, str) else to_text(result, name="toolCalls.resultPreview")
    return {
        "name": call.get("name", ""),
        "args": _bounded(call.get("args", {}), "toolCalls.args"),
        "resultPreview": _cut(preview, MAX_PREVIEW_CHARS),
        "errored": bool(call.get("errored", False)),
    }


def _bounded(value: Any, name: str) -> Any:
    text = to_text(value, name=name)
    return value if len(text) <= MAX_SERIALISED_CHARS else {"__truncated": _cut(text, MAX_SERIALISED_CHARS)}


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"


def _words(message: Message) -> str:
    """A text as it is; only structured content is put together."""
    content = message.get("content")
    return content if isinstance(content, str) else text_of(message)


def _count(value: Any) -> Any:
    return value if is_number(value) else 0


def _turn_in_id(entry: Mapping[str, Any]) -> int:
    place = place_of(entry.get("id"))
    return place.turn if place is not None and place.kind == "snap" else 0
