"""An agent for tests: what it does is in the message, word by word, and what it knows must stay where it is.

``look:X`` looks something up, ``pay:X`` pays behind a supervisor's yes, ``ask:X`` asks the owner, ``soon:X`` asks the
owner for two seconds; ``then`` begins another reply of the model.
"""

from __future__ import annotations

from typing import Any

from turnkeep.agent import Agent, CheckIn, Scene, ScriptedProvider, ToolContext, TurnInfo, call, tool

SYSTEM = "PROMPT-that-nobody-else-sees: you are a desk."
TOOLS = ("look", "pay", "ask", "soon")


@tool
def look(at: str) -> str:
    """Looks an order up.

    Args:
        at: an order.
    """
    return f"RESULT-of-looking-at-{at}"


@tool(check_in=CheckIn(audience="role:supervisor"))
def pay(at: str) -> str:
    """Pays an order back.

    Args:
        at: an order.
    """
    return f"RESULT-of-paying-{at}"


@tool
def ask(at: str, context: ToolContext) -> str:
    """Asks the owner.

    Args:
        at: what about.
    """
    context.ask(f"Which colour for {at}?", choices=["blue", "red"])


@tool
def soon(at: str, context: ToolContext) -> str:
    """Asks the owner, who has two seconds.

    Args:
        at: what about.
    """
    context.ask(f"Quick, {at}?", expires_in_s=2)


def script(scene: Scene) -> Any:
    """The next reply that the message asks for, else the results in words."""
    done = len(scene.results)
    for reply in scene.text.split(" then "):
        words = [word.partition(":") for word in reply.split() if word.partition(":")[0] in TOOLS]
        if done >= len(words):
            done -= len(words)
            continue
        return [call(name, at=about) for name, _, about in words]
    return "; ".join(result.content for result in scene.results) or "ANSWER-to-you"


def build(turn: TurnInfo) -> Agent:
    """The desk for one turn."""
    return Agent(
        agent_id="asking-desk",
        system=SYSTEM,
        tools=[look, pay, ask, soon],
        provider=ScriptedProvider(script),
    )
