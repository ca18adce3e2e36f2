"""What is there when all is over: read through the API as each person, from the table, and from the agent's book."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from load.journal import read_lines
from local.decoded import decoded
from local.demo import request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from local.stack import LocalStack

READERS = 4
"""Each read is a process of its own on the stack."""


@dataclass(frozen=True)
class Turn:
    """A stored turn.

    Attributes:
        token: of the message that it holds.
        status, output, error: as the API tells them; of a turn that only the table has, the status is ``hidden``.
    """

    conversation: str
    number: int
    token: str
    status: str
    output: str | None = None
    error: str = ""
    attempt: int = 1


@dataclass(frozen=True)
class Stored:
    """Everything that was found.

    Attributes:
        turns: by conversation and number.
        said: how often each message stands in the transcripts that people read.
        acted: how often each message acted on the world.
        unread: conversations that could not be read, and the status or code that said so.
    """

    turns: tuple[Turn, ...]
    said: Counter[str]
    acted: Counter[str]
    unread: dict[str, str]


def read_stored(stack: LocalStack, people: Iterable[tuple[str, str]], told: Iterable[str], book: Path) -> Stored:
    """Reads every conversation of every person, in listings and by name.

    Args:
        stack: where.
        people: names and tokens.
        told: conversations that somebody was told of; one that no listing has is unread.
        book: what the agent wrote.
    """
    table = _table_turns(stack)
    reader = _Reader(stack.api_url)
    whose: dict[str, str] = {}
    for _, token in people:
        for conversation in reader.pages("/conversations", "conversations", token):
            whose[conversation["conversationId"]] = token
    unread = {each: "in no listing" for each in set(told) | set(table) if each not in whose}
    turns: list[Turn] = []
    said: Counter[str] = Counter()
    with ThreadPoolExecutor(READERS) as pool:
        for one, shown, heard, why in pool.map(lambda one: reader.conversation(one, whose[one]), sorted(whose)):
            if why:
                unread[one] = why
            turns += _joined(one, table.get(one, {}), shown)
            said.update(heard)
    acted = Counter(line["token"] for line in read_lines(book))
    return Stored(tuple(turns), said, acted, unread)


class _Reader:
    """Reads the API, page by page."""

    def __init__(self, api_url: str) -> None:
        self._api_url = api_url

    def pages(self, path: str, name: str, token: str) -> Iterator[dict[str, Any]]:
        """Every entry of a listing.

        Raises:
            ValueError: with the status or the code of a reply that is no page.
        """
        cursor = ""
        while True:
            query = f"?limit=100{f'&cursor={cursor}' if cursor else ''}"
            reply = request(f"{self._api_url}{path}{query}", "GET", None, {"authorization": f"Bearer {token}"})
            if reply.status != 200:
                raise ValueError(str(reply.body.get("error", {}).get("code", reply.status)))
            yield from reply.body[name]
            cursor = reply.body.get("cursor", "")
            if not cursor:
                return

    def conversation(self, one: str, token: str) -> tuple[str, dict[int, dict[str, Any]], list[str], str]:
        """A conversation's turns and the tokens of its transcript's user messages, and why it could not be read."""
        try:
            turns = {turn["turn"]: turn for turn in self.pages(f"/conversations/{one}/turns", "turns", token)}
            messages = self.pages(f"/conversations/{one}/transcript", "messages", token)
            said = [_token(message["content"]) for message in messages if message["role"] == "user"]
        except ValueError as error:
            return one, {}, [], str(error)
        return one, turns, said, ""


def _joined(one: str, table: dict[int, dict[str, str]], shown: dict[int, dict[str, Any]]) -> Iterator[Turn]:
    for number in sorted(table.keys() | shown.keys()):
        item, view = table.get(number, {}), shown.get(number)
        user = json.loads(item["user"])["content"] if "user" in item else ""
        yield Turn(
            conversation=one,
            number=number,
            token=_token(user),
            status=view["status"] if view else "hidden",
            output=view.get("output") if view else None,
            error=str(view.get("error", {}).get("code", "")) if view else "",
            attempt=int(item.get("attempt", 1)),
        )


def _token(text: str) -> str:
    return text.split(maxsplit=1)[0] if text.strip() else ""


def _table_turns(stack: LocalStack) -> dict[str, dict[int, dict[str, str]]]:
    """The turns' items as text, by conversation and number, whatever the API would show of them."""
    table = stack.deployment()["outputs"]["TableName"]
    found: dict[str, dict[int, dict[str, str]]] = {}
    pages: Callable[..., Any] = stack.client("dynamodb").get_paginator("scan").paginate
    for page in pages(TableName=table, ConsistentRead=True):
        for item in page["Items"]:
            if item["sk"]["S"].startswith("TURN#") and item["sk"]["S"].count("#") == 1 and "user" in item:
                conversation = item["pk"]["S"].rpartition("/")[2]
                number = int(item["sk"]["S"].partition("#")[2])
                found.setdefault(conversation, {})[number] = decoded(item)
    return found
