"""One attempt: whose agent it is, what it may hand back, how it ends, and what of it stays."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tests.usecases.workshop import Doing, Workshop, answer, called, doing, key_of, noise, saying, scripted
from turnkeep.agent.loop import Agent
from turnkeep.agent.port import Answered, Asked, TurnContext
from turnkeep.agent.provider import ModelReply, ModelRequest, ModelThrottledError, ModelTimeoutError
from turnkeep.agent.scripted import call
from turnkeep.agent.tools import tool
from turnkeep.clock import SystemClock
from turnkeep.errors import (
    ConversationMismatchError,
    RunFailedError,
    StoreUnavailableError,
    TurnOutOfTimeError,
)
from turnkeep.ledger.memory import MemoryItemStore, size_bytes
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Unavailable

LOOKED = called("look", {"n": 1}, {"n": 2})


def stored_error(shop: Workshop, turn: int = 1) -> dict[str, Any]:
    error = shop.turn(turn).error
    assert error is not None
    return error


# --- the agent raises ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["exit", "async", "sync"])
def test_a_run_that_raises_is_failed_with_what_it_had_agreed_on(durability: Any) -> None:
    def work(context: TurnContext) -> Answered:
        context.commit([*context.messages, *LOOKED], 2)
        raise ValueError("something that nobody may read")

    shop = Workshop(doing(work, durability=durability))
    with pytest.raises(RunFailedError) as failed:
        shop.take("first")
    assert failed.value.facts() == {"turn": 1}
    assert isinstance(failed.value.__cause__, ValueError)
    assert stored_error(shop) == {
        "code": "ERR_RUN_FAILED",
        "message": "The agent raised an error; the log of this request names where.",
        "cause": "ValueError",
    }
    assert "nobody may read" not in repr(shop.items())
    assert [message["role"] for message in shop.said(1)] == ["user", "assistant", "tool", "tool"]
    assert shop.events.told == [("turn.ended", 1)]
    assert shop.take("second", factory=saying("on we go")).turn == 2


def test_what_a_run_did_but_never_committed_is_not_kept() -> None:
    def work(context: TurnContext) -> Answered:
        context.messages.extend(LOOKED)
        raise ValueError

    shop = Workshop(doing(work))
    with pytest.raises(RunFailedError):
        shop.take("first")
    assert shop.said(1) == [{"role": "user", "content": "first"}]


def test_a_factory_that_raises_is_a_failed_turn() -> None:
    def build(info: Any) -> Any:
        raise KeyError("a table of the shop's")

    shop = Workshop(build)
    with pytest.raises(RunFailedError):
        shop.take()
    assert stored_error(shop)["cause"] == "KeyError"


def test_a_tool_that_exits_ends_its_turn_and_not_the_process() -> None:
    shop = Workshop(doing(lambda context: sys.exit(3)))
    with pytest.raises(RunFailedError) as failed:
        shop.take()
    assert failed.value.cause_code == "ERR_RUN_FAILED"
    assert shop.turn(1).status is Status.FAILED


# --- whose agent --------------------------------------------------------------------------------------------


def test_an_agent_of_another_name_is_refused_and_leaves_no_mark() -> None:
    shop = Workshop(saying("hello", agent_id="desk"))
    shop.take("first")
    with pytest.raises(ConversationMismatchError):
        shop.take("second", factory=saying("I am new", agent_id="other"))
    assert (shop.turn(2).status, stored_error(shop, 2)["code"]) == (Status.REFUSED, "ERR_CONVERSATION_MISMATCH")
    assert shop.items("CONVERSATION")[0]["messageCount"] == 2
    seen: list[str] = []

    def work(context: TurnContext) -> Answered:
        seen.extend(message["content"] for message in context.history)
        return answer(context, "fine")

    assert shop.take("third", factory=doing(work, agent_id="desk")).turn == 3
    assert seen == ["first", "hello"]


@pytest.mark.parametrize(("first", "second"), [("desk", None), (None, "desk"), (None, None), ("desk", "desk")])
def test_an_agent_without_a_name_continues_and_takes_none_away(first: str | None, second: str | None) -> None:
    shop = Workshop()
    shop.take(factory=saying("a", agent_id=first))
    assert shop.take(factory=saying("b", agent_id=second)).turn == 2
    assert shop.items("CONVERSATION")[0].get("agentId") == (first or second)


def test_a_factory_that_hands_the_same_agent_back_is_refused_by_name() -> None:
    one = Doing(lambda context: answer(context, "hello"))
    shop = Workshop(lambda info: one)
    assert shop.take().output == "hello"
    with pytest.raises(RunFailedError) as failed:
        shop.take()
    assert failed.value.cause_code == "ERR_AGENT_FACTORY"
    assert stored_error(shop, 2)["code"] == "ERR_AGENT_FACTORY"


def test_an_agent_that_takes_no_attributes_cannot_be_told_apart_and_is_refused() -> None:
    @dataclass(slots=True, frozen=True)
    class Sealed:
        agent_id: str | None = None
        agent_version: str | None = None
        durability: Any = None

        def run(self, context: TurnContext) -> Answered:
            return answer(context, "x")

        def resume(self, context: TurnContext, checkpoint: Any, decision: Any) -> Answered:
            return answer(context, "x")

    shop = Workshop(lambda info: Sealed())  # type: ignore[arg-type, return-value]
    with pytest.raises(RunFailedError) as failed:
        shop.take()
    assert failed.value.cause_code == "ERR_AGENT_FACTORY"


# --- what it may hand back ----------------------------------------------------------------------------------


def test_an_empty_answer_is_an_answer() -> None:
    shop = Workshop(doing(lambda context: answer(context, "", *LOOKED)))
    done = shop.take()
    assert (done.status, done.output) == (Status.COMPLETE, "")
    assert [message["role"] for message in shop.said(1)] == ["user", "assistant", "tool", "tool"]
    assert shop.items("CONVERSATION")[0]["messageCount"] == 1
    assert shop.take("again", factory=saying("b")).turn == 2


BAD_OUTCOMES: dict[str, Any] = {
    "nothing": lambda context: None,
    "a text": lambda context: "hello",
    "messages that are no list": lambda context: Answered("x", {"role": "assistant"}, 1),  # type: ignore[arg-type]
    "no messages": lambda context: Answered("", [], 1),
    "without the user message": lambda context: Answered("x", [{"role": "assistant", "content": "x"}], 1),
    "with another user message": lambda context: Answered(
        "x", [{"role": "user", "content": "forged"}, {"role": "assistant", "content": "x"}], 1
    ),
    "a dangling call": lambda context: Answered("", [*context.messages, LOOKED[0]], 1),
    "a call with one result of two": lambda context: Answered("", [*context.messages, *LOOKED[:2]], 1),
    "an output nobody said": lambda context: Answered("x", list(context.messages), 1),
    "another output than the last message": lambda context: Answered(
        "x", [*context.messages, {"role": "assistant", "content": "y"}], 1
    ),
    "content that is no text": lambda context: Answered(
        "", [*context.messages, {"role": "assistant", "content": [{"text": "x"}]}], 1
    ),
    "a message without a role": lambda context: Answered("", [*context.messages, {"content": "x"}], 1),
    "a message that is a text": lambda context: Answered("", [*context.messages, "x"], 1),  # type: ignore[list-item]
    "an ask for nobody": lambda context: Asked({}, {}, list(context.messages), 1, audience="everybody"),
}


@pytest.mark.parametrize("what", list(BAD_OUTCOMES))
def test_an_outcome_that_the_port_does_not_allow_fails_the_turn_and_keeps_the_message(what: str) -> None:
    shop = Workshop(doing(BAD_OUTCOMES[what]))
    with pytest.raises(RunFailedError) as failed:
        shop.take("first")
    assert failed.value.cause_code == "ERR_AGENT_CONTRACT"
    assert (shop.turn(1).status, shop.said(1)[0]) == (Status.FAILED, {"role": "user", "content": "first"})
    assert shop.take("second", factory=saying("fine")).turn == 2


def test_messages_that_take_back_what_was_committed_are_refused() -> None:
    def work(context: TurnContext) -> Answered:
        context.commit([*context.messages, *LOOKED], 2)
        return answer(context, "as if nothing had happened")

    shop = Workshop(doing(work, durability="sync"))
    with pytest.raises(RunFailedError) as failed:
        shop.take()
    assert failed.value.cause_code == "ERR_AGENT_CONTRACT"
    assert len(shop.said(1)) == 4


def test_changing_a_message_after_its_commit_changes_nothing_that_is_stored() -> None:
    def work(context: TurnContext) -> Answered:
        messages = [*context.messages, *(dict(message) for message in LOOKED)]
        context.commit(messages, 2)
        messages[1]["content"] = "EDITED"
        raise ValueError

    shop = Workshop(doing(work, durability="async"))
    with pytest.raises(RunFailedError):
        shop.take()
    assert shop.said(1)[1]["content"] == ""


@pytest.mark.parametrize("value", [float("nan"), b"bytes", {1: 2}, "\ud800", object(), 1 << 20_000], ids=type)
def test_a_value_that_cannot_be_kept_fails_the_turn_by_its_path(value: Any) -> None:
    def work(context: TurnContext) -> Answered:
        return answer(context, "x", {"role": "assistant", "content": "", "meta": [value]}, *[])

    shop = Workshop(doing(work))
    with pytest.raises(RunFailedError):
        shop.take()
    assert "messages[1].meta[0]" in stored_error(shop)["message"]
    assert shop.take("second", factory=saying("fine")).turn == 2


def test_an_answer_that_one_item_cannot_hold_comes_back_whole() -> None:
    text = noise(600_000)
    shop = Workshop(saying(text, "short"))
    done = shop.take("a lot, please")
    assert done.output == text
    assert shop.said(1)[1]["content"] == text
    assert len(shop.items("SEG#")) > 3
    assert max(size_bytes(item) for item in shop.items()) < 400_000
    assert shop.take("less").turn == 2


def test_evidence_over_its_bound_is_cut_and_says_so() -> None:
    def work(context: TurnContext) -> Answered:
        return Answered(
            "x", [*context.messages, {"role": "assistant", "content": "x"}], 1, evidence={"a": "b" * 20_000}
        )

    shop = Workshop(doing(work))
    shop.take()
    assert shop.turn(1).evidence == {"cut": "the evidence was over its bound and is not kept"}


# --- the deadline -------------------------------------------------------------------------------------------


@dataclass
class Hanging:
    """A model that does not answer until it is let go."""

    entered: threading.Event
    release: threading.Event

    def converse(self, request: ModelRequest) -> ModelReply:
        self.entered.set()
        assert self.release.wait(60)
        return ModelReply({"role": "assistant", "content": "far too late"})


@pytest.fixture
def release() -> Any:
    event = threading.Event()
    yield event
    event.set()


def test_a_model_that_does_not_return_is_left_behind_and_the_answer_leaves(release: threading.Event) -> None:
    clock = SystemClock()
    shop = Workshop(lambda info: Agent(provider=Hanging(threading.Event(), release)), clock=clock)
    began_ms = clock.monotonic_ms()
    with pytest.raises(TurnOutOfTimeError) as late:
        shop.take("first", time_ms=1_900)
    assert late.value.facts() == {"turn": 1}
    assert clock.monotonic_ms() - began_ms < 1_900
    assert (shop.turn(1).status, shop.turn(1).lease_until_ms) == (Status.RUNNING, 0)
    assert "out_of_time" in shop.notes
    # The lease was handed back: nobody waits for it, and what was left behind can write nothing.
    assert shop.take("second", factory=saying("fine")).turn == 2
    stored = shop.items()
    release.set()
    for thread in threading.enumerate():
        if thread.name == "turnkeep-agent":
            thread.join(20)
    assert shop.items() == stored


@pytest.mark.parametrize("durability", ["exit", "async", "sync"])
def test_a_tool_that_does_not_return_is_left_behind_and_what_came_before_it_stays(
    release: threading.Event, durability: Any
) -> None:
    ran: list[int] = []

    @tool
    def step(n: int) -> str:
        """Does one step."""
        ran.append(n)
        if n == 2 and len(ran) == 2:
            assert release.wait(60)
        return f"step {n} done"

    def script(scene: Any) -> Any:
        return call("step", n=len(scene.results) + 1) if len(scene.results) < 2 else "all done"

    shop = Workshop(scripted(script, step, durability=durability), clock=SystemClock())
    with pytest.raises(TurnOutOfTimeError):
        shop.take("go", time_ms=1_900, idempotency=key_of("one"))
    assert [message["content"] for message in shop.said(1)] == ["go", "", "step 1 done"]
    done = shop.take("go", idempotency=key_of("one"))
    assert (done.attempt, done.output, ran) == (2, "all done", [1, 2, 2])


@pytest.mark.parametrize("durability", ["exit", "async", "sync"])
def test_out_of_time_at_a_commit_stops_there_and_keeps_it(durability: Any) -> None:
    shop = Workshop()

    def work(context: TurnContext) -> Answered:
        shop.pass_ms(28_000)
        context.commit([*context.messages, *LOOKED], 2)
        raise AssertionError("the run went on")

    with pytest.raises(TurnOutOfTimeError):
        shop.take("first", factory=doing(work, durability=durability))
    assert [message["role"] for message in shop.said(1)] == ["user", "assistant", "tool", "tool"]
    assert (shop.turn(1).status, shop.turn(1).lease_until_ms) == (Status.RUNNING, 0)


def test_no_time_at_all_is_out_of_time_before_anything_runs() -> None:
    shop = Workshop(doing(lambda context: pytest.fail("nothing may run")))
    with pytest.raises(TurnOutOfTimeError):
        shop.take("first", time_ms=1_000)
    assert shop.said(1) == [{"role": "user", "content": "first"}]


def test_a_factory_that_does_not_return_is_left_behind_too(release: threading.Event) -> None:
    def build(info: Any) -> Any:
        assert release.wait(60)
        return Doing(lambda context: pytest.fail("nothing may run"))

    shop = Workshop(build, clock=SystemClock())
    with pytest.raises(TurnOutOfTimeError):
        shop.take("first", time_ms=1_700)
    assert shop.turn(1).lease_until_ms == 0


# --- what passes by itself ----------------------------------------------------------------------------------


def raising(error: Exception) -> Any:
    def script(scene: Any) -> Any:
        if not scene.results:
            return call("look", n=1)
        raise error

    return script


@tool
def look(n: int) -> str:
    """Looks."""
    return f"saw {n}"


@pytest.mark.parametrize("durability", ["exit", "async", "sync"])
def test_a_model_that_throttles_leaves_the_turn_to_the_same_request(durability: Any) -> None:
    shop = Workshop(scripted(raising(ModelThrottledError()), look, durability=durability))
    with pytest.raises(ModelThrottledError):
        shop.take("go", idempotency=key_of("one"))
    assert [message["content"] for message in shop.said(1)] == ["go", "", "saw 1"]
    done = shop.take("go", idempotency=key_of("one"), factory=scripted(lambda scene: scene.results[0].content, look))
    assert (done.turn, done.attempt, done.output) == (1, 2, "saw 1")


def test_a_model_that_timed_out_is_a_turn_out_of_time() -> None:
    shop = Workshop(scripted(raising(ModelTimeoutError()), look))
    with pytest.raises(TurnOutOfTimeError):
        shop.take("go")
    assert shop.turn(1).lease_until_ms == 0
    assert len(shop.said(1)) == 3


class Failing(MemoryItemStore):
    """Does not answer for writes of the given kind of item, as often as said."""

    def __init__(self, prefix: str, times: int) -> None:
        super().__init__()
        self.prefix, self.times = prefix, times

    def write(self, writes: Any) -> Any:
        keys = [str(one.item["sk"]) if hasattr(one, "item") else one.key[1] for one in writes]
        if self.times and any(key.startswith(self.prefix) for key in keys):
            self.times -= 1
            return [Unavailable(StoreUnavailableError()) for _ in writes]
        return super().write(writes)


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_progress_that_cannot_be_stored_is_no_answer(durability: Any) -> None:
    """CONTRACT.md 11.1.9: a failed progress write fails the request before the final write."""
    ran: list[int] = []

    @tool
    def step(n: int) -> str:
        """Does one step."""
        ran.append(n)
        return f"step {n} done"

    def script(scene: Any) -> Any:
        return call("step", n=len(scene.results) + 1) if len(scene.results) < 2 else "all done"

    store = Failing("SEG#", 1_000)
    shop = Workshop(scripted(script, step, durability=durability), store=store)
    with pytest.raises(StoreUnavailableError):
        shop.take("go")
    assert shop.turn(1).status is Status.RUNNING
    if durability == "sync":
        assert ran == [1]  # the second step was not allowed to run


def test_a_progress_write_that_failed_once_is_made_up_for_by_the_next() -> None:
    shop = Workshop(store=Failing("SEG#", 1))

    def work(context: TurnContext) -> Answered:
        context.commit([*context.messages, *LOOKED], 2)
        for _ in range(200):
            if shop.store.times == 0:  # type: ignore[attr-defined]
                break
            threading.Event().wait(0.01)
        more = called("see", {"n": 3})
        context.commit([*context.messages, *LOOKED, *more], 3)
        return answer(context, "done", *LOOKED, *more)

    assert shop.take(factory=doing(work, durability="async")).output == "done"
    assert [message["role"] for message in shop.said(1)] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
