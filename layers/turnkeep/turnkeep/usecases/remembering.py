"""Memory of an answered turn, written behind its commit: it may fail, and the answer stands all the same.

Entries are items of their own; the turn's record is neither read nor written here, so no turn number moves and no
claim is lost. The number is the committed turn's, resolved once by its claim and shared by every writer.
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from turnkeep.agent.port import TurnMemory
from turnkeep.ledger.records import Status
from turnkeep.memory.in_ledger import LedgerMemory
from turnkeep.memory.keeping import AnsweredTurn
from turnkeep.memory.writers import TurnScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.records import TurnRecord
    from turnkeep.memory.entries import Entry
    from turnkeep.memory.keeping import MemoryWriter
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Deps


def memory_of(deps: Deps, record: TurnRecord) -> TurnMemory:
    """The memory of whom a turn belongs to: the conversation's identity, whoever answers its asks (17.2)."""
    identity = {"conversationId": record.key.conversation_id}
    if record.key.tenant:
        identity["tenant"] = record.key.tenant
    if record.principal:
        identity["principal"] = record.principal
    return TurnMemory(LedgerMemory(deps.ledger.store, deps.clock), identity)


def remember(
    deps: Deps, writers: Sequence[MemoryWriter], record: TurnRecord, messages: Sequence[Message], *, left_ms: int
) -> None:
    """Writes what an answered turn leaves in memory; nothing for a turn that has not its answer. Never raises.

    Whatever fails, or takes longer than the time that is left, is noted as ``memory_failed`` with the writer's class.

    Args:
        deps: the ports.
        writers: the agent's.
        record: the turn as it was committed.
        messages: all of its messages.
        left_ms: how long writers may take together.
    """
    if record.status is not Status.COMPLETE:
        return
    memory = memory_of(deps, record)
    turn = AnsweredTurn(
        scope=TurnScope(memory.identity, record.turn, [dict(message) for message in messages]),
        evidence=record.evidence or {},
        usage=record.usage or {},
        iteration=record.iteration,
        duration_ms=max(0, (record.saved_at_ms or 0) - record.started_at_ms),
    )
    ends_at = deps.clock.monotonic_ms() + left_ms
    for writer in writers:
        facts = {"turn": record.turn, "attempt": record.attempt, "runId": record.run_id}
        try:
            entries = _made(deps, writer, turn, ends_at - deps.clock.monotonic_ms())
            memory.store.put_many(memory.identity, [_bounded(entry, record) for entry in entries])
            deps.probe("remembered")
        except Exception as error:  # whatever somebody's extractor or embedder raises: the answer stands
            deps.note("memory_failed", {**facts, "writer": type(writer).__name__, "cause": type(error).__name__})


def _made(deps: Deps, writer: MemoryWriter, turn: AnsweredTurn, left_ms: float) -> list[Entry]:
    """A writer's entries, made in a thread that is left behind when the time is up: it stores nothing by itself.

    Raises:
        TimeoutError: the time is up.
        Exception: what the writer raised.
    """
    if left_ms <= 0:
        raise TimeoutError
    done: list[list[Entry]] = []
    raised: list[BaseException] = []
    context = copy_context()

    def in_thread() -> None:
        try:
            done.append(context.run(writer.entries, turn, now_ms=deps.clock.now_ms()))
        # It is raised again by whoever waits for this thread.
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=in_thread, name="turnkeep-memory", daemon=True)
    thread.start()
    thread.join(left_ms / 1000)
    if raised:
        raise raised[0] if isinstance(raised[0], Exception) else RuntimeError from raised[0]
    if not done:
        raise TimeoutError
    return done[0]


def _bounded(entry: Entry, record: TurnRecord) -> dict[str, Any]:
    """The entry, which goes when its turn goes: no memory of what a conversation does not keep any more."""
    if record.delete_after_s is None:
        return entry
    ends = record.delete_after_s * 1000
    ttl = entry.get("ttl")
    return entry if isinstance(ttl, int | float) and ttl <= ends else entry | {"ttl": ends}
