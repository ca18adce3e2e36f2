"""Bodies as JSON, strictly: what two readers could understand differently is refused before anything looks at it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, Final

from turnkeep.errors import InvalidRequestError

MAX_NESTING: Final = 200
"""Levels of arrays and objects in a body; the ledger keeps no deeper value (``ledger.codec.MAX_DEPTH``)."""

_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_NUMBER: Final = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")


def parse_body(text: str) -> dict[str, Any]:
    """A body's object.

    Raises:
        InvalidRequestError: not JSON, no object, a key twice, NaN or an infinity (``1e999`` is one), nested deeper than
            ``MAX_NESTING``, an integer of more than 4,300 digits, or text that is not Unicode (a lone surrogate). The
            sentence says which and repeats nothing of the body.
    """
    _refuse_deep(text)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite_float)
    except RecursionError as error:  # cannot happen below MAX_NESTING; a second line of defence
        raise _deep() from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError("The body is not JSON; send one JSON object in UTF-8.", fields=["body"]) from error
    except ValueError as error:  # int() of more digits than Python converts
        raise InvalidRequestError(
            "The body holds an integer of more than 4,300 digits; send it as text.", fields=["body"]
        ) from error
    if not isinstance(value, dict):
        raise InvalidRequestError("The body is no JSON object; send one.", fields=["body"])
    return value


def refuse_lone_surrogates(text: str, value: dict[str, Any]) -> None:
    """Refuses text that no UTF-8 can carry, in keys and values of a parsed body.

    Args:
        text: the body as it came; most bodies need no second look.
        value: the same, parsed.

    Raises:
        InvalidRequestError: names the top-level field at fault.
    """
    if not _SURROGATE_ESCAPE.search(text) and _is_unicode(text):
        return
    for name, inner in value.items():
        if not _is_unicode(name):
            raise InvalidRequestError(f"A field's name {_NOT_UNICODE}", fields=["body"])
        if not _is_unicode(json.dumps(inner, ensure_ascii=False)):
            raise InvalidRequestError(f"The field {_NOT_UNICODE}", fields=[name[:64]])


def body_digest(route: str, text: str) -> str:
    """A digest that two bodies share exactly when they are equal as JSON, on one route.

    The order of keys, white space, escapes and the ways to write a number (``1``, ``1.0``, ``10e-1``) make no
    difference; numbers are compared as they are written, not as a float keeps them.

    Args:
        route: the route's template, such as ``POST /conversations/{id}/turns``.
        text: a body that ``parse_body`` took; empty for a request without one.
    """
    value = json.loads(text, parse_int=_Number, parse_float=_Number) if text else None
    return hashlib.sha256(f"{route}\n{_canonical(value)}".encode()).hexdigest()


# --- parsing ------------------------------------------------------------------------------------------------

_NOT_UNICODE: Final = "holds a lone surrogate, which is no Unicode text; send whole characters."


def _deep() -> InvalidRequestError:
    return InvalidRequestError(f"The body is nested deeper than {MAX_NESTING} levels.", fields=["body"])


def _refuse_deep(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_NESTING:
        return
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        mark = match.group()
        if mark in "[{":
            depth += 1
            if depth > MAX_NESTING:
                raise _deep()
        elif mark in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequestError("An object in the body has a key twice; send each key once.", fields=["body"])
    return found


def _refuse_constant(text: str) -> Any:
    raise InvalidRequestError("The body holds NaN or an infinity, which JSON does not have.", fields=["body"])


def _finite_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_constant(text)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- comparing ----------------------------------------------------------------------------------------------


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _canonical(value: Any) -> str:
    if isinstance(value, _Number):
        return _canonical_number(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return json.dumps(value)


def _canonical_number(text: str) -> str:
    match = _NUMBER.fullmatch(text)
    if match is None:  # a JSON parser has read it as a number already
        raise ValueError("not a JSON number")
    sign, whole, fraction, exponent = match.group(1), match.group(2), match.group(3) or "", match.group(4) or "0"
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    short = digits.rstrip("0")
    # Exponents of more digits than Python converts are beyond every number that a body may hold, but for tiny ones.
    power = int(exponent[:64]) - len(fraction) + len(digits) - len(short)
    return f"{sign}{short}e{power}"
