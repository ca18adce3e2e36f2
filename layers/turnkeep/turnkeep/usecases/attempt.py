"""One attempt at a turn: builds the agent, runs it inside its deadline, and commits what it came to.

Everything a run does to the ledger goes through here, under the fence of its own run id. The agent runs in a thread of
its own, so that a model or a tool that does not return in time can be left behind and the answer still leaves.
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from turnkeep.agent.port import HostedAgent, Outcome, TurnContext, TurnInfo, TurnMemory
from turnkeep.agent.provider import ModelTimeoutError
from turnkeep.durability import DurableWriter
from turnkeep.errors import (
    ConversationMismatchError,
    DurabilityError,
    FactoryReusedAgentError,
    LostClaimError,
    RetryableError,
    RunFailedError,
    StoreUnavailableError,
    TurnOutOfTimeError,
)
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.usecases.asks import start_execution
from turnkeep.usecases.once import LedgerOnce
from turnkeep.usecases.outcomes import Begin, NamedAgent, ended, error_facts, failed, refused
from turnkeep.usecases.progress import Progress, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.memory.keeping import MemoryWriter
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Deadline, Deps

__all__ = ["Attempt", "Begin"]

T = TypeVar("T")

SETTLE_RESERVE_MS = 500
"""What is left for the last write and the answer when nobody waits for progress writes any more."""


class Attempt:
    """One attempt; ``run`` is called once."""

    def __init__(self, deps: Deps, begin: Begin, deadline: Deadline) -> None:
        self._deps, self._begin, self._deadline = deps, begin, deadline
        self._left_behind = threading.Event()
        self._agent = NamedAgent()
        self._memory_writers: tuple[MemoryWriter, ...] = ()
        lease_ms = max(0, begin.record.lease_until_ms - deps.clock.now_ms())
        # By the monotonic clock: no adjustment of the wall clock makes a lease longer.
        self._lease_ends = deps.clock.monotonic_ms() + lease_ms
        self._progress = Progress(deps.ledger, begin.record, begin.messages, may_write=self._check_lease)
        self._nothing_in_flight = True

    def run(self) -> TurnRecord:
        """Runs the agent and commits its outcome.

        Returns:
            The turn as it was committed, its output in it: complete or awaiting.

        Raises:
            RunFailedError: the agent raised; the turn is stored as ``failed``, with what it had agreed on.
            TurnOutOfTimeError: the deadline came first; what the run had agreed on is kept, the lease handed back.
            ConversationMismatchError: another agent recorded this conversation; the turn is stored as ``refused``.
            LostClaimError: another attempt took over; nothing of this one is visible.
            StoreUnavailableError: the store did not answer; the same request takes the turn over.
            RetryableError: something else that passes, such as a model that throttles; likewise.
        """
        try:
            return self._run()
        except (RetryableError, TurnOutOfTimeError) as error:
            self._stop_here()
            if isinstance(error, TurnOutOfTimeError):
                self._deps.note("out_of_time", self._facts())
            raise

    def _run(self) -> TurnRecord:
        try:
            outcome = self._outcome()
            self._check_lease()
            self._deps.probe("ran")
            after = ended(self._deps, self._begin, self._progress, self._agent, outcome)
        except (LostClaimError, TurnOutOfTimeError):
            raise
        except ModelTimeoutError as error:
            raise TurnOutOfTimeError(turn=self._begin.record.turn) from error
        except ConversationMismatchError as error:
            if self._begin.checkpoint is not None:
                self._fail(error)
            self._commit(refused(self._deps, self._begin, error_facts(error)))
            raise
        except DurabilityError as error:
            self._not_durable(error)
        except RetryableError:
            raise
        except Exception as error:
            self._fail(error)
        self._commit(after)
        self._tell(after)
        self._remember(after)
        return self._with_output(after)

    # --- the agent ------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        agent = self._in_time(self._build)
        self._refuse_other_agent(agent)
        self._memory_writers = tuple(getattr(agent, "memory", None) or ())
        mode = agent.durability or self._deps.settings.durability
        writer: DurableWriter[Snapshot] = DurableWriter(mode, self._write, time_left_ms=self._settle_left_ms)
        try:
            context = self._context(writer)
            outcome = self._in_time(lambda: self._call(agent, context))
            writer.settle()
            return outcome
        finally:
            # Whatever happened: nothing may be outstanding when Lambda freezes the process behind the reply.
            self._nothing_in_flight = writer.close(self._settle_left_ms() / 1000)

    def _build(self) -> HostedAgent:
        agent = self._deps.factory(self._info())
        _refuse_reused(agent, self._begin.record.run_id)
        return agent

    def _info(self) -> TurnInfo:
        record = self._begin.record
        return TurnInfo(
            conversation_id=record.key.conversation_id,
            turn=record.turn,
            attempt=record.attempt,
            run_id=record.run_id,
            epoch=record.epoch,
            principal=record.principal,
            tenant=record.key.tenant,
        )

    def _refuse_other_agent(self, agent: HostedAgent) -> None:
        conversation = self._begin.conversation
        stored = conversation.agent_id if conversation is not None else None
        if stored is not None and agent.agent_id is not None and stored != agent.agent_id:
            raise ConversationMismatchError(stored_agent_id=stored, agent_id=agent.agent_id)
        self._agent = NamedAgent(agent.agent_id or stored, agent.agent_version)

    def _in_time(self, work: Callable[[], T]) -> T:
        """Does the work in a thread, and leaves it behind when the time is up."""
        if self._run_left_ms() <= 0:
            raise TurnOutOfTimeError(turn=self._begin.record.turn)
        done: list[T] = []
        raised: list[BaseException] = []
        context = copy_context()

        def in_thread() -> None:
            try:
                done.append(context.run(work))
            # It is raised again by whoever waits for this thread.
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=in_thread, name="turnkeep-agent", daemon=True)
        thread.start()
        thread.join(self._run_left_ms() / 1000)
        if raised:
            if isinstance(raised[0], Exception):
                raise raised[0]
            # A tool that exits, for instance: the end of its turn, and not of this process.
            raise RunFailedError(turn=self._begin.record.turn, cause_code=type(raised[0]).__name__) from raised[0]
        if not done:
            # What still runs may finish in memory, but it agrees on nothing and calls nothing from here on.
            self._left_behind.set()
            self._progress.leave()
            raise TurnOutOfTimeError(turn=self._begin.record.turn)
        return done[0]

    def _call(self, agent: HostedAgent, context: TurnContext) -> Outcome:
        decision = self._begin.record.decision
        if self._begin.checkpoint is not None and decision is not None:
            return agent.resume(context, self._begin.checkpoint, decision.value)
        return agent.run(context)

    def _context(self, writer: DurableWriter[Snapshot]) -> TurnContext:
        def commit(messages: list[Message], iteration: int) -> None:
            del iteration  # counted anew from the messages by whoever goes on
            self._check_lease()
            snapshot = self._progress.agree(messages)
            if snapshot is not None:
                writer.commit(snapshot)
                self._deps.probe("agreed")
            # Behind the commit: what the iteration did is agreed on before the deadline stops the run here.
            self._check()

        def barrier() -> None:
            self._check()
            writer.barrier()

        return TurnContext(
            info=self._info(),
            history=self._begin.history,
            messages=list(self._begin.messages),
            commit=commit,
            barrier=barrier,
            check=self._check,
            time_left_ms=self._run_left_ms,
            once=LedgerOnce(self._deps, self._begin.record, check=self._check),
            left_out=self._begin.left_out,
            history_turns=self._begin.history_turns,
            memory=self._open_memory,
        )

    def _open_memory(self) -> TurnMemory:
        from turnkeep.usecases.remembering import memory_of

        return memory_of(self._deps, self._begin.record)

    def _check(self) -> None:
        """Before every call: this attempt still holds its lease, and there is time."""
        self._check_lease()
        if self._left_behind.is_set() or self._run_left_ms() <= 0:
            raise TurnOutOfTimeError(turn=self._begin.record.turn)

    def _check_lease(self) -> None:
        """Before every write: this attempt still holds its lease."""
        if self._deps.clock.monotonic_ms() >= self._lease_ends:
            raise LostClaimError(turn=self._begin.record.turn)

    def _run_left_ms(self) -> int:
        return max(0, self._deadline.left_ms() - self._deps.settings.deadline_margin_ms)

    def _settle_left_ms(self) -> int:
        return max(0, self._deadline.left_ms() - SETTLE_RESERVE_MS)

    def _write(self, snapshot: Snapshot) -> None:
        """A progress write, on the writer's thread."""
        before = self._progress.segments
        self._progress.write(snapshot)
        if self._progress.segments > before:
            self._deps.note("segment", self._facts())

    # --- the end --------------------------------------------------------------------------------------------

    def _commit(self, after: TurnRecord) -> None:
        """Commits under this attempt's fence. Where the store does not answer, looks whether it landed all the same."""
        try:
            self._deps.ledger.commit(self._begin.record, after, self._begin.conversation)
        except StoreUnavailableError:
            stored = self._deps.ledger.turn(after.key, after.turn)
            if stored is None or (stored.run_id, stored.status) != (after.run_id, after.status):
                raise
        self._deps.probe("committed")

    def _tell(self, after: TurnRecord) -> None:
        if after.status is not Status.AWAITING:
            self._deps.events.tell("turn.ended", after)
            return
        self._deps.note("paused", self._facts())
        self._deps.events.tell("ask.opened", after)
        if after.execution_ask is None:
            start_execution(self._deps, after)

    def _remember(self, after: TurnRecord) -> None:
        """What the agent wants kept in memory of its answer; the time that is left before the reply bounds it."""
        if self._memory_writers:
            from turnkeep.usecases.remembering import remember

            remember(self._deps, self._memory_writers, after, self._progress.agreed, left_ms=self._run_left_ms())

    def _with_output(self, after: TurnRecord) -> TurnRecord:
        """The record with its answer in it, where that went to a segment."""
        if after.status is not Status.COMPLETE or after.messages:
            return after
        return replace(after, messages=self._progress.agreed[-1:])

    def _fail(self, error: BaseException) -> NoReturn:
        """Stores the turn as failed, with what the run had agreed on until then, and raises."""
        facts = error_facts(error)
        after = failed(self._deps, self._begin, self._progress, facts)
        self._commit(after)
        self._deps.events.tell("turn.ended", after)
        self._deps.note("failed", {**self._facts(), "cause": type(error).__name__, "error": error})
        raise RunFailedError(turn=after.turn, cause_code=facts["code"]) from error

    def _not_durable(self, error: DurabilityError) -> NoReturn:
        """A progress write did not land: its cause says whether the claim, the store or the value is at fault."""
        cause = error.__cause__
        if isinstance(cause, LostClaimError):
            raise cause
        if cause is None or isinstance(cause, RetryableError | TimeoutError):
            raise StoreUnavailableError from error
        self._fail(cause)

    def _stop_here(self) -> None:
        """Leaves the turn for whoever goes on: makes what was agreed durable, and gives the lease up.

        Quiet where even that cannot be written: then the lease runs out by itself.
        """
        try:
            if self._nothing_in_flight:
                self._progress.write(self._progress.agreed)
            self._deps.ledger.hand_back(self._begin.record)
        except (StoreUnavailableError, LostClaimError) as error:
            self._deps.note("lease_kept", {**self._facts(), "cause": type(error).__name__})

    def _facts(self) -> dict[str, Any]:
        record = self._begin.record
        return {"turn": record.turn, "attempt": record.attempt, "runId": record.run_id}


def _refuse_reused(agent: HostedAgent, run_id: str) -> None:
    """An agent belongs to one turn: the same instance twice would carry one person's state into another's turn."""
    seen = getattr(agent, "_turnkeep_run", None)
    if seen is not None and seen != run_id:
        raise FactoryReusedAgentError
    try:
        object.__setattr__(agent, "_turnkeep_run", run_id)
    except AttributeError as error:
        raise FactoryReusedAgentError(reason="takes no attributes") from error
