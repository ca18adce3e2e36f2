"""Turns with what lies in their segments: one round trip for all of them, and none where nothing does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnkeep.errors import MalformedStoredItemError, UnreadableError
from turnkeep.ledger.keys import segment_place, segments_high, segments_low
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.segments import CHECKPOINT, MESSAGES, Batch, joined, read_batches
from turnkeep.ledger.store import Item, ItemStore, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnkeep.messages import Message


@dataclass
class Loaded:
    """Turns with what lies in their segments, by the turn's number.

    Attributes:
        messages: every stored message; of a running turn what its attempts have made durable so far.
        checkpoints: the paused run's checkpoint, where there is one.
        durable_segments: how many segments of the current attempt are there.
    """

    messages: dict[int, list[Message]] = field(default_factory=dict)
    checkpoints: dict[int, dict[str, Any]] = field(default_factory=dict)
    durable_segments: dict[int, int] = field(default_factory=dict)


def load_segments(store: ItemStore, records: Sequence[TurnRecord], now_ms: int) -> Loaded:
    """The turns' messages, checkpoints, and how many segments of the current attempt are whole.

    Segments of turns that have ended are read eventually first (they never change) and strongly where one is missing.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: a segment that belongs to a turn cannot be read, or is
            not there.
    """
    loaded = Loaded()
    items = _read(store, [record for record in records if _has_segments(record)])
    for record in records:
        try:
            _load_one(loaded, record, items.get(record.turn, []), now_ms)
        except MalformedStoredItemError:
            if record.is_open:
                raise
            (page,) = store.read([_of_one(record, consistent=True)])
            _load_one(loaded, record, page.items, now_ms)
    return loaded


def load_checkpoints(
    store: ItemStore, records: Sequence[TurnRecord], now_ms: int
) -> list[dict[str, Any] | UnreadableError | None]:
    """The checkpoint of each open turn, of whichever conversation. One round trip.

    Returns:
        In the records' order; None where a turn has none, and the refusal where its segments cannot be read.
    """
    found: list[dict[str, Any] | UnreadableError | None] = []
    pages = store.read([_of_one(record, consistent=True) for record in records])
    for record, page in zip(records, pages, strict=True):
        loaded = Loaded()
        try:
            _load_one(loaded, record, page.items, now_ms)
        except UnreadableError as error:
            found.append(error)
        else:
            found.append(loaded.checkpoints.get(record.turn))
    return found


def _has_segments(record: TurnRecord) -> bool:
    """Whether the turn has segments, or may have: a running one does not say."""
    return bool(record.segments or record.adopted) or record.status is Status.RUNNING


def _read(store: ItemStore, records: Sequence[TurnRecord]) -> dict[int, list[Item]]:
    """The segments of all the turns, side by side: those of ended ones in one query, each open one's in its own."""
    ended = sorted(record.turn for record in records if not record.is_open)
    reads = [_of_one(record, consistent=True) for record in records if record.is_open]
    if ended:
        pk = records[0].key.pk
        reads.append(Query(pk, segments_low(ended[0]), segments_high(ended[-1]), consistent=False))
    if not reads:
        return {}
    found: dict[int, list[Item]] = {}
    pages = store.read(reads)
    open_turns = {record.turn for record in records if record.is_open}
    for index, page in enumerate(pages):
        in_range_of_ended = bool(ended) and index == len(pages) - 1
        for item in page.items:
            turn, _, _ = segment_place(str(item["sk"]))
            if not (in_range_of_ended and turn in open_turns):
                found.setdefault(turn, []).append(item)
    return found


def _of_one(record: TurnRecord, *, consistent: bool) -> Query:
    return Query(record.key.pk, segments_low(record.turn), segments_high(record.turn), consistent=consistent)


def _load_one(loaded: Loaded, record: TurnRecord, items: Iterable[Item], now_ms: int) -> None:
    batches: list[Batch] = []
    for attempt, count in record.adopted:
        batches.extend(read_batches(items, record.key, record.epoch, attempt, count, now_ms))
    # A running attempt's own segments count as far as they are there; an ended one's as many as its commit says.
    upto = None if record.status is Status.RUNNING else record.segments
    own = read_batches(items, record.key, record.epoch, record.attempt, upto, now_ms)
    batches.extend(own)
    try:
        messages = joined(record.user, batches, record.messages)
    except ValueError as error:
        raise MalformedStoredItemError(
            found=record.format, part="segments", conversation_id=record.key.conversation_id
        ) from error
    said_elsewhere = any(batch.kind == MESSAGES for batch in batches)
    if record.user is None and not said_elsewhere and record.status is not Status.SKIPPED:
        raise MalformedStoredItemError(found=record.format, part="user", conversation_id=record.key.conversation_id)
    loaded.messages[record.turn] = messages
    loaded.durable_segments[record.turn] = own[-1].last if own else 0
    checkpoint = _checkpoint(record, batches)
    if checkpoint is not None:
        loaded.checkpoints[record.turn] = checkpoint


def _checkpoint(record: TurnRecord, batches: Sequence[Batch]) -> dict[str, Any] | None:
    """The checkpoint that the record names, and none that never became the turn's agreed state."""
    for batch in batches:
        named = (batch.attempt, batch.last) == record.checkpoint_segment
        if named and batch.kind == CHECKPOINT and isinstance(batch.value, dict):
            return batch.value
    return None
