"""The use cases with everything real around them but AWS and the model: a table in memory, a clock moved by hand.

A workshop is one deployment: several processes of it share the table and the clock, and each has ports of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from turnkeep.agent.loop import Agent
from turnkeep.agent.port import AgentFactory, Answered, DurabilityMode, HostedAgent, Outcome, TurnContext, TurnInfo
from turnkeep.agent.scripted import Script, ScriptedProvider
from turnkeep.clock import ManualClock
from turnkeep.ledger.keys import ConversationKey, request_hash
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.usecases.deps import Caller, Deps, FixedDeadline, Idempotency, Settings
from turnkeep.usecases.take_turn import take_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.agent.tools import Tool
    from turnkeep.clock import Clock
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.ledger.store import Check, Item, ItemStore, Key, Page, Read, Result, Write

T = TypeVar("T")

ALICE, BOB, NOBODY = Caller("alice"), Caller("bob"), Caller()
KEY = ConversationKey("c-1")
TIME_MS = 29_000
"""What a turn's process is given, unless a test says otherwise."""


class Crash(BaseException):
    """The process dies here: nothing catches it, and nothing of it goes on."""


class Mortal:
    """The table as one process sees it that may die: from then on it reaches nothing, whatever thread it tries on.

    Args:
        store: the table.
        dies: called before and after every call that reaches the table, with a name of the point; true: it dies there.
    """

    def __init__(self, store: ItemStore, dies: Callable[[str], bool] = lambda point: False) -> None:
        self._store, self._dies, self.dead = store, dies, False

    def live(self, point: str) -> None:
        """A point at which the process may die.

        Raises:
            Crash: it died here, or long ago.
        """
        self.dead = self.dead or self._dies(point)
        if self.dead:
            raise Crash

    def _call(self, name: str, call: Callable[[], T]) -> T:
        self.live(f"before {name}")
        answer = call()
        self.live(f"after {name}")
        return answer

    def read(self, reads: Sequence[Read]) -> list[Page]:
        return self._call("read", lambda: self._store.read(reads))

    def write(self, writes: Sequence[Write]) -> list[Result]:
        return self._call("write", lambda: self._store.write(writes))

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        return self._call("transact", lambda: self._store.transact(writes))

    def delete(self, keys: Sequence[Key]) -> None:
        self._call("delete", lambda: self._store.delete(keys))


@dataclass
class Gate:
    """Step Functions as far as a message meets it: remembers what was started."""

    started: list[str] = field(default_factory=list)

    def start(self, record: TurnRecord) -> None:
        assert record.ask is not None
        self.started.append(record.ask.ask_id)

    def signal(self, token: str) -> bool:
        return True

    def stop(self, record: TurnRecord, cause: str) -> None:
        return None


@dataclass
class Bell:
    """The queue: remembers who was rung for."""

    rung: list[int] = field(default_factory=list)

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        self.rung.append(turn)


@dataclass
class Events:
    """The bus: remembers what was told."""

    told: list[tuple[str, int]] = field(default_factory=list)

    def tell(self, kind: str, record: TurnRecord) -> None:
        self.told.append((kind, record.turn))


def ids() -> Callable[[int], str]:
    """Ids that differ and are the same in every run."""
    numbers = itertools.count(1)
    return lambda size: f"id{next(numbers):06d}"


def key_of(text: str, body: Any = "body") -> Idempotency:
    """An Idempotency-Key as the door hands it on."""
    return Idempotency(request_hash(text), hashlib.sha256(json.dumps(body).encode()).hexdigest())


@dataclass
class Workshop:
    """One deployment."""

    factory: AgentFactory = field(default_factory=lambda: saying("Hello."))
    settings: Settings = field(default_factory=Settings)
    clock: Clock = field(default_factory=ManualClock)
    store: ItemStore = field(default_factory=MemoryItemStore)
    gate: Gate = field(default_factory=Gate)
    bell: Bell = field(default_factory=Bell)
    events: Events = field(default_factory=Events)
    notes: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    probe: Callable[[str], None] | None = None
    last_turns: Callable[[], int | None] = lambda: None
    random_id: Callable[[int], str] = field(default_factory=ids)

    @property
    def memory(self) -> MemoryItemStore:
        assert isinstance(self.store, MemoryItemStore)
        return self.store

    @property
    def hand(self) -> ManualClock:
        """The clock, to be moved."""
        assert isinstance(self.clock, ManualClock)
        return self.clock

    def with_settings(self, **changes: Any) -> Workshop:
        self.settings = replace(self.settings, **changes)
        return self

    def deps(self, factory: AgentFactory | None = None, *, store: ItemStore | None = None) -> Deps:
        def probe(point: str) -> None:
            self.probes.append(point)
            if self.probe is not None:
                self.probe(point)

        return Deps(
            ledger=Ledger(store or self.store, self.clock),
            clock=self.clock,
            factory=factory or self.factory,
            gate=self.gate,
            doorbell=self.bell,
            events=self.events,
            settings=self.settings,
            random_id=self.random_id,
            probe=probe,
            note=lambda name, facts: self.notes.append(name),
            last_turns=self.last_turns,
        )

    def take(
        self,
        message: str = "hello",
        *,
        caller: Caller = ALICE,
        key: ConversationKey = KEY,
        factory: AgentFactory | None = None,
        store: ItemStore | None = None,
        time_ms: int = TIME_MS,
        **request: Any,
    ) -> TurnRecord:
        """One request, served by a process of its own."""
        deadline = FixedDeadline.after(self.clock, time_ms)
        return take_turn(self.deps(factory, store=store), caller, key, message=message, deadline=deadline, **request)

    def take_and_die(self, at: str = "claimed", message: str = "hello", **request: Any) -> None:
        """One request whose process dies at a probe."""
        process = Mortal(self.store, lambda point: point == at)
        before, self.probe = self.probe, process.live
        try:
            self.take(message, store=process, **request)
        except Crash:
            return
        finally:
            self.probe = before
        raise AssertionError(f"no process came to {at}")

    def elsewhere(self, *, ahead_ms: int = 0, **changes: Any) -> Workshop:
        """The same deployment from a machine whose clock is ahead."""
        clock = ManualClock(self.clock.now_ms() + ahead_ms, self.clock.monotonic_ms())
        return replace(self, clock=clock, **changes)

    def pass_ms(self, duration_ms: int) -> None:
        """Time passes."""
        self.hand.advance_ms(duration_ms)

    def turn(self, number: int, key: ConversationKey = KEY) -> TurnRecord:
        """A turn as it is stored."""
        found = Ledger(self.store, self.clock).turn(key, number)
        assert found is not None
        return found

    def said(self, number: int, key: ConversationKey = KEY) -> list[dict[str, Any]]:
        """A turn's stored messages."""
        return Ledger(self.store, self.clock).messages_of([self.turn(number, key)])[number]

    def items(self, prefix: str = "") -> list[Item]:
        """What lies in the table."""
        return [item for item in self.memory.items() if str(item["sk"]).startswith(prefix)]


@lru_cache(maxsize=16)
def noise(size: int, seed: int = 1) -> str:
    """Text that hardly compresses: so many characters, about two bytes each when packed."""
    return "".join(chr(code) for code in random.Random(seed).choices(range(0x4E00, 0x9FFF), k=size))


# --- agents -------------------------------------------------------------------------------------------------


def scripted(
    script: Script, *tools: Tool, durability: DurabilityMode | None = None, agent_id: str | None = None, **more: Any
) -> AgentFactory:
    """A factory of turnkeep's own agents, whose model is a script."""

    def build(info: TurnInfo) -> HostedAgent:
        return Agent(provider=ScriptedProvider(script), tools=tools, durability=durability, agent_id=agent_id, **more)

    return build


def saying(*texts: str, **more: Any) -> AgentFactory:
    """Agents that answer, each turn the next text; the last one from then on."""
    left = list(texts)
    return scripted(lambda scene: left.pop(0) if len(left) > 1 else left[0], **more)


@dataclass
class Doing:
    """An agent of somebody else's: does what the test says with its context."""

    work: Callable[[TurnContext], Outcome]
    agent_id: str | None = None
    agent_version: str | None = None
    durability: DurabilityMode | None = None

    def run(self, context: TurnContext) -> Outcome:
        return self.work(context)

    def resume(self, context: TurnContext, checkpoint: dict[str, Any], decision: Any) -> Outcome:
        return self.work(context)


def doing(work: Callable[[TurnContext], Outcome], **more: Any) -> AgentFactory:
    """A factory of such agents."""
    return lambda info: Doing(work, **more)


def answer(context: TurnContext, text: str, *between: dict[str, Any]) -> Answered:
    """The outcome of a run that answers behind what its context holds."""
    final = [{"role": "assistant", "content": text}] if text else []
    return Answered(text, [*context.messages, *between, *final], iteration=1)


def called(name: str, *calls: dict[str, Any], results: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """An assistant message that calls a tool once for each of the arguments, and the results."""
    listed = [{"id": f"{name}-{number}", "name": name, "args": args} for number, args in enumerate(calls, 1)]
    texts = results if results is not None else ["done"] * len(listed)
    answers = [
        {"role": "tool", "content": text, "toolCallId": one["id"], "toolName": name}
        for one, text in zip(listed, texts, strict=False)
    ]
    return [{"role": "assistant", "content": "", "toolCalls": listed}, *answers]
