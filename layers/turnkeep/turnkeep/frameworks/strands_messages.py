"""Messages between turnkeep's shape and Strands', both ways without loss.

A Strands message is a list of content blocks of the user or the assistant; the results of all of an assistant message's
calls are one user message. turnkeep keeps each result as a message of its own, and text as text. What a Strands
message says beyond that (images, blocks in another order, JSON results) is kept with it under ``strands`` and comes
back exactly.

``tracking_id`` and ``metadata`` are Strands' bookkeeping of one process and are not kept, but for ``metadata.custom``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from turnkeep.agent.history import calls_of
from turnkeep.agent.reasoning import reasoning_block
from turnkeep.agent.results import compact_json
from turnkeep.frameworks.pausing import apart, group_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from turnkeep.messages import Message

StrandsMessage = dict[str, Any]

KEPT: Final = "strands"
"""Under this key a message keeps what its Strands message says beyond it: ``{"content", "covers"}``, ``custom``."""

_OURS: Final = "turnkeep"
"""Under this key a Strands message's ``metadata.custom`` carries messages of ours that its content does not say."""

_BYTES: Final = "__bytes_encoded__"


# --- to turnkeep --------------------------------------------------------------------------------------------


def from_strands(message: StrandsMessage, tool_names: Mapping[str, str] | None = None) -> list[Message]:
    """A Strands message as turnkeep's: one, or one for each tool result in it.

    Args:
        message: what Strands has.
        tool_names: names of tools by call id, for results.
    """
    names = tool_names or {}
    blocks = message.get("content") or []
    custom = dict((message.get("metadata") or {}).get("custom") or {})
    originals = custom.pop(_OURS, None)
    found = _derived(str(message.get("role")), blocks, names)
    if isinstance(originals, list):
        # What the content says by itself is not repeated there.
        found = [found[index] if one is None else one for index, one in enumerate(originals)]
    kept: dict[str, Any] = {}
    if [one["content"] for one in to_strands(found)] != [blocks]:
        kept = {"content": encoded(blocks), "covers": len(found)}
    if custom:
        kept["custom"] = encoded(custom)
    if kept:
        found[0] = {**found[0], KEPT: kept}
    return found


def all_from_strands(messages: Iterable[StrandsMessage]) -> list[Message]:
    """Strands messages as turnkeep's; results get the names of the tools that the calls in front of them name."""
    names: dict[str, str] = {}
    found: list[Message] = []
    for message in messages:
        names |= names_in(message)
        found += apart(found, from_strands(message, names), KEPT)
    return found


def names_in(message: StrandsMessage) -> dict[str, str]:
    """The tools that a Strands message calls, by call id."""
    used = [block["toolUse"] for block in message.get("content") or [] if "toolUse" in block]
    return {one["toolUseId"]: one["name"] for one in used}


def _derived(role: str, blocks: Sequence[dict[str, Any]], names: Mapping[str, str]) -> list[Message]:
    """What the blocks say in turnkeep's words; at least one message."""
    if role == "assistant":
        return [_assistant(blocks)]
    results = [_result(block["toolResult"], names) for block in blocks if "toolResult" in block]
    words = _words(blocks)
    return results if results and not words else [*results, {"role": "user", "content": words}]


def _words(blocks: Sequence[dict[str, Any]]) -> str:
    return "".join(block["text"] for block in blocks if isinstance(block.get("text"), str))


def _assistant(blocks: Sequence[dict[str, Any]]) -> Message:
    found: Message = {"role": "assistant", "content": _words(blocks)}
    calls = [_call(block["toolUse"]) for block in blocks if "toolUse" in block]
    if calls:
        found["toolCalls"] = calls
    thinking = [_thinking(block["reasoningContent"]) for block in blocks if "reasoningContent" in block]
    if thinking:
        found["thinkingBlocks"] = thinking
    return found


def _call(used: dict[str, Any]) -> dict[str, Any]:
    args = used.get("input")
    known = args if isinstance(args, dict) else {}
    call: dict[str, Any] = {"id": used["toolUseId"], "name": used["name"], "args": known}
    if "reasoningSignature" in used:
        call["providerMeta"] = {"reasoningSignature": used["reasoningSignature"]}
    return call


def _thinking(reasoning: dict[str, Any]) -> dict[str, Any]:
    if "redactedContent" in reasoning:
        return {"type": "redacted_thinking", "content": base64.b64encode(reasoning["redactedContent"]).decode("ascii")}
    text = reasoning.get("reasoningText") or {}
    block = {"type": "thinking", "content": text.get("text", "")}
    return block | ({"signature": text["signature"]} if text.get("signature") is not None else {})


def _result(result: dict[str, Any], names: Mapping[str, str]) -> Message:
    call_id = result["toolUseId"]
    message: Message = {"role": "tool", "content": _result_text(result.get("content") or []), "toolCallId": call_id}
    if call_id in names:
        message["toolName"] = names[call_id]
    if result.get("status") == "error":
        message["isError"] = True
    return message


def _result_text(blocks: Sequence[dict[str, Any]]) -> str:
    texts = []
    for block in blocks:
        if isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif "json" in block:
            texts.append(compact_json(encoded(block["json"])))
        else:
            texts.append(f"({next(iter(block), 'nothing')})")
    return "\n".join(texts)


# --- to Strands ---------------------------------------------------------------------------------------------


def to_strands(messages: Iterable[Message]) -> list[StrandsMessage]:
    """Messages as Strands has them; those of the role ``system`` are not for here."""
    waiting = list(messages)
    names: dict[str, str] = {}
    found: list[StrandsMessage] = []
    while waiting:
        size = group_size(waiting, KEPT)
        group, waiting = waiting[:size], waiting[size:]
        names |= {call["id"]: call["name"] for one in group for call in calls_of(one)}
        found.append(_group(group, names))
    return found


def _group(group: Sequence[Message], names: Mapping[str, str]) -> StrandsMessage:
    kept = group[0].get(KEPT)
    kept = kept if isinstance(kept, dict) else {}
    role = "assistant" if group[0]["role"] == "assistant" else "user"
    blocks = decoded(kept["content"]) if "content" in kept else _joined_blocks(group)
    message: StrandsMessage = {"role": role, "content": blocks}
    plain = [{key: value for key, value in one.items() if key != KEPT} for one in group]
    derived = _derived(role, blocks, names)
    custom = dict(decoded(kept.get("custom") or {}))
    if derived != plain:
        same = [a == b for a, b in zip(plain, [*derived, *([None] * len(plain))], strict=False)]
        custom[_OURS] = [None if fine else one for fine, one in zip(same, plain, strict=True)]
    if custom:
        message["metadata"] = {"custom": custom}
    return message


def _joined_blocks(group: Sequence[Message]) -> list[dict[str, Any]]:
    return [block for one in group for block in _blocks(one)]


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message["content"]
    if message["role"] == "tool":
        status = "error" if message.get("isError") else "success"
        result = {"toolUseId": message.get("toolCallId", ""), "status": status, "content": [{"text": content}]}
        return [{"toolResult": result}]
    words = [{"text": content}] if content else []
    if message["role"] != "assistant":
        return words
    thinking = [reasoning_block(block) for block in message.get("thinkingBlocks") or []]
    return [*thinking, *words, *(_use_block(call) for call in calls_of(message))]


def _use_block(call: dict[str, Any]) -> dict[str, Any]:
    used = {"toolUseId": call["id"], "name": call["name"], "input": call.get("args", {})}
    meta = call.get("providerMeta")
    if isinstance(meta, dict) and "reasoningSignature" in meta:
        used["reasoningSignature"] = meta["reasoningSignature"]
    return {"toolUse": used}


# --- bytes --------------------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """A copy that is JSON: bytes as Strands' own sessions write them."""
    if isinstance(value, bytes):
        return {_BYTES: True, "data": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {key: encoded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(inner) for inner in value]
    return value


def decoded(value: Any) -> Any:
    """The inverse of ``encoded``."""
    if isinstance(value, dict):
        if value.get(_BYTES) is True and isinstance(value.get("data"), str):
            return base64.b64decode(value["data"])
        return {key: decoded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [decoded(inner) for inner in value]
    return value
