"""An agent that acts on a world outside, and dies where it is told to, by a signal to its own process.

What it does is in the message, word by word: ``step:N`` acts and may act twice, ``pay:N`` acts once (``once=True``),
``refund:N`` acts behind a supervisor's yes; ``then`` begins another reply of the model. The world's book is a file of
the conversation's own in the folder CHAOS_WORLD. Beside it lies, where somebody put it, at which point this process is
to die: once, for whoever comes there first.

The mode of durability is the first word of the conversation's id.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from turnkeep.agent import Agent, CheckIn, Scene, ScriptedProvider, ToolContext, TurnInfo, call, tool

if TYPE_CHECKING:
    from turnkeep.agent.port import DurabilityMode

TOOLS = ("step", "pay", "refund")
MODEL_S = 0.2
"""What a quick model takes; under ``async`` a write of progress lands meanwhile."""


class World:
    """The world of one conversation: what was done in it, and where a process dies."""

    def __init__(self, conversation_id: str) -> None:
        folder = Path(os.environ["CHAOS_WORLD"])
        self._book, self._fate = folder / f"{conversation_id}.book", folder / f"{conversation_id}.fate"

    def passes(self, point: str) -> None:
        """Kills this process where that is the point."""
        if self._fate.exists() and self._fate.read_text("utf-8") == point:
            self._fate.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1)  # a signal arrives soon, not at once: nothing may be done meanwhile

    def act(self, name: str, n: str, key: str) -> None:
        """Does something to the world that cannot be taken back."""
        self.passes(f"before {name} {n}")
        line = json.dumps({"name": name, "n": n, "process": os.getpid(), "key": key})
        with self._book.open("a", encoding="utf-8") as book:
            book.write(f"{line}\n")
        self.passes(f"after {name} {n}")


def build(turn: TurnInfo) -> Agent:
    """The desk for one turn."""
    world = World(turn.conversation_id)

    @tool
    def step(n: str, context: ToolContext) -> str:
        """Does something that may be done twice."""
        world.act("step", n, context.idempotency_key)
        return f"stepped {n}"

    @tool(once=True)
    def pay(n: str, context: ToolContext) -> str:
        """Does something that is done once."""
        world.act("pay", n, context.idempotency_key)
        return f"paid {n}"

    @tool(check_in=CheckIn(audience="role:supervisor"))
    def refund(n: str, context: ToolContext) -> str:
        """Does what a supervisor has to allow."""
        world.act("refund", n, context.idempotency_key)
        return f"refunded {n}"

    def script(scene: Scene) -> Any:
        replies = [
            [(name, n) for name, _, n in (word.partition(":") for word in reply.split()) if name in TOOLS]
            for reply in scene.text.split(" then ")
        ]
        done, number = len(scene.results), 1
        while number <= len(replies) and done >= len(replies[number - 1]):
            done -= len(replies[number - 1])
            number += 1
        time.sleep(MODEL_S)
        world.passes(f"model {number}")
        if number <= len(replies) and replies[number - 1]:
            return [call(name, n=n) for name, n in replies[number - 1]]
        return "; ".join(result.content for result in scene.results) or "On we go."

    mode = turn.conversation_id.partition("-")[0]
    return Agent(
        agent_id="acting-desk",
        system="You are a desk.",
        tools=[step, pay, refund],
        provider=ScriptedProvider(script),
        durability=cast("DurabilityMode", mode),
    )
