"""The loop: iterations, commits, what a model is told, and how a turn ends."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.support import INFO, Watching, answered, by_step, turn
from turnkeep.agent import Agent, Window, call, tool
from turnkeep.agent.provider import ModelError, ModelReply, ModelRequest
from turnkeep.agent.scripted import Calls
from turnkeep.clock import ManualClock
from turnkeep.errors import LostClaimError

if TYPE_CHECKING:
    from turnkeep.messages import Message


@tool
def rain(bed: str) -> dict[str, object]:
    """Says how much it rains."""
    return {"bed": bed, "rain_mm": 4}


def test_an_answer_without_tools_ends_the_turn_with_role_and_content_only() -> None:
    recorded = turn("hello")
    outcome = answered(Agent(provider=by_step("Hi there.")).run(recorded.context))
    assert outcome.output == "Hi there."
    assert outcome.messages == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hi there."}]
    assert outcome.iteration == 1
    assert recorded.commits == []  # the user message was durable with the claim; the answer is the final commit
    assert recorded.log == ["check"]


def test_an_empty_answer_appends_no_message() -> None:
    outcome = answered(Agent(provider=by_step("")).run(turn("hello").context))
    assert outcome.output == ""
    assert outcome.messages == [{"role": "user", "content": "hello"}]


def test_tool_turns_follow_their_assistant_message_in_call_order_and_each_iteration_commits_once() -> None:
    first = Calls([call("rain", bed="north"), call("rain", bed="south")], "Checking both beds.")
    recorded = turn("Which bed gets rain?")
    agent = Agent(provider=by_step(first, call("rain", bed="east"), "North."), tools=[rain])
    outcome = answered(agent.run(recorded.context))

    assert [(m["role"], m["content"]) for m in outcome.messages] == [
        ("user", "Which bed gets rain?"),
        ("assistant", "Checking both beds."),
        ("tool", '{"bed":"north","rain_mm":4}'),
        ("tool", '{"bed":"south","rain_mm":4}'),
        ("assistant", ""),
        ("tool", '{"bed":"east","rain_mm":4}'),
        ("assistant", "North."),
    ]
    assert [m["toolCallId"] for m in outcome.messages if m["role"] == "tool"] == ["call-1", "call-2", "call-3"]
    # CONTRACT 12.4: after the results of iteration n the counter stands at n + 1; the answer came in iteration 3.
    assert [(iteration, len(messages)) for iteration, messages in recorded.commits] == [(2, 4), (3, 6)]
    assert outcome.iteration == 3
    assert recorded.log == [
        "check", "barrier", "check", "check", "commit 2",
        "check", "barrier", "check", "commit 3",
        "check",
    ]  # fmt: skip


def test_no_commit_ever_holds_a_call_without_its_result() -> None:
    recorded = turn()
    steps = [[call("rain", bed="a"), call("nothing"), call("rain", bed=3)], call("rain", bed="b"), "Done."]
    Agent(provider=by_step(*steps), tools=[rain]).run(recorded.context)
    for _, messages in recorded.commits:
        calls = [one["id"] for message in messages for one in message.get("toolCalls", [])]
        assert calls == [message["toolCallId"] for message in messages if message["role"] == "tool"]


def test_a_check_that_raises_stops_the_run_before_the_tool() -> None:
    ran: list[str] = []

    @tool
    def act(what: str) -> str:
        ran.append(what)
        return "ok"

    recorded = turn()
    checks = iter([None, None, LostClaimError(turn=3)])

    def check() -> None:
        problem = next(checks)
        if problem is not None:
            raise problem

    recorded.context.check = check
    with pytest.raises(LostClaimError):
        Agent(provider=by_step([call("act", what="one"), call("act", what="two")]), tools=[act]).run(recorded.context)
    assert ran == ["one"]
    assert recorded.commits == []


def test_the_messages_given_are_not_changed() -> None:
    said: list[Message] = [{"role": "user", "content": "hi"}]
    Agent(provider=by_step(call("rain", bed="a"), "ok"), tools=[rain]).run(turn(messages=said).context)
    assert said == [{"role": "user", "content": "hi"}]


def test_usage_is_summed_over_model_calls() -> None:
    def reply(message: Message) -> ModelReply:
        return ModelReply(message, "end_turn", {"inputTokens": 10, "outputTokens": 3, "cacheReadInputTokens": 2})

    calls = {"role": "assistant", "content": "", "toolCalls": [{"id": "x", "name": "rain", "args": {"bed": "a"}}]}
    provider = by_step(reply(calls), reply({"role": "assistant", "content": "ok"}))
    outcome = answered(Agent(provider=provider, tools=[rain]).run(turn().context))
    assert outcome.usage == {"inputTokens": 20, "outputTokens": 6, "cacheReadInputTokens": 4}


def test_reasoning_blocks_and_provider_meta_are_kept_byte_for_byte() -> None:
    blocks = [{"type": "thinking", "content": "hm … 😀", "signature": "c2ln", "more": 1}]
    calling = {
        "role": "assistant",
        "content": "",
        "toolCalls": [{"id": "x", "name": "rain", "args": {"bed": "a"}, "providerMeta": {"sig": "abc"}}],
        "thinkingBlocks": blocks,
    }
    final = {"role": "assistant", "content": "ok", "thinkingBlocks": blocks, "somethingElse": 1}
    outcome = answered(
        Agent(provider=by_step(ModelReply(calling), ModelReply(final)), tools=[rain]).run(turn().context)
    )
    assert outcome.messages[1] == calling
    assert outcome.messages[-1] == {"role": "assistant", "content": "ok", "thinkingBlocks": blocks}


# --- what the model is told -----------------------------------------------------------------------------------


def test_the_model_sees_earlier_turns_closed_and_this_one_with_the_system_prompt_and_tools() -> None:
    history: list[Message] = [
        {"role": "system", "content": "Stored rule."},
        {"role": "user", "content": "earlier"},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "k", "name": "rain", "args": {}}]},
        {"role": "user", "content": "and again", "injectedBy": {"flavor": "x"}},
        {"role": "critic", "content": "a role of a newer writer"},
        {"role": "assistant", "content": "yes"},
    ]
    provider = Watching(lambda scene: "ok")
    Agent(provider=provider, system="Be kind.", tools=[rain]).run(
        turn("now", history=history, time_left_ms=lambda: 4321).context
    )
    [request] = provider.requests
    assert request.system == "Be kind.\n\nStored rule."
    assert [message["role"] for message in request.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "user",
    ]
    assert request.messages[2]["toolCallId"] == "k"
    assert request.messages[3] == {"role": "user", "content": "and again"}
    assert [spec.name for spec in request.tools] == ["rain"]
    assert request.time_left_ms == 4321


def test_unknown_tools_bad_arguments_and_failing_tools_are_told_to_the_model_and_the_turn_goes_on() -> None:
    @tool
    def breaks(reason: str) -> str:
        raise RuntimeError(reason * 5000)

    steps = [
        [call("nope"), call("rain", bed=["a"]), call("rain", bed="a", color="red"), call("breaks", reason="no ")],
        "I am sorry.",
    ]
    outcome = answered(Agent(provider=by_step(*steps), tools=[rain, breaks]).run(turn().context))
    unknown, mistyped, surplus, failed = [message for message in outcome.messages if message["role"] == "tool"]
    assert unknown["content"] == "error: not run: there is no tool nope; there are: breaks, rain."
    assert mistyped["content"].startswith("error: not run: the arguments do not fit the tool: bed: ")
    assert surplus["content"].startswith("error: not run: the arguments do not fit the tool: color: ")
    assert failed["content"].startswith("error: the tool failed: RuntimeError: no no")
    assert len(failed["content"]) == 2000
    assert all(message["isError"] is True for message in (unknown, mistyped, surplus, failed))
    assert outcome.output == "I am sorry."


def test_turnkeeps_own_refusals_inside_a_tool_end_the_run_instead() -> None:
    @tool
    def stale() -> str:
        raise LostClaimError(turn=3)

    with pytest.raises(LostClaimError):
        Agent(provider=by_step(call("stale"), "never"), tools=[stale]).run(turn().context)


# --- parallel -----------------------------------------------------------------------------------------------


def test_neighbours_that_may_run_in_parallel_do_and_their_results_keep_call_order() -> None:
    together = threading.Barrier(3, timeout=10)

    @tool(parallel=True)
    def meet(who: str) -> str:
        together.wait()  # returns only if three of them run at once
        return who

    calls = [call("meet", who=who) for who in ("a", "b", "c")]
    outcome = answered(Agent(provider=by_step(calls, "ok"), tools=[meet]).run(turn().context))
    assert [m["content"] for m in outcome.messages if m["role"] == "tool"] == ["a", "b", "c"]


def test_a_tool_that_does_not_say_so_never_runs_beside_another() -> None:
    running: list[str] = []
    order: list[str] = []

    @tool(parallel=True)
    def quick(who: str) -> str:
        running.append(who)
        running.remove(who)
        return who

    @tool
    def alone(who: str) -> str:
        assert running == []
        order.append(who)
        return who

    calls = [call("quick", who="1"), call("alone", who="2"), call("alone", who="3"), call("quick", who="4")]
    outcome = answered(Agent(provider=by_step(calls, "ok"), tools=[quick, alone]).run(turn().context))
    assert [m["content"] for m in outcome.messages if m["role"] == "tool"] == ["1", "2", "3", "4"]
    assert order == ["2", "3"]


# --- ends ------------------------------------------------------------------------------------------------------


def test_the_bound_on_iterations_ends_in_an_answer_that_says_so_and_keeps_the_results() -> None:
    provider = Watching(lambda scene: call("rain", bed="again"))
    outcome = answered(Agent(provider=provider, tools=[rain], max_iterations=3).run(turn().context))
    assert len(provider.requests) == 3
    assert "3 steps" in outcome.output
    assert outcome.messages[-1] == {"role": "assistant", "content": outcome.output}
    assert outcome.messages[-2]["role"] == "tool"
    assert outcome.evidence["stopped"] == {"reason": "max-iterations", "maxIterations": 3}


def test_calls_of_a_reply_that_was_cut_are_not_run() -> None:
    ran: list[str] = []

    @tool
    def act(what: str) -> str:
        ran.append(what)
        return "ok"

    cut = {"role": "assistant", "content": "", "toolCalls": [{"id": "x", "name": "act", "args": {"what": "hal"}}]}
    recorded = turn()
    outcome = answered(Agent(provider=by_step(ModelReply(cut, "max_tokens"), "ok"), tools=[act]).run(recorded.context))
    assert ran == []
    assert "cut at its token limit" in outcome.messages[2]["content"]
    assert [iteration for iteration, _ in recorded.commits] == [2]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "assistant", "content": "", "toolCalls": {"a": 1}},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "x", "name": "rain", "args": "{}"}]},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "x", "args": {}}]},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "x", "name": "rain", "args": {"bed": float("nan")}}]},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "x", "name": "rain", "args": {"bed": "\ud800"}}]},
    ],
)
def test_a_reply_that_cannot_be_kept_is_a_named_failure(message: Message) -> None:
    with pytest.raises(ModelError) as refused:
        Agent(provider=by_step(ModelReply(message)), tools=[rain]).run(turn().context)
    assert refused.value.code == "ERR_MODEL_FAILED"


def test_two_calls_of_one_id_get_a_result_each() -> None:
    twins = [{"id": "x", "name": "rain", "args": {"bed": bed}} for bed in "ab"]
    message = {
        "role": "assistant",
        "content": "",
        "toolCalls": [*twins, {"id": "", "name": "rain", "args": {"bed": "c"}}],
    }
    outcome = answered(Agent(provider=by_step(ModelReply(message), "ok"), tools=[rain]).run(turn().context))
    assert [call["id"] for call in outcome.messages[1]["toolCalls"]] == ["x", "x-2", "call-3"]
    assert [m["toolCallId"] for m in outcome.messages if m["role"] == "tool"] == ["x", "x-2", "call-3"]


def test_a_providers_error_passes_through() -> None:
    class Broken:
        def converse(self, request: ModelRequest) -> ModelReply:
            raise ModelError

    with pytest.raises(ModelError):
        Agent(provider=Broken()).run(turn().context)


# --- taking over ------------------------------------------------------------------------------------------------


def test_a_takeover_goes_on_behind_durable_results_and_runs_none_of_them_again() -> None:
    ran: list[str] = []

    @tool
    def act(what: str) -> str:
        ran.append(what)
        return what

    steps = [call("act", what="one"), call("act", what="two"), "Done."]
    first = turn()
    whole = answered(Agent(provider=by_step(*steps), tools=[act]).run(first.context))
    for iteration, durable in first.commits:
        ran.clear()
        recorded = turn(messages=durable, info=replace(INFO, attempt=2))
        outcome = answered(Agent(provider=by_step(*steps), tools=[act]).run(recorded.context))
        assert outcome.messages == whole.messages
        assert outcome.iteration == whole.iteration
        assert ran == ["one", "two"][iteration - 1 :]


def test_a_takeover_with_open_calls_runs_those_only() -> None:
    ran: list[str] = []

    @tool
    def act(what: str) -> str:
        ran.append(what)
        return what

    steps = [[call("act", what="one"), call("act", what="two")], "Done."]
    whole = answered(Agent(provider=by_step(*steps), tools=[act]).run(turn().context))
    ran.clear()
    recorded = turn(messages=whole.messages[:3], info=replace(INFO, attempt=2))
    outcome = answered(Agent(provider=by_step(*steps), tools=[act]).run(recorded.context))
    assert ran == ["two"]
    assert outcome.messages == whole.messages


def test_a_takeover_of_a_turn_that_had_its_answer_asks_no_model() -> None:
    provider = Watching(lambda scene: "another answer")
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "the answer"}]
    outcome = answered(Agent(provider=provider).run(turn(messages=said).context))
    assert (outcome.output, outcome.messages, provider.requests) == ("the answer", said, [])


# --- evidence -------------------------------------------------------------------------------------------------


def test_the_evidence_names_prompt_window_model_calls_and_tool_calls_by_reference() -> None:
    clock = ManualClock()

    @tool
    def slow(text: str) -> str:
        clock.advance_ms(40)
        return text

    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 3
    recorded = turn(
        history=history,
        history_turns=[(5, 2), (7, 2), (8, 2)],
        left_out={"turns": 4, "messages": 9},
    )
    agent = Agent(
        provider=by_step(call("slow", text="x" * 5000), "ok"),
        tools=[slow],
        system="Be kind.",
        system_name="desk-prompt",
        agent_id="desk",
        agent_version="7",
        window=Window(last_turns=2),
        clock=clock,
    )
    evidence = answered(agent.run(recorded.context)).evidence
    digest = hashlib.sha256(b"Be kind.").hexdigest()
    assert evidence["system"] == {"name": "desk-prompt", "sha256": digest, "characters": 8}
    assert evidence["agent"] == {"id": "desk", "version": "7"}
    assert (evidence["question"], evidence["answer"]) == ("msg-3-0", "msg-3-3")
    assert "adopted" not in evidence
    assert evidence["window"] == {
        "turns": 2,
        "messages": 4,
        "firstTurn": 7,
        "lastTurn": 8,
        "leftOut": {"turns": 5, "messages": 11, "beforeTurn": 7},
    }
    assert [(one["stopReason"], one["message"]) for one in evidence["modelCalls"]] == [
        ("tool_use", "msg-3-1"),
        ("end_turn", "msg-3-3"),
    ]
    [one] = evidence["toolCalls"]
    assert (one["name"], one["message"], one["durationMs"], len(one["result"])) == ("slow", "msg-3-2", 40, 200)
    assert isinstance(one["args"], str)
    assert len(one["args"]) == 2000
    assert "rerun" not in one


@pytest.mark.parametrize("letter", ["y", "語", "😀"])
def test_evidence_stays_small_however_long_a_turn_gets_and_whatever_it_says(letter: str) -> None:
    @tool
    def echo(text: str) -> str:
        return text

    calls = [call("echo", text=letter * 1900) for _ in range(100)]
    steps = [calls, *[call("echo", text="z")] * 10, "ok"]
    evidence = answered(Agent(provider=by_step(*steps), tools=[echo]).run(turn().context)).evidence
    listed = len(evidence["toolCalls"]) + len(evidence["modelCalls"])
    assert listed > 10
    assert listed + sum(evidence["notListed"].values()) == 110 + 12
    assert len(json.dumps(evidence, ensure_ascii=False).encode()) < 15_000


def test_the_evidence_names_what_an_earlier_attempt_left() -> None:
    before = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "c-1", "name": "rain", "args": {"bed": "a"}}]},
        {"role": "tool", "content": "wet", "toolCallId": "c-1", "toolName": "rain"},
    ]
    recorded = turn(messages=before, info=replace(INFO, attempt=2))
    evidence = answered(Agent(provider=by_step("", "ok"), tools=[rain]).run(recorded.context)).evidence
    assert evidence["adopted"] == {"firstMessage": "msg-3-1", "lastMessage": "msg-3-2"}
    assert (evidence["question"], evidence["answer"]) == ("msg-3-0", "msg-3-3")


def test_a_tool_that_an_earlier_attempt_may_have_run_is_marked() -> None:
    recorded = turn(info=replace(INFO, attempt=2))
    evidence = answered(
        Agent(provider=by_step(call("rain", bed="a"), "ok"), tools=[rain]).run(recorded.context)
    ).evidence
    assert evidence["toolCalls"][0]["rerun"] == "possible"


# --- putting one together -------------------------------------------------------------------------------------


def test_an_agent_refuses_two_tools_of_one_name_and_a_bound_below_one() -> None:
    with pytest.raises(ValueError, match="same name"):
        Agent(provider=by_step("x"), tools=[rain, rain])
    with pytest.raises(ValueError, match="at least 1"):
        Agent(provider=by_step("x"), max_iterations=0)


def test_two_peoples_turns_in_one_process_do_not_meet() -> None:
    seen: dict[str, list[Any]] = {"ada": [], "bo": []}

    def script(scene: Any) -> str:
        return f"heard {scene.text} and {len(scene.messages)}"

    for person in ("ada", "bo", "ada"):
        agent = Agent(provider=Watching(script))
        outcome = answered(agent.run(turn(f"I am {person}", info=replace(INFO, principal=person)).context))
        seen[person].append(outcome.output)
    assert seen == {"ada": ["heard I am ada and 1"] * 2, "bo": ["heard I am bo and 1"]}
