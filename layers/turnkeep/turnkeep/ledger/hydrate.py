"""Reading a conversation: one round trip in the usual case, whole, and never a guess.

The newest turns and CONVERSATION are read strongly. Older turns that have ended never change, so they are read
eventually beside them: each record names the one before it in this life, and that chain proves that none is missing.
Where it is not proven (a replica that lags, an open turn seen through it, something left over from another life or use
of a number) the rest is read again, strongly.

What has expired is dropped whatever DynamoDB still holds, and in whatever order it deletes. Nothing is judged here
beyond that: who may open the conversation is asked first, with the lenient owner, and only then do the strict readers
refuse by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnkeep.ledger.keys import CONVERSATION, TURN_HIGH, TURN_LOW, ConversationKey, request_sk, turn_of_sk, turn_sk
from turnkeep.ledger.loading import Loaded, load_checkpoints, load_segments
from turnkeep.ledger.parsing import conversation_record, is_expired, lenient_owner, request_record, turn_record
from turnkeep.ledger.records import OPEN, ConversationRecord, RequestRecord, Status, TurnRecord
from turnkeep.ledger.store import Get, Item, ItemStore, Query, Read

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Hydrated", "Loaded", "highest_turn", "hydrate", "load_checkpoints", "load_segments"]

TAIL: Final = 2
"""The newest turns that are read strongly: the last one and the one that a new claim builds on."""

_OPEN_TEXTS: Final = frozenset(status.value for status in OPEN)

_NEVER_BEGUN: Final = frozenset({Status.QUEUED.value, Status.SKIPPED.value})


@dataclass
class Hydrated:
    """What is stored of a conversation, as raw items until somebody may read them.

    Attributes:
        turn_items: live TURN items of this life of the conversation by number, ascending.
        highest: the highest live turn number; 0 where there is none.
        whole: every live turn is here (no window cut older ones off).
        request_item: the REQUEST item that was asked for, where it is live.
        wanted_item: the TURN item that was asked for by number, where it is live.
        requested: the hash of that key.
    """

    key: ConversationKey
    now_ms: int
    conversation_item: Item | None = None
    turn_items: dict[int, Item] = field(default_factory=dict)
    highest: int = 0
    whole: bool = True
    request_item: Item | None = None
    wanted_item: Item | None = None
    requested: str | None = None

    @property
    def exists(self) -> bool:
        """Whether anything live is stored (a conversation that is being erased does not exist any more)."""
        return not self.erasing and (self.conversation_item is not None or bool(self.turn_items))

    @property
    def erasing(self) -> bool:
        """Whether an erasure is under way."""
        return self.conversation_item is not None and "erasing" in self.conversation_item

    @property
    def owner(self) -> str | None:
        """CONVERSATION's owner, else the lowest live turn's principal; read without judging the rest."""
        if self.conversation_item is not None:
            return lenient_owner(self.conversation_item)
        for item in self.turn_items.values():
            principal = item.get("principal")
            if isinstance(principal, str) and principal:
                return principal
        return None

    def conversation(self) -> ConversationRecord | None:
        """The CONVERSATION record.

        Raises:
            UnreadableError: it cannot be read, by name.
        """
        if self.conversation_item is None:
            return None
        return conversation_record(self.conversation_item, self.key)

    def turns(self) -> list[TurnRecord]:
        """The turns of this life of the conversation, oldest first, skipped numbers included.

        Raises:
            UnreadableError: one of them cannot be read, by name.
        """
        return [turn_record(item, self.key) for item in self.turn_items.values()]

    @property
    def epoch(self) -> str | None:
        """This life's epoch: CONVERSATION's, else the newest live turn's."""
        found = self.conversation_item or next(reversed(self.turn_items.values()), None)
        epoch = found.get("epoch") if found is not None else None
        return epoch if isinstance(epoch, str) else None

    def request(self) -> RequestRecord | None:
        """The request's record.

        Raises:
            UnreadableError: it cannot be read, by name.
        """
        if self.request_item is None or self.requested is None:
            return None
        return request_record(self.request_item, self.requested)

    def wanted(self) -> TurnRecord | None:
        """The turn that was asked for by number, in this life of the conversation.

        Raises:
            UnreadableError: it cannot be read, by name.
        """
        if self.wanted_item is None:
            return None
        record = turn_record(self.wanted_item, self.key)
        return record if record.epoch == self.epoch else None


def hydrate(
    store: ItemStore,
    key: ConversationKey,
    now_ms: int,
    *,
    last_turns: int | None,
    history: bool,
    request: str | None,
    turn: int | None,
) -> Hydrated:
    """See ``Ledger.hydrate``."""
    pk = key.pk
    reads: list[Read] = [Get((pk, CONVERSATION)), Query(pk, TURN_LOW, TURN_HIGH, limit=TAIL, forward=False)]
    if history:
        reads.append(Query(pk, TURN_LOW, TURN_HIGH, limit=last_turns, forward=False, consistent=False))
    if request is not None:
        reads.append(Get((pk, request_sk(request))))
    if turn is not None:
        reads.append(Get((pk, turn_sk(turn))))
    pages = store.read(reads)
    rest = pages[2:]
    older = _numbered(rest.pop(0).items) if history else {}
    request_page = rest.pop(0) if request is not None else None
    wanted_page = rest.pop(0) if turn is not None else None
    found = Hydrated(
        key=key,
        now_ms=now_ms,
        conversation_item=_live(pages[0].items, now_ms, or_erasing=True),
        request_item=_live(request_page.items, now_ms) if request_page is not None else None,
        wanted_item=_live(wanted_page.items, now_ms) if wanted_page is not None else None,
        requested=request,
    )
    turns = _Turns(store, pk, now_ms, older)
    turns.add(pages[1].items, more=pages[1].more)
    found.highest = turns.highest_live()
    if found.highest:
        known = found.conversation_item or turns.item(found.highest)
        epoch = known.get("epoch")
        want = last_turns if history else TAIL
        found.turn_items, found.whole = turns.chain(epoch, None if want is None else max(want, TAIL))
    return found


def highest_turn(store: ItemStore, key: ConversationKey, now_ms: int) -> int:
    """The highest live turn number, 0 where there is none: one strong query that reads one item in the usual case."""
    turns = _Turns(store, key.pk, now_ms, {})
    (page,) = store.read([Query(key.pk, TURN_LOW, TURN_HIGH, limit=1, forward=False)])
    turns.add(page.items, more=page.more)
    return turns.highest_live()


def _numbered(items: Sequence[Item]) -> dict[int, Item]:
    return {turn_of_sk(str(item["sk"])): item for item in items}


def _has_begun(item: Item) -> bool:
    """Whether the turn has begun to run, which it may do only when every turn before it has ended."""
    return item.get("status") not in _NEVER_BEGUN and "unrun" not in item


def _is_of(item: Item, epoch: object) -> bool:
    """Whether the item belongs to this life; one that does not say is unreadable, and must not count as absent."""
    found = item.get("epoch")
    return found == epoch or not isinstance(found, str)


def _live(items: Sequence[Item], now_ms: int, *, or_erasing: bool = False) -> Item | None:
    if not items or (is_expired(items[0], now_ms) and not (or_erasing and "erasing" in items[0])):
        return None
    return items[0]


class _Turns:
    """TURN items as they were read: strongly from the newest down to ``_low``, eventually below that."""

    def __init__(self, store: ItemStore, pk: str, now_ms: int, older: dict[int, Item]) -> None:
        self._store, self._pk, self._now_ms, self._older = store, pk, now_ms, older
        self._strong: dict[int, Item] = {}
        self._low = 0
        self._step = TAIL

    def add(self, items: Sequence[Item], *, more: bool) -> None:
        """Takes the next lower items of a strong read; ``more`` may lie below them."""
        numbered = _numbered(items)
        self._strong |= numbered
        self._low = min(numbered, default=0) if more else 0

    def item(self, turn: int) -> Item:
        """An item that was read strongly."""
        return self._strong[turn]

    def highest_live(self) -> int:
        """The highest number that is live, however many expired ones still lie above it; 0 where there is none."""
        while True:
            live = [turn for turn, item in self._strong.items() if not is_expired(item, self._now_ms)]
            if live or not self._low:
                return max(live, default=0)
            self._read_below(self._low - 1)

    def chain(self, epoch: object, want: int | None) -> tuple[dict[int, Item], bool]:
        """Walks from the newest live turn of a life down its chain of previous turns.

        Args:
            epoch: the life.
            want: so many turns are enough, if the lowest of them proves that nothing below is open; None walks to
                the end.

        Returns:
            The turns, ascending, and whether the walk came to the end of what is live.
        """
        taken: dict[int, Item] = {}
        at = self._newest_of(epoch)
        while at:
            item = self._known(at, epoch, None if want is None else want - len(taken))
            if item is None or not _is_of(item, epoch) or is_expired(item, self._now_ms):
                # Turns expire oldest first, and DynamoDB deletes late: what is older has expired too.
                break
            taken[at] = item
            previous = item.get("previous")
            # An item that does not say means the number below.
            at = previous if isinstance(previous, int) and 0 <= previous < at else at - 1
            if at and want is not None and len(taken) >= want and _has_begun(item):
                return dict(sorted(taken.items())), False
        return dict(sorted(taken.items())), True

    def _newest_of(self, epoch: object) -> int:
        while True:
            mine = [
                turn
                for turn, item in self._strong.items()
                if _is_of(item, epoch) and not is_expired(item, self._now_ms)
            ]
            if mine or not self._low:
                return max(mine, default=0)
            self._read_below(self._low - 1)

    def _known(self, at: int, epoch: object, lacking: int | None) -> Item | None:
        """The item at a number as it surely is; None where it surely is not there."""
        if at >= self._low:
            return self._strong.get(at)
        seen = self._older.get(at)
        if (
            seen is not None
            and _is_of(seen, epoch)
            and seen.get("status") not in _OPEN_TEXTS
            and not is_expired(seen, self._now_ms)
        ):
            return seen
        self._read_below(at, lacking)
        return self._strong.get(at)

    def _read_below(self, at: int, lacking: int | None = 0) -> None:
        """Reads on strongly from a number down; each time twice as much, so that what is left over costs little."""
        self._step *= 2
        limit = None if lacking is None else max(lacking, self._step)
        (page,) = self._store.read([Query(self._pk, TURN_LOW, turn_sk(at), limit=limit, forward=False)])
        if not page.items:
            self._low = 0
        else:
            self.add(page.items, more=page.more)
