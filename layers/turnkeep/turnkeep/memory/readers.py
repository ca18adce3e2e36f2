"""Reading memory back into a context (CONTRACT.md 8.3).

Each reader looks at one kind of entry and ignores the others, whatever else a shared store holds (CONTRACT.md 17.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnkeep.ledger.codec import to_text
from turnkeep.memory.entries import Entry, Identity, Kind, place_of
from turnkeep.memory.snapshots import UNKNOWN_EMBEDDER
from turnkeep.memory.store import MAX_LIMIT, Found, MemoryStore, SearchableMemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnkeep.memory.writers import Embed
    from turnkeep.messages import Message

DEFAULT_COUNT: Final = 20
RESERVE_TOKENS: Final = 256
"""Left for what comes after memory: instructions and the question itself."""
LEAST_TOKENS: Final = 100
"""With less room than this, memory would be fragments."""
CHARS_PER_TOKEN: Final = 4
DEFAULT_MIN_SCORE: Final = 0.7
_STORY_HEADING: Final = "What earlier turns of this conversation were about:"


def read_window(
    store: MemoryStore, identity: Identity, *, kind: Kind = "msg", count: int = DEFAULT_COUNT
) -> list[Entry]:
    """The newest entries of one kind, oldest first.

    Entries of one moment are in the order of their turn and place, whatever order the store lists them in.

    Args:
        store: where.
        identity: whose.
        kind: ``msg``, ``beat`` or ``snap``.
        count: at most so many.

    A store may offer ``newest(identity, kind, count)``, which reads no more than it returns, newest first (None: not
    for this kind). It is then asked instead of being paged through.
    """
    direct = getattr(store, "newest", None)
    newest: Sequence[Entry] | None = direct(identity, kind, count) if callable(direct) else None
    if newest is not None:
        return list(newest)[::-1]
    entries: list[Entry] = []
    cursor: str | None = None
    while count > 0:
        page = store.list(identity, cursor=cursor, limit=MAX_LIMIT if cursor else max(count, DEFAULT_COUNT))
        entries += [entry for entry in page.entries if _is(entry, kind)]
        if page.cursor is None or page.cursor == cursor:
            break
        # Pages come newest first; ties with the last one that is wanted may go on into the next page.
        if len(entries) >= count and page.entries and page.entries[-1]["updatedAt"] < entries[count - 1]["updatedAt"]:
            break
        cursor = page.cursor
    return sorted(entries, key=_age)[-count:] if count > 0 else []


def pick_within(
    entries: Sequence[Entry],
    budget_tokens: float,
    *,
    reserve_tokens: float = RESERVE_TOKENS,
    least_tokens: float = LEAST_TOKENS,
) -> list[Entry]:
    """The newest entries that fit a budget together, oldest first; the first that does not fit ends it.

    Args:
        entries: oldest first, as ``read_window`` gives them.
        budget_tokens: room in the context, estimated at four characters a token.
        reserve_tokens: how much of it stays free.
        least_tokens: nothing is picked when less than this is left.
    """
    left = budget_tokens - reserve_tokens
    if left < least_tokens:
        return []
    picked: list[Entry] = []
    for entry in reversed(entries):
        left -= tokens_of(entry)
        if left < 0:
            break
        picked.append(entry)
    return picked[::-1]


def tokens_of(entry: Entry) -> int:
    """About how many tokens an entry takes in a context: of a beat its sentence, else its JSON."""
    value = entry.get("value")
    summary = value.get("summary") if isinstance(value, dict) and _is(entry, "beat") else None
    text = summary if isinstance(summary, str) else to_text(value)
    return -(-len(text) // CHARS_PER_TOKEN)


def tell_story(entries: Sequence[Entry]) -> Message | None:
    """Beats as one system message, a line each with the ids of the messages they come from; None without beats."""
    beats = [entry["value"] for entry in entries if _is(entry, "beat") and _is_beat(entry.get("value"))]
    lines = [f"- {beat['summary']}{_sources(beat)}" for beat in beats]
    return {"role": "system", "content": "\n".join([_STORY_HEADING, *lines])} if lines else None


def find_snapshots(
    store: SearchableMemoryStore,
    identity: Identity,
    question: str,
    *,
    embed: Embed,
    embedder_id: str | None = UNKNOWN_EMBEDDER,
    k: int = 1,
    min_score: float = DEFAULT_MIN_SCORE,
) -> list[Found]:
    """The snapshots whose question is most like this one, best first; none below the score, and nothing instead.

    Args:
        store: where.
        identity: whose.
        question: the current one; an empty one finds nothing and embeds nothing.
        embed: the embedder that also embeds the snapshots.
        embedder_id: its name; snapshots of another one are not compared. None compares all.
        k: at most so many.
        min_score: the lowest cosine that counts.
    """
    if not question or k < 1:
        return []
    vector = embed(question)
    asked = k
    while True:
        hits = store.search(identity, vector, k=asked, min_score=min_score, embedder_id=embedder_id, text=question)
        found = [hit for hit in hits if _is(hit.entry, "snap")][:k]
        # Embedded messages in a shared store may have taken the places of snapshots: ask for more until they end.
        if len(found) == k or len(hits) < asked:
            return found
        asked *= 4


def _is(entry: Mapping[str, Any], kind: Kind) -> bool:
    place = place_of(entry.get("id"))
    return place is not None and place.kind == kind


def _age(entry: Entry) -> tuple[float, int, int]:
    place = place_of(entry["id"])
    return (entry["updatedAt"], place.turn, place.index) if place else (entry["updatedAt"], 0, 0)


def _is_beat(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("summary"), str)


def _sources(beat: Mapping[str, Any]) -> str:
    refs = beat.get("refs")
    names = [ref for ref in refs if isinstance(ref, str)] if isinstance(refs, list) else []
    return f" ({', '.join(names)})" if names else ""
