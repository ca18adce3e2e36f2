"""Where a run stands: this turn's messages, its iteration, and what it used so far.

The only mutable object of the loop. A pause turns it into a checkpoint in the engine's shape (CONTRACT.md 3); a resume
makes it from one, and from the messages that the ledger kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnkeep.agent.history import calls_of
from turnkeep.agent.port import ENGINE
from turnkeep.agent.trace import Trace
from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError

if TYPE_CHECKING:
    from turnkeep.agent.port import TurnContext
    from turnkeep.messages import Message

_PAUSED_FORMAT = "flowchart-v1"


@dataclass
class RunState:
    """Where a run stands.

    Attributes:
        context: what turnkeep lends the run.
        messages: this turn's messages; the last assistant message's calls may lack results while they run.
        iteration: from 1; moves on when an assistant message's calls all have their results.
        usage: token counts, summed.
        trace: the evidence.
        rerun_possible: an earlier attempt of this turn may have run the calls that come now.
        recalled: what memory puts beside the system prompt.
    """

    context: TurnContext
    messages: list[Message]
    iteration: int
    trace: Trace
    usage: dict[str, int] = field(default_factory=dict)
    rerun_possible: bool = False
    recalled: str = ""

    @classmethod
    def fresh(cls, context: TurnContext) -> RunState:
        """A run of the turn's message, or of what an earlier attempt left durable behind it."""
        messages = list(context.messages)
        trace = Trace(context.info.turn)
        trace.adopted(1, len(messages))
        return cls(context, messages, _iteration_behind(messages), trace, rerun_possible=context.info.attempt > 1)

    @property
    def assistant_index(self) -> int:
        """Where the assistant message with calls is that the turn ends in; -1 where it ends in something else."""
        index = len(self.messages) - 1
        while index >= 0 and self.messages[index]["role"] == "tool":
            index -= 1
        return index if index >= 0 and calls_of(self.messages[index]) else -1

    @property
    def open_calls(self) -> list[dict[str, Any]]:
        """The calls of that message which have no result yet, in call order."""
        index = self.assistant_index
        return [] if index < 0 else calls_of(self.messages[index])[len(self.messages) - 1 - index :]

    def count(self, usage: dict[str, int]) -> None:
        """Adds a model call's token counts."""
        for name, tokens in usage.items():
            self.usage[name] = self.usage.get(name, 0) + tokens


def _iteration_behind(messages: list[Message]) -> int:
    """The iteration that these messages leave the run in: one more than those whose calls all have their results."""
    return 1 + sum(1 for index in range(len(messages)) if _is_answered(messages, index))


def _is_answered(messages: list[Message], index: int) -> bool:
    """Whether the message at this place calls tools and all of its calls have their results."""
    calls = calls_of(messages[index])
    behind = messages[index + 1 : index + 1 + len(calls)]
    return bool(calls) and len(behind) == len(calls) and all(message["role"] == "tool" for message in behind)


@dataclass(frozen=True)
class PausedCall:
    """The call that a paused run waits with.

    Attributes:
        assistant_index: where the assistant message with the call is among the turn's messages.
        call_index: which of its calls it is.
        args: the arguments kept at the pause.
        gates_passed: names of the gates that were passed before, the one that asked last of all.
    """

    assistant_index: int
    call_index: int
    args: dict[str, Any]
    gates_passed: tuple[str, ...]


def to_checkpoint(
    state: RunState,
    paused: PausedCall,
    *,
    pause_data: dict[str, Any],
    agent: dict[str, str],
    paused_at_ms: int,
) -> dict[str, Any]:
    """The checkpoint of a pause. The messages are not in it: the ledger keeps them once, beside it."""
    call = calls_of(state.messages[paused.assistant_index])[paused.call_index]
    shared: dict[str, Any] = {
        "engine": ENGINE,
        "iteration": state.iteration,
        "assistantIndex": paused.assistant_index,
        "callIndex": paused.call_index,
        "pausedToolCallId": call["id"],
        "pausedToolName": call["name"],
        "pausedToolArgs": paused.args,
        "remainingToolCallIds": [one["id"] for one in state.open_calls[1:]],
        "gatesPassed": list(paused.gates_passed),
        "usage": dict(state.usage),
        "evidence": state.trace.to_json(),
    }
    if agent:
        shared["agent"] = agent
    return {
        "sharedState": shared,
        "pausedStageId": "tool-calls",
        "subflowPath": [],
        "subflowStates": {},
        "pauseData": pause_data,
        "pausedAt": paused_at_ms,
    }


def from_checkpoint(context: TurnContext, checkpoint: dict[str, Any]) -> tuple[RunState, PausedCall]:
    """Where a paused run stands, and the call that it waits with.

    Raises:
        UnknownStoredFormatError: another engine wrote the checkpoint.
        MalformedStoredItemError: the checkpoint, or the turn's messages, lack what a resume needs.
    """
    shared = checkpoint.get("sharedState")
    conversation_id = context.info.conversation_id
    if not isinstance(shared, dict) or shared.get("engine") != ENGINE:
        raise UnknownStoredFormatError(
            found=f"{_PAUSED_FORMAT} of another engine", known=[ENGINE], conversation_id=conversation_id
        )

    def need(name: str, kind: type) -> Any:
        value = shared.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MalformedStoredItemError(
                found=_PAUSED_FORMAT, part=f"checkpoint.sharedState.{name}", conversation_id=conversation_id
            )
        return value

    paused = PausedCall(
        assistant_index=need("assistantIndex", int),
        call_index=need("callIndex", int),
        args=need("pausedToolArgs", dict),
        gates_passed=tuple(str(name) for name in need("gatesPassed", list)),
    )
    messages = list(context.messages)
    calls = calls_of(messages[paused.assistant_index]) if 0 <= paused.assistant_index < len(messages) else []
    known = 0 <= paused.call_index < len(calls) and calls[paused.call_index]["id"] == shared.get("pausedToolCallId")
    if not known or len(messages) < paused.assistant_index + 1 + paused.call_index:
        raise MalformedStoredItemError(found=_PAUSED_FORMAT, part="messages", conversation_id=conversation_id)
    state = RunState(
        context,
        messages,
        _iteration_behind(messages),  # not the checkpoint's: an earlier resume may have come further and died
        Trace(context.info.turn, need("evidence", dict)),
        usage=dict(need("usage", dict)),
    )
    return state, paused
