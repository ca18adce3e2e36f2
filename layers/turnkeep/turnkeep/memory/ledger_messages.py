"""The ledger's own messages, seen as memory entries ``msg-{turn}-{index}``: a view, not a second copy.

What evidence and beats refer to is looked up here. There is nothing to write: a message is stored by its turn's commit,
expires with it and is erased with it. Reading does not count as an access, because nothing is written by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnkeep.ledger.keys import TURN_HIGH, TURN_LOW, ConversationKey, turn_of_sk, turn_sk
from turnkeep.ledger.parsing import is_expired, turn_record
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import Query
from turnkeep.memory.entries import Entry, Identity, message_id, new_entry, place_of
from turnkeep.memory.paging import read_cursor, write_cursor
from turnkeep.memory.store import DEFAULT_LIMIT, Page, bounded_limit

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.ledger import Ledger
    from turnkeep.messages import Message

    _Taken = list[tuple[TurnRecord, int, Message]]

_PAGE_TURNS: Final = 25
_LEFT_THEIR_MARK: Final = frozenset({Status.COMPLETE, Status.FAILED, Status.EXPIRED})
"""Turns that ended and are part of the history; of an open one nothing is an entry yet (CONTRACT.md 8)."""


class LedgerMessages:
    """Messages of a conversation as entries; to another identity than the owner's there are none.

    Args:
        ledger: where the turns are.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def get(self, identity: Identity, entry_id: str) -> Entry | None:
        """One message; None where there is none.

        Raises:
            UnreadableError: its turn cannot be read.
        """
        place = place_of(entry_id)
        if place is None or place.kind != "msg" or entry_id != message_id(place.turn, place.index):
            return None
        found = self._open(identity, turn=place.turn)
        record = found.wanted() if found is not None else None
        if record is None or record.status not in _LEFT_THEIR_MARK:
            return None
        messages = self._ledger.messages_of([record])[record.turn]
        if place.index >= len(messages):
            return None
        return _entry(record, place.index, messages[place.index], identity)

    def list(self, identity: Identity, *, cursor: str | None = None, limit: int = DEFAULT_LIMIT) -> Page:
        """One page of messages, newest first; reads only the turns that it takes them from.

        Raises:
            InvalidRequestError: the cursor was not made here for this identity.
            UnreadableError: a turn cannot be read.
        """
        after = None if cursor is None else read_cursor(cursor, identity, numbered=True)
        limit = bounded_limit(limit)
        found = self._open(identity)
        # One more than is wanted tells whether there is another page.
        taken = [] if found is None else self._newest(found, after, limit + 1)
        entries = [_entry(record, index, message, identity) for record, index, message in taken[:limit]]
        if len(taken) <= limit:
            return Page(entries)
        record, index, _ = taken[limit - 1]
        return Page(entries, write_cursor(identity, record.turn, index))

    def highest_turn(self, identity: Identity) -> int:
        """The highest turn that has left messages; 0 where there is none (see ``turns.TurnStore``)."""
        newest = self.list(identity, limit=1).entries
        return int(newest[0]["source"]["turn"]) if newest else 0

    def _open(self, identity: Identity, *, turn: int | None = None) -> Hydrated | None:
        """The conversation, where the identity is its owner's."""
        conversation_id = identity.get("conversationId")
        if not conversation_id:
            return None
        key = ConversationKey(conversation_id, identity.get("tenant") or None)
        found = self._ledger.hydrate(key, history=False, turn=turn)
        return found if found.exists and found.owner == (identity.get("principal") or None) else None

    def _newest(self, found: Hydrated, after: tuple[float, int | str] | None, count: int) -> _Taken:
        """The newest messages behind a place, each with its turn and its index."""
        taken: _Taken = []
        high = TURN_HIGH if after is None else turn_sk(int(after[0]))
        while True:
            query = Query(found.key.pk, TURN_LOW, high, limit=_PAGE_TURNS, forward=False)
            (page,) = self._ledger.store.read([query])
            now_ms = self._ledger.clock.now_ms()
            records = [turn_record(item, found.key) for item in page.items if not is_expired(item, now_ms)]
            kept = [one for one in records if one.epoch == found.epoch and one.status in _LEFT_THEIR_MARK]
            loaded = self._ledger.messages_of(kept)
            taken += [
                (record, index, message)
                for record in kept
                for index, message in reversed(tuple(enumerate(loaded[record.turn])))
                if after is None or (record.turn, index) < (after[0], int(after[1]))
            ]
            lowest = turn_of_sk(str(page.items[-1]["sk"])) if page.items else 0
            if len(taken) >= count or not page.more or lowest <= 1:
                return taken
            high = turn_sk(lowest - 1)


def _entry(record: TurnRecord, index: int, message: Message, identity: Identity) -> Entry:
    saved_at_ms = record.saved_at_ms or record.started_at_ms
    entry = new_entry(message_id(record.turn, index), message, turn=record.turn, identity=identity, now_ms=saved_at_ms)
    return entry if record.delete_after_s is None else entry | {"ttl": record.delete_after_s * 1000}
