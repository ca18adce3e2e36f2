"""How much of a conversation a model is shown. The ledger keeps everything; a window only cuts what is sent.

A window cuts whole turns, oldest first, never a turn in two. Two bounds, either or both:

- ``last_turns``: at most so many earlier turns. Told to turnkeep before the agent exists (``@agent_factory``), it also
  bounds what is read from the ledger: one query, newest first.
- ``token_budget``: at most about so many tokens of earlier turns, estimated at four UTF-8 bytes a token.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from turnkeep.agent.port import AgentFactory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.agent.port import TurnContext
    from turnkeep.messages import Message

BYTES_PER_TOKEN = 4
_LAST_TURNS_ATTRIBUTE = "turnkeep_last_turns"

Factory = TypeVar("Factory", bound=AgentFactory)


@dataclass(frozen=True)
class Kept:
    """What a window left of a history.

    Attributes:
        messages: what stays, oldest first.
        turns: how many turns that is.
        left_out_turns: how many turns were cut.
        left_out_messages: how many messages were cut.
    """

    messages: list[Message]
    turns: int
    left_out_turns: int
    left_out_messages: int


@dataclass(frozen=True)
class Window:
    """Bounds on the earlier turns that a model is shown; the turn that runs always stays whole.

    Attributes:
        last_turns: at most so many earlier turns; None for all.
        token_budget: at most about so many tokens of earlier turns; None for no such bound.
    """

    last_turns: int | None = None
    token_budget: int | None = None

    def __post_init__(self) -> None:
        for name, bound in (("last_turns", self.last_turns), ("token_budget", self.token_budget)):
            if bound is not None and (isinstance(bound, bool) or bound < 0):
                raise ValueError(f"{name} must be 0 or more, or None for no bound.")

    def cut(self, history: Sequence[Message], turn_sizes: Sequence[int] = ()) -> Kept:
        """Cuts a history of earlier turns.

        Args:
            history: messages of earlier turns, oldest first.
            turn_sizes: how many messages each of these turns has, oldest first. Left out, a turn begins at every
                user message.
        """
        turns = _split(history, turn_sizes)
        kept: list[list[Message]] = []
        tokens = 0
        for turn in reversed(turns):
            tokens += estimated_tokens(turn)
            over_budget = self.token_budget is not None and tokens > self.token_budget
            if over_budget or (self.last_turns is not None and len(kept) >= self.last_turns):
                break
            kept.append(turn)
        messages = [message for turn in reversed(kept) for message in turn]
        return Kept(messages, len(kept), len(turns) - len(kept), len(history) - len(messages))


def window_note(context: TurnContext, kept: Kept) -> dict[str, Any]:
    """What the evidence says of a cut.

    Returns:
        ``{"turns", "messages", "firstTurn"?, "lastTurn"?, "leftOut": {"turns", "messages", "beforeTurn"?}}``.
    """
    note: dict[str, Any] = {"turns": kept.turns, "messages": len(kept.messages)}
    shown = [turn for turn, _ in context.history_turns][-kept.turns :] if kept.turns else []
    if shown:
        note |= {"firstTurn": shown[0], "lastTurn": shown[-1]}
    note["leftOut"] = {
        "turns": kept.left_out_turns + context.left_out.get("turns", 0),
        "messages": kept.left_out_messages + context.left_out.get("messages", 0),
    }
    if note["leftOut"]["turns"]:
        # Which ones: all before the first that was shown, or before this turn where none was.
        note["leftOut"]["beforeTurn"] = shown[0] if shown else context.info.turn
    return note


def estimated_tokens(messages: Sequence[Message]) -> int:
    """About how many tokens messages are: a quarter of their UTF-8 bytes, rounded up; an estimate, not a count."""
    size = sum(len(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")) for message in messages)
    return -(-size // BYTES_PER_TOKEN)


def _split(history: Sequence[Message], turn_sizes: Sequence[int]) -> list[list[Message]]:
    if turn_sizes and sum(turn_sizes) == len(history):
        turns, start = [], 0
        for size in turn_sizes:
            turns.append(list(history[start : start + size]))
            start += size
        return turns
    found: list[list[Message]] = []
    for message in history:
        if message.get("role") == "user" or not found:
            found.append([])
        found[-1].append(message)
    return found


def agent_factory(*, last_turns: int | None = None) -> Callable[[Factory], Factory]:
    """Marks a factory so that turnkeep bounds what it reads of a conversation before the agent exists.

    ``@agent_factory(last_turns=20)`` reads the last 20 earlier turns at most; without it everything is read.
    """
    if last_turns is not None and (isinstance(last_turns, bool) or last_turns < 0):
        raise ValueError("last_turns must be 0 or more, or None for everything.")

    def mark(factory: Factory) -> Factory:
        setattr(factory, _LAST_TURNS_ATTRIBUTE, last_turns)
        return factory

    return mark


def last_turns_of(factory: AgentFactory) -> int | None:
    """How many earlier turns a factory's agents want read; None for everything."""
    bound = getattr(factory, _LAST_TURNS_ATTRIBUTE, None)
    return bound if isinstance(bound, int) and not isinstance(bound, bool) else None
