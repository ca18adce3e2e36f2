"""JSON text in the ledger: what goes in comes out to the last digit, or is refused before anything is written.

Values are kept as compact JSON text, and deflated where that is smaller. Python's own JSON writes floats by their
shortest exact text and integers of any size, so both survive; DynamoDB's numbers would not keep them.

Bytes begin with one that names the dictionary they were deflated with. A dictionary is what a text is likely
to repeat: words of our own JSON, and where a text stands behind another one (an answer behind its question), that one.
So a short text gets smaller too, and a written kilobyte is a unit of money.
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

MIN_DEFLATE_BYTES = 24
"""Shorter texts hardly ever get smaller; trying would cost time for nothing."""

BEST_LEVEL, FAST_LEVEL = 9, 6
BEST_UP_TO_BYTES = 64_000
"""Above this the last percent costs more time than it saves."""

DICTIONARY_1 = (
    b"The of and to in that is was for with you are this have not be on it at by from or an your we can will please "
    b'"failurePoint":{"isError":true,"approved":true,"by":"at":,"note":"rerun":"possible"errorERR_RUN_FAILED'
    b'"notListed":{"firstTurn":1,"lastTurn":"result":""args":{},"cut":"stopReason":"tool_use",'
    b'"role":"tool","toolCallId":"call-1","toolName":"","toolCalls":[{"id":"call-1","name":"'
    b'"}],"usage":{"inputTokens":1,"outputTokens":1},"evidence":{"modelCalls":[{"iteration":1,"usage":{"inputTokens":1,'
    b'"outputTokens":1},"stopReason":"end_turn","durationMs":1,"message":"msg-1-1"}],"toolCalls":[],"system":{"name":'
    b'"system","sha256":"","characters":1},"agent":{"id":"","version":"1"},"window":{"turns":1,"messages":1,'
    b'"leftOut":{"turns":0,"messages":0}}},"agentId":"","agentVersion":"1","iteration":1}'
    b'[{"role":"assistant","content":"{"messages":[{"role":"assistant","content":"{"role":"user","content":"'
)
"""Never changed: what was written with it is read with it. Another one gets another mark."""

_PLAIN, _MARK_1 = b"\x00", b"\x01"
_RAW_DEFLATE = -15


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


def pack_text(text: str, *, behind: str = "") -> str | bytes:
    """The text itself, or its deflated bytes where those are smaller.

    Args:
        text: what is to be kept.
        behind: a text that stands in front of it and that its reader will have read by then.
    """
    raw = text.encode()
    if len(raw) < MIN_DEFLATE_BYTES:
        return text
    dictionary = DICTIONARY_1 + behind.encode()
    if len(raw) > BEST_UP_TO_BYTES:
        small = _deflated(raw, dictionary, FAST_LEVEL, zlib.Z_DEFAULT_STRATEGY)
    else:
        # What repeats itself and what does not want to be treated differently, and nobody knows before.
        ways = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED)
        small = min((_deflated(raw, dictionary, BEST_LEVEL, way) for way in ways), key=len)
    return small if len(small) < len(raw) else text


def _deflated(raw: bytes, dictionary: bytes, level: int, strategy: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, _RAW_DEFLATE, 9, strategy, zdict=dictionary)
    return _MARK_1 + deflate.compress(raw) + deflate.flush()


def pack_bytes(text: str) -> bytes:
    """The text as bytes that may be cut into parts: deflated where that is smaller, else as it is behind a mark."""
    packed = pack_text(text)
    return packed if isinstance(packed, bytes) else _PLAIN + packed.encode()


def pack(value: Any, *, name: str = "value") -> str | bytes:
    """``to_text`` and ``pack_text`` in one."""
    return pack_text(to_text(value, name=name))


def size_of(packed: str | bytes) -> int:
    """The bytes that a packed value takes in an item."""
    return len(packed if isinstance(packed, bytes) else packed.encode())


def unpack_text(stored: object, *, behind: str = "") -> str:
    """The JSON text behind a stored value.

    Raises:
        ValueError: the value is nobody's: truncated or foreign bytes, a number.
    """
    if isinstance(stored, str):
        return stored
    if not isinstance(stored, bytes):
        raise ValueError("neither text nor bytes")
    if stored[:1] == _PLAIN:
        return stored[1:].decode()
    if stored[:1] != _MARK_1:
        raise ValueError("bytes that were not written here, or by a newer release")
    inflate = zlib.decompressobj(_RAW_DEFLATE, zdict=DICTIONARY_1 + behind.encode())
    try:
        raw = inflate.decompress(stored[1:])
    except zlib.error as error:
        raise ValueError("bytes that do not inflate") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError("deflated bytes that were cut or extended")
    return raw.decode()


def unpack(stored: object, *, behind: str = "") -> Any:
    """The value behind a stored one.

    Raises:
        ValueError: it cannot be read (a ``json.JSONDecodeError`` or a ``UnicodeDecodeError`` is one too).
    """
    return from_text(unpack_text(stored, behind=behind))


def from_text(text: str) -> Any:
    """The value that a JSON text says.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
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
