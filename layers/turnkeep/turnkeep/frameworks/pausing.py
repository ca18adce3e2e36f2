"""What the hosts of other frameworks share: checkpoints, what a tool may know, and checks that nobody swallows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnkeep.agent.history import calls_of, for_provider, split_system
from turnkeep.agent.idempotency import idempotency_key, occurrence_of
from turnkeep.agent.window import window_note
from turnkeep.errors import ConversationMismatchError, MalformedStoredItemError, UnknownStoredFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.agent.port import TurnContext, TurnInfo
    from turnkeep.agent.trace import Trace
    from turnkeep.agent.window import Kept
    from turnkeep.messages import Message

_PAUSED_FORMAT = "flowchart-v1"


@dataclass(frozen=True)
class HostedTurn:
    """What a framework's tool may know of the turn that it runs in.

    Attributes:
        info: whose turn it is.
        time_left_ms: milliseconds until the run has to have ended.
    """

    info: TurnInfo
    time_left_ms: Callable[[], int]
    _messages: Sequence[Message] = field(repr=False)

    def idempotency_key(self, call_id: str) -> str:
        """The key of a call of this turn: the same for the same call, however often it has to run.

        Raises:
            KeyError: the turn made no call of this id.
        """
        for index in reversed(range(len(self._messages))):
            for number, call in enumerate(calls_of(self._messages[index])):
                if call["id"] == call_id:
                    occurrence = occurrence_of(self._messages, index, number)
                    return idempotency_key(self.info, call["name"], call["args"], occurrence)
        raise KeyError(call_id)


class Fences:
    """The run's own checks, called from inside a framework that may turn what they raise into something else.

    What was raised once is raised at every later check, and by ``settle`` when the framework has returned: whatever the
    framework made of it, the run ends by it.
    """

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._raised: BaseException | None = None

    def check(self) -> None:
        """Before a model call or a tool call: this attempt still holds its claim, and there is time."""
        self._guarded(self._context.check)

    def barrier(self) -> None:
        """Before an iteration's tools: what was agreed is durable as far as the mode demands."""
        self._guarded(self._context.barrier)

    def commit(self, messages: list[Message], iteration: int) -> None:
        """The run's agreed state moved on."""
        self._guarded(lambda: self._context.commit(messages, iteration))

    def settle(self) -> None:
        """Raises what a check raised, if one did."""
        if self._raised is not None:
            raise self._raised

    def _guarded(self, call: Callable[[], None]) -> None:
        self.settle()
        try:
            call()
        except BaseException as error:
            self._raised = error
            raise


def checkpoint_of(
    engine: str,
    shared: dict[str, Any],
    *,
    pause_data: dict[str, Any],
    agent_id: str | None,
    trace: Trace,
    usage: dict[str, int],
    paused_at_ms: int,
) -> dict[str, Any]:
    """A checkpoint in the engine's shape (CONTRACT.md 3)."""
    common: dict[str, Any] = {"engine": engine, "usage": usage, "evidence": trace.to_json()}
    if agent_id is not None:
        common["agent"] = {"id": agent_id}
    return {
        "sharedState": {**common, **shared},
        "pausedStageId": "tool-calls",
        "subflowPath": [],
        "subflowStates": {},
        "pauseData": pause_data,
        "pausedAt": paused_at_ms,
    }


def shared_state(
    checkpoint: dict[str, Any],
    *,
    engine: str,
    needs: dict[str, type],
    agent_id: str | None,
    conversation_id: str,
) -> dict[str, Any]:
    """What a checkpoint of this engine holds.

    Raises:
        UnknownStoredFormatError: another engine, or another release's, wrote it.
        MalformedStoredItemError: it lacks what a resume needs.
        ConversationMismatchError: another agent asked.
    """
    shared = checkpoint.get("sharedState")
    if not isinstance(shared, dict) or shared.get("engine") != engine:
        raise UnknownStoredFormatError(
            found=f"{_PAUSED_FORMAT} of another engine", known=[engine], conversation_id=conversation_id
        )
    for name, kind in {"usage": dict, "evidence": dict, **needs}.items():
        if not isinstance(shared.get(name), kind):
            raise malformed(f"checkpoint.sharedState.{name}", conversation_id)
    stored = shared.get("agent")
    stored_id = stored.get("id") if isinstance(stored, dict) else None
    if stored_id is not None and agent_id is not None and stored_id != agent_id:
        raise ConversationMismatchError(stored_agent_id=stored_id, agent_id=agent_id)
    return shared


def malformed(part: str, conversation_id: str) -> MalformedStoredItemError:
    """A paused run that lacks a part."""
    return MalformedStoredItemError(found=_PAUSED_FORMAT, part=part, conversation_id=conversation_id)


def shown_history(kept: Kept) -> tuple[list[str], list[Message]]:
    """System texts of earlier turns, and the rest of their messages, closed so that a provider accepts them."""
    return split_system(for_provider(kept.messages, []))


def apart(before: Sequence[Message], group: list[Message], kept_key: str) -> list[Message]:
    """A group of results behind other results says how many it is: the two came as two messages and stay two."""
    if before and before[-1]["role"] == group[0]["role"] == "tool" and kept_key not in group[0]:
        return [{**group[0], kept_key: {"covers": len(group)}}, *group[1:]]
    return group


def group_size(messages: Sequence[Message], kept_key: str) -> int:
    """How many messages become one of the framework's: as many as it came from, or a run of tool results."""
    kept = messages[0].get(kept_key)
    covers = kept.get("covers") if isinstance(kept, dict) else None
    if isinstance(covers, int) and 0 < covers <= len(messages):
        return covers
    size = 1
    while (
        messages[0]["role"] == "tool"
        and size < len(messages)
        and messages[size]["role"] == "tool"
        and not isinstance(messages[size].get(kept_key), dict)
    ):
        size += 1
    return size


def iterations_in(messages: Sequence[Message]) -> int:
    """How many assistant messages with calls a turn's messages hold."""
    return sum(1 for message in messages if calls_of(message))


def describe_window(trace: Trace, context: TurnContext, kept: Kept) -> None:
    """Notes what of earlier turns the model is shown."""
    trace.note("window", window_note(context, kept))
