"""One turn: hydrate, may this caller, readers, attach or claim, run, commit. Three round trips in the usual case."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from turnkeep.errors import (
    AwaitingDecisionError,
    ConcurrentRunError,
    InvalidRequestError,
    MessageTooLargeError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from turnkeep.ledger.codec import to_text
from turnkeep.ledger.ledger import Contended
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.turns import normalize_host_turn
from turnkeep.usecases.admission import Entry
from turnkeep.usecases.ask_view import ask_view, is_audience
from turnkeep.usecases.asks import open_again, with_whole_ask
from turnkeep.usecases.door import refuse_stranger, verify
from turnkeep.usecases.ending import close_dead, close_dead_resume, expire, ring
from turnkeep.usecases.repeats import RUN_RESERVE_MS, Again, Repeats, Request
from turnkeep.usecases.run_claimed import history_before, run_claimed
from turnkeep.usecases.state import State, delete_after_s, lease_until_ms, look, new_run_id, widened
from turnkeep.usecases.waiting import LONGEST_MS, between_looks_ms

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency

__all__ = ["Request", "run_claimed", "take_turn"]

FLOOR_REACH = 1_000_000
"""How far a host's own counter may be ahead of the last turn."""

QUEUE_ATTENTION_MS = 60_000
"""When a queued turn that nobody began is rung for again."""


def take_turn(
    deps: Deps,
    caller: Caller,
    key: ConversationKey,
    *,
    message: str,
    host_turn: object = None,
    idempotency: Idempotency | None = None,
    wait_ms: int | None = None,
    respond_async: bool = False,
    deadline: Deadline,
) -> TurnRecord:
    """Takes one turn of a conversation, or tells what became of this very request before.

    Returns:
        The turn as it stands: complete, awaiting or queued; of a repeated request, whatever it is by now.

    Raises:
        MessageTooLargeError, UnstorableValueError, InvalidRequestError: nothing was stored.
        SessionNotFoundError: the conversation is not the caller's.
        ConcurrentRunError, AwaitingDecisionError: another turn is open, and nothing of this one is stored; of a
            repeated request: it runs, and ``wait_ms`` is over.
        IdempotencyMismatchError: the key was used with another body.
        AdmissionRefusedError: the admission policy refuses another turn of this caller now; no repeat is refused.
        UnreadableError: something stored cannot be read; nothing was changed.
        RunFailedError, TurnOutOfTimeError, ConversationMismatchError, LostClaimError: see ``Attempt.run``.
        StoreUnavailableError: nothing was lost; the same request may be sent again.
    """
    verify(deps, caller)
    _refuse_large(deps, message)
    taking = _Taking(deps, caller, key, Request(message, host_turn, idempotency, wait_ms, respond_async), deadline)
    while True:
        step = taking.once()
        if isinstance(step, TurnRecord):
            return step
        if step is Again.LATER:
            taking.pause()


def _refuse_large(deps: Deps, message: str) -> None:
    to_text(message, name="message")  # what is no Unicode is refused by name
    size_bytes, limit_bytes = len(message.encode()), deps.settings.max_message_bytes
    if size_bytes > limit_bytes:
        raise MessageTooLargeError(limit_bytes=limit_bytes, size_bytes=size_bytes)


class _Taking:
    """A request on its way to a turn: looks at the conversation, and does what follows from it."""

    def __init__(self, deps: Deps, caller: Caller, key: ConversationKey, request: Request, deadline: Deadline) -> None:
        self.deps, self.caller, self.key, self.request, self.deadline = deps, caller, key, request, deadline
        self.repeats = Repeats(deps, key, request, deadline)
        self.entry = Entry(deps, caller, key, request.idempotency)

    def once(self) -> TurnRecord | Again:
        """One look and what follows from it."""
        deps, mine = self.deps, self.request.idempotency
        hashed = mine.hashed if mine is not None else None
        if self.request.respond_async:
            # Whoever only queues a turn reads no history, and does not import the agent to ask how much it wants.
            found = deps.ledger.hydrate(self.key, history=False, request=hashed)
        else:
            found = look(deps, self.key, request=hashed)
        refuse_stranger(found, self.caller)
        earlier, stale_turn = self.repeats.earlier(found)
        if earlier is not None:
            return self.repeats.attach(earlier)
        self.entry.decide()
        state = State.of(found if self.request.respond_async else widened(deps, found))
        again = self._make_room(state)
        return self._claim(state, stale_turn) if again is None else again

    def pause(self) -> None:
        """Between two looks. The time runs out at some point, and then nothing was lost.

        Raises:
            StoreUnavailableError: it did.
        """
        if self.deadline.left_ms() <= RUN_RESERVE_MS:
            raise StoreUnavailableError
        self.deps.clock.sleep_ms(between_looks_ms())

    # --- a new turn -----------------------------------------------------------------------------------------

    def _make_room(self, state: State) -> Again | None:
        """Closes what is over and still stands open. None where nothing is open.

        Raises:
            ConcurrentRunError, AwaitingDecisionError: a turn is really open.
        """
        deps, now_ms = self.deps, self.deps.clock.now_ms()
        first = state.first_open
        if first is None:
            return None
        if first.is_dead(now_ms):
            close = close_dead if first.decision is None else close_dead_resume
            close(deps, first, state)
            return Again.AT_ONCE
        if first.status is Status.AWAITING and first.ask is not None:
            if first.ask.expires_at_ms <= now_ms:
                expire(deps, first, state)
                return Again.AT_ONCE
            self._refuse_awaiting(first)
        if self.request.respond_async and first.status in (Status.RUNNING, Status.QUEUED, Status.ANSWERED):
            return None
        return self._wait_or_refuse(first.turn)

    def _refuse_awaiting(self, first: TurnRecord) -> None:
        if first.task_token is None:
            open_again(self.deps, first)
        ask = with_whole_ask(self.deps, first).ask
        view = None if ask is None else ask_view(ask, to_audience=is_audience(ask, self.caller))
        raise AwaitingDecisionError(turn=first.turn, awaiting=view)

    def _wait_or_refuse(self, turn: int) -> Again:
        """Another turn is in the way: ``enqueue`` waits for it as long as there is time for a turn behind it."""
        if self.deps.settings.on_concurrent == "enqueue" and self.deadline.left_ms() > RUN_RESERVE_MS + LONGEST_MS:
            return Again.LATER
        raise ConcurrentRunError(turn=turn)

    def _claim(self, state: State, stale_turn: int | None) -> TurnRecord | Again:
        deps = self.deps
        record = self._record(state, self._number(state))
        # Before the claim: what cannot be read is refused before anything is stored.
        history = None if self.request.respond_async else history_before(deps, state, record.turn)
        stale = state.stale_conversation()
        if stale is not None:
            state = replace(state, conversation=deps.ledger.heal(stale, state.conversation))
        self.entry.count()
        try:
            claimed = deps.ledger.claim(
                record, stored=state.highest, request=self.repeats.record_of(record), stale_turn=stale_turn
            )
        except StoreUnavailableError:
            self._leave(record)
            raise
        if isinstance(claimed, Contended):
            return self._lost(claimed)
        deps.probe("claimed")
        deps.note("claimed", {"turn": record.turn, "attempt": 1, "runId": record.run_id})
        if record.status is Status.QUEUED:
            deps.note("queued", {"turn": record.turn})
            ring(deps, claimed)
            return claimed
        return run_claimed(deps, claimed, state, self.deadline, messages=[self._message], history=history)

    @property
    def _message(self) -> Message:
        return {"role": "user", "content": self.request.message}

    def _leave(self, record: TurnRecord) -> None:
        """The claim may have landed, and nobody runs it: the same request shall not have to wait its lease out."""
        if record.status is Status.RUNNING:
            try:
                self.deps.ledger.hand_back(record)
            except StoreUnavailableError as error:
                self.deps.note("lease_kept", {"turn": record.turn, "cause": type(error).__name__})

    def _number(self, state: State) -> int:
        floor = normalize_host_turn(self.request.host_turn)
        if floor > state.highest + FLOOR_REACH:
            raise InvalidRequestError(
                f"turn is a floor and may be at most the last turn + {FLOOR_REACH}.", fields=["turn"]
            )
        return max(floor, state.highest + 1)

    def _record(self, state: State, number: int) -> TurnRecord:
        deps, mine = self.deps, self.request.idempotency
        now_ms, queued = deps.clock.now_ms(), self.request.respond_async
        return TurnRecord(
            key=self.key,
            turn=number,
            status=Status.QUEUED if queued else Status.RUNNING,
            epoch=state.epoch or deps.random_id(12),
            run_id=new_run_id(deps, now_ms),
            lease_until_ms=0 if queued else lease_until_ms(deps, self.deadline),
            principal=self.caller.principal,
            previous=state.last.turn if state.last is not None else 0,
            started_at_ms=now_ms,
            base_count=state.base_count,
            user=self._message,
            request=mine.hashed if mine is not None else None,
            digest=mine.digest if mine is not None else None,
            due_at_ms=now_ms + QUEUE_ATTENTION_MS if queued else None,
            delete_after_s=delete_after_s(deps, state.last),
        )

    def _lost(self, contended: Contended) -> Again:
        """The failed write brought the winner: the same request attaches, another person does not exist here."""
        winner, mine = contended.winner, self.request.idempotency
        if winner is None or winner.status is Status.SKIPPED:
            return Again.LATER
        if winner.principal != self.caller.principal:
            raise SessionNotFoundError(self.key.conversation_id)
        if mine is not None and winner.request == mine.hashed:
            return Again.AT_ONCE
        self.deps.note("conflict", {"turn": winner.turn})
        if self.request.respond_async:
            return Again.LATER
        return self._wait_or_refuse(winner.turn)
