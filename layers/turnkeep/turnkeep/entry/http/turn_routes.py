"""Routes of the turn function: create a conversation, run a turn, erase a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from turnkeep.entry.http.bodies import Reply, created_reply, turn_reply
from turnkeep.entry.http.door import Incoming, Route
from turnkeep.entry.http.posts import Posted, key_of, read_post, with_applied
from turnkeep.ids import check_conversation_id, conversation_id_of_request, mint_conversation_id
from turnkeep.ledger.keys import ConversationKey

if TYPE_CHECKING:
    from turnkeep.ledger.records import ConversationRecord, TurnRecord
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency


class TakeTurn(Protocol):
    """The use case ``take_turn``."""

    def __call__(
        self,
        deps: Deps,
        caller: Caller,
        key: ConversationKey,
        *,
        message: str,
        host_turn: object = None,
        idempotency: Idempotency | None = None,
        wait_ms: int | None = None,
        respond_async: bool = False,
        deadline: Deadline,
    ) -> TurnRecord:
        """Runs one turn."""
        ...


class CreateConversation(Protocol):
    """The use case ``create_conversation``."""

    def __call__(
        self,
        deps: Deps,
        caller: Caller,
        *,
        conversation_id: str,
        idempotency: Idempotency | None,
        deadline: Deadline,
    ) -> ConversationRecord:
        """Stores an empty conversation."""
        ...


class EraseConversation(Protocol):
    """The use case ``erase_conversation``."""

    def __call__(self, deps: Deps, caller: Caller, key: ConversationKey, *, deadline: Deadline) -> object:
        """Erases a conversation, or begins to; what is left is erased later."""
        ...


def turn_routes(
    *, take_turn: TakeTurn, create_conversation: CreateConversation, erase_conversation: EraseConversation
) -> list[Route]:
    """The routes, serving the given use cases."""

    def run(incoming: Incoming, key: ConversationKey, posted: Posted, message: str, host_turn: int | None) -> Reply:
        preferences = posted.preferences
        record = take_turn(
            incoming.deps,
            incoming.caller,
            key,
            message=message,
            host_turn=host_turn,
            idempotency=posted.idempotency,
            wait_ms=preferences.wait_ms,
            respond_async=preferences.respond_async,
            deadline=incoming.deadline,
        )
        return with_applied(turn_reply(record, incoming.caller), preferences, with_async=True)

    def post_turn(incoming: Incoming) -> Reply:
        from turnkeep.entry.http.models import read_turn

        key = key_of(incoming)
        posted = read_post(incoming.request)
        limit_bytes = incoming.environment.core.max_message_bytes
        message, host_turn = read_turn(posted.body, max_message_bytes=limit_bytes)
        posted.refuse_lone_surrogates()
        return run(incoming, key, posted, message, host_turn)

    def post_conversation(incoming: Incoming) -> Reply:
        from turnkeep.entry.http.models import read_conversation

        posted = read_post(incoming.request, may_be_empty=True)
        limit_bytes = incoming.environment.core.max_message_bytes
        message, host_turn = read_conversation(posted.body, max_message_bytes=limit_bytes)
        posted.refuse_lone_surrogates()
        caller = incoming.caller
        conversation_id = (
            conversation_id_of_request(caller.tenant, caller.principal, posted.idempotency_key)
            if posted.idempotency_key is not None
            else mint_conversation_id(incoming.deps.random_id)
        )
        check_conversation_id(conversation_id, caller.tenant)
        if message is not None:
            return run(incoming, ConversationKey(conversation_id, caller.tenant), posted, message, host_turn)
        record = create_conversation(
            incoming.deps,
            caller,
            conversation_id=conversation_id,
            idempotency=posted.idempotency,
            deadline=incoming.deadline,
        )
        return created_reply(record)

    def delete_conversation(incoming: Incoming) -> Reply:
        key = key_of(incoming)
        erase_conversation(incoming.deps, incoming.caller, key, deadline=incoming.deadline)
        return Reply(202, {"conversationId": key.conversation_id, "status": "erasing"})

    return [
        Route("POST", "/conversations", post_conversation),
        Route("POST", "/conversations/{id}/turns", post_turn),
        Route("DELETE", "/conversations/{id}", delete_conversation),
    ]
