"""Who deletes what is old: a store says so itself, and nothing is guessed (CONTRACT.md 10.4).

One of two answers: the store sweeps when it is told to, or its backend expires by itself (DynamoDB's TTL attribute).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from turnkeep.errors import SessionRetentionUnavailableError

SWEEP_LIMIT: Final = 1000
"""Conversations that one sweep forgets at most where nothing else is said."""


@dataclass(frozen=True)
class Forgotten:
    """What a sweep did.

    Attributes:
        forgotten: how many conversations it forgot.
        more: whether older ones remain because of the limit.
    """

    forgotten: int
    more: bool


class Sweep(Protocol):
    """Forgets conversations whose ``savedAt`` is strictly less than ``before_ms``, owner index included."""

    def __call__(self, before_ms: int, *, limit: int = SWEEP_LIMIT) -> Forgotten:
        """Forgets at most ``limit`` (at least 1), oldest first. A repeat forgets nothing more."""
        ...


@dataclass(frozen=True)
class StoreRetention:
    """The store deletes, when it is told to."""

    forget_older_than: Sweep
    deleted_by: Literal["this-store"] = field(default="this-store", init=False)


@dataclass(frozen=True)
class BackendRetention:
    """The backend deletes by itself; there is nothing to call.

    Attributes:
        active: whether expiries are really being stamped.
        expires_on: the attribute that the backend expires on.
        enable_with: a sentence that says how to turn it on.
    """

    active: bool
    expires_on: str
    enable_with: str
    deleted_by: Literal["the-backend"] = field(default="the-backend", init=False)


Retention = StoreRetention | BackendRetention


def session_retention(store: Any, purpose: str) -> Retention:
    """The store's own answer to who deletes old conversations.

    Args:
        store: a session store; ``retention()`` is optional and looked for as a callable.
        purpose: what wants to know, in the program's own words, such as "the nightly job".

    Raises:
        SessionRetentionUnavailableError: the store has no answer, or one that is neither of the two.
    """
    ask = getattr(store, "retention", None)
    answer = ask() if callable(ask) else None
    if not isinstance(answer, StoreRetention | BackendRetention):
        raise SessionRetentionUnavailableError(purpose)
    return answer
