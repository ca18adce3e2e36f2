"""Claims: everybody contends for one number, one wins, and the loser learns who from the failed write itself."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.errors import StoreUnavailableError, UnreadableError
from turnkeep.ledger import conditions
from turnkeep.ledger.codec import pack, size_of
from turnkeep.ledger.items import request_attributes, turn_item
from turnkeep.ledger.keys import request_sk, turn_sk
from turnkeep.ledger.parsing import turn_record
from turnkeep.ledger.records import SKIPPED_V1, RequestRecord, Status, TurnRecord
from turnkeep.ledger.segments import MESSAGES, batch_items
from turnkeep.ledger.store import HELD, Applied, Item, ItemStore, Put, Refused, Result, unwrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.clock import Clock

LARGE_MESSAGE_BYTES = 200_000
"""A user message above this, packed, lies in segments: with the rest of the turn it would not fit an item."""

FIRST_MESSAGE_ATTEMPT = 10**15
"""Large user messages lie under numbers from here on, which no attempt ever has."""


@dataclass(frozen=True)
class Contended:
    """A claim that somebody else won.

    Attributes:
        winner: what lies at the contended number, as the failed write gave it; None where that could not be read.
    """

    winner: TurnRecord | None


def claim(
    store: ItemStore,
    clock: Clock,
    record: TurnRecord,
    *,
    stored: int,
    request: RequestRecord | None,
    stale_turn: int | None,
) -> TurnRecord | Contended:
    """See ``Ledger.claim``."""
    record, parts = _with_message_stored(store, record)
    answer = _contend(store, clock, record, stored, request, stale_turn)
    if isinstance(answer, Contended) and parts:
        _forget(store, parts)
    return answer


def _with_message_stored(store: ItemStore, record: TurnRecord) -> tuple[TurnRecord, list[Item]]:
    """A message that is too large for the record lies in segments before the claim, under a number of its own."""
    if record.user is None or size_of(pack(record.user, name="message")) <= LARGE_MESSAGE_BYTES:
        return record, []
    attempt = FIRST_MESSAGE_ATTEMPT + secrets.randbelow(8 * FIRST_MESSAGE_ATTEMPT)
    parts = batch_items(replace(record, attempt=attempt), 1, MESSAGES, 0, [record.user])
    for result in store.write([Put(part) for part in parts]):
        unwrap(result)
    return replace(record, user=None, adopted=((attempt, len(parts)),)), parts


def _forget(store: ItemStore, parts: Sequence[Item]) -> None:
    try:
        store.delete([(str(part["pk"]), str(part["sk"])) for part in parts])
    except StoreUnavailableError:
        return  # no turn names them; they go with the conversation, or with their TTL


def _contend(
    store: ItemStore,
    clock: Clock,
    record: TurnRecord,
    stored: int,
    request: RequestRecord | None,
    stale_turn: int | None,
) -> TurnRecord | Contended:
    now_ms = clock.now_ms()
    beside = [] if request is None else [_request_put(record, request, now_ms, stale_turn)]
    if record.turn == stored + 1:
        put = Put(turn_item(record), conditions.free(now_ms))
        claimed, *noted = store.write([put, *beside])
        answer = unwrap(claimed)
        if isinstance(answer, Refused) and not _is_own_claim(answer.item, record):
            return _contended(record, answer)
    else:
        skipped = _skipped(record, stored)
        record = replace(record, previous=skipped.turn)
        puts = [Put(turn_item(one), conditions.free(now_ms)) for one in (record, skipped)]
        results = [unwrap(result) for result in store.transact(puts)]
        refused = [result for result in results if isinstance(result, Refused) and result.item != HELD]
        if refused and not any(_is_own_claim(result.item, record) for result in refused):
            return _contended(record, refused[0])
        noted = store.write(beside) if beside else []
    if request is not None:
        _note_request(store, clock, record, request, noted[0])
    return record


def _note_request(store: ItemStore, clock: Clock, record: TurnRecord, request: RequestRecord, result: Result) -> None:
    """The turn is this request's. A record of it that says otherwise was left by a claim that lost."""
    answer = unwrap(result)
    found = None if isinstance(answer, Applied) else answer.item
    if found is not None and (found.get("turn"), found.get("epoch")) != (record.turn, record.epoch):
        turn = found.get("turn")
        note_request(store, clock, record, request, turn if isinstance(turn, int) else None)


def note_request(
    store: ItemStore, clock: Clock, record: TurnRecord, request: RequestRecord, stale_turn: int | None
) -> None:
    """See ``Ledger.note_request``."""
    unwrap(store.write([_request_put(record, request, clock.now_ms(), stale_turn)])[0])


def _request_put(record: TurnRecord, request: RequestRecord, now_ms: int, stale_turn: int | None) -> Put:
    item: Item = {"pk": record.key.pk, "sk": request_sk(request.hashed), **request_attributes(request)}
    return Put(item, conditions.fresh_request(now_ms, stale_turn))


def _is_own_claim(item: Item | None, record: TurnRecord) -> bool:
    """Whether what lies there is this very claim: an earlier try of it landed, and its answer was lost."""
    if item is None or item.get("sk") != turn_sk(record.turn) or not record.run_id:
        return False
    return record.run_id in (item.get("runId"), item.get("claim"))


def _contended(record: TurnRecord, refused: Refused) -> Contended:
    """The failed condition brought the winner's item."""
    if refused.item is None:
        return Contended(None)
    try:
        return Contended(turn_record(refused.item, record.key))
    except UnreadableError:
        return Contended(None)


def _skipped(record: TurnRecord, stored: int) -> TurnRecord:
    """The record that says that a number was never a turn."""
    return TurnRecord(
        key=record.key,
        turn=stored + 1,
        status=Status.SKIPPED,
        epoch=record.epoch,
        format=SKIPPED_V1,
        previous=min(record.previous, stored),
        run_id=record.run_id,
        principal=record.principal,
        started_at_ms=record.started_at_ms,
        base_count=record.base_count,
        delete_after_s=record.delete_after_s,
    )
