"""How a run's progress reaches its store while the run goes on: the three durability modes (CONTRACT.md 12).

``DurableWriter`` lives for one run and takes its memory with it. The agent's thread hands it one snapshot a commit;
another thread writes them, one at a time, the newest superseding what still waits. ``barrier`` and ``settle`` are the
two places where the agent's thread waits: before an iteration's tools run, and before a reply leaves.

``CommitObserver`` (its code is in ``turnkeep.commits``) stands before a writer where a run reports commits as mutations
of its state: it gathers what a conversation checkpoint is made of, and takes the copy.

Threads, no event loop: Lambda handlers are synchronous, and a process that Lambda freezes after the reply must have
nothing outstanding then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Literal, Protocol, Self, TypeVar

from turnkeep.commits import CommitObserver, Progress
from turnkeep.errors import DurabilityError

__all__ = ["BackgroundThread", "CommitObserver", "DurabilityMode", "DurableWriter", "Progress", "WriteExecutor"]

Snapshot = TypeVar("Snapshot")
DurabilityMode = Literal["exit", "async", "sync"]
Ended = Callable[[BaseException | None], None]


class WriteExecutor(Protocol):
    """Where writes run: a port, so that a test can land or fail each write by hand."""

    def start(self, write: Callable[[Snapshot], None], snapshot: Snapshot, ended: Ended) -> None:
        """Begins ``write(snapshot)`` elsewhere and returns at once.

        ``ended`` is called exactly once, after the write: with what it raised, or with None. It may be called from any
        thread, and may call ``start`` again. Called for one write at a time.
        """
        ...

    def close(self, timeout_s: float | None = None) -> bool:
        """Ends what ``start`` began to use, behind a write that may be in flight. Returns whether nothing is left."""
        ...


class BackgroundThread:
    """Runs writes on one thread of its own, started with the first write and ended by ``close``."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, write: Callable[[Snapshot], None], snapshot: Snapshot, ended: Ended) -> None:
        """Hands the write to the thread.

        Raises:
            RuntimeError: the process can start no more threads.
        """

        def job() -> None:
            try:
                write(snapshot)
            # Whatever it is, the thread must outlive it and settle() must report it; nothing is swallowed here.
            except BaseException as error:
                ended(error)
            else:
                ended(None)

        if self._thread is None:
            # A daemon: a store call that hangs past its own time-out must not keep a process from exiting.
            thread = threading.Thread(target=self._work, name="turnkeep-durability", daemon=True)
            thread.start()
            self._thread = thread
        self._jobs.put(job)

    def close(self, timeout_s: float | None = None) -> bool:
        """Ends the thread and waits for its end. Returns False where it has not ended in time."""
        if self._thread is None:
            return True
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # An idle thread keeps no snapshot alive.


class DurableWriter(Generic[Snapshot]):
    """Serialises one run's progress writes: at most one in flight, the newest waiting, so a store holds a prefix.

    A writer is for one run; a failure belongs to the run whose writes it met. Use it as a context manager, or call
    ``close``: it leaves no thread behind. ``commit`` and ``barrier`` may be called from any thread.

    Args:
        mode: ``exit`` writes nothing (no thread either); ``async`` and ``sync`` write at every commit; only under
            ``sync`` does ``barrier`` wait.
        write: stores one snapshot. Runs on the executor's thread; what it raises is remembered until a later write
            succeeds.
        executor: where writes run; a thread of its own unless given.
        time_left_ms: milliseconds that a wait may still take, asked anew at each wait; None waits for as long as it
            takes. A wait that runs out raises DurabilityError with a TimeoutError as its cause.
    """

    def __init__(
        self,
        mode: DurabilityMode,
        write: Callable[[Snapshot], None],
        *,
        executor: WriteExecutor | None = None,
        time_left_ms: Callable[[], float] | None = None,
    ) -> None:
        if mode not in ("exit", "async", "sync"):
            raise ValueError("durability is exit, async or sync")
        self.mode: DurabilityMode = mode
        self._write = write
        self._executor: WriteExecutor = BackgroundThread() if executor is None else executor
        self._time_left_ms = time_left_ms
        self._changed = threading.Condition(threading.Lock())
        self._in_flight = False  # Where one waits, one is in flight.
        self._waiting: tuple[Snapshot, ...] = ()  # None or one; a tuple, because a snapshot may be None itself.
        self._failure: BaseException | None = None
        self._callers_waiting = 0
        self._closed = False
        # Nothing outstanding, nothing failed, open. Written under the lock; the barrier reads it without: it becomes
        # False only through the reader's own commits or close, and reading an older False only costs the slow path.
        self._quiet = True

    @property
    def writes(self) -> bool:
        """Whether a commit leads to a write: under ``exit`` making a snapshot would be a waste."""
        return self.mode != "exit"

    @property
    def outstanding(self) -> bool:
        """Whether a write is in flight, and maybe another one waits."""
        with self._changed:
            return self._in_flight

    @property
    def failure(self) -> BaseException | None:
        """What the newest ended write raised; None where it landed."""
        with self._changed:
            return self._failure

    @property
    def callers_waiting(self) -> int:
        """How many callers wait in ``settle`` or ``barrier`` right now."""
        with self._changed:
            return self._callers_waiting

    def commit(self, snapshot: Snapshot) -> None:
        """Starts the write of a snapshot, or lets it wait for the one in flight. Never waits for the store.

        Args:
            snapshot: the run's agreed state as of now. The caller has copied it: nothing may change it afterwards.

        Raises:
            DurabilityError: the writer is closed (a run that was abandoned and goes on has to stop here).
        """
        if self.mode == "exit":
            return
        with self._changed:
            if self._closed:
                raise self._refusal(_WriterClosedError())
            self._quiet = False
            if self._in_flight:
                self._waiting = (snapshot,)
                return
            self._in_flight = True
        self._start(snapshot)

    def barrier(self) -> None:
        """To be passed before an iteration's tools run: under ``sync`` waits until every earlier commit has landed.

        Costs two attribute reads, no lock and no switch of threads, where nothing is outstanding and nothing failed;
        under ``exit`` and ``async`` always.

        Raises:
            DurabilityError: the newest write failed, or has not ended in the time that is left: run no tool.
        """
        if self._quiet or self.mode != "sync":
            return
        self._settle(refuse_closed=True)

    def settle(self) -> None:
        """Waits until nothing is in flight and nothing waits, commits that arrive meanwhile included.

        Raises:
            DurabilityError: the newest write failed (each call says so again until a later write lands), or the
                time that is left ran out.
        """
        if self._quiet:
            return
        self._settle(refuse_closed=False)

    def close(self, timeout_s: float | None = None) -> bool:
        """Takes no more commits, lets what is outstanding end, and ends the thread. Raises no failure: settle first.

        Args:
            timeout_s: how long to wait at most; the time that is left unless given. When it runs out, what still
                waits is dropped (a write in flight cannot be taken back).

        Returns:
            Whether nothing is left behind. Calling it again is harmless.
        """
        if timeout_s is None and self._time_left_ms is not None:
            timeout_s = max(0.0, self._time_left_ms() / 1000)
        with self._changed:
            self._closed, self._quiet = True, False
            if not self._changed.wait_for(lambda: not self._in_flight, timeout_s):
                self._waiting = ()
                timeout_s = 0  # The thread is told to end behind the write that hangs; nobody waits for that.
        return self._executor.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, snapshot: Snapshot) -> None:
        """Starts a write that is already counted as in flight. Outside the lock: an executor may end it at once."""
        try:
            self._executor.start(self._write, snapshot, self._ended)
        # A store that raises at the call is a failed write like any other (CONTRACT.md 17.4).
        except Exception as error:
            self._ended(error)

    def _ended(self, error: BaseException | None) -> None:
        with self._changed:
            self._failure = error
            if self._waiting:
                (snapshot,), self._waiting = self._waiting, ()
            else:
                self._in_flight = False
                self._quiet = error is None and not self._closed
                self._changed.notify_all()
                return
        self._start(snapshot)

    def _settle(self, *, refuse_closed: bool) -> None:
        with self._changed:
            if refuse_closed and self._closed:
                raise self._refusal(_WriterClosedError())
            self._callers_waiting += 1
            try:
                while self._in_flight:
                    left_s = None if self._time_left_ms is None else self._time_left_ms() / 1000
                    if left_s is not None and left_s <= 0:
                        overdue = TimeoutError("a progress write has not ended in the time that is left")
                        raise self._refusal(overdue) from overdue
                    self._changed.wait(left_s)
            finally:
                self._callers_waiting -= 1
            failure = self._failure
        if failure is not None:
            raise self._refusal(failure) from failure

    def _refusal(self, cause: BaseException) -> DurabilityError:
        return DurabilityError(cause, tool_call_blocked=self.mode == "sync")


class _WriterClosedError(RuntimeError):
    """A commit or a barrier after ``close``."""
