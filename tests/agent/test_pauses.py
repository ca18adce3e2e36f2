"""Runs that ask: the three shapes of an ask, and what a resume does with its answer (CONTRACT.md 5 and 17.5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.support import INFO, DictOnce, Recorded, answered, asked, by_step, stored, turn
from turnkeep.agent import Agent, CheckIn, MiddlewareAsk, ToolCall, ToolContext, call, tool
from turnkeep.decisions import approved, declined, pending_ask
from turnkeep.errors import (
    ConversationMismatchError,
    DecisionRequiredError,
    MalformedStoredItemError,
    StaleDecisionError,
    UnknownStoredFormatError,
)

if TYPE_CHECKING:
    from turnkeep.agent.port import Asked, Outcome
    from turnkeep.agent.tools import Tool

YES = approved("bo", now_ms=1)
NO = declined("bo", "too much", now_ms=1)


class Desk:
    """Three tools that write down that they ran: one that counts, one that asks, one that is checked in."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool
        def count(what: str) -> str:
            """Counts things."""
            self.ran.append(f"count {what}")
            return f"four {what}"

        @tool
        def question(about: str, context: ToolContext) -> str:
            """Asks a person."""
            self.ran.append(f"question {about}")
            return context.ask(f"Shall I {about}?", expires_in_s=60, hint={"a": 1})

        @tool(check_in=CheckIn(audience="role:supervisor", when=lambda args: args["cents"] > 50))
        def pay(cents: int, context: ToolContext) -> str:
            """Pays money."""
            self.ran.append(f"pay {cents}")
            by = context.decision["by"] if context.decision else "nobody"
            return f"paid {cents}, approved by {by}"

        self.tools: list[Tool] = [count, question, pay]

    def agent(self, *steps: Any, **more: Any) -> Agent:
        return Agent(provider=by_step(*steps), tools=more.pop("tools", self.tools), **more)


def resume(agent: Agent, paused: Asked, decision: Any, *, messages: list[dict[str, Any]] | None = None,
           once: DictOnce | None = None) -> tuple[Outcome, Recorded]:  # fmt: skip
    """Resumes in what would be a fresh process: everything went through storage."""
    recorded = turn(messages=stored(messages or paused.messages), info=replace(INFO, attempt=2), once=once)
    return agent.resume(recorded.context, stored(paused.checkpoint), stored(decision)), recorded


# --- the three shapes ---------------------------------------------------------------------------------------


def test_a_plain_ask_carries_the_question_and_the_tools_own_keys() -> None:
    desk = Desk()
    recorded = turn()
    paused = asked(desk.agent(call("question", about="water")).run(recorded.context))
    assert paused.pause_data == {
        "toolCallId": "call-1", "toolName": "question", "question": "Shall I water?", "hint": {"a": 1},
    }  # fmt: skip
    assert (paused.audience, paused.expires_in_s, paused.iteration) == ("owner", 60, 1)
    assert pending_ask(paused.pause_data)["question"] == "Shall I water?"
    assert recorded.log == ["check", "barrier", "check", "commit 1"]
    assert recorded.commits[0][1] == paused.messages


def test_a_check_in_asks_by_its_rule_for_its_audience() -> None:
    desk = Desk()
    outcome = answered(desk.agent(call("pay", cents=50), "done").run(turn().context))
    assert outcome.messages[2]["content"] == "paid 50, approved by nobody"
    paused = asked(desk.agent(call("pay", cents=51), "done").run(turn().context))
    assert paused.audience == "role:supervisor"
    assert paused.pause_data["checkIn"]["tool"] == "pay"
    assert paused.pause_data["checkIn"]["args"] == {"cents": 51}
    assert desk.ran == ["pay 50"]


def test_a_middleware_ask_names_the_middleware() -> None:
    def four_eyes(made: ToolCall, context: ToolContext) -> MiddlewareAsk | None:
        if made.name != "count":
            return None
        return MiddlewareAsk("May I look?", {"why": "demo", "turn": context.turn}, {"componentId": "confirm"})

    desk = Desk()
    agent = desk.agent(call("count", what="beds"), "done", middleware=[four_eyes])
    paused = asked(agent.run(turn().context))
    assert paused.pause_data == {
        "toolCallId": "call-1",
        "toolName": "count",
        "ask": {
            "question": "May I look?",
            "detail": {"why": "demo", "turn": 3},
            "component": {"componentId": "confirm"},
            "middleware": "four_eyes",
        },
    }
    assert pending_ask(paused.pause_data)["component"] == {"componentId": "confirm"}
    assert desk.ran == []


def test_the_checkpoint_has_the_engines_shape_and_no_conversation_in_it() -> None:
    desk = Desk()
    steps = [[call("count", what="beds"), call("pay", cents=99), call("count", what="pots")]]
    paused = asked(desk.agent(*steps, agent_id="desk", agent_version="2").run(turn("the secret words").context))
    checkpoint = paused.checkpoint
    assert checkpoint["pausedStageId"] == "tool-calls"
    assert checkpoint["subflowPath"] == []
    assert checkpoint["pauseData"] == paused.pause_data
    shared = checkpoint["sharedState"]
    assert (shared["pausedToolCallId"], shared["pausedToolName"], shared["pausedToolArgs"]) == (
        "call-2",
        "pay",
        {"cents": 99},
    )
    assert shared["remainingToolCallIds"] == ["call-3"]
    assert shared["agent"] == {"id": "desk", "version": "2"}
    assert "the secret words" not in str({**checkpoint, "pauseData": None})


# --- answers ------------------------------------------------------------------------------------------------


def test_an_approved_call_runs_once_with_the_arguments_kept_at_the_pause() -> None:
    desk = Desk()
    agent = desk.agent(call("pay", cents=99), "Paid.")
    outcome, recorded = resume(agent, asked(agent.run(turn().context)), YES)
    assert desk.ran == ["pay 99"]
    assert answered(outcome).messages[2] == {
        "role": "tool", "content": "paid 99, approved by bo", "toolCallId": "call-1", "toolName": "pay",
    }  # fmt: skip
    assert answered(outcome).output == "Paid."
    assert answered(outcome).iteration == 2
    # 12.1: before a resumed gate's tool runs, the run waits until every earlier write has landed.
    assert recorded.log == ["barrier", "check", "commit 2", "check"]
    assert answered(outcome).evidence["toolCalls"][0]["approved"] is True
    assert [one["message"] for one in answered(outcome).evidence["modelCalls"]] == ["msg-3-1", "msg-3-3"]


@pytest.mark.parametrize(
    ("decision", "content"),
    [
        (NO, "declined by human: too much"),
        (declined("bo", now_ms=1), "declined by human"),
        ({"approved": False, "by": "", "note": 7}, "declined by human"),
    ],
)
def test_a_declined_call_does_not_run(decision: dict[str, Any], content: str) -> None:
    desk = Desk()
    agent = desk.agent(call("pay", cents=99), "Not paid.")
    outcome, _ = resume(agent, asked(agent.run(turn().context)), decision)
    assert desk.ran == []
    assert answered(outcome).messages[2]["content"] == content
    assert "isError" not in answered(outcome).messages[2]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("yes, do", "yes, do"),
        ("", ""),
        (None, "null"),
        (False, "false"),
        (0, "0"),
        ([1], "[1]"),
        ({"a": "ä"}, '{"a":"ä"}'),
    ],
)
def test_a_plain_asks_answer_is_the_tools_result_and_the_tool_does_not_run_again(value: Any, content: str) -> None:
    desk = Desk()
    agent = desk.agent(call("question", about="water"), "Done.")
    outcome, _ = resume(agent, asked(agent.run(turn().context)), value)
    assert answered(outcome).messages[2]["content"] == content
    assert desk.ran == ["question water"]


def test_a_gate_answered_with_no_decision_and_a_stale_one_are_refused_before_anything_runs() -> None:
    desk = Desk()
    agent = desk.agent(call("pay", cents=99), "Paid.")
    paused = asked(agent.run(turn().context))
    with pytest.raises(DecisionRequiredError):
        resume(agent, paused, "yes")
    pinned = replace(paused, checkpoint=stored(paused.checkpoint))
    pinned.checkpoint["pauseData"]["checkIn"]["component"] = {"componentId": "c", "propsRef": "art_1"}
    with pytest.raises(StaleDecisionError):
        resume(agent, pinned, approved("bo", value={"kind": "row", "value": 1, "from": "art_2"}, now_ms=1))
    assert desk.ran == []


# --- several calls in one assistant turn ----------------------------------------------------------------------


def test_calls_before_the_pause_do_not_run_again_and_calls_behind_it_run_after_the_answer() -> None:
    desk = Desk()
    calls = [call("count", what="beds"), call("question", about="water"), call("count", what="pots")]
    agent = desk.agent(calls, "All done.")
    paused = asked(agent.run(turn("Count and water").context))
    assert [message["role"] for message in paused.messages] == ["user", "assistant", "tool"]
    assert desk.ran == ["count beds", "question water"]

    outcome, recorded = resume(agent, paused, "yes")
    assert desk.ran == ["count beds", "question water", "count pots"]
    results = [m for m in answered(outcome).messages if m["role"] == "tool"]
    assert [(m["toolCallId"], m["content"]) for m in results] == [
        ("call-1", "four beds"),
        ("call-2", "yes"),
        ("call-3", "four pots"),
    ]
    # The decided call's result is durable before its neighbours run; the iteration moves on when all have theirs.
    assert recorded.log == ["barrier", "check", "commit 1", "barrier", "check", "commit 2", "check"]


def test_a_turn_may_pause_again_and_again() -> None:
    desk = Desk()
    calls = [call("pay", cents=60), call("count", what="pots"), call("pay", cents=70), call("question", about="stop")]
    agent = desk.agent(calls, call("pay", cents=80), "Finished.")
    paused = asked(agent.run(turn().context))
    asks = []
    for decision in (YES, NO, "no", YES):
        asks.append(paused.pause_data["toolCallId"])
        outcome, _ = resume(agent, paused, decision)
        if asks[-1] != "call-5":
            paused = asked(outcome)
    assert asks == ["call-1", "call-3", "call-4", "call-5"]
    assert desk.ran == ["pay 60", "count pots", "question stop", "pay 80"]
    assert answered(outcome).output == "Finished."
    contents = [m["content"] for m in answered(outcome).messages if m["role"] == "tool"]
    assert contents[2:4] == ["declined by human: too much", "no"]


def test_usage_and_evidence_go_on_over_a_pause() -> None:
    desk = Desk()
    agent = desk.agent([call("count", what="a"), call("pay", cents=60)], "Done.")
    paused = asked(agent.run(turn().context))
    outcome, _ = resume(agent, paused, YES)
    assert answered(outcome).usage["inputTokens"] > paused.usage["inputTokens"] > 0
    assert [one["name"] for one in answered(outcome).evidence["toolCalls"]] == ["count", "pay"]


# --- gates in a row -----------------------------------------------------------------------------------------


def test_an_approval_opens_its_own_gate_only() -> None:
    """A middleware's yes from the owner is not the supervisor's."""

    def rule(made: ToolCall, context: ToolContext) -> MiddlewareAsk | None:
        return MiddlewareAsk("Sure?")

    desk = Desk()
    agent = desk.agent(call("pay", cents=99), "Paid.", middleware=[rule, rule])
    paused = asked(agent.run(turn().context))
    audiences = [(paused.pause_data["ask"]["middleware"], paused.audience)]
    outcome, _ = resume(agent, paused, YES)
    paused = asked(outcome)
    audiences.append((paused.pause_data["ask"]["middleware"], paused.audience))
    outcome, _ = resume(agent, paused, YES)
    paused = asked(outcome)
    assert audiences == [("rule", "owner"), ("rule-2", "owner")]
    assert (paused.audience, "checkIn" in paused.pause_data) == ("role:supervisor", True)
    assert desk.ran == []
    outcome, _ = resume(agent, paused, YES)
    assert desk.ran == ["pay 99"]
    assert answered(outcome).output == "Paid."


def test_a_rule_that_fails_keeps_the_tool_from_running() -> None:
    def rule(made: ToolCall, context: ToolContext) -> MiddlewareAsk | None:
        raise KeyError("limit")

    desk = Desk()
    outcome = answered(desk.agent(call("count", what="a"), "ok", middleware=[rule]).run(turn().context))
    assert outcome.messages[2]["content"] == "error: not run: the rule rule failed: KeyError: 'limit'"

    def asking(made: ToolCall, context: ToolContext) -> MiddlewareAsk | None:
        context.ask("really?")

    outcome = answered(desk.agent(call("count", what="a"), "ok", middleware=[asking]).run(turn().context))
    assert "returns a MiddlewareAsk" in outcome.messages[2]["content"]

    @tool(check_in=CheckIn(when=lambda args: args["missing"]))
    def pay(cents: int) -> str:
        desk.ran.append("pay")
        return "paid"

    outcome = answered(desk.agent(call("pay", cents=1), "ok", tools=[pay]).run(turn().context))
    assert "the tool's check-in rule failed: KeyError" in outcome.messages[2]["content"]
    assert desk.ran == []


# --- deploys and crashes in between -----------------------------------------------------------------------------


def test_a_tool_that_is_gone_and_arguments_that_no_longer_fit_are_told_and_the_conversation_stays_whole() -> None:
    desk = Desk()
    paused = asked(desk.agent(call("pay", cents=99), "I could not.").run(turn().context))

    gone = desk.agent(call("pay", cents=99), "I could not.", tools=desk.tools[:2])
    outcome, _ = resume(gone, paused, YES)
    assert answered(outcome).messages[2]["content"] == (
        "error: not run: the tool pay is gone since this was asked. The approval was not used."
    )
    assert answered(outcome).evidence["toolCalls"][0]["refused"] == "no-such-tool"

    @tool
    def pay(euros: str) -> str:
        desk.ran.append("the new pay")
        return "paid"

    outcome, _ = resume(desk.agent(call("pay", cents=99), "I could not.", tools=[pay]), paused, YES)
    content = answered(outcome).messages[2]["content"]
    assert content.startswith("error: not run: the arguments do not fit the tool: euros: ")
    assert content.endswith("The approval was not used.")
    assert desk.ran == []
    assert answered(outcome).output == "I could not."


def test_a_resume_that_died_behind_the_decided_call_goes_on_and_runs_nothing_again() -> None:
    desk = Desk()
    calls = [call("pay", cents=99), call("count", what="pots")]
    agent = desk.agent(calls, call("count", what="beds"), "Done.")
    paused = asked(agent.run(turn().context))
    whole, recorded = resume(agent, paused, YES)
    ran_behind = {1: ["count pots", "count beds"], 2: ["count beds"], 3: []}
    assert [iteration for iteration, _ in recorded.commits] == [1, 2, 3]
    for iteration, durable in recorded.commits:
        desk.ran.clear()
        outcome, _ = resume(agent, paused, YES, messages=durable)
        assert desk.ran == ran_behind[iteration]
        assert answered(outcome).messages == answered(whole).messages
        assert answered(outcome).iteration == answered(whole).iteration


def test_another_engines_checkpoint_another_agent_and_missing_messages_are_refused_by_name() -> None:
    desk = Desk()
    agent = desk.agent(call("pay", cents=99), "Paid.", agent_id="desk")
    paused = asked(agent.run(turn().context))

    foreign = replace(paused, checkpoint={"sharedState": {"history": []}, "pausedStageId": "x", "subflowPath": []})
    with pytest.raises(UnknownStoredFormatError):
        resume(agent, foreign, YES)
    with pytest.raises(ConversationMismatchError):
        resume(desk.agent("x", agent_id="other"), paused, YES)
    for part in ("callIndex", "assistantIndex", "pausedToolArgs", "gatesPassed", "usage", "evidence"):
        broken = replace(paused, checkpoint=stored(paused.checkpoint))
        del broken.checkpoint["sharedState"][part]
        with pytest.raises(MalformedStoredItemError):
            resume(agent, broken, YES)
    for messages in (paused.messages[:1], [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]):
        with pytest.raises(MalformedStoredItemError):
            resume(agent, paused, YES, messages=messages)
    assert desk.ran == []


# --- asking ---------------------------------------------------------------------------------------------------


def test_a_tool_cannot_swallow_its_own_ask() -> None:
    @tool
    def careful(context: ToolContext) -> str:
        try:
            context.ask("Well?")
        except Exception:
            return "swallowed"

    paused = asked(Agent(provider=by_step(call("careful")), tools=[careful]).run(turn().context))
    assert paused.pause_data["question"] == "Well?"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"audience": "role:"}, "audience"),
        ({"audience": "everybody"}, "audience"),
        ({"audience": "role:a b"}, "audience"),
        ({"expires_in_s": 0}, "at least 1 second"),
        ({"checkIn": {}}, "cannot be named checkIn"),
        ({"toolName": "x"}, "cannot be named toolName"),
        ({"component": {"componentId": " "}}, "component cannot be used"),
        ({"when": {1, 2}}, "data.when cannot be stored: set"),
        ({"amount": float("inf")}, "data.amount cannot be stored"),
    ],
)
def test_an_ask_that_nobody_could_answer_is_told_to_the_model_instead(ask: dict[str, Any], said: str) -> None:
    @tool
    def asks(context: ToolContext) -> str:
        context.ask("Well?", **ask)

    outcome = answered(Agent(provider=by_step(call("asks"), "ok"), tools=[asks]).run(turn().context))
    assert said in outcome.messages[2]["content"]


def test_a_parallel_tool_cannot_ask_but_may_be_checked_in() -> None:
    ran: list[str] = []

    @tool(parallel=True)
    def asks(context: ToolContext) -> str:
        context.ask("Well?")

    @tool(parallel=True, check_in=CheckIn(when=lambda args: args["what"] == "b"))
    def act(what: str) -> str:
        ran.append(what)
        return what

    calls = [call("act", what="a"), call("act", what="b"), call("act", what="c"), call("asks")]
    agent = Agent(provider=by_step(calls, "ok"), tools=[asks, act])
    paused = asked(agent.run(turn().context))
    assert ran == ["a"]
    outcome, _ = resume(agent, paused, YES)
    assert ran == ["a", "b", "c"]
    assert "declared parallel cannot ask" in answered(outcome).messages[5]["content"]


def test_a_tool_knows_its_turn() -> None:
    seen: list[Any] = []

    @tool
    def look(context: ToolContext) -> str:
        seen.extend([context.conversation_id, context.turn, context.principal, context.tenant, context.time_left_ms])
        return "ok"

    recorded = turn(time_left_ms=lambda: 1234)
    Agent(provider=by_step(call("look"), "ok"), tools=[look]).run(recorded.context)
    assert seen == ["c-1", 3, "ada", "acme", 1234]
