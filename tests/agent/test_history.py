"""What reaches a provider: every call answered once, in order, directly behind its message, whatever was stored."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from turnkeep.agent.history import NOT_RUN, calls_of, close_dangling, for_provider, merge_consecutive, split_system

IDS = st.sampled_from(["a", "b", "a-2", "c"])
CALLS = st.lists(
    st.fixed_dictionaries({"id": IDS, "name": st.sampled_from(["look", "pay"]), "args": st.just({})})
    | st.sampled_from(
        [{"id": 3, "name": "x", "args": {}}, {"name": "x"}, "no call", {"id": "d", "name": "x", "args": "text"}]
    ),
    max_size=4,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": st.sampled_from(["", "hi", "more"])}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.sampled_from(["", "yes"])}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": st.sampled_from(["", "x"]), "toolCalls": CALLS}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": st.just("result"), "toolCallId": IDS}),
    st.sampled_from(
        [
            None, 7, "text", {}, {"role": 5, "content": "x"}, {"role": "tool", "content": "x"},
            {"role": "assistant", "content": "x", "toolCalls": None}, {"role": "user", "content": None},
            {"role": "critic", "content": "x"}, {"role": "system", "content": "rule"},
            {"role": "assistant", "content": None, "toolCalls": [{"id": "a", "name": "look", "args": {}}]},
        ]
    ),
)  # fmt: skip


def acceptable(messages: list[dict[str, Any]]) -> None:
    """The three promises of ``turnkeep.agent.history``."""
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        assert message["role"] != "tool", "a result that stands alone"
        calls = calls_of(message)
        assert len(calls) == len(message.get("toolCalls", []))
        assert ("toolCalls" in message) == bool(calls)
        assert len({call["id"] for call in calls}) == len(calls)
        for call in calls:
            assert isinstance(call["args"], dict)
            answer = messages[position]
            assert (answer["role"], answer["toolCallId"]) == ("tool", call["id"])
            position += 1


@settings(max_examples=400)
@given(st.lists(MESSAGES, max_size=14), st.integers(0, 14))
def test_whatever_was_stored_and_wherever_it_was_cut_a_provider_accepts_it(stored: list[Any], cut: int) -> None:
    closed = close_dangling(stored[cut:])
    acceptable(closed)
    assert close_dangling(closed) == closed
    shown = for_provider(stored[:cut], stored[cut:])
    acceptable(shown)
    assert all(isinstance(message["content"], str) for message in shown)
    assert all(message["role"] in ("system", "user", "assistant", "tool") for message in shown)


@given(st.lists(MESSAGES, max_size=12))
def test_closing_keeps_what_was_said(stored: list[Any]) -> None:
    said = [m["content"] for m in stored if isinstance(m, dict) and m.get("role") in ("user", "assistant")]
    assert [m["content"] for m in close_dangling(stored) if m["role"] in ("user", "assistant")] == said


@given(st.lists(MESSAGES, max_size=12))
def test_merged_messages_alternate_and_still_say_everything(stored: list[Any]) -> None:
    _, messages = split_system(for_provider([], stored))
    merged = merge_consecutive(messages)
    acceptable(merged)
    for one, two in itertools.pairwise(merged):
        assert one["role"] != two["role"] or one["role"] == "tool" or calls_of(two)
    words = "".join(m["content"] for m in messages if m["role"] != "tool")
    assert "".join(m["content"].replace("\n\n", "") for m in merged if m["role"] != "tool") == words


def test_a_healthy_history_comes_back_as_it_is() -> None:
    healthy: list[dict[str, Any]] = [
        {"role": "user", "content": "hi", "more": 1},
        {
            "role": "assistant",
            "content": "",
            "toolCalls": [{"id": "a", "name": "look", "args": {"x": 1}, "providerMeta": {}}],
        },
        {"role": "tool", "content": "r", "toolCallId": "a"},
        {"role": "assistant", "content": "done", "thinkingBlocks": [{"type": "thinking", "content": "hm"}]},
    ]
    closed = close_dangling(healthy)
    assert all(one is other for one, other in zip(closed, healthy, strict=True))


def test_a_call_without_a_result_gets_one_that_says_what_happened() -> None:
    calls = [{"id": "a", "name": "look", "args": {}}, {"id": "b", "name": "pay", "args": {}}]
    stored: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "toolCalls": calls},
        {"role": "tool", "content": "r", "toolCallId": "b", "toolName": "pay"},
        {"role": "user", "content": "next"},
    ]
    closed = close_dangling(stored, "not run: the turn was cancelled")
    said = {"role": "tool", "content": "not run: the turn was cancelled", "toolCallId": "a", "toolName": "look"}
    assert closed[2] == {**said, "isError": True}
    assert closed[3] == stored[2]
    assert close_dangling(stored)[2]["content"] == NOT_RUN
    assert len(stored) == 4


def test_one_result_answers_one_call() -> None:
    twins = [{"id": "a", "name": "look", "args": {}}] * 2
    result = {"role": "tool", "content": "r", "toolCallId": "a"}
    closed = close_dangling([{"role": "assistant", "content": "", "toolCalls": twins}, result])
    assert [(m["toolCallId"], m["content"]) for m in closed[1:]] == [("a", "r"), ("a-2", NOT_RUN)]


def test_merging_joins_two_user_messages_and_keeps_reasoning_in_order() -> None:
    merged = merge_consecutive(
        [
            {"role": "user", "content": "one"},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "a", "thinkingBlocks": [1]},
            {"role": "assistant", "content": "b", "thinkingBlocks": [2]},
            {"role": "assistant", "content": ""},
        ]
    )
    assert merged == [
        {"role": "user", "content": "one\n\ntwo"},
        {"role": "assistant", "content": "a\n\nb", "thinkingBlocks": [1, 2]},
    ]
