"""A refund desk written with Pydantic AI, hosted by turnkeep: ``AgentFactory=pydantic_ai_desk:build``.

Copy it to layers/agent/, and name its framework in layers/agent/requirements.txt:
``pydantic-ai-slim[bedrock]==2.66.0``. Offline it talks by a script (``FunctionModel``); with a real model only the
agent's first argument changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, ApprovalRequired, RunContext
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from turnkeep.frameworks.pausing import HostedTurn
from turnkeep.frameworks.pydantic_ai import PydanticAgent

if TYPE_CHECKING:
    from turnkeep.agent import TurnInfo

PRICES = {"A-100": 20, "B-200": 250}


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What the desk says or does next."""
    newest = messages[-1].parts
    results = [part.model_response_str() for part in newest if isinstance(part, ToolReturnPart)]
    if results:
        return ModelResponse([TextPart(" ".join(results))])
    words = " ".join(str(part.content) for part in newest if isinstance(part, UserPromptPart))
    orders = [order for order in PRICES if order in words]
    if "gift" in words:
        return ModelResponse([ToolCallPart("choose_gift", {})])
    tool = "refund" if "efund" in words else "find_order"
    calls: list[Any] = [ToolCallPart(tool, {"order_id": order}) for order in orders]
    return ModelResponse(calls or [TextPart("Which order do you mean? Its number looks like A-100.")])


desk = Agent(FunctionModel(answer), deps_type=HostedTurn, instructions="You are a refund desk.")


@desk.tool_plain
def find_order(order_id: str) -> dict[str, Any]:
    """Looks an order up."""
    return {"order": order_id, "price": PRICES.get(order_id)}


@desk.tool
def refund(ctx: RunContext[HostedTurn], order_id: str) -> str:
    """Pays an order's price back; a large one needs a supervisor."""
    if PRICES.get(order_id, 0) > 50 and not ctx.tool_call_approved:
        raise ApprovalRequired(metadata={"question": f"Refund order {order_id}?"})
    key = ctx.deps.idempotency_key(ctx.tool_call_id or "")
    return f"Order {order_id} is refunded under {key[:8]}."


@desk.tool_plain
def choose_gift() -> str:
    """Asks the customer what they would like instead."""
    raise CallDeferred(metadata={"question": "Flowers or chocolate?", "audience": "owner"})


def build(turn: TurnInfo) -> PydanticAgent:
    """The desk for one turn."""
    return PydanticAgent(
        desk,
        deps=lambda hosted: hosted,
        agent_id="pydantic-desk",
        agent_version="1",
        audience=lambda tool, metadata: metadata.get("audience", "role:supervisor"),
    )
