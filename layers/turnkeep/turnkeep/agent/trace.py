"""Evidence of a turn: what led to its answer, small enough for the turn's record.

References are ``msg-{turn}-{index}``: the position of a message among all messages of its turn. Previews are bounded;
the whole text is in the message that the reference names.
"""

from __future__ import annotations

import hashlib
from typing import Any

from turnkeep.agent.results import compact_json

MAX_EVIDENCE_BYTES = 14_000
"""Of all calls together, as JSON in UTF-8; calls beyond it are counted, not listed."""

MAX_ARGS_CHARACTERS = 2_000
MAX_ARGS_CHARACTERS_TOTAL = 5_000
"""Of all listed calls together; beyond it arguments are cut like results."""

MAX_PREVIEW_CHARACTERS = 200


class Trace:
    """Collects a turn's evidence. A pause keeps it in the checkpoint, and the resume goes on with it."""

    def __init__(self, turn: int, kept: dict[str, Any] | None = None) -> None:
        """Starts empty, or goes on with what an earlier part of the turn collected."""
        self._turn = turn
        self._data: dict[str, Any] = {"question": self._reference(0), "modelCalls": [], "toolCalls": []}
        if kept is not None:
            self._data.update(kept)
            self._data["modelCalls"] = list(kept.get("modelCalls") or [])
            self._data["toolCalls"] = list(kept.get("toolCalls") or [])

    def note(self, name: str, value: Any) -> None:
        """Sets a fact of the whole turn."""
        self._data[name] = value

    def system(self, name: str | None, text: str | None) -> None:
        """Names the system prompt by its hash; its text is not kept."""
        if text is not None:
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            self._data["system"] = {**({"name": name} if name else {}), "sha256": digest, "characters": len(text)}

    def adopted(self, start: int, end: int) -> None:
        """Names the messages from ``start`` to ``end`` (not included) that an earlier attempt left, if there are any.

        What led to them went with that attempt; they themselves are in the ledger.
        """
        if end > start:
            self._data["adopted"] = {"firstMessage": self._reference(start), "lastMessage": self._reference(end - 1)}

    def ends_with(self, index: int) -> None:
        """Names the message that is the turn's answer."""
        self._data["answer"] = self._reference(index)

    def model_call(
        self, *, iteration: int, usage: dict[str, int], stop_reason: str, duration_ms: int, index: int | None
    ) -> None:
        """Adds a model call; ``index`` is the message that it became, None where it became none."""
        entry: dict[str, Any] = {"iteration": iteration, "usage": dict(usage), "stopReason": stop_reason}
        entry["durationMs"] = duration_ms
        if index is not None:
            entry["message"] = self._reference(index)
        self._add("modelCalls", entry)

    def tool_call(
        self,
        *,
        iteration: int,
        name: str,
        args: dict[str, Any],
        content: str,
        index: int,
        duration_ms: int,
        is_error: bool = False,
        rerun: str | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        """Adds a tool call.

        Args:
            iteration: of the call.
            name: the tool.
            args: its arguments.
            content: its result as the model reads it.
            index: the message that holds the result.
            duration_ms: how long it ran; 0 where it did not.
            is_error: whether the model was told of a failure.
            rerun: ``possible`` where an earlier attempt of the turn may have run it, ``in-doubt`` where one had begun
                it, ``remembered`` where its remembered result was used; None where it is the first run.
            notes: further facts, such as a decision.
        """
        entry: dict[str, Any] = {"iteration": iteration, "name": name, "args": self._bounded_args(args)}
        entry |= {"result": cut(content, MAX_PREVIEW_CHARACTERS), "message": self._reference(index)}
        entry["durationMs"] = duration_ms
        if is_error:
            entry["isError"] = True
        if rerun is not None:
            entry["rerun"] = rerun
        self._add("toolCalls", entry | (notes or {}))

    def to_json(self) -> dict[str, Any]:
        """The evidence so far: a copy, JSON."""
        copied = dict(self._data)
        copied["modelCalls"], copied["toolCalls"] = list(self._data["modelCalls"]), list(self._data["toolCalls"])
        return copied

    def _reference(self, index: int) -> str:
        return f"msg-{self._turn}-{index}"

    def _add(self, kind: str, entry: dict[str, Any]) -> None:
        if _bytes(self._data["modelCalls"]) + _bytes(self._data["toolCalls"]) + _bytes(entry) <= MAX_EVIDENCE_BYTES:
            self._data[kind].append(entry)
            return
        unlisted = self._data.get("notListed") or {}
        self._data["notListed"] = {**unlisted, kind: unlisted.get(kind, 0) + 1}

    def _bounded_args(self, args: dict[str, Any]) -> Any:
        """The arguments themselves, or their JSON text cut where they are long."""
        text = compact_json(args)
        used = sum(len(compact_json(entry["args"])) for entry in self._data["toolCalls"])
        room = used + min(len(text), MAX_ARGS_CHARACTERS) <= MAX_ARGS_CHARACTERS_TOTAL
        limit = MAX_ARGS_CHARACTERS if room else MAX_PREVIEW_CHARACTERS
        return args if len(text) <= limit else cut(text, limit)


def _bytes(value: Any) -> int:
    return len(compact_json(value).encode("utf-8"))


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of a text; a cut one ends in an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
