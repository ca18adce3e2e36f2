"""The reference's traces of a memory store."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.memory_bench import NOW_MS, MemoryBench

if TYPE_CHECKING:
    from turnkeep.clock import ManualClock
    from turnkeep.memory.store import SearchableMemoryStore

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "cases" / "memory-store.json").read_text("utf-8"))
DIFFERENT_ON_PURPOSE = {"ms-09": "a foreign cursor is refused (17.6)", "ms-10": "a limit is at least 1 (17.10)"}
SCORED = [case for case in GOLDEN["cases"] if case["id"] not in DIFFERENT_ON_PURPOSE]

SPECIAL_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"), "-0": -0.0}


def untagged(value: Any) -> Any:
    return SPECIAL_NUMBERS[value["$num"]] if isinstance(value, dict) and "$num" in value else value


class MemoryTraces(MemoryBench):
    """Plays each trace and compares step by step."""

    @pytest.mark.parametrize("case", SCORED, ids=lambda case: case["id"])
    def test_a_trace_of_the_reference(
        self, case: dict[str, Any], store: SearchableMemoryStore, clock: ManualClock
    ) -> None:
        self.cursor: str | None = None
        for step in case["steps"]:
            match step["op"]:
                case "clock":
                    clock.wall_ms = step["now"]
                case "list":
                    assert self.listed(step, store) == step["expect"]
                case "search":
                    assert not self.searches or self.found(step, store) == step["expect"]
                case _:
                    assert self.perform(step, store) == step["expect"], step

    def listed(self, step: dict[str, Any], store: SearchableMemoryStore) -> dict[str, Any]:
        options = dict(step.get("options", {}))
        if "cursor" in options:
            options["cursor"] = self.cursor
        page = store.list(step["identity"], **options)
        self.cursor = page.cursor
        return {
            "ids": [entry["id"] for entry in page.entries],
            "accessCounts": [entry["accessCount"] for entry in page.entries],
            "hasCursor": page.cursor is not None,
        }

    def found(self, step: dict[str, Any], store: SearchableMemoryStore) -> list[dict[str, Any]]:
        names = {"minScore": "min_score", "embedderId": "embedder_id"}
        options = {names.get(name, name): value for name, value in step.get("options", {}).items()}
        hits = store.search(step["identity"], step["query"], **options)
        return [{"id": hit.entry["id"], "score": pytest.approx(hit.score)} for hit in hits]

    def perform(self, step: dict[str, Any], store: SearchableMemoryStore) -> Any:
        who = step.get("identity")
        match step["op"]:
            case "get":
                return store.get(who, step["id"])
            case "put":
                store.put(who, step["entry"])
            case "putMany":
                store.put_many(who, step["entries"])
            case "putIfVersion":
                outcome = store.put_if_version(who, step["entry"], step["expectedVersion"])
                known = {} if outcome.current_version is None else {"currentVersion": outcome.current_version}
                return {"applied": outcome.applied, **known}
            case "delete":
                store.delete(who, step["id"])
            case "seen":
                return store.seen(who, step["signature"])
            case "recordSignature":
                store.record_signature(who, step["signature"])
            case "feedback":
                store.feedback(who, step["id"], untagged(step["usefulness"]))
            case "getFeedback":
                given = store.get_feedback(who, step["id"])
                return None if given is None else asdict(given)
            case "forget":
                store.forget(who)
            case other:
                raise AssertionError(f"an operation this contract does not know: {other}")
        return None

    def test_the_traces_stand_at_the_time_of_the_bench(self) -> None:
        assert GOLDEN["now"] == NOW_MS
