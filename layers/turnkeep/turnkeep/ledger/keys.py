"""Keys of the ledger: where each kind of item lies, and back from a key to what it names."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from turnkeep.identity import identity_namespace, split_namespace

CONVERSATION = "CONVERSATION"
TURN_LOW, TURN_HIGH = "TURN#", "TURN$"
DUE_SHARDS = 8

_TURN = re.compile(r"TURN#(\d{16})\Z")
_SEGMENT = re.compile(r"SEG#(\d{16})#(\d{16})#(\d{16})\Z")


@dataclass(frozen=True)
class ConversationKey:
    """Names a conversation: its id, inside its tenant where there is one."""

    conversation_id: str
    tenant: str | None = None

    @property
    def pk(self) -> str:
        """The partition: the injective namespace of tenant and id (CONTRACT.md 6.2); the principal is no part of it."""
        return identity_namespace({"tenant": self.tenant, "conversationId": self.conversation_id})

    @classmethod
    def from_pk(cls, pk: str) -> ConversationKey:
        """The key that a partition belongs to.

        Raises:
            ValueError: not a partition of a conversation.
        """
        parts = split_namespace(pk)
        conversation_id = parts.get("conversationId")
        if not conversation_id:
            raise ValueError("not a conversation's partition")
        return cls(conversation_id=conversation_id, tenant=parts.get("tenant"))


def number(value: int) -> str:
    """A number as it stands in a sort key: 16 digits, so that text order is number order."""
    return f"{value:016d}"


def turn_sk(turn: int) -> str:
    """The sort key of a turn's record."""
    return f"TURN#{number(turn)}"


def turn_of_sk(sk: str) -> int:
    """The turn that a record's sort key names.

    Raises:
        ValueError: not a turn's sort key.
    """
    match = _TURN.match(sk)
    if match is None:
        raise ValueError("not a turn's sort key")
    return int(match.group(1))


def segment_sk(turn: int, attempt: int, index: int) -> str:
    """The sort key of one segment."""
    return f"SEG#{number(turn)}#{number(attempt)}#{number(index)}"


def segment_place(sk: str) -> tuple[int, int, int]:
    """The turn, the attempt and the index that a segment's sort key names.

    Raises:
        ValueError: not a segment's sort key.
    """
    match = _SEGMENT.match(sk)
    if match is None:
        raise ValueError("not a segment's sort key")
    return int(match.group(1)), int(match.group(2)), int(match.group(3))


def segments_low(turn: int) -> str:
    """The lowest sort key of a turn's segments."""
    return f"SEG#{number(turn)}#"


def segments_high(turn: int) -> str:
    """Just above the highest sort key of a turn's segments."""
    return f"SEG#{number(turn)}$"


def request_hash(idempotency_key: str) -> str:
    """What is stored of an Idempotency-Key: its SHA-256, so that no caller's text lies in a key."""
    return hashlib.sha256(idempotency_key.encode()).hexdigest()


def request_sk(hashed: str) -> str:
    """The sort key of a request's record."""
    return f"REQUEST#{hashed}"


def owner_key(tenant: str | None, principal: str) -> str:
    """The ``byOwner`` partition of a person."""
    return identity_namespace({"tenant": tenant, "principal": principal})


def audience_key(tenant: str | None, audience: str, owner: str | None) -> str:
    """The ``byAudience`` partition of those who may answer: a role of a tenant, or one owner."""
    who = {"tenant": tenant, "principal": f"owner:{owner}" if audience == "owner" and owner else audience}
    return identity_namespace(who)


def due_shard(pk: str) -> str:
    """The ``byDue`` partition that a conversation's items fall into."""
    return f"due#{hashlib.sha256(pk.encode()).digest()[0] % DUE_SHARDS}"
