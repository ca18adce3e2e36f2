"""Strands Agents, hosted: conversations, commits, durability, asks and their answers, crashes, deploys; all offline."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import strands
from pydantic import BaseModel
from strands.hooks import BeforeToolCallEvent  # noqa: TC002 - Strands reads the annotations of hooks
from strands.session.file_session_manager import FileSessionManager
from strands.types.exceptions import ContextWindowOverflowException, ModelThrottledException

from examples.strands_desk import ScriptedModel
from examples.strands_desk import build as desk
from tests.agent.support import INFO, answered, asked, stored, turn
from tests.usecases.workshop import ALICE, KEY, Workshop
from turnkeep.agent.provider import ContextWindowExceededError, ModelError, ModelThrottledError
from turnkeep.agent.window import Window
from turnkeep.errors import (
    ConversationMismatchError,
    LostClaimError,
    MalformedStoredItemError,
    RunFailedError,
    StoreUnavailableError,
    UnknownStoredFormatError,
)
from turnkeep.frameworks.strands import StrandsAgent
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.memory.keeping import Beats
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.read import read_evidence
from turnkeep.usecases.resume_turn import Resumed, resume_turn

if TYPE_CHECKING:
    from pathlib import Path

SUE = Caller("sue", None, frozenset({"supervisor"}))
YES = {"approved": True, "by": "sue"}
NO = {"approved": False, "by": "sue"}


def step(messages: list[dict[str, Any]]) -> int:
    """How many replies the model gave since the last words of the user."""
    done = 0
    for message in reversed(messages):
        if message["role"] == "user" and any("text" in block for block in message["content"]):
            break
        done += message["role"] == "assistant"
    return done


@dataclass
class Shop:
    """A Strands agent whose model plays steps, and what its tools did."""

    steps: list[Any]
    ran: list[str] = field(default_factory=list)
    seen: list[list[dict[str, Any]]] = field(default_factory=list)
    prompts: list[Any] = field(default_factory=list)

    def tools(self) -> list[Any]:
        @strands.tool
        def look(at: str) -> str:
            """Looks."""
            self.ran.append(f"look {at}")
            return f"{at} is fine"

        @strands.tool(context=True)
        def pay(to: str, tool_context: strands.ToolContext) -> str:
            """Asks, then pays."""
            said = tool_context.interrupt("pay", reason={"question": f"Pay {to}?"})
            self.ran.append(f"pay {to} {said}")
            return f"paid {to}"

        @strands.tool
        def breaks() -> str:
            """Breaks."""
            raise ValueError("no paper")

        return [look, pay, breaks]

    def model(self) -> ScriptedModel:
        def script(messages: list[dict[str, Any]]) -> Any:
            self.seen.append(messages)
            said = self.steps[step(messages)]
            if isinstance(said, Exception):
                raise said
            return said

        return ScriptedModel(script)

    def host(self, **options: Any) -> StrandsAgent:
        tools = options.pop("tools", None) or self.tools()
        more = options.pop("more", {})
        agent = strands.Agent(
            model=self.model(),
            tools=tools,
            system_prompt="Be kind.",
            callback_handler=None,
            retry_strategy=None,
            **more,
        )
        return StrandsAgent(agent, agent_id=options.pop("agent_id", "shop"), **options)

    def workshop(self, **options: Any) -> Workshop:
        return Workshop(lambda info: self.host(**options))


def decide(shop: Workshop, paused: TurnRecord, decision: Any, factory: Any = None, caller: Caller = ALICE) -> Resumed:
    assert paused.ask is not None
    deadline = FixedDeadline.after(shop.clock, 29_000)
    answer_ask(shop.deps(factory), caller, KEY, ask_id=paused.ask.ask_id, decision=decision, deadline=deadline)
    return resume_turn(shop.deps(factory), KEY, paused.turn, paused.ask.ask_id, deadline=deadline)


LOOK = [("look", {"at": "A"})]
PAY = [("pay", {"to": "A"})]
BOTH = [("look", {"at": "A"}), ("pay", {"to": "B"}), ("look", {"at": "C"})]


# --- conversations ------------------------------------------------------------------------------------------


def test_a_conversation_goes_on_over_turns_and_is_stored_in_turnkeeps_shape() -> None:
    shop = Shop([LOOK, "All fine."])
    work = shop.workshop()
    assert work.take("Is A fine?").output == "All fine."
    assert work.take("And now?").output == "All fine."
    assert work.said(1) == [
        {"role": "user", "content": "Is A fine?"},
        {"role": "assistant", "content": "", "toolCalls": [{"id": "use-1", "name": "look", "args": {"at": "A"}}]},
        {"role": "tool", "content": "A is fine", "toolCallId": "use-1", "toolName": "look"},
        {"role": "assistant", "content": "All fine."},
    ]
    roles = [message["role"] for message in shop.seen[-1]]
    assert roles == ["user", "assistant", "user", "assistant", "user", "assistant", "user"]


def test_the_record_says_who_ran_what_it_used_and_what_led_to_the_answer() -> None:
    work = Shop([LOOK, "All fine."]).workshop(agent_version="7")
    record = work.take("Is A fine?")
    assert (record.agent_id, record.agent_version) == ("shop", "7")
    assert record.usage == {"inputTokens": 10 + 30, "outputTokens": 14}
    shown = read_evidence(work.deps(), ALICE, KEY, 1)["evidence"]
    assert [one["message"] for one in shown["modelCalls"]] == ["msg-1-1", "msg-1-3"]
    (called,) = shown["toolCalls"]
    assert (called["name"], called["args"], called["result"]) == ("look", {"at": "A"}, "A is fine")
    assert called["message"] == "msg-1-2"
    assert (shown["question"], shown["answer"], shown["system"]["characters"]) == ("msg-1-0", "msg-1-3", 8)


def test_a_tool_that_raises_and_one_that_is_not_there_are_told_to_the_model() -> None:
    shop = Shop([[("breaks", {}), ("nothing", {})], "So be it."])
    work = shop.workshop()
    assert work.take("go").output == "So be it."
    broken, missing = work.said(1)[2:4]
    assert (broken["isError"], missing["isError"]) == (True, True)
    assert "no paper" in broken["content"]
    assert "nothing" in missing["content"].lower() or "unknown" in missing["content"].lower()


def test_a_window_bounds_what_the_model_is_shown() -> None:
    shop = Shop(["ok"])
    work = shop.workshop(window=Window(last_turns=1))
    for text in ("one", "two", "three"):
        work.take(text)
    assert [message["content"] for message in shop.seen[-1]] == [[{"text": text}] for text in ("two", "ok", "three")]
    assert read_evidence(work.deps(), ALICE, KEY, 3)["evidence"]["window"]["leftOut"] == {
        "turns": 1,
        "messages": 2,
        "beforeTurn": 2,
    }


def test_behind_a_turn_that_died_the_roles_still_alternate() -> None:
    shop = Shop(["ok"])
    work = shop.workshop()
    work.take_and_die(message="lost")
    work.pass_ms(60_000)
    work.take("again")
    (only,) = shop.seen[-1]
    assert only["content"] == [{"text": "lost"}, {"text": "again"}]


def test_structured_output_is_the_answer() -> None:
    class Verdict(BaseModel):
        fine: bool

    shop = Shop([[("Verdict", {"fine": True})], "never"])
    work = shop.workshop(more={"structured_output_model": Verdict})
    assert work.take("Is it?").output == '{"fine":true}'
    assert work.take("Is it?").status is Status.COMPLETE


def test_memory_is_written_for_it_too() -> None:
    work = Shop(["ok"]).workshop(memory=[Beats()])
    work.take("hi")
    assert len(work.items("BEAT#")) == 2


def test_two_turns_at_once_do_not_share_an_agent() -> None:
    host = Shop(["ok"]).host()
    work = Workshop(lambda info: host)
    work.take("one")
    with pytest.raises(RunFailedError):
        work.take("two")


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
    assert outcome.iteration == 3


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
        again = turn(messages=durable, info=replace(INFO, attempt=2))
        outcome = answered(shop.host().run(again.context))
        assert [m["content"] for m in outcome.messages] == [m["content"] for m in whole.messages]
        assert len(shop.ran) == 2 - (len(durable) - 1) // 2
    after = answered(shop.host().run(turn(messages=whole.messages).context))
    assert after.messages == whole.messages


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


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (ModelThrottledException("slow"), ModelThrottledError),
        (ContextWindowOverflowException("long"), ContextWindowExceededError),
        (KeyError("x"), KeyError),
    ],
)
def test_what_the_model_raises_has_turnkeeps_name(raised: Exception, named: type[Exception]) -> None:
    with pytest.raises(named):
        Shop([raised]).host().run(turn().context)


def test_a_reply_that_was_cut_is_named() -> None:
    class Cut(ScriptedModel):
        async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            async for event in super().stream(messages):
                yield {"messageStop": {"stopReason": "max_tokens"}} if "messageStop" in event else event

    host = StrandsAgent(strands.Agent(model=Cut(lambda messages: "half an"), callback_handler=None))
    with pytest.raises(ModelError, match="cut"):
        host.run(turn().context)


# --- asks ---------------------------------------------------------------------------------------------------


def test_an_interrupt_becomes_an_ask_and_the_decision_its_response() -> None:
    shop = Shop([BOTH, "Done."])
    work = shop.workshop(audience="role:supervisor", expires_in_s=60)
    paused = work.take("go")
    assert paused.ask is not None
    assert paused.ask.pause_data == {
        "toolCallId": "use-2",
        "toolName": "pay",
        "question": "Pay B?",
        "interrupt": {"name": "pay", "reason": {"question": "Pay B?"}},
    }
    assert (paused.ask.audience, paused.ask.expires_at_ms - paused.ask.asked_at_ms) == ("role:supervisor", 60_000)
    assert shop.ran == ["look A"]
    assert [message["role"] for message in work.said(1)] == ["user", "assistant", "tool"]
    resumed = decide(work, paused, {"yes": ["1", 2]}, caller=SUE)
    assert resumed.record is not None
    assert resumed.record.output == "Done."
    assert shop.ran == ["look A", "pay B {'yes': ['1', 2]}", "look C"]
    assert [message["content"] for message in work.said(1)[2:]] == ["A is fine", "paid B", "C is fine", "Done."]
    assert work.take("next").turn == 2


def test_the_parts_before_and_behind_a_pause_are_one_evidence() -> None:
    work = Shop([BOTH, "Done."]).workshop()
    decide(work, work.take("go"), "yes")
    shown = read_evidence(work.deps(), ALICE, KEY, 1)["evidence"]
    assert [one["name"] for one in shown["toolCalls"]] == ["look", "pay", "look"]
    assert [one["message"] for one in shown["toolCalls"]] == ["msg-1-2", "msg-1-3", "msg-1-4"]
    assert [one["message"] for one in shown["modelCalls"]] == ["msg-1-1", "msg-1-5"]
    assert (work.turn(1).usage or {})["outputTokens"] == 14


def test_a_question_may_be_followed_by_another() -> None:
    shop = Shop([[("pay", {"to": "A"}), ("pay", {"to": "B"})], PAY, "Done."])
    work = shop.workshop()
    record = work.take("go")
    for expected in ("Pay A?", "Pay B?", "Pay A?"):
        assert record.status is Status.AWAITING
        assert record.ask is not None
        assert record.ask.pause_data["question"] == expected
        resumed = decide(work, record, f"ok {expected}")
        assert resumed.record is not None
        record = resumed.record
    assert record.output == "Done."
    assert shop.ran == ["pay A ok Pay A?", "pay B ok Pay B?", "pay A ok Pay A?"]


def test_several_hooks_that_interrupt_one_call_ask_one_after_the_other() -> None:
    said: list[Any] = []

    def first(event: BeforeToolCallEvent[Any]) -> None:
        said.append(event.interrupt("first", reason="First?"))

    def second(event: BeforeToolCallEvent[Any]) -> None:
        said.append(event.interrupt("second", reason="Second?"))

    shop = Shop([LOOK, "Done."])
    work = shop.workshop(more={"hooks": [first, second]})
    paused = work.take("go")
    assert paused.ask is not None
    assert paused.ask.pause_data["question"] == "First?"
    again = decide(work, paused, 1).record
    assert again is not None
    assert again.ask is not None
    assert again.ask.pause_data["question"] == "Second?"
    assert len(shop.seen) == 1
    done = decide(work, again, 2).record
    assert done is not None
    assert done.output == "Done."
    assert said == [1, 2]
    assert shop.ran == ["look A"]


def test_an_audience_may_depend_on_what_is_asked() -> None:
    shop = Shop([PAY, "Done."])
    work = shop.workshop(audience=lambda name, reason: f"role:{name}")
    paused = work.take("go")
    assert paused.ask is not None
    assert paused.ask.audience == "role:pay"


def test_no_answer_is_no_response_and_is_asked_again() -> None:
    """Strands takes None for "not answered yet"."""
    work = Shop([PAY, "Done."]).workshop()
    again = decide(work, work.take("go"), None).record
    assert again is not None
    assert again.status is Status.AWAITING


def test_an_ask_that_nobody_answered_leaves_a_conversation_that_goes_on() -> None:
    from turnkeep.usecases.resume_turn import expire_ask

    shop = Shop([BOTH, "Done."])
    work = shop.workshop()
    paused = work.take("go")
    assert paused.ask is not None
    work.pass_ms(8 * 86_400_000)
    expire_ask(work.deps(), KEY, 1, paused.ask.ask_id)
    shop.steps = ["Hello again."]
    assert work.take("hello").output == "Hello again."
    results = [block["toolResult"] for block in shop.seen[-1][2]["content"] if "toolResult" in block]
    assert [one["status"] for one in results] == ["success", "error", "error"]


# --- resumes that die, deploys ------------------------------------------------------------------------------


def paused_run(shop: Shop) -> Any:
    return asked(shop.host().run(turn().context))


def test_a_resume_that_died_runs_nothing_again() -> None:
    shop = Shop([[("pay", {"to": "A"}), ("look", {"at": "B"})], LOOK, "Done."])
    paused = paused_run(shop)
    recorded = turn(messages=stored(paused.messages))
    whole = answered(shop.host().resume(recorded.context, stored(paused.checkpoint), YES))
    assert len(shop.ran) == 3
    for _, durable in recorded.commits:
        shop.ran.clear()
        again = turn(messages=durable)
        outcome = answered(shop.host().resume(again.context, stored(paused.checkpoint), YES))
        assert outcome.messages == whole.messages
        assert not [one for one in shop.ran if one.startswith("pay")]


def test_a_resume_that_died_at_the_next_question_asks_it_and_pays_nothing_twice() -> None:
    shop = Shop([[("pay", {"to": "A"}), ("pay", {"to": "B"})], "Done."])
    paused = paused_run(shop)
    recorded = turn(messages=stored(paused.messages))
    asked(shop.host().resume(recorded.context, stored(paused.checkpoint), YES))
    (_, durable) = recorded.commits[-1]
    assert durable[-1]["content"] == "paid A"
    again = asked(shop.host().resume(turn(messages=durable).context, stored(paused.checkpoint), YES))
    assert again.pause_data["question"] == "Pay B?"
    assert len(shop.ran) == 1
    last = turn(messages=stored(again.messages))
    done = answered(shop.host().resume(last.context, stored(again.checkpoint), NO))
    assert [message["content"] for message in done.messages[2:]] == ["paid A", "paid B", "Done."]


def test_a_tool_that_is_gone_or_takes_other_arguments_is_told_to_the_model() -> None:
    shop = Shop([PAY, "So be it."])
    work = shop.workshop()
    gone = decide(work, work.take("go"), YES, lambda info: shop.host(tools=shop.tools()[:1])).record
    assert gone is not None
    assert (gone.status, gone.output) == (Status.COMPLETE, "So be it.")
    assert "Unknown tool" in work.said(1)[2]["content"]

    @strands.tool(name="pay")
    def other(cents: int) -> str:
        """Pays."""
        shop.ran.append("other")
        return "paid"

    changed = decide(work, work.take("go"), YES, lambda info: shop.host(tools=[other])).record
    assert changed is not None
    assert changed.status is Status.COMPLETE
    assert work.said(2)[2]["isError"] is True
    assert shop.ran == []


def test_what_cannot_be_resumed_here_is_refused_by_name() -> None:
    shop = Shop([PAY, "Done."])
    paused = paused_run(shop)
    context = turn(messages=stored(paused.messages)).context
    foreign = stored(paused.checkpoint)
    foreign["sharedState"]["engine"] = "turnkeep-agent-1"
    with pytest.raises(UnknownStoredFormatError):
        shop.host().resume(context, foreign, YES)
    with pytest.raises(ConversationMismatchError):
        shop.host(agent_id="other").resume(context, stored(paused.checkpoint), YES)
    for part in ("snapshot", "responses", "asks", "usage", "evidence"):
        broken = stored(paused.checkpoint)
        del broken["sharedState"][part]
        with pytest.raises(MalformedStoredItemError):
            shop.host().resume(context, broken, YES)
    assert shop.ran == []


def test_an_interrupt_whose_reason_cannot_be_stored_is_named_and_nothing_waits() -> None:
    def ask(event: BeforeToolCallEvent[Any]) -> None:
        event.interrupt("odd", reason={1, 2})

    work = Shop([LOOK, "Done."]).workshop(more={"hooks": [ask]})
    with pytest.raises(RunFailedError):
        work.take("go")
    assert (work.turn(1).error or {})["cause"] == "UnstorableValueError"
    assert work.turn(1).status is Status.FAILED


# --- what cannot be hosted ----------------------------------------------------------------------------------


def test_an_agent_with_a_memory_of_its_own_is_refused(tmp_path: Path) -> None:
    session = FileSessionManager(session_id="s", storage_dir=str(tmp_path))
    with pytest.raises(ValueError, match="session_manager"):
        StrandsAgent(strands.Agent(model=ScriptedModel(lambda m: "x"), session_manager=session))
    with pytest.raises(ValueError, match="without any"):
        StrandsAgent(
            strands.Agent(model=ScriptedModel(lambda m: "x"), messages=[{"role": "user", "content": [{"text": "a"}]}])
        )


# --- the example --------------------------------------------------------------------------------------------


def test_the_example_looks_up_refunds_and_asks_before_a_large_one() -> None:
    work = Workshop(desk)
    assert work.take("Where is A-100?").output == '{"order": "A-100", "price": 20}'
    paused = work.take("Refund A-100 and B-200, please")
    assert paused.ask is not None
    assert (paused.ask.pause_data["question"], paused.ask.audience) == ("Refund order B-200?", "role:supervisor")
    done = decide(work, paused, NO, caller=SUE).record
    assert done is not None
    assert done.output.startswith("Order A-100 is refunded under ")
    assert done.output.endswith("a supervisor declined")
    assert [len({one["content"] for one in work.said(turn)}) for turn in (1, 2)] == [4, 5]
