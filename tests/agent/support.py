"""What the agent's tests share: a context that records, a memory of once calls, small tools."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnkeep.agent.port import Answered, Asked, Outcome, TurnContext, TurnInfo
from turnkeep.agent.scripted import Scene, Script, ScriptedProvider
from turnkeep.errors import CallInDoubtError

if TYPE_CHECKING:
    from turnkeep.agent.provider import ModelReply, ModelRequest

INFO = TurnInfo(
    conversation_id="c-1", turn=3, attempt=1, run_id="run-1-aa", epoch="ep-1", principal="ada", tenant="acme"
)


@dataclass
class DictOnce:
    """The ledger's memory of once calls, in a dict; a begun call without a result is in doubt."""

    records: dict[str, str | None] = field(default_factory=dict)

    def begin(self, key: str) -> str | None:
        if key not in self.records:
            self.records[key] = None
            return None
        remembered = self.records[key]
        if remembered is None:
            raise CallInDoubtError
        return remembered

    def finish(self, key: str, result_text: str) -> None:
        self.records[key] = json.dumps(json.loads(result_text))


@dataclass
class Recorded:
    """A context and everything that the run did to it."""

    context: TurnContext
    log: list[str] = field(default_factory=list)
    commits: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)


def turn(
    text: str | None = "do it",
    *,
    history: list[dict[str, Any]] | None = None,
    messages: list[dict[str, Any]] | None = None,
    info: TurnInfo = INFO,
    once: DictOnce | None = None,
    **more: Any,
) -> Recorded:
    """A context for one turn; its log has ``commit i``, ``barrier`` and ``check`` in the order in which they came."""
    said = messages if messages is not None else [{"role": "user", "content": text}]
    recorded = Recorded(TurnContext(info=info, history=history or [], messages=said, once=once, **more))

    def commit(now: list[dict[str, Any]], iteration: int) -> None:
        recorded.log.append(f"commit {iteration}")
        recorded.commits.append((iteration, json.loads(json.dumps(now))))

    recorded.context.commit = commit
    recorded.context.barrier = lambda: recorded.log.append("barrier")
    recorded.context.check = lambda: recorded.log.append("check")
    return recorded


def by_step(*steps: Any) -> ScriptedProvider:
    """A provider that plays one step an iteration of the turn, by how many assistant messages the turn has so far."""

    def script(scene: Scene) -> Any:
        start = max(i for i, message in enumerate(scene.messages) if message["role"] == "user")
        return steps[sum(1 for message in scene.messages[start:] if message["role"] == "assistant")]

    return ScriptedProvider(script)


@dataclass
class Watching:
    """A provider that keeps every request and answers by a script."""

    script: Script
    requests: list[ModelRequest] = field(default_factory=list)

    def converse(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        return ScriptedProvider(self.script).converse(request)


def answered(outcome: Outcome) -> Answered:
    assert isinstance(outcome, Answered), outcome
    return outcome


def asked(outcome: Outcome) -> Asked:
    assert isinstance(outcome, Asked), outcome
    json.dumps(outcome.checkpoint, allow_nan=False)  # it is stored as JSON
    return outcome


def stored(value: Any) -> Any:
    """A value after a trip through storage."""
    return json.loads(json.dumps(value, allow_nan=False))
