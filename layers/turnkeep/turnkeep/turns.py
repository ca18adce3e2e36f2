"""Which turn this is: ``max(host turn, highest stored turn + 1)`` (CONTRACT.md 9; invariant 2).

A number from here is a proposal: only a claim that is won makes it a turn's number. Nothing here catches what a
store raises, because a turn guessed past a failing store could be given out twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from turnkeep.json_values import ABSENT

PAGE_LIMIT: Final = 1000
"""Entries asked for at once; as many as the reference's stores hand out at most."""

MAX_PAGES: Final = 100
"""Pages read of one store. A cursor that never ends must not hold a turn up for ever."""


class TurnStore(Protocol):
    """A store whose entries know their turn.

    A store may also offer ``highest_turn(identity) -> int``: the highest turn among its live entries, 0 where there
    is none. It is then asked instead of being scanned.
    """

    def list(self, identity: Mapping[str, Any], *, cursor: Any = None, limit: int = PAGE_LIMIT) -> Any:
        """One page of the identity's live entries (expired ones are left out), in any order.

        Args:
            identity: ``{"tenant"?, "principal"?, "conversationId"}``.
            cursor: what the page before handed out; None for the first page.
            limit: how many entries at most.

        Returns:
            A mapping or an object with ``entries`` (mappings or objects with an optional ``source`` that has an
            optional ``turn``) and ``cursor``, absent or None on the last page. An empty string is a cursor, and an
            empty page with a cursor is not the last one.
        """
        ...


def normalize_host_turn(value: Any = ABSENT) -> int:
    """A host's own counter as a turn number, at least 1.

    Floors, never truncates. What is no finite number counts as 1: absent, None, text, lists, NaN, infinities, and
    booleans, which are numbers in Python only.
    """
    return max(_whole(value), 1)


def max_stored_turn(store: TurnStore, identity: Mapping[str, Any], turn_for: Callable[[Any], Any] | None = None) -> int:
    """The highest turn among a store's live entries; 0 where there is none.

    Pages through the store until there is no cursor, a page hands out the cursor of the page before, or
    ``MAX_PAGES`` pages are read. What the store raises passes through.

    Args:
        store: the store to ask.
        identity: whose entries.
        turn_for: reads the turn off an entry; by default its ``source.turn``. With it a store is always scanned, as
            its own ``highest_turn`` knows nothing of this reading. Whatever is no finite number counts as 0.
    """
    direct = getattr(store, "highest_turn", None)
    if turn_for is None and callable(direct):
        return max(_whole(direct(identity)), 0)
    read_turn = _source_turn if turn_for is None else turn_for
    highest = 0
    cursor: Any = None
    for _ in range(MAX_PAGES):
        page = store.list(identity, cursor=cursor, limit=PAGE_LIMIT)
        highest = max([highest, *(_whole(read_turn(entry)) for entry in _member(page, "entries"))])
        following = _member(page, "cursor")
        # An empty string is a cursor, so this asks for presence and not for truth.
        if following is None or following is ABSENT or following == cursor:
            break
        cursor = following
    return highest


def resolve_turn_number(stores: Iterable[TurnStore], identity: Mapping[str, Any], host_turn: Any = ABSENT) -> int:
    """The number of the turn that is about to be claimed: ``max(host turn, highest stored + 1)``, at least 1.

    Resolve once per run. A store that is listed twice is asked once; the first one that raises ends it all, and the
    later ones are not asked.

    Args:
        stores: the stores that this run writes to, in order.
        identity: whose turn it is.
        host_turn: the host's own counter, a floor (see ``normalize_host_turn``).
    """
    distinct = {id(store): store for store in stores}
    highest = max((max_stored_turn(store, identity) for store in distinct.values()), default=0)
    return max(normalize_host_turn(host_turn), highest + 1)


def _whole(value: Any) -> int:
    """The number rounded down; 0 for what is no finite number."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, float):
        return math.floor(value) if math.isfinite(value) else 0
    return value if isinstance(value, int) else 0


def _source_turn(entry: Any) -> Any:
    return _member(_member(entry, "source"), "turn")


def _member(holder: Any, name: str) -> Any:
    return holder.get(name, ABSENT) if isinstance(holder, Mapping) else getattr(holder, name, ABSENT)
