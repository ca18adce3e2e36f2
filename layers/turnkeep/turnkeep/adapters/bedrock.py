"""Amazon Bedrock as a provider, through the Converse API.

A call never outlives its turn: every try's read time-out lies inside the time that is left, and throttling is waited
out with growing, random pauses only as long as there is time for another try.
"""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from turnkeep.adapters.bedrock_messages import CACHE_POINT, from_converse, to_converse, to_tool_config
from turnkeep.agent.history import split_system
from turnkeep.agent.provider import (
    ContextWindowExceededError,
    GuardrailError,
    ModelError,
    ModelRefusedError,
    ModelReply,
    ModelRequest,
    ModelThrottledError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from turnkeep.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SETTLE_MS: Final = 1_500
"""Of the time that is left, kept back so that the turn can store what became of it."""

SHORTEST_TRY_MS: Final = 1_000
"""A try is not begun with less than this left for it."""

MAX_TRIES: Final = 8
FIRST_PAUSE_MS: Final = 500
LONGEST_PAUSE_MS: Final = 20_000
_CONNECT_TIMEOUT_S: Final = 5

# Converse has no error of its own for a conversation that is too long: the sentence is the only sign.
_TOO_LONG: Final = re.compile(
    r"(input|prompt|request|conversation)[^.]{0,40} too long|too many (total )?(input )?tokens|context (window|length)"
    r"|max_tokens.? exceed",
    re.IGNORECASE,
)

_THROTTLED: Final = frozenset({"ThrottlingException", "TooManyRequestsException", "ServiceQuotaExceededException"})
_PASSING: Final = frozenset(
    {"ServiceUnavailableException", "InternalServerException", "ModelNotReadyException", "ModelErrorException"}
)


@dataclass(frozen=True)
class BedrockSettings:
    """Which model, and how it is asked.

    Attributes:
        model_id: a model's or an inference profile's id or ARN.
        max_tokens: at most so many tokens in a reply; None leaves it to the model.
        temperature: 0 to 1; None leaves it to the model.
        top_p: 0 to 1; None leaves it to the model.
        stop_sequences: texts at which it stops.
        guardrail_id: a guardrail to apply, or None.
        guardrail_version: its version.
        cache: sets prompt caching points behind the system prompt, the tools and the newest message. Only for models
            that have a prompt cache; others refuse the request.
        model_fields: fields of the model's own (``additionalModelRequestFields``), such as its thinking budget.
    """

    model_id: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] = ()
    guardrail_id: str | None = None
    guardrail_version: str = "DRAFT"
    cache: bool = False
    model_fields: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> BedrockSettings:
        """Reads ``TURNKEEP_BEDROCK_MODEL_ID`` and, where they are set, ``_MAX_TOKENS``, ``_TEMPERATURE``, ``_TOP_P``,
        ``_STOP_SEQUENCES`` (a JSON list), ``_GUARDRAIL_ID``, ``_GUARDRAIL_VERSION``, ``_CACHE`` (true or false) and
        ``_MODEL_FIELDS`` (a JSON object), each behind ``TURNKEEP_BEDROCK``.

        Raises:
            ValueError: the model id is missing, or a value is not of its kind; the text names the variable.
        """  # noqa: D205 - one sentence that needs two lines

        def read(name: str, kind: Callable[[str], Any], default: Any) -> Any:
            text = environment.get(f"TURNKEEP_BEDROCK_{name}", "")
            if text == "":
                return default
            try:
                return kind(text)
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"The environment variable TURNKEEP_BEDROCK_{name} has no usable value.") from None

        model_id = read("MODEL_ID", str, None)
        if model_id is None:
            raise ValueError("The environment variable TURNKEEP_BEDROCK_MODEL_ID names no model.")
        return cls(
            model_id=model_id,
            max_tokens=read("MAX_TOKENS", int, None),
            temperature=read("TEMPERATURE", float, None),
            top_p=read("TOP_P", float, None),
            stop_sequences=read("STOP_SEQUENCES", _texts, ()),
            guardrail_id=read("GUARDRAIL_ID", str, None),
            guardrail_version=read("GUARDRAIL_VERSION", str, "DRAFT"),
            cache=read("CACHE", {"true": True, "false": False}.__getitem__, False),
            model_fields=read("MODEL_FIELDS", _object, {}),
        )


def _texts(text: str) -> tuple[str, ...]:
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError
    return tuple(found)


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError
    return found


class BedrockProvider:
    """Asks a model on Amazon Bedrock. The role needs ``bedrock:InvokeModel`` on that one model."""

    def __init__(
        self,
        settings: BedrockSettings,
        *,
        session: boto3.Session | None = None,
        endpoint_url: str | None = None,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Keeps the settings; connects when it is asked.

        Args:
            settings: which model, and how.
            session: whose credentials and region; the process's own where it is None.
            endpoint_url: another endpoint than the region's.
            clock: measures what is left, and waits.
            jitter: 0 to 1, how much of a pause is waited.
        """
        self._settings, self._session, self._endpoint_url = settings, session, endpoint_url
        self._clock = clock or SystemClock()
        self._jitter = jitter
        self._client: tuple[int, Any] | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> BedrockProvider:
        """A provider as ``BedrockSettings.from_environment`` describes it.

        Raises:
            ValueError: the model id is missing, or a value is not of its kind.
        """
        return cls(BedrockSettings.from_environment(os.environ if environment is None else environment))

    def converse(self, request: ModelRequest) -> ModelReply:
        """Asks once, trying again while it is throttled or unavailable and there is time.

        Raises:
            ModelThrottledError: throttled until the time was used up.
            ModelUnavailableError: not reachable, or failing on its own side, until the time was used up.
            ModelTimeoutError: no answer inside the time that is left.
            ContextWindowExceededError: the conversation is longer than the model reads.
            ModelRefusedError: the service refused the request.
            GuardrailError: a guardrail intervened and left no text.
            UnsupportedContentError: content that turnkeep does not carry.
        """
        deadline_ms = self._clock.monotonic_ms() + request.time_left_ms - SETTLE_MS
        payload = self._payload(request)
        failure: ModelError = ModelTimeoutError()
        for tried in range(MAX_TRIES):
            if tried:
                pause_ms = min(FIRST_PAUSE_MS * 2**tried, LONGEST_PAUSE_MS) * self._jitter()
                if self._clock.monotonic_ms() + pause_ms + SHORTEST_TRY_MS > deadline_ms:
                    raise failure
                self._clock.sleep_ms(pause_ms)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms < SHORTEST_TRY_MS:
                raise failure
            try:
                return _reply(self._client_for(left_ms).converse(**payload))
            except (ClientError, BotoCoreError, ResponseParserError) as error:
                failure = _named_failure(error)
                if not isinstance(failure, (ModelThrottledError, ModelUnavailableError, ModelTimeoutError)):
                    raise failure from None
        raise failure

    def _payload(self, request: ModelRequest) -> dict[str, Any]:
        settings = self._settings
        stored_system, rest = split_system(request.messages)
        messages = to_converse(rest)
        system: list[dict[str, Any]] = [
            {"text": text} for text in (request.system, *stored_system) if text and text.strip()
        ]
        payload: dict[str, Any] = {"modelId": settings.model_id, "messages": messages}
        if system:
            payload["system"] = [*system, CACHE_POINT] if settings.cache else system
        tool_config = to_tool_config(request.tools, messages, cache=settings.cache)
        if tool_config is not None:
            payload["toolConfig"] = tool_config
        if settings.cache:
            messages[-1]["content"].append(CACHE_POINT)
        inference = {
            "maxTokens": request.max_tokens or settings.max_tokens,
            "temperature": settings.temperature,
            "topP": settings.top_p,
            "stopSequences": list(settings.stop_sequences) or None,
        }
        if chosen := {name: value for name, value in inference.items() if value is not None}:
            payload["inferenceConfig"] = chosen
        if settings.guardrail_id is not None:
            guardrail = {"guardrailIdentifier": settings.guardrail_id, "guardrailVersion": settings.guardrail_version}
            payload["guardrailConfig"] = guardrail
        if settings.model_fields:
            payload["additionalModelRequestFields"] = settings.model_fields
        return payload

    def _client_for(self, left_ms: float) -> Any:
        """A client whose read time-out lies inside the time that is left.

        botocore fixes the time-out when a client is made, so there is one for each whole number of seconds; beyond ten
        of them in steps of five, so that the calls of a turn mostly share a connection.
        """
        whole_s = max(1, int(left_ms // 1000))
        read_timeout_s = whole_s if whole_s <= 10 else whole_s - whole_s % 5
        if self._client is None or self._client[0] != read_timeout_s:
            session = self._session or boto3.Session()
            config = Config(
                read_timeout=read_timeout_s,
                connect_timeout=min(_CONNECT_TIMEOUT_S, read_timeout_s),
                retries={"total_max_attempts": 1},  # tries are counted here, where the deadline is known
            )
            client = session.client("bedrock-runtime", endpoint_url=self._endpoint_url, config=config)
            self._client = (read_timeout_s, client)
        return self._client[1]


def _reply(response: dict[str, Any]) -> ModelReply:
    stop_reason = response["stopReason"]
    if stop_reason == "model_context_window_exceeded":
        raise ContextWindowExceededError
    if stop_reason in ("malformed_model_output", "malformed_tool_use"):
        raise ModelError("The model's reply was malformed.")
    message = from_converse(response["output"]["message"])
    if stop_reason in ("guardrail_intervened", "content_filtered"):
        # The text is the guardrail's own. Calls that the model wanted beside it are not made.
        message.pop("toolCalls", None)
        if not message["content"].strip():
            raise GuardrailError if stop_reason == "guardrail_intervened" else ModelRefusedError(stop_reason)
    counted = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    usage = {name: response["usage"][name] for name in counted if response["usage"].get(name) is not None}
    return ModelReply(message, stop_reason, usage)


def _named_failure(error: ClientError | BotoCoreError | ResponseParserError) -> ModelError:
    """What an error of botocore's means: throttled, unavailable and timed out may be tried again; all else is final."""
    if isinstance(error, ReadTimeoutError):
        return ModelTimeoutError()
    if isinstance(error, (HTTPClientError, ResponseParserError)):
        return ModelUnavailableError()
    if not isinstance(error, ClientError):
        return ModelRefusedError(type(error).__name__)
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _THROTTLED:
        return ModelThrottledError()
    if code == "ModelTimeoutException":
        return ModelTimeoutError()
    if code in _PASSING or status >= 500:
        return ModelUnavailableError()
    if code == "ValidationException" and _TOO_LONG.search(error.response["Error"].get("Message", "")):
        return ContextWindowExceededError()
    return ModelRefusedError(code or "Unknown")
