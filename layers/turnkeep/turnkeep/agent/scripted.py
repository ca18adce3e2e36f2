"""A provider that needs no model and no network: it answers by rules on what it is shown.

The same request always gets the same answer, in whatever process it is asked: a resume in a fresh process goes on
where the script stood, because the script looks at the conversation and counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnkeep.agent.history import calls_of
from turnkeep.agent.provider import ModelReply, ModelRequest
from turnkeep.agent.window import estimated_tokens

if TYPE_CHECKING:
    from turnkeep.messages import Message


@dataclass(frozen=True)
class Call:
    """A scripted tool call."""

    name: str
    args: dict[str, Any]


def call(name: str, /, **args: Any) -> Call:
    """A tool call as a script's reply: ``call("refund", order_id="A-100")``."""
    return Call(name, args)


@dataclass(frozen=True)
class ToolResult:
    """What a call gave.

    Attributes:
        name: the tool.
        args: what it was called with.
        content: what the model reads.
        is_error: whether it tells of a failure.
    """

    name: str
    args: dict[str, Any]
    content: str
    is_error: bool = False


@dataclass(frozen=True)
class Scene:
    """What a script looks at.

    Attributes:
        text: the last user message.
        results: results of the calls made since then, oldest first.
        earlier: results of calls made before, oldest first.
        messages: the whole conversation as the model is shown it.
    """

    text: str
    results: list[ToolResult] = field(default_factory=list)
    earlier: list[ToolResult] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Scene:
        """The scene that a conversation leaves a model in."""
        start = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=0)
        text = messages[start]["content"] if messages and messages[start]["role"] == "user" else ""
        return cls(text, _results(messages[start:]), _results(messages[:start]), list(messages))


def _results(messages: Sequence[Message]) -> list[ToolResult]:
    found = []
    calls: dict[str, dict[str, Any]] = {}
    for message in messages:
        calls |= {one["id"]: one for one in calls_of(message)}
        made = calls.get(message.get("toolCallId", "")) if message["role"] == "tool" else None
        if made is not None:
            is_error = bool(message.get("isError"))
            found.append(ToolResult(made["name"], made["args"], message["content"], is_error))
    return found


@dataclass(frozen=True)
class Calls:
    """Several tool calls in one reply, with words beside them."""

    calls: Sequence[Call]
    text: str = ""


ScriptedReply = str | Call | Calls | Sequence[Call] | ModelReply
Script = Callable[[Scene], ScriptedReply]


class ScriptedProvider:
    """Answers by a script: a function from the scene to a text, a call, several calls, or a whole reply."""

    def __init__(self, script: Script) -> None:
        """Keeps the script; nothing else, so that one provider may serve any turn."""
        self._script = script

    def converse(self, request: ModelRequest) -> ModelReply:
        """The script's reply as a model's; token counts are estimates."""
        said = self._script(Scene.of(request.messages))
        if isinstance(said, ModelReply):
            return said
        if isinstance(said, str):
            return self._reply(request, {"role": "assistant", "content": said}, "end_turn")
        calls = said if isinstance(said, Calls) else Calls([said] if isinstance(said, Call) else said)
        made = sum(len(calls_of(message)) for message in request.messages)
        listed = [
            {"id": f"call-{number}", "name": one.name, "args": dict(one.args)}
            for number, one in enumerate(calls.calls, made + 1)
        ]
        message: Message = {"role": "assistant", "content": calls.text, "toolCalls": listed}
        return self._reply(request, message, "tool_use")

    def _reply(self, request: ModelRequest, message: Message, stop_reason: str) -> ModelReply:
        usage = {
            "inputTokens": estimated_tokens([{"content": request.system or ""}, *request.messages]),
            "outputTokens": estimated_tokens([message]),
        }
        return ModelReply(message, stop_reason, usage)
