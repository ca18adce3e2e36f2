"""Reading a conversation: one round trip in the usual case, whole, and never a guess.

The newest turns and CONVERSATION are read strongly. Older turns that have ended never change, so they are read
eventually beside them: each record names the one before it, and that chain proves that none is missing. Where it is
not proven (a replica that lags, an open turn seen through it) the rest is read again, strongly.

What has expired is dropped whatever DynamoDB still holds. Nothing is judged here beyond that: who may open the
conversation is asked first, with the lenient owner, and only then do the strict readers refuse by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnkeep.errors import MalformedStoredItemError, UnreadableError
from turnkeep.ledger.keys import (
    CONVERSATION,
    TURN_HIGH,
    TURN_LOW,
    ConversationKey,
    request_sk,
    segments_high,
    segments_low,
    turn_of_sk,
    turn_sk,
)
from turnkeep.ledger.records import (
    OPEN,
    ConversationRecord,
    RequestRecord,
    Status,
    TurnRecord,
    conversation_record,
    is_expired,
    lenient_owner,
    request_record,
    turn_record,
)
from turnkeep.ledger.segments import joined, read_batches
from turnkeep.ledger.store import Get, Item, ItemStore, Query, Read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.messages import Message

TAIL = 2
"""The newest turns that are read strongly: the last one and the one that a new claim builds on."""


@dataclass
class Hydrated:
    """What is stored of a conversation, as raw items until somebody may read them.

    Attributes:
        turn_items: live TURN items by number, ascending.
        whole: every live turn is here (no window cut older ones off).
        request_item: the REQUEST item that was asked for, where it is live.
        wanted_item: the TURN item that was asked for by number, where it is live.
        requested: the hash of that key.
    """

    key: ConversationKey
    now_ms: int
    conversation_item: Item | None = None
    turn_items: dict[int, Item] = field(default_factory=dict)
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

    @property
    def highest(self) -> int:
        """The highest live turn number; 0 where there is none."""
        return max(self.turn_items, default=0)

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
        records = [turn_record(item, self.key) for item in self.turn_items.values()]
        epoch = self.epoch
        return [record for record in records if record.epoch == epoch]

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
    tail = _numbered(pages[1].items)
    older = _numbered(rest.pop(0).items) if history else {}
    request_page = rest.pop(0) if request is not None else None
    wanted_page = rest.pop(0) if turn is not None else None
    conversation = pages[0].items[0] if pages[0].items else None
    found = Hydrated(
        key=key,
        now_ms=now_ms,
        conversation_item=None if conversation is None or is_expired(conversation, now_ms) else conversation,
        request_item=_live(request_page.items, now_ms) if request_page is not None else None,
        wanted_item=_live(wanted_page.items, now_ms) if wanted_page is not None else None,
        requested=request,
    )
    want = last_turns if history else TAIL
    _prove(store, found, tail, older, want, pages[1].more)
    return found


def _numbered(items: Sequence[Item]) -> dict[int, Item]:
    return {turn_of_sk(str(item["sk"])): item for item in items}


def _live(items: Sequence[Item], now_ms: int) -> Item | None:
    return items[0] if items and not is_expired(items[0], now_ms) else None


def _prove(
    store: ItemStore, found: Hydrated, strong: dict[int, Item], older: dict[int, Item], want: int | None, more: bool
) -> None:
    """Walks the chain of previous turns downwards and takes what it proves; reads the rest strongly where it breaks."""
    taken: dict[int, Item] = {}
    now_ms = found.now_ms
    if not strong and not older:
        return
    at = max(strong, default=0)
    if at == 0:
        # The strong read saw nothing: whatever a replica still shows has been deleted.
        return
    everything_read = not more
    while at and (want is None or len(taken) < max(want, TAIL)):
        item = strong.get(at)
        if item is None:
            seen = older.get(at)
            if seen is not None and (is_expired(seen, now_ms) or seen.get("status") not in _OPEN_TEXTS):
                item = seen
        if item is None:
            if everything_read:
                break
            lacking = None if want is None else max(want, TAIL) - len(taken)
            page = store.read([Query(found.key.pk, TURN_LOW, turn_sk(at), limit=lacking, forward=False)])[0]
            strong = {**strong, **_numbered(page.items)}
            everything_read = not page.more
            if at not in strong:
                # Gone: expired and deleted. What is older has expired before it.
                break
            continue
        if is_expired(item, now_ms):
            if taken:
                # Turns expire oldest first: what is older has expired too.
                break
            # Numbers below an expired one may have been given out again, from 1 on.
            at -= 1
            continue
        taken[at] = item
        previous = item.get("previous")
        at = previous if isinstance(previous, int) and 0 <= previous < at else at - 1
    found.turn_items = dict(sorted(taken.items()))
    lowest = min(taken, default=0)
    below = taken[lowest].get("previous") if lowest else 0
    found.whole = not (isinstance(below, int) and below > 0 and want is not None and len(taken) >= max(want, TAIL))


_OPEN_TEXTS = frozenset(status.value for status in OPEN)


@dataclass
class Loaded:
    """Turns with what lies in their segments."""

    messages: dict[int, list[Message]] = field(default_factory=dict)
    checkpoints: dict[int, dict[str, Any]] = field(default_factory=dict)
    durable_segments: dict[int, int] = field(default_factory=dict)


def load_segments(store: ItemStore, records: Sequence[TurnRecord], now_ms: int) -> Loaded:
    """The turns' messages, checkpoints, and how many segments of the current attempt are whole.

    Segments of turns that have ended are read eventually first (they never change) and strongly where one is missing.
    """
    loaded = Loaded()
    with_segments = [record for record in records if record.segments or record.adopted or record.is_open]
    items = _read_segments(store, with_segments)
    for record in records:
        mine = items.get(record.turn, [])
        try:
            _load_one(loaded, record, mine, now_ms)
        except (MalformedStoredItemError, ValueError):
            if record.is_open:
                raise
            strong = _read_segments(store, [record], consistent=True).get(record.turn, [])
            try:
                _load_one(loaded, record, strong, now_ms)
            except ValueError as error:
                raise MalformedStoredItemError(
                    found=record.format, part="segments", conversation_id=record.key.conversation_id
                ) from error
    return loaded


def load_checkpoints(
    store: ItemStore, records: Sequence[TurnRecord], now_ms: int
) -> list[dict[str, Any] | UnreadableError | None]:
    """The checkpoint of each open turn, of whichever conversation. One round trip.

    Returns:
        In the records' order; None where a turn has none, and the refusal where its segments cannot be read.
    """
    reads = [
        Query(record.key.pk, segments_low(record.turn), segments_high(record.turn), consistent=True)
        for record in records
    ]
    found: list[dict[str, Any] | UnreadableError | None] = []
    for record, page in zip(records, store.read(reads), strict=True):
        loaded = Loaded()
        try:
            _load_one(loaded, record, page.items, now_ms)
        except UnreadableError as error:
            found.append(error)
        except ValueError:
            conversation_id = record.key.conversation_id
            found.append(
                MalformedStoredItemError(found=record.format, part="segments", conversation_id=conversation_id)
            )
        else:
            found.append(loaded.checkpoints.get(record.turn))
    return found


def _read_segments(
    store: ItemStore, records: Sequence[TurnRecord], *, consistent: bool = False
) -> dict[int, list[Item]]:
    reads = [
        Query(
            record.key.pk,
            segments_low(record.turn),
            segments_high(record.turn),
            consistent=consistent or record.is_open,
        )
        for record in records
        if record.status is not Status.SKIPPED
    ]
    if not reads:
        return {}
    pages = store.read(reads)
    return {record.turn: page.items for record, page in zip(records, pages, strict=True)}


def _load_one(loaded: Loaded, record: TurnRecord, items: Sequence[Item], now_ms: int) -> None:
    batches = []
    for attempt, count in record.adopted:
        batches.extend(read_batches(items, record.key, record.epoch, attempt, count, now_ms))
    # A running attempt's own segments count as far as they are whole; an ended one's as many as its commit says.
    upto = None if record.status is Status.RUNNING else record.segments
    own = read_batches(items, record.key, record.epoch, record.attempt, upto, now_ms)
    loaded.durable_segments[record.turn] = own[-1].last if own else 0
    batches.extend(own)
    loaded.messages[record.turn] = joined(record.user, batches, record.messages)
    for batch in batches:
        # Only the one that the record names: an attempt that died between a checkpoint and its commit left another.
        named = (batch.attempt, batch.last) == record.checkpoint_segment
        if batch.kind == "checkpoint" and named and isinstance(batch.value, dict):
            loaded.checkpoints[record.turn] = batch.value
