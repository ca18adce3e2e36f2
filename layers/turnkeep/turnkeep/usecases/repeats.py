"""The same request again: it finds the turn that it became, waits for it, describes it, or takes it over."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from turnkeep.errors import ConcurrentRunError, IdempotencyMismatchError, SessionNotFoundError
from turnkeep.ledger.hydrate import load_segments
from turnkeep.ledger.parsing import made_by, turn_record
from turnkeep.ledger.records import RequestRecord, Status, TurnRecord
from turnkeep.usecases.asks import load_output, open_again, with_whole_ask
from turnkeep.usecases.ending import ring
from turnkeep.usecases.run_claimed import history_before, run_claimed
from turnkeep.usecases.state import State, look, next_attempt, widened
from turnkeep.usecases.waiting import between_looks_ms

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Deadline, Deps, Idempotency

RUN_RESERVE_MS = 3_000
"""With less than this left, nobody waits for another turn any more."""


@dataclass(frozen=True)
class Request:
    """A message as it came in.

    Attributes:
        host_turn: the host's own counter, a floor; whatever JSON it sent.
        wait_ms: how long a repeat waits for a turn that has not ended; None does not wait.
        respond_async: claim it as queued and ring for the worker.
    """

    message: str
    host_turn: object = None
    idempotency: Idempotency | None = None
    wait_ms: int | None = None
    respond_async: bool = False


class Again(Enum):
    """The conversation has to be looked at once more."""

    AT_ONCE = auto()
    """Because this process, or another one, has just moved something."""
    LATER = auto()
    """Because something has to move first."""


class Repeats:
    """A request's own turns: those that an earlier try of it became."""

    def __init__(self, deps: Deps, key: ConversationKey, request: Request, deadline: Deadline) -> None:
        self.deps, self.key, self.request, self.deadline = deps, key, request, deadline

    def earlier(self, found: Hydrated) -> tuple[TurnRecord | None, int | None]:
        """The turn that this request became before, or the number that an outdated record of it points at.

        Raises:
            IdempotencyMismatchError: the key was used with another body.
        """
        mine = self.request.idempotency
        if mine is None:
            return None, None
        noted = found.request()
        for item in reversed(found.turn_items.values()):
            if made_by(item, mine.hashed):
                turn = turn_record(item, self.key)
                if self._key_lives(turn):
                    self._note_again(turn, noted)
                    return self._checked(turn), None
        if noted is None:
            return None, None
        if noted.turn == 0 and noted.epoch == found.epoch:
            raise IdempotencyMismatchError  # it created this conversation, without a message
        pointed = self.deps.ledger.turn(self.key, noted.turn)
        if pointed is None or pointed.request != mine.hashed or pointed.epoch != found.epoch:
            return None, noted.turn
        return self._checked(pointed), None

    def _key_lives(self, turn: TurnRecord) -> bool:
        return turn.started_at_ms // 1000 + self.deps.settings.request_key_ttl_s > self.deps.clock.now_ms() // 1000

    def _checked(self, turn: TurnRecord) -> TurnRecord:
        if self.request.idempotency is not None and turn.digest != self.request.idempotency.digest:
            raise IdempotencyMismatchError
        return turn

    def _note_again(self, turn: TurnRecord, noted: RequestRecord | None) -> None:
        """The turn landed and the request's own record did not: later repeats would not find an older turn."""
        request = self.record_of(turn)
        if request is not None and (noted is None or noted.turn != turn.turn):
            self.deps.ledger.note_request(turn, request, None if noted is None else noted.turn)

    def attach(self, turn: TurnRecord) -> TurnRecord | Again:
        """A repeat describes its turn as it stands; it waits for one that has not ended, and takes a dead one over."""
        deps = self.deps
        wait_ms = min(self.request.wait_ms or 0, max(0, self.deadline.left_ms() - RUN_RESERVE_MS))
        until = deps.clock.monotonic_ms() + wait_ms
        while self._moves(turn) and deps.clock.monotonic_ms() < until:
            deps.clock.sleep_ms(between_looks_ms())
            again = deps.ledger.turn(self.key, turn.turn)
            if again is None or again.epoch != turn.epoch:
                raise SessionNotFoundError(self.key.conversation_id)
            turn = again
        if turn.status is Status.RUNNING and turn.decision is None:
            if not turn.is_dead(deps.clock.now_ms()):
                raise ConcurrentRunError(turn=turn.turn)
            return self._take_over(turn)
        if turn.status is Status.QUEUED:
            ring(deps, turn)
        if turn.status is Status.AWAITING and turn.task_token is None:
            open_again(deps, turn)
        return load_output(deps, with_whole_ask(deps, turn))

    def _moves(self, turn: TurnRecord) -> bool:
        """Whether somebody is at work on the turn, or about to be."""
        if turn.status is Status.RUNNING:
            return not turn.is_dead(self.deps.clock.now_ms())
        return turn.status in (Status.QUEUED, Status.ANSWERED)

    def _take_over(self, dead: TurnRecord) -> TurnRecord | Again:
        """Goes on where the dead attempt of this very request stopped, from its durable prefix."""
        deps = self.deps
        state = State.of(widened(deps, look(deps, self.key), turn=dead.turn))
        history = history_before(deps, state, dead.turn)
        loaded = load_segments(deps.ledger.store, [dead], deps.clock.now_ms())
        running = next_attempt(deps, dead, self.deadline, durable_segments=loaded.durable_segments[dead.turn])
        taken = deps.ledger.take_over(dead, running, state.conversation)
        if taken is None:
            return Again.AT_ONCE
        deps.probe("taken over")
        deps.note("takeover", {"turn": taken.turn, "attempt": taken.attempt, "runId": taken.run_id})
        messages = loaded.messages[dead.turn]
        return run_claimed(deps, taken, state, self.deadline, messages=messages, history=history)

    def record_of(self, record: TurnRecord) -> RequestRecord | None:
        """What the ledger keeps of the request beside its turn; None where it has no Idempotency-Key."""
        if record.request is None or record.digest is None:
            return None
        until_s = record.started_at_ms // 1000 + self.deps.settings.request_key_ttl_s
        return RequestRecord(record.request, record.turn, record.epoch, record.digest, until_s)
