"""The agent that ships with turnkeep: a refund desk that asks a supervisor before it pays much.

Copy this file and make it yours. turnkeep calls ``build`` once for every turn, uses what it returns for that turn and
drops it: keep nothing in a module's variables that a later turn should know. What was said is in the conversation.

The stack's parameter AgentFactory names the factory: ``refund_desk:build``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from turnkeep.agent import (
    Agent,
    CheckIn,
    Scene,
    ScriptedProvider,
    ScriptedReply,
    ToolResult,
    TurnInfo,
    call,
    tool,
)


@dataclass(frozen=True)
class Order:
    """An order of the shop; money is counted in cents."""

    item: str
    price_cents: int
    status: str


# A real desk would ask the shop's API.
ORDERS = {
    "A-100": Order("a desk lamp", 20_00, "it was delivered on Monday"),
    "B-200": Order("an office chair", 250_00, "it is on its way and arrives tomorrow"),
}
REFUND_LIMIT_CENTS = 50_00


# --- tools: plain functions with types and a docstring ------------------------------------------------------


@tool
def find_order(order_id: str) -> str:
    """Looks an order up.

    Args:
        order_id: such as A-100.
    """
    order = ORDERS.get(order_id)
    if order is None:
        return f"There is no order {order_id}."
    return f"Order {order_id} is {order.item} for {_money(order.price_cents)}; {order.status}."


def _needs_a_supervisor(args: dict[str, str]) -> bool:
    order = ORDERS.get(args["order_id"])
    return order is not None and order.price_cents > REFUND_LIMIT_CENTS


@tool(
    once=True,  # a crash may run a turn again; the same refund is still paid once
    check_in=CheckIn(audience="role:supervisor", when=_needs_a_supervisor),
)
def refund(order_id: str) -> str:
    """Pays an order's price back to the customer.

    Args:
        order_id: such as A-100.
    """
    order = ORDERS.get(order_id)
    if order is None:
        return f"There is no order {order_id}, so nothing was refunded."
    # A real desk would pay here. A parameter ``context: ToolContext`` would give it context.idempotency_key to hand to
    # the payment service: the same key for the same refund, however often a crash makes it run.
    return f"Order {order_id} is refunded: {_money(order.price_cents)}."


# --- the model: here a script, so that the desk works offline and always alike ------------------------------

GREETING = 'Hello, this is the refund desk. Ask me "Where is order A-100?" or "Refund order A-100, please".'
HELP = (
    'I look orders up and refund them. Name an order, such as A-100, and say what you want: "Where is order A-100?" '
    'or "Refund order A-100, please".'
)

SMALL_TALK = [
    (r"\b(thank|thx|bye|goodbye)", "You are welcome. Come back whenever you need me."),
    (r"\b(where|status|track|when|order)", "Which order do you mean? Its number looks like A-100."),
    (r"\b(hello|hi|hey|good (morning|afternoon|evening))\b", GREETING),
]


def answer(scene: Scene) -> ScriptedReply:
    """What the desk says or does next, by what was said and by what its tools answered."""
    if scene.results:
        return " ".join(_in_words(result) for result in scene.results)
    text = scene.text.lower()
    order_ids = [f"{letter.upper()}-{digits}" for letter, digits in re.findall(r"\b([a-z])-?(\d{3})\b", text)]
    orders = list(dict.fromkeys(order_ids))  # each once, in the order in which they were named
    if re.search(r"\b(refund|money back|return|reimburse)", text):
        return _refund_or_ask(orders, scene.earlier)
    if orders:
        return [call("find_order", order_id=order) for order in orders]
    return next(
        (reply for pattern, reply in SMALL_TALK if re.search(pattern, text)), f"I did not understand that. {HELP}"
    )


def _refund_or_ask(orders: list[str], earlier: list[ToolResult]) -> ScriptedReply:
    if not orders:
        return "Which order shall I refund? Its number looks like A-100."
    unpaid = [order for order in orders if not _was_refunded(order, earlier)]
    if not unpaid:
        return f"Already done: {' and '.join(orders)} was refunded earlier in this conversation."
    return [call("refund", order_id=order) for order in unpaid]


def _was_refunded(order_id: str, results: list[ToolResult]) -> bool:
    return any(
        result.name == "refund" and result.args == {"order_id": order_id} and "is refunded" in result.content
        for result in results
    )


def _in_words(result: ToolResult) -> str:
    """A tool's result as the customer hears it. A supervisor's no comes as ``declined by human: why``."""
    if result.content.startswith("declined by human"):
        why = result.content.removeprefix("declined by human").removeprefix(": ")
        reason = f" They say: {why}" if why else ""
        return f"I am sorry, a supervisor declined the refund of order {result.args['order_id']}.{reason}"
    if result.is_error:
        return f"I could not do that for order {result.args.get('order_id', '')}; please try again."
    return result.content


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


# --- the factory: called once per turn ----------------------------------------------------------------------


def build(turn: TurnInfo) -> Agent:
    """The refund desk for one turn. ``turn`` says whose it is, for a factory that builds by person or tenant."""
    return Agent(
        agent_id="refund-desk",
        agent_version="1",
        system="You are a refund desk. Look orders up before you talk about them. Large refunds need a supervisor.",
        tools=[find_order, refund],
        # With a real model only this line changes, to turnkeep.adapters.bedrock's BedrockProvider.from_environment().
        provider=ScriptedProvider(answer),
    )
