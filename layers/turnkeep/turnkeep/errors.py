"""The error tree: every refusal turnkeep makes, by name.

Bottom of the dependency chain: standard library only, imported by every layer and importing none (``can_resume``,
which it hands out, is beside it and just as low).
Callers map errors by class and never by message. A class has a stable ``code``, the HTTP ``status`` of
API.md, and its facts as attributes; ``facts()`` gives those that may leave the process.

Sentences are built from fixed words, numbers, states, codes and the conversation's id only. No constructor
takes a tenant, a principal, a token or anything that somebody said, so no message can hold one.
"""

from __future__ import annotations

from typing import Any, ClassVar

from turnkeep.resumable import can_resume as can_resume  # noqa: PLC0414 - mypy wants a re-export said like this


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


class PauseAnswerRequiredError(CallerError):
    """A plain ask was answered with no value at all (CONTRACT.md 5.3); ``null``, false, 0 and "" are values.

    The HTTP contract refuses an answer without a decision before this (``DecisionRequiredError``), so this one is the
    program's own mistake and has the reference's status.
    """

    code = "ERR_PAUSE_ANSWER_REQUIRED"
    status = 500
    fact_names: ClassVar[dict[str, str]] = {"tool_name": "tool", "tool_call_id": "toolCallId"}

    def __init__(self, *, tool_name: str | None = None, tool_call_id: str | None = None) -> None:
        self.tool_name, self.tool_call_id = tool_name, tool_call_id
        super().__init__("This ask takes a value as its answer, and none was given; null is a value.")


class InvalidAskComponentError(CallerError):
    """An ask nominated a component that nothing could show (CONTRACT.md 5.5); refused when the ask is raised.

    Attributes:
        reason: ``shape``, ``no-store`` or ``unresolved-ref``.
        door: who raised the ask, in the program's own words.
        ref: the reference that did not resolve.
    """

    code = "ERR_INVALID_ASK_COMPONENT"
    status = 500
    fact_names: ClassVar[dict[str, str]] = {"reason": "reason", "door": "door"}

    def __init__(self, *, reason: str, door: str, ref: str | None = None) -> None:
        self.reason, self.door, self.ref = reason, door, ref
        super().__init__(
            f"The ask's component cannot be used ({reason}): it is an object with a non-blank componentId, and where "
            "they are there, props that are an object and a non-empty propsRef."
        )


class SessionIndexUnavailableError(CallerError):
    """The store cannot list conversations by their owner."""

    code = "ERR_SESSION_INDEX_UNAVAILABLE"
    status = 501

    def __init__(self, op: str = "list") -> None:
        self.op = op
        super().__init__("The store behind this keeps no listing by owner; use one that does.")


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


# --- what is stored and cannot be read ----------------------------------------------------------------------


class UnreadableError(TurnkeepError):
    """Something stored cannot be read; it is refused by name and never taken for absent (invariant 4)."""

    fact_names: ClassVar[dict[str, str]] = {"conversation_id": "conversationId", "found": "found", "known": "known"}

    def __init__(
        self,
        sentence: str,
        *,
        conversation_id: str | None = None,
        found: str | None = None,
        known: list[str] | None = None,
    ) -> None:
        self.conversation_id, self.found, self.known = conversation_id, found, known
        super().__init__(sentence)


class UnknownStoredFormatError(UnreadableError):
    """A stored item names a format that this release does not know, such as a newer release's."""

    code = "ERR_UNKNOWN_FORMAT"

    def __init__(self, *, found: str, known: list[str], conversation_id: str | None = None) -> None:
        super().__init__(
            f"A stored item has the format {found}; this release reads {', '.join(known)}. "
            "Deploy the release that wrote it, or a newer one; nothing was changed.",
            conversation_id=conversation_id,
            found=found,
            known=known,
        )


class ForeignPauseError(UnknownStoredFormatError):
    """An ask came with an imported paused run of another engine: its answer could not be gone on from here.

    It stays open and its checkpoint unchanged: exported, it can be answered where it was made.
    """

    def __init__(self, *, known: list[str], conversation_id: str | None = None) -> None:
        UnreadableError.__init__(
            self,
            "This ask was imported with a paused run that only its own engine can go on from; nothing was changed. "
            "Export the conversation and answer it there, or withdraw the ask and go on here.",
            conversation_id=conversation_id,
            found="flowchart-v1 of another engine",
            known=known,
        )


class MalformedStoredItemError(UnreadableError):
    """A stored item of a known format lacks what the format demands, or holds something else there."""

    code = "ERR_MALFORMED_ENVELOPE"

    def __init__(self, *, found: str, part: str, conversation_id: str | None = None) -> None:
        self.part = part
        super().__init__(
            f"A stored item of format {found} cannot be read at {part}; nothing was changed. "
            "Export the conversation's items and look at that part, or erase the conversation.",
            conversation_id=conversation_id,
            found=found,
        )


class EnvelopeError(UnreadableError, TypeError):
    """A stored value that an envelope reader refuses: the base of the four below, and a TypeError as well.

    Attributes:
        kind: the stable name of what is wrong, such as ``conversation-bad-skill-cursor``.
        history_index: which history entry is at fault, where one is.
    """

    fact_names: ClassVar[dict[str, str]] = {
        "conversation_id": "conversationId",
        "found": "found",
        "known": "known",
        "kind": "kind",
        "history_index": "historyIndex",
    }

    def __init__(
        self,
        sentence: str,
        *,
        kind: str,
        conversation_id: str | None = None,
        found: str | None = None,
        known: list[str] | None = None,
        history_index: int | None = None,
    ) -> None:
        self.kind, self.history_index = kind, history_index
        super().__init__(sentence, conversation_id=conversation_id, found=found, known=known)


class UnreadableEnvelopeError(EnvelopeError):
    """What is stored is no envelope at all. Present but unreadable is never answered as absent (invariant 4).

    Attributes:
        stored_preview: what was found, by the rule of CONTRACT.md 4.4: up to 64 characters of a string, anything
            else described. For whoever may read the conversation; neither the message nor a reply holds it.
        found: its shape only, such as ``a string``.
    """

    code = "ERR_UNREADABLE_ENVELOPE"

    def __init__(
        self, *, stored_preview: str, found: str, known: list[str], conversation_id: str | None = None
    ) -> None:
        self.stored_preview = stored_preview
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)} is no envelope but {found}; nothing was changed. "
            f"An envelope is an object of the format {' or '.join(known)}.",
            kind="unreadable",
            conversation_id=conversation_id,
            found=found,
            known=known,
        )

    def with_conversation(self, conversation_id: str) -> UnreadableEnvelopeError:
        """A copy that names the conversation, caused by this one; this one itself where it names one already."""
        if self.conversation_id is not None:
            return self
        named = UnreadableEnvelopeError(
            stored_preview=self.stored_preview,
            found=self.found or "unreadable",
            known=self.known or [],
            conversation_id=conversation_id,
        )
        named.__cause__ = self
        return named


class UnknownEnvelopeFormatError(EnvelopeError):
    """An object whose ``format`` is none that this release knows, a newer release's for instance."""

    code = "ERR_UNKNOWN_FORMAT"

    def __init__(self, *, found: str, known: list[str], conversation_id: str | None = None) -> None:
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)} has the format {found}; this release reads "
            f"{' and '.join(known)}. Deploy the release that wrote it, or a newer one; nothing was changed.",
            kind="unknown-format",
            conversation_id=conversation_id,
            found=found,
            known=known,
        )


class MalformedEnvelopeError(EnvelopeError):
    """An envelope of a known format that lacks what the format demands, or holds something else there.

    Args:
        kind: which demand, by its stable name.
        found: the envelope's format; None where a bare conversation or paused run was read.
        demand: what the format demands, in fixed words, such as ``pending must be an object``.
        history_index: which history entry is at fault, where one is.
    """

    code = "ERR_MALFORMED_ENVELOPE"

    def __init__(
        self,
        *,
        kind: str,
        demand: str,
        found: str | None = None,
        history_index: int | None = None,
        conversation_id: str | None = None,
    ) -> None:
        form = f" of the format {found}" if found else ""
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)}{form} cannot be read: {demand}. Nothing was changed.",
            kind=kind,
            conversation_id=conversation_id,
            found=found,
            history_index=history_index,
        )


class WrongEnvelopeReaderError(EnvelopeError):
    """A sound envelope was given to the reader of the other format: a mistake in the program, not in the store.

    Args:
        kind: ``is-paused-run`` or ``is-conversation``.
        found: the envelope's format.
        reader: the reader to use instead.
    """

    def __init__(self, *, kind: str, found: str, reader: str, conversation_id: str | None = None) -> None:
        self.reader = reader
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)} has the format {found}; read it with {reader}.",
            kind=kind,
            conversation_id=conversation_id,
            found=found,
        )


def _of_conversation(conversation_id: str | None) -> str:
    return "here" if conversation_id is None else f"of conversation {conversation_id}"


class SessionRetentionUnavailableError(TurnkeepError):
    """A store does not say who deletes what is old (CONTRACT.md 10.4); nothing is taken for "nobody deletes".

    Args:
        purpose: what it was asked for, in the program's own words.
    """

    code = "ERR_SESSION_RETENTION_UNAVAILABLE"

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        super().__init__(f"The store does not say who deletes old conversations, which {purpose} needs to know.")


# --- the run ------------------------------------------------------------------------------------------------


class RunFailedError(TurnkeepError):
    """The agent raised; the turn is stored as ``failed``."""

    code = "ERR_RUN_FAILED"
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}

    def __init__(self, *, turn: int, cause_code: str | None = None) -> None:
        self.turn, self.cause_code = turn, cause_code
        super().__init__(f"Turn {turn} failed while the agent ran; its message is kept. Send a new message to go on.")


class RunCheckpointError(TurnkeepError):
    """A run that had completed at least one iteration raised; it can be continued from where it stood.

    Attributes:
        checkpoint: the conversation as far as it came (CONTRACT.md 2), for a store and never for a message.
        __cause__: the run's own error. See ``can_resume``.
    """

    code = "ERR_RUN_CHECKPOINT"

    def __init__(self, *, checkpoint: dict[str, Any], cause: BaseException) -> None:
        self.checkpoint = checkpoint
        self.__cause__ = cause
        super().__init__("The run failed after its first iteration; its checkpoint holds how far it came.")

    @property
    def cause(self) -> BaseException | None:
        """The run's own error."""
        return self.__cause__


class CallInDoubtError(TurnkeepError):
    """A tool call that must act once was begun by an attempt that died inside it: nobody can know what it did.

    Raised by the memory of such calls to the agent's loop, which runs the call again or asks a person.
    """

    code = "ERR_CALL_IN_DOUBT"

    def __init__(self) -> None:
        super().__init__("This tool call was begun by an attempt that died inside it; whether it acted is not known.")


class TurnOutOfTimeError(TurnkeepError):
    """The turn reached its deadline; what was durable is kept."""

    code = "ERR_TURN_OUT_OF_TIME"
    status = 504
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}

    def __init__(self, *, turn: int) -> None:
        self.turn = turn
        super().__init__(
            f"Turn {turn} ran out of time; what was durable is kept. Send the same request with its Idempotency-Key to "
            "go on, a new message to leave it, or use Prefer: respond-async for long turns."
        )


class StoreUnavailableError(RetryableError):
    """DynamoDB throttled or unreachable; nothing was lost."""

    code = "ERR_STORE_UNAVAILABLE"

    def __init__(self, *, retry_after_s: int = 1) -> None:
        self.retry_after_s = retry_after_s
        super().__init__("The store is not available; nothing was lost. Send the same request again.")


def _is_name(code: object) -> bool:
    """Whether a foreign error's ``code`` is a program's own word, such as ``ThrottlingException``."""
    return isinstance(code, str) and len(code) <= 64 and code.isascii() and code.isidentifier()


class DurabilityError(RetryableError):
    """A progress write of this run did not land (CONTRACT.md 12.4); ``__cause__`` is what the store raised.

    What to answer is the cause's business: a LostClaimError below means that another attempt has the turn, a
    RetryableError or a foreign error that the store was not available.

    Args:
        cause: what the newest write raised. Its sentence is repeated only where turnkeep built it (such sentences
            hold no content); of any other error only the class, and its ``code`` where it has one.
        tool_call_blocked: under ``sync``: whoever waited for this write was not allowed to run.
    """

    code = "ERR_STORE_UNAVAILABLE"

    def __init__(self, cause: BaseException, *, tool_call_blocked: bool = False) -> None:
        self.tool_call_blocked = tool_call_blocked
        named = type(cause).__name__
        if isinstance(cause, TurnkeepError):
            named = f"{named}: {cause}"
        elif _is_name(code := getattr(cause, "code", None)):
            named = f"{named} {code}"
        blocked = " The tool call that waited for it was not allowed to run." if tool_call_blocked else ""
        super().__init__(f"Progress of this run could not be made durable ({named}).{blocked}")


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


# --- at a door ----------------------------------------------------------------------------------------------


def at_the_door(error: TurnkeepError) -> TurnkeepError:
    """The error as a caller may hear of it: an ownership conflict is the not-found, in the same words (17.9)."""
    if isinstance(error, SessionOwnershipConflictError):
        return SessionNotFoundError(error.conversation_id)
    return error


class LeaseHeldError(RetryableError):
    """The turn's attempt is still alive: whoever wants to take it over waits its lease out and tries again.

    Step Functions retries a resume that ends in this error (its name is in the definition).
    """

    code = "ERR_CONCURRENT_RUN"
    status = 409
    fact_names: ClassVar[dict[str, str]] = {"turn": "turn"}

    def __init__(self, *, turn: int, lease_left_ms: int = 0) -> None:
        self.turn, self.lease_left_ms = turn, lease_left_ms
        self.retry_after_s = max(1, -(-lease_left_ms // 1000))
        super().__init__(f"Turn {turn} is held by an attempt that may be alive for another {lease_left_ms} ms.")


class FactoryReusedAgentError(TurnkeepError):
    """The agent factory handed the same agent back for two turns (DESIGN.md, The agent)."""

    code = "ERR_AGENT_FACTORY"

    def __init__(self, *, reason: str = "handed the same agent back for two turns") -> None:
        super().__init__(f"The agent factory {reason}; build a new agent in it at every call.")


class AgentContractError(TurnkeepError):
    """An agent gave turnkeep something that the port between them does not allow (``turnkeep.agent.port``).

    Args:
        rule: what it has to give instead, in fixed words.
    """

    code = "ERR_AGENT_CONTRACT"

    def __init__(self, rule: str) -> None:
        super().__init__(f"The agent broke the port's contract: {rule}.")


class ExecutionClosedError(TurnkeepError):
    """An execution of this name has ended; the ask's next start number is free."""

    def __init__(self) -> None:
        super().__init__("The execution that waited on this ask has ended; start it under the next number.")
