"""How long to wait between two looks at something that somebody else moves."""

from __future__ import annotations

import random

SHORTEST_MS, LONGEST_MS = 60, 240


def between_looks_ms() -> float:
    """A pause with jitter, so that many who wait do not look at once."""
    return random.uniform(SHORTEST_MS, LONGEST_MS)
