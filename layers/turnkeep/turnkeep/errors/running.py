"""What ends a run, or keeps it from going on."""

from __future__ import annotations

from typing import Any, ClassVar

from turnkeep.errors.tree import RetryableError, TurnkeepError


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
