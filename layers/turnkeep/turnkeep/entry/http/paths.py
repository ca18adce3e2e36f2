"""Paths: ids in them, and where a thing is to be found."""

from __future__ import annotations

import re
from typing import Final

from turnkeep.errors import InvalidRequestError
from turnkeep.ids import parse_path_id, path_form

__all__ = ["conversation_location", "parse_path_id", "parse_path_turn", "path_form", "turn_location"]

_TURN: Final = re.compile(r"[1-9][0-9]{0,14}")


def parse_path_turn(segment: str) -> int:
    """The turn that a path's segment names.

    Raises:
        InvalidRequestError: no whole number from 1 on, written plainly.
    """
    if not _TURN.fullmatch(segment):
        raise InvalidRequestError(
            "A turn stands in a path as a whole number from 1 on, without sign or leading zeros.", fields=["path.n"]
        )
    return int(segment)


def conversation_location(conversation_id: str) -> str:
    """The path of a conversation, for ``Location``."""
    return f"/conversations/{path_form(conversation_id)}"


def turn_location(conversation_id: str, turn: int) -> str:
    """The path of a turn, for ``Location``."""
    return f"{conversation_location(conversation_id)}/turns/{turn}"
