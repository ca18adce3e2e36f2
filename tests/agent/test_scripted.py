"""The scripted provider: what a script sees, and that it counts nothing of its own."""

from __future__ import annotations

from typing import Any

from turnkeep.agent import ModelRequest, Scene, ScriptedProvider, call
from turnkeep.agent.scripted import Calls, ToolResult

CALL = {"id": "k", "name": "look", "args": {"a": 1}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": "", "toolCalls": [CALL]},
    {"role": "tool", "content": "earlier result", "toolCallId": "k"},
    {"role": "assistant", "content": "done"},
    {"role": "user", "content": "second"},
    {"role": "assistant", "content": "", "toolCalls": [{**CALL, "id": "m"}]},
    {"role": "tool", "content": "this result", "toolCallId": "m", "isError": True},
]


def test_a_scene_tells_this_turns_results_from_earlier_ones() -> None:
    scene = Scene.of(CONVERSATION)
    assert scene.text == "second"
    assert scene.results == [ToolResult("look", {"a": 1}, "this result", is_error=True)]
    assert scene.earlier == [ToolResult("look", {"a": 1}, "earlier result")]
    assert Scene.of([]) == Scene("")


def test_the_same_request_gets_the_same_reply_from_any_provider() -> None:
    def script(scene: Scene) -> Any:
        return Calls([call("look", a=1), call("look", a=2)], "Let me see.") if scene.text == "second" else "ok"

    request = ModelRequest(CONVERSATION, system="Be kind.")
    one, two = ScriptedProvider(script).converse(request), ScriptedProvider(script).converse(request)
    assert one == two
    assert one.message["content"] == "Let me see."
    assert [made["id"] for made in one.message["toolCalls"]] == ["call-3", "call-4"]  # no id of the conversation again
    assert one.stop_reason == "tool_use"
    assert one.usage["inputTokens"] > 0 < one.usage["outputTokens"]
