"""What operators see: one JSON line an invocation, and metrics beside it. Never content, tokens or principals.

A line is built from an allowlist: facts whose names are not in it are dropped, so that nothing a use case happens to
mention can leak. Of an exception the class, its code and the frames are logged and never its message, which may repeat
what somebody said; turnkeep's own errors are the exception, as their sentences hold no content (``errors``).
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections import Counter
from functools import lru_cache
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, cast

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from turnkeep.clock import Clock, SystemClock
from turnkeep.errors import TurnkeepError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import EventSink

LOGGED_FACTS: Final = {
    "conversationId": "conversation",
    "turn": "turn",
    "attempt": "attempt",
    "runId": "run",
    "askId": "ask",
    "outcome": "outcome",
    "status": "status",
    "code": "code",
    "cause": "cause",
    "route": "route",
    "method": "method",
    "action": "action",
    "requestId": "request_id",
    "lag_ms": "lag_ms",
    "queuedMs": "queued_ms",
    "again": "again",
    "writer": "writer",
}
"""The facts that a line may hold, by the name under which it holds them."""

COUNTED: Final = {
    "claimed": "TurnsClaimed",
    "queued": "TurnsQueued",
    "paused": "TurnsPaused",
    "conflict": "ClaimsLost",
    "closed_dead": "DeadTurnsClosed",
    "restarted": "ExecutionsRestarted",
    "erased": "ConversationsErased",
    "ring_failed": "RingsFailed",
    "answered": "Answers",
    "resumed": "Resumes",
    "takeover": "Takeovers",
    "segment": "DurableWrites",
    "out_of_time": "TurnsOutOfTime",
    "lease_kept": "LeasesKept",
    "start_failed": "StartsFailed",
    "signal_failed": "SignalsFailed",
    "stop_failed": "StopsFailed",
    "event_failed": "EventsFailed",
    "memory_failed": "MemoryWritesFailed",
    "reconcile_failed": "ReconcileFailures",
}
"""Notes of the use cases that are metrics. Any other note is counted in the line only."""

OUTCOMES: Final = {
    "complete": "TurnsComplete",
    "failed": "TurnsFailed",
    "refused": "TurnsRefused",
    "expired": "TurnsExpired",
    "cancelled": "TurnsCancelled",
}
"""How turns end. Each is counted once, by whoever ended it: a repeat that is told of it counts nothing."""

RAN: Final = frozenset({"claimed", "begun", "resumed", "takeover"})
"""Notes of an invocation that ran a turn, whose duration is therefore a metric, unless it only queued one."""

REFUSALS_COUNTED: Final = {
    "ERR_CONCURRENT_RUN": "Conflicts",
    "ERR_ADMISSION_REFUSED": "AdmissionsRefused",
    "ERR_STORE_UNAVAILABLE": "StoreUnavailable",
    "ERR_INTERNAL": "InternalErrors",
}

MAX_FRAMES: Final = 24


class Sink(Protocol):
    """Where a line and its metrics go."""

    def line(self, message: str, facts: Mapping[str, Any], *, is_fault: bool) -> None:
        """Writes one line."""
        ...

    def metrics(self, counts: Mapping[str, int], durations_ms: Mapping[str, int]) -> None:
        """Publishes counts and durations."""
        ...


class CountsCalls(Protocol):
    """A store that counts what is asked of it."""

    @property
    def round_trips(self) -> int:
        """Times that the invocation waited for the store; what goes side by side is one."""
        ...

    @property
    def calls(self) -> int:
        """Single calls, tried again ones included."""
        ...


class _Stdout(io.TextIOBase):
    """Wherever standard output goes when a line is written, not when the logger was made: forks redirect it."""

    def write(self, text: str, /) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


class PowertoolsSink:
    """Lines through Powertools' Logger (JSON), metrics as CloudWatch's embedded metric format."""

    def __init__(self) -> None:
        service = os.environ.get("POWERTOOLS_SERVICE_NAME") or "turnkeep"
        self._logger = Logger(service=service, location=None, stream=cast(IO[str], _Stdout()))

    def line(self, message: str, facts: Mapping[str, Any], *, is_fault: bool) -> None:
        """Writes one line, at the level ERROR where it is a fault of ours."""
        (self._logger.error if is_fault else self._logger.info)(message, extra=dict(facts))

    def metrics(self, counts: Mapping[str, int], durations_ms: Mapping[str, int]) -> None:
        """Publishes counts and durations under the service's name."""
        metrics = EphemeralMetrics(
            namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE") or "turnkeep",
            service=os.environ.get("POWERTOOLS_SERVICE_NAME") or "turnkeep",
        )
        for name, count in counts.items():
            metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
        for name, duration_ms in durations_ms.items():
            metrics.add_metric(name=name, unit=MetricUnit.Milliseconds, value=duration_ms)
        metrics.flush_metrics()


@lru_cache(maxsize=1)
def powertools_sink() -> PowertoolsSink:
    """The process's sink, made when the first line is written."""
    return PowertoolsSink()


class InvocationFailedError(Exception):
    """Leaves a function instead of an error that is not turnkeep's, and says no more than its class.

    Lambda's runtime writes what an error says into the log, and Step Functions into the execution's history; a foreign
    error may repeat what somebody said.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{_class_of(error)}; this invocation's log line has the frames.")


class Observation:
    """What one invocation did: collects facts while it runs, and tells them once at its end.

    Use it as a context manager; an exception that passes through is told and passes on: turnkeep's own as they are,
    a foreign one as ``InvocationFailedError``.

    Args:
        what: the line's message, such as ``request`` or ``resume``.
        sink: where it goes; by default Powertools.
        store: asked at the end how much was asked of it.
    """

    def __init__(
        self,
        what: str,
        *,
        sink: Sink | None = None,
        clock: Clock | None = None,
        store: CountsCalls | None = None,
    ) -> None:
        self.what = what
        self._sink = sink
        self._clock = clock or SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self.store = store
        self.facts: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.durations_ms: dict[str, int] = {}
        self.is_fault = False

    def note(self, name: str, facts: Mapping[str, Any]) -> None:
        """``Deps.note``: counts it, keeps the facts that may be logged, and describes an error."""
        self.notes[name] += 1
        if name in COUNTED:
            self.counts[COUNTED[name]] += 1
        self.tell(**facts)
        if isinstance(error := facts.get("error"), BaseException):
            self.describe(error)

    def tell(self, **facts: Any) -> None:
        """Keeps facts for the line; those that it may not hold are dropped, and values are bounded."""
        for name, value in facts.items():
            if name in LOGGED_FACTS and isinstance(value, str | int):
                self.facts[LOGGED_FACTS[name]] = value[:512] if isinstance(value, str) else value
            if name == "lag_ms" and isinstance(value, int):
                self.durations_ms["QueueLag"] = value

    def outcome(self, status: str) -> None:
        """Says in the line how a turn stood when the invocation ended."""
        self.tell(outcome=status)

    def ended(self, status: str) -> None:
        """Counts a turn that this invocation ended."""
        if status in OUTCOMES:
            self.counts[OUTCOMES[status]] += 1

    def refused(self, error: BaseException, code: str, *, is_fault: bool) -> None:
        """Counts a refusal by its code, and describes the error where it is a fault of ours."""
        self.tell(code=code)
        if code in REFUSALS_COUNTED:
            self.counts[REFUSALS_COUNTED[code]] += 1
        if is_fault:
            self.is_fault = True
            self.describe(error)

    def describe(self, error: BaseException) -> None:
        """Keeps an exception's class, code and frames, and those of its causes."""
        self.facts["error"] = describe(error)

    def finish(self) -> None:
        """Writes the line and the metrics."""
        sink = self._sink or powertools_sink()
        duration_ms = self._clock.monotonic_ms() - self._began_ms
        facts = dict(self.facts) | {"duration_ms": duration_ms}
        if RAN & self.notes.keys() and "queued" not in self.notes:
            self.durations_ms["TurnDuration"] = duration_ms
        if self.store is not None:
            facts |= {"store_round_trips": self.store.round_trips, "store_calls": self.store.calls}
        if self.notes:
            facts["notes"] = dict(self.notes)
        sink.line(self.what, facts, is_fault=self.is_fault)
        if self.counts or self.durations_ms:
            sink.metrics(self.counts, self.durations_ms)

    def __enter__(self) -> Observation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.is_fault = True
            self.describe(error)
        self.finish()
        if isinstance(error, Exception) and not isinstance(error, TurnkeepError):
            raise InvocationFailedError(error) from None


class CountedEvents:
    """Passes events on, and counts the turns that end."""

    def __init__(self, sink: EventSink, observation: Observation) -> None:
        self._sink, self._observation = sink, observation

    def tell(self, kind: str, record: TurnRecord) -> None:
        """See ``EventSink.tell``."""
        if kind == "turn.ended":
            self._observation.ended(record.status.value)
        self._sink.tell(kind, record)


def describe(error: BaseException) -> list[dict[str, Any]]:
    """An exception and its causes, outermost first, without what they say.

    Returns:
        For each ``{"class", "says"?, "code"?, "operation"?, "at"}``; ``says`` only of turnkeep's own errors, ``at`` is
        ``file:line function``, innermost frame last.
    """
    found: list[dict[str, Any]] = []
    one: BaseException | None = error
    while one is not None and len(found) < 5:
        entry: dict[str, Any] = {"class": _class_of(one)}
        if isinstance(one, TurnkeepError):
            entry["says"] = str(one)
        response = getattr(one, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):  # botocore's ClientError
            entry["code"] = str(response["Error"].get("Code", ""))[:80]
            entry["operation"] = str(getattr(one, "operation_name", ""))[:80]
        frames = traceback.extract_tb(one.__traceback__)[-MAX_FRAMES:]
        entry["at"] = [f"{'/'.join(PurePath(f.filename).parts[-3:])}:{f.lineno} {f.name}" for f in frames]
        found.append(entry)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def _class_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"
