"""From a tool's value to the text that a model reads and the ledger keeps (CONTRACT.md 1).

A string stays as it is, anything else becomes compact JSON. What JSON cannot keep exactly is refused with the path to
the value, at the tool, before anything is stored: nothing is rounded, dropped or turned into ``null`` on the way.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from turnkeep.errors import UnstorableValueError

NO_VALUE = "(no value)"
"""What a model reads where a tool returned None: the fixed placeholder for an absent value."""

MAX_DEPTH = 100
"""Levels of lists and objects in a result; deeper ones (and those that contain themselves) are refused."""

MAX_INTEGER_BITS = 13_000
"""About 3,900 digits: Python refuses to read longer integers back from JSON."""


def result_text(value: Any, *, at: str = "result") -> str:
    """The text of a tool's result; None is the placeholder of an absent value.

    Raises:
        UnstorableValueError: names the path of a value that JSON cannot keep exactly.
    """
    return NO_VALUE if value is None else value_text(value, at=at)


def value_text(value: Any, *, at: str = "value") -> str:
    """The text of any value that is present: a string as it is, else compact JSON (None is ``null``).

    Raises:
        UnstorableValueError: names the path of a value that JSON cannot keep exactly.
    """
    plain = plain_json(value, at=at)
    return plain if isinstance(plain, str) else compact_json(plain)


def compact_json(value: Any) -> str:
    """Compact JSON of a plain value, non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def plain_json(value: Any, *, at: str, depth: int = 0) -> Any:
    """A copy of a value made of dict, list, str, int, float, bool and None only.

    Pydantic models and dataclasses become the objects that they declare; tuples become lists.

    Raises:
        UnstorableValueError: names the path of a value that JSON cannot keep exactly.
    """
    if depth > MAX_DEPTH:
        raise UnstorableValueError(path=_short(at), reason=f"nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, int, float)):
        return _plain_scalar(value, at)
    if isinstance(value, BaseModel):
        return plain_json(value.model_dump(mode="json", by_alias=True), at=at, depth=depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: plain_json(getattr(value, name), at=f"{at}.{name}", depth=depth + 1) for name in names}
    if isinstance(value, Mapping):
        return {_plain_key(key, at): plain_json(item, at=f"{at}.{key}", depth=depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item, at=f"{at}[{index}]", depth=depth + 1) for index, item in enumerate(value)]
    raise UnstorableValueError(path=_short(at), reason=f"{type(value).__name__} is no JSON value")


def _plain_scalar(value: str | int | float, at: str) -> str | int | float:
    if isinstance(value, str):
        text = str.__str__(value)  # a str enum is its text
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise UnstorableValueError(path=_short(at), reason="a lone surrogate, which is no Unicode text")
        return text
    if isinstance(value, int):
        if value.bit_length() > MAX_INTEGER_BITS:
            raise UnstorableValueError(path=_short(at), reason="an integer with too many digits")
        return int(value)
    if not math.isfinite(value):
        raise UnstorableValueError(path=_short(at), reason="not a finite number")
    return float(value)


def _plain_key(key: Any, at: str) -> str:
    if not isinstance(key, str):
        raise UnstorableValueError(path=_short(at), reason=f"a key of type {type(key).__name__}; JSON keys are text")
    text = _plain_scalar(key, f"{at} (a key)")
    return str(text)


def _short(path: str) -> str:
    """A path that fits a message: its head and tail, with lone surrogates replaced."""
    clean = path.encode("utf-8", "replace").decode("utf-8")
    return clean if len(clean) <= 200 else f"{clean[:120]}…{clean[-70:]}"
