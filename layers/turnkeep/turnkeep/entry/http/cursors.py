"""Cursors: opaque to callers, valid for the caller and the listing they were made for, and for nothing else.

A cursor holds only a position (numbers, a conversation's id), never a key: keys are built anew from the verified
caller, so a cursor that somebody forges reaches nothing but a place in the forger's own listing.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from turnkeep.errors import InvalidRequestError
from turnkeep.ids import from_base64url, to_base64url

_SEAL_BYTES: Final = 12
_MAX_CURSOR_CHARACTERS: Final = 8_192
CURSOR_RULE: Final = "This cursor was not made for this listing and caller; leave it out to start at the beginning."


def make_cursor(scope: tuple[str | None, ...], position: Any) -> str:
    """A cursor for a position.

    Args:
        scope: whose it is and for which listing: route, tenant, principal, conversation.
        position: JSON.
    """
    text = json.dumps(position, ensure_ascii=False, separators=(",", ":")).encode()
    return to_base64url(_seal(scope, text) + text)


def read_cursor(scope: tuple[str | None, ...], cursor: str) -> Any:
    """The position that a cursor of this scope holds.

    Raises:
        InvalidRequestError: it was not made here, not for this scope, or was changed.
    """
    try:
        if len(cursor) > _MAX_CURSOR_CHARACTERS:
            raise ValueError("too long for a cursor of ours")
        raw = from_base64url(cursor)
        text = raw[_SEAL_BYTES:]
        if raw[:_SEAL_BYTES] != _seal(scope, text):
            raise ValueError("another scope's cursor, or a changed one")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(CURSOR_RULE, fields=["query.cursor"]) from error


def _seal(scope: tuple[str | None, ...], text: bytes) -> bytes:
    return hashlib.sha256(json.dumps(scope).encode() + b"\n" + text).digest()[:_SEAL_BYTES]
