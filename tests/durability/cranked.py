"""Stand-ins for the executor and the store whose writes a test ends by hand."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from turnkeep.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 20.0


class StoreFault(StoreUnavailableError):
    """A store's own refusal, with a text to tell one from another."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.args = (text,)


class CrankedExecutor:
    """Runs no write by itself: ``land`` runs the oldest one, ``fail`` ends it with an error instead."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.most_in_flight = 0
        self.closed = 0
        self._in_flight: deque[tuple[Callable[[Any], None], Any, Callable[[BaseException | None], None]]] = deque()

    def start(self, write: Callable[[Any], None], snapshot: Any, ended: Callable[[BaseException | None], None]) -> None:
        self.started.append(snapshot)
        self._in_flight.append((write, snapshot, ended))
        self.most_in_flight = max(self.most_in_flight, len(self._in_flight))

    def close(self, timeout_s: float | None = None) -> bool:
        self.closed += 1
        return not self._in_flight

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def land(self) -> None:
        write, snapshot, ended = self._in_flight.popleft()
        write(snapshot)
        ended(None)

    def fail(self, error: BaseException) -> None:
        _, _, ended = self._in_flight.popleft()
        ended(error)


class GatedStore:
    """A store whose ``write`` really blocks its thread until the test lets it land or fail."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.landed: list[Any] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._verdicts: deque[BaseException | None] = deque()
        self._changed = threading.Condition()

    def write(self, snapshot: Any) -> None:
        with self._changed:
            self.entered.append(snapshot)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._verdicts, PATIENCE_S), "nobody ended this write"
            verdict = self._verdicts.popleft()
            self.in_flight -= 1
            if verdict is None:
                self.landed.append(snapshot)
            self._changed.notify_all()
        if verdict is not None:
            raise verdict

    def land(self) -> None:
        self._end(None)

    def fail(self, error: BaseException) -> None:
        self._end(error)

    def _end(self, verdict: BaseException | None) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.in_flight, PATIENCE_S), "no write to end"
            self._verdicts.append(verdict)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: not self._verdicts, PATIENCE_S), "the write did not end"

    def wait_until_entered(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.entered) >= count, PATIENCE_S), "a write was not started"


class Caller:
    """A call that may block, on a thread of its own: pending, resolved, or rejected with an error."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.error = error

    @property
    def pending(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the call never returned"


def until(holds: Callable[[], bool]) -> None:
    """Polls a condition that another thread is about to make true."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.001)):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("never came true")
