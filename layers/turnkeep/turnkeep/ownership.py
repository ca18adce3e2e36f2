"""Who owns a conversation, decided in one place (CONTRACT.md 10.2, 11.1; invariant 7).

An owner is a non-empty string, compared exactly: case, spaces and Unicode forms make different people. Everything
else is nobody. An owner comes from the identity of what is stored or written, never from fields beside it.
"""

from __future__ import annotations

from typing import Any

from turnkeep.errors import SessionOwnershipConflictError


def owner_or_nobody(value: Any) -> str | None:
    """The person that a stored or signed value names; None (nobody) for an empty string and for what is no string."""
    return value if isinstance(value, str) and value else None


def resolve_session_owner(conversation_id: str, stored: Any, incoming: Any) -> str | None:
    """The owner to record with a write. The first signer owns; a leaner (unsigned) turn changes nothing.

    A store decides this before anything is written, and atomically with the write.

    Args:
        conversation_id: named in the refusal.
        stored: who owns the conversation now.
        incoming: who signs what is about to be written.

    Returns:
        The owner from now on; None when there still is none.

    Raises:
        SessionOwnershipConflictError: somebody else than the owner signs; nothing may be written. It names the
            conversation and neither person.
    """
    owner, signer = owner_or_nobody(stored), owner_or_nobody(incoming)
    if owner is not None and signer is not None and owner != signer:
        raise SessionOwnershipConflictError(conversation_id)
    return owner if owner is not None else signer


def may_open(owner: Any, caller: Any) -> bool:
    """Whether a door that verifies its callers may open a conversation for this one.

    Its owner may. An (allowed) anonymous caller may open what nobody owns, and a verified caller may not. Who may
    not is told that there is no such conversation.

    Args:
        owner: who owns the conversation; nobody where None, empty or no string.
        caller: the verified principal; None when anonymous.
    """
    return owner_or_nobody(owner) == owner_or_nobody(caller)
