"""What an answered turn leaves in memory (CONTRACT.md 8). Paused turns leave nothing until they finish.

The turn is resolved once a run and handed to every writer, so that all entries of a turn carry one number and writing
a turn again overwrites the same ids. ``message_entries`` shows messages that are kept elsewhere, such as the ledger's,
as entries without a second copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from turnkeep.clock import Clock, SystemClock
from turnkeep.memory.beats import BeatExtractor, checked_beat, default_beats
from turnkeep.memory.entries import Entry, Identity, Tier, beat_id, message_id, new_entry, snapshot_id
from turnkeep.memory.snapshots import UNKNOWN_EMBEDDER, snapshot_value

if TYPE_CHECKING:
    from turnkeep.memory.store import MemoryStore
    from turnkeep.messages import Message

Embed = Callable[[str], Sequence[float]]


@dataclass(frozen=True)
class TurnScope:
    """One answered turn, as every writer gets it.

    Attributes:
        identity: whose: ``{"tenant"?, "principal"?, "conversationId"}``.
        turn: the run's resolved turn.
        messages: all messages of the turn, tool messages included (CONTRACT.md 17.13).
    """

    identity: Identity
    turn: int
    messages: Sequence[Message] = ()


@dataclass(frozen=True)
class Keeping:
    """How entries are kept.

    Attributes:
        ttl_ms: lifetime; 0 expires now, None never.
        tier: ``hot``, ``warm``, ``cold``, or none.
    """

    ttl_ms: int | None = None
    tier: Tier | None = None


KEEP = Keeping()


def message_entries(
    scope: TurnScope,
    *,
    now_ms: int,
    keeping: Keeping = KEEP,
    embeddings: Sequence[Sequence[float]] = (),
    embedding_model: str | None = None,
) -> list[Entry]:
    """The turn's messages as entries ``msg-{turn}-{index}``, each with the message as it is.

    Args:
        scope: the turn.
        now_ms: the entries' times.
        keeping: how long, and in which tier.
        embeddings: one a message, in order; an empty or missing one is left out.
        embedding_model: what made them.
    """
    vectors = zip_longest(scope.messages, embeddings[: len(scope.messages)])
    return [
        _entry(
            scope,
            message_id(scope.turn, index),
            message,
            now_ms=now_ms,
            keeping=keeping,
            embedding=vector,
            embedding_model=embedding_model,
        )
        for index, (message, vector) in enumerate(vectors)
    ]


def write_messages(
    store: MemoryStore,
    scope: TurnScope,
    *,
    clock: Clock | None = None,
    keeping: Keeping = KEEP,
    embeddings: Sequence[Sequence[float]] = (),
    embedding_model: str | None = None,
) -> list[Entry]:
    """Stores the turn's messages and returns their entries; see ``message_entries``."""
    entries = message_entries(
        scope, now_ms=_now_ms(clock), keeping=keeping, embeddings=embeddings, embedding_model=embedding_model
    )
    return _stored(store, scope, entries)


def beat_entries(
    scope: TurnScope, *, now_ms: int, extract: BeatExtractor = default_beats, keeping: Keeping = KEEP
) -> list[Entry]:
    """The turn's beats as entries ``beat-{turn}-{index}`` (index over beats).

    Args:
        scope: the turn.
        now_ms: the entries' times.
        extract: makes the beats; not asked for a turn without messages. What it raises passes through.
        keeping: how long, and in which tier.
    """
    beats: Iterable[Mapping[str, Any]] = extract(scope.turn, scope.messages) if scope.messages else ()
    return [
        _entry(scope, beat_id(scope.turn, index), checked_beat(beat), now_ms=now_ms, keeping=keeping)
        for index, beat in enumerate(beats)
    ]


def write_beats(
    store: MemoryStore,
    scope: TurnScope,
    *,
    extract: BeatExtractor = default_beats,
    clock: Clock | None = None,
    keeping: Keeping = KEEP,
) -> list[Entry]:
    """Stores the turn's beats and returns their entries; see ``beat_entries``."""
    return _stored(store, scope, beat_entries(scope, now_ms=_now_ms(clock), extract=extract, keeping=keeping))


def snapshot_entry(
    scope: TurnScope,
    *,
    now_ms: int,
    embed: Embed | None = None,
    embedder_id: str = UNKNOWN_EMBEDDER,
    evidence: Mapping[str, Any] | None = None,
    keeping: Keeping = KEEP,
) -> Entry | None:
    """The turn's snapshot as the entry ``snap-{turn}``; None where the turn asked nothing.

    Args:
        scope: the turn (see ``snapshots.snapshot_turn`` where nobody resolved it).
        now_ms: the entry's times.
        embed: embeds the question; without it the snapshot cannot be found by ``search``. What it raises passes
            through.
        embedder_id: the name under which vectors of this embedder may be compared.
        evidence: see ``snapshots.snapshot_value``.
        keeping: how long, and in which tier.
    """
    value = snapshot_value(scope.messages, evidence)
    if value is None:
        return None
    return _entry(
        scope,
        snapshot_id(scope.turn),
        value,
        now_ms=now_ms,
        keeping=keeping,
        embedding=None if embed is None else embed(value["query"]),
        embedding_model=None if embed is None else embedder_id,
    )


def write_snapshot(
    store: MemoryStore,
    scope: TurnScope,
    *,
    embed: Embed | None = None,
    embedder_id: str = UNKNOWN_EMBEDDER,
    evidence: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    keeping: Keeping = KEEP,
) -> Entry | None:
    """Stores the turn's snapshot and returns it; None, and nothing stored, where there is none: ``snapshot_entry``."""
    entry = snapshot_entry(
        scope, now_ms=_now_ms(clock), embed=embed, embedder_id=embedder_id, evidence=evidence, keeping=keeping
    )
    if entry is not None:
        store.put(scope.identity, entry)
    return entry


def _entry(
    scope: TurnScope,
    entry_id: str,
    value: Any,
    *,
    now_ms: int,
    keeping: Keeping,
    embedding: Sequence[float] | None = None,
    embedding_model: str | None = None,
) -> Entry:
    return new_entry(
        entry_id,
        value,
        turn=scope.turn,
        identity=scope.identity,
        now_ms=now_ms,
        ttl_ms=keeping.ttl_ms,
        tier=keeping.tier,
        embedding=embedding,
        embedding_model=embedding_model,
    )


def _stored(store: MemoryStore, scope: TurnScope, entries: list[Entry]) -> list[Entry]:
    if entries:
        store.put_many(scope.identity, entries)
    return entries


def _now_ms(clock: Clock | None) -> int:
    return (SystemClock() if clock is None else clock).now_ms()
