"""Refusals of a request that cannot succeed as it is."""

from __future__ import annotations

from typing import ClassVar

from turnkeep.errors.tree import CallerError


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
