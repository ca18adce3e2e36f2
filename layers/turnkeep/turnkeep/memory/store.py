"""The port to where memory entries are kept (CONTRACT.md 7.2).

The identity is always the first argument; what belongs to another identity's namespace is "no data", never an error.
Entries go in and come out as copies: nobody reaches what is stored through an object they hold. Every store checks
entries by ``entries.entry_text`` and passes ``tests/contract/memory_contract.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from turnkeep.memory.entries import Entry, Identity, Tier

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
DEFAULT_K: Final = 10


@dataclass(frozen=True)
class Page:
    """Some of an identity's live entries, newest ``updatedAt`` first.

    Attributes:
        entries: copies.
        cursor: where the next page begins (``[A-Za-z0-9_-]+``); None where there is none.
    """

    entries: list[Entry]
    cursor: str | None = None


@dataclass(frozen=True)
class Applied:
    """What became of a conditional put.

    Attributes:
        applied: whether the entry is stored.
        current_version: of a refused put, the version that is stored; None where nothing live is.
    """

    applied: bool
    current_version: float | None = None


@dataclass(frozen=True)
class Feedback:
    """What entry feedback averages to, in [-1, 1]; an average of 0 is not the same as none."""

    average: float
    count: int


@dataclass(frozen=True)
class Found:
    """An entry and its score."""

    entry: Entry
    score: float


class MemoryStore(Protocol):
    """Entries, recognition signatures and feedback of identities.

    All of it raises StoreUnavailableError where the store is not there; nothing was lost then.
    """

    def get(self, identity: Identity, entry_id: str) -> Entry | None:
        """One live entry; None where there is none. A hit counts.

        ``accessCount`` goes up by one and ``lastAccessedAt`` becomes now, in the store and in what is returned; no
        count is lost to another reader. An expired entry is evicted.
        """
        ...

    def put(self, identity: Identity, entry: Entry) -> None:
        """Stores an entry, replacing the whole one of that id. Calling it twice is harmless.

        Raises:
            UnstorableValueError: the entry is none, or holds what JSON cannot keep.
        """
        ...

    def put_many(self, identity: Identity, entries: Sequence[Entry]) -> None:
        """Puts each of the entries, the later one winning where two have one id; none does nothing.

        All are checked before one is stored; beyond that it is not atomic.

        Raises:
            UnstorableValueError: as ``put``; nothing was stored.
        """
        ...

    def put_if_version(self, identity: Identity, entry: Entry, expected_version: float) -> Applied:
        """Puts an entry if the stored one has the expected version; 0 expects that nothing live is stored.

        One conditional write: of several with the same expectation at most one is applied. The new entry's own
        version is stored as given.

        Raises:
            UnstorableValueError: as ``put``.
        """
        ...

    def list(
        self,
        identity: Identity,
        *,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
        tiers: Collection[str] | None = None,
    ) -> Page:
        """One page of live entries, newest ``updatedAt`` first. Does not count as an access.

        Args:
            identity: whose entries.
            cursor: of the page before, made by this store for this identity.
            limit: at most so many; taken as at least 1 and at most 1,000.
            tiers: only entries of these tiers: untiered ones are left out, and an empty filter matches nothing.

        Raises:
            InvalidRequestError: the cursor was not made here for this identity.
        """
        ...

    def delete(self, identity: Identity, entry_id: str) -> None:
        """Removes an entry and its feedback, quietly where there is none; signatures stay."""
        ...

    def seen(self, identity: Identity, signature: str) -> bool:
        """Whether the signature was recorded."""
        ...

    def record_signature(self, identity: Identity, signature: str) -> None:
        """Records a signature; it outlives entries."""
        ...

    def feedback(self, identity: Identity, entry_id: str, usefulness: float) -> None:
        """Adds feedback, clamped to [-1, 1]; what is no finite number is ignored."""
        ...

    def get_feedback(self, identity: Identity, entry_id: str) -> Feedback | None:
        """The feedback's average and count; None where none was given."""
        ...

    def forget(self, identity: Identity) -> None:
        """Removes entries, signatures and feedback of this identity only, quietly where there are none."""
        ...


class SearchableMemoryStore(MemoryStore, Protocol):
    """A store that can also search."""

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
        """The live entries most like a vector: highest cosine first, ties by id. Does not count as an access.

        Left out: entries without an embedding or with one of another length, of other tiers, scored below
        ``min_score``, and of an ``embeddingModel`` other than ``embedder_id`` where both are set.

        Args:
            identity: whose entries.
            vector: the query's embedding.
            k: at most so many.
            tiers: as for ``list``.
            min_score: the lowest score that counts.
            embedder_id: what made the vector.
            text: the query itself, for a store that ranks by text.
        """
        ...


def ranking_of(store: Any) -> Literal["vector", "server-text"] | None:
    """How a store's ``search`` ranks; None where it has no search that could be used with a vector.

    Read off two optional members, ``supports_vector_search`` (bool) and ``ranks_by`` (``vector``, ``server-text``).

    Raises:
        ValueError: they contradict each other, or name a search that is not there.
    """
    supports, ranks_by = getattr(store, "supports_vector_search", None), getattr(store, "ranks_by", None)
    if supports not in (None, True, False) or ranks_by not in (None, "vector", "server-text"):
        raise ValueError("supports_vector_search is a boolean, ranks_by is vector or server-text")
    if not callable(getattr(store, "search", None)):
        if supports or ranks_by is not None:
            raise ValueError("the store declares a search and has none")
        return None
    if supports is not None and ranks_by is not None and supports != (ranks_by == "vector"):
        raise ValueError("supports_vector_search and ranks_by contradict each other")
    if ranks_by == "server-text":
        return "server-text"
    return None if supports is False else "vector"


def bounded_limit(limit: int) -> int:
    """A page's limit: at least 1 (CONTRACT.md 17.10), at most 1,000."""
    return max(1, min(limit, MAX_LIMIT))


def in_tiers(tier: object, tiers: Collection[Tier | str] | None) -> bool:
    """Whether an entry of this tier passes a filter; without a filter all do."""
    return tiers is None or tier in tiers
