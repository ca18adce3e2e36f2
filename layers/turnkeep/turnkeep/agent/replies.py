"""A model's reply as a message that can be stored, sent back, and answered call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.agent.provider import ModelError
from turnkeep.agent.results import plain_json
from turnkeep.errors import UnstorableValueError

if TYPE_CHECKING:
    from turnkeep.messages import Message


def usable_reply(message: Message) -> Message:
    """The reply with exactly the keys of CONTRACT.md 1; ``toolCalls`` only where there are calls, their ids distinct.

    Raises:
        ModelError: it is no such message, or JSON cannot keep it.
    """
    content = message.get("content")
    if not isinstance(content, str):
        raise ModelError("The provider answered with a message whose content is no text.")
    usable: Message = {"role": "assistant", "content": content.encode("utf-8", "replace").decode("utf-8")}
    calls = message.get("toolCalls") or []
    if not isinstance(calls, list):
        raise ModelError("The provider answered with tool calls that are no list.")
    try:
        if calls:
            usable["toolCalls"] = _distinct([_usable_call(call, number) for number, call in enumerate(calls, 1)])
        if message.get("thinkingBlocks"):
            usable["thinkingBlocks"] = plain_json(message["thinkingBlocks"], at="thinkingBlocks")
    except UnstorableValueError as error:
        raise ModelError(f"The provider answered with a value that cannot be stored: {error.reason}.") from None
    return usable


def final_message(message: Message) -> Message:
    """The message that a turn ends with: role, content, and reasoning where there is some."""
    return {key: message[key] for key in ("role", "content", "thinkingBlocks") if key in message}


def _usable_call(call: Any, number: int) -> dict[str, Any]:
    if (
        not isinstance(call, dict)
        or not isinstance(call.get("name"), str)
        or not isinstance(call.get("args", {}), dict)
    ):
        raise ModelError("The provider answered with a tool call without a name, or with arguments that are no object.")
    given = call.get("id")
    usable = {
        "id": given if isinstance(given, str) and given else f"call-{number}",
        "name": call["name"],
        "args": plain_json(call.get("args", {}), at="args"),
    }
    if call.get("providerMeta") is not None:
        usable["providerMeta"] = plain_json(call["providerMeta"], at="providerMeta")
    return {key: plain_json(value, at=key) for key, value in usable.items()}


def _distinct(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls whose ids differ: a second one of the same id gets a number, so that each result finds its call."""
    taken: set[str] = set()
    for call in calls:
        fresh, number = call["id"], 1
        while fresh in taken:
            number += 1
            fresh = f"{call['id']}-{number}"
        taken.add(fresh)
        call["id"] = fresh
    return calls
