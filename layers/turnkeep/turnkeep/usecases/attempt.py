"""One attempt at a turn: builds the agent, runs it inside its deadline, and commits what it came to.

Everything a run does to the ledger goes through here, under the fence of its own run id. The agent runs in a thread of
its own, so that a model or a tool that does not return in time can be left behind and the answer still leaves.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.agent.port import Answered, Asked, HostedAgent, Outcome, TurnContext, TurnInfo
from turnkeep.decisions import pending_ask, question_of
from turnkeep.durability import DurableWriter
from turnkeep.errors import (
    ConversationMismatchError,
    DurabilityError,
    FactoryReusedAgentError,
    LostClaimError,
    RunFailedError,
    StoreUnavailableError,
    TurnkeepError,
    TurnOutOfTimeError,
    UnstorableValueError,
)
from turnkeep.ledger.codec import pack, to_text
from turnkeep.ledger.records import CONVERSATION_V1, FLOWCHART_V1, Ask, ConversationRecord, Status, TurnRecord
from turnkeep.messages import Message, shown_count
from turnkeep.usecases.asks import START_ATTENTION_MS, start_execution
from turnkeep.usecases.closing import closed, past
from turnkeep.usecases.once import LedgerOnce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.usecases.deps import Deadline, Deps


INLINE_BYTES = 200_000
"""Messages of a turn above this go to segments, so that its record stays well under an item's limit."""

INLINE_ASK_BYTES = 2_000
"""An ask above this stays in the checkpoint, so that a pausing turn's record stays under 4 KB."""

EVIDENCE_BYTES = 16_000
SETTLE_RESERVE_MS = 500


@dataclass(frozen=True)
class Begin:
    """Where an attempt begins.

    Attributes:
        record: the turn as this attempt claimed it (running, its run id).
        conversation: CONVERSATION as it was read; None where there is none yet.
        history: messages of earlier turns that count, closed, oldest first.
        history_turns: (turn, messages) of those turns, oldest first.
        left_out: what was not read: ``{"turns", "messages"}``.
        messages: this turn's durable messages, the user message first.
        checkpoint: a paused run's checkpoint that is to be resumed; None for a message.
    """

    record: TurnRecord
    conversation: ConversationRecord | None
    history: Sequence[Message]
    history_turns: Sequence[tuple[int, int]]
    left_out: dict[str, int]
    messages: Sequence[Message]
    checkpoint: dict[str, Any] | None = None


class Attempt:
    """One attempt; ``run`` is called once."""

    def __init__(self, deps: Deps, begin: Begin, deadline: Deadline) -> None:
        self._deps, self._begin, self._deadline = deps, begin, deadline
        self._record = begin.record
        self._stored = len(begin.messages)
        self._agreed: list[Message] = list(begin.messages)
        self._next_segment = 1
        self._stop = threading.Event()
        self._agent_id: str | None = None
        self._agent_version: str | None = None
        lease_ms = max(0, begin.record.lease_until_ms - deps.clock.now_ms())
        self._lease_ends = deps.clock.monotonic_ms() + lease_ms

    def run(self) -> TurnRecord:
        """Runs the agent and commits its outcome.

        Raises:
            RunFailedError: the agent raised; the turn is stored as ``failed``.
            TurnOutOfTimeError: the deadline came first; what was durable is kept and the lease handed back.
            ConversationMismatchError: another agent recorded this conversation; the turn is stored as ``refused``.
            LostClaimError: another attempt took over; nothing of this one is visible.
            StoreUnavailableError: the store did not answer; the same request takes the turn over.
        """
        agent: HostedAgent | None = None
        try:
            agent = self._build()
            self._name_agent(agent)
            mode = agent.durability or self._deps.settings.durability
            writer: DurableWriter[str] = DurableWriter(mode, self._write, time_left_ms=self._settle_left_ms)
            with _closing(writer, self._settle_left_ms):
                outcome = self._in_time(agent, writer)
                writer.settle()
            return self._commit(outcome)
        except LostClaimError:
            raise
        except ConversationMismatchError as error:
            if self._begin.checkpoint is not None:
                return self._fail(error)
            raise
        except TurnOutOfTimeError:
            self._hand_back()
            self._deps.note("out_of_time", self._facts())
            raise
        except StoreUnavailableError:
            self._hand_back()
            raise
        except DurabilityError as error:
            return self._not_durable(error)
        except Exception as error:
            return self._fail(error)

    def _not_durable(self, error: DurabilityError) -> TurnRecord:
        """A progress write did not land: its cause says whether the claim, the store or the value is at fault."""
        cause = error.__cause__
        if isinstance(cause, LostClaimError):
            raise cause
        if isinstance(cause, UnstorableValueError):
            return self._fail(cause)
        self._hand_back()
        raise StoreUnavailableError from error

    # --- the agent ------------------------------------------------------------------------------------------

    def _build(self) -> HostedAgent:
        record = self._record
        info = TurnInfo(
            conversation_id=record.key.conversation_id,
            turn=record.turn,
            attempt=record.attempt,
            run_id=record.run_id,
            epoch=record.epoch,
            principal=record.principal,
            tenant=record.key.tenant,
        )
        agent = self._deps.factory(info)
        self._info = info
        _refuse_reused(agent, record.run_id)
        return agent

    def _name_agent(self, agent: HostedAgent) -> None:
        conversation = self._begin.conversation
        stored = conversation.agent_id if conversation is not None else None
        if stored is not None and agent.agent_id is not None and stored != agent.agent_id:
            error = ConversationMismatchError(stored_agent_id=stored, agent_id=agent.agent_id)
            if self._begin.checkpoint is not None:
                raise error
            refused = replace(
                self._record,
                status=Status.REFUSED,
                lease_until_ms=0,
                saved_at_ms=self._deps.clock.now_ms(),
                shown_count=0,
                due_at_ms=None,
                error=_error_facts(error),
            )
            self._deps.ledger.commit(self._record, refused, conversation)
            raise error
        self._agent_id, self._agent_version = agent.agent_id or stored, agent.agent_version

    def _in_time(self, agent: HostedAgent, writer: DurableWriter[str]) -> Outcome:
        """Runs the agent in a thread, and leaves it behind when the time is up."""
        context = self._context(writer)
        box: list[Outcome | BaseException] = []

        def work() -> None:
            try:
                box.append(self._call(agent, context))
            except BaseException as error:
                box.append(error)

        thread = threading.Thread(target=work, name="turnkeep-agent", daemon=True)
        thread.start()
        thread.join(max(0, self._run_left_ms()) / 1000)
        if not box:
            # What still runs may finish in memory, but its commits and calls are refused from here on.
            self._stop.set()
            raise TurnOutOfTimeError(turn=self._record.turn)
        outcome = box[0]
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, BaseException):
            raise RunFailedError(turn=self._record.turn, cause_code=type(outcome).__name__) from outcome
        return outcome

    def _call(self, agent: HostedAgent, context: TurnContext) -> Outcome:
        decision = self._record.decision
        if self._begin.checkpoint is not None and decision is not None:
            return agent.resume(context, self._begin.checkpoint, decision.value)
        return agent.run(context)

    def _context(self, writer: DurableWriter[str]) -> TurnContext:
        def commit(messages: list[Message], iteration: int) -> None:
            self._check()
            text = to_text(messages[len(self._begin.messages) :], name="messages")
            self._agreed = [*self._begin.messages, *json.loads(text)]
            self._record = replace(self._record, iteration=iteration)
            writer.commit(text)
            self._deps.probe("agreed")

        def barrier() -> None:
            self._check()
            writer.barrier()

        return TurnContext(
            info=self._info,
            history=self._begin.history,
            messages=list(self._begin.messages),
            commit=commit,
            barrier=barrier,
            check=self._check,
            time_left_ms=self._run_left_ms,
            once=LedgerOnce(self._deps, self._record),
            left_out=self._begin.left_out,
            history_turns=self._begin.history_turns,
        )

    def _check(self) -> None:
        """Before every call and every write: this attempt still holds its lease, and there is time."""
        if self._deps.clock.monotonic_ms() >= self._lease_ends:
            raise LostClaimError(turn=self._record.turn)
        if self._stop.is_set() or self._run_left_ms() <= 0:
            raise TurnOutOfTimeError(turn=self._record.turn)

    def _run_left_ms(self) -> int:
        return self._deadline.left_ms() - self._deps.settings.deadline_margin_ms

    def _settle_left_ms(self) -> int:
        return max(0, self._deadline.left_ms() - SETTLE_RESERVE_MS)

    # --- progress -------------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        """Stores one snapshot of agreed messages: only what no segment holds yet. On the writer's thread."""
        if self._deps.clock.monotonic_ms() >= self._lease_ends:
            raise LostClaimError(turn=self._record.turn)
        messages: list[Message] = json.loads(text)
        new = messages[self._stored - len(self._begin.messages) :]
        if not new:
            return
        self._next_segment = self._deps.ledger.write_segments(
            self._record, self._next_segment, "messages", self._stored, new
        )
        self._stored += len(new)
        self._deps.note("segment", self._facts())

    # --- outcomes -------------------------------------------------------------------------------------------

    def _commit(self, outcome: Outcome) -> TurnRecord:
        if self._deps.clock.monotonic_ms() >= self._lease_ends:
            raise LostClaimError(turn=self._record.turn)
        self._deps.probe("ran")
        after = self._answered(outcome) if isinstance(outcome, Answered) else self._asked(outcome)
        self._deps.ledger.commit(self._begin.record, after, self._begin.conversation)
        self._deps.probe("committed")
        if after.status is Status.AWAITING:
            self._deps.events.tell("ask.opened", after)
            if after.execution_ask is None:
                start_execution(self._deps, after)
        else:
            self._deps.events.tell("turn.ended", after)
        return after

    def _answered(self, outcome: Answered) -> TurnRecord:
        rest = self._spill(outcome.messages, INLINE_BYTES)
        return self._after(
            outcome,
            Status.COMPLETE,
            CONVERSATION_V1,
            messages=rest,
            ask=None,
            checkpoint_segment=None,
            past_asks=past(self._begin.record, "answered", self._deps.clock.now_ms()),
            due_at_ms=None,
        )

    def _asked(self, outcome: Asked) -> TurnRecord:
        self._spill(outcome.messages, 0)
        checkpoint_at = self._next_segment
        self._next_segment = self._deps.ledger.write_segments(
            self._begin.record, checkpoint_at, "checkpoint", 0, outcome.checkpoint
        )
        now_ms = self._deps.clock.now_ms()
        expires_in_s = outcome.expires_in_s or self._deps.settings.ask_expires_s
        record = self._begin.record
        whole = len(_as_bytes(pack(outcome.pause_data, name="ask"))) <= INLINE_ASK_BYTES
        ask = Ask(
            ask_id=f"ask-{record.turn}-{self._deps.random_id(12)}",
            audience=outcome.audience,
            pause_data=outcome.pause_data if whole else _abstract(outcome.pause_data),
            whole=whole,
            asked_at_ms=now_ms,
            expires_at_ms=now_ms + expires_in_s * 1000,
        )
        keep_s = ask.expires_at_ms // 1000 + 86_400
        delete_after_s = None if record.delete_after_s is None else max(record.delete_after_s, keep_s)
        new_execution = record.ask is None or outlives_execution(record, ask)
        return self._after(
            outcome,
            Status.AWAITING,
            FLOWCHART_V1,
            messages=(),
            ask=ask,
            decision=None,
            checkpoint_segment=(record.attempt, checkpoint_at),
            due_at_ms=now_ms + START_ATTENTION_MS,
            past_asks=past(record, "answered", now_ms),
            start_number=1 if new_execution else record.start_number,
            execution_ask=None if new_execution else _execution_ask(record),
            delete_after_s=delete_after_s,
        )

    def _after(self, outcome: Outcome, status: Status, form: str, **facts: Any) -> TurnRecord:
        evidence = dict(outcome.evidence)
        if len(to_text(evidence, name="evidence").encode()) > EVIDENCE_BYTES:
            evidence = {"cut": "the evidence was over its bound and is not kept"}
        return replace(
            self._begin.record,
            status=status,
            format=form,
            lease_until_ms=0,
            saved_at_ms=self._deps.clock.now_ms(),
            shown_count=shown_count(outcome.messages),
            segments=self._next_segment - 1,
            usage=dict(outcome.usage),
            evidence=evidence,
            iteration=outcome.iteration,
            task_token=None,
            agent_id=self._agent_id,
            agent_version=self._agent_version,
            **facts,
        )

    def _spill(self, messages: Sequence[Message], inline_bytes: int) -> tuple[Message, ...]:
        """Moves the turn's messages that no segment holds yet to segments where they are over the bound."""
        rest = list(messages[self._stored :])
        if not rest:
            return ()
        user = len(_as_bytes(pack(self._begin.record.user)))
        if inline_bytes and user + len(_as_bytes(pack(rest, name="messages"))) <= inline_bytes:
            return tuple(rest)
        self._next_segment = self._deps.ledger.write_segments(
            self._begin.record, self._next_segment, "messages", self._stored, rest
        )
        self._stored += len(rest)
        return ()

    def _fail(self, error: Exception) -> TurnRecord:
        """Stores the turn as failed, with what the run had agreed on until then, and raises."""
        before, now_ms = self._begin.record, self._deps.clock.now_ms()
        facts = _error_facts(error)
        rest = self._spill(self._agreed, INLINE_BYTES)
        own = replace(before, segments=self._next_segment - 1, messages=rest)
        after = closed(own, Status.FAILED, now_ms=now_ms, durable=self._agreed, error=facts)
        if before.decision is not None:
            after = replace(after, answered_mark=answered_mark(before, facts, now_ms))
        self._deps.ledger.commit(before, after, self._begin.conversation)
        self._deps.events.tell("turn.ended", after)
        self._deps.note("failed", {**self._facts(), "cause": type(error).__name__, "error": error})
        raise RunFailedError(turn=before.turn, cause_code=facts["code"]) from error

    def _hand_back(self) -> None:
        """Gives the lease up so that nobody has to wait it out; quiet where even that cannot be written."""
        try:
            self._deps.ledger.hand_back(self._begin.record)
        except StoreUnavailableError as error:
            self._deps.note("lease_kept", {**self._facts(), "cause": type(error).__name__})

    def _facts(self) -> dict[str, Any]:
        record = self._begin.record
        return {"turn": record.turn, "attempt": record.attempt, "runId": record.run_id}


class _closing:
    """Closes the writer whatever happens: nothing may be outstanding when Lambda freezes the process."""

    def __init__(self, writer: DurableWriter[str], left_ms: Callable[[], int]) -> None:
        self._writer, self._left_ms = writer, left_ms

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._writer.close(self._left_ms() / 1000)


def answered_mark(record: TurnRecord, error: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """CONTRACT.md 17.1's mark: the decision was used, its resume started and failed, and it is never used again."""
    decision = record.decision
    if decision is None:
        return {}
    mark: dict[str, Any] = {"decision": decision.value, "atMs": now_ms, "runId": record.run_id, "error": error}
    if decision.answered_by is not None:
        mark["answeredBy"] = decision.answered_by
    return mark


def _execution_ask(record: TurnRecord) -> str | None:
    """The ask that the turn's execution was started for: it goes on waiting, now on the next one."""
    return record.execution_ask or (record.ask.ask_id if record.ask is not None else None)


EXECUTION_LIFE_MS = 364 * 86_400_000


def outlives_execution(record: TurnRecord, ask: Ask) -> bool:
    """Whether the turn's execution, which lives a year at most, would end before the ask expires."""
    return ask.expires_at_ms - record.started_at_ms > EXECUTION_LIFE_MS


def _error_facts(error: Exception) -> dict[str, Any]:
    """What of an error is stored: its code, its class and our own sentence; never somebody else's text."""
    if isinstance(error, TurnkeepError):
        return {"code": error.code or "ERR_RUN_FAILED", "message": str(error), "cause": type(error).__name__}
    return {
        "code": "ERR_RUN_FAILED",
        "message": "The agent raised an error; the log of this request names where.",
        "cause": type(error).__name__,
    }


def _refuse_reused(agent: HostedAgent, run_id: str) -> None:
    """An agent belongs to one turn: the same instance twice would carry one person's state into another's turn."""
    seen = getattr(agent, "_turnkeep_run", None)
    if seen is not None and seen != run_id:
        raise FactoryReusedAgentError
    try:
        object.__setattr__(agent, "_turnkeep_run", run_id)
    except AttributeError as error:
        raise FactoryReusedAgentError(reason="takes no attributes") from error


def _as_bytes(packed: str | bytes) -> bytes:
    return packed if isinstance(packed, bytes) else packed.encode()


def _abstract(pause_data: Any) -> dict[str, Any]:
    """What the record says of an ask that is too large for it; the whole lies in the checkpoint."""
    pending = pending_ask(pause_data)
    texts = {"toolName": pending.get("tool"), "question": question_of(pending)}
    return {name: text[:300] for name, text in texts.items() if isinstance(text, str)}
