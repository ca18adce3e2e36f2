"""The reference's traces of the durable writer, over a hand-cranked executor and over a real thread.

What differs on purpose is left out by name: a store that raises at the call (CONTRACT.md 17.4) has a test of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.durability.cranked import Caller, CrankedExecutor, GatedStore, StoreFault, until
from turnkeep.clock import ManualClock
from turnkeep.durability import CommitObserver, DurableWriter, Progress
from turnkeep.errors import DurabilityError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "cases" / "durability.json").read_text("utf-8"))
SCORED = [case for case in GOLDEN["cases"] if "unintended-in-reference" not in case.get("flags", [])]


class CrankedBench:
    """The writer alone: no thread but those of waiting callers."""

    def __init__(self, mode: Any) -> None:
        self.executor = CrankedExecutor()
        self.stored: list[Progress] = []
        self.writer: DurableWriter[Progress] = DurableWriter(mode, self.stored.append, executor=self.executor)
        self.land, self.fail = self.executor.land, self.executor.fail

    def issued(self, _: int) -> list[Progress]:
        return self.executor.started

    def in_flight(self) -> int:
        return self.executor.in_flight


class ThreadBench:
    """The writer as it ships: its own thread, blocked inside a store."""

    def __init__(self, mode: Any) -> None:
        self.store = GatedStore()
        self.writer: DurableWriter[Progress] = DurableWriter(mode, self.store.write)

    def land(self) -> None:
        self.store.land()
        self.come_to_rest()

    def fail(self, error: BaseException) -> None:
        self.store.fail(error)
        self.come_to_rest()

    def come_to_rest(self) -> None:
        """Waits until the writer, too, knows that the write has ended."""
        until(lambda: not self.writer.outstanding or self.store.in_flight == 1)

    def issued(self, expected: int) -> list[Progress]:
        self.store.wait_until_entered(expected)
        return self.store.entered

    def in_flight(self) -> int:
        return self.store.in_flight


class Player:
    """Plays one trace and compares after every step."""

    def __init__(self, bench: CrankedBench | ThreadBench, start: dict[str, Any]) -> None:
        self.bench, self.writer = bench, bench.writer
        self.observer = CommitObserver(
            bench.writer,
            clock=ManualClock(wall_ms=GOLDEN["now"]),
            session_id=start["sessionId"],
            run_id=start["runId"],
        )
        self.last_history: list[Any] = []
        self.issued = 0
        self.calls: dict[tuple[str, str], Caller | None] = {}

    def play(self, step: dict[str, Any]) -> None:
        match step["step"]:
            case "commit":
                mutations = json.loads(json.dumps(step["mutations"]))
                for mutation in mutations:
                    if mutation["key"] == "history" and isinstance(mutation["value"], list):
                        self.last_history = mutation["value"]
                self.observer.observe(mutations)
            case "mutateLastHistory":
                self.last_history[0]["content"] = "EDITED"
                self.last_history.append({"role": "user", "content": "APPENDED"})
            case "land":
                self.bench.land()
            case "fail":
                self.bench.fail(StoreFault(step["message"]))
            case "session":
                self.observer.session_id = step["id"]
            case "runId":
                self.observer.run_id = step["id"]
            case "clear":
                self.observer.clear()
            case "settle":
                self.call("settles", step["name"], Caller(self.writer.settle))
            case "barrier":
                self.call("barriers", step["name"], self.pass_barrier())
            case other:
                raise AssertionError(f"a step this player does not know: {other}")

    def pass_barrier(self) -> Caller | None:
        """None where the barrier takes no wait at all: it passes while somebody else holds the writer's lock."""
        if self.writer.mode == "sync" and (self.writer.outstanding or self.writer.failure):
            return Caller(self.writer.barrier)
        with self.writer._changed:
            free = Caller(self.writer.barrier)
            free.join()
        assert free.error is None
        return None

    def call(self, kind: str, name: str, caller: Caller | None) -> None:
        self.calls[kind, name] = caller
        if caller is not None:
            until(lambda: self.writer.callers_waiting > 0 or not caller.pending)

    def compare(self, observe: dict[str, Any]) -> None:
        expected = observe["newWrites"]
        writes = self.bench.issued(self.issued + len(expected))[self.issued :]
        self.issued += len(writes)
        assert [{"sessionId": w.session_id, "conversation": w.conversation()} for w in writes] == expected
        assert self.bench.in_flight() == observe["inFlight"]
        for kind in ("settles", "barriers"):
            for name, outcome in observe.get(kind, {}).items():
                self.compare_call(self.calls[kind, name], outcome)

    def compare_call(self, caller: Caller | None, outcome: Any) -> None:
        if outcome == "none":
            assert caller is None
            return
        assert caller is not None
        if outcome == "pending":
            assert caller.pending
            return
        caller.join()
        if outcome == "resolved":
            assert caller.error is None
            return
        rejected = outcome["rejected"]
        assert isinstance(caller.error, DurabilityError)
        cause = str(caller.error.__cause__)
        assert cause == rejected["cause"]
        assert (cause in str(caller.error)) == rejected["messageMentionsCause"]
        assert caller.error.tool_call_blocked == rejected["saysToolCallBlocked"]
        assert ("not allowed to run" in str(caller.error)) == rejected["saysToolCallBlocked"]


@pytest.mark.parametrize("bench", [CrankedBench, ThreadBench])
@pytest.mark.parametrize("case", SCORED, ids=lambda case: case["id"])
def test_a_trace_of_the_reference(case: dict[str, Any], bench: Any) -> None:
    player = Player(bench(case["mode"]), case["start"])
    for step in case["steps"]:
        player.play(step)
        player.compare(step["observe"])
    while player.writer.outstanding:
        player.bench.land()
    assert player.writer.close()
    writes = player.bench.issued(case["totalWrites"])
    assert [",".join(m["content"] for m in w.conversation()["history"]) for w in writes] == case["historiesAtEnd"]
    assert len(writes) == case["totalWrites"]


def test_only_the_store_that_raises_at_the_call_is_left_out() -> None:
    assert [case["id"] for case in GOLDEN["cases"] if case not in SCORED] == ["dur-41"]
