"""Messages between turnkeep's shape and the Converse API's. Pure: no client, no clock.

Converse wants: user and assistant in turns, the user first; the results of all of an assistant message's calls in the
user message behind it; no blank text; call ids of its own alphabet that differ; a tool configuration wherever a call is
mentioned. A stored history may be otherwise in every one of these, and is adapted, not refused.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from turnkeep.agent.history import calls_of, merge_consecutive
from turnkeep.agent.provider import ModelError, ToolSpec, UnsupportedContentError
from turnkeep.agent.reasoning import reasoning_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnkeep.messages import Message

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_EMPTY_MESSAGE: Final = "(empty message)"
_EMPTY_RESULT: Final = "(empty result)"
_LEFT_OUT: Final = "(earlier messages are left out)"

CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
"""Everything in front of it may be read from the prompt cache the next time."""


# --- to Converse --------------------------------------------------------------------------------------------


def to_converse(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """A conversation as Converse accepts it.

    Args:
        messages: closed (``turnkeep.agent.history``), without system messages.

    Raises:
        UnsupportedContentError: content is something else than text.
    """
    sent: list[dict[str, Any]] = []
    ids = _CallIds()
    for message in merge_consecutive(_only_text(messages)):
        role = "assistant" if message["role"] == "assistant" else "user"
        if message["role"] == "assistant":
            blocks = _assistant_blocks(message, ids)
        elif message["role"] == "tool":
            blocks = [_result_block(message, ids)]
        else:
            blocks = [{"text": message["content"] if message["content"].strip() else _EMPTY_MESSAGE}]
        if not blocks:
            continue
        if sent and sent[-1]["role"] == role:
            sent[-1]["content"].extend(blocks)
        else:
            sent.append({"role": role, "content": blocks})
    if not sent or sent[0]["role"] != "user":
        sent.insert(0, {"role": "user", "content": [{"text": _LEFT_OUT if sent else _EMPTY_MESSAGE}]})
    return sent


def to_tool_config(
    tools: Sequence[ToolSpec], messages: Sequence[dict[str, Any]], *, cache: bool
) -> dict[str, Any] | None:
    """The tool configuration; None where there are no tools and no calls in the conversation.

    A conversation that mentions calls needs one even where the agent has no tools any more: it gets one that says so.
    """
    specs = [_tool_spec(one.name, one.description or one.name, one.input_schema) for one in tools]
    if not specs:
        if not any("toolUse" in block for message in messages for block in message["content"]):
            return None
        specs = [_tool_spec("unavailable", "Not available any more. Do not call it.", {"type": "object"})]
    return {"tools": [*specs, CACHE_POINT] if cache else specs}


def _tool_spec(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"toolSpec": {"name": name, "description": description, "inputSchema": {"json": schema}}}


def _only_text(messages: Iterable[Message]) -> list[Message]:
    listed = list(messages)
    for message in listed:
        if not isinstance(message.get("content"), str):
            raise UnsupportedContentError("structured content")
    return listed


class _CallIds:
    """Call ids as Converse takes them, each once in a conversation; a result finds its call's."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._current: dict[str, str] = {}

    def begin(self, calls: Sequence[dict[str, Any]]) -> None:
        """Takes over from the last assistant message: only the calls of the current one can be answered."""
        self._current = {call["id"]: self._fresh(call["id"]) for call in calls}

    def of(self, call_id: str) -> str:
        return self._current[call_id]

    def _fresh(self, call_id: str) -> str:
        fresh = call_id if _CALL_ID.fullmatch(call_id) else "call"
        number = 1
        while fresh in self._taken:
            number += 1
            fresh = f"{call_id[:50] if _CALL_ID.fullmatch(call_id) else 'call'}-{number}"
        self._taken.add(fresh)
        return fresh


def _assistant_blocks(message: Message, ids: _CallIds) -> list[dict[str, Any]]:
    calls = calls_of(message)
    ids.begin(calls)
    blocks: list[dict[str, Any]] = [{"text": message["content"]}] if message["content"].strip() else []
    for one in calls:
        used = {"toolUseId": ids.of(one["id"]), "name": _safe_name(one["name"]), "input": one["args"]}
        blocks.append({"toolUse": used})
    for position, block in enumerate(message.get("thinkingBlocks") or []):
        place = block.get("index")
        blocks.insert(min(place if isinstance(place, int) else position, len(blocks)), reasoning_block(block))
    return blocks


def _result_block(message: Message, ids: _CallIds) -> dict[str, Any]:
    content = message["content"] if message["content"].strip() else _EMPTY_RESULT
    status = "error" if message.get("isError") else "success"
    return {
        "toolResult": {"toolUseId": ids.of(message["toolCallId"]), "content": [{"text": content}], "status": status}
    }


def _safe_name(name: str) -> str:
    """A model may have called a tool by a name that the API refuses to hear again."""
    return _NOT_IN_NAMES.sub("_", name)[:64] or "_"


# --- from Converse ------------------------------------------------------------------------------------------


def from_converse(message: dict[str, Any]) -> Message:
    """An assistant message of Converse in turnkeep's shape; reasoning byte for byte, in its place.

    Raises:
        UnsupportedContentError: it holds something else than text, tool calls and reasoning.
        ModelError: a call's input is no object.
    """
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    thinking: list[dict[str, Any]] = []
    in_front = True  # of all text and calls, where reasoning is expected
    for block in message.get("content") or []:
        if "text" in block:
            texts.append(block["text"])
        elif "toolUse" in block:
            calls.append(_call(block["toolUse"]))
        elif "reasoningContent" in block:
            said = bool("".join(texts).strip())
            in_front = in_front and not said and not calls
            thinking.append(_thinking_block(block["reasoningContent"]) | {"index": len(thinking) + said + len(calls)})
        else:
            raise UnsupportedContentError(next((key for key in block if key != "SDK_UNKNOWN_MEMBER"), "unknown"))
    if in_front:
        thinking = [{key: value for key, value in block.items() if key != "index"} for block in thinking]
    found: Message = {"role": "assistant", "content": "".join(texts)}
    if calls:
        found["toolCalls"] = calls
    if thinking:
        found["thinkingBlocks"] = thinking
    return found


def _call(used: dict[str, Any]) -> dict[str, Any]:
    if used.get("type") is not None:
        raise UnsupportedContentError(str(used["type"]))
    args = used.get("input")
    if args in (None, ""):  # some models say nothing where they mean no arguments
        args = {}
    if not isinstance(args, dict):
        raise ModelError("The model called a tool with an input that is no object.")
    return {"id": used["toolUseId"], "name": used["name"], "args": args}


def _thinking_block(reasoning: dict[str, Any]) -> dict[str, Any]:
    if "reasoningText" in reasoning:
        text = reasoning["reasoningText"]
        block = {"type": "thinking", "content": text["text"]}
        return block | ({"signature": text["signature"]} if "signature" in text else {})
    if "redactedContent" in reasoning:
        return {"type": "redacted_thinking", "content": base64.b64encode(reasoning["redactedContent"]).decode("ascii")}
    raise UnsupportedContentError("reasoning of an unknown kind")
