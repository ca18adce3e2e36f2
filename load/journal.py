"""What people sent and what they were told, one JSON line an event: written while Locust runs, read by the audit.

Standard library only: Locust's environment reads it too. A line is written whole before anything follows from it, so
what a killed Locust leaves behind is what it knew.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

ACCEPTED = frozenset({200, 201, 202})
GIVEN_UP = "given up"


@dataclass(frozen=True)
class Reply:
    """One reply to one try of a message.

    Attributes:
        status: HTTP's; 0 where the connection broke.
        code: the refusal's name; "" of a reply that is none, or of the gateway's own words.
        turn: the turn that it names, or 0.
        turn_status: how that turn stood, or "".
        output: the answer, where there was one.
        took_ms: as the caller waited.
        number: which try it was, from 1.
    """

    status: int
    code: str = ""
    turn: int = 0
    turn_status: str = ""
    output: str | None = None
    took_ms: int = 0
    number: int = 1

    @property
    def is_accepted(self) -> bool:
        """The API took the message: from here on it must not be lost."""
        return self.status in ACCEPTED and self.turn > 0

    @property
    def name(self) -> str:
        """What a refusal is called in a report."""
        return self.code or (f"HTTP {self.status}" if self.status else "no connection")


@dataclass
class Message:
    """A message and all that its sender was told.

    Attributes:
        token: names it; the text begins with it.
        conversation: empty where the API makes the id, until it told it.
        kind: what its sender did with it, such as ``twice``.
        acts: it has a tool called that acts, once.
        twice: it was submitted twice at the same time.
        fate: how its sender saw it end: a turn's status, ``refused:CODE``, `GIVEN_UP` where a process died and
            its sender never came again, or "" where it did and never learned.
    """

    token: str
    conversation: str
    kind: str
    person: str = ""
    acts: bool = True
    twice: bool = False
    replies: list[Reply] = field(default_factory=list)
    fate: str = ""

    @property
    def is_accepted(self) -> bool:
        """The API took it at least once."""
        return any(reply.is_accepted for reply in self.replies)


@dataclass(frozen=True)
class Answer:
    """One try of one answer to an ask.

    Attributes:
        key: its Idempotency-Key; two people have two.
        gate: ``check_in``, ``in_doubt`` or ``question``.
        approved: the decision; None for an answer that is none.
    """

    token: str
    conversation: str
    ask: str
    key: str
    gate: str
    approved: bool | None
    status: int
    code: str = ""

    @property
    def is_accepted(self) -> bool:
        """This decision counts."""
        return self.status in ACCEPTED


class Journal:
    """Writes events. Safe under greenlets: a line is one write."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, event: str, **facts: Any) -> None:
        """One event."""
        self._file.write(json.dumps({"event": event, "at_ms": time.time_ns() // 1_000_000, **facts}).encode() + b"\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON lines; a last one that was cut off is none. Empty where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def read_journal(lines: list[dict[str, Any]]) -> tuple[list[Message], list[Answer]]:
    """The messages in the order in which they were first sent, and every try of every answer."""
    messages: dict[str, Message] = {}
    answers: list[Answer] = []
    for line in lines:
        facts = {name: value for name, value in line.items() if name not in ("event", "at_ms")}
        match line["event"]:
            case "sent":
                messages[facts["token"]] = Message(**facts)
            case "reply":
                message = messages[facts.pop("token")]
                message.conversation = facts.pop("conversation", "") or message.conversation
                message.replies.append(Reply(**facts))
            case "twice":
                messages[facts["token"]].twice = True
            case "ended":
                messages[facts["token"]].fate = facts["fate"]
            case "answer":
                answers.append(Answer(**facts))
    return list(messages.values()), answers
