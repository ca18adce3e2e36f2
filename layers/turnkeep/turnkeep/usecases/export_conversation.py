"""Taking a conversation out: as one envelope in the reference's JSON, which any store of the port can keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.errors import SessionNotFoundError
from turnkeep.usecases.as_envelope import envelope_of

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Deps


def export_conversation(deps: Deps, key: ConversationKey) -> dict[str, Any]:
    """The conversation as it stands, as one envelope (CONTRACT.md 4). For operators: whose it is is not asked.

    Nothing is changed. What an import brought comes out as it went in, as long as no turn has been added; see
    ``as_envelope.envelope_of`` for what an open turn gives.

    Raises:
        SessionNotFoundError: nothing is stored under this id, or it is being erased.
        UnreadableError: something stored cannot be read, by name.
    """
    envelope = envelope_of(deps.ledger, deps.ledger.hydrate(key))
    if envelope is None:
        raise SessionNotFoundError(key.conversation_id)
    return envelope
