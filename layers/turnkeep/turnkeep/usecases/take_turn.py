"""One turn: hydrate, may this caller, readers, attach or claim, run, commit. Three round trips in the usual case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnkeep.errors import (
    AwaitingDecisionError,
    ConcurrentRunError,
    IdempotencyMismatchError,
    InvalidRequestError,
    MessageTooLargeError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from turnkeep.ledger.codec import to_text
from turnkeep.ledger.hydrate import Hydrated, load_segments
from turnkeep.ledger.ledger import Contended
from turnkeep.ledger.records import RequestRecord, Status, TurnRecord
from turnkeep.turns import normalize_host_turn
from turnkeep.usecases.ask_view import ask_view, is_audience
from turnkeep.usecases.asks import start_execution, with_whole_ask
from turnkeep.usecases.attempt import Attempt, Begin
from turnkeep.usecases.door import refuse_stranger, verify
from turnkeep.usecases.ending import close_dead, close_dead_resume, expire, ring
from turnkeep.usecases.state import State, delete_after_s, history_of, lease_until_ms, new_run_id, next_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency
from turnkeep.usecases.waiting import LONGEST_MS, between_looks_ms

FLOOR_REACH = 1_000_000
"""How far a host's own counter may be ahead of the last turn."""

RUN_RESERVE_MS = 3_000
"""With less than this left, a turn is not begun any more."""

QUEUE_ATTENTION_MS = 60_000
"""When a queued turn that nobody began is rung for again."""


@dataclass(frozen=True)
class Request:
    """A message as it came in.

    Attributes:
        host_turn: the host's own counter, a floor; whatever JSON it sent.
        wait_ms: how long a repeat waits for a turn that runs; None does not wait.
        respond_async: claim it as queued and ring for the worker.
    """

    message: str
    host_turn: object = None
    idempotency: Idempotency | None = None
    wait_ms: int | None = None
    respond_async: bool = False


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
        MessageTooLargeError, InvalidRequestError: nothing was stored.
        SessionNotFoundError: the conversation is not the caller's.
        ConcurrentRunError, AwaitingDecisionError: another turn is open; nothing of this one is stored.
        IdempotencyMismatchError: the key was used with another body.
        UnreadableError: something stored cannot be read; nothing was changed.
        RunFailedError, TurnOutOfTimeError, ConversationMismatchError, LostClaimError: see ``Attempt.run``.
        StoreUnavailableError: nothing was lost; the same request may be sent again.
    """
    verify(deps, caller)
    size_bytes = len(to_text(message, name="message").encode())
    if size_bytes > deps.settings.max_message_bytes:
        raise MessageTooLargeError(limit_bytes=deps.settings.max_message_bytes, size_bytes=size_bytes)
    request = Request(message, host_turn, idempotency, wait_ms, respond_async)
    while True:
        done = _Taking(deps, caller, key, request, deadline).once()
        if done is not None:
            return done
        _pause(deps, deadline)


class _Taking:
    """One look at the conversation and what follows from it; None means: look again."""

    def __init__(self, deps: Deps, caller: Caller, key: ConversationKey, request: Request, deadline: Deadline) -> None:
        self.deps, self.caller, self.key, self.request, self.deadline = deps, caller, key, request, deadline

    def once(self) -> TurnRecord | None:
        idempotency = self.request.idempotency
        found = self.deps.ledger.hydrate(
            self.key,
            last_turns=self.deps.settings.last_turns,
            history=not self.request.respond_async,
            request=idempotency.hashed if idempotency is not None else None,
        )
        refuse_stranger(found, self.caller)
        earlier, stale_turn = self._earlier(found)
        if earlier is not None:
            return self._attach(earlier, found)
        state = State.of(found)
        blocked = self._make_room(state)
        if blocked:
            return None
        return self._claim(state, stale_turn)

    # --- the same request, before ---------------------------------------------------------------------------

    def _earlier(self, found: Hydrated) -> tuple[TurnRecord | None, int | None]:
        """The turn that this request became before, or the number that an outdated record of it points at."""
        mine = self.request.idempotency
        if mine is None:
            return None, None
        for item in reversed(found.turn_items.values()):
            if item.get("request") == mine.hashed and item.get("epoch") == found.epoch:
                return self._checked(next(one for one in found.turns() if one.request == mine.hashed)), None
        record = found.request()
        if record is None:
            return None, None
        turn = self.deps.ledger.turn(self.key, record.turn)
        if turn is None or turn.request != mine.hashed or turn.epoch != found.epoch:
            return None, record.turn
        return self._checked(turn), None

    def _checked(self, turn: TurnRecord) -> TurnRecord:
        if self.request.idempotency is not None and turn.digest != self.request.idempotency.digest:
            raise IdempotencyMismatchError
        return turn

    def _attach(self, turn: TurnRecord, found: Hydrated) -> TurnRecord | None:
        """A repeat describes its turn as it stands; it waits for one that runs, and takes a dead one over."""
        waited_until = self.deps.clock.monotonic_ms() + min(
            self.request.wait_ms or 0, max(0, self.deadline.left_ms() - RUN_RESERVE_MS)
        )
        while turn.status is Status.RUNNING and not turn.is_dead(self.deps.clock.now_ms()):
            if self.deps.clock.monotonic_ms() >= waited_until:
                raise ConcurrentRunError(turn=turn.turn)
            self.deps.clock.sleep_ms(between_looks_ms())
            again = self.deps.ledger.turn(self.key, turn.turn)
            if again is None:
                raise SessionNotFoundError(self.key.conversation_id)
            turn = again
        if turn.status is Status.RUNNING and turn.decision is None:
            return self._take_over(turn)
        if turn.status is Status.AWAITING and turn.task_token is None:
            start_execution(self.deps, turn)
        return turn

    def _take_over(self, dead: TurnRecord) -> TurnRecord | None:
        """Goes on where the dead attempt of this very request stopped, from its durable prefix."""
        deps = self.deps
        state = State.of(deps.ledger.hydrate(self.key, last_turns=deps.settings.last_turns))
        loaded = load_segments(deps.ledger.store, [dead], deps.clock.now_ms())
        running = next_attempt(deps, dead, self.deadline, durable_segments=loaded.durable_segments[dead.turn])
        taken = deps.ledger.take_over(dead, running, state.conversation)
        if taken is None:
            return None
        deps.note("takeover", {"turn": taken.turn, "attempt": taken.attempt, "runId": taken.run_id})
        return run_claimed(deps, taken, state, self.deadline, messages=loaded.messages[dead.turn])

    # --- a new turn -----------------------------------------------------------------------------------------

    def _make_room(self, state: State) -> bool:
        """Closes what is over and still stands open; refuses, or says to look again, where a turn is really open."""
        deps, now_ms = self.deps, self.deps.clock.now_ms()
        first = state.first_open
        if first is None:
            return False
        if first.status is Status.RUNNING and first.is_dead(now_ms) and first.decision is None:
            close_dead(deps, first, state)
            return True
        if first.status is Status.AWAITING and first.ask is not None:
            if first.ask.expires_at_ms <= now_ms:
                expire(deps, first, state)
                return True
            if first.task_token is None:
                start_execution(deps, first)
            view = _view(with_whole_ask(deps, first), self.caller)
            raise AwaitingDecisionError(turn=first.turn, awaiting=view)
        if first.status is Status.RUNNING and first.is_dead(now_ms):
            close_dead_resume(deps, first, state)
            return True
        if self.request.respond_async and first.status in (Status.RUNNING, Status.QUEUED):
            return False
        if deps.settings.on_concurrent == "enqueue" and self.deadline.left_ms() > RUN_RESERVE_MS + LONGEST_MS:
            return True
        raise ConcurrentRunError(turn=first.turn)

    def _claim(self, state: State, stale_turn: int | None) -> TurnRecord | None:
        deps = self.deps
        number = self._number(state)
        stale = state.stale_conversation()
        if stale is not None:
            deps.ledger.heal(stale, state.conversation)
        record = self._record(state, number)
        claimed = deps.ledger.claim(
            record, stored=state.highest, request=self._request_record(record), stale_turn=stale_turn
        )
        if isinstance(claimed, Contended):
            return self._lost(claimed, state)
        deps.probe("claimed")
        deps.note("claimed", {"turn": record.turn, "attempt": 1, "runId": record.run_id})
        if record.status is Status.QUEUED:
            ring(deps, record)
            return record
        if record.user is None:
            raise InvalidRequestError("A turn needs a message.", fields=["message"])
        return run_claimed(deps, record, state, self.deadline, messages=[record.user])

    def _number(self, state: State) -> int:
        floor = self.request.host_turn
        if isinstance(floor, int | float) and not isinstance(floor, bool) and floor > state.highest + FLOOR_REACH:
            raise InvalidRequestError(
                f"turn is a floor and may be at most the last turn + {FLOOR_REACH}.", fields=["turn"]
            )
        return max(normalize_host_turn(floor), state.highest + 1)

    def _record(self, state: State, number: int) -> TurnRecord:
        deps, idempotency = self.deps, self.request.idempotency
        now_ms, queued = deps.clock.now_ms(), self.request.respond_async
        return TurnRecord(
            key=self.key,
            turn=number,
            status=Status.QUEUED if queued else Status.RUNNING,
            epoch=state.epoch or deps.random_id(12),
            run_id=new_run_id(deps),
            lease_until_ms=0 if queued else lease_until_ms(deps, self.deadline),
            principal=self.caller.principal,
            previous=state.highest if number == state.highest + 1 else state.highest + 1,
            started_at_ms=now_ms,
            base_count=state.base_count,
            user={"role": "user", "content": self.request.message},
            request=idempotency.hashed if idempotency is not None else None,
            digest=idempotency.digest if idempotency is not None else None,
            due_at_ms=now_ms + QUEUE_ATTENTION_MS if queued else None,
            delete_after_s=delete_after_s(deps, state.last),
        )

    def _request_record(self, record: TurnRecord) -> RequestRecord | None:
        if record.request is None or record.digest is None:
            return None
        until_s = self.deps.clock.now_ms() // 1000 + self.deps.settings.request_key_ttl_s
        return RequestRecord(record.request, record.turn, record.epoch, record.digest, until_s)

    def _lost(self, contended: Contended, state: State) -> TurnRecord | None:
        """The failed write brought the winner: the same request attaches, another person does not exist here."""
        winner, mine = contended.winner, self.request.idempotency
        if winner is None or winner.status is Status.SKIPPED:
            return None
        if winner.principal != self.caller.principal:
            raise SessionNotFoundError(self.key.conversation_id)
        if mine is not None and winner.request == mine.hashed:
            return None
        self.deps.note("conflict", {"turn": winner.turn})
        if self.deps.settings.on_concurrent == "enqueue" or self.request.respond_async:
            return None
        raise ConcurrentRunError(turn=winner.turn)


def run_claimed(
    deps: Deps, record: TurnRecord, state: State, deadline: Deadline, *, messages: Sequence[Message]
) -> TurnRecord:
    """Runs a claimed turn behind the history that counts."""
    history = history_of(deps.ledger, state.before(record.turn), whole=state.whole)
    begin = Begin(
        record=record,
        conversation=state.conversation,
        history=history.messages,
        history_turns=history.turns,
        left_out=history.left_out,
        messages=messages,
    )
    return Attempt(deps, begin, deadline).run()


def _view(record: TurnRecord, caller: Caller) -> dict[str, object] | None:
    return None if record.ask is None else ask_view(record.ask, to_audience=is_audience(record.ask, caller))


def _pause(deps: Deps, deadline: Deadline) -> None:
    """Between two looks; the time runs out at some point, and then nothing was lost."""
    if deadline.left_ms() <= RUN_RESERVE_MS:
        raise StoreUnavailableError
    deps.clock.sleep_ms(between_looks_ms())
