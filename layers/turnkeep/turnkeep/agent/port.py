"""The port between a turn and the agent that runs it. No AWS, no HTTP.

turnkeep builds an agent for one turn, hands it a ``TurnContext``, and gets an ``Answered`` or an ``Asked`` back. An
agent of another framework joins by being such an object (``HostedAgent``).

Messages are JSON objects in the shape of CONTRACT.md 1 (``role``, ``content``, ``toolCalls``, ``toolCallId``,
``toolName``, ``thinkingBlocks``, unknown keys kept), never a class: what an older or newer writer put there survives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from turnkeep.messages import Message  # noqa: TC001 - part of the port, imported from here

if TYPE_CHECKING:
    from turnkeep.memory.store import SearchableMemoryStore

DurabilityMode = Literal["exit", "async", "sync"]

ENGINE = "turnkeep-agent-1"
"""Names the checkpoints that turnkeep's own loop writes; it resumes no other engine's."""


@dataclass(frozen=True)
class TurnInfo:
    """Whose turn it is: what a factory may build an agent by.

    Attributes:
        conversation_id: the thread's id.
        turn: its number, from 1.
        attempt: 1, or more where an earlier attempt died.
        run_id: this attempt's id.
        epoch: the random id of this life of the conversation.
        principal: who sent the message; None when anonymous. Of a resume: who signed the paused turn.
        tenant: the principal's tenant, if any.
    """

    conversation_id: str
    turn: int
    attempt: int
    run_id: str
    epoch: str
    principal: str | None = None
    tenant: str | None = None


class OnceMemory(Protocol):
    """Remembers results of tool calls under their idempotency keys (the ledger's own records)."""

    def begin(self, key: str) -> str | None:
        """Marks a call as begun. Returns the remembered result text (JSON) where one exists, else None.

        Raises:
            CallInDoubtError: the call was begun by an attempt that died inside it; nobody can know what it did.
        """
        ...

    def finish(self, key: str, result_text: str) -> None:
        """Remembers the call's result as JSON text."""
        ...


@dataclass(frozen=True)
class TurnMemory:
    """What memory keeps of whom this turn belongs to.

    Attributes:
        store: the entries of everybody; use it with this identity.
        identity: ``{"tenant"?, "principal"?, "conversationId"}``.
    """

    store: SearchableMemoryStore
    identity: dict[str, str]


@dataclass
class TurnContext:
    """All that a run may use of turnkeep while it runs.

    Attributes:
        info: whose turn it is.
        history: messages of earlier turns, oldest first, closed so that a provider accepts them, inside the window.
        messages: this turn's messages that are already agreed: the user message first; after a takeover or at a
            resume also what an earlier attempt made durable.
        commit: called with this turn's whole list of messages (history of earlier turns not included) and the
            iteration (from 1), each time the run's agreed state moves: tool results landed, a pause. The list must
            never end in tool calls without results, a pause excepted.
        barrier: called right before an iteration's tools run. Under ``sync`` it waits until earlier commits landed.
        check: called before every tool call and every model call; raises when the run has to stop.
        time_left_ms: milliseconds until the run has to have ended.
        once: memory of tool calls that must act once; None where the stack offers none.
        left_out: what the window cut, for the evidence: ``{"turns": int, "messages": int}``.
        history_turns: which turns ``history`` holds, oldest first, as (turn, number of its messages in it), so that
            the evidence can name them; empty where that is not known.
        memory: opens the memory of earlier turns; None where the stack offers none.
    """

    info: TurnInfo
    history: Sequence[Message]
    messages: list[Message]
    commit: Callable[[list[Message], int], None] = lambda messages, iteration: None
    barrier: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None
    time_left_ms: Callable[[], int] = lambda: 60_000
    once: OnceMemory | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    history_turns: Sequence[tuple[int, int]] = ()
    memory: Callable[[], TurnMemory] | None = None


@dataclass(frozen=True)
class Answered:
    """The run ended with an answer.

    Attributes:
        output: the answer's text (may be empty).
        messages: this turn's whole list, user message first, the final assistant message last unless it is empty.
        iteration: the iteration that answered.
        usage: token counts summed over model calls: ``{"inputTokens", "outputTokens"}``.
        evidence: bounded JSON object: what led to the answer.
    """

    output: str
    messages: list[Message]
    iteration: int
    usage: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """The run pauses on a question to a person.

    Attributes:
        pause_data: what the ask shows (CONTRACT.md 5.2): ``toolCallId``, ``toolName`` and the ask's own keys.
        checkpoint: where the run goes on, in the engine checkpoint's shape (CONTRACT.md 3); JSON.
        messages: this turn's whole list as of the pause: it may end in an assistant message whose calls have no
            results yet, or only some.
        audience: ``owner`` or ``role:NAME``.
        expires_in_s: seconds the ask stays open; None takes the stack's parameter.
    """

    pause_data: dict[str, Any]
    checkpoint: dict[str, Any]
    messages: list[Message]
    iteration: int
    audience: str = "owner"
    expires_in_s: int | None = None
    usage: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)


Outcome = Answered | Asked


class HostedAgent(Protocol):
    """An agent for one turn.

    Attributes:
        agent_id: the name it gives itself, or None; stored with the conversation, which another name cannot continue.
        agent_version: a version for the records, or None.
        durability: the mode for this conversation, or None for the stack's.

    An agent may also have an attribute ``memory``: writers (``turnkeep.memory.keeping.MemoryWriter``) of what its
    answered turns leave behind.
    """

    agent_id: str | None
    agent_version: str | None
    durability: DurabilityMode | None

    def run(self, context: TurnContext) -> Outcome:
        """Runs the turn's message. ``context.messages`` may already hold tool results: then goes on behind them."""
        ...

    def resume(self, context: TurnContext, checkpoint: dict[str, Any], decision: Any) -> Outcome:
        """Goes on behind a pause with its decision. Runs no earlier tool again (CONTRACT.md 5.6, 17.5)."""
        ...


@dataclass(frozen=True)
class Recalled:
    """What memory puts before a model.

    Attributes:
        text: goes to the model beside the system prompt; empty for nothing.
        entries: ids of the entries that are in it.
        left_out: how many entries were found and did not fit.
    """

    text: str = ""
    entries: Sequence[str] = ()
    left_out: int = 0


Recall = Callable[[TurnMemory, str], Recalled]
"""Looks up what memory knows; given the turn's memory and its message."""

AgentFactory = Callable[[TurnInfo], HostedAgent]
