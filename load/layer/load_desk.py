"""An agent whose acts can be counted: a message names itself and the tools to call, one after the other.

``m-7f3c look act`` looks and then acts; ``pay`` acts behind a supervisor's yes; ``which`` asks the owner. What acts
writes one line into the book, a file that outlives every process: how often a message acted is how many lines it has.

How durable a conversation's turns are is in its id: ``load-sync-…``; without a mode it is the stack's.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import metered

from turnkeep.agent import Agent, CheckIn, Scene, ScriptedProvider, ToolContext, TurnInfo, call, tool

if TYPE_CHECKING:
    from turnkeep.agent.port import DurabilityMode
    from turnkeep.agent.provider import ModelReply, ModelRequest

MODES = ("exit", "async", "sync")

MODEL_S = (0.05, 0.25)
"""How long the model takes for a reply. Most of a turn's life, as with a real one, so that deaths fall into it."""
WORLD_S = 0.05
"""How long the world takes to say that it changed: a process that dies in it leaves a call in doubt."""


@tool
def look(token: str) -> str:
    """Looks something up.

    Args:
        token: the message that asks.
    """
    return f"looked for {token}"


@tool(once=True)
def act(token: str, context: ToolContext) -> str:
    """Changes the world, once.

    Args:
        token: the message that asks.
        context: whose turn it is.
    """
    return _enter("act", token, context)


@tool(once=True, check_in=CheckIn(audience="role:supervisor"))
def pay(token: str, context: ToolContext) -> str:
    """Changes the world, once, where a supervisor allows it.

    Args:
        token: the message that asks.
        context: whose turn it is.
    """
    return _enter("pay", token, context)


@tool
def which(token: str, context: ToolContext) -> str:
    """Asks the owner.

    Args:
        token: the message that asks.
        context: whose turn it is.
    """
    context.ask(f"Which one for {token}?", choices=["this", "that"])


def _enter(name: str, token: str, context: ToolContext) -> str:
    """One line in the book, by one write."""
    line = {
        "token": token,
        "tool": name,
        "key": context.idempotency_key,
        "turn": context.turn,
        "attempt": context.info.attempt,
    }
    with metered.noted(metered.AGENT), Path(os.environ["LOAD_BOOK"]).open("ab", buffering=0) as book:
        book.write(json.dumps(line).encode() + b"\n")
        time.sleep(WORLD_S)
    return f"acted for {token}"


def script(scene: Scene) -> Any:
    """The next tool that the message names, else the answer."""
    token, *tools = scene.text.split()
    if len(scene.results) < len(tools):
        return call(tools[len(scene.results)], token=token)
    return f"done {token}"


class MeteredProvider(ScriptedProvider):
    """The script, as slow as a quick model; the time that it takes is noted as the agent's."""

    def converse(self, request: ModelRequest) -> ModelReply:
        """See ``ScriptedProvider.converse``."""
        with metered.noted(metered.AGENT):
            time.sleep(random.uniform(*MODEL_S))
            return super().converse(request)


def build(turn: TurnInfo) -> Agent:
    """The desk for one turn."""
    mode = next((mode for mode in MODES if turn.conversation_id.startswith(f"load-{mode}-")), None)
    return Agent(
        agent_id="load-desk",
        system="You do what the message says.",
        tools=[look, act, pay, which],
        durability=cast("DurabilityMode | None", mode),
        provider=MeteredProvider(script),
    )
