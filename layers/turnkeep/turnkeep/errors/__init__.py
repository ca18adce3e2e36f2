"""The error tree: every refusal turnkeep makes, by name.

Bottom of the dependency chain: standard library only, imported by every layer and importing none (``can_resume``,
which it hands out, is beside it and just as low).
Callers map errors by class and never by message. A class has a stable ``code``, the HTTP ``status`` of
API.md, and its facts as attributes; ``facts()`` gives those that may leave the process.

Sentences are built from fixed words, numbers, states, codes and the conversation's id only. No constructor
takes a tenant, a principal, a token or anything that somebody said, so no message can hold one.
"""

from __future__ import annotations

from turnkeep.errors.caller import (
    AdmissionRefusedError,
    DecisionRequiredError,
    IdempotencyMismatchError,
    IdentityNotVerifiedError,
    InvalidAskComponentError,
    InvalidRequestError,
    MessageTooLargeError,
    NotYoursToAnswerError,
    PauseAnswerRequiredError,
    SessionIndexUnavailableError,
    SessionNotFoundError,
    SessionOpNeedsIdentityError,
    TurnNotFoundError,
    UnstorableValueError,
)
from turnkeep.errors.conflicts import (
    AlreadyAnsweredError,
    AskExpiredError,
    AwaitingDecisionError,
    ConcurrentRunError,
    ConversationExistsError,
    ConversationMismatchError,
    LostClaimError,
    NoPendingAskError,
    SessionOwnershipConflictError,
    StaleDecisionError,
)
from turnkeep.errors.running import (
    AgentContractError,
    CallInDoubtError,
    DurabilityError,
    ExecutionClosedError,
    FactoryReusedAgentError,
    LeaseHeldError,
    RunCheckpointError,
    RunFailedError,
    StoreUnavailableError,
    TurnOutOfTimeError,
)
from turnkeep.errors.stored import (
    EnvelopeError,
    ForeignPauseError,
    MalformedEnvelopeError,
    MalformedStoredItemError,
    SessionRetentionUnavailableError,
    UnknownEnvelopeFormatError,
    UnknownStoredFormatError,
    UnreadableEnvelopeError,
    UnreadableError,
    WrongEnvelopeReaderError,
)
from turnkeep.errors.tree import (
    CallerError,
    ConflictError,
    RetryableError,
    TurnkeepError,
)
from turnkeep.resumable import can_resume

__all__ = [
    "AdmissionRefusedError",
    "AgentContractError",
    "AlreadyAnsweredError",
    "AskExpiredError",
    "AwaitingDecisionError",
    "CallInDoubtError",
    "CallerError",
    "ConcurrentRunError",
    "ConflictError",
    "ConversationExistsError",
    "ConversationMismatchError",
    "DecisionRequiredError",
    "DurabilityError",
    "EnvelopeError",
    "ExecutionClosedError",
    "FactoryReusedAgentError",
    "ForeignPauseError",
    "IdempotencyMismatchError",
    "IdentityNotVerifiedError",
    "InvalidAskComponentError",
    "InvalidRequestError",
    "LeaseHeldError",
    "LostClaimError",
    "MalformedEnvelopeError",
    "MalformedStoredItemError",
    "MessageTooLargeError",
    "NoPendingAskError",
    "NotYoursToAnswerError",
    "PauseAnswerRequiredError",
    "RetryableError",
    "RunCheckpointError",
    "RunFailedError",
    "SessionIndexUnavailableError",
    "SessionNotFoundError",
    "SessionOpNeedsIdentityError",
    "SessionOwnershipConflictError",
    "SessionRetentionUnavailableError",
    "StaleDecisionError",
    "StoreUnavailableError",
    "TurnNotFoundError",
    "TurnOutOfTimeError",
    "TurnkeepError",
    "UnknownEnvelopeFormatError",
    "UnknownStoredFormatError",
    "UnreadableEnvelopeError",
    "UnreadableError",
    "UnstorableValueError",
    "WrongEnvelopeReaderError",
    "at_the_door",
    "can_resume",
]


def at_the_door(error: TurnkeepError) -> TurnkeepError:
    """The error as a caller may hear of it: an ownership conflict is the not-found, in the same words (17.9)."""
    if isinstance(error, SessionOwnershipConflictError):
        return SessionNotFoundError(error.conversation_id)
    return error
