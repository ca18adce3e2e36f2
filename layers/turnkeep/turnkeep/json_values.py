"""Words about JSON values: what is there, and what shape it has, never what it says.

JSON's ``null`` is Python's ``None``, and ``null`` is a decision, so "no value at all" needs a name of its own:
``ABSENT``. A boolean is no number here, though Python makes it one.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final


class Absent(Enum):
    """The type of ``ABSENT``; it has one member, so a type checker can tell it from every JSON value."""

    ABSENT = "absent"

    def __bool__(self) -> bool:
        """False, as a value that is not there should be."""
        return False

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT


def is_number(value: Any) -> bool:
    """Whether this is a JSON number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shape_of(value: Any) -> str:
    """What kind of value this is, in words that repeat nothing of it.

    Returns:
        ``nothing`` (absent), ``null``, ``a boolean``, ``a number``, ``a string``, ``an array`` or ``an object``.
    """
    if value is ABSENT:
        return "nothing"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if is_number(value):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values say the same, key order aside: ``1`` is not ``true``, as it is to Python's ``==``."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
