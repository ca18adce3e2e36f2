"""Decisions that are too large for their turn's record: cut into items of their own, which only a resume reads.

The record says whether such a decision approves and into how many parts it was cut. The parts are put before the record
is changed, under the mark of the call that decides, so two who answer at once never meet in one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import MalformedStoredItemError
from turnkeep.ledger.codec import pack_bytes, to_text, unpack
from turnkeep.ledger.keys import number
from turnkeep.ledger.segments import PART_BYTES
from turnkeep.ledger.store import Get, Item, ItemStore, Key, Put, unwrap

if TYPE_CHECKING:
    from turnkeep.ledger.records import Decision, TurnRecord

ANSWER_V1 = "answer-v1"

INLINE_DECISION_BYTES = 8_000
"""A decision up to this lies in its turn's record, which also holds the user's message, however large that is."""


def put_beside(store: ItemStore, record: TurnRecord, decision: Decision) -> Decision:
    """Puts a large decision beside its turn's record, before it is recorded; a small one is left as it is.

    One round trip for a large one.

    Returns:
        The decision as it is to be recorded.

    Raises:
        UnstorableValueError: it is no JSON that the ledger can keep.
        StoreUnavailableError: the store did not answer; nothing was recorded.
    """
    data = pack_bytes(to_text(decision.value, name="decision"))
    if len(data) <= INLINE_DECISION_BYTES:
        return decision
    pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    for answer in store.write([Put(_part(record, decision, at, piece)) for at, piece in enumerate(pieces)]):
        unwrap(answer)
    return replace(decision, parts=len(pieces))


def take_back(store: ItemStore, record: TurnRecord, decision: Decision) -> None:
    """Deletes the parts of a decision that was not taken.

    Raises:
        StoreUnavailableError: they stay until the conversation is erased or expires; nobody reads them.
    """
    if decision.parts:
        store.delete(_keys(record, decision))


def with_whole_decision(store: ItemStore, record: TurnRecord) -> TurnRecord:
    """The record with all of its decision in it. A round trip where that is a large one, else none.

    Raises:
        MalformedStoredItemError: a part is missing or cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    decision = record.decision
    if decision is None or decision.parts == 0:
        return record
    pages = store.read([Get(key) for key in _keys(record, decision)])
    found = [page.items[0] for page in pages if page.items and page.items[0].get("epoch") == record.epoch]
    data = b"".join(piece for item in found if isinstance(piece := item.get("data"), bytes))
    try:
        value: Any = unpack(data if len(found) == decision.parts else None)
    except ValueError as error:
        raise MalformedStoredItemError(
            found=ANSWER_V1, part="data", conversation_id=record.key.conversation_id
        ) from error
    return replace(record, decision=replace(decision, value=value))


def _part(record: TurnRecord, decision: Decision, at: int, piece: bytes) -> Item:
    pk, sk = _key(record, decision, at)
    item: Item = {"pk": pk, "sk": sk, "format": ANSWER_V1, "epoch": record.epoch, "data": piece}
    if record.delete_after_s is not None:
        item["deleteAfter_s"] = record.delete_after_s
    return item


def _keys(record: TurnRecord, decision: Decision) -> list[Key]:
    return [_key(record, decision, at) for at in range(decision.parts)]


def _key(record: TurnRecord, decision: Decision, at: int) -> Key:
    return (record.key.pk, f"ANSWER#{number(record.turn)}#{decision.mark}#{number(at)}")
