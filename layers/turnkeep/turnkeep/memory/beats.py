"""Beats: what a turn was about, in single sentences that name the messages they come from (CONTRACT.md 8.1)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from turnkeep.json_values import is_number
from turnkeep.memory.entries import message_id
from turnkeep.messages import Message

Beat = dict[str, Any]
"""``{"summary": str, "importance": number, "refs": [str], "category"?: str}``."""

BeatExtractor = Callable[[int, Sequence[Message]], Sequence[Mapping[str, Any]]]
"""Makes beats of a turn's number and all of its messages."""

NEUTRAL_IMPORTANCE: Final = 0.5
_IDENTITY_CLAIMS: Final = ("my name is", "i'm ", "i am ")
# What the reference's language trims; Python's own idea of white space differs at both ends of the list.
_BLANKS: Final = "".join(
    map(chr, (*range(9, 14), 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF))
)


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text, trimmed; of structured content its text parts, joined with a space."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = " ".join(part for part in parts if isinstance(part, str))
    return content.strip(_BLANKS) if isinstance(content, str) else ""


def default_beats(turn: int, messages: Sequence[Message]) -> list[Beat]:
    """One beat per message that is not ``system`` and has text; ``refs`` are the messages' own positions."""
    return [
        _beat_of(message.get("role"), text, message_id(turn, index))
        for index, message in enumerate(messages)
        if message.get("role") != "system" and (text := text_of(message))
    ]


def beats_from_reply(reply: Any) -> list[Beat]:
    """The beats in a model's reply, ``{"beats": […]}`` as text or as a value; none where it does not parse.

    A beat without a summary is left out. What a model makes up never breaks the turn.
    """
    if isinstance(reply, str):
        try:
            reply = json.loads(reply)
        except (ValueError, RecursionError):
            return []
    beats = reply.get("beats") if isinstance(reply, dict) else None
    return [checked_beat(beat) for beat in beats if _has_summary(beat)] if isinstance(beats, list) else []


def checked_beat(beat: Mapping[str, Any]) -> Beat:
    """A beat of any extractor in the shape that is stored: importance in [0, 1], only what belongs there."""
    refs = beat.get("refs")
    checked: Beat = {
        "summary": str(beat.get("summary", "")),
        "importance": _importance(beat.get("importance")),
        "refs": [ref for ref in refs if isinstance(ref, str)] if isinstance(refs, list | tuple) else [],
    }
    category = beat.get("category")
    return checked | {"category": category} if isinstance(category, str) and category else checked


def _beat_of(role: object, text: str, ref: str) -> Beat:
    match role:
        case "user":
            importance, category = _weigh_user_text(text)
            beat: Beat = {"summary": f"User said: {text}", "importance": importance, "refs": [ref]}
            return beat | {"category": category} if category else beat
        case "assistant":
            return {"summary": f"Assistant replied: {text}", "importance": 0.5, "refs": [ref]}
        case "tool":
            return {"summary": f"Tool result: {text}", "importance": 0.3, "refs": [ref], "category": "tool-result"}
        case _:  # A role of a newer writer: kept, and not given to anybody.
            return {"summary": f"Noted: {text}", "importance": NEUTRAL_IMPORTANCE, "refs": [ref]}


def _weigh_user_text(text: str) -> tuple[float, str | None]:
    lowered = text.lower()
    if any(claim in lowered for claim in _IDENTITY_CLAIMS):
        return 0.9, "identity"
    return (0.75, "question") if text.endswith("?") else (0.6, None)


def _importance(value: Any) -> float:
    if not is_number(value) or (isinstance(value, float) and not math.isfinite(value)):
        return NEUTRAL_IMPORTANCE
    return cast("float", max(0, min(1, value)))


def _has_summary(beat: object) -> bool:
    return isinstance(beat, dict) and isinstance(beat.get("summary"), str) and beat["summary"] != ""
