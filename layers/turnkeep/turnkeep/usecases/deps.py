"""What every use case is given: ports and settings in one frozen value, composed in ``entry.wiring``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import AgentFactory, DurabilityMode
    from turnkeep.clock import Clock
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.ledger import Ledger
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.admission import Admission


@dataclass(frozen=True)
class Caller:
    """Who is calling, as the gateway verified it. An anonymous caller has no principal, no tenant and no roles."""

    principal: str | None = None
    tenant: str | None = None
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Settings:
    """The stack's parameters.

    Attributes:
        allow_anonymous: tokenless callers come in (the local stack; on AWS only with ``AllowAnonymous``).
        on_concurrent: ``reject`` (409) or ``enqueue`` (wait inside the time that is left).
        retention_days: 0 keeps.
        turns_per_hour: admission's limit per principal; 0 is off.
        deadline_margin_ms: how long before Lambda's own deadline a run is stopped, so that the answer still leaves.
    """

    allow_anonymous: bool = False
    durability: DurabilityMode = "exit"
    ask_expires_s: int = 604_800
    retention_days: int = 0
    max_message_bytes: int = 262_144
    on_concurrent: str = "reject"
    request_key_ttl_s: int = 86_400
    turns_per_hour: int = 0
    deadline_margin_ms: int = 1_500


class PauseGate(Protocol):
    """Step Functions, as far as paused runs need it."""

    def start(self, record: TurnRecord) -> None:
        """Starts the execution that waits on the record's ask. Starting twice is one execution.

        Raises:
            StoreUnavailableError: it could not be started now; ``reconcile`` starts it later.
            ExecutionClosedError: an execution of this name has ended; the next start number is free.
        """
        ...

    def signal(self, token: str) -> bool:
        """Tells the waiting execution that the decision is recorded. False when the token is used, gone or unknown.

        Raises:
            StoreUnavailableError: it could not be told now.
        """
        ...

    def stop(self, record: TurnRecord, cause: str) -> None:
        """Ends the execution that waits on the record's ask; quiet when there is none."""
        ...


class Doorbell(Protocol):
    """The queue: rings for a conversation that has a queued turn."""

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        """Sends the message. ``again`` makes a ring that was made before a new one.

        Raises:
            StoreUnavailableError: it could not be sent now; ``reconcile`` rings later.
        """
        ...


class EventSink(Protocol):
    """Where "ask opened", "ask closed" and "turn ended" are told, ids only. Never raises into a turn."""

    def tell(self, kind: str, record: TurnRecord) -> None:
        """Tells it."""
        ...


class Deadline(Protocol):
    """The time that this process has."""

    def left_ms(self) -> int:
        """Milliseconds until the process is killed, by the monotonic clock."""
        ...


@dataclass(frozen=True)
class FixedDeadline:
    """A deadline at a point of the monotonic clock."""

    clock: Clock
    at_monotonic_ms: int

    @classmethod
    def after(cls, clock: Clock, duration_ms: int) -> FixedDeadline:
        """The deadline that is so many milliseconds away."""
        return cls(clock, clock.monotonic_ms() + duration_ms)

    def left_ms(self) -> int:
        """Milliseconds until the deadline; 0 behind it."""
        return max(0, self.at_monotonic_ms - self.clock.monotonic_ms())


@dataclass(frozen=True)
class Idempotency:
    """An Idempotency-Key as the ledger keeps it: its hash, and the digest of the body compared as JSON."""

    hashed: str
    digest: str


def _nothing(name: str, facts: dict[str, Any]) -> None:
    return None


def _everything() -> int | None:
    return None


@dataclass(frozen=True)
class Deps:
    """The ports.

    Attributes:
        factory: builds the agent, once per turn.
        probe: called at named points (``claimed``, ``committed``, ``started``, …) so that a test can crash there.
        note: told what happened, for logs and metrics: a name and facts without content.
        random_id: mints ids that nobody can guess (URL-safe text).
        last_turns: how many earlier turns the factory's agents want to see; None: all. Asked only by what is about to
            run a turn, because asking may import the agent.
        admission: who may start another turn; None: everybody, at no cost.
    """

    ledger: Ledger
    clock: Clock
    factory: AgentFactory
    gate: PauseGate
    doorbell: Doorbell
    events: EventSink
    settings: Settings
    random_id: Callable[[int], str]
    probe: Callable[[str], None] = lambda point: None
    note: Callable[[str, dict[str, Any]], None] = field(default=_nothing)
    last_turns: Callable[[], int | None] = _everything
    admission: Admission | None = None
