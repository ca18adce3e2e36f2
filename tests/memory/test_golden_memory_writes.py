"""The reference's writers, one writer a case, compared by all rows of the namespace, expired ones included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.memory_bench import all_pages
from turnkeep.clock import ManualClock
from turnkeep.memory.in_memory import InMemoryMemoryStore
from turnkeep.memory.snapshots import UNKNOWN_EMBEDDER, snapshot_turn
from turnkeep.memory.writers import Keeping, TurnScope, write_beats, write_messages, write_snapshot

GOLDEN_DIR = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((GOLDEN_DIR / "cases" / "memory-writes.json").read_text("utf-8"))
DIFFERENT_ON_PURPOSE = {"mw-07": "a ttl of zero expires now (CONTRACT.md 17.10)"}


def written(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs a case's writer and returns what is in the store then, by id."""
    clock = ManualClock(wall_ms=GOLDEN["now"])
    store = InMemoryMemoryStore(clock)
    scope, config = case["scope"], case["config"]
    identity, messages = scope["identity"], scope.get("newMessages", [])
    for entry in case["preload"]:
        store.put(identity, entry)
    keeping = Keeping(ttl_ms=config.get("ttlMs"), tier=config.get("tier"))
    host_turn = scope["turnNumber"] if isinstance(scope["turnNumber"], int) else float(scope["turnNumber"]["$num"])
    match case["stage"]:
        case "messages":
            write_messages(
                store,
                TurnScope(identity, host_turn, messages),
                clock=clock,
                keeping=keeping,
                embeddings=scope.get("newMessageEmbeddings", []),
                embedding_model=scope.get("newMessageEmbeddingModel"),
            )
        case "beats":
            write_beats(store, TurnScope(identity, host_turn, messages), clock=clock, keeping=keeping)
        case "snapshot":
            write_snapshot(
                store,
                TurnScope(identity, snapshot_turn(store, identity, host_turn), messages),
                embed=lambda text: GOLDEN["embedderReturns"],
                embedder_id=config.get("embedderId", UNKNOWN_EMBEDDER),
                evidence=scope.get("runEvidence"),
                clock=clock,
                keeping=keeping,
            )
        case other:
            raise AssertionError(f"a stage this test does not know: {other}")
    clock.wall_ms = 0  # Nothing has expired then.
    return sorted(all_pages(store, identity), key=lambda entry: entry["id"])


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["id"])
def test_a_writer_of_the_reference(case: dict[str, Any]) -> None:
    expected = case["expect"]["entries"]
    if case["id"] in DIFFERENT_ON_PURPOSE:
        expected = [entry | {"ttl": GOLDEN["now"]} for entry in expected]
    assert written(case) == expected


@pytest.mark.parametrize("turns", [1, 2])
def test_the_memory_of_real_runs(turns: int) -> None:
    """What the reference's own agent left after each turn, made again from its messages and evidence."""
    fixture = json.loads((GOLDEN_DIR / "fixtures" / f"h-memory-after-turn-{turns}.json").read_text("utf-8"))
    identity, clock = fixture["identity"], ManualClock()
    for turn in range(1, turns + 1):
        stored = {
            kind: [entry for entry in fixture[kind] if entry["source"]["turn"] == turn]
            for kind in ("episodic", "narrative", "causal")
        }
        store = InMemoryMemoryStore(clock)
        scope = TurnScope(identity, turn, [entry["value"] for entry in stored["episodic"]])
        (snapshot,) = stored["causal"]
        clock.wall_ms = stored["episodic"][0]["createdAt"]
        assert write_messages(store, scope, clock=clock) == stored["episodic"]
        clock.wall_ms = stored["narrative"][0]["createdAt"]
        assert write_beats(store, scope, clock=clock) == stored["narrative"]
        clock.wall_ms = snapshot["createdAt"]
        made = write_snapshot(
            store, scope, embed=lambda text, entry=snapshot: entry["embedding"], evidence=snapshot["value"], clock=clock
        )
        assert made == snapshot
