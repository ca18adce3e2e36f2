"""The agent's side of a turn: the port, turnkeep's own tool loop, and its providers.

What an agent's module needs is imported from here: ``from turnkeep.agent import Agent, CheckIn, ToolContext, tool``.
Names are loaded when they are first used, so that reading a conversation does not pay for the loop, and a pure module
may import the port without importing what is built upon it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnkeep.agent.loop import Agent as Agent
    from turnkeep.agent.middleware import Middleware as Middleware
    from turnkeep.agent.middleware import MiddlewareAsk as MiddlewareAsk
    from turnkeep.agent.port import TurnInfo as TurnInfo
    from turnkeep.agent.provider import ModelReply as ModelReply
    from turnkeep.agent.provider import ModelRequest as ModelRequest
    from turnkeep.agent.provider import Provider as Provider
    from turnkeep.agent.scripted import Scene as Scene
    from turnkeep.agent.scripted import ScriptedProvider as ScriptedProvider
    from turnkeep.agent.scripted import ScriptedReply as ScriptedReply
    from turnkeep.agent.scripted import ToolResult as ToolResult
    from turnkeep.agent.scripted import call as call
    from turnkeep.agent.tools import CheckIn as CheckIn
    from turnkeep.agent.tools import Tool as Tool
    from turnkeep.agent.tools import ToolCall as ToolCall
    from turnkeep.agent.tools import ToolContext as ToolContext
    from turnkeep.agent.tools import tool as tool
    from turnkeep.agent.window import Window as Window
    from turnkeep.agent.window import agent_factory as agent_factory

_HOMES = {
    "Agent": "loop",
    "CheckIn": "tools",
    "Middleware": "middleware",
    "MiddlewareAsk": "middleware",
    "ModelReply": "provider",
    "ModelRequest": "provider",
    "Provider": "provider",
    "Scene": "scripted",
    "ScriptedProvider": "scripted",
    "ScriptedReply": "scripted",
    "Tool": "tools",
    "ToolCall": "tools",
    "ToolContext": "tools",
    "ToolResult": "scripted",
    "TurnInfo": "port",
    "Window": "window",
    "agent_factory": "window",
    "call": "scripted",
    "tool": "tools",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one list of names, not two that drift apart


def __getattr__(name: str) -> Any:
    """Loads a public name from the module that is its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
