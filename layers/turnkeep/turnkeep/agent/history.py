"""Histories that a provider accepts: closing what dangles, and merging what an API wants merged.

A stored history may hold a turn that died between a call and its result, a role that only a newer writer knows, or an
answer to a call that a window cut away. What reaches a provider never does:

1. every tool call has exactly one result, directly behind its assistant message, in call order;
2. no result stands anywhere else;
3. the ids of one assistant message's calls differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnkeep.messages import Message

NOT_RUN = "not run: the turn ended before this call had a result"
"""What a model reads as the result of a call that never got one."""

_FRAMEWORK_KEYS = ("injectedBy",)
"""Markers that are stripped before a provider sees a message (CONTRACT.md 1)."""

_SENT_ROLES = ("system", "user", "assistant", "tool")


def calls_of(message: Message) -> list[dict[str, Any]]:
    """The well-formed tool calls of a message: those with an id and a name that are text; empty for anything else."""
    calls = message.get("toolCalls")
    if message.get("role") != "assistant" or not isinstance(calls, list):
        return []
    return [
        one for one in calls if isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("id", "name"))
    ]


def has_result(messages: Sequence[Message], call_id: object) -> bool:
    """Whether the newest call of this id has its result among a turn's messages."""
    for index in reversed(range(len(messages))):
        if any(call["id"] == call_id for call in calls_of(messages[index])):
            return any(message.get("toolCallId") == call_id for message in messages[index + 1 :])
    return False


def tool_message(call: dict[str, Any], content: str, *, is_error: bool = False) -> Message:
    """The message that answers a call. ``isError`` is there only where something went wrong."""
    message: Message = {"role": "tool", "content": content, "toolCallId": call["id"], "toolName": call["name"]}
    if is_error:
        message["isError"] = True
    return message


def close_dangling(messages: Iterable[Message], reason: str = NOT_RUN) -> list[Message]:
    """A history in which every call has its result; a call without one gets ``reason`` as an error result.

    Pure: the messages given are not changed, those that are already fine come back as they are. Entries that are no
    message, and results that answer no call in front of them, are left out. Closing twice changes nothing.
    """
    closed: list[Message] = []
    given = [message for message in messages if isinstance(message, dict) and isinstance(message.get("role"), str)]
    position = 0
    while position < len(given):
        message = given[position]
        position += 1
        if message["role"] == "tool":
            continue  # answers nothing: those that answer are taken with their assistant message
        if message["role"] != "assistant" or "toolCalls" not in message:
            closed.append(message)
            continue
        results: list[Message] = []
        while position < len(given) and given[position]["role"] == "tool":
            results.append(given[position])
            position += 1
        closed.extend(_exchange(message, results, reason))
    return closed


def _exchange(message: Message, results: list[Message], reason: str) -> list[Message]:
    """One assistant message and exactly one result for each of its calls, in call order."""
    calls = calls_of(message)
    if not calls:
        return [{key: value for key, value in message.items() if key != "toolCalls"}]
    renamed = _distinct_ids(calls)
    fine = renamed == message["toolCalls"]
    answers: list[Message] = []
    waiting = list(results)
    for call, fresh in zip(calls, renamed, strict=True):
        answer = next((one for one in waiting if one.get("toolCallId") == call["id"]), None)
        if answer is None:
            answers.append(tool_message(fresh, reason, is_error=True))
            continue
        waiting = [one for one in waiting if one is not answer]
        answers.append(answer if fresh["id"] == call["id"] else {**answer, "toolCallId": fresh["id"]})
    return [message if fine else {**message, "toolCalls": renamed}, *answers]


def _distinct_ids(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls with arguments that are objects and ids that differ: a repeated one gets a number."""
    taken: set[str] = set()
    originals = {call["id"] for call in calls}
    distinct = []
    for call in calls:
        fresh, number = call["id"], 1
        while fresh in taken or (number > 1 and fresh in originals):
            number += 1
            fresh = f"{call['id']}-{number}"
        taken.add(fresh)
        args = call.get("args")
        fine = fresh == call["id"] and isinstance(args, dict)
        distinct.append(call if fine else {**call, "id": fresh, "args": args if isinstance(args, dict) else {}})
    return distinct


def for_provider(history: Iterable[Message], turn: Iterable[Message]) -> list[Message]:
    """What a model is shown: earlier turns and this one, closed, without framework markers and unknown roles.

    Two user messages in a row stay two (a turn that died before its answer, CONTRACT.md 17.14): providers merge or
    separate them as their API demands, with ``merge_consecutive``.
    """
    shown = []
    for message in close_dangling([*history, *turn]):
        if message["role"] not in _SENT_ROLES or not isinstance(message.get("content"), str):
            continue
        marked = any(key in message for key in _FRAMEWORK_KEYS)
        shown.append({k: v for k, v in message.items() if k not in _FRAMEWORK_KEYS} if marked else message)
    return close_dangling(shown)


def merge_consecutive(messages: Iterable[Message]) -> list[Message]:
    """Joins neighbours of one role, ``user`` or ``assistant`` without calls, by a blank line; for APIs that alternate.

    Reasoning blocks of both stay, in order. Messages without text, call and reasoning are left out.
    """
    merged: list[Message] = []
    for message in messages:
        calls, thinking = calls_of(message), message.get("thinkingBlocks")
        if message["role"] in ("user", "assistant") and not (message["content"] or calls or thinking):
            continue
        last = merged[-1] if merged else None
        joins = last is not None and last["role"] == message["role"] and message["role"] in ("user", "assistant")
        if last is None or not joins or calls_of(last):
            merged.append(message)
            continue
        both = {**last, **message}
        both["content"] = "\n\n".join(part for part in (last["content"], message["content"]) if part)
        blocks = [*(last.get("thinkingBlocks") or []), *(thinking or [])]
        if blocks:
            both["thinkingBlocks"] = blocks
        merged[-1] = both
    return merged


def split_system(messages: Iterable[Message]) -> tuple[list[str], list[Message]]:
    """System messages of a stored history apart from the rest: APIs take them beside the conversation, not in it."""
    system, rest = [], []
    for message in messages:
        if message["role"] != "system":
            rest.append(message)
        elif message["content"]:
            system.append(message["content"])
    return system, rest
