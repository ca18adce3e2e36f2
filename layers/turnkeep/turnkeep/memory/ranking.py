"""Search by cosine over entries that are at hand: what every store without an index of vectors does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.memory.entries import Entry, cosine
from turnkeep.memory.store import Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def most_alike(
    entries: Iterable[Entry],
    vector: Sequence[float],
    *,
    k: int,
    min_score: float | None = None,
    embedder_id: str | None = None,
) -> list[Found]:
    """The entries most like a vector, by the rules of ``SearchableMemoryStore.search``; liveness and tiers are the
    store's to have looked at.
    """  # noqa: D205 - one sentence that needs two lines
    found = [
        Found(entry, cosine(vector, embedding))
        for entry in entries
        if (embedding := entry.get("embedding"))
        and len(embedding) == len(vector)
        and (embedder_id is None or entry.get("embeddingModel", embedder_id) == embedder_id)
    ]
    kept = [hit for hit in found if min_score is None or hit.score >= min_score]
    return sorted(kept, key=lambda hit: (-hit.score, hit.entry["id"]))[: max(0, k)]
