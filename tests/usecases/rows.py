"""Items as a listing finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.ledger.keys import CONVERSATION, ConversationKey, owner_key

if TYPE_CHECKING:
    from turnkeep.ledger.store import Item


def row(conversation_id: str, saved_at_ms: int, *, owner: str = "alice", tenant: str | None = None) -> Item:
    """A conversation as a listing finds it."""
    return {
        "pk": ConversationKey(conversation_id, tenant).pk,
        "sk": CONVERSATION,
        "format": "conversation-v1",
        "epoch": "e",
        "owner": owner,
        "ownerKey": owner_key(tenant, owner),
        "savedAt": saved_at_ms,
        "turn": 1,
        "messageCount": 2,
        "status": "complete",
    }
