"""Reading: nothing here writes, and nothing is shown before the door has been asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import TurnNotFoundError
from turnkeep.ledger.keys import TURN_HIGH, ConversationKey, turn_of_sk, turn_sk
from turnkeep.ledger.parsing import is_expired, turn_record
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.ledger.store import Query
from turnkeep.messages import is_shown
from turnkeep.usecases.asks import load_output, start_execution, with_whole_ask
from turnkeep.usecases.closing import contribution
from turnkeep.usecases.door import require_own, verify
from turnkeep.usecases.evidence import evidence_of
from turnkeep.usecases.state import State

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.usecases.deps import Caller, Deps

PAGE_TURNS = 50


@dataclass(frozen=True)
class ConversationView:
    """A conversation's summary, and the turn that is open in it (None: none)."""

    record: ConversationRecord
    open_turn: TurnRecord | None


def read_conversation(deps: Deps, caller: Caller, key: ConversationKey) -> ConversationView:
    """A conversation's summary and its open turn.

    Raises:
        SessionNotFoundError: missing or not the caller's.
        UnreadableError: something stored cannot be read.
    """
    verify(deps, caller)
    found = deps.ledger.hydrate(key, history=False)
    require_own(found, caller)
    state = State.of(found)
    first = state.first_open
    if first is not None and first.status is Status.AWAITING and first.task_token is None:
        start_execution(deps, first)
    return ConversationView(_summary(key, found, state), with_whole_ask(deps, first) if first is not None else None)


def _summary(key: ConversationKey, found: Hydrated, state: State) -> ConversationRecord:
    """CONVERSATION, or what it will say: the turn that creates it has not committed yet, or a crash left it behind."""
    last = state.stale_conversation() or (None if state.conversation is not None else state.last)
    if last is None and state.conversation is not None:
        return state.conversation
    if last is None:
        raise TurnNotFoundError
    return ConversationRecord(
        key=key,
        epoch=last.epoch,
        owner=found.owner,
        created_at_ms=last.started_at_ms,
        saved_at_ms=last.saved_at_ms or last.started_at_ms,
        turn=last.turn,
        attempt=last.attempt,
        status=last.status.value,
        format=last.format,
        message_count=last.base_count + last.shown_count,
    )


def read_turn(deps: Deps, caller: Caller, key: ConversationKey, turn: int) -> TurnRecord:
    """One turn, its output in it.

    Raises:
        SessionNotFoundError: the conversation is missing or not the caller's.
        TurnNotFoundError: no such turn in it (a skipped number is none).
        UnreadableError: it, or the conversation's own record, cannot be read.
    """
    verify(deps, caller)
    found = deps.ledger.hydrate(key, history=False, turn=turn)
    require_own(found, caller)
    found.conversation()  # of a newer release, it says that the turns may mean something else
    record = found.wanted()
    if record is None or record.status is Status.SKIPPED:
        raise TurnNotFoundError
    if record.status is Status.AWAITING and record.task_token is None:
        start_execution(deps, record)
    return load_output(deps, with_whole_ask(deps, record))


def read_turns(
    deps: Deps, caller: Caller, key: ConversationKey, *, after: int | None, limit: int
) -> tuple[list[TurnRecord], int | None]:
    """A page of turns, oldest first, and the number behind which the next page begins (None: no more)."""
    verify(deps, caller)
    records, following = _page(deps, caller, key, after or 0, limit)
    return _with_outputs(deps, [with_whole_ask(deps, record) for record in records]), following


def _page(
    deps: Deps, caller: Caller, key: ConversationKey, after: int, limit: int
) -> tuple[list[TurnRecord], int | None]:
    """Turns behind a number, oldest first, and the number behind which more may follow (None: no more).

    Steps over what is none: skipped numbers, what has expired, what an earlier life of the id left behind.
    """
    found = deps.ledger.hydrate(key, history=False)
    require_own(found, caller)
    found.conversation()
    epoch, now_ms = found.epoch, deps.clock.now_ms()
    while True:
        (page,) = deps.ledger.store.read([Query(key.pk, turn_sk(after + 1), TURN_HIGH, limit=limit)])
        live = [turn_record(item, key) for item in page.items if not is_expired(item, now_ms)]
        records = [record for record in live if record.epoch == epoch and record.status is not Status.SKIPPED]
        if not page.more or not page.items:
            return records, None
        after = turn_of_sk(str(page.items[-1]["sk"]))
        if records:
            return records, after


def _needs_output(record: TurnRecord) -> bool:
    """Whether a complete turn's last message lies in a segment and not in its record."""
    return record.status is Status.COMPLETE and not record.messages and bool(record.segments or record.adopted)


def _with_outputs(deps: Deps, records: list[TurnRecord]) -> list[TurnRecord]:
    """The records with their last message in them; one round trip where some lie in segments."""
    apart = [record for record in records if _needs_output(record)]
    if not apart:
        return records
    loaded = deps.ledger.messages_of(apart)
    return [
        replace(record, messages=tuple(loaded[record.turn][-1:])) if record.turn in loaded else record
        for record in records
    ]


def read_transcript(
    deps: Deps, caller: Caller, key: ConversationKey, *, after: tuple[int, int] | None, limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
    """User and assistant text in stored order.

    Args:
        deps: the ports.
        caller: who asks.
        key: the conversation.
        after: (turn, index of the message in its turn) of the last message that was shown.
        limit: at most so many messages.
        max_bytes: at most so much text, in bytes of UTF-8 JSON; one message always fits.

    Returns:
        The messages, and where the next page goes on (None: no more).
    """
    verify(deps, caller)
    turn, index = after if after is not None else (0, -1)
    shown: list[dict[str, Any]] = []
    size = 0
    position = (turn, index)
    start = turn - 1 if after is not None else 0
    while True:
        records, following = _page(deps, caller, key, max(0, start), PAGE_TURNS)
        loaded = deps.ledger.messages_of(records)
        for record in records:
            for at, message in enumerate(_visible(record, loaded[record.turn])):
                if (record.turn, at) <= position or not is_shown(message):
                    continue
                cost = len(message["content"].encode()) + 40
                if shown and (len(shown) >= limit or size + cost > max_bytes):
                    return shown, position
                shown.append({"role": message["role"], "content": message["content"]})
                size += cost
                position = (record.turn, at)
        if following is None:
            return shown, None
        start = following


def _visible(record: TurnRecord, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What of a turn a transcript shows: an open one what is durable by now, an ended one what it contributes."""
    return messages if record.is_open else contribution(record, messages)


def read_evidence(deps: Deps, caller: Caller, key: ConversationKey, turn: int) -> dict[str, Any]:
    """What led to a turn's answer."""
    record = read_turn(deps, caller, key, turn)
    return {
        "conversationId": key.conversation_id,
        "turn": record.turn,
        "status": record.status.value,
        "runId": record.run_id,
        "agent": {name: value for name, value in (("id", record.agent_id), ("version", record.agent_version)) if value},
        "evidence": evidence_of(deps, record),
    }
