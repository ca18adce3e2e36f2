"""What a check-in shows to the person who decides (CONTRACT.md 5.4).

What the tool will do, what the agent had read when it wanted to do it, which of that speaks for the call, and what
ran before. Computed from the turn alone, so the same pause always shows the same evidence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from turnkeep.agent.results import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.agent.tools import Tool
    from turnkeep.messages import Message

MAX_SHOWN_CHARACTERS = 160
"""Of each text that the agent had read; an ask stays small enough for its record and for a person."""

MAX_UNITS_OF_A_CHANNEL = 12
"""Of the system prompt the first sentences, of the results the newest ones."""

_VALUE_CHARACTERS = 60
_WORD = re.compile(r"[a-z0-9]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_STOP_WORDS = frozenset(
    [
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "for",
        "from",
        "has",
        "have",
        "in",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "that",
        "the",
        "their",
        "this",
        "to",
        "was",
        "were",
        "will",
        "with",
        "you",
        "your",
    ]
)


def check_in_request(
    tool: Tool, args: dict[str, Any], *, messages: Sequence[Message], system: str | None, iteration: int
) -> dict[str, Any]:
    """The ``CheckInRequest`` of a call.

    Args:
        tool: what will run.
        args: with which arguments.
        messages: this turn's messages up to the call: the last assistant message holds it.
        system: the system prompt.
        iteration: the iteration of the call, from 1.
    """
    request: dict[str, Any] = {"tool": tool.name, "args": args}
    intent = next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), "")
    if intent:
        request["intent"] = intent
    will_do = will_do_text(tool.description, args)
    units = _units(messages, system)
    tokens = _tokens(f"{tool.name} {will_do}")
    scored = sorted(((jaccard(tokens, _tokens(unit["text"])), unit) for unit in units), key=lambda one: -one[0])
    request["evidence"] = {
        "willDo": will_do,
        "read": [{"channel": unit["channel"], "summary": _cut(unit["text"])} for unit in units],
        "drivers": [{**unit, "text": _cut(unit["text"]), "score": score} for score, unit in scored],
        "trail": _trail(messages, iteration),
    }
    if tool.check_in is not None and tool.check_in.component is not None:
        request["component"] = tool.check_in.component
    return request


def will_do_text(description: str, args: dict[str, Any]) -> str:
    """The tool's description and, where there are any, its arguments: ``Pays money back — with order=A-100``."""
    about = " ".join(description.split())
    if not args:
        return about
    return f"{about} — with {', '.join(f'{name}={_flat(value)}' for name, value in args.items())}"


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """How much two sets of words overlap, 0 to 1; 0 where both are empty."""
    together = len(one | other)
    return len(one & other) / together if together else 0.0


def _tokens(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(text.lower()) if len(word) > 1 and word not in _STOP_WORDS)


def _units(messages: Sequence[Message], system: str | None) -> list[dict[str, str]]:
    """The texts that the agent had read: of the system prompt each sentence, the task, each result of this turn."""
    sentences = [part.strip() for part in _SENTENCE_END.split(system or "") if part.strip()][:MAX_UNITS_OF_A_CHANNEL]
    tasks = [message["content"] for message in messages if message["role"] == "user" and message["content"]]
    results = [message["content"] for message in messages if message["role"] == "tool" and message["content"]]
    first_shown = max(0, len(results) - MAX_UNITS_OF_A_CHANNEL)
    units = [_unit("system", number, text) for number, text in enumerate(sentences, 1)]
    units += [_unit("task", number, text) for number, text in enumerate(tasks, 1)]
    return units + [_unit("result", number, text) for number, text in enumerate(results, 1) if number > first_shown]


def _unit(channel: str, number: int, text: str) -> dict[str, str]:
    return {"id": f"{channel}-{number}", "channel": channel, "text": text}


def _trail(messages: Sequence[Message], iteration: int) -> dict[str, Any]:
    ran = [
        {"name": message.get("toolName", ""), "ok": not message.get("isError")}
        for message in messages
        if message["role"] == "tool"
    ]
    what = f"ran {', '.join(one['name'] for one in ran)}" if ran else "no tools run yet"
    return {"iteration": iteration, "toolCalls": ran, "summary": f"{what} (iteration {iteration})"}


def _flat(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else compact_json(value)).split())
    return _cut(text, _VALUE_CHARACTERS)


def _cut(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
