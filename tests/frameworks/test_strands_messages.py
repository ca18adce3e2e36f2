"""Messages cross between turnkeep and Strands without loss, both ways, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnkeep.frameworks.strands_messages import all_from_strands, from_strands, to_strands
from turnkeep.ledger.codec import pack, unpack

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text("abcXYZ_-09", min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
WITHOUT_OURS = OBJECTS.filter(lambda found: "turnkeep" not in found)
OF_OTHERS = OBJECTS.filter(lambda found: "content" not in found and "type" not in found)


def stored(messages: list[Any]) -> list[Any]:
    """The messages after a trip through the ledger."""
    found: list[Any] = unpack(pack(messages))
    return found


# --- Strands, turnkeep, Strands -----------------------------------------------------------------------------

TEXT_BLOCKS = st.builds(lambda text: {"text": text}, TEXTS)
IMAGES = st.builds(lambda raw: {"image": {"format": "png", "source": {"bytes": raw}}}, st.binary(max_size=8))
REASONING = st.one_of(
    st.builds(lambda text: {"reasoningContent": {"reasoningText": {"text": text}}}, TEXTS),
    st.builds(
        lambda text, signature: {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}},
        TEXTS,
        TEXTS,
    ),
    st.builds(lambda raw: {"reasoningContent": {"redactedContent": raw}}, st.binary(max_size=8)),
)
USES = st.builds(
    lambda call_id, name, given, signature: {
        "toolUse": {"toolUseId": call_id, "name": name, "input": given}
        | ({} if signature is None else {"reasoningSignature": signature})
    },
    NAMES,
    NAMES,
    OBJECTS | JSON,
    st.none() | TEXTS,
)
RESULTS = st.builds(
    lambda call_id, status, content: {"toolResult": {"toolUseId": call_id, "status": status, "content": content}},
    NAMES,
    st.sampled_from(["success", "error"]),
    st.lists(TEXT_BLOCKS | st.builds(lambda value: {"json": value}, JSON) | IMAGES, max_size=3),
)
OTHERS = st.sampled_from([{"cachePoint": {"type": "default"}}, {"guardContent": {"text": {"text": "g"}}}])
STRANDS = st.one_of(
    st.fixed_dictionaries(
        {"role": st.just("user"), "content": st.lists(TEXT_BLOCKS | RESULTS | IMAGES | OTHERS, max_size=4)},
        optional={"metadata": st.builds(lambda custom: {"custom": custom}, WITHOUT_OURS)},
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.lists(TEXT_BLOCKS | USES | REASONING | OTHERS, max_size=4)}
    ),
)


def without_empty_metadata(message: dict[str, Any]) -> dict[str, Any]:
    custom = (message.get("metadata") or {}).get("custom")
    return {key: value for key, value in message.items() if key != "metadata" or custom}


@given(st.lists(STRANDS, max_size=5))
def test_what_strands_says_comes_back_exactly(messages: list[Any]) -> None:
    ours = all_from_strands(messages)
    assert to_strands(stored(ours)) == [without_empty_metadata(message) for message in messages]


@given(STRANDS)
def test_what_is_kept_of_a_strands_message_is_a_message_of_ours(message: dict[str, Any]) -> None:
    for ours in from_strands(message):
        assert isinstance(ours["role"], str)
        assert isinstance(ours["content"], str)


# --- turnkeep, Strands, turnkeep ----------------------------------------------------------------------------

EXTRAS = st.dictionaries(st.sampled_from(["ephemeral", "injectedBy", "x", "isError"]), JSON, max_size=2)
CALLS = st.builds(
    lambda call_id, name, args, meta: (
        {"id": call_id, "name": name, "args": args} | ({} if meta is None else {"providerMeta": meta})
    ),
    NAMES,
    NAMES,
    OBJECTS,
    st.none() | st.just({"reasoningSignature": "s"}) | OBJECTS,
)
THINKING = st.one_of(
    st.builds(lambda text: {"type": "thinking", "content": text, "signature": "sig"}, TEXTS),
    st.builds(
        lambda text, more: {"type": "thinking", "content": text, **more},
        TEXTS,
        OF_OTHERS,
    ),
    st.builds(lambda text: {"type": "redacted_thinking", "content": text}, TEXTS),
)
OURS = st.one_of(
    st.builds(lambda text, more: {"role": "user", "content": text, **more}, TEXTS, EXTRAS),
    st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["developer", "observer"]), TEXTS),
    st.builds(
        lambda text, calls, thinking, more: {
            "role": "assistant",
            "content": text,
            **({"toolCalls": calls} if calls is not None else {}),
            **({"thinkingBlocks": thinking} if thinking is not None else {}),
            **more,
        },
        TEXTS,
        st.none() | st.lists(CALLS, max_size=3),
        st.none() | st.lists(THINKING, max_size=2),
        EXTRAS,
    ),
    st.builds(
        lambda call_id, text, name, more: (
            {"role": "tool", "content": text, "toolCallId": call_id}
            | ({} if name is None else {"toolName": name})
            | more
        ),
        NAMES,
        TEXTS,
        st.none() | NAMES,
        EXTRAS,
    ),
)


@given(st.lists(OURS, max_size=6))
def test_what_turnkeep_stores_comes_back_exactly(messages: list[Any]) -> None:
    crossed = to_strands(messages)
    json.dumps([message.get("metadata") for message in crossed], default=str)
    assert all_from_strands(crossed) == messages


@given(st.lists(OURS, max_size=6))
def test_strands_gets_only_blocks_that_it_knows(messages: list[Any]) -> None:
    for message in to_strands(messages):
        assert message["role"] in ("user", "assistant")
        for block in message["content"]:
            assert set(block) <= {"text", "toolUse", "toolResult", "reasoningContent"}


def test_a_rounds_results_are_one_message_of_strands_and_one_each_of_ours() -> None:
    calls = [{"id": "a", "name": "x", "args": {}}, {"id": "b", "name": "y", "args": {}}]
    ours: list[Any] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "toolCalls": calls},
        {"role": "tool", "content": "1", "toolCallId": "a", "toolName": "x"},
        {"role": "tool", "content": "2", "toolCallId": "b", "toolName": "y", "isError": True},
    ]
    theirs = to_strands(ours)
    assert [message["role"] for message in theirs] == ["user", "assistant", "user"]
    assert theirs[2] == {
        "role": "user",
        "content": [
            {"toolResult": {"toolUseId": "a", "status": "success", "content": [{"text": "1"}]}},
            {"toolResult": {"toolUseId": "b", "status": "error", "content": [{"text": "2"}]}},
        ],
    }
    assert all_from_strands(theirs) == ours


def test_two_messages_with_results_stay_two() -> None:
    result = {"toolResult": {"toolUseId": "a", "status": "success", "content": [{"text": ""}]}}
    theirs = [{"role": "user", "content": [result]}] * 2
    assert to_strands(stored(all_from_strands(theirs))) == theirs


def test_words_beside_results_stay_in_their_message() -> None:
    result = {"toolResult": {"toolUseId": "a", "status": "success", "content": [{"text": "1"}]}}
    theirs = [{"role": "user", "content": [result, {"text": "go on"}]}]
    assert to_strands(stored(all_from_strands(theirs))) == theirs
