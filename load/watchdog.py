"""Ends a run whose time is up, whatever it is doing, and says what it was doing."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


class OutOfTime(BaseException):
    """The run took longer than it may. No ``Exception``, so that nothing on the way lives with it."""


@contextmanager
def watched(limit_s: int) -> Iterator[None]:
    """Raises `OutOfTime` in the main thread once so many seconds are over; a SIGTERM ends it the same way."""

    def too_late(number: int, frame: Any) -> NoReturn:
        raise OutOfTime(f"the run was not over after {limit_s} s")

    def ended(number: int, frame: Any) -> NoReturn:
        raise OutOfTime("the run was told to end")

    before = signal.signal(signal.SIGALRM, too_late), signal.signal(signal.SIGTERM, ended)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGTERM, before[1])
