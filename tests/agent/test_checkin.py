"""Check-in evidence, against what the reference showed (CONTRACT.md 5.4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.support import answered, asked, by_step, stored, turn
from turnkeep.agent import Agent, CheckIn, call, tool
from turnkeep.agent.checkin import check_in_request, will_do_text
from turnkeep.agent.scripted import Calls
from turnkeep.decisions import approved, pending_ask

FIXTURES = Path(__file__).parents[1] / "golden" / "fixtures"


@tool(check_in=CheckIn())
def order_seeds(packets: int) -> str:
    """Order invented seed packets"""
    return f"ordered {packets}"


@pytest.mark.parametrize("name", ["d-paused-checkin.json", "d-paused-checkin-2.json"])
def test_the_pause_shows_what_the_reference_showed(name: str) -> None:
    paused_run = json.loads((FIXTURES / name).read_text())["data"]
    user, assistant = paused_run["conversation"]["history"]
    [made] = assistant["toolCalls"]

    def script(scene: Any) -> Calls:
        return Calls([call(made["name"], **made["args"])], assistant["content"])

    provider = by_step(script(None))
    agent = Agent(provider=provider, system="Order sensibly. Ask before spending.", tools=[order_seeds])
    paused = asked(agent.run(turn(user["content"]).context))
    expected = {**paused_run["pending"]["pauseData"], "toolCallId": "call-1"}
    assert paused.pause_data == expected
    shown = pending_ask(paused.pause_data, paused_run["pending"]["sessionId"])
    assert shown == {**paused_run["pending"], "pauseData": expected}
    assert [m["content"] for m in paused.messages] == [user["content"], assistant["content"]]
    assert paused.iteration == paused_run["conversation"]["lastCompletedIteration"]


def test_the_resumed_history_is_the_references() -> None:
    resumed = json.loads((FIXTURES / "e-resumed-checkin-approved.json").read_text())["data"]
    user, assistant, result, final = resumed["history"]
    [made] = assistant["toolCalls"]

    @tool(name=made["name"], check_in=CheckIn())
    def order(packets: int) -> Any:
        content = result["content"]
        return json.loads(content) if content[:1] in "{[" else content

    steps = [Calls([call(made["name"], **made["args"])], assistant["content"]), final["content"]]
    agent = Agent(provider=by_step(*steps), tools=[order])
    paused = asked(agent.run(turn(user["content"]).context))
    context = turn(messages=stored(paused.messages)).context
    outcome = answered(agent.resume(context, stored(paused.checkpoint), approved("ada", now_ms=1)))
    for message in outcome.messages[1:3]:
        for one in message.get("toolCalls", [message]):
            one.update({"id": made["id"]} if "id" in one else {"toolCallId": made["id"]})
    assert outcome.messages == resumed["history"]
    assert outcome.iteration == resumed["lastCompletedIteration"]


def test_the_trail_and_the_results_show_what_ran_before() -> None:
    @tool
    def count(what: str) -> str:
        """Counts."""
        return f"seven packets of {what}"

    first = [call("count", what="seeds"), call("count")]
    agent = Agent(provider=by_step(first, call("order_seeds", packets=3)), tools=[count, order_seeds])
    evidence = asked(agent.run(turn("Order three packets").context)).pause_data["checkIn"]["evidence"]
    assert evidence["trail"] == {
        "iteration": 2,
        "toolCalls": [{"name": "count", "ok": True}, {"name": "count", "ok": False}],
        "summary": "ran count, count (iteration 2)",
    }
    assert [one["channel"] for one in evidence["read"]] == ["task", "result", "result"]
    assert {one["id"] for one in evidence["drivers"]} == {"task-1", "result-1", "result-2"}
    scores = [one["score"] for one in evidence["drivers"]]
    assert scores == sorted(scores, reverse=True)
    assert evidence["drivers"][0]["id"] == "task-1"


def test_what_it_will_do_flattens_and_cuts_each_value() -> None:
    said = will_do_text("Pays\n  money.", {"to": "a\n b", "list": [1, {"x": None}], "long": "y" * 61})
    assert said == f'Pays money. — with to=a b, list=[1,{{"x":null}}], long={"y" * 59}…'
    assert will_do_text("Pays.", {}) == "Pays."


def test_an_ask_stays_small_whatever_the_agent_had_read() -> None:
    messages = [{"role": "user", "content": "t" * 9000}]
    messages += [{"role": "tool", "content": f"{n} " + "r" * 9000, "toolName": "count"} for n in range(200)]
    messages.append({"role": "assistant", "content": "now"})
    request = check_in_request(order_seeds, {"packets": 1}, messages=messages, system="S. " * 500, iteration=9)
    assert request["evidence"]["read"][-1]["summary"].startswith("199 ")
    evidence = {**request["evidence"], "trail": None}
    assert len(json.dumps(evidence)) < 16_000
