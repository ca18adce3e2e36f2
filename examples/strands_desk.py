"""A refund desk written with Strands Agents, hosted by turnkeep: ``AgentFactory=strands_desk:build``.

Copy it to layers/agent/, and name its framework in layers/agent/requirements.txt: ``strands-agents==1.62.0``. Offline
it talks by a script (``ScriptedModel``); with a real model only the line in ``build`` changes, to ``BedrockModel()``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import strands
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models.model import Model

from turnkeep.frameworks.strands import StrandsAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from turnkeep.agent import TurnInfo

PRICES = {"A-100": 20, "B-200": 250}


@strands.tool
def find_order(order_id: str) -> dict[str, Any]:
    """Looks an order up.

    Args:
        order_id: such as A-100.
    """
    return {"status": "success", "content": [{"json": {"order": order_id, "price": PRICES.get(order_id)}}]}


@strands.tool(context=True)
def refund(order_id: str, tool_context: strands.ToolContext) -> str:
    """Pays an order's price back.

    Args:
        order_id: such as A-100.
    """
    hosted = tool_context.invocation_state["turnkeep"]
    key = hosted.idempotency_key(tool_context.tool_use["toolUseId"])
    return f"Order {order_id} is refunded under {key[:8]}."


class Supervisor(HookProvider):
    """Large refunds need a supervisor: the response is what they decide."""

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:
        registry.add_callback(BeforeToolCallEvent, self.approve)

    def approve(self, event: BeforeToolCallEvent) -> None:
        order_id = str(event.tool_use["input"].get("order_id"))
        if event.tool_use["name"] != "refund" or PRICES.get(order_id, 0) <= 50:
            return
        decision = event.interrupt("large-refund", reason={"question": f"Refund order {order_id}?", "order": order_id})
        if not (isinstance(decision, dict) and decision.get("approved") is True):
            event.cancel_tool = "a supervisor declined"


class ScriptedModel(Model):
    """A Strands model that needs no network: answers with text or with tool calls, by what it is shown."""

    def __init__(self, script: Callable[[list[dict[str, Any]]], Any]) -> None:
        self.script = script

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, output_model: Any, prompt: Any, system_prompt: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        said = self.script(messages)
        calls = said if isinstance(said, list) else []
        made = sum("toolUse" in block for message in messages for block in message["content"])
        yield {"messageStart": {"role": "assistant"}}
        if not calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
        for number, (name, arguments) in enumerate(calls, made + 1):
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"use-{number}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        usage = {"inputTokens": 10 * len(messages), "outputTokens": 7, "totalTokens": 10 * len(messages) + 7}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def answer(messages: list[dict[str, Any]]) -> Any:
    """What the desk says or does next."""
    last = messages[-1]["content"]
    results = [block["toolResult"] for block in last if "toolResult" in block]
    if results:
        return " ".join(part.get("text") or json.dumps(part.get("json")) for one in results for part in one["content"])
    words = " ".join(block.get("text", "") for block in last)
    orders = [order for order in PRICES if order in words]
    if orders:
        return [("refund" if "efund" in words else "find_order", {"order_id": order}) for order in orders]
    return "Which order do you mean? Its number looks like A-100."


def build(turn: TurnInfo) -> StrandsAgent:
    """The desk for one turn."""
    agent = strands.Agent(
        model=ScriptedModel(answer),
        system_prompt="You are a refund desk.",
        tools=[find_order, refund],
        hooks=[Supervisor()],
        callback_handler=None,
    )
    return StrandsAgent(agent, agent_id="strands-desk", agent_version="1", audience="role:supervisor")
