"""SQS as AWS documents a FIFO queue, in process: groups in order, one in flight each, doubles dropped, dead letters."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.usecases.step_functions import refusal

if TYPE_CHECKING:
    from turnkeep.clock import ManualClock

URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/turns.fifo"
MAX_RECEIVES = 4
VISIBILITY_MS = 315_000
FORGETS_MS = 300_000


@dataclass
class Message:
    """One message."""

    id: str
    body: str
    group: str
    sent_ms: int
    visible_ms: int
    receives: int = 0


@dataclass
class FifoQueue:
    """The queue of doorbells.

    Attributes:
        loses: so many of the next messages are accepted and never delivered.
        unreachable: the service does not answer.
        sent: bodies of all messages that were accepted as new, in order.
    """

    clock: ManualClock
    messages: list[Message] = field(default_factory=list)
    dead: list[Message] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)
    loses: int = 0
    unreachable: bool = False

    def __post_init__(self) -> None:
        self._lock, self._numbers = threading.Lock(), itertools.count(1)
        self._seen: dict[tuple[str, str], int] = {}

    def send_message(
        self, *, QueueUrl: str, MessageBody: str, MessageGroupId: str, MessageDeduplicationId: str
    ) -> dict[str, Any]:
        assert QueueUrl == URL
        assert max(len(MessageGroupId), len(MessageDeduplicationId)) <= 128
        if self.unreachable:
            raise refusal("ThrottlingException", "SendMessage")
        with self._lock:
            now_ms, double = self.clock.now_ms(), (MessageGroupId, MessageDeduplicationId)
            if now_ms < self._seen.get(double, 0):
                return {}
            self._seen[double] = now_ms + FORGETS_MS
            self.sent.append(json.loads(MessageBody))
            if self.loses:
                self.loses -= 1
                return {}
            self.messages.append(Message(f"m-{next(self._numbers)}", MessageBody, MessageGroupId, now_ms, now_ms))
        return {}

    def receive(self) -> Message | None:
        """The next message that may be delivered now; no other of its group is, until it is deleted or comes back."""
        with self._lock:
            now_ms, busy = self.clock.now_ms(), set[str]()
            for message in list(self.messages):
                if message.group in busy:
                    continue
                busy.add(message.group)
                if message.visible_ms > now_ms:
                    continue
                if message.receives >= MAX_RECEIVES:
                    self.messages.remove(message)
                    self.dead.append(message)
                    busy.discard(message.group)
                    continue
                message.receives += 1
                message.visible_ms = now_ms + VISIBILITY_MS
                return message
        return None

    def delete(self, message: Message) -> None:
        with self._lock:
            if message in self.messages:
                self.messages.remove(message)


def event_of(message: Message) -> dict[str, Any]:
    """The batch of one that Lambda makes of it."""
    attributes = {"SentTimestamp": str(message.sent_ms), "ApproximateReceiveCount": str(message.receives)}
    return {"Records": [{"messageId": message.id, "body": message.body, "attributes": attributes}]}
