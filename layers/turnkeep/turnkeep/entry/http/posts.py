"""What the POSTs have in common: a strict body, an Idempotency-Key, preferences, and an id from the path."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.entry.http.json_body import body_digest, parse_body, refuse_lone_surrogates
from turnkeep.entry.http.paths import parse_path_id
from turnkeep.entry.http.prefer import Preferences, parse_idempotency_key, parse_prefer
from turnkeep.ids import check_conversation_id
from turnkeep.ledger.keys import ConversationKey, request_hash
from turnkeep.usecases.deps import Caller, Idempotency

if TYPE_CHECKING:
    from turnkeep.entry.http.bodies import Reply
    from turnkeep.entry.http.door import Incoming
    from turnkeep.entry.http.request import Request


@dataclass(frozen=True)
class Posted:
    """A POST, read.

    Attributes:
        body: its object; empty where the request has no body and may be without.
        idempotency_key: as it came; None where there is none.
        idempotency: the same as the ledger keeps it.
    """

    body: dict[str, Any]
    text: str
    preferences: Preferences
    idempotency_key: str | None
    idempotency: Idempotency | None

    def refuse_lone_surrogates(self) -> None:
        """Refuses text that is no Unicode.

        Raises:
            InvalidRequestError: names the field.
        """
        refuse_lone_surrogates(self.text, self.body)


def read_post(request: Request, *, may_be_empty: bool = False) -> Posted:
    """Reads a POST's headers and body.

    Raises:
        InvalidRequestError: a key that is none, or a body that is no strict JSON object.
    """
    key = parse_idempotency_key(request.headers.get("idempotency-key"))
    text = request.text()
    body = {} if may_be_empty and not text.strip() else parse_body(text)
    idempotency = None
    if key is not None:
        digest = body_digest(f"{request.method} {request.route}", text.strip())
        idempotency = Idempotency(hashed=request_hash(key), digest=digest)
    return Posted(body, text, parse_prefer(request.headers.get("prefer")), key, idempotency)


def conversation_key(request: Request, caller: Caller) -> ConversationKey:
    """The conversation that the path names, in the caller's tenant.

    Raises:
        InvalidRequestError: the id is in neither form, or is none that a conversation may have.
    """
    conversation_id = check_conversation_id(parse_path_id(request.path_parameters.get("id", "")), caller.tenant)
    return ConversationKey(conversation_id, caller.tenant)


def key_of(incoming: Incoming) -> ConversationKey:
    """``conversation_key`` of a request at the door, told to whoever reads the log."""
    key = conversation_key(incoming.request, incoming.caller)
    incoming.observation.tell(conversationId=key.conversation_id)
    return key


def with_applied(reply: Reply, preferences: Preferences, *, with_async: bool = False) -> Reply:
    """The reply, with the preferences that were honoured in ``Preference-Applied``."""
    applied = []
    if with_async and preferences.respond_async and reply.status == 202:
        applied.append("respond-async")
    if preferences.wait_s is not None:
        applied.append(f"wait={preferences.wait_s}")
    if not applied:
        return reply
    return replace(reply, headers={**reply.headers, "Preference-Applied": ", ".join(applied)})
