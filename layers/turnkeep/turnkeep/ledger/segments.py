"""Segments: messages made durable mid-turn, checkpoints, and the parts of anything too large for one item.

A batch is one JSON value, cut into parts that fit an item. Its first part names ``from`` and ``count`` (for messages),
every part the batch's hash. Readers take whole batches only, in order, step over what a write left that landed in part
and was written anew behind it, and stop at the first number that is missing; a batch that starts before the end of what
was read replaces from there on (a retried write that landed late).
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError
from turnkeep.ledger.codec import pack_text, to_text, unpack
from turnkeep.ledger.keys import ConversationKey, segment_sk
from turnkeep.ledger.records import SEGMENT_V1, TurnRecord, is_expired

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnkeep.ledger.store import Item
    from turnkeep.messages import Message

PART_BYTES = 350_000
"""A part's data; with names and keys an item stays under DynamoDB's 400 KB."""


@dataclass(frozen=True)
class Batch:
    """A value read back from its parts.

    Attributes:
        kind: ``messages`` or ``checkpoint``.
        start: for messages, the position among the turn's stored messages at which they begin.
        attempt: the attempt that wrote it.
        last: the index of its last part.
    """

    kind: str
    start: int
    value: Any
    attempt: int
    last: int


def batch_items(record: TurnRecord, index: int, kind: str, start: int, value: Any) -> list[Item]:
    """The items of one batch, beginning at segment ``index`` of the record's attempt.

    Raises:
        UnstorableValueError: the value is no JSON that the ledger can keep.
    """
    text = to_text(value, name=kind)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    packed = pack_text(text)
    if len(packed if isinstance(packed, bytes) else packed.encode()) > PART_BYTES:
        data = packed if isinstance(packed, bytes) else zlib.compress(packed.encode(), 1)
        pieces: list[str | bytes] = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    else:
        pieces = [packed]
    items: list[Item] = []
    for part, piece in enumerate(pieces):
        item: Item = {
            "pk": record.key.pk,
            "sk": segment_sk(record.turn, record.attempt, index + part),
            "format": SEGMENT_V1,
            "epoch": record.epoch,
            "kind": kind,
            "from": start,
            "count": len(value) if isinstance(value, list) else 1,
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
    """The whole batches of one attempt, in order; ends in front of the first index that is missing.

    Args:
        items: segments of one turn, of any attempt and epoch.
        key: the conversation, for an error's words.
        epoch: the life that they have to belong to.
        attempt: the attempt that wrote them.
        upto: how many segments belong to the turn; None takes all that are whole (a running attempt).
        now_ms: for what has expired.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: a segment that belongs to the turn cannot be read.
    """
    mine: dict[int, Item] = {}
    for item in items:
        numbers = str(item["sk"]).split("#")
        if item.get("epoch") == epoch and int(numbers[2]) == attempt and not is_expired(item, now_ms):
            mine[int(numbers[3])] = item
    batches: list[Batch] = []
    index = 1
    while index in mine and (upto is None or index <= upto):
        _check_format(mine[index], key)
        parts = _whole_run(mine, index, key)
        if parts:
            batches.append(_batch(parts, key, attempt, index))
        # Where the run is not whole, a write landed in part, and its writer wrote anew behind it.
        index += len(parts) or 1
    last = batches[-1].last if batches else 0
    if upto is not None and last != upto:
        at = f"segment {last + 1}"
        raise MalformedStoredItemError(found=SEGMENT_V1, part=at, conversation_id=key.conversation_id)
    return batches


def _whole_run(mine: dict[int, Item], index: int, key: ConversationKey) -> list[Item]:
    """The parts of the batch that begins at an index; empty where none begins there, or not all of it landed."""
    first = mine[index]
    count, part = first.get("parts"), first.get("part")
    if not isinstance(count, int) or not isinstance(part, int) or count < 1:
        raise MalformedStoredItemError(found=SEGMENT_V1, part="parts", conversation_id=key.conversation_id)
    if part != 0:
        return []
    run = [mine[index + offset] for offset in range(count) if index + offset in mine]
    whole = len(run) == count and all(
        one.get("hash") == first.get("hash") and one.get("part") == at for at, one in enumerate(run)
    )
    return run if whole else []


def _check_format(item: Item, key: ConversationKey) -> None:
    found = item.get("format")
    if found != SEGMENT_V1:
        raise UnknownStoredFormatError(found=str(found)[:64], known=[SEGMENT_V1], conversation_id=key.conversation_id)


def _batch(parts: Sequence[Item], key: ConversationKey, attempt: int, index: int) -> Batch:
    first = parts[0]
    data = first.get("data")
    try:
        if len(parts) > 1:
            data = b"".join(part["data"] for part in parts if isinstance(part["data"], bytes))
        value = unpack(data)
    except (ValueError, KeyError) as error:
        raise MalformedStoredItemError(found=SEGMENT_V1, part="data", conversation_id=key.conversation_id) from error
    start = first.get("from")
    kind = first.get("kind")
    if not isinstance(start, int) or not isinstance(kind, str):
        raise MalformedStoredItemError(found=SEGMENT_V1, part="from", conversation_id=key.conversation_id)
    if kind == "messages" and not (isinstance(value, list) and all(isinstance(one, dict) for one in value)):
        raise MalformedStoredItemError(found=SEGMENT_V1, part="data", conversation_id=key.conversation_id)
    return Batch(kind=kind, start=start, value=value, attempt=attempt, last=index + len(parts) - 1)


def joined(user: Message | None, batches: Sequence[Batch], rest: Sequence[Message]) -> list[Message]:
    """A turn's messages: the user's, those of its batches in order, and the rest that lies in the record.

    Raises:
        ValueError: the batches leave a gap.
    """
    messages: list[Message] = [user] if user is not None else []
    for batch in batches:
        if batch.kind != "messages":
            continue
        if batch.start > len(messages):
            raise ValueError("a gap between segments")
        messages[batch.start :] = batch.value
    return [*messages, *rest]
