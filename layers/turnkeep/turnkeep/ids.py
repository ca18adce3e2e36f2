"""Ids: how they are minted, which ones a caller may choose, and how they travel in a path. Pure.

Everything random comes in from outside (``random_id`` mints URL-safe text of so many random bytes), because a value
made at import would be shared by every process that starts from one snapshot.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable
from typing import Final

from turnkeep.errors import InvalidRequestError
from turnkeep.identity import identity_namespace

RandomId = Callable[[int], str]

MAX_KEY_BYTES: Final = 2_048
"""DynamoDB's bound for a partition key, in bytes of UTF-8."""

PATH_RULE: Final = (
    "A conversation's id stands in a path as it is when it consists of 1 to 200 characters of A-Z a-z 0-9 . _ - and is "
    "neither . nor .., or as ~ followed by the base64url, without padding, of its UTF-8."
)
ID_RULE: Final = (
    "A conversation's id is text that is not empty, can be written as UTF-8, and makes, with the tenant, a key of at "
    "most 2,048 bytes."
)

_RANDOM_BYTES: Final = 12
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_ASK: Final = re.compile(r"ask-([1-9][0-9]{0,15})-[A-Za-z0-9_-]{1,64}")


# --- minting ------------------------------------------------------------------------------------------------


def mint_run_id(now_ms: int, random_id: RandomId) -> str:
    """The id of one attempt: ``run-<ms>-<96 random bits>``. Call it in the handler, never at import."""
    return f"run-{now_ms}-{random_id(_RANDOM_BYTES)}"


def mint_epoch(random_id: RandomId) -> str:
    """The id of one life of a conversation."""
    return random_id(_RANDOM_BYTES)


def mint_ask_id(turn: int, random_id: RandomId) -> str:
    """The id of an ask: ``ask-<turn>-<96 random bits>``, so that an answer finds its turn by one point read."""
    return f"ask-{turn}-{random_id(_RANDOM_BYTES)}"


def turn_of_ask(ask_id: str) -> int | None:
    """The turn that an ask's id names; None for text that is no ask's id."""
    match = _ASK.fullmatch(ask_id)
    return None if match is None else int(match.group(1))


def mint_conversation_id(random_id: RandomId) -> str:
    """An id that nobody can guess, for a conversation that its caller did not name."""
    return f"c-{random_id(16)}"


def conversation_id_of_request(tenant: str | None, principal: str | None, idempotency_key: str) -> str:
    """The id of the conversation that a request with this Idempotency-Key creates: the same each time it is sent.

    Two callers never meet in one, as both are part of it. An anonymous caller's is as hard to guess as their key.
    """
    named = json.dumps(["conversation", tenant, principal, idempotency_key])
    return f"c-{to_base64url(hashlib.sha256(named.encode()).digest()[:16])}"


# --- ids that a caller chooses ------------------------------------------------------------------------------


def check_conversation_id(conversation_id: str, tenant: str | None = None) -> str:
    """The id itself, when a conversation may have it (CONTRACT.md 17.8).

    Raises:
        InvalidRequestError: it is empty, is not UTF-8, or makes too long a key. The sentence is the rule.
    """
    try:
        key = identity_namespace({"tenant": tenant, "conversationId": conversation_id}).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(ID_RULE, fields=["conversationId"]) from error
    if not conversation_id or len(key) > MAX_KEY_BYTES:
        raise InvalidRequestError(ID_RULE, fields=["conversationId"])
    return conversation_id


def path_form(conversation_id: str) -> str:
    """The id as it stands in a path: as it is where that is allowed, else ``~`` and its base64url."""
    if _PLAIN.fullmatch(conversation_id) and conversation_id not in {".", ".."}:
        return conversation_id
    return f"~{to_base64url(conversation_id.encode())}"


def parse_path_id(segment: str) -> str:
    """The id that a path's segment names: the inverse of ``path_form``, which also reads ``~`` forms of plain ids.

    Raises:
        InvalidRequestError: the segment is in neither form. The sentence is the rule and repeats nothing of it.
    """
    if _PLAIN.fullmatch(segment) and segment not in {".", ".."}:
        return segment
    if segment.startswith("~"):
        try:
            return from_base64url(segment[1:]).decode()
        except ValueError as error:
            raise InvalidRequestError(PATH_RULE, fields=["path.id"]) from error
    raise InvalidRequestError(PATH_RULE, fields=["path.id"])


# --- base64url ----------------------------------------------------------------------------------------------


def to_base64url(raw: bytes) -> str:
    """Bytes as base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Decodes strictly: one text for one value, so that no two paths or cursors mean the same by accident.

    Raises:
        ValueError: not the one base64url form of anything.
    """
    if not _BASE64URL.fullmatch(text):
        raise ValueError("not base64url")
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError("not base64url") from error
    if to_base64url(raw) != text:
        raise ValueError("not the canonical base64url")
    return raw
