"""May this caller open it? The question that comes before anything stored is judged or shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import IdentityNotVerifiedError, SessionNotFoundError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.parsing import lenient_owner

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.usecases.deps import Caller, Deps


def verify(deps: Deps, caller: Caller) -> None:
    """Refuses a caller whom nobody verified, where the stack takes no anonymous ones.

    Raises:
        IdentityNotVerifiedError: no principal.
    """
    if caller.principal is None and not deps.settings.allow_anonymous:
        raise IdentityNotVerifiedError


def opens(found: Hydrated, caller: Caller) -> bool:
    """Whether the conversation is the caller's: its owner is exactly the principal (nobody equals nobody).

    Where CONVERSATION names an owner that cannot be read, it is nobody's to open, an anonymous caller's least of all.
    """
    item = found.conversation_item
    if item is not None and "owner" in item and lenient_owner(item) is None:
        return False
    return found.owner == caller.principal


def refuse_stranger(found: Hydrated, caller: Caller) -> None:
    """Refuses whoever does not own what is stored, in the words of what does not exist.

    Raises:
        SessionNotFoundError: somebody else's, or nobody's at a verifying door, or being erased.
    """
    if found.erasing or (found.exists and not opens(found, caller)):
        raise SessionNotFoundError(found.key.conversation_id)


def require_own(found: Hydrated, caller: Caller) -> None:
    """Refuses a stranger, and what does not exist.

    Raises:
        SessionNotFoundError: missing or not the caller's.
    """
    if not found.exists or not opens(found, caller):
        raise SessionNotFoundError(found.key.conversation_id)


def key_for(caller: Caller, conversation_id: str) -> ConversationKey:
    """The conversation of that id in the caller's tenant."""
    return ConversationKey(conversation_id=conversation_id, tenant=caller.tenant)
