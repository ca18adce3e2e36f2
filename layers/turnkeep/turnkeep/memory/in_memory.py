"""A memory store in this process: for tests, the local stack and examples. It checks and copies like every other."""

from __future__ import annotations

import itertools
import json
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from turnkeep.clock import Clock, SystemClock
from turnkeep.identity import identity_namespace
from turnkeep.json_values import is_number
from turnkeep.memory.entries import Entry, Identity, entry_text, has_expired
from turnkeep.memory.paging import read_cursor, write_cursor
from turnkeep.memory.ranking import most_alike
from turnkeep.memory.store import DEFAULT_K, DEFAULT_LIMIT, Applied, Feedback, Found, Page, bounded_limit, in_tiers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass
class _Row:
    """An entry as text, with what is needed to find it; ``order`` is when its id first came."""

    text: str
    order: int
    updated_at: float
    version: float
    ttl: Any
    tier: Any

    def entry(self) -> Entry:
        return cast("Entry", json.loads(self.text))

    def position(self) -> tuple[float, int]:
        """Sorts newest first, ties in the order in which they came."""
        return -self.updated_at, self.order


@dataclass
class _Space:
    """All of one identity."""

    rows: dict[str, _Row] = field(default_factory=dict)
    signatures: set[str] = field(default_factory=set)
    opinions: dict[str, tuple[float, int]] = field(default_factory=dict)  # sum and count of feedback


class InMemoryMemoryStore:
    """Implements ``SearchableMemoryStore``; safe to use from several threads. See there for what each method does."""

    supports_vector_search: Final = True
    ranks_by: Final[Literal["vector"]] = "vector"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._spaces: dict[str, _Space] = {}
        self._order = itertools.count()
        self._lock = threading.Lock()

    def get(self, identity: Identity, entry_id: str) -> Entry | None:
        """One live entry, counted as read."""
        with self._lock:
            space = self._space(identity)
            row = self._live(space, entry_id)
            if row is None:
                space.rows.pop(entry_id, None)
                return None
            entry = row.entry()
            entry["accessCount"] += 1
            entry["lastAccessedAt"] = self._clock.now_ms()
            row.text = entry_text(entry)
            return entry

    def put(self, identity: Identity, entry: Entry) -> None:
        """Stores an entry, replacing the whole one of that id."""
        self.put_many(identity, [entry])

    def put_many(self, identity: Identity, entries: Sequence[Entry]) -> None:
        """Checks all of the entries, then puts each."""
        texts = [entry_text(entry) for entry in entries]
        with self._lock:
            space = self._space(identity)
            for text in texts:
                self._keep(space, text)

    def put_if_version(self, identity: Identity, entry: Entry, expected_version: float) -> Applied:
        """Puts an entry if the stored one has the expected version."""
        text = entry_text(entry)
        with self._lock:
            space = self._space(identity)
            row = self._live(space, entry["id"])
            current = None if row is None else row.version
            if (0 if current is None else current) != expected_version:
                return Applied(applied=False, current_version=current)
            self._keep(space, text)
            return Applied(applied=True)

    def list(
        self,
        identity: Identity,
        *,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
        tiers: Collection[str] | None = None,
    ) -> Page:
        """One page of live entries, newest first."""
        after = None if cursor is None else read_cursor(cursor, identity, numbered=True)
        limit = bounded_limit(limit)
        with self._lock:
            rows = sorted(self._all_live(identity, tiers), key=_Row.position)
            if after is not None:
                updated_at, order = after
                rows = [row for row in rows if row.position() > (-updated_at, order)]
            page = rows[:limit]
            more = write_cursor(identity, page[-1].updated_at, page[-1].order) if len(rows) > limit else None
            return Page([row.entry() for row in page], more)

    def delete(self, identity: Identity, entry_id: str) -> None:
        """Removes an entry and its feedback."""
        with self._lock:
            space = self._space(identity)
            space.rows.pop(entry_id, None)
            space.opinions.pop(entry_id, None)

    def seen(self, identity: Identity, signature: str) -> bool:
        """Whether the signature was recorded."""
        with self._lock:
            return signature in self._space(identity).signatures

    def record_signature(self, identity: Identity, signature: str) -> None:
        """Records a signature."""
        with self._lock:
            self._space(identity).signatures.add(signature)

    def feedback(self, identity: Identity, entry_id: str, usefulness: float) -> None:
        """Adds feedback, clamped to [-1, 1]."""
        if not is_number(usefulness) or not math.isfinite(usefulness):
            return
        with self._lock:
            opinions = self._space(identity).opinions
            total, count = opinions.get(entry_id, (0.0, 0))
            opinions[entry_id] = (total + max(-1.0, min(1.0, usefulness)), count + 1)

    def get_feedback(self, identity: Identity, entry_id: str) -> Feedback | None:
        """The feedback's average and count."""
        with self._lock:
            total, count = self._space(identity).opinions.get(entry_id, (0.0, 0))
            return Feedback(total / count, count) if count else None

    def forget(self, identity: Identity) -> None:
        """Removes all of this identity."""
        with self._lock:
            self._spaces.pop(identity_namespace(identity), None)

    def search(
        self,
        identity: Identity,
        vector: Sequence[float],
        *,
        k: int = DEFAULT_K,
        tiers: Collection[str] | None = None,
        min_score: float | None = None,
        embedder_id: str | None = None,
        text: str | None = None,
    ) -> Sequence[Found]:
        """The live entries most like a vector."""
        with self._lock:
            entries = [row.entry() for row in self._all_live(identity, tiers)]
        return most_alike(entries, vector, k=k, min_score=min_score, embedder_id=embedder_id)

    def _space(self, identity: Identity) -> _Space:
        return self._spaces.setdefault(identity_namespace(identity), _Space())

    def _live(self, space: _Space, entry_id: str) -> _Row | None:
        row = space.rows.get(entry_id)
        return None if row is None or has_expired(row.ttl, self._clock.now_ms()) else row

    def _all_live(self, identity: Identity, tiers: Collection[str] | None) -> Sequence[_Row]:
        now_ms = self._clock.now_ms()
        rows = self._space(identity).rows.values()
        return [row for row in rows if in_tiers(row.tier, tiers) and not has_expired(row.ttl, now_ms)]

    def _keep(self, space: _Space, text: str) -> None:
        entry = json.loads(text)
        before = space.rows.get(entry["id"])
        space.rows[entry["id"]] = _Row(
            text=text,
            order=next(self._order) if before is None else before.order,
            updated_at=entry["updatedAt"],
            version=entry["version"],
            ttl=entry.get("ttl"),
            tier=entry.get("tier"),
        )
