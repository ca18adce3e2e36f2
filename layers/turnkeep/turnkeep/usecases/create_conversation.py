"""An empty conversation, stored and owned, before anybody said anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import IdempotencyMismatchError, SessionNotFoundError
from turnkeep.ids import mint_epoch
from turnkeep.ledger.records import ConversationRecord, RequestRecord
from turnkeep.usecases.door import key_for, opens, verify
from turnkeep.usecases.state import delete_after_s

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency

NO_TURN = 0
"""The turn that a request became which created a conversation and said nothing."""


def create_conversation(
    deps: Deps, caller: Caller, *, conversation_id: str, idempotency: Idempotency | None = None, deadline: Deadline
) -> ConversationRecord:
    """Stores an empty conversation. The same request again gets the same conversation, whatever became of it since.

    Raises:
        IdempotencyMismatchError: the key was used with another body, such as one with a first message.
        SessionNotFoundError: the id is somebody else's, or being erased.
        UnreadableError: what is stored under the id cannot be read; nothing was changed.
        StoreUnavailableError: nothing was lost; the same request may be sent again.
    """
    verify(deps, caller)
    del deadline
    key, now_ms = key_for(caller, conversation_id), deps.clock.now_ms()
    record = ConversationRecord(
        key=key,
        epoch=mint_epoch(deps.random_id),
        owner=caller.principal,
        created_at_ms=now_ms,
        saved_at_ms=now_ms,
        delete_after_s=delete_after_s(deps, None),
    )
    hashed = None if idempotency is None else idempotency.hashed
    found = deps.ledger.hydrate(key, history=False, request=hashed)
    if not found.exists and not found.erasing:
        created = deps.ledger.create(record, request=_request(deps, record, idempotency))
        if created is not None:
            deps.probe("created")
            return created
        found = deps.ledger.hydrate(key, history=False, request=hashed)
    if not found.exists or not opens(found, caller):
        raise SessionNotFoundError(conversation_id)
    earlier = found.request()
    if idempotency is not None and earlier is not None and earlier.epoch == found.epoch:
        _check_same(earlier, idempotency)
    stored = found.conversation()
    if stored is None:
        # Only a turn is there yet: another request of this very id is at work on its first message.
        raise IdempotencyMismatchError if idempotency is not None else SessionNotFoundError(conversation_id)
    return stored


def _check_same(earlier: RequestRecord, idempotency: Idempotency) -> None:
    if earlier.turn != NO_TURN or earlier.digest != idempotency.digest:
        raise IdempotencyMismatchError


def _request(deps: Deps, record: ConversationRecord, idempotency: Idempotency | None) -> RequestRecord | None:
    if idempotency is None:
        return None
    until_s = record.created_at_ms // 1000 + deps.settings.request_key_ttl_s
    return RequestRecord(idempotency.hashed, NO_TURN, record.epoch, idempotency.digest, until_s)
