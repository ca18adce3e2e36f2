"""The error tree: every refusal turnkeep makes, by name.

Bottom of the dependency chain: standard library only, imported by every layer and importing none.
Callers map errors by class and never by message. A class has a stable ``code``, the HTTP ``status`` of
API.md, and its facts as attributes; ``facts()`` gives those that may leave the process.

Sentences are built from fixed words, numbers, states, codes and the conversation's id only. No constructor
takes a tenant, a principal, a token or anything that somebody said, so no message can hold one.
"""

from __future__ import annotations

from typing import Any, ClassVar


class TurnkeepError(Exception):
    """Base of all errors of turnkeep.

    Attributes:
        code: the stable name in a reply's ``error.code``; None where the reference has none.
        status: the HTTP status of API.md.
        fact_names: attributes that a reply may show, by their name in JSON.
    """

    code: ClassVar[str | None] = None
    status: ClassVar[int] = 500
    fact_names: ClassVar[dict[str, str]] = {}

    def facts(self) -> dict[str, Any]:
        """The error's facts for a reply: JSON name to value, absent ones left out."""
        found = {name: getattr(self, attribute, None) for attribute, name in self.fact_names.items()}
        return {name: value for name, value in found.items() if value is not None}


class CallerError(TurnkeepError):
    """The request cannot succeed as it is; sending it again changes nothing."""

    status = 400


class ConflictError(TurnkeepError):
    """The conversation's state does not allow this request now."""

    status = 409


class RetryableError(TurnkeepError):
    """Nothing was lost and nothing is wrong with the request: the same request may be sent again."""

    status = 503
    fact_names: ClassVar[dict[str, str]] = {}
    retry_after_s: int = 1


# --- the caller's fault -------------------------------------------------------------------------------------


class InvalidRequestError(CallerError):
    """The request does not follow the HTTP contract.

    Args:
        rule: a sentence of ours that says what to send instead (never the value that was sent).
        fields: the names of the fields at fault, as paths such as ``message`` or ``query.limit``.
    """

    code = "ERR_INVALID_REQUEST"
    fact_names: ClassVar[dict[str, str]] = {"fields": "fields"}

    def __init__(self, rule: str, *, fields: list[str] | None = None) -> None:
        self.fields = fields or []
        super().__init__(rule)


class MessageTooLargeError(CallerError):
    """A message, or a decision, is over the stack's limit; nothing ran and nothing was stored."""

    code = "ERR_MESSAGE_TOO_LARGE"
    status = 413
    fact_names: ClassVar[dict[str, str]] = {"limit_bytes": "limitBytes", "size_bytes": "sizeBytes"}

    def __init__(self, *, limit_bytes: int, size_bytes: int | None = None) -> None:
        self.limit_bytes, self.size_bytes = limit_bytes, size_bytes
        size = "" if size_bytes is None else f" of {size_bytes} bytes"
        super().__init__(f"The message{size} is over the limit of {limit_bytes} bytes; send a shorter one.")


class IdempotencyMismatchError(CallerError):
    """The Idempotency-Key was used before with another body."""

    code = "ERR_IDEMPOTENCY_MISMATCH"
    status = 422

    def __init__(self) -> None:
        super().__init__("This Idempotency-Key was used with another body; use a new key for a new request.")


class IdentityNotVerifiedError(CallerError):
    """No verified caller where one is required."""

    code = "ERR_IDENTITY_NOT_VERIFIED"
    status = 401

    def __init__(self, *, failure: str = "no-token", claimed_user: bool = False) -> None:
        self.failure, self.claimed_user = failure, claimed_user
        super().__init__("The caller is not verified; send a valid bearer token.")


class SessionNotFoundError(CallerError):
    """Missing, somebody else's, or nobody's at a verifying door: the same words for all."""

    code = "ERR_SESSION_NOT_FOUND"
    status = 404

    def __init__(self, conversation_id: str | None = None) -> None:
        self.conversation_id = conversation_id
        super().__init__("There is no such conversation.")


class TurnNotFoundError(CallerError):
    """No such turn in a conversation that the caller owns."""

    code = "ERR_TURN_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such turn in this conversation.")


class NotYoursToAnswerError(CallerError):
    """The owner answers an ask that is for a role."""

    code = "ERR_NOT_YOURS_TO_ANSWER"
    status = 403
    fact_names: ClassVar[dict[str, str]] = {"audience": "audience"}

    def __init__(self, *, audience: str) -> None:
        self.audience = audience
        super().__init__("This ask is for its audience to answer, not for the owner of the conversation.")


class AdmissionRefusedError(CallerError):
    """The admission policy refused the turn."""

    code = "ERR_ADMISSION_REFUSED"
    status = 429

    def __init__(self, *, retry_after_s: int = 60) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"Too many turns; try again in {retry_after_s} s.")


class SessionOpNeedsIdentityError(CallerError):
    """A listing without a verified caller."""

    code = "ERR_SESSION_OP_NEEDS_IDENTITY"
    status = 501

    def __init__(self, op: str = "list") -> None:
        self.op = op
        super().__init__("A listing needs a verified caller; send a bearer token.")


class DecisionRequiredError(CallerError):
    """A gate was answered with something that is no decision, or an answer has none (CONTRACT.md 5.6).

    Attributes:
        gate: ``checkIn`` or ``ask``; None where the answer had no decision at all.
        received: the shape of what came, never its value.
    """

    code = "ERR_DECISION_REQUIRED"
    fact_names: ClassVar[dict[str, str]] = {
        "gate": "gate",
        "tool_name": "tool",
        "middleware": "middleware",
        "received": "received",
    }

    def __init__(
        self,
        *,
        gate: str | None = None,
        tool_name: str | None = None,
        middleware: str | None = None,
        received: str = "nothing",
    ) -> None:
        self.gate, self.tool_name, self.middleware, self.received = gate, tool_name, middleware, received
        super().__init__(
            f'This ask takes a decision such as {{"approved": true, "by": "…"}}; it received {received}.'
            if gate
            else "An answer needs askId and decision; null is a decision."
        )


# --- conflicts ----------------------------------------------------------------------------------------------


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

    def __init__(self, *, turn: int, awaiting: dict[str, Any] | None = None, conversation_id: str | None = None) -> None:
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
        super().__init__("This decision is about something other than the open ask; look at the open one and decide anew.")


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
        super().__init__("This conversation was recorded by another agent; start a new one, or deploy the agent that recorded it.")


class SessionOwnershipConflictError(ConflictError):
    """A write signed by somebody else than the owner; nothing was written (CONTRACT.md 10.2)."""

    code = "ERR_SESSION_OWNERSHIP_CONFLICT"
    status = 500

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"Conversation {conversation_id} belongs to somebody else; nothing was written.")


class LostClaimError(ConflictError):
    """This attempt's claim was closed or taken over: it may write nothing more (invariant 10)."""

    code = "ERR_CONCURRENT_RUN"
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}
    retry_after_s: int = 1

    def __init__(self, *, turn: int) -> None:
        self.turn = turn
        super().__init__(f"Turn {turn} was taken over or closed by another attempt; this one's answer was dropped.")


# --- what is stored and cannot be read ----------------------------------------------------------------------


class UnreadableError(TurnkeepError):
    """Something stored cannot be read; it is refused by name and never taken for absent (invariant 4)."""

    fact_names: ClassVar[dict[str, str]] = {"conversation_id": "conversationId", "found": "found", "known": "known"}

    def __init__(self, sentence: str, *, conversation_id: str | None = None, found: str | None = None,
                 known: list[str] | None = None) -> None:
        self.conversation_id, self.found, self.known = conversation_id, found, known
        super().__init__(sentence)


class UnknownStoredFormatError(UnreadableError):
    """A stored item names a format that this release does not know, such as a newer release's."""

    code = "ERR_UNKNOWN_FORMAT"

    def __init__(self, *, found: str, known: list[str], conversation_id: str | None = None) -> None:
        super().__init__(
            f"A stored item has the format {found}; this release reads {', '.join(known)}. "
            "Deploy the release that wrote it, or a newer one; nothing was changed.",
            conversation_id=conversation_id, found=found, known=known)


class MalformedStoredItemError(UnreadableError):
    """A stored item of a known format lacks what the format demands, or holds something else there."""

    code = "ERR_MALFORMED_ENVELOPE"

    def __init__(self, *, found: str, part: str, conversation_id: str | None = None) -> None:
        self.part = part
        super().__init__(
            f"A stored item of format {found} cannot be read at {part}; nothing was changed. "
            "Export the conversation's items and look at that part, or erase the conversation.",
            conversation_id=conversation_id, found=found)


# --- the run ------------------------------------------------------------------------------------------------


class RunFailedError(TurnkeepError):
    """The agent raised; the turn is stored as ``failed``."""

    code = "ERR_RUN_FAILED"
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}

    def __init__(self, *, turn: int, cause_code: str | None = None) -> None:
        self.turn, self.cause_code = turn, cause_code
        super().__init__(f"Turn {turn} failed while the agent ran; its message is kept. Send a new message to go on.")


class TurnOutOfTimeError(TurnkeepError):
    """The turn reached its deadline; what was durable is kept."""

    code = "ERR_TURN_OUT_OF_TIME"
    status = 504
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}

    def __init__(self, *, turn: int) -> None:
        self.turn = turn
        super().__init__(
            f"Turn {turn} ran out of time; what was durable is kept. Send the same request with its Idempotency-Key to "
            "go on, a new message to leave it, or use Prefer: respond-async for long turns.")


class StoreUnavailableError(RetryableError):
    """DynamoDB throttled or unreachable; nothing was lost."""

    code = "ERR_STORE_UNAVAILABLE"

    def __init__(self, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__("The store is not available; nothing was lost. Send the same request again.")


class UnstorableValueError(CallerError):
    """A value that JSON or the ledger cannot keep exactly, refused before anything is written.

    Args:
        path: where the value is, such as ``result.items[3].price``; keys are the program's own names.
        reason: what it is, in fixed words (``not a number``, ``a lone surrogate``, ``bytes``).
    """

    code = "ERR_INVALID_REQUEST"
    fact_names: ClassVar[dict[str, str]] = {"fields": "fields"}

    def __init__(self, *, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        self.fields = [path]
        super().__init__(f"The value at {path} cannot be stored: {reason}.")
