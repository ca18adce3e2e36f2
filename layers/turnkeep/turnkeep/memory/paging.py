"""Cursors of memory stores: where a page ends, tied to the identity that it was made for."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Final

from turnkeep.errors import InvalidRequestError
from turnkeep.identity import identity_namespace

if TYPE_CHECKING:
    from turnkeep.memory.entries import Identity

_CURSOR_RULE: Final = "A cursor is the one that the page before handed out, for the same caller; start without one."


def write_cursor(identity: Identity, updated_at: float, tie: int | str) -> str:
    """The cursor behind an entry: its ``updatedAt``, and what orders it among those of the same moment."""
    text = json.dumps([_owner_mark(identity), updated_at, tie])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: object, identity: Identity, *, numbered: bool) -> tuple[float, int | str]:
    """Where a page goes on.

    Args:
        cursor: what a caller handed in.
        identity: whose entries are listed.
        numbered: whether this store's ties are numbers; else they are text.

    Raises:
        InvalidRequestError: it was not made by such a store for this identity.
    """
    if isinstance(cursor, str):
        try:
            text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            match json.loads(text):
                case [str(mark), int() | float() as updated_at, int() | str() as tie]:
                    if mark == _owner_mark(identity) and isinstance(tie, int) == numbered:
                        return updated_at, tie
        except (ValueError, RecursionError):  # No base64, UTF-8 or JSON: refused below like any other stranger.
            pass
    raise InvalidRequestError(_CURSOR_RULE, fields=["cursor"])


def _owner_mark(identity: Identity) -> str:
    """What ties a cursor to its identity without naming it."""
    return hashlib.sha256(identity_namespace(identity).encode()).hexdigest()[:16]
