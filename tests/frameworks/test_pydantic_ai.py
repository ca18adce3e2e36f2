"""Pydantic AI, hosted: conversations, commits, durability, asks and their answers, crashes, deploys; all offline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import CallDeferred, ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

from examples.pydantic_ai_desk import build as desk
from tests.agent.support import INFO, answered, asked, stored, turn
from tests.frameworks.test_strands import NO, SUE, YES, decide
from tests.usecases.workshop import ALICE, KEY, Workshop
from turnkeep.agent.provider import ModelRefusedError, ModelThrottledError, ModelUnavailableError
from turnkeep.agent.window import Window
from turnkeep.errors import (
    ConversationMismatchError,
    DecisionRequiredError,
    LostClaimError,
    MalformedStoredItemError,
    StoreUnavailableError,
    UnknownStoredFormatError,
)
from turnkeep.frameworks.pydantic_ai import PydanticAgent
from turnkeep.ledger.records import Status
from turnkeep.usecases.read import read_evidence


def step(messages: list[Any]) -> int:
    """How many responses the model gave since the last words of the user."""
    done = 0
    for message in reversed(messages):
        if any(isinstance(part, UserPromptPart) for part in message.parts):
            break
        done += isinstance(message, ModelResponse)
    return done


@dataclass
class Shop:
    """A Pydantic AI agent whose model plays steps, and what its tools did."""

    steps: list[Any]
    ran: list[str] = field(default_factory=list)
    seen: list[list[Any]] = field(default_factory=list)
    instructions: list[Any] = field(default_factory=list)

    def agent(self, without: str = "", **options: Any) -> Agent[Any, Any]:
        def play(messages: list[Any], info: Any) -> ModelResponse:
            self.seen.append(messages)
            self.instructions.append(info.instructions)
            said = self.steps[step(messages)]
            if isinstance(said, Exception):
                raise said
            if isinstance(said, str):
                return ModelResponse([TextPart(said)])
            made = sum(isinstance(part, ToolCallPart) for message in messages for part in message.parts)
            return ModelResponse(
                [ToolCallPart(name, args, tool_call_id=f"c-{made + n}") for n, (name, args) in enumerate(said, 1)]
            )

        agent = Agent(FunctionModel(play), system_prompt="Be kind.", instructions="Be brief.", **options)

        def look(at: str) -> dict[str, Any]:
            """Looks."""
            self.ran.append(f"look {at}")
            return {"at": at, "fine": True}

        def pay(ctx: RunContext[Any], to: str) -> str:
            """Pays."""
            self.ran.append(f"pay {to} {ctx.tool_call_metadata}")
            return f"paid {to}"

        def which(what: str) -> str:
            """Asks."""
            raise CallDeferred(metadata={"question": f"Which {what}?"})

        def picky(n: int) -> str:
            """Wants more."""
            raise ModelRetry("n is too small")

        for function in (look, which, picky):
            if function.__name__ != without:
                agent.tool_plain(function)
        if without != "pay":
            agent.tool(requires_approval=True)(pay)
        return agent

    def host(self, **options: Any) -> PydanticAgent:
        agent = options.pop("agent", None) or self.agent()
        return PydanticAgent(agent, agent_id=options.pop("agent_id", "shop"), **options)

    def workshop(self, **options: Any) -> Workshop:
        return Workshop(lambda info: self.host(**options))


LOOK = [("look", {"at": "A"})]
PAY = [("pay", {"to": "A"})]
MIXED = [("look", {"at": "A"}), ("pay", {"to": "B"}), ("look", {"at": "C"})]


# --- conversations ------------------------------------------------------------------------------------------


def test_a_conversation_goes_on_over_turns_and_is_stored_in_turnkeeps_shape() -> None:
    shop = Shop([LOOK, "All fine."])
    work = shop.workshop()
    assert work.take("Is A fine?").output == "All fine."
    assert work.take("And now?").output == "All fine."
    user, asks, result, final = work.said(1)
    assert user == {"role": "user", "content": "Is A fine?"}
    calls = [{"id": "c-1", "name": "look", "args": {"at": "A"}}]
    assert asks == {"role": "assistant", "content": "", "toolCalls": calls}
    assert (result["content"], result["toolCallId"]) == ('{"at":"A","fine":true}', "c-1")
    assert final == {"role": "assistant", "content": "All fine."}
    assert [message.kind for message in shop.seen[-1]] == ["request", "response"] * 3 + ["request"]
    assert work.turn(2).agent_id == "shop"


def test_its_system_prompt_and_instructions_are_there_in_every_turn_and_never_stored() -> None:
    shop = Shop(["ok"])
    work = shop.workshop()
    for text in ("one", "two"):
        work.take(text)
        prompts = [part.content for part in shop.seen[-1][0].parts if part.part_kind == "system-prompt"]
        assert prompts == ["Be kind."]
        assert shop.instructions[-1] == "Be brief."
    assert "Be kind" not in repr([work.said(1), work.said(2)])


def test_the_record_says_what_it_used_and_what_led_to_the_answer() -> None:
    work = Shop([LOOK, "All fine."]).workshop(agent_version="7")
    record = work.take("Is A fine?")
    assert (record.usage or {})["outputTokens"] > 0
    shown = read_evidence(work.deps(), ALICE, KEY, 1)["evidence"]
    assert [one["message"] for one in shown["modelCalls"]] == ["msg-1-1", "msg-1-3"]
    (called,) = shown["toolCalls"]
    assert (called["name"], called["args"], called["message"]) == ("look", {"at": "A"}, "msg-1-2")
    assert (shown["question"], shown["answer"]) == ("msg-1-0", "msg-1-3")


def test_a_retry_and_wrong_arguments_are_told_to_the_model() -> None:
    work = Shop([[("picky", {"n": 1})], [("look", {"wrong": 1})], "So be it."]).workshop()
    assert work.take("go").output == "So be it."
    results = [message for message in work.said(1) if message["role"] == "tool"]
    assert [one["isError"] for one in results] == [True, True]
    assert "n is too small" in results[0]["content"]


def test_a_window_bounds_what_the_model_is_shown() -> None:
    shop = Shop(["ok"])
    work = shop.workshop(window=Window(last_turns=1))
    for text in ("one", "two", "three"):
        work.take(text)
    words = [p.content for m in shop.seen[-1] for p in m.parts if p.part_kind in ("user-prompt", "text")]
    assert words == ["two", "ok", "three"]


def test_structured_output_is_the_answer() -> None:
    class Verdict(BaseModel):
        fine: bool

    shop = Shop([[("final_result", {"fine": True})]])
    work = shop.workshop(agent=shop.agent(output_type=Verdict))
    assert work.take("Is it?").output == '{"fine":true}'
    assert [message["role"] for message in work.said(1)] == ["user", "assistant", "tool", "assistant"]
    assert work.take("Is it?").status is Status.COMPLETE


def test_an_output_that_is_sent_back_is_part_of_the_conversation() -> None:
    said_so_far: list[str] = []

    def play(messages: list[Any], info: Any) -> ModelResponse:
        said_so_far.append("no" if not said_so_far else "yes")
        return ModelResponse([TextPart(said_so_far[-1])])

    agent = Agent(FunctionModel(play))

    @agent.output_validator
    def only_yes(said: Any) -> Any:
        if said == "no":
            raise ModelRetry("say yes")
        return said

    outcome = answered(PydanticAgent(agent).run(turn().context))
    assert outcome.output == "yes"
    assert [message["role"] for message in outcome.messages] == ["user", "assistant", "user", "assistant"]
    assert outcome.messages[2]["content"] == "say yes"


def test_one_pydantic_agent_serves_many_turns() -> None:
    shop = Shop(["ok"])
    agent = shop.agent()
    work = Workshop(lambda info: PydanticAgent(agent))
    assert [work.take("x").turn, work.take("y").turn] == [1, 2]


# --- commits ------------------------------------------------------------------------------------------------


def test_rounds_of_tools_are_commits_and_the_checks_stand_where_they_belong() -> None:
    recorded = turn()
    outcome = answered(Shop([LOOK, LOOK, "ok"]).host().run(recorded.context))
    assert recorded.log == [
        *("check", "barrier", "check", "commit 2"),
        *("check", "barrier", "check", "commit 3"),
        "check",
    ]
    assert [len(messages) for _, messages in recorded.commits] == [3, 5]
    assert outcome.messages[:5] == recorded.commits[-1][1]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_durability_mode_holds(mode: Any) -> None:
    work = Shop([LOOK, LOOK, "ok"]).workshop(durability=mode)
    assert work.take("go").status is Status.COMPLETE
    assert len(work.items("SEG#")) == 2


def test_an_attempt_that_died_is_taken_over_from_what_was_durable() -> None:
    shop = Shop([LOOK, LOOK, "ok"])
    recorded = turn()
    whole = answered(shop.host().run(recorded.context))
    for _, durable in recorded.commits:
        shop.ran.clear()
        outcome = answered(shop.host().run(turn(messages=durable, info=replace(INFO, attempt=2)).context))
        assert [m["content"] for m in outcome.messages] == [m["content"] for m in whole.messages]
        assert len(shop.ran) == 2 - (len(durable) - 1) // 2
    assert answered(shop.host().run(turn(messages=whole.messages).context)).messages == whole.messages


@pytest.mark.parametrize("error", [LostClaimError(turn=3), StoreUnavailableError()])
@pytest.mark.parametrize("where", ["check", "barrier", "commit"])
def test_what_ends_a_run_is_not_swallowed_by_the_framework(error: Exception, where: str) -> None:
    shop = Shop([LOOK, LOOK, "ok"])
    recorded = turn()

    def stop(*ignored: Any) -> None:
        raise error

    setattr(recorded.context, where, stop)
    with pytest.raises(type(error)):
        shop.host().run(recorded.context)
    assert len(shop.ran) == (1 if where == "commit" else 0)


def test_a_claim_that_is_lost_before_a_tool_keeps_it_from_running() -> None:
    shop = Shop([LOOK, "ok"])
    recorded = turn()
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 2:
            raise LostClaimError(turn=3)

    recorded.context.check = check
    with pytest.raises(LostClaimError):
        shop.host().run(recorded.context)
    assert shop.ran == []


@pytest.mark.parametrize(
    ("status", "named"),
    [(429, ModelThrottledError), (503, ModelUnavailableError), (403, ModelRefusedError)],
)
def test_what_the_models_service_answers_has_turnkeeps_name(status: int, named: type[Exception]) -> None:
    with pytest.raises(named):
        Shop([ModelHTTPError(status, "m", None)]).host().run(turn().context)


# --- asks ---------------------------------------------------------------------------------------------------


def test_a_call_that_needs_approval_becomes_a_check_in_and_runs_when_it_is_approved() -> None:
    shop = Shop([MIXED, "Done."])
    work = shop.workshop(audience="role:supervisor", expires_in_s=60)
    paused = work.take("go")
    assert paused.ask is not None
    request = {"tool": "pay", "args": {"to": "B"}, "evidence": {"willDo": "pay — with to=B"}}
    assert paused.ask.pause_data == {"toolCallId": "c-2", "toolName": "pay", "checkIn": request}
    assert paused.ask.audience == "role:supervisor"
    assert shop.ran == ["look A", "look C"]
    with pytest.raises(DecisionRequiredError):
        decide(work, paused, "yes", caller=SUE)
    done = decide(work, paused, YES, caller=SUE).record
    assert done is not None
    assert done.output == "Done."
    assert shop.ran == ["look A", "look C", f"pay B {{'decision': {YES}}}"]
    results = [message["toolCallId"] for message in work.said(1) if message["role"] == "tool"]
    assert results == ["c-1", "c-3", "c-2"]
    assert work.take("next").turn == 2


def test_a_declined_call_does_not_run_and_the_model_reads_why() -> None:
    shop = Shop([PAY, "Sorry."])
    work = shop.workshop()
    done = decide(work, work.take("go"), {**NO, "note": "too much"}).record
    assert done is not None
    assert done.output == "Sorry."
    assert work.said(1)[2]["content"] == "declined by human: too much"
    assert shop.ran == []


@pytest.mark.parametrize("given", ["rye", None, False, 0, {"a": [1.5]}, [1]])
def test_an_external_call_is_a_question_whose_answer_is_its_result(given: Any) -> None:
    shop = Shop([[("which", {"what": "bread"})], "Done."])
    work = shop.workshop()
    paused = work.take("go")
    assert paused.ask is not None
    assert paused.ask.pause_data["question"] == "Which bread?"
    done = decide(work, paused, given).record
    assert done is not None
    assert (done.status, done.output) == (Status.COMPLETE, "Done.")


def test_several_deferred_calls_are_asked_one_after_the_other_and_run_when_all_are_answered() -> None:
    shop = Shop([[("which", {"what": "bread"}), ("pay", {"to": "A"}), ("pay", {"to": "B"})], PAY, "Done."])
    work = shop.workshop()
    record = work.take("go")
    for tool, decision in (("which", "rye"), ("pay", NO), ("pay", YES)):
        assert record.ask is not None
        assert record.ask.pause_data["toolName"] == tool
        assert (shop.ran, len(shop.seen)) == ([], 1)
        resumed = decide(work, record, decision).record
        assert resumed is not None
        record = resumed
    assert record.status is Status.AWAITING  # the next response's own call
    assert [one["content"] for one in work.said(1)[2:5]] == ["rye", "declined by human", "paid B"]
    last = decide(work, record, YES).record
    assert last is not None
    assert last.output == "Done."
    shown = read_evidence(work.deps(), ALICE, KEY, 1)["evidence"]
    assert [one["message"] for one in shown["toolCalls"]] == ["msg-1-2", "msg-1-3", "msg-1-4", "msg-1-6"]


def test_an_ask_that_nobody_answered_leaves_a_conversation_that_tells_what_ran() -> None:
    from turnkeep.usecases.resume_turn import expire_ask

    shop = Shop([MIXED, "Done."])
    work = shop.workshop()
    paused = work.take("go")
    assert paused.ask is not None
    work.pass_ms(8 * 86_400_000)
    expire_ask(work.deps(), KEY, 1, paused.ask.ask_id)
    shop.steps = ["Hello again."]
    assert work.take("hello").output == "Hello again."
    told = {
        part.tool_call_id: part.model_response_str()
        for message in shop.seen[-1]
        for part in message.parts
        if part.part_kind == "tool-return"
    }
    assert (told["c-1"], told["c-3"]) == ('{"at":"A","fine":true}', '{"at":"C","fine":true}')
    assert "not run: nobody answered in time" in told["c-2"]
    assert [one.get("toolCallId") for one in work.said(1)[2:]] == ["c-1", "c-3", "c-2"]


# --- resumes that die, deploys ------------------------------------------------------------------------------


def test_a_resume_that_died_runs_nothing_again() -> None:
    shop = Shop([PAY, LOOK, "Done."])
    paused = asked(shop.host().run(turn().context))
    recorded = turn(messages=stored(paused.messages))
    whole = answered(shop.host().resume(recorded.context, stored(paused.checkpoint), YES))
    assert len(shop.ran) == 2
    for _, durable in recorded.commits:
        shop.ran.clear()
        outcome = answered(shop.host().resume(turn(messages=durable).context, stored(paused.checkpoint), YES))
        assert [one["content"] for one in outcome.messages] == [one["content"] for one in whole.messages]
        assert not [one for one in shop.ran if one.startswith("pay")]


def test_a_tool_that_is_gone_is_told_to_the_model_and_the_conversation_goes_on() -> None:
    shop = Shop([PAY, "So be it."])
    work = shop.workshop()
    gone = decide(work, work.take("go"), YES, lambda info: shop.host(agent=shop.agent(without="pay"))).record
    assert gone is not None
    assert (gone.status, gone.output) == (Status.COMPLETE, "So be it.")
    assert "pay" in work.said(1)[2]["content"]
    assert shop.ran == []
    shop.steps = ["Hello."]
    assert work.take("hello").output == "Hello."


def test_what_cannot_be_resumed_here_is_refused_by_name() -> None:
    shop = Shop([PAY, "Done."])
    paused = asked(shop.host().run(turn().context))
    context = turn(messages=stored(paused.messages)).context
    foreign = stored(paused.checkpoint)
    foreign["sharedState"]["engine"] = "turnkeep-strands-1"
    with pytest.raises(UnknownStoredFormatError):
        shop.host().resume(context, foreign, YES)
    with pytest.raises(ConversationMismatchError):
        shop.host(agent_id="other").resume(context, stored(paused.checkpoint), YES)
    with pytest.raises(DecisionRequiredError):
        shop.host().resume(context, stored(paused.checkpoint), "yes")
    for part in ("asks", "answers", "usage", "evidence"):
        broken = stored(paused.checkpoint)
        del broken["sharedState"][part]
        with pytest.raises(MalformedStoredItemError):
            shop.host().resume(context, broken, YES)
    assert shop.ran == []


# --- the example --------------------------------------------------------------------------------------------


def test_the_example_looks_up_refunds_and_asks() -> None:
    work = Workshop(desk)
    assert work.take("Where is A-100?").output == '{"order":"A-100","price":20}'
    paused = work.take("Refund A-100 and B-200, please")
    assert paused.ask is not None
    assert paused.ask.pause_data["checkIn"]["evidence"]["willDo"] == "Refund order B-200?"
    done = decide(work, paused, YES, caller=SUE).record
    assert done is not None
    assert "Order A-100 is refunded under " in " ".join(one["content"] for one in work.said(2))
    assert "Order B-200 is refunded under " in done.output
    gift = work.take("A gift instead?")
    assert gift.ask is not None
    assert (gift.ask.audience, gift.ask.pause_data["question"]) == ("owner", "Flowers or chocolate?")
    chosen = decide(work, gift, "flowers").record
    assert chosen is not None
    assert chosen.output == "flowers"


def test_an_agent_with_output_validators_names_deferral_itself() -> None:
    from pydantic_ai import DeferredToolRequests

    shop = Shop([PAY, "Done."])
    agent = shop.agent(output_type=[str, DeferredToolRequests])

    @agent.output_validator
    def any_output(said: Any) -> Any:
        return said

    paused = asked(shop.host(agent=agent).run(turn().context))
    assert paused.pause_data["toolName"] == "pay"
