"""Interleavings: a Hypothesis state machine over hand-cranked writes, and real threads under stress.

1. A store holds a prefix: what lands is in the order of the commits.
2. Never two writes in flight, never more than one waiting.
3. ``settle`` raises if and only if the newest ended write failed, and names that failure.
4. The newest snapshot is never lost: when all has ended, the newest write was of the newest commit.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.durability.cranked import CrankedExecutor, StoreFault
from turnkeep.durability import DurableWriter
from turnkeep.errors import DurabilityError


class Interleavings(RuleBasedStateMachine):
    """Commits are numbered from 1; the model knows what is in flight, what waits, and what failed last."""

    @initialize(mode=st.sampled_from(["async", "sync"]))
    def open(self, mode: Any) -> None:
        self.landed: list[int] = []
        self.executor = CrankedExecutor()
        self.writer: DurableWriter[int] = DurableWriter(mode, self.landed.append, executor=self.executor)
        self.mode = mode
        self.commits = 0
        self.in_flight: int | None = None
        self.waiting: int | None = None
        self.failure: StoreFault | None = None
        self.model_landed: list[int] = []

    @rule()
    def commit(self) -> None:
        self.commits += 1
        self.writer.commit(self.commits)
        if self.in_flight is None:
            self.in_flight = self.commits
        else:
            self.waiting = self.commits

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def land(self) -> None:
        self.executor.land()
        assert self.in_flight is not None
        self.model_landed.append(self.in_flight)
        self.failure = None
        self.in_flight, self.waiting = self.waiting, None

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def fail(self) -> None:
        self.failure = StoreFault(f"write of {self.in_flight}")
        self.executor.fail(self.failure)
        self.in_flight, self.waiting = self.waiting, None

    @precondition(lambda self: self.in_flight is None)
    @rule()
    def settle(self) -> None:
        self.expect(self.writer.settle, self.failure)
        self.expect(self.writer.barrier, self.failure if self.mode == "sync" else None)

    @precondition(lambda self: self.mode == "async")
    @rule()
    def pass_a_barrier_that_async_does_not_have(self) -> None:
        self.writer.barrier()

    def expect(self, wait: Any, failure: StoreFault | None) -> None:
        if failure is None:
            wait()
            return
        with pytest.raises(DurabilityError) as caught:
            wait()
        assert caught.value.__cause__ is failure

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "writer"):
            return
        assert self.executor.most_in_flight <= 1
        assert self.executor.in_flight == (self.in_flight is not None)
        assert self.writer.outstanding == (self.in_flight is not None)
        assert self.writer.failure is self.failure
        assert self.landed == self.model_landed == sorted(set(self.landed))
        if self.in_flight is None and self.commits:
            assert self.executor.started[-1] == self.commits

    def teardown(self) -> None:
        while getattr(self, "in_flight", None) is not None:
            self.land()
        self.agrees_with_the_model()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class FlakyStore:
    """Fails some writes, yields in odd places, and watches for company."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.landed: list[int] = []
        self.newest_ended: tuple[int, StoreFault | None] | None = None
        self.company = False
        self._busy = threading.Lock()
        self._yield = threading.Event()

    def write(self, snapshot: int) -> None:
        if not self._busy.acquire(blocking=False):
            self.company = True
            raise AssertionError("two writes in flight")
        try:
            if self.random.random() < 0.3:
                self._yield.wait(self.random.random() / 2000)
            fault = StoreFault(str(snapshot)) if self.random.random() < 0.3 else None
            self.newest_ended = (snapshot, fault)
            if fault is not None:
                raise fault
            self.landed.append(snapshot)
        finally:
            self._busy.release()


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("seed", range(4))
def test_real_threads_keep_the_invariants(seed: int, mode: Any) -> None:
    store = FlakyStore(seed)
    writer = DurableWriter(mode, store.write)
    agent = random.Random(seed)
    pause = threading.Event()
    newest = 0
    for _ in range(30):
        for _ in range(agent.randrange(1, 20)):
            newest += 1
            writer.commit(newest)
            if agent.random() < 0.1:
                pause.wait(agent.random() / 2000)
        wait = writer.barrier if mode == "sync" and agent.random() < 0.5 else writer.settle
        raised: BaseException | None = None
        try:
            wait()
        except DurabilityError as error:
            raised = error.__cause__
        assert store.newest_ended is not None
        assert store.newest_ended[0] == newest
        assert raised is store.newest_ended[1]
        assert not writer.outstanding
    assert writer.close()
    assert not store.company
    assert store.landed == sorted(set(store.landed))


def test_commits_from_many_threads_never_meet_in_the_store_and_the_last_is_written() -> None:
    store = FlakyStore(7)
    writer = DurableWriter("sync", store.write)
    go = threading.Barrier(6)

    def agent(number: int) -> None:
        go.wait()
        for step in range(100):
            writer.commit(number * 1000 + step)

    threads = [threading.Thread(target=agent, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.commit(999_999)
    try:
        writer.settle()
    except DurabilityError as error:
        assert str(error.__cause__) == "999999"
    assert store.newest_ended is not None
    assert store.newest_ended[0] == 999_999
    assert writer.close()
    assert not store.company
