"""Stretches of time, such as waits for AWS, and how long they took together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Span = tuple[int, int]
"""Where a stretch began and where it ended."""


def covered(spans: Iterable[Span]) -> int:
    """How much time lies in at least one of the stretches: what goes side by side counts once."""
    total, reached = 0, None
    for begin, end in sorted(spans):
        if reached is None or begin > reached:
            total += max(0, end - begin)
            reached = max(begin, end)
        elif end > reached:
            total += end - reached
            reached = end
    return total
