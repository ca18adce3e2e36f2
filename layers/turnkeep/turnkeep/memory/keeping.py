"""What an agent asks to be kept of its answered turns, and how the next ones are shown it.

``Agent(memory=[Beats(), Snapshots(embed=...)], recall=Story())``. Writers only make entries; turnkeep stores them
behind the turn's commit, under the turn's own number, and a writer that fails costs its entries and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from turnkeep.agent.port import Recalled
from turnkeep.ledger.codec import to_text
from turnkeep.memory.beats import BeatExtractor, default_beats
from turnkeep.memory.readers import (
    DEFAULT_COUNT,
    DEFAULT_MIN_SCORE,
    find_snapshots,
    pick_within,
    read_window,
    tell_story,
)
from turnkeep.memory.snapshots import UNKNOWN_EMBEDDER
from turnkeep.memory.writers import KEEP, Embed, Keeping, TurnScope, beat_entries, snapshot_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnkeep.agent.port import TurnMemory
    from turnkeep.memory.entries import Entry


@dataclass(frozen=True)
class AnsweredTurn:
    """An answered turn, as every writer gets it.

    Attributes:
        scope: whose, its number and its messages.
        evidence: what led to the answer, as the turn's record keeps it.
        usage: token counts, summed.
        iteration: the iteration that answered.
        duration_ms: from the claim to the commit, pauses included.
    """

    scope: TurnScope
    evidence: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    iteration: int = 0
    duration_ms: int = 0


class MemoryWriter(Protocol):
    """Makes entries of an answered turn."""

    def entries(self, turn: AnsweredTurn, *, now_ms: int) -> list[Entry]:
        """The turn's entries, none where it leaves nothing. The same turn always gets the same ids."""
        ...


@dataclass(frozen=True)
class Beats:
    """Keeps what a turn was about, in single sentences that name their messages (CONTRACT.md 8.1).

    Attributes:
        extract: makes the beats.
        keeping: how long, and in which tier.
    """

    extract: BeatExtractor = default_beats
    keeping: Keeping = KEEP

    def entries(self, turn: AnsweredTurn, *, now_ms: int) -> list[Entry]:
        """See ``MemoryWriter.entries``."""
        return beat_entries(turn.scope, now_ms=now_ms, extract=self.extract, keeping=self.keeping)


@dataclass(frozen=True)
class Snapshots:
    """Keeps a turn's question, answer and what led to it (CONTRACT.md 8.2).

    Attributes:
        embed: embeds the question; without it a snapshot is not found by its likeness.
        embedder_id: the name under which vectors of this embedder may be compared.
        keeping: how long, and in which tier.
    """

    embed: Embed | None = None
    embedder_id: str = UNKNOWN_EMBEDDER
    keeping: Keeping = KEEP

    def entries(self, turn: AnsweredTurn, *, now_ms: int) -> list[Entry]:
        """See ``MemoryWriter.entries``."""
        made = snapshot_entry(
            turn.scope,
            now_ms=now_ms,
            embed=self.embed,
            embedder_id=self.embedder_id,
            evidence=_snapshot_evidence(turn),
            keeping=self.keeping,
        )
        return [] if made is None else [made]


@dataclass(frozen=True)
class Story:
    """Shows the model what earlier turns were about: the newest beats, oldest first, each with its references.

    Attributes:
        count: at most so many beats.
        budget_tokens: room for them (``readers.pick_within``); None for no such bound.
    """

    count: int = DEFAULT_COUNT
    budget_tokens: float | None = None

    def __call__(self, memory: TurnMemory, question: str) -> Recalled:
        """See ``agent.port.Recall``."""
        found = read_window(memory.store, memory.identity, kind="beat", count=self.count)
        picked = found if self.budget_tokens is None else pick_within(found, self.budget_tokens)
        told = tell_story(picked)
        return Recalled(told["content"] if told else "", [one["id"] for one in picked], len(found) - len(picked))


@dataclass(frozen=True)
class LikeTurns:
    """Shows the model the earlier turns whose question is most like this one.

    Attributes:
        embed: the embedder that also embedded the snapshots.
        embedder_id: its name.
        k: at most so many.
        min_score: the lowest cosine that counts.
    """

    embed: Embed
    embedder_id: str = UNKNOWN_EMBEDDER
    k: int = 1
    min_score: float = DEFAULT_MIN_SCORE

    def __call__(self, memory: TurnMemory, question: str) -> Recalled:
        """See ``agent.port.Recall``."""
        hits = find_snapshots(
            memory.store,
            memory.identity,
            question,
            embed=self.embed,
            embedder_id=self.embedder_id,
            k=self.k,
            min_score=self.min_score,
        )
        lines = [
            f"- Asked: {to_text(hit.entry['value'].get('query'))} Answered: "
            f"{to_text(hit.entry['value'].get('finalContent'))} ({hit.entry['id']})"
            for hit in hits
        ]
        text = "\n".join(["Like questions of this conversation, and what was answered:", *lines]) if lines else ""
        return Recalled(text, [hit.entry["id"] for hit in hits])


def _snapshot_evidence(turn: AnsweredTurn) -> dict[str, Any]:
    """The turn's evidence in a snapshot's words."""
    calls = turn.evidence.get("toolCalls")
    return {
        "iterations": turn.iteration,
        "toolCalls": [
            {
                "name": call.get("name", ""),
                "args": call.get("args", {}),
                "resultPreview": call.get("result", ""),
                "errored": bool(call.get("isError")),
            }
            for call in (calls if isinstance(calls, list) else [])
            if isinstance(call, dict)
        ],
        "durationMs": turn.duration_ms,
        "tokenUsage": {"input": turn.usage.get("inputTokens", 0), "output": turn.usage.get("outputTokens", 0)},
    }
