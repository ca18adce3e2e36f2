"""How much an entry still counts: it fades with time and is refreshed by being read (CONTRACT.md 7.3)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BOOST: Final = 10.0


def decay_factor(entry: Mapping[str, Any], now_ms: float, policy: Mapping[str, Any] | None = None) -> float:
    """``2^(-age/halfLife) × min(boost^accessCount, 10)``; 1 where there is no policy.

    Args:
        entry: its ``lastAccessedAt`` (an age below 0 counts as 0), ``accessCount`` and ``decayPolicy``.
        now_ms: the present.
        policy: ``{"halfLifeMs", "accessBoost"}``; wins over the entry's own. A half-life of 0 forgets at once.
    """
    chosen = entry.get("decayPolicy") if policy is None else policy
    if chosen is None:
        return 1.0
    age_ms = max(0.0, now_ms - entry["lastAccessedAt"])
    return _fading(age_ms, chosen["halfLifeMs"]) * _boost(chosen["accessBoost"], entry["accessCount"])


def _fading(age_ms: float, half_life_ms: float) -> float:
    if half_life_ms <= 0:
        return 1.0 if age_ms == 0 else 0.0
    return float(2.0 ** -(age_ms / half_life_ms))


def _boost(base: float, reads: float) -> float:
    try:
        return min(float(max(base, sys.float_info.epsilon) ** reads), MAX_BOOST)
    except OverflowError:
        return MAX_BOOST
