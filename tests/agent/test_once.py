"""Calls that act once: their keys, their memory, and the doubt when a process died inside one (issue 5, item 6)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.support import INFO, DictOnce, answered, asked, by_step, stored, turn
from turnkeep.agent import Agent, CheckIn, ToolContext, call, tool
from turnkeep.agent.idempotency import canonical_json, idempotency_key
from turnkeep.agent.scripted import Call
from turnkeep.decisions import approved, declined
from turnkeep.errors import StoreUnavailableError

if TYPE_CHECKING:
    from turnkeep.agent.tools import InDoubt, Tool

AGAIN = replace(INFO, attempt=2, run_id="run-2-bb")


class Crashed(BaseException):
    """The process died here."""


class Payments:
    """A payment that is counted; it can die right after it acted."""

    def __init__(self, *, in_doubt: InDoubt = "ask", check_in: CheckIn | None = None) -> None:
        self.paid: list[str] = []
        self.keys: list[str] = []
        self.dies = False

        @tool(once=True, in_doubt=in_doubt, check_in=check_in)
        def pay(order: str, context: ToolContext, cents: int = 5) -> dict[str, Any]:
            """Pays."""
            self.paid.append(order)
            self.keys.append(context.idempotency_key)
            if self.dies:
                raise Crashed
            if order == "broken":
                raise RuntimeError("no such account")
            return {"paid": order, "n": len(self.paid)}

        self.tool: Tool = pay


def results(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


# --- keys -------------------------------------------------------------------------------------------------------


def test_the_key_is_of_content_and_never_of_the_call_id_or_the_attempt() -> None:
    key = idempotency_key(INFO, "pay", {"a": 1, "b": [2.0]}, 0)
    assert key == idempotency_key(AGAIN, "pay", {"b": [2], "a": 1.0}, 0)
    assert len(key) == 64
    others = [
        idempotency_key(replace(INFO, epoch="ep-2"), "pay", {"a": 1, "b": [2.0]}, 0),
        idempotency_key(replace(INFO, tenant=None), "pay", {"a": 1, "b": [2.0]}, 0),
        idempotency_key(replace(INFO, conversation_id="c-2"), "pay", {"a": 1, "b": [2.0]}, 0),
        idempotency_key(replace(INFO, turn=4), "pay", {"a": 1, "b": [2.0]}, 0),
        idempotency_key(INFO, "pay2", {"a": 1, "b": [2.0]}, 0),
        idempotency_key(INFO, "pay", {"a": 1, "b": [2.5]}, 0),
        idempotency_key(INFO, "pay", {"a": "1", "b": [2.0]}, 0),
        idempotency_key(INFO, "pay", {"a": 1, "b": [2.0]}, 1),
    ]
    assert len({key, *others}) == len(others) + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_canonical_json_has_one_spelling_and_means_the_same(args: dict[str, Any]) -> None:
    shuffled = dict(reversed(list(args.items())))
    assert canonical_json(args) == canonical_json(shuffled) == canonical_json(json.loads(canonical_json(args)))
    assert json.loads(canonical_json(args)) == args


def test_equal_calls_in_one_turn_have_keys_of_their_own_and_both_act() -> None:
    payments = Payments()
    calls = [call("pay", order="x"), call("pay", order="x"), call("pay", order="y")]
    Agent(provider=by_step(calls, call("pay", order="x"), "ok"), tools=[payments.tool]).run(
        turn(once=DictOnce()).context
    )
    assert payments.paid == ["x", "x", "y", "x"]
    assert len(set(payments.keys)) == 4
    expected = [
        idempotency_key(INFO, "pay", {"order": order}, n) for order, n in [("x", 0), ("x", 1), ("y", 0), ("x", 2)]
    ]
    assert payments.keys == expected


# --- memory -----------------------------------------------------------------------------------------------------


def test_a_re_run_returns_the_remembered_result_and_acts_once() -> None:
    payments, memory = Payments(), DictOnce()
    steps = [[call("pay", order="x"), call("pay", order="y")], "Paid."]
    first = answered(Agent(provider=by_step(*steps), tools=[payments.tool]).run(turn(once=memory).context))
    # The attempt died before anything was durable; the model names its calls otherwise the second time.
    other_ids = by_step(*steps)
    reply = other_ids.converse

    class Renaming:
        def converse(self, request: Any) -> Any:
            said = reply(request)
            for one in said.message.get("toolCalls", []):
                one["id"] = f"other-{one['id']}"
            return said

    recorded = turn(once=memory, info=AGAIN)
    second = answered(Agent(provider=Renaming(), tools=[payments.tool]).run(recorded.context))
    assert payments.paid == ["x", "y"]
    assert results(second.messages) == results(first.messages)
    assert [one["rerun"] for one in second.evidence["toolCalls"]] == ["remembered", "remembered"]


def test_a_once_call_that_the_memory_does_not_know_is_no_re_run() -> None:
    payments = Payments()
    agent = Agent(provider=by_step(call("pay", order="x"), "ok"), tools=[payments.tool])
    outcome = answered(agent.run(turn(once=DictOnce(), info=AGAIN).context))
    assert "rerun" not in outcome.evidence["toolCalls"][0]


def test_a_failure_is_remembered_like_any_result() -> None:
    payments, memory = Payments(), DictOnce()
    agent = Agent(provider=by_step(call("pay", order="broken"), "Sorry."), tools=[payments.tool])
    first = answered(agent.run(turn(once=memory).context))
    second = answered(agent.run(turn(once=memory, info=AGAIN).context))
    assert payments.paid == ["broken"]
    assert first.messages[2] == second.messages[2]
    assert second.messages[2]["isError"] is True


def test_without_a_memory_a_once_tool_runs_like_any_other() -> None:
    payments = Payments()
    outcome = answered(Agent(provider=by_step(call("pay", order="x"), "ok"), tools=[payments.tool]).run(turn().context))
    assert results(outcome.messages) == ['{"paid":"x","n":1}']


def test_a_result_that_cannot_be_remembered_fails_the_run_and_is_not_told_as_done() -> None:
    class Down(DictOnce):
        def finish(self, key: str, result_text: str) -> None:
            raise StoreUnavailableError

    payments = Payments()
    recorded = turn(once=Down())
    with pytest.raises(StoreUnavailableError):
        Agent(provider=by_step(call("pay", order="x"), "ok"), tools=[payments.tool]).run(recorded.context)
    assert recorded.commits == []


# --- doubt ------------------------------------------------------------------------------------------------------


def die_inside(payments: Payments, memory: DictOnce, *steps: Any) -> Agent:
    agent = Agent(provider=by_step(*steps), tools=[payments.tool])
    payments.dies = True
    with pytest.raises(Crashed):
        agent.run(turn(once=memory).context)
    payments.dies = False
    return agent


def test_in_doubt_run_again_runs_it_again_under_the_same_key() -> None:
    payments, memory = Payments(in_doubt="run_again"), DictOnce()
    agent = die_inside(payments, memory, call("pay", order="x"), "Paid.")
    outcome = answered(agent.run(turn(once=memory, info=AGAIN).context))
    assert payments.paid == ["x", "x"]
    assert payments.keys[0] == payments.keys[1]
    assert outcome.evidence["toolCalls"][0]["rerun"] == "in-doubt"


@pytest.mark.parametrize(("check_in", "audience"), [(None, "owner"), (CheckIn("role:cashier"), "role:cashier")])
def test_in_doubt_ask_puts_it_before_whoever_decides_on_the_tool(check_in: CheckIn | None, audience: str) -> None:
    payments, memory = Payments(check_in=None), DictOnce()
    die_inside(payments, memory, call("pay", order="x"), "Paid.")
    gated = Payments(check_in=replace(check_in, when=lambda args: False) if check_in else None)
    agent = Agent(provider=by_step(call("pay", order="x"), "Paid."), tools=[gated.tool])
    paused = asked(agent.run(turn(once=memory, info=AGAIN).context))
    assert gated.paid == []
    assert paused.audience == audience
    ask = paused.pause_data["ask"]
    assert ask["middleware"] == "in-doubt"
    assert ask["detail"] == {"tool": "pay", "args": {"order": "x"}}

    for decision, paid in ((approved("bo", now_ms=1), ["x"]), (declined("bo", "it was paid", now_ms=1), [])):
        gated.paid.clear()
        context = turn(messages=stored(paused.messages), once=DictOnce(dict(memory.records)), info=AGAIN).context
        outcome = answered(agent.resume(context, stored(paused.checkpoint), decision))
        assert gated.paid == paid
        assert outcome.output == "Paid."


def test_a_once_tool_that_asked_remembers_the_answer_as_its_result() -> None:
    memory = DictOnce()

    @tool(once=True)
    def asks(context: ToolContext) -> str:
        context.ask("Well?")

    agent = Agent(provider=by_step(Call("asks", {}), "ok"), tools=[asks])
    paused = asked(agent.run(turn(once=memory).context))
    assert list(memory.records.values()) == [None]
    answered(
        agent.resume(turn(messages=stored(paused.messages), once=memory).context, stored(paused.checkpoint), "yes")
    )
    assert [json.loads(text or "null") for text in memory.records.values()] == [{"content": "yes"}]
