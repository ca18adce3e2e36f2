"""Refusals that a conversation's state makes: another time the same request may be right."""

from __future__ import annotations

from typing import Any, ClassVar

from turnkeep.errors.tree import ConflictError


class ConcurrentRunError(ConflictError):
    """Another turn of this conversation is queued, running or answered."""

    code = "ERR_CONCURRENT_RUN"
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}
    retry_after_s: int = 1

    def __init__(self, *, turn: int, conversation_id: str | None = None, run_id: str | None = None) -> None:
        self.turn, self.conversation_id, self.run_id = turn, conversation_id, run_id
        super().__init__(f"Turn {turn} of this conversation has not ended; send the message again when it has.")


class AwaitingDecisionError(ConflictError):
    """A message while an ask is open. ``awaiting`` is what this caller may see of the ask."""

    code = "ERR_AWAITING_DECISION"
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn", "awaiting": "awaiting"}

    def __init__(
        self, *, turn: int, awaiting: dict[str, Any] | None = None, conversation_id: str | None = None
    ) -> None:
        self.turn, self.awaiting, self.conversation_id = turn, awaiting, conversation_id
        super().__init__(f"Turn {turn} waits for an answer; answer its ask, or withdraw it, before the next message.")


class AlreadyAnsweredError(ConflictError):
    """This ask has its answer, an equal one included."""

    code = "ERR_ALREADY_ANSWERED"
    fact_names: ClassVar[dict[str, str]] = {"answered_at_ms": "answeredAt"}

    def __init__(self, *, answered_at_ms: int | None = None) -> None:
        self.answered_at_ms = answered_at_ms
        super().__init__("This ask has been answered already; only the first answer counts.")


class AskExpiredError(ConflictError):
    """This ask's time has passed, or it was withdrawn."""

    code = "ERR_ASK_EXPIRED"
    status = 410
    fact_names: ClassVar[dict[str, str]] = {"expired_at_ms": "expiredAt"}

    def __init__(self, *, expired_at_ms: int | None = None) -> None:
        self.expired_at_ms = expired_at_ms
        super().__init__("This ask is closed: its time has passed or it was withdrawn. The conversation can go on.")


class StaleDecisionError(ConflictError):
    """Another ask is the open one, or the pinned component's reference differs (CONTRACT.md 5.6)."""

    code = "ERR_STALE_DECISION"
    fact_names: ClassVar[dict[str, str]] = {"ask_id": "askId"}

    def __init__(self, *, ask_id: str | None = None, asked: Any = None, answered: Any = None) -> None:
        self.ask_id, self.asked, self.answered = ask_id, asked, answered
        super().__init__(
            "This decision is about something other than the open ask; look at the open one and decide anew."
        )


class NoPendingAskError(ConflictError):
    """Nothing asks."""

    code = "ERR_NO_PENDING_ASK"

    def __init__(self, conversation_id: str | None = None) -> None:
        self.conversation_id = conversation_id
        super().__init__("Nothing in this conversation waits for this answer.")


class ConversationMismatchError(ConflictError):
    """Recorded by an agent that named itself, and this one names itself otherwise."""

    code = "ERR_CONVERSATION_MISMATCH"

    def __init__(self, *, stored_agent_id: str | None = None, agent_id: str | None = None) -> None:
        self.stored_agent_id, self.agent_id = stored_agent_id, agent_id
        super().__init__(
            "This conversation was recorded by another agent; start a new one, or deploy the agent that recorded it."
        )


class SessionOwnershipConflictError(ConflictError):
    """A write signed by somebody else than the owner; nothing was written (CONTRACT.md 10.2)."""

    code = "ERR_SESSION_OWNERSHIP_CONFLICT"
    status = 500

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"Conversation {conversation_id} belongs to somebody else; nothing was written.")


class ConversationExistsError(ConflictError):
    """Something is stored under this id already; what was to be put there was not, and nothing was changed.

    Args:
        conversation_id: the id.
        is_going: what is there is being erased, or put there by another import.
    """

    code = "ERR_CONVERSATION_EXISTS"
    fact_names: ClassVar[dict[str, str]] = {"conversation_id": "conversationId"}

    def __init__(self, conversation_id: str, *, is_going: bool = False) -> None:
        self.conversation_id, self.is_going = conversation_id, is_going
        way_out = (
            "It is being erased or imported: use another id, or wait a quarter of an hour."
            if is_going
            else "Use another id, or erase that conversation first."
        )
        super().__init__(f"Conversation {conversation_id} exists already; nothing was changed. {way_out}")


class LostClaimError(ConflictError):
    """This attempt's claim was closed or taken over: it may write nothing more (invariant 10)."""

    code = "ERR_CONCURRENT_RUN"
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}
    retry_after_s: int = 1

    def __init__(self, *, turn: int) -> None:
        self.turn = turn
        super().__init__(f"Turn {turn} was taken over or closed by another attempt; this one's answer was dropped.")
