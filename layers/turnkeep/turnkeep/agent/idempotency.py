"""The key of a tool call: the same for the same call, whichever attempt makes it.

A hash of stable content: this life of the conversation, the turn, the tool, the canonical arguments, and which one of
several equal calls in the turn it is. Never of the model's call id: a model that is asked again makes up another one.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from turnkeep.agent.history import calls_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.agent.port import TurnInfo
    from turnkeep.messages import Message


def canonical_json(value: Any) -> str:
    """JSON in one spelling: keys sorted, no spaces, ASCII only, ``250.0`` as ``250``."""
    return json.dumps(_one_spelling(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _one_spelling(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _one_spelling(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_one_spelling(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def idempotency_key(info: TurnInfo, tool: str, args: dict[str, Any], occurrence: int) -> str:
    """The key of a call: 64 hexadecimal digits.

    Args:
        info: the turn.
        tool: the tool's name.
        args: the call's arguments.
        occurrence: how many equal calls the turn made before it.
    """
    content = [info.epoch, info.tenant, info.conversation_id, info.turn, tool, args, occurrence]
    return hashlib.sha256(canonical_json(content).encode("ascii")).hexdigest()


def occurrence_of(messages: Sequence[Message], assistant_index: int, call_index: int) -> int:
    """How many calls of the same tool with the same arguments the turn made before this one.

    Counted from the turn's messages, so that a takeover and a resume count the same.

    Args:
        messages: the turn's messages.
        assistant_index: where the assistant message with the call is.
        call_index: which of its calls it is.
    """
    wanted = calls_of(messages[assistant_index])[call_index]
    content = canonical_json([wanted["name"], wanted.get("args")])
    before = [call for message in messages[:assistant_index] for call in calls_of(message)]
    before += calls_of(messages[assistant_index])[:call_index]
    return sum(1 for call in before if canonical_json([call["name"], call.get("args")]) == content)
