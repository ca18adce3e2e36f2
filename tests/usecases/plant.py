"""A turn that acts on the world, and the places where its process can die: before and after everything it does.

Three iterations of two tool calls each: one that may run twice, and one that acts once. The world outside keeps its own
book of what was done to it; whoever has to decide on a call in doubt looks there.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tests.usecases.workshop import ALICE, KEY, Crash, Workshop, key_of
from turnkeep.adapters.bedrock_messages import to_converse
from turnkeep.agent.history import calls_of
from turnkeep.agent.loop import Agent
from turnkeep.agent.scripted import Scene, ScriptedProvider, ScriptedReply, call
from turnkeep.agent.tools import InDoubt, ToolContext, tool
from turnkeep.ledger.store import Check, Delete, Get, IndexQuery, Put, Query, Update
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.resume_turn import resume_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.agent.port import AgentFactory, DurabilityMode, TurnInfo
    from turnkeep.agent.provider import ModelReply, ModelRequest
    from turnkeep.agent.tools import Tool
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.ledger.store import ItemStore, Key, Page, Read, Result, Write

ITERATIONS = 3
GO, WHAT_NOW = "go", "what now?"
ONE, TWO = key_of("one"), key_of("two")
Mode = Literal["exit", "async", "slow async", "sync"]
MODES: tuple[Mode, ...] = ("exit", "async", "slow async", "sync")
"""Twice ``async``: with a store that keeps up with the run, and with one that answers when the run is over."""


def durability_of(mode: Mode) -> DurabilityMode:
    return "async" if mode == "slow async" else mode


def answers(scene: Scene) -> ScriptedReply:
    """The model: two calls an iteration, then an answer; it counts results and nothing else."""
    if scene.text != GO:
        return "On we go."
    done = len(scene.results) // 2
    if done == ITERATIONS:
        return "All done."
    return [call("step", n=done + 1), call("pay", n=done + 1)]


def whole_turn() -> list[dict[str, Any]]:
    """The messages of a turn that nothing happened to."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": GO}]
    for n in range(1, ITERATIONS + 1):
        ids = [f"call-{2 * n - 1}", f"call-{2 * n}"]
        calls = [{"id": one, "name": name, "args": {"n": n}} for one, name in zip(ids, ("step", "pay"), strict=True)]
        messages.append({"role": "assistant", "content": "", "toolCalls": calls})
        for one, name, text in zip(ids, ("step", "pay"), (f"stepped {n}", f"paid {n}"), strict=True):
            messages.append({"role": "tool", "content": text, "toolCallId": one, "toolName": name})
    return [*messages, {"role": "assistant", "content": "All done."}]


WHOLE_TURN = whole_turn()
BOUNDARIES = {1, 4, 7, 10, 11}
"""How many messages a prefix may have: the user's, each iteration whole, the answer."""


@dataclass(frozen=True)
class Did:
    """One line of the world's book."""

    process: str
    name: str
    n: int
    key: str
    """The call's idempotency key, as it was handed to whatever it acts on."""


@dataclass
class World:
    """What was done out there, in order."""

    book: list[Did] = field(default_factory=list)

    def enter(self, did: Did) -> None:
        """Writes a line into the book."""
        self.book.append(did)

    def did(self, process: str) -> list[Did]:
        return [line for line in self.book if line.process == process]

    def times(self, name: str) -> Counter[int]:
        return Counter(line.n for line in self.book if line.name == name)


class Process:
    """A process that runs turns: its view of the table, and the point at which it dies or falls asleep.

    A point has a name, such as ``before put TURN 1`` or ``after step 2``, the same in every run. What is done side by
    side is done one after the other here, so that there is a point between.
    """

    def __init__(self, name: str, world: World, store: ItemStore, at: Callable[[str], None] | None = None) -> None:
        self.name, self.world, self._store, self._at = name, world, store, at
        self.points: list[str] = []
        self.dead = False
        self.requests: list[ModelRequest] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.hold_writes: threading.Event | None = None
        self.wait_for_writes = False
        self._landed = threading.Condition(self._lock)

    def live(self, point: str) -> None:
        """Passes a point.

        Raises:
            Crash: the process died here, or before.
        """
        with self._lock:
            if not self.dead:
                self.points.append(point)
        if not self.dead and self._at is not None:
            try:
                self._at(point)
            except Crash:
                self.dead = True
        if self.dead:
            if self.hold_writes is not None:
                self.hold_writes.set()
            with self._lock:
                self._landed.notify_all()
            raise Crash

    def _named(self, what: str) -> str:
        with self._lock:
            self._counts[what] += 1
            return f"{what} {self._counts[what]}"

    def _around(self, what: str, work: Callable[[], Any]) -> Any:
        named = self._named(what)
        if self.hold_writes is not None and named.startswith("put SEG"):
            assert self.hold_writes.wait(20)
        self.live(f"before {named}")
        done = work()
        self.live(f"after {named}")
        with self._lock:
            self._counts[f"{what} landed"] += 1
            self._landed.notify_all()
        return done

    # --- the table ------------------------------------------------------------------------------------------

    def read(self, reads: Sequence[Read]) -> list[Page]:
        return [self._around(_what(one), lambda one=one: self._store.read([one])[0]) for one in reads]  # type: ignore[misc]

    def write(self, writes: Sequence[Write]) -> list[Result]:
        return [self._around(_what(one), lambda one=one: self._store.write([one])[0]) for one in writes]  # type: ignore[misc]

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        done: list[Result] = self._around(f"transact {_kind(_key_of(writes[0]))}", lambda: self._store.transact(writes))
        return done

    def delete(self, keys: Sequence[Key]) -> None:
        self._around("delete", lambda: self._store.delete(keys))

    # --- the agent ------------------------------------------------------------------------------------------

    def factory(self, mode: Mode, in_doubt: InDoubt = "ask") -> AgentFactory:
        """Builds agents that act on the world in this process."""

        def build(info: TurnInfo) -> Agent:
            return Agent(provider=self, tools=self._tools(in_doubt), durability=durability_of(mode))

        return build

    def converse(self, request: ModelRequest) -> ModelReply:
        """The model, which refuses what a real one would refuse."""
        check_request(request)
        self.requests.append(request)
        iterations = len(self.world.did(self.name)) // 2
        if self.hold_writes is not None and iterations == ITERATIONS:
            # A slow store: its first write of progress answers only when the run has nothing left to do.
            self.hold_writes.set()
        if self.wait_for_writes:
            # A quick store: progress has landed before a model would have answered.
            with self._landed:
                self._landed.wait_for(lambda: self.dead or self._counts["put SEG landed"] >= iterations, 20)
        return ScriptedProvider(answers).converse(request)

    def _act(self, name: str, n: int, context: ToolContext) -> None:
        self.live(f"before {name} {n}")
        self.world.enter(Did(self.name, name, n, context.idempotency_key))
        self.live(f"after {name} {n}")

    def _tools(self, in_doubt: InDoubt) -> list[Tool]:
        @tool
        def step(n: int, context: ToolContext) -> str:
            """Does something that may be done twice."""
            self._act("step", n, context)
            return f"stepped {n}"

        @tool(once=True, in_doubt=in_doubt)
        def pay(n: int, context: ToolContext) -> str:
            """Does something that may be done once."""
            self._act("pay", n, context)
            return f"paid {n}"

        return [step, pay]


def _what(one: Read | Write | Check) -> str:
    names = {Get: "get", Query: "query", IndexQuery: "query", Put: "put", Update: "update", Delete: "delete"}
    if isinstance(one, Query):
        return f"query {one.low.split('#')[0]} {'strong' if one.consistent else 'eventual'}"
    return f"{names[type(one)]} {_kind(_key_of(one))}"


def _key_of(one: Any) -> str:
    return str(one.item["sk"]) if isinstance(one, Put) else str(one.key[1])


def _kind(sk: str) -> str:
    return sk.split("#", maxsplit=1)[0]


def check_request(request: ModelRequest) -> None:
    """Fails where a provider would refuse: by turnkeep's own contract, and as Converse wants it."""
    messages = list(request.messages)
    assert messages
    assert messages[0]["role"] == "user"
    at = 0
    while at < len(messages):
        calls = calls_of(messages[at])
        answers = messages[at + 1 : at + 1 + len(calls)]
        assert [one.get("toolCallId") for one in answers] == [one["id"] for one in calls], messages
        assert messages[at]["role"] != "tool", messages
        at += 1 + len(calls)
    sent = to_converse(messages)
    assert [one["role"] for one in sent] == [("user", "assistant")[index % 2] for index in range(len(sent))]
    for said, heard in zip(sent, [*sent[1:], {"content": []}], strict=True):
        used = [block["toolUse"]["toolUseId"] for block in said["content"] if "toolUse" in block]
        answered = [block["toolResult"]["toolUseId"] for block in heard["content"] if "toolResult" in block]
        assert used == answered
        assert len(set(used)) == len(used)


@dataclass
class Plant:
    """A deployment, the world it acts on, and the processes that come and go."""

    mode: Mode
    in_doubt: InDoubt = "ask"
    shop: Workshop = field(default_factory=Workshop)
    world: World = field(default_factory=World)
    key: ConversationKey = KEY

    def process(self, name: str, at: Callable[[str], None] | None = None) -> Process:
        process = Process(name, self.world, self.shop.store, at)
        # Whoever goes on later does less than the whole turn, and meets a store that is well again.
        if self.mode == "slow async" and name == "first":
            process.hold_writes = threading.Event()
        process.wait_for_writes = self.mode == "async" and name == "first"
        return process

    def take(self, process: Process, message: str = GO, **request: Any) -> TurnRecord:
        """One request, served by this process; by default the first one."""
        request = request or {"idempotency": ONE}
        factory = process.factory(self.mode, self.in_doubt)
        before, self.shop.probe = self.shop.probe, None
        try:
            return self.shop.take(message, key=self.key, factory=factory, store=process, **request)
        finally:
            self.shop.probe = before

    def dies_at(self, point: str, name: str = "first") -> Process | None:
        """A process that takes the first request and dies at a point; None where it never came there."""

        def at(passed: str) -> None:
            if passed == point:
                raise Crash

        process = self.process(name, at)
        try:
            self.take(process)
        except Crash:
            return process
        assert not process.dead
        return None

    def lease_passes(self) -> None:
        self.shop.pass_ms(60_000)

    def decide_doubts(self, turn: TurnRecord, process: Process) -> TurnRecord:
        """The person who is asked about a call in doubt looks into the world's book, and decides by that."""
        while turn.ask is not None and turn.status == "awaiting":
            ask = turn.ask.pause_data["ask"]
            assert ask["middleware"] == "in-doubt"
            acted = self.world.times("pay")[ask["detail"]["args"]["n"]] > 0
            deps = self.shop.deps(process.factory(self.mode, self.in_doubt), store=process)
            deadline = FixedDeadline.after(self.shop.clock, 29_000)
            decision = {"approved": not acted, "by": "alice", **({"note": "it acted"} if acted else {})}
            answer_ask(deps, ALICE, self.key, ask_id=turn.ask.ask_id, decision=decision, deadline=deadline)
            resumed = resume_turn(deps, self.key, turn.turn, turn.ask.ask_id, deadline=deadline)
            assert resumed.record is not None
            turn = resumed.record
        return turn
