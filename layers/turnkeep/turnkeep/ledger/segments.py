"""Segments: messages made durable mid-turn, checkpoints, and the parts of anything too large for one item.

A batch is one JSON value, cut into parts that fit an item. Every part names the batch's hash, its own place in it, and
for messages the position in the turn at which they begin. A part is put once and never changed.

Readers take whole batches, in order. A batch that starts before the end of what was read replaces from there on: that
is a write that was made anew because nobody heard how its first try had ended. Parts of a try that landed in part only
are passed over; they stand in front of the batch that was written behind them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError
from turnkeep.ledger.codec import from_text, pack_bytes, pack_text, size_of, to_text, unpack_text
from turnkeep.ledger.keys import ConversationKey, segment_place, segment_sk
from turnkeep.ledger.parsing import is_expired
from turnkeep.ledger.records import SEGMENT_V1, TurnRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnkeep.ledger.store import Item
    from turnkeep.messages import Message

PART_BYTES = 350_000
"""A part's data; with names and keys an item stays under DynamoDB's 400 KB."""

MESSAGES, CHECKPOINT = "messages", "checkpoint"


@dataclass(frozen=True)
class Batch:
    """A value read back from its parts.

    Attributes:
        kind: ``messages`` or ``checkpoint``.
        start: for messages, the position among the turn's stored messages at which they begin.
        attempt: the attempt that wrote it.
        first, last: the indexes of its first and its last part.
    """

    kind: str
    start: int
    value: Any
    attempt: int
    first: int
    last: int


def batch_items(record: TurnRecord, index: int, kind: str, start: int, value: Any) -> list[Item]:
    """The items of one batch, beginning at segment ``index`` of the record's attempt.

    Raises:
        UnstorableValueError: the value is no JSON that the ledger can keep.
    """
    text = to_text(value, name=kind)
    digest = _digest(kind, start, text)
    packed = pack_text(text)
    pieces: list[str | bytes] = [packed]
    if size_of(packed) > PART_BYTES:
        data = pack_bytes(text)
        pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    items: list[Item] = []
    for part, piece in enumerate(pieces):
        item: Item = {
            "pk": record.key.pk,
            "sk": segment_sk(record.turn, record.attempt, index + part),
            "format": SEGMENT_V1,
            "epoch": record.epoch,
            "kind": kind,
            "from": start,
            "part": part,
            "parts": len(pieces),
            "hash": digest,
            "data": piece,
        }
        if record.delete_after_s is not None:
            item["deleteAfter_s"] = record.delete_after_s
        items.append(item)
    return items


def read_batches(
    items: Iterable[Item], key: ConversationKey, epoch: str, attempt: int, upto: int | None, now_ms: int
) -> list[Batch]:
    """The whole batches of one attempt, in order.

    Args:
        items: segments of one turn, of any attempt and epoch.
        key: the conversation, for an error's words.
        epoch: the life that they have to belong to.
        attempt: the attempt that wrote them.
        upto: how many segments belong to the turn; None takes those of a running attempt, up to the first that is
            not there (and none that has expired: it is left over from an earlier use of the number).
        now_ms: for what has expired.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: a segment that belongs to the turn cannot be read, or is
            not there.
    """
    parts: dict[int, Item] = {}
    for item in items:
        _, by, index = segment_place(str(item["sk"]))
        if item.get("epoch") == epoch and by == attempt and not (upto is None and is_expired(item, now_ms)):
            parts[index] = item
    end = upto
    if end is None:
        end = 0
        while end + 1 in parts:
            end += 1
    batches: list[Batch] = []
    index = 1
    while index <= end:
        if index not in parts:
            raise MalformedStoredItemError(
                found=SEGMENT_V1, part=f"segment {index}", conversation_id=key.conversation_id
            )
        run = _whole(parts, index, end, key)
        if run:
            batches.append(_batch(run, key, attempt, index))
        index += max(1, len(run))
    last = batches[-1].last if batches else 0
    if upto is not None and last != upto:
        # What a turn counts as its own always ends with a whole batch.
        raise MalformedStoredItemError(found=SEGMENT_V1, part=f"segment {upto}", conversation_id=key.conversation_id)
    return batches


def _whole(parts: dict[int, Item], index: int, end: int, key: ConversationKey) -> list[Item]:
    """The parts of the batch that begins at an index; none where a whole one does not begin there."""
    first = parts[index]
    found = first.get("format")
    if found != SEGMENT_V1:
        raise UnknownStoredFormatError(found=str(found)[:64], known=[SEGMENT_V1], conversation_id=key.conversation_id)
    count = first.get("parts")
    if not isinstance(count, int) or count < 1:
        raise MalformedStoredItemError(found=SEGMENT_V1, part="parts", conversation_id=key.conversation_id)
    run = [parts[at] for at in range(index, min(index + count, end + 1)) if at in parts]
    same = all(one.get("hash") == first.get("hash") and one.get("part") == place for place, one in enumerate(run))
    return run if same and len(run) == count else []


def _batch(run: Sequence[Item], key: ConversationKey, attempt: int, index: int) -> Batch:
    first = run[0]
    try:
        text = _joined_text(run)
        value = from_text(text)
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedStoredItemError(found=SEGMENT_V1, part="data", conversation_id=key.conversation_id) from error
    start, kind = first.get("from"), first.get("kind")
    if not isinstance(start, int) or not isinstance(kind, str):
        raise MalformedStoredItemError(found=SEGMENT_V1, part="from", conversation_id=key.conversation_id)
    is_list = isinstance(value, list) and all(isinstance(one, dict) for one in value)
    if _digest(kind, start, text) != first.get("hash") or (kind == MESSAGES and not is_list):
        raise MalformedStoredItemError(found=SEGMENT_V1, part="data", conversation_id=key.conversation_id)
    return Batch(kind=kind, start=start, value=value, attempt=attempt, first=index, last=index + len(run) - 1)


def _joined_text(run: Sequence[Item]) -> str:
    """The text of a batch.

    Raises:
        ValueError, KeyError, TypeError: a part's data is missing, of another type, or does not inflate.
    """
    if len(run) == 1:
        return unpack_text(run[0]["data"])
    # memoryview of a text raises a TypeError, which is what a part of another type is here.
    return unpack_text(b"".join(memoryview(part["data"]) for part in run))  # type: ignore[arg-type]


def _digest(kind: str, start: int, text: str) -> str:
    return hashlib.sha256(f"{kind} {start} {text}".encode()).hexdigest()[:32]


def joined(user: Message | None, batches: Sequence[Batch], rest: Sequence[Message]) -> list[Message]:
    """A turn's messages: the user's, those of its batches in order, and the rest that lies in the record.

    Raises:
        ValueError: the batches leave a gap.
    """
    messages: list[Message] = [user] if user is not None else []
    for batch in batches:
        if batch.kind != MESSAGES:
            continue
        if batch.start > len(messages):
            raise ValueError("a gap between segments")
        messages[batch.start :] = batch.value
    return [*messages, *rest]
