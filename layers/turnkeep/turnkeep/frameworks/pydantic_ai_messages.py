"""Messages between turnkeep's shape and Pydantic AI's, both ways without loss.

A Pydantic AI message is a request or a response of parts. turnkeep keeps text as text, each call with its assistant
message and each result as a message of its own. What the parts say beyond that (files, arguments as text, provider
details) is kept with the message under ``pydanticAi`` and comes back exactly.

Times, usage, ids of runs, and the names of models are Pydantic AI's bookkeeping of one process and are not kept;
instructions and system prompts are the agent's own, which it has anew in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic_ai.messages import ERROR_OUTCOMES, ModelMessagesTypeAdapter, ModelRequest, ModelResponse, ToolReturnPart

from turnkeep.agent.history import calls_of
from turnkeep.frameworks.pausing import apart, group_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic_ai.messages import ModelMessage

    from turnkeep.messages import Message

KEPT: Final = "pydanticAi"
"""Under this key a message keeps what its Pydantic AI message says beyond it: ``{"message", "covers"}``."""

_OURS: Final = "turnkeep"
"""Under this key a Pydantic AI message's ``metadata`` carries messages of ours that its parts do not say."""

_BOOKKEEPING: Final = frozenset(
    {"timestamp", "usage", "run_id", "conversation_id", "instructions", "model_name", "model_id", "history_digest"}
)
_PARTS_BOOKKEEPING: Final = frozenset({"timestamp", "content_file_digests"})


# --- to turnkeep --------------------------------------------------------------------------------------------


def from_pydantic_ai(message: ModelMessage) -> list[Message]:
    """A Pydantic AI message as turnkeep's: one, or one for each tool result and each prompt in it."""
    dumped = _dumped(message)
    metadata = dict(dumped.get("metadata") or {})
    originals = metadata.pop(_OURS, None)
    found = _derived(message)
    if isinstance(originals, list):
        found = [found[index] if one is None else one for index, one in enumerate(originals)]
    if metadata or [_dumped(one)["parts"] for one in to_pydantic_ai(found)] != [dumped["parts"]]:
        kept = {**dumped, "metadata": metadata or None}
        found[0] = {**found[0], KEPT: {"message": kept, "covers": len(found)}}
    return found


def all_from_pydantic_ai(messages: Iterable[ModelMessage]) -> list[Message]:
    """Pydantic AI messages as turnkeep's."""
    found: list[Message] = []
    for message in messages:
        found += apart(found, from_pydantic_ai(message), KEPT)
    return found


def part_from_pydantic_ai(part: Any) -> list[Message]:
    """A part of a request as a message of its own; a system prompt is none, because the agent has it anew."""
    return [] if part.part_kind == "system-prompt" else from_pydantic_ai(ModelRequest([part]))


def _derived(message: ModelMessage) -> list[Message]:
    """What the parts say in turnkeep's words; at least one message."""
    if isinstance(message, ModelResponse):
        return [_assistant(message)]
    found: list[Message] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            found.append(_result(part))
        elif part.part_kind == "user-prompt":
            words = part.content if isinstance(part.content, str) else _words(part.content)
            found.append({"role": "user", "content": words})
        elif part.part_kind == "retry-feedback":
            found.append({"role": "user", "content": part.content if isinstance(part.content, str) else "(try again)"})
    return found or [{"role": "user", "content": ""}]


def _words(content: Sequence[Any]) -> str:
    return "".join(item for item in content if isinstance(item, str))


def _assistant(message: ModelResponse) -> Message:
    found: Message = {"role": "assistant", "content": ""}
    calls: list[dict[str, Any]] = []
    thinking: list[dict[str, Any]] = []
    for part in message.parts:
        if part.part_kind == "text":
            found["content"] += part.content
        elif part.part_kind == "tool-call":
            calls.append({"id": part.tool_call_id, "name": part.tool_name, "args": _arguments(part)})
        elif part.part_kind == "thinking":
            signed = {} if part.signature is None else {"signature": part.signature}
            thinking.append({"type": "thinking", "content": part.content, **signed})
    if calls:
        found["toolCalls"] = calls
    if thinking:
        found["thinkingBlocks"] = thinking
    return found


def _arguments(part: Any) -> dict[str, Any]:
    try:
        args = part.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return {}  # the text itself is kept beside it
    return args if isinstance(args, dict) else {}


def _result(part: ToolReturnPart[Any]) -> Message:
    message: Message = {
        "role": "tool",
        "content": part.model_response_str(wrap_if_error=False),
        "toolCallId": part.tool_call_id,
        "toolName": part.tool_name,
    }
    if part.outcome in ERROR_OUTCOMES:
        message["isError"] = True
    return message


# --- to Pydantic AI -----------------------------------------------------------------------------------------


def to_pydantic_ai(messages: Iterable[Message]) -> list[ModelMessage]:
    """Messages as Pydantic AI has them; those of the role ``system`` are not for here."""
    waiting = list(messages)
    found: list[ModelMessage] = []
    while waiting:
        size = group_size(waiting, KEPT)
        found.append(_built(waiting[:size]))
        waiting = waiting[size:]
    return found


def _built(group: Sequence[Message]) -> ModelMessage:
    kept = group[0].get(KEPT)
    kept = kept if isinstance(kept, dict) else {}
    if "message" in kept:
        dumped = dict(kept["message"])
    else:
        is_response = group[0]["role"] == "assistant"
        parts = [part for one in group for part in (_response_parts(one) if is_response else [_request_part(one)])]
        dumped = {"kind": "response" if is_response else "request", "parts": parts}
    (message,) = ModelMessagesTypeAdapter.validate_python([dumped])
    plain = [{key: value for key, value in one.items() if key != KEPT} for one in group]
    derived = _derived(message)
    if derived != plain:
        same = [a == b for a, b in zip(plain, [*derived, *([None] * len(plain))], strict=False)]
        originals = [None if fine else one for fine, one in zip(same, plain, strict=True)]
        message.metadata = {**(message.metadata or {}), _OURS: originals}
    return message


def _request_part(message: Message) -> dict[str, Any]:
    if message["role"] != "tool":
        return {"part_kind": "user-prompt", "content": message["content"]}
    return {
        "part_kind": "tool-return",
        "content": message["content"],
        "tool_call_id": message.get("toolCallId", ""),
        "tool_name": message.get("toolName", ""),
        "outcome": "failed" if message.get("isError") is True else "success",
    }


def _response_parts(message: Message) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [
        {"part_kind": "thinking", "content": block["content"], "signature": block.get("signature")}
        for block in message.get("thinkingBlocks") or []
        if block.get("type") == "thinking"
    ]
    if message["content"]:
        parts.append({"part_kind": "text", "content": message["content"]})
    parts += [
        {"part_kind": "tool-call", "tool_name": call["name"], "args": call.get("args", {}), "tool_call_id": call["id"]}
        for call in calls_of(message)
    ]
    return parts


# --- JSON ---------------------------------------------------------------------------------------------------


def _dumped(message: ModelMessage) -> dict[str, Any]:
    """A message as JSON, without the bookkeeping of one process."""
    (dumped,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    kept: dict[str, Any] = {key: value for key, value in dumped.items() if key not in _BOOKKEEPING}
    kept["parts"] = [
        {key: value for key, value in part.items() if key not in _PARTS_BOOKKEEPING}
        for part in dumped["parts"]
        if part["part_kind"] != "system-prompt"
    ]
    return kept


def without_bookkeeping(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    """What of Pydantic AI messages is kept."""
    return [_dumped(message) for message in messages]
