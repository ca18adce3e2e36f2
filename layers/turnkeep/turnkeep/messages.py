"""Messages: the shape of CONTRACT.md 1, and what of them a reader is shown.

A message is a JSON object, never a class: what an older or a newer writer put into it survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Message = dict[str, Any]


def is_shown(message: object) -> bool:
    """Whether a transcript shows the message: user or assistant, with text that is not empty (CONTRACT.md 4.5)."""
    if not isinstance(message, dict):
        return False
    content = message.get("content")
    return message.get("role") in ("user", "assistant") and isinstance(content, str) and content != ""


def shown_count(messages: Iterable[object]) -> int:
    """How many of the messages a transcript shows."""
    return sum(1 for message in messages if is_shown(message))
