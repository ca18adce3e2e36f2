"""Short texts about stored values that nobody can read, under one rule (CONTRACT.md 4.4).

Only a string is ever quoted, and at most 64 units of it; everything else is described.
"""

from __future__ import annotations

import json
from typing import Any, Final

from turnkeep.json_values import ABSENT, is_number, shape_of

PREVIEW_UNITS: Final = 64
PREVIEW_KEYS: Final = 8
_PRINTED_BITS: Final = 64


def preview(value: Any) -> str:
    """What is stored, for whoever may read the conversation.

    Returns:
        A string in double quotes, cut after 64 UTF-16 units (as the reference counts; a character that does not fit
        whole is left out) with its length behind it; for anything else a description such as ``number 42``,
        ``an array of 2 item(s)`` or ``an object with keys: a, b`` (at most 8 of them).
    """
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if is_number(value):
        return f"number {_number_text(value)}"
    if isinstance(value, list):
        return f"an array of {len(value)} item(s)"
    if isinstance(value, dict):
        keys = ", ".join(str(key) for key in list(value)[:PREVIEW_KEYS])
        return f"an object with keys: {keys}" if value else "an object with no keys"
    return "undefined" if value is ABSENT else shape_of(value)


def named(value: Any) -> str:
    """A short value inside a refusal's sentence, such as the format found.

    Text is quoted by the preview's rule and made printable; of a number the number, of other values the shape only.
    """
    if isinstance(value, str):
        return "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in _quoted(value)
        )
    return preview(value) if is_number(value) else shape_of(value)


def _quoted(text: str) -> str:
    units = text.encode("utf-16-le", "surrogatepass")
    length = len(units) // 2
    if length <= PREVIEW_UNITS:
        return f'"{text}"'
    start = units[: PREVIEW_UNITS * 2].decode("utf-16-le", "surrogatepass")
    if "\ud800" <= start[-1] <= "\udbff":  # the first half of a character that the cut went through
        start = start[:-1]
    return f'"{start}…" ({length} chars)'


def _number_text(number: float) -> str:
    if isinstance(number, float):
        return str(int(number)) if number.is_integer() and abs(number) < 1e21 else json.dumps(number)
    # Longer ones are exact in Python only, which refuses to print the longest.
    return str(number) if number.bit_length() <= _PRINTED_BITS else f"of {number.bit_length()} bits"
