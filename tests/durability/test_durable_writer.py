"""What the durable writer promises beyond the reference's traces.

1. ``async`` and ``exit``: the agent's thread never waits; ``exit`` starts no thread.
2. A barrier with nothing outstanding takes no lock.
3. ``settle`` and a waiting barrier end when the last write has ended, and name its failure without content.
4. ``close`` takes nothing more, loses nothing, and leaves no thread.
5. A wait ends when the time that is left does.
"""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest

from tests.durability.cranked import PATIENCE_S, Caller, CrankedExecutor, GatedStore, StoreFault, until
from turnkeep.clock import ManualClock
from turnkeep.durability import BackgroundThread, CommitObserver, DurableWriter, Progress
from turnkeep.errors import DurabilityError, LostClaimError, RetryableError, UnstorableValueError


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "turnkeep-durability"}


# --- the agent's thread never waits -------------------------------------------------------------------------


def test_exit_writes_nothing_and_starts_no_thread() -> None:
    before = own_threads()
    stored: list[str] = []
    writer = DurableWriter("exit", stored.append)
    assert not writer.writes
    for number in range(5):
        writer.commit(str(number))
        writer.barrier()
    writer.settle()
    assert own_threads() == before
    assert writer.close()
    assert stored == []


def test_no_thread_before_the_first_commit_and_one_for_all_of_them() -> None:
    before = own_threads()
    with DurableWriter[int]("async", lambda snapshot: None) as writer:
        assert own_threads() == before
        for number in range(20):
            writer.commit(number)
            writer.settle()
        assert len(own_threads() - before) == 1
    assert own_threads() <= before


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_commits_return_while_the_store_hangs(mode: Any) -> None:
    store = GatedStore()
    writer = DurableWriter(mode, store.write)
    for number in range(1000):
        writer.commit(number)  # Would never return if it waited: nobody lands anything yet.
    store.wait_until_entered(1)
    assert store.entered == [0]
    store.land()
    store.wait_until_entered(2)
    store.land()
    writer.settle()
    assert store.landed == [0, 999]
    assert writer.close()


@pytest.mark.parametrize("mode", ["exit", "async"])
def test_only_sync_has_a_barrier(mode: Any) -> None:
    executor = CrankedExecutor()
    writer: DurableWriter[int] = DurableWriter(mode, lambda snapshot: None, executor=executor)
    writer.commit(1)
    with writer._changed:  # On this very thread: taking the lock would deadlock.
        writer.barrier()
    if executor.in_flight:
        executor.fail(StoreFault("disk full"))
    with writer._changed:
        writer.barrier()


def test_a_sync_barrier_with_nothing_outstanding_takes_no_lock() -> None:
    executor = CrankedExecutor()
    writer: DurableWriter[int] = DurableWriter("sync", lambda snapshot: None, executor=executor)
    with writer._changed:
        writer.barrier()
    writer.commit(1)
    executor.land()
    with writer._changed:
        writer.barrier()
        writer.settle()


# --- failures -----------------------------------------------------------------------------------------------


def test_a_store_that_raises_at_the_call_is_a_failed_write() -> None:
    class Refusing(CrankedExecutor):
        def start(self, write: Any, snapshot: Any, ended: Any) -> None:
            raise StoreFault("at the call")

    writer: DurableWriter[int] = DurableWriter("async", lambda snapshot: None, executor=Refusing())
    writer.commit(1)
    writer.commit(2)
    with pytest.raises(DurabilityError) as caught:
        writer.settle()
    assert str(caught.value.__cause__) == "at the call"
    assert not writer.outstanding


def test_an_executor_that_writes_at_once_works_too() -> None:
    class Inline(CrankedExecutor):
        def start(self, write: Any, snapshot: Any, ended: Any) -> None:
            write(snapshot)
            ended(None)

    stored: list[int] = []
    writer = DurableWriter("sync", stored.append, executor=Inline())
    for number in range(3):
        writer.commit(number)
        writer.barrier()
    writer.settle()
    assert stored == [0, 1, 2]


def test_a_thread_that_cannot_start_is_a_failed_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stored: list[int] = []
    writer = DurableWriter("async", stored.append)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        writer.commit(1)
    with pytest.raises(DurabilityError, match="RuntimeError"):
        writer.settle()
    writer.commit(2)
    writer.settle()
    assert stored == [2]
    assert writer.close()


def test_the_writer_survives_whatever_a_store_raises() -> None:
    faults: list[BaseException | None] = [SystemExit(3), KeyboardInterrupt(), None]

    def write(snapshot: int) -> None:
        fault = faults.pop(0)
        if fault is not None:
            raise fault

    with DurableWriter("async", write, time_left_ms=lambda: PATIENCE_S * 1000) as writer:
        for fault in (SystemExit, KeyboardInterrupt):
            writer.commit(1)
            with pytest.raises(DurabilityError) as caught:
                writer.settle()
            assert isinstance(caught.value.__cause__, fault)
        writer.commit(1)
        writer.settle()


def test_settle_keeps_raising_until_a_write_lands_each_time_an_error_of_its_own() -> None:
    executor = CrankedExecutor()
    writer: DurableWriter[int] = DurableWriter("async", lambda snapshot: None, executor=executor)
    writer.commit(1)
    executor.fail(StoreFault("disk full"))
    seen = []
    for _ in range(2):
        with pytest.raises(DurabilityError) as caught:
            writer.settle()
        seen.append(caught.value)
    assert seen[0] is not seen[1]
    assert seen[0].__cause__ is seen[1].__cause__ is writer.failure
    writer.commit(2)
    executor.land()
    writer.settle()
    assert writer.failure is None


def test_the_error_names_the_cause_and_repeats_nothing_of_it() -> None:
    class DriverError(Exception):
        code = "ValidationException"

    class Chatty(Exception):
        code = "my name is Ada"

    for cause, named in ((DriverError("Ada said hi"), "DriverError ValidationException"), (Chatty("Ada"), "Chatty")):
        text = str(DurabilityError(cause))
        assert named in text
        assert "Ada" not in text
    assert "not allowed to run" not in str(DurabilityError(DriverError()))


def test_a_lost_claim_below_can_be_told_from_a_store_that_is_away() -> None:
    executor = CrankedExecutor()
    writer: DurableWriter[int] = DurableWriter("sync", lambda snapshot: None, executor=executor)
    writer.commit(1)
    executor.fail(LostClaimError(turn=4))
    with pytest.raises(RetryableError) as caught:
        writer.barrier()
    assert isinstance(caught.value.__cause__, LostClaimError)


def test_a_blocked_barrier_and_two_settles_all_wake_up() -> None:
    executor = CrankedExecutor()
    writer: DurableWriter[int] = DurableWriter("sync", lambda snapshot: None, executor=executor)
    writer.commit(1)
    callers = [Caller(writer.barrier), Caller(writer.settle), Caller(writer.settle)]
    until(lambda: writer.callers_waiting == 3)
    assert all(caller.pending for caller in callers)
    executor.fail(StoreFault("disk full"))
    for caller in callers:
        caller.join()
        assert isinstance(caller.error, DurabilityError)
    assert writer.callers_waiting == 0


# --- close --------------------------------------------------------------------------------------------------


def test_close_loses_nothing_that_was_committed() -> None:
    store = GatedStore()
    before = own_threads()
    writer = DurableWriter("async", store.write)
    for number in (1, 2, 3):
        writer.commit(number)
    closing = Caller(lambda: writer.close() or pytest.fail("something is left"))
    store.land()
    store.wait_until_entered(2)
    store.land()
    closing.join()
    assert closing.error is None
    assert store.landed == [1, 3]
    assert own_threads() <= before


def test_close_does_not_raise_a_failure_and_may_be_called_again() -> None:
    def write(snapshot: int) -> None:
        raise StoreFault("disk full")

    before = own_threads()
    writer = DurableWriter("sync", write)
    writer.commit(1)
    assert writer.close()
    assert writer.close()
    assert own_threads() <= before
    with pytest.raises(DurabilityError):
        writer.settle()


def test_nothing_is_taken_after_close() -> None:
    executor = CrankedExecutor()
    writer: DurableWriter[int] = DurableWriter("sync", lambda snapshot: None, executor=executor)
    assert writer.close()
    with pytest.raises(DurabilityError):
        writer.commit(1)
    with pytest.raises(DurabilityError):
        writer.barrier()
    writer.settle()
    assert executor.started == []
    assert executor.closed == 1


def test_close_gives_up_on_a_store_that_hangs_and_starts_nothing_afterwards() -> None:
    store = GatedStore()
    before = own_threads()
    writer = DurableWriter("sync", store.write)
    writer.commit(1)
    writer.commit(2)
    store.wait_until_entered(1)
    assert not writer.close(timeout_s=0.01)
    store.land()  # The write that hung comes back: the queued one was dropped, and the thread ends by itself.
    until(lambda: own_threads() <= before)
    with pytest.raises(DurabilityError):
        writer.barrier()  # An abandoned run that wakes up late runs no tool.
    assert store.entered == [1]
    assert writer.close()


def test_leaving_the_block_by_an_error_closes_too() -> None:
    before = own_threads()
    stored: list[int] = []
    with pytest.raises(ZeroDivisionError), DurableWriter("async", stored.append) as writer:
        writer.commit(1)
        raise ZeroDivisionError
    assert stored == [1]
    assert own_threads() <= before


def test_an_idle_thread_keeps_no_snapshot_alive() -> None:
    import gc
    import weakref

    class Snapshot:
        pass

    executor = BackgroundThread()
    with DurableWriter[Snapshot]("async", lambda snapshot: None, executor=executor) as writer:
        snapshot = Snapshot()
        gone = weakref.ref(snapshot)
        writer.commit(snapshot)
        writer.settle()
        del snapshot

        def collected() -> bool:
            gc.collect()
            return gone() is None

        until(collected)


# --- the time that is left ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["settle", "barrier"])
def test_a_wait_ends_with_the_time_that_is_left(wait: str) -> None:
    executor = CrankedExecutor()
    left = iter([5.0, 1.0, 0.0])
    writer: DurableWriter[int] = DurableWriter(
        "sync", lambda snapshot: None, executor=executor, time_left_ms=lambda: next(left)
    )
    writer.commit(1)
    with pytest.raises(DurabilityError) as caught:
        getattr(writer, wait)()
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert writer.callers_waiting == 0
    executor.land()
    getattr(writer, wait)()


def test_leaving_the_block_waits_no_longer_than_the_time_that_is_left() -> None:
    executor = CrankedExecutor()
    with DurableWriter[int]("async", lambda snapshot: None, executor=executor, time_left_ms=lambda: 1) as writer:
        writer.commit(1)
        writer.commit(2)
    executor.land()
    assert executor.started == [1]
    assert writer.close()


def test_the_mode_is_checked() -> None:
    with pytest.raises(ValueError, match="exit, async or sync"):
        DurableWriter("Sync", lambda snapshot: None)  # type: ignore[arg-type]


# --- the observer of commits --------------------------------------------------------------------------------


def observed(mode: Any = "async", **facts: Any) -> tuple[CommitObserver, CrankedExecutor]:
    executor = CrankedExecutor()
    writer: DurableWriter[Progress] = DurableWriter(mode, lambda snapshot: None, executor=executor)
    return CommitObserver(writer, clock=ManualClock(), **({"session_id": "s"} | facts)), executor


def test_copies_are_deep() -> None:
    observer, executor = observed()
    message = {"role": "assistant", "content": "", "toolCalls": [{"id": "c", "name": "t", "args": {"items": [1]}}]}
    observer.observe([{"key": "history", "value": [message]}])
    before = executor.started[0].conversation()
    message["toolCalls"][0]["args"]["items"].append(2)  # type: ignore[index]
    read = executor.started[0].conversation()
    assert read == before
    read["history"].clear()
    assert executor.started[0].conversation() == before


@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, None, "3", [3]])
def test_an_iteration_is_a_finite_number_and_no_boolean(value: Any) -> None:
    observer, executor = observed()
    observer.observe([{"key": "iteration", "value": 2}])
    observer.observe([{"key": "iteration", "value": value}, {"key": "history", "value": []}])
    assert executor.started[0].conversation()["lastCompletedIteration"] == 2


def test_a_later_value_of_another_kind_does_not_undo_a_history() -> None:
    observer, executor = observed()
    observer.observe([{"key": "history", "value": []}, {"key": "history", "value": None}, {"value": 1}])
    assert len(executor.started) == 1


def test_exit_takes_no_copy() -> None:
    observer, executor = observed("exit")
    observer.observe([{"key": "history", "value": [object()]}])  # Not JSON: copying it would raise.
    assert executor.started == []


@pytest.mark.parametrize("value", [math.nan, b"bytes", {1}, object()])
def test_a_history_that_is_not_json_is_refused_without_quoting_it(value: Any) -> None:
    observer, executor = observed()
    with pytest.raises(UnstorableValueError) as caught:
        observer.observe([{"key": "history", "value": [{"role": "tool", "content": value}]}])
    assert str(value) not in str(caught.value)
    assert caught.value.__cause__ is None
    assert executor.started == []


def test_odd_text_survives_the_copy() -> None:
    observer, executor = observed()
    history = [{"role": "user", "content": "\u0000 \ud800 é é 😀 \u2028"}]
    observer.observe([{"key": "history", "value": history}])
    assert executor.started[0].conversation()["history"] == history
    assert json.loads(executor.started[0].conversation_text)["runId"] == "unknown"
