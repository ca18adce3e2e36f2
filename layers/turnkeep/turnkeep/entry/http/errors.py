"""Errors as replies: the one table from an error's class to what a caller hears."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from turnkeep import errors as e
from turnkeep.agent.provider import ModelThrottledError, ModelUnavailableError
from turnkeep.entry.http.bodies import Reply
from turnkeep.errors import TurnkeepError, at_the_door


class InternalError(TurnkeepError):
    """Something that is no refusal of turnkeep's: a fault of the program or of its deployment."""

    code = "ERR_INTERNAL"

    def __init__(self) -> None:
        super().__init__("Something went wrong on our side; the request id finds it in the logs. Try again later.")


class RouteNotFoundError(TurnkeepError):
    """No route of the API (API Gateway refuses these before they come here)."""

    code = "ERR_ROUTE_NOT_FOUND"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is no such route; docs/openapi.json lists them.")


@dataclass(frozen=True)
class Refusal:
    """One row of API.md's table.

    Attributes:
        error: the class; its ``status``, ``code`` and ``fact_names`` are the reply's.
        when: in words, for the API's description.
    """

    error: type[TurnkeepError]
    when: str

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.error.status

    @property
    def code(self) -> str:
        """The stable code."""
        return self.error.code or InternalError.code

    @property
    def fields(self) -> tuple[str, ...]:
        """Further fields that the error may have."""
        return tuple(self.error.fact_names.values())

    @property
    def retry_after(self) -> bool:
        """Whether the reply has a ``Retry-After``."""
        return self.error in RETRY_AFTER


RETRY_AFTER: Final = (
    e.ConcurrentRunError,
    e.LostClaimError,
    e.AdmissionRefusedError,
    e.StoreUnavailableError,
    ModelThrottledError,
    ModelUnavailableError,
)

REFUSALS: Final = (
    Refusal(e.InvalidRequestError, "The body is not JSON, a field is missing or mistyped, an id, a cursor or `turn` "
            "is not what it may be."),
    Refusal(e.DecisionRequiredError, "An answer without `decision`, or a bare value where a gate wants a decision."),
    Refusal(e.IdentityNotVerifiedError, "No verified caller where one is required."),
    Refusal(e.NotYoursToAnswerError, "The owner answers an ask that is for a role."),
    Refusal(e.SessionNotFoundError, "Missing, somebody else's, or nobody's: the same reply."),
    Refusal(e.TurnNotFoundError, "No such turn in a conversation that is yours."),
    Refusal(e.ConcurrentRunError, "Another turn of this conversation is queued, running or answered."),
    Refusal(e.AwaitingDecisionError, "A message while an ask is open."),
    Refusal(e.AlreadyAnsweredError, "This ask has its answer."),
    Refusal(e.AskExpiredError, "This ask's time has passed, or it was withdrawn."),
    Refusal(e.StaleDecisionError, "Another ask is the open one."),
    Refusal(e.NoPendingAskError, "Nothing asks."),
    Refusal(e.ConversationMismatchError, "Recorded by an agent of another name."),
    Refusal(e.MessageTooLargeError, "The message, or the decision, is over `MaxMessageBytes`."),
    Refusal(e.IdempotencyMismatchError, "The Idempotency-Key was used with another body."),
    Refusal(e.AdmissionRefusedError, "The admission policy refused."),
    Refusal(e.UnreadableEnvelopeError, "Stored and not readable."),
    Refusal(e.UnknownStoredFormatError, "Stored in a format that this release does not know."),
    Refusal(e.MalformedStoredItemError, "Stored in a known format, and a part is missing or unreadable."),
    Refusal(e.RunFailedError, "The agent raised; the turn is stored as `failed`."),
    Refusal(InternalError, "A fault of the program or its deployment."),
    Refusal(e.SessionOpNeedsIdentityError, "A listing without a verified caller."),
    Refusal(e.StoreUnavailableError, "DynamoDB throttled or unreachable; nothing was lost."),
    Refusal(ModelThrottledError, "The model throttled until the time was up; the same request goes on with the turn."),
    Refusal(ModelUnavailableError, "The model did not answer; the same request goes on with the turn."),
    Refusal(e.TurnOutOfTimeError, "The turn reached its deadline; what was durable is kept."),
)  # fmt: skip

_LEAVES: Final = frozenset({(refusal.status, refusal.code) for refusal in REFUSALS}) | {
    (RouteNotFoundError.status, RouteNotFoundError.code)
}


def as_refusal(error: BaseException) -> TurnkeepError:
    """The error as a caller may hear of it.

    * A write of progress that did not land is what its cause is: a lost claim, or a store that was not there.
    * Another person's conversation is one that does not exist.
    * What has no row in ``REFUSALS`` is a fault of ours, named in the log and an internal error to the caller.
    """
    if isinstance(error, e.DurabilityError):
        error = error.__cause__ if isinstance(error.__cause__, TurnkeepError) else e.StoreUnavailableError()
    if not isinstance(error, TurnkeepError):
        return InternalError()
    refusal = at_the_door(error)
    return refusal if (refusal.status, refusal.code) in _LEAVES else InternalError()


def error_reply(error: BaseException, request_id: str) -> Reply:
    """The reply to an error: ``{"error": {"code", "message", "requestId", …facts}}``."""
    refusal = as_refusal(error)
    body: dict[str, Any] = {"code": refusal.code, "message": str(refusal), "requestId": request_id}
    retry_after_s = getattr(refusal, "retry_after_s", None)
    headers = {"Retry-After": str(retry_after_s)} if isinstance(retry_after_s, int) else {}
    return Reply(refusal.status, {"error": body | refusal.facts()}, headers)
