"""An empty conversation, stored and owned, before anybody said anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import IdempotencyMismatchError, SessionNotFoundError
from turnkeep.ledger.records import ConversationRecord
from turnkeep.usecases.door import key_for, opens, verify

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency


def create_conversation(
    deps: Deps, caller: Caller, *, conversation_id: str, idempotency: Idempotency | None = None, deadline: Deadline
) -> ConversationRecord:
    """Stores an empty conversation. The same request again gets the same conversation.

    Raises:
        IdempotencyMismatchError: the key was used for a conversation with a first message.
        SessionNotFoundError: the id is somebody else's.
    """
    verify(deps, caller)
    del deadline
    key, now_ms = key_for(caller, conversation_id), deps.clock.now_ms()
    days = deps.settings.retention_days
    record = ConversationRecord(
        key=key,
        epoch=deps.random_id(12),
        owner=caller.principal,
        created_at_ms=now_ms,
        saved_at_ms=now_ms,
        delete_after_s=now_ms // 1000 + days * 86_400 if days > 0 else None,
    )
    found = deps.ledger.hydrate(key, history=False)
    if not found.exists and not found.erasing:
        created = deps.ledger.create(record)
        if created is not None:
            return created
        found = deps.ledger.hydrate(key, history=False)
    if not found.exists or not opens(found, caller):
        raise SessionNotFoundError(conversation_id)
    stored = found.conversation()
    if idempotency is not None and any(turn.request == idempotency.hashed for turn in found.turns()):
        raise IdempotencyMismatchError
    if stored is None:
        raise SessionNotFoundError(conversation_id)
    return stored
