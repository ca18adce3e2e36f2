"""The provider port: one call to a model, whoever serves it.

Messages are turnkeep's own (CONTRACT.md 1). A provider adapts them to its API and its answer back to them; the loop
knows no API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from turnkeep.errors import RetryableError, TurnkeepError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.messages import Message


@dataclass(frozen=True)
class ToolSpec:
    """What a model is told of a tool.

    Attributes:
        name: ``[A-Za-z0-9_-]{1,64}``.
        description: what it does, in the words that a model and an approver read.
        input_schema: JSON schema of its arguments, an object.
    """

    name: str
    description: str
    input_schema: dict[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """One call to a model.

    Attributes:
        messages: the conversation, oldest first. Every tool call in it has its result directly behind it, in call
            order; two user messages may stand in a row (CONTRACT.md 17.14).
        system: the system prompt, or None.
        tools: what the model may call.
        time_left_ms: milliseconds until the run has to have ended; a provider gives up before.
        max_tokens: at most so many tokens in the answer; None leaves it to the provider.
    """

    messages: Sequence[Message]
    system: str | None = None
    tools: Sequence[ToolSpec] = ()
    time_left_ms: int = 60_000
    max_tokens: int | None = None


@dataclass(frozen=True)
class ModelReply:
    """What a model answered.

    Attributes:
        message: an assistant message: ``content``, and where there are any ``toolCalls``
            (``[{"id", "name", "args", "providerMeta"?}]``) and ``thinkingBlocks``.
        stop_reason: why it stopped, in Bedrock's words (``end_turn``, ``tool_use``, ``max_tokens``, ...).
        usage: token counts: ``inputTokens``, ``outputTokens``, and what else the provider counts.
    """

    message: Message
    stop_reason: str = "end_turn"
    usage: dict[str, int] = field(default_factory=dict)


class Provider(Protocol):
    """Something that answers a conversation with the next assistant message."""

    def converse(self, request: ModelRequest) -> ModelReply:
        """Asks the model once.

        Raises:
            ModelError: the model gave no usable answer; the class says why.
        """
        ...


class ModelError(TurnkeepError):
    """A model gave no usable answer. What a person said is never in the text."""

    code: ClassVar[str | None] = "ERR_MODEL_FAILED"

    def __init__(self, sentence: str = "The model gave no usable answer.") -> None:
        super().__init__(sentence)


class ModelThrottledError(ModelError, RetryableError):
    """The model's service throttled until the time was used up."""

    code = "ERR_MODEL_THROTTLED"
    status = 503

    def __init__(self) -> None:
        super().__init__("The model's service throttles; send the same request again later.")


class ModelUnavailableError(ModelError, RetryableError):
    """The model's service could not be reached, or failed on its own side."""

    code = "ERR_MODEL_UNAVAILABLE"
    status = 503

    def __init__(self) -> None:
        super().__init__("The model's service is not available; send the same request again later.")


class ModelTimeoutError(ModelError):
    """The model did not answer inside the time that is left."""

    code = "ERR_MODEL_TIMEOUT"
    status = 504

    def __init__(self) -> None:
        super().__init__("The model did not answer inside the time that is left to this turn.")


class ContextWindowExceededError(ModelError):
    """The conversation is longer than the model reads."""

    code = "ERR_CONTEXT_WINDOW"

    def __init__(self) -> None:
        super().__init__(
            "The conversation is longer than the model reads; give the agent a Window of last_turns or a token_budget."
        )


class ModelRefusedError(ModelError):
    """The service refused the request: no access to the model, or a request that it calls invalid.

    Attributes:
        reason: the service's own code, such as ``AccessDeniedException``.
    """

    code = "ERR_MODEL_REFUSED"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The model's service refused the request ({reason}); sending it again changes nothing.")


class GuardrailError(ModelError):
    """A guardrail intervened and left no text to answer with."""

    code = "ERR_GUARDRAIL"

    def __init__(self) -> None:
        super().__init__("A guardrail intervened and left nothing to answer with.")


class UnsupportedContentError(ModelError):
    """Content that turnkeep does not carry, such as an image.

    Attributes:
        kind: what it is, such as ``image``.
    """

    code = "ERR_UNSUPPORTED_CONTENT"

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(
            f"Content of the kind {kind} is not supported; turnkeep carries text, tool calls and reasoning."
        )
