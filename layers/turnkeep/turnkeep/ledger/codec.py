"""JSON text in the ledger: what goes in comes out to the last digit, or is refused before anything is written.

Values are kept as compact JSON text, and as zlib bytes where that is smaller. Python's own JSON writes floats by their
shortest exact text and integers of any size, so both survive; DynamoDB's numbers would not keep them.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any

from turnkeep.errors import UnstorableValueError

MAX_DEPTH = 200
"""Deeper values are refused: every reader behind us recurses, and Python stops at about a thousand."""

MAX_INTEGER_BITS = 13_000
"""Just under the 4,300 digits at which Python refuses to turn text into a number."""

MIN_COMPRESS_BYTES = 120
"""Shorter texts never get smaller by zlib's own overhead; trying would cost time for nothing."""


def to_text(value: Any, *, name: str = "value") -> str:
    """The value as compact JSON text.

    Args:
        value: JSON: dict with text keys, list, str, int, finite float, bool, None. Nothing else, no subclasses' extras.
        name: what the value is called in an error's path.

    Raises:
        UnstorableValueError: with the path to what JSON or UTF-8 cannot keep exactly.
    """
    _check(value, name)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnstorableValueError(path=_surrogate_path(value, name), reason="a lone surrogate") from error
    return text


def pack_text(text: str) -> str | bytes:
    """The text itself, or its zlib bytes where those are smaller."""
    raw = text.encode()
    if len(raw) < MIN_COMPRESS_BYTES:
        return text
    small = zlib.compress(raw, 9)
    return small if len(small) < len(raw) else text


def pack(value: Any, *, name: str = "value") -> str | bytes:
    """``to_text`` and ``pack_text`` in one."""
    return pack_text(to_text(value, name=name))


def unpack_text(stored: object) -> str:
    """The JSON text behind a stored value.

    Raises:
        ValueError: the value is nobody's: truncated or foreign bytes, a number.
    """
    if isinstance(stored, str):
        return stored
    if isinstance(stored, bytes):
        expand = zlib.decompressobj()
        try:
            raw = expand.decompress(stored)
        except zlib.error as error:
            raise ValueError("bytes that do not decompress") from error
        if not expand.eof or expand.unused_data:
            raise ValueError("compressed bytes that were cut or extended")
        return raw.decode()
    raise ValueError("neither text nor bytes")


def unpack(stored: object) -> Any:
    """The value behind a stored one.

    Raises:
        ValueError: it cannot be read (a ``json.JSONDecodeError`` or a ``UnicodeDecodeError`` is one too).
    """
    try:
        return json.loads(unpack_text(stored), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError("NaN or Infinity, which JSON does not have")


def _check(value: Any, name: str) -> None:
    """Walks the value without recursion; the stack holds paths, so that an error can name the place."""
    stack: list[tuple[Any, str, int]] = [(value, name, 1)]
    while stack:
        one, path, depth = stack.pop()
        kind = type(one)
        if kind is str or kind is bool or one is None:
            continue
        if kind is int:
            if one.bit_length() > MAX_INTEGER_BITS:
                raise UnstorableValueError(path=path, reason="an integer of more than four thousand digits")
            continue
        if kind is float:
            if not math.isfinite(one):
                raise UnstorableValueError(path=path, reason="not a finite number")
        elif kind is dict or kind is list:
            if depth > MAX_DEPTH:
                raise UnstorableValueError(path=name, reason=f"nested deeper than {MAX_DEPTH} levels")
            if kind is list:
                stack.extend((inner, f"{path}[{index}]", depth + 1) for index, inner in enumerate(one))
                continue
            for key, inner in one.items():
                if type(key) is not str:
                    raise UnstorableValueError(path=path, reason=f"a key of type {type(key).__name__}, not text")
                stack.append((inner, f"{path}.{key}", depth + 1))
        else:
            raise UnstorableValueError(path=path, reason=f"of type {kind.__name__}, which JSON does not have")


def _surrogate_path(value: Any, name: str) -> str:
    stack: list[tuple[Any, str]] = [(value, name)]
    while stack:
        one, path = stack.pop()
        if isinstance(one, str) and not _encodes(one):
            return path
        if isinstance(one, list):
            stack.extend((inner, f"{path}[{index}]") for index, inner in enumerate(one))
        elif isinstance(one, dict):
            if not all(_encodes(key) for key in one):
                return path
            stack.extend((inner, f"{path}.{key}") for key, inner in one.items())
    return name


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
