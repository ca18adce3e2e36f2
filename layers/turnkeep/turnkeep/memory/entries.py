"""Memory entries: their ids, their keys, what makes one valid and when it has expired (CONTRACT.md 7.1).

An entry is a JSON object in the contract's own keys, never a class: what an older or a newer writer put into it
survives. Times are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from turnkeep.errors import UnstorableValueError
from turnkeep.json_values import is_number
from turnkeep.ledger.codec import to_text

Entry = dict[str, Any]
Identity = Mapping[str, Any]
Kind = Literal["msg", "beat", "snap"]
Tier = Literal["hot", "warm", "cold"]

TIERS: Final = ("hot", "warm", "cold")
MAX_ID_BYTES: Final = 512
"""Of an entry's id in UTF-8: it is a part of a sort key, which DynamoDB bounds at 1,024 bytes."""

# Sixteen digits are what a sort key holds; more of them, but for leading zeros, no turnkeep ever wrote.
_NUMBERED: Final = re.compile(r"(?:(msg|beat)-0*([0-9]{1,16})-0*([0-9]{1,16})|(snap)-0*([0-9]{1,16}))")
_NUMBERS: Final = ("version", "createdAt", "updatedAt", "lastAccessedAt", "accessCount")


@dataclass(frozen=True, order=True)
class Place:
    """What an entry's id says: its kind, its turn, and its place in that turn (0 for a snapshot)."""

    kind: Kind
    turn: int
    index: int = 0


def message_id(turn: int, index: int) -> str:
    """The id of a message: ``index`` is its position among all stored messages of the turn, from 0."""
    return f"msg-{turn}-{index}"


def beat_id(turn: int, index: int) -> str:
    """The id of a beat: ``index`` counts the turn's beats, from 0."""
    return f"beat-{turn}-{index}"


def snapshot_id(turn: int) -> str:
    """The id of a turn's snapshot."""
    return f"snap-{turn}"


def place_of(entry_id: object) -> Place | None:
    """Reads an id: exactly ``msg-{turn}-{index}``, ``beat-{turn}-{index}`` or ``snap-{turn}``, else None."""
    found = _NUMBERED.fullmatch(entry_id) if isinstance(entry_id, str) else None
    if found is None:
        return None
    if found[4]:
        return Place("snap", int(found[5]))
    return Place("msg" if found[1] == "msg" else "beat", int(found[2]), int(found[3]))


def new_entry(
    entry_id: str,
    value: Any,
    *,
    turn: int,
    identity: Identity,
    now_ms: int,
    ttl_ms: int | None = None,
    tier: Tier | None = None,
    embedding: Sequence[float] | None = None,
    embedding_model: str | None = None,
) -> Entry:
    """An entry as writers make it: version 1, never read, with its turn and identity as ``source``.

    Args:
        entry_id: see ``message_id``, ``beat_id``, ``snapshot_id``.
        value: any JSON.
        turn: the run's resolved turn.
        identity: ``{"tenant"?, "principal"?, "conversationId"}``, kept verbatim.
        now_ms: the three times.
        ttl_ms: lifetime; 0 expires now (CONTRACT.md 17.10), None never.
        tier: ``hot``, ``warm`` or ``cold``.
        embedding: left out where it is empty.
        embedding_model: which model made the embedding.
    """
    entry: Entry = {
        "id": entry_id,
        "value": value,
        "version": 1,
        "createdAt": now_ms,
        "updatedAt": now_ms,
        "lastAccessedAt": now_ms,
        "accessCount": 0,
        "source": {"turn": turn, "identity": dict(identity)},
    }
    optional = {
        "ttl": None if ttl_ms is None else now_ms + ttl_ms,
        "tier": tier,
        "embedding": list(embedding) if embedding else None,
        "embeddingModel": embedding_model,
    }
    return entry | {key: part for key, part in optional.items() if part is not None}


def is_expired(entry: Mapping[str, Any], now_ms: int) -> bool:
    """Whether no read may return the entry any more; a ``ttl`` that is no number never expires."""
    return has_expired(entry.get("ttl"), now_ms)


def has_expired(ttl: Any, now_ms: int) -> bool:
    """``is_expired`` for the ``ttl`` alone."""
    return is_number(ttl) and ttl <= now_ms


def entry_text(entry: Mapping[str, Any]) -> str:
    """The entry as JSON text: the copy a store keeps, checked as every store checks it (CONTRACT.md 17.11).

    Raises:
        UnstorableValueError: with the path to what is missing, of another kind, or no JSON; nothing is quoted.
    """
    if not isinstance(entry, dict):
        raise UnstorableValueError(path="entry", reason="no object")
    entry_id = entry.get("id")
    _need(isinstance(entry_id, str) and entry_id != "", "id", "no text, or empty")
    text = to_text(entry, name="entry")
    _need(len(str(entry_id).encode()) <= MAX_ID_BYTES, "id", f"over {MAX_ID_BYTES} bytes")
    _need("value" in entry, "value", "missing")
    for key in _NUMBERS:
        _need(is_number(entry.get(key)), key, "no number")
    _need(entry.get("tier", "hot") in TIERS, "tier", "no tier")
    for key in ("metadata", "source", "decayPolicy"):
        _need(isinstance(entry.get(key, {}), dict), key, "no object")
    _need(isinstance(entry.get("embeddingModel", ""), str), "embeddingModel", "no text")
    vector = entry.get("embedding", [])
    _need(isinstance(vector, list) and all(map(_is_component, vector)), "embedding", "no list of numbers")
    return text


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine similarity of two vectors of one length; 0 where one of them has no direction."""
    lengths = math.hypot(*one) * math.hypot(*other)
    if lengths == 0 or not math.isfinite(lengths):
        return 0.0
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths


def _is_component(number: Any) -> bool:
    """Whether a vector can be computed with it: integers beyond a float's range cannot."""
    return is_number(number) and abs(number) <= sys.float_info.max


def _need(holds: bool, key: str, reason: str) -> None:
    if not holds:
        raise UnstorableValueError(path=f"entry.{key}", reason=reason)
