"""Time as a port: nothing else in turnkeep reads a clock.

Wall time (``now_ms``) is for records that people and other processes read. A run checks its own lease with
``monotonic_ms``, which no clock adjustment moves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time in integer milliseconds, and a way to wait."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        ...

    def sleep_ms(self, duration_ms: float) -> None:
        """Waits."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        """Waits on the real clock."""
        time.sleep(max(0.0, duration_ms) / 1000)


@dataclass
class ManualClock:
    """A clock that stands still until it is moved; waiting moves it (for tests and simulations)."""

    wall_ms: int = 1_700_000_000_000
    steady_ms: int = field(default=0)

    def now_ms(self) -> int:
        """The set wall time."""
        return self.wall_ms

    def monotonic_ms(self) -> int:
        """The set monotonic time."""
        return self.steady_ms

    def advance_ms(self, duration_ms: int) -> None:
        """Moves both clocks on."""
        self.wall_ms += duration_ms
        self.steady_ms += duration_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Moves both clocks on instead of waiting."""
        self.advance_ms(int(duration_ms))
