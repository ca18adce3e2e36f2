"""Messages cross between turnkeep and Pydantic AI without loss, both ways, whatever they hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.frameworks.test_strands_messages import JSON, NAMES, OBJECTS, OURS, TEXTS, WITHOUT_OURS, stored
from turnkeep.frameworks.pydantic_ai_messages import (
    all_from_pydantic_ai,
    from_pydantic_ai,
    to_pydantic_ai,
    without_bookkeeping,
)

# --- Pydantic AI, turnkeep, Pydantic AI ---------------------------------------------------------------------

USER_CONTENT = st.one_of(
    TEXTS,
    st.builds(lambda raw: BinaryContent(data=raw, media_type="image/png"), st.binary(max_size=8)),
    st.just(ImageUrl(url="https://example.com/a.png")),
)
REQUEST_PARTS = st.one_of(
    st.builds(UserPromptPart, TEXTS | st.lists(USER_CONTENT, max_size=3)),
    st.builds(
        lambda name, content, call_id, outcome, metadata: ToolReturnPart(
            name, content, tool_call_id=call_id, outcome=outcome, metadata=metadata
        ),
        NAMES,
        TEXTS | JSON,
        NAMES,
        st.sampled_from(["success", "failed", "denied", "retried"]),
        st.none() | OBJECTS,
    ),
    st.builds(lambda content: RetryFeedbackPart(content, retry=RetryInfo("model_retry", attempt=1)), TEXTS),
)
RESPONSE_PARTS = st.one_of(
    st.builds(TextPart, TEXTS),
    st.builds(lambda text: TextPart(text, id="t-1", provider_name="p", provider_details={"x": 1}), TEXTS),
    st.builds(lambda text, signature: ThinkingPart(text, signature=signature), TEXTS, st.none() | TEXTS),
    st.builds(lambda text: ThinkingPart(text, id="redacted_thinking", provider_name="p"), TEXTS),
    st.builds(lambda name, args, call_id: ToolCallPart(name, args, tool_call_id=call_id), NAMES, OBJECTS, NAMES),
    st.builds(
        lambda name, args, call_id: ToolCallPart(name, args, tool_call_id=call_id),
        NAMES,
        st.sampled_from([None, "", "{}", '{"a": 1}', "not json", "[1]"]),
        NAMES,
    ),
)
METADATA = st.none() | WITHOUT_OURS.filter(bool)
THEIRS = st.one_of(
    st.builds(lambda parts, meta: ModelRequest(parts, metadata=meta), st.lists(REQUEST_PARTS, max_size=3), METADATA),
    st.builds(
        lambda parts, meta: ModelResponse(parts, metadata=meta, provider_name=None),
        st.lists(RESPONSE_PARTS, max_size=4),
        METADATA,
    ),
)


@settings(deadline=None)
@given(st.lists(THEIRS, max_size=4))
def test_what_pydantic_ai_says_comes_back_exactly(messages: list[Any]) -> None:
    ours = all_from_pydantic_ai(messages)
    assert without_bookkeeping(to_pydantic_ai(stored(ours))) == without_bookkeeping(messages)


@settings(deadline=None)
@given(THEIRS)
def test_what_is_kept_of_one_is_a_message_of_ours(message: Any) -> None:
    for ours in from_pydantic_ai(message):
        assert isinstance(ours["role"], str)
        assert isinstance(ours["content"], str)


def test_what_a_provider_signed_is_kept_with_whose_it_is() -> None:
    thinking = ThinkingPart("hm", signature="sig", provider_name="anthropic", provider_details={"a": [1]})
    message = ModelResponse([thinking, TextPart("ok")], provider_name="anthropic", provider_details={"stop": "x"})
    (back,) = to_pydantic_ai(stored(from_pydantic_ai(message)))
    assert isinstance(back, ModelResponse)
    assert (back.parts, back.provider_name, back.provider_details) == (message.parts, "anthropic", {"stop": "x"})


def test_system_prompts_are_the_agents_own_and_not_the_conversations() -> None:
    (only,) = from_pydantic_ai(ModelRequest([SystemPromptPart("secret"), UserPromptPart("hi")]))
    assert only == {"role": "user", "content": "hi"}


# --- turnkeep, Pydantic AI, turnkeep ------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(OURS, max_size=6))
def test_what_turnkeep_stores_comes_back_exactly(messages: list[Any]) -> None:
    assert all_from_pydantic_ai(to_pydantic_ai(messages)) == messages


def test_a_plain_conversation_is_kept_as_turnkeeps_own_is() -> None:
    ours: list[Any] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "a", "name": "x", "args": {"n": 1}}]},
        {"role": "tool", "content": "1", "toolCallId": "a", "toolName": "x"},
        {"role": "assistant", "content": "done"},
    ]
    theirs: list[Any] = [
        ModelRequest([UserPromptPart("go")]),
        ModelResponse([ToolCallPart("x", {"n": 1}, tool_call_id="a")], model_name="m"),
        ModelRequest([ToolReturnPart("x", "1", tool_call_id="a")]),
        ModelResponse([TextPart("done")], model_name="m"),
    ]
    assert all_from_pydantic_ai(theirs) == ours


def test_two_requests_with_results_stay_two() -> None:
    theirs: list[Any] = [ModelRequest([ToolReturnPart("x", "1", tool_call_id=one)]) for one in ("a", "b")]
    assert [len(message.parts) for message in to_pydantic_ai(stored(all_from_pydantic_ai(theirs)))] == [1, 1]
