"""Rules that look at a tool call before it runs and may put it before a person.

A middleware is a plain callable ``(call, context) -> None | MiddlewareAsk``. It sees the call's arguments as the model
gave them, after they were validated, and decides by rule (an amount over a limit). Its name is recorded with the ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnkeep.agent.tools import ToolCall, ToolContext


@dataclass(frozen=True)
class MiddlewareAsk:
    """A middleware's question (CONTRACT.md 5.4): answered with a decision.

    Attributes:
        question: what a person is asked.
        detail: anything JSON that helps to decide; left out where None.
        component: how to show it (CONTRACT.md 5.5).
        audience: ``owner`` or ``role:NAME``.
        expires_in_s: seconds that the ask stays open; None takes the stack's.
    """

    question: str
    detail: Any = None
    component: dict[str, Any] | None = None
    audience: str = "owner"
    expires_in_s: int | None = None


Middleware = Callable[["ToolCall", "ToolContext"], "MiddlewareAsk | None"]


def names_of(middleware: tuple[Middleware, ...]) -> list[str]:
    """One name for each: its ``name``, else its function's or class's name; a repeated one gets a number."""
    names: list[str] = []
    for one in middleware:
        given = getattr(one, "name", None) or getattr(one, "__name__", None) or type(one).__name__
        name, number = str(given), 1
        while name in names:
            number += 1
            name = f"{given}-{number}"
        names.append(name)
    return names
