"""May this caller start another turn now? A port for a policy, the one that ships, and where it is asked.

Asked once the caller may open the conversation and the request is known to be no repeat: what attaches to a turn costs
nothing, and is never refused. Counted just before the claim: a request that meets another turn, or an open ask, has
used nothing up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from turnkeep.errors import AdmissionRefusedError
from turnkeep.ledger.spending import WINDOW_MS, Counter, Tally, leaves_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deps, Idempotency


@dataclass(frozen=True)
class RecentSpend:
    """What a caller has been admitted to within the window that ends now.

    Attributes:
        turns: how many turns.
        leaving: (milliseconds until they count no more, how many of them), the soonest first.
        window_ms: how long a turn counts, at least; at most a minute longer.
    """

    turns: int
    leaving: Sequence[tuple[int, int]] = ()
    window_ms: int = WINDOW_MS

    def until_fewer_ms(self, limit: int) -> int:
        """Milliseconds until fewer than ``limit`` turns count, if none is added."""
        left, after_ms = self.turns, 0
        for leaving_ms, count in self.leaving:
            if left < limit:
                break
            left, after_ms = left - count, leaving_ms
        return after_ms


@dataclass(frozen=True)
class Refusal:
    """The policy's no.

    Attributes:
        retry_after_s: seconds after which it may be a yes.
    """

    retry_after_s: int


class Admission(Protocol):
    """Decides who may start another turn. Pure: it may be asked again for one request, when others were counted."""

    def decide(self, principal: str | None, conversation: ConversationKey, spend: RecentSpend) -> Refusal | None:
        """None admits.

        Args:
            principal: the verified caller; None for the anonymous ones, who are one caller here.
            conversation: what the turn is for.
            spend: what the caller has been admitted to of late, this request not included.
        """
        ...


class TurnsPerHour:
    """The policy that ships: so many turns in any hour.

    Args:
        limit: at least 1.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError("a limit of turns is at least 1; without one there is no policy")
        self._limit = limit

    def decide(self, principal: str | None, conversation: ConversationKey, spend: RecentSpend) -> Refusal | None:
        """See ``Admission.decide``."""
        if spend.turns < self._limit:
            return None
        return Refusal(retry_after_s=max(1, -(-spend.until_fewer_ms(self._limit) // 1000)))


class Entry:
    """One request's way in. Without a policy it costs nothing.

    Args:
        deps: the ports; ``deps.admission`` is the policy.
        caller: who sends the message.
        key: the conversation.
        idempotency: the request's key, by which its repeat is known.
    """

    def __init__(self, deps: Deps, caller: Caller, key: ConversationKey, idempotency: Idempotency | None) -> None:
        self._deps, self._caller, self._key = deps, caller, key
        self._policy = deps.admission
        self._hashed = None if idempotency is None else idempotency.hashed
        self._counter: Counter | None = None
        self._tally = Tally()
        self._is_in = self._policy is None

    def decide(self) -> None:
        """Asks the policy, once a request. One round trip.

        Raises:
            AdmissionRefusedError: it refuses; nothing was counted.
            StoreUnavailableError: nobody could be asked.
        """
        if self._is_in or self._counter is not None:
            return
        deps = self._deps
        self._counter = Counter.of(
            deps.ledger.store, self._caller.principal, self._key, self._hashed, stamp=deps.random_id(9)
        )
        self._tally = self._counter.read(deps.clock.now_ms())
        self._judge(self._tally)

    def count(self) -> None:
        """Counts the turn, once a request; asks again where somebody else of this caller was counted meanwhile.

        One round trip, and one more for each that was.

        Raises:
            AdmissionRefusedError: by now the policy refuses; nothing was counted.
            StoreUnavailableError: it may have been counted.
        """
        if self._is_in or self._counter is None:
            return
        deps = self._deps
        mark_life_s = min(WINDOW_MS // 1000, deps.settings.request_key_ttl_s)
        while not self._is_in:
            moved = self._counter.count(self._tally, deps.clock.now_ms(), mark_life_s=mark_life_s)
            if moved is None:
                self._is_in = True
                deps.probe("admitted")
            else:
                self._tally = moved
                self._judge(moved)

    def _judge(self, tally: Tally) -> None:
        if tally.is_admitted:
            self._is_in = True
            return
        now_ms = self._deps.clock.now_ms()
        minutes = tally.minutes(now_ms)
        spend = RecentSpend(
            turns=sum(minutes.values()),
            leaving=[(leaves_ms(minute) - now_ms, count) for minute, count in minutes.items()],
        )
        refusal = None if self._policy is None else self._policy.decide(self._caller.principal, self._key, spend)
        if refusal is not None and not self._was_admitted():
            raise AdmissionRefusedError(retry_after_s=refusal.retry_after_s)

    def _was_admitted(self) -> bool:
        """Whether this very request was let in by an earlier try, which may be what filled the count just now."""
        if self._hashed is not None and self._counter is not None:
            self._is_in = self._counter.read(self._deps.clock.now_ms()).is_admitted
        return self._is_in
