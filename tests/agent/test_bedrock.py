"""Bedrock's Converse API, against a stand-in that checks every request with botocore's own service model."""

from __future__ import annotations

import base64
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.bedrock_server import MODEL, Bedrock, Fails, bedrock, rule_faults, says, shape_faults
from tests.agent.support import answered, asked, stored, turn
from tests.agent.test_history import MESSAGES
from turnkeep.adapters.bedrock import BedrockProvider, BedrockSettings
from turnkeep.adapters.bedrock_messages import from_converse, to_converse, to_tool_config
from turnkeep.agent import Agent, CheckIn, tool
from turnkeep.agent.history import for_provider, split_system
from turnkeep.agent.provider import (
    ContextWindowExceededError,
    GuardrailError,
    ModelError,
    ModelRefusedError,
    ModelRequest,
    ModelThrottledError,
    ModelTimeoutError,
    ModelUnavailableError,
    ToolSpec,
    UnsupportedContentError,
)
from turnkeep.clock import ManualClock
from turnkeep.decisions import approved

MODEL_ID = "anthropic.claude-sonnet-4-5-20250929-v1:0"
HELLO = [{"role": "user", "content": "Hello"}]


def provider(server: Bedrock, *, clock: Any = None, **more: Any) -> BedrockProvider:
    session = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="eu-west-1")
    chosen = BedrockSettings(model_id=MODEL_ID, **more)
    return BedrockProvider(
        chosen, session=session, endpoint_url=server.endpoint_url, clock=clock or ManualClock(), jitter=lambda: 1.0
    )


def request(messages: list[dict[str, Any]] | None = None, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or HELLO, **more)


@tool
def order_status(order: str, detail: bool = False) -> dict[str, object]:
    """Looks an order up.

    Args:
        order: its id.
        detail: whether to say more.
    """
    return {"order": order, "detail": detail, "price": 12.5}


# --- a whole turn -----------------------------------------------------------------------------------------------


def test_a_turn_with_tools_reasoning_and_usage() -> None:
    thinking = {"reasoningContent": {"reasoningText": {"text": "hm … 😀", "signature": "c2lnbmF0dXJl"}}}
    hidden = {"reasoningContent": {"redactedContent": b"\x00\xff\x10"}}
    inputs = {n: {"order": n, "detail": True} for n in "ab"}
    use = [{"toolUse": {"toolUseId": f"tooluse_{n}", "name": "order_status", "input": inputs[n]}} for n in "ab"]
    with bedrock(
        says(thinking, hidden, {"text": "Looking."}, *use, stop="tool_use", cacheReadInputTokens=3),
        says({"text": "Both "}, {"text": "are on their way."}),
    ) as server:
        agent = Agent(provider=provider(server), system="Be kind.", tools=[order_status])
        outcome = answered(agent.run(turn("Where are a and b?").context))

    assert outcome.output == "Both are on their way."
    assert outcome.usage == {"inputTokens": 22, "outputTokens": 10, "cacheReadInputTokens": 3}
    assert [one["stopReason"] for one in outcome.evidence["modelCalls"]] == ["tool_use", "end_turn"]
    assert outcome.messages[1]["thinkingBlocks"] == [
        {"type": "thinking", "content": "hm … 😀", "signature": "c2lnbmF0dXJl"},
        {"type": "redacted_thinking", "content": base64.b64encode(b"\x00\xff\x10").decode()},
    ]
    first, second = server.requests
    assert server.refused == []
    assert first["modelId"] == MODEL_ID
    assert first["system"] == [{"text": "Be kind."}]
    assert first["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"] == order_status.schema
    assert "inferenceConfig" not in first
    # What the model said comes back to it byte for byte; JSON carries a blob as base64.
    sent_back = [thinking, {"reasoningContent": {"redactedContent": "AP8Q"}}, {"text": "Looking."}, *use]
    assert second["messages"][1] == {"role": "assistant", "content": sent_back}
    assert [block["toolResult"] for block in second["messages"][2]["content"]] == [
        {
            "toolUseId": f"tooluse_{n}",
            "content": [{"text": f'{{"order":"{n}","detail":true,"price":12.5}}'}],
            "status": "success",
        }
        for n in "ab"
    ]


def test_a_pause_and_its_resume_in_another_process() -> None:
    @tool(check_in=CheckIn("role:supervisor"))
    def pay(cents: int) -> str:
        """Pays."""
        return f"paid {cents}"

    use = {"toolUse": {"toolUseId": "tooluse_x", "name": "pay", "input": {"cents": 9}}}
    with bedrock(says(use, stop="tool_use"), says({"text": "Paid."})) as server:
        paused = asked(Agent(provider=provider(server), tools=[pay]).run(turn("Pay 9").context))
        context = turn(messages=stored(paused.messages)).context
        fresh = Agent(provider=provider(server), tools=[pay])
        outcome = answered(fresh.resume(context, stored(paused.checkpoint), approved("sue", now_ms=1)))
    assert outcome.output == "Paid."
    assert server.requests[1]["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "paid 9"}]
    assert server.refused == []


# --- stored shapes ----------------------------------------------------------------------------------------------


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MESSAGES, max_size=14), st.booleans())
def test_whatever_was_stored_is_a_request_that_the_api_takes(history: list[Any], tools: bool) -> None:
    _, messages = split_system(for_provider(history, HELLO))
    converse = to_converse(messages)
    sent: dict[str, Any] = {"modelId": MODEL_ID, "messages": converse}
    config = to_tool_config([order_status.spec] if tools else [], converse, cache=False)
    if config is not None:
        sent["toolConfig"] = config
    assert shape_faults(MODEL.input_shape, sent, "request") == []
    assert rule_faults(sent) == []


def test_two_user_messages_blank_texts_odd_ids_and_a_missing_start_are_adapted() -> None:
    call = {"id": "call 1 with spaces", "name": "functions.look", "args": {}}
    history: list[dict[str, Any]] = [
        {"role": "assistant", "content": "I was cut off at the front."},
        {"role": "user", "content": "died before its answer"},
        {"role": "user", "content": " "},
        {"role": "assistant", "content": "\n", "toolCalls": [call]},
        {"role": "tool", "content": "", "toolCallId": call["id"], "isError": True},
        {"role": "user", "content": "next"},
        {"role": "assistant", "content": "", "toolCalls": [call]},
        {"role": "tool", "content": "again", "toolCallId": call["id"]},
    ]
    with bedrock(says({"text": "ok"})) as server:
        provider(server).converse(request(history, system="  "))
    assert server.refused == []
    [sent] = server.requests
    roles = [message["role"] for message in sent["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant", "user"]
    assert sent["messages"][2]["content"] == [{"text": "died before its answer\n\n "}]
    assert sent["messages"][3]["content"] == [{"toolUse": {"toolUseId": "call", "name": "functions_look", "input": {}}}]
    result = {"toolUseId": "call", "content": [{"text": "(empty result)"}], "status": "error"}
    assert sent["messages"][4]["content"] == [{"toolResult": result}, {"text": "next"}]
    assert sent["messages"][5]["content"][0]["toolUse"]["toolUseId"] == "call-2"
    assert sent["toolConfig"]["tools"][0]["toolSpec"]["name"] == "unavailable"
    assert "system" not in sent


def test_the_stand_in_refuses_what_is_not_adapted() -> None:
    """A check of the check: the same history, sent as it is stored, breaks the API's rules."""
    raw = {"messages": [{"role": "user", "content": [{"text": " "}]}, {"role": "user", "content": [{"text": "x"}]}]}
    assert len(rule_faults(raw)) == 2
    assert shape_faults(MODEL.input_shape, {"messages": [{"role": "tool", "content": [{"txt": 1}]}]}, "request") == [
        "request.modelId is missing",
        "request.messages[0].role is none of ['user', 'assistant', 'system']",
        "request.messages[0].content[0].txt is unknown",
    ]


def test_reasoning_between_calls_keeps_its_place() -> None:
    def reasoning(text: str) -> dict[str, Any]:
        return {"reasoningContent": {"reasoningText": {"text": text, "signature": f"s{text}"}}}

    use = [{"toolUse": {"toolUseId": n, "name": "look", "input": {}}} for n in "ab"]
    blocks = [reasoning("1"), {"text": "say"}, reasoning("2"), use[0], reasoning("3"), use[1]]
    message = stored(from_converse({"role": "assistant", "content": blocks}))
    results = [{"role": "tool", "content": "r", "toolCallId": n} for n in "ab"]
    assert to_converse([*HELLO, message, *results])[1]["content"] == blocks


def test_an_image_from_the_model_and_structured_content_are_refused_by_name() -> None:
    image = {"image": {"format": "png", "source": {"bytes": b"x"}}}
    with bedrock(says(image)) as server, pytest.raises(UnsupportedContentError) as refused:
        provider(server).converse(request())
    assert refused.value.kind == "image"
    with pytest.raises(UnsupportedContentError):
        to_converse([{"role": "user", "content": [{"image": "x"}]}])


def test_an_empty_input_of_a_call_is_no_arguments() -> None:
    use = {"toolUse": {"toolUseId": "a", "name": "look", "input": ""}}
    assert from_converse({"content": [use]})["toolCalls"] == [{"id": "a", "name": "look", "args": {}}]
    with pytest.raises(ModelError):
        from_converse({"content": [{"toolUse": {"toolUseId": "a", "name": "look", "input": [1]}}]})


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_from_the_environment_reach_the_request() -> None:
    environment = {
        "TURNKEEP_BEDROCK_MODEL_ID": MODEL_ID,
        "TURNKEEP_BEDROCK_MAX_TOKENS": "300",
        "TURNKEEP_BEDROCK_TEMPERATURE": "0.2",
        "TURNKEEP_BEDROCK_TOP_P": "0.9",
        "TURNKEEP_BEDROCK_STOP_SEQUENCES": '["END"]',
        "TURNKEEP_BEDROCK_GUARDRAIL_ID": "abc123",
        "TURNKEEP_BEDROCK_GUARDRAIL_VERSION": "2",
        "TURNKEEP_BEDROCK_CACHE": "true",
        "TURNKEEP_BEDROCK_MODEL_FIELDS": '{"thinking":{"type":"enabled","budget_tokens":1024}}',
    }
    chosen = BedrockSettings.from_environment(environment)
    with bedrock(says({"text": "ok"}), says({"text": "ok"})) as server:
        asking = provider(server, **{name: value for name, value in vars(chosen).items() if name != "model_id"})
        asking.converse(request(system="Be kind.", tools=[order_status.spec]))
        asking.converse(request(max_tokens=7))
    first, second = server.requests
    assert server.refused == []
    assert first["inferenceConfig"] == {"maxTokens": 300, "temperature": 0.2, "topP": 0.9, "stopSequences": ["END"]}
    assert first["guardrailConfig"] == {"guardrailIdentifier": "abc123", "guardrailVersion": "2"}
    assert first["additionalModelRequestFields"] == {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    point = {"cachePoint": {"type": "default"}}
    assert first["system"][-1] == first["toolConfig"]["tools"][-1] == first["messages"][-1]["content"][-1] == point
    assert second["inferenceConfig"]["maxTokens"] == 7


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"MODEL_ID": "m", "MAX_TOKENS": "many"},
        {"MODEL_ID": "m", "TEMPERATURE": "warm"},
        {"MODEL_ID": "m", "CACHE": "yes"},
        {"MODEL_ID": "m", "STOP_SEQUENCES": "[1]"},
        {"MODEL_ID": "m", "MODEL_FIELDS": "[]"},
    ],
)
def test_a_broken_setting_is_named(broken: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=f"TURNKEEP_BEDROCK_{[*broken, 'MODEL_ID'][min(1, len(broken))]}"):
        BedrockProvider.from_environment({f"TURNKEEP_BEDROCK_{name}": value for name, value in broken.items()})


# --- how it stops ---------------------------------------------------------------------------------------------------


def test_a_guardrail_that_intervenes_answers_in_its_own_words_and_no_call_is_made() -> None:
    use = {"toolUse": {"toolUseId": "a", "name": "order_status", "input": {"order": "x"}}}
    with bedrock(says({"text": "I cannot talk about that."}, use, stop="guardrail_intervened")) as server:
        outcome = answered(Agent(provider=provider(server), tools=[order_status]).run(turn("hm").context))
    assert outcome.messages[1:] == [{"role": "assistant", "content": "I cannot talk about that."}]
    assert outcome.evidence["modelCalls"][0]["stopReason"] == "guardrail_intervened"


@pytest.mark.parametrize(
    ("stop", "error"),
    [
        ("guardrail_intervened", GuardrailError),
        ("content_filtered", ModelRefusedError),
        ("model_context_window_exceeded", ContextWindowExceededError),
        ("malformed_tool_use", ModelError),
        ("malformed_model_output", ModelError),
    ],
)
def test_stops_without_an_answer_are_named(stop: str, error: type[ModelError]) -> None:
    with bedrock(says(stop=stop)) as server, pytest.raises(error):
        provider(server).converse(request())


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "passing",
    [
        Fails("ThrottlingException"),
        Fails("ServiceUnavailableException"),
        Fails("InternalServerException"),
        Fails("ModelNotReadyException"),
        Fails("ModelErrorException"),
        Fails("ModelTimeoutException"),
        Fails(cut=True),
        Fails("", status=502, raw=b"<html>bad gateway</html>"),
    ],
)
def test_what_passes_is_tried_again_with_growing_pauses(passing: Fails) -> None:
    clock = ManualClock()
    with bedrock(passing, passing, says({"text": "ok"})) as server:
        reply = provider(server, clock=clock).converse(request(time_left_ms=60_000))
    assert reply.message["content"] == "ok"
    assert len(server.requests) == 3
    assert clock.monotonic_ms() == 1000 + 2000


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Fails("ThrottlingException"), ModelThrottledError),
        (Fails("ServiceUnavailableException"), ModelUnavailableError),
    ],
)
def test_pauses_stay_inside_the_time_that_is_left(failure: Fails, error: type[ModelError]) -> None:
    clock = ManualClock()
    with bedrock(*[failure] * 9) as server, pytest.raises(error):
        provider(server, clock=clock).converse(request(time_left_ms=12_000))
    assert len(server.requests) == 4  # 0, 1, 3 and 7 s; another 8 s would pass the deadline
    assert clock.monotonic_ms() == 7000


def test_with_no_time_left_nothing_is_sent() -> None:
    with bedrock() as server, pytest.raises(ModelTimeoutError):
        provider(server).converse(request(time_left_ms=2_400))
    assert server.requests == []


def test_a_model_that_does_not_answer_is_given_up_before_the_turn_ends() -> None:
    from turnkeep.clock import SystemClock

    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    with bedrock(Fails(after_s=4, cut=True), says({"text": "too late"})) as server:
        with pytest.raises(ModelTimeoutError):
            provider(server, clock=clock).converse(request(time_left_ms=2_700))
        assert clock.monotonic_ms() - started_ms < 2_700
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Fails("AccessDeniedException"), ModelRefusedError),
        (Fails("ResourceNotFoundException"), ModelRefusedError),
        (Fails("ValidationException", "The provided model identifier is invalid."), ModelRefusedError),
        (Fails("ValidationException", "Input is too long for requested model."), ContextWindowExceededError),
        (Fails("ValidationException", "prompt is too long: 213 tokens > 200 maximum"), ContextWindowExceededError),
        (
            Fails("ValidationException", "The maximum context length is 8192 tokens"),
            ContextWindowExceededError,
        ),
    ],
)
def test_what_does_not_pass_is_named_and_not_tried_again(failure: Fails, error: type[ModelError]) -> None:
    with bedrock(failure, says({"text": "never"})) as server, pytest.raises(error) as refused:
        provider(server).converse(request())
    assert len(server.requests) == 1
    assert failure.message not in str(refused.value)


def test_a_request_that_botocore_itself_refuses_is_named() -> None:
    odd: Any = 7
    with bedrock() as server, pytest.raises(ModelRefusedError) as refused:
        provider(server).converse(request(tools=[ToolSpec(odd, "x", {})]))
    assert refused.value.reason == "ParamValidationError"
    assert server.requests == []


def test_a_tool_without_words_still_has_a_description() -> None:
    config = to_tool_config([ToolSpec("look", "", {"type": "object"})], [], cache=False)
    assert config == {
        "tools": [{"toolSpec": {"name": "look", "description": "look", "inputSchema": {"json": {"type": "object"}}}}]
    }
