"""An answer: one conditional write records it, for exactly the ask it names; then the waiting execution is told."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.agent.run_state import ENGINE
from turnkeep.decisions import check_answer
from turnkeep.errors import (
    AlreadyAnsweredError,
    AskExpiredError,
    ForeignPauseError,
    IdempotencyMismatchError,
    MessageTooLargeError,
    NoPendingAskError,
    NotYoursToAnswerError,
    SessionNotFoundError,
    StaleDecisionError,
    UnreadableError,
)
from turnkeep.ids import turn_of_ask
from turnkeep.ledger.codec import to_text
from turnkeep.ledger.records import Ask, Decision, Status, TurnRecord
from turnkeep.usecases.as_turns import is_foreign_pause
from turnkeep.usecases.asks import load_output, pause_data_of, wake
from turnkeep.usecases.door import opens, verify
from turnkeep.usecases.waiting import between_looks_ms

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency

TAKEN_UP_ATTENTION_MS = 30_000
"""When an answer that no resume took up is looked at."""

REPLY_RESERVE_MS = 1_000


@dataclass(frozen=True)
class Answered:
    """An answer that was taken.

    Attributes:
        record: the turn as it stands now.
        may_read: whether the caller may read the conversation; a role-holder is told the status only.
    """

    record: TurnRecord
    may_read: bool


def answer_ask(
    deps: Deps,
    caller: Caller,
    key: ConversationKey,
    *,
    ask_id: str,
    decision: Any,
    idempotency: Idempotency | None = None,
    wait_ms: int | None = None,
    deadline: Deadline,
) -> Answered:
    """Takes an answer to one ask. Judged in API.md's order: 404, 403, 400, then by the ask's state.

    Raises:
        SessionNotFoundError: nothing that this caller may know of.
        NotYoursToAnswerError: the owner answers an ask that is for a role.
        DecisionRequiredError, StaleDecisionError, MessageTooLargeError: the decision does not fit; nothing was stored.
        AlreadyAnsweredError, AskExpiredError, NoPendingAskError: see API.md.
        ForeignPauseError: the ask came with an import, and nothing here can go on from its answer.
        UnreadableError: to the owner only; what is stored cannot be read.
        StoreUnavailableError: nothing was lost; answering again finds out.
    """
    verify(deps, caller)
    found = deps.ledger.hydrate(key, history=False, turn=turn_of_ask(ask_id))
    owner = found.exists and opens(found, caller)
    asked = _asked(found, owner=owner)
    _may_answer(found, asked, ask_id, caller, owner=owner)
    mark = _mark(deps, idempotency)
    taken = take_answer(deps, found, asked, ask_id=ask_id, decision=decision, answered_by=caller.principal, mark=mark)
    if taken.is_new:
        return Answered(_wait(deps, taken.record, wait_ms, deadline), owner)
    return Answered(taken.record, owner)


@dataclass(frozen=True)
class Taken:
    """An answer that was taken: the turn, and whether it was taken just now or by an earlier try of the same call."""

    record: TurnRecord
    is_new: bool


def take_answer(
    deps: Deps,
    found: Hydrated,
    asked: TurnRecord | None,
    *,
    ask_id: str,
    decision: Any,
    answered_by: str | None,
    mark: str,
) -> Taken:
    """Takes an answer of somebody who may give it, and tells the execution that waits.

    Args:
        deps: the ports.
        found: the conversation, read with the turn that the ask names.
        asked: that turn; None where there is none.
        ask_id: the ask that is answered.
        decision: the answer.
        answered_by: whom the record names.
        mark: of the call; one that repeats with the same mark gets its first reply.

    Raises:
        As ``answer_ask``, but for what it asks of its caller.
    """
    size_bytes = len(to_text(decision, name="decision").encode())
    if size_bytes > deps.settings.max_message_bytes:
        raise MessageTooLargeError(limit_bytes=deps.settings.max_message_bytes, size_bytes=size_bytes)
    if asked is None or asked.ask is None or asked.ask.ask_id != ask_id:
        _refuse_other(deps, found, asked, ask_id, mark)
        return Taken(_repeat(asked), is_new=False)
    check_answer(pause_data_of(deps, asked), decision)
    if asked.decision is not None and asked.decision.ask_id == ask_id:
        return Taken(_again(deps, asked, mark), is_new=False)
    if asked.status is not Status.AWAITING:
        raise NoPendingAskError(found.key.conversation_id)
    now_ms = deps.clock.now_ms()
    if asked.ask.expires_at_ms <= now_ms:
        raise AskExpiredError(expired_at_ms=asked.ask.expires_at_ms)
    if is_foreign_pause(asked):
        raise ForeignPauseError(known=[ENGINE], conversation_id=found.key.conversation_id)
    taken = Decision(ask_id, decision, answered_by, now_ms, mark)
    decided = deps.ledger.decide(asked, taken, due_at_ms=now_ms + TAKEN_UP_ATTENTION_MS)
    if decided is None:
        return Taken(_lost(deps, found.key, ask_id, mark), is_new=False)
    deps.probe("decided")
    deps.note("answered", {"turn": decided.turn})
    deps.events.tell("ask.closed", decided)
    wake(deps, decided)
    return Taken(decided, is_new=True)


def _asked(found: Hydrated, *, owner: bool) -> TurnRecord | None:
    """The turn that the ask names. One that cannot be read is named to the owner only."""
    try:
        return found.wanted() if found.exists else None
    except UnreadableError as error:
        if owner:
            raise
        raise SessionNotFoundError(found.key.conversation_id) from error


def _may_answer(found: Hydrated, asked: TurnRecord | None, ask_id: str, caller: Caller, *, owner: bool) -> None:
    """404 for whoever may know nothing of it, 403 for the owner of an ask that is for a role."""
    ask = asked.ask if asked is not None and asked.ask is not None and asked.ask.ask_id == ask_id else None
    if owner:
        if ask is not None and ask.audience != "owner" and not is_anonymous_conversation(found, caller):
            raise NotYoursToAnswerError(audience=ask.audience)
        return
    if ask is None or not holds_role(ask, caller):
        raise SessionNotFoundError(found.key.conversation_id)


def holds_role(ask: Ask, caller: Caller) -> bool:
    """Whether the ask is for a role that this verified caller holds."""
    kind, _, role = ask.audience.partition(":")
    return kind == "role" and caller.principal is not None and role in caller.roles


def is_anonymous_conversation(found: Hydrated, caller: Caller) -> bool:
    """Whether nobody owns it and nobody asks: then the anonymous caller may answer either kind of ask."""
    return found.owner is None and caller.principal is None


def _mark(deps: Deps, idempotency: Idempotency | None) -> str:
    """Names the call that records a decision: the request where it has a key, so that its repeat knows its own."""
    if idempotency is None:
        return deps.random_id(12)
    return f"{idempotency.hashed[:32]}:{idempotency.digest[:32]}"


def _again(deps: Deps, asked: TurnRecord, mark: str) -> TurnRecord:
    """The ask has its answer: the same request gets its first reply, everybody else learns it; both signal again."""
    decision = asked.decision
    if asked.status is Status.ANSWERED:
        wake(deps, asked)
    if decision is not None and ":" in mark and decision.mark.split(":")[0] == mark.split(":", maxsplit=1)[0]:
        if decision.mark != mark:
            raise IdempotencyMismatchError
        return _repeat(asked)
    raise AlreadyAnsweredError(answered_at_ms=decision.answered_at_ms if decision is not None else None)


def _repeat(asked: TurnRecord | None) -> TurnRecord:
    """The first reply of a repeated answer: the turn as answered, whatever became of it since."""
    if asked is None:
        raise NoPendingAskError
    return replace(asked, status=Status.ANSWERED)


def _refuse_other(deps: Deps, found: Hydrated, asked: TurnRecord | None, ask_id: str, mark: str) -> None:
    """Why an ask that is not open cannot be answered. Returns only where this very request was taken before."""
    if asked is not None:
        decision = asked.decision
        if decision is not None and decision.ask_id == ask_id and decision.mark == mark and ":" in mark:
            return
        for past in asked.past_asks:
            if past.ask_id == ask_id and past.ended == "answered":
                raise AlreadyAnsweredError(answered_at_ms=past.at_ms)
            if past.ask_id == ask_id:
                raise AskExpiredError(expired_at_ms=past.at_ms)
    open_ask = next((turn.ask for turn in found.turns() if turn.status is Status.AWAITING), None)
    if open_ask is not None:
        raise StaleDecisionError(ask_id=open_ask.ask_id)
    raise NoPendingAskError(found.key.conversation_id)


def _lost(deps: Deps, key: ConversationKey, ask_id: str, mark: str) -> TurnRecord:
    """Somebody closed or answered the ask in between: the second look says who."""
    turn = turn_of_ask(ask_id)
    found = deps.ledger.hydrate(key, history=False, turn=turn)
    asked = found.wanted() if found.exists else None
    if asked is not None and asked.decision is not None and asked.decision.ask_id == ask_id:
        return _again(deps, asked, mark)
    _refuse_other(deps, found, asked, ask_id, mark)
    return _repeat(asked)


def _wait(deps: Deps, record: TurnRecord, wait_ms: int | None, deadline: Deadline) -> TurnRecord:
    """The turn as it stands after the wait, or as soon as its resume has ended."""
    until = deps.clock.monotonic_ms() + min(wait_ms or 0, max(0, deadline.left_ms() - REPLY_RESERVE_MS))
    ask: Ask | None = record.ask
    while deps.clock.monotonic_ms() < until:
        deps.clock.sleep_ms(between_looks_ms())
        again = deps.ledger.turn(record.key, record.turn)
        if again is None:
            return record
        settled = not again.is_open or (again.ask is not None and ask is not None and again.ask.ask_id != ask.ask_id)
        if settled:
            return load_output(deps, again)
    return record
