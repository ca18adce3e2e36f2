"""What an operator does at the command line, whoever owns the conversation. No door leads here but ``turnkeep.cli``.

An operator sees ids, times and the one question that waits, never what else was said. What they decide is recorded as
theirs: ``operator:NAME``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.decisions import question_of
from turnkeep.errors import (
    AlreadyAnsweredError,
    ConcurrentRunError,
    SessionNotFoundError,
    TurnNotFoundError,
    UnreadableError,
)
from turnkeep.ids import turn_of_ask
from turnkeep.ledger.keys import DUE_SHARDS, TURN_LOW, ConversationKey, turn_of_sk
from turnkeep.ledger.parsing import is_expired, turn_record
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import Get, IndexQuery, Item, position_of
from turnkeep.usecases.answer_ask import take_answer
from turnkeep.usecases.asks import with_whole_ask
from turnkeep.usecases.evidence import evidence_of
from turnkeep.usecases.state import State
from turnkeep.usecases.withdraw import close_withdrawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnkeep.usecases.deps import Deps

PAGE = 100


@dataclass(frozen=True)
class PausedTurn:
    """A turn that waits for a person.

    Attributes:
        question: in one line; None where the ask has none in words, or the record cannot be read.
        unreadable: the code of the refusal where the record cannot be read.
    """

    key: ConversationKey
    turn: int
    ask_id: str
    audience: str
    question: str | None
    asked_at_ms: int
    expires_at_ms: int
    unreadable: str | None = None


def list_paused(deps: Deps, *, tenant: str | None = None) -> list[PausedTurn]:
    """Every turn that waits for a person, the longest waiting first; one tenant's, or without a tenant everybody's.

    Found through ``byDue``, where every open turn is, and read again strongly.
    """
    rows: list[PausedTurn] = []
    for items in _awaiting(deps):
        pages = deps.ledger.store.read([Get((str(item["pk"]), str(item["sk"]))) for item in items])
        for item, page in zip(items, pages, strict=True):
            key = ConversationKey.from_pk(str(item["pk"]))
            if page.items and (tenant is None or key.tenant == tenant):
                row = _row(deps, key, page.items[0])
                rows += [] if row is None else [row]
    return sorted(rows, key=lambda row: (row.asked_at_ms, row.key.pk, row.turn))


def _awaiting(deps: Deps) -> Iterator[list[Item]]:
    for shard in range(DUE_SHARDS):
        after: Item | None = None
        while True:
            (page,) = deps.ledger.store.read([IndexQuery("byDue", f"due#{shard}", limit=PAGE, after=after)])
            # A conversation that is being erased is due too, and has the status of its last turn.
            turns = [item for item in page.items if str(item["sk"]).startswith(TURN_LOW)]
            items = [item for item in turns if item.get("status") == Status.AWAITING.value]
            if items:
                yield items
            if not page.more or not page.items:
                break
            after = position_of("byDue", page.items[-1])


def _row(deps: Deps, key: ConversationKey, item: Item) -> PausedTurn | None:
    now_ms = deps.clock.now_ms()
    if is_expired(item, now_ms) or item.get("status") != Status.AWAITING.value:
        return None
    try:
        record = with_whole_ask(deps, turn_record(item, key))
    except UnreadableError as error:
        return PausedTurn(key, turn_of_sk(str(item["sk"])), "", "", None, 0, 0, unreadable=error.code)
    ask = record.ask
    if ask is None:
        return None
    return PausedTurn(
        key,
        record.turn,
        ask.ask_id,
        ask.audience,
        question_of(ask.pending),
        ask.asked_at_ms,
        ask.expires_at_ms,
    )


def answer_as_operator(deps: Deps, key: ConversationKey, *, ask_id: str, decision: Any, operator: str) -> TurnRecord:
    """Answers an ask for whoever should have; recorded as answered by ``operator:NAME``.

    Args:
        deps: the ports.
        key: the conversation.
        ask_id: the ask, whatever its audience.
        decision: the answer, any JSON; a gate takes a decision.
        operator: who does this, for the record.

    Raises:
        SessionNotFoundError: no such conversation.
        DecisionRequiredError, StaleDecisionError, MessageTooLargeError: the decision does not fit; nothing was stored.
        AlreadyAnsweredError, AskExpiredError, NoPendingAskError, ForeignPauseError: the ask cannot be answered.
        UnreadableError: what is stored cannot be read.
        StoreUnavailableError: nothing was lost; answering again finds out.
    """
    found = deps.ledger.hydrate(key, history=False, turn=turn_of_ask(ask_id))
    if not found.exists:
        raise SessionNotFoundError(key.conversation_id)
    by = f"operator:{operator}"
    asked = found.wanted()
    taken = take_answer(deps, found, asked, ask_id=ask_id, decision=decision, answered_by=by, mark=deps.random_id(12))
    return taken.record


def cancel_as_operator(deps: Deps, key: ConversationKey, turn: int) -> TurnRecord:
    """Withdraws a turn's open ask, or cancels it while it is queued. Doing it twice is once.

    Raises:
        SessionNotFoundError, TurnNotFoundError: there is none.
        AlreadyAnsweredError: the ask has its answer.
        ConcurrentRunError: the turn runs, and a run is not taken back.
        UnreadableError: what is stored cannot be read.
    """
    while True:
        found = deps.ledger.hydrate(key, history=False, turn=turn)
        if not found.exists:
            raise SessionNotFoundError(key.conversation_id)
        record = found.wanted()
        if record is None or record.status is Status.SKIPPED:
            raise TurnNotFoundError
        if not record.is_open:
            return record
        if record.status is Status.ANSWERED:
            decision = record.decision
            raise AlreadyAnsweredError(answered_at_ms=None if decision is None else decision.answered_at_ms)
        if record.status is Status.RUNNING:
            raise ConcurrentRunError(turn=turn)
        done = close_withdrawn(deps, record, State.of(found))
        if done is not None:
            return done


def turn_as_operator(deps: Deps, key: ConversationKey, turn: int) -> TurnRecord:
    """A turn's record: its status, its times and its evidence.

    Raises:
        SessionNotFoundError, TurnNotFoundError: there is none.
        UnreadableError: it cannot be read.
    """
    found = deps.ledger.hydrate(key, history=False, turn=turn)
    if not found.exists:
        raise SessionNotFoundError(key.conversation_id)
    record = found.wanted()
    if record is None or record.status is Status.SKIPPED:
        raise TurnNotFoundError
    return replace(record, evidence=evidence_of(deps, record))
