"""An answer: one conditional write records it, for exactly the ask it names; then the waiting execution is told."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.agent.port import ENGINE
from turnkeep.decisions import check_answer
from turnkeep.errors import (
    AlreadyAnsweredError,
    AskExpiredError,
    DecisionRequiredError,
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
from turnkeep.json_values import ABSENT
from turnkeep.ledger.codec import to_text
from turnkeep.ledger.large_decisions import put_beside, take_back
from turnkeep.ledger.records import Ask, Decision, PastAsk, Status, TurnRecord
from turnkeep.usecases.asks import load_output, pause_data_of, wake
from turnkeep.usecases.door import opens, verify
from turnkeep.usecases.shell import is_foreign_pause
from turnkeep.usecases.waiting import between_looks_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency

TAKEN_UP_ATTENTION_MS = 30_000
"""When an answer that no resume took up is looked at."""

REPLY_RESERVE_MS = 1_000
"""With less than this left, nobody waits for the resume any more: the reply has to leave."""

WIDER_LOOK_TURNS = 32
"""How many turns are looked through for the open ask, where the newest few are all queued behind it."""


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

    Args:
        deps: the ports.
        caller: who answers.
        key: the conversation.
        ask_id: the ask that is answered.
        decision: any JSON; ``json_values.ABSENT`` where the answer has none. None is JSON's ``null``, and a decision.
        idempotency: the request's Idempotency-Key; its repeat gets the first reply.
        wait_ms: waits so long for the resume; None does not wait.
        deadline: when this process is killed.

    Raises:
        SessionNotFoundError: nothing that this caller may know of.
        NotYoursToAnswerError: the owner answers an ask that is for a role.
        DecisionRequiredError, StaleDecisionError, MessageTooLargeError: the decision does not fit; nothing was stored.
        AlreadyAnsweredError, AskExpiredError, NoPendingAskError: see API.md.
        IdempotencyMismatchError: the key was used with another body.
        ForeignPauseError: the ask came with an import, and nothing here can go on from its answer.
        UnreadableError: to the owner only; what is stored cannot be read.
        StoreUnavailableError: nothing was lost; answering again finds out.
    """
    verify(deps, caller)
    found = deps.ledger.hydrate(key, history=False, turn=turn_of_ask(ask_id))
    owner = found.exists and opens(found, caller)
    with _unreadable_to(owner=owner, key=key):
        asked = found.wanted() if found.exists else None
    _may_answer(found, asked, ask_id, caller, owner=owner)
    mark = _mark(deps, caller, idempotency)
    by = caller.principal
    with _unreadable_to(owner=owner, key=key):
        taken = take_answer(deps, found, asked, ask_id=ask_id, decision=decision, answered_by=by, mark=mark)
    if wait_ms is not None:
        record = _settled(deps, taken.record, ask_id, wait_ms, deadline)
        return Answered(load_output(deps, record) if owner else record, owner)
    # Without a wait a repeat is told what its first try was told, whatever became of the turn since.
    return Answered(taken.record if taken.is_new else replace(taken.record, status=Status.ANSWERED), owner)


# --- who may ------------------------------------------------------------------------------------------------


@contextmanager
def _unreadable_to(*, owner: bool, key: ConversationKey) -> Iterator[None]:
    """What cannot be read is named to the owner only; to everybody else the conversation is not there."""
    try:
        yield
    except ForeignPauseError:
        raise  # it can be read, and says what to do
    except UnreadableError as error:
        if owner:
            raise
        raise SessionNotFoundError(key.conversation_id) from error


def _may_answer(found: Hydrated, asked: TurnRecord | None, ask_id: str, caller: Caller, *, owner: bool) -> None:
    """404 for whoever may know nothing of it, 403 for the owner of an ask that is for a role.

    An ask that is over is judged alike: who was asked learns how it ended, and nobody else that it was there.
    """
    ask = _named(asked, ask_id)
    if owner:
        if ask is not None and ask.audience != "owner" and not is_anonymous_conversation(found, caller):
            raise NotYoursToAnswerError(audience=ask.audience)
        return
    if ask is None or not holds_role(ask, caller):
        raise SessionNotFoundError(found.key.conversation_id)


def _named(asked: TurnRecord | None, ask_id: str) -> Ask | PastAsk | None:
    """The turn's ask of this id, open or over."""
    if asked is None:
        return None
    if asked.ask is not None and asked.ask.ask_id == ask_id:
        return asked.ask
    return next((past for past in asked.past_asks if past.ask_id == ask_id), None)


def holds_role(ask: Ask | PastAsk, caller: Caller) -> bool:
    """Whether the ask is for a role that this verified caller holds."""
    kind, _, role = ask.audience.partition(":")
    return kind == "role" and caller.principal is not None and role in caller.roles


def is_anonymous_conversation(found: Hydrated, caller: Caller) -> bool:
    """Whether nobody owns it and nobody asks: then the anonymous caller may answer either kind of ask."""
    return found.owner is None and caller.principal is None


# --- taking it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """An answer that was taken: the turn, and whether just now or by an earlier try of the same request."""

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
    _refuse_unfit(deps, decision)
    while True:
        done = _take(deps, found, asked, Decision(ask_id, decision, answered_by, deps.clock.now_ms(), mark))
        if done is not None:
            return done
        # Another write moved the ask on in between. An ask never opens again, so this look finds out why.
        found = deps.ledger.hydrate(found.key, history=False, turn=turn_of_ask(ask_id))
        if not found.exists:
            raise SessionNotFoundError(found.key.conversation_id)
        asked = found.wanted()


def _refuse_unfit(deps: Deps, decision: Any) -> None:
    if decision is ABSENT:
        raise DecisionRequiredError
    size_bytes, limit_bytes = len(to_text(decision, name="decision").encode()), deps.settings.max_message_bytes
    if size_bytes > limit_bytes:
        raise MessageTooLargeError(limit_bytes=limit_bytes, size_bytes=size_bytes)


def _take(deps: Deps, found: Hydrated, asked: TurnRecord | None, answer: Decision) -> Taken | None:
    """Judges the ask as it was read, and records the answer; None where that is no longer how the ask stands."""
    if asked is None or asked.ask is None or asked.ask.ask_id != answer.ask_id:
        return _over(deps, found, asked, answer)
    stale = _check(deps, asked, answer)
    if asked.decision is not None and asked.decision.ask_id == answer.ask_id:
        return _again(deps, asked, asked.decision, answer)
    if asked.status is not Status.AWAITING:
        raise NoPendingAskError(found.key.conversation_id)
    now_ms = deps.clock.now_ms()
    if asked.ask.expires_at_ms <= now_ms:
        raise AskExpiredError(expired_at_ms=asked.ask.expires_at_ms)
    if stale is not None:
        raise StaleDecisionError(ask_id=answer.ask_id, asked=stale.asked, answered=stale.answered) from stale
    if is_foreign_pause(asked):
        raise ForeignPauseError(known=[ENGINE], conversation_id=found.key.conversation_id)
    for past in asked.past_asks:
        _is_repeat(answer, past.mark)  # this key answered an earlier ask: 422
    found.conversation()  # one that cannot be read could not be gone on with: no decision is used up for it
    return _record(deps, asked, replace(answer, answered_at_ms=now_ms))


def _check(deps: Deps, asked: TurnRecord, answer: Decision) -> StaleDecisionError | None:
    """Whether the answer fits its ask. One about something that was not shown is judged behind the ask's own state."""
    try:
        check_answer(pause_data_of(deps, asked), answer.value)
    except StaleDecisionError as stale:
        return stale
    return None


def _record(deps: Deps, asked: TurnRecord, answer: Decision) -> Taken | None:
    store = deps.ledger.store
    answer = put_beside(store, asked, answer)
    deps.probe("answer put beside")
    decided = deps.ledger.decide(asked, answer, due_at_ms=answer.answered_at_ms + TAKEN_UP_ATTENTION_MS)
    if decided is None:
        take_back(store, asked, answer)
        return None
    deps.probe("decided")
    deps.note("answered", {"turn": decided.turn})
    # First the execution, which somebody waits for; the event is a hint for those who watch.
    wake(deps, decided)
    deps.events.tell("ask.closed", decided)
    return Taken(decided, is_new=True)


def _again(deps: Deps, asked: TurnRecord, decision: Decision, answer: Decision) -> Taken:
    """The ask has its answer: the same request gets its first reply, everybody else learns it; both signal again."""
    if asked.status is Status.ANSWERED or asked.is_dead(deps.clock.now_ms()):
        wake(deps, asked)
    if _is_repeat(answer, decision.mark):
        return Taken(asked, is_new=False)
    raise AlreadyAnsweredError(answered_at_ms=decision.answered_at_ms)


def _over(deps: Deps, found: Hydrated, asked: TurnRecord | None, answer: Decision) -> Taken:
    """Why an ask that is not open cannot be answered; a repeat of the request that answered it is told so."""
    past = next((one for one in asked.past_asks if one.ask_id == answer.ask_id), None) if asked is not None else None
    if asked is not None and past is not None:
        if past.ended != "answered":
            raise AskExpiredError(expired_at_ms=past.at_ms)
        if _is_repeat(answer, past.mark):
            return Taken(asked, is_new=False)
        raise AlreadyAnsweredError(answered_at_ms=past.at_ms)
    open_ask = _open_ask(deps, found)
    if open_ask is not None:
        raise StaleDecisionError(ask_id=open_ask.ask_id)
    raise NoPendingAskError(found.key.conversation_id)


def _open_ask(deps: Deps, found: Hydrated) -> Ask | None:
    turns = found.turns()
    if turns and turns[0].is_open and not found.whole:
        turns = deps.ledger.hydrate(found.key, last_turns=WIDER_LOOK_TURNS).turns()
    return next((turn.ask for turn in turns if turn.status is Status.AWAITING), None)


def _mark(deps: Deps, caller: Caller, idempotency: Idempotency | None) -> str:
    """Names the call that records a decision: the caller's request where it has a key, so that its repeat is known.

    The caller is part of it: two people who send the same key are two requests.
    """
    if idempotency is None:
        return deps.random_id(12)
    whose = hashlib.sha256(json.dumps([caller.principal, idempotency.hashed]).encode()).hexdigest()
    return f"{whose[:32]}:{idempotency.digest[:32]}"


def _is_repeat(answer: Decision, mark: str) -> bool:
    """Whether a recorded decision was this very request's.

    Raises:
        IdempotencyMismatchError: it was the same key's, with another body.
    """
    key, with_key, _ = answer.mark.partition(":")
    if not with_key or mark.partition(":")[0] != key:
        return False
    if mark != answer.mark:
        raise IdempotencyMismatchError
    return True


# --- waiting for the resume ---------------------------------------------------------------------------------


def _settled(deps: Deps, record: TurnRecord, ask_id: str, wait_ms: int, deadline: Deadline) -> TurnRecord:
    """The turn as it stands after the wait, or as soon as the resume of this ask has ended."""
    until = deps.clock.monotonic_ms() + min(wait_ms, max(0, deadline.left_ms() - REPLY_RESERVE_MS))
    while record.is_open and record.ask is not None and record.ask.ask_id == ask_id:
        if deps.clock.monotonic_ms() >= until:
            return record
        deps.clock.sleep_ms(between_looks_ms())
        again = deps.ledger.turn(record.key, record.turn)
        if again is None or again.epoch != record.epoch:
            raise SessionNotFoundError(record.key.conversation_id)
        record = again
    return record
