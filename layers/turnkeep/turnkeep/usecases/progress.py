"""What a run has agreed on with its ledger: its messages, copied, and how many of them are durable.

The agent's thread agrees, the writer's thread writes, and the attempt's own thread does both once the other two are
done or left behind. A run's messages only ever grow: what was agreed, and may be durable, is never taken back.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import AgentContractError, TurnOutOfTimeError
from turnkeep.ledger.codec import pack_text, size_of, to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.ledger.ledger import Ledger
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.messages import Message

Snapshot = tuple["Message", ...]


class Progress:
    """The messages of one attempt.

    Args:
        ledger: where they become durable.
        record: the turn as this attempt holds it.
        durable: this turn's messages that are durable already, the user message first.
        may_write: called before every write; raises where this attempt has lost its claim.
    """

    def __init__(
        self, ledger: Ledger, record: TurnRecord, durable: Sequence[Message], *, may_write: Callable[[], None]
    ) -> None:
        self._ledger, self._record, self._may_write = ledger, record, may_write
        self._lock = threading.Lock()
        self._agreed: Snapshot = tuple(durable)
        self._over = False
        # The two below belong to whichever thread writes; only one does at a time.
        self._durable = len(durable)
        self._next_segment = 1

    @property
    def agreed(self) -> Snapshot:
        """The turn's messages as the run last agreed on them; nobody changes them any more."""
        with self._lock:
            return self._agreed

    @property
    def segments(self) -> int:
        """How many segments this attempt has written."""
        return self._next_segment - 1

    def agree(self, messages: Any) -> Snapshot | None:
        """Takes the turn's messages as the run has them now, and copies what is new.

        Returns:
            All of them; None where there is nothing new.

        Raises:
            AgentContractError: they are no messages, or do not begin with what was agreed before.
            UnstorableValueError: with the path to what JSON cannot keep.
            TurnOutOfTimeError: the run was left behind; nothing of it is taken any more.
        """
        with self._lock:
            if self._over:
                raise TurnOutOfTimeError(turn=self._record.turn)
            new = _new_messages(self._agreed, messages)
            if not new:
                return None
            self._agreed = (*self._agreed, *new)
            return self._agreed

    def leave(self) -> None:
        """From here on nothing is agreed: whoever still runs was left behind."""
        with self._lock:
            self._over = True

    def write(self, snapshot: Snapshot) -> None:
        """Makes a snapshot durable: only what no segment holds yet. A round trip; none where there is nothing new.

        Raises:
            LostClaimError: this attempt may write nothing any more.
            StoreUnavailableError: the store did not answer; writing again is harmless.
        """
        self._may_write()
        new = list(snapshot[self._durable :])
        if new:
            self._write_segments("messages", self._durable, new)
            self._durable = len(snapshot)

    def write_anew(self) -> None:
        """Writes everything that is agreed to segments, the user message included, for a record that is to be small."""
        self._may_write()
        self._write_segments("messages", 0, list(self.agreed))
        self._durable = len(self.agreed)

    def whole(self, limit_bytes: int) -> Snapshot | None:
        """Every agreed message, where they all fit into the turn's record; None where they do not."""
        agreed = self.agreed
        return agreed if _fits([list(agreed)], limit_bytes) else None

    def keep_inline(self, limit_bytes: int) -> tuple[Message, ...]:
        """What of the agreed messages lies in no segment and goes into the turn's record.

        Where that is over the limit, it is written to segments first, and nothing is left.
        """
        agreed = self.agreed
        rest = agreed[self._durable :]
        if not rest or _fits([self._record.user, list(rest)], limit_bytes):
            return rest
        self.write(agreed)
        return ()

    def write_checkpoint(self, checkpoint: dict[str, Any]) -> tuple[int, int]:
        """Stores a paused run's checkpoint in segments; returns the attempt and the index of its last part."""
        self._may_write()
        self._write_segments("checkpoint", 0, checkpoint)
        return self._record.attempt, self.segments

    def outlive(self, until_s: int) -> None:
        """Lets the turn's segments, those to come included, live as long as its record is about to."""
        self._record = replace(self._record, delete_after_s=until_s, segments=self.segments)
        self._ledger.keep_segments(self._record, until_s)

    def _write_segments(self, kind: str, start: int, value: Any) -> None:
        self._next_segment = self._ledger.write_segments(self._record, self._next_segment, kind, start, value)


def _new_messages(agreed: Snapshot, messages: Any) -> Snapshot:
    if not isinstance(messages, list | tuple):
        raise AgentContractError("a turn's messages are a list")
    if len(messages) < len(agreed) or any(was != now for was, now in zip(agreed, messages, strict=False)):
        raise AgentContractError("a turn's messages begin with those that it was given, and with all it committed")
    copies = []
    for index in range(len(agreed), len(messages)):
        text = to_text(messages[index], name=f"messages[{index}]")
        copy = json.loads(text)
        is_message = isinstance(copy, dict) and all(isinstance(copy.get(name), str) for name in ("role", "content"))
        if not is_message:
            raise AgentContractError("a message is an object whose role and content are text")
        copies.append(copy)
    return tuple(copies)


def _fits(values: Sequence[Any], limit_bytes: int) -> bool:
    """Whether values fit as the ledger keeps them; compresses them only where they do not fit as they are."""
    texts = [to_text(value, name="messages") for value in values]
    if sum(len(text.encode()) for text in texts) <= limit_bytes:
        return True
    return sum(size_of(pack_text(text)) for text in texts) <= limit_bytes
