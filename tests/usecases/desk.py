"""A refund desk with everything of a paused run around it: the machine, the answerers, reconcilers, and time.

Money that a tool moves is written down in ``paid``: what is there twice was done twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.usecases.fifo_queue import URL, FifoQueue, Message, event_of
from tests.usecases.step_functions import MACHINE, Execution, StepFunctions
from tests.usecases.workshop import ALICE, KEY, Crash, Mortal, Workshop, scripted
from turnkeep.adapters.queue import SqsDoorbell
from turnkeep.adapters.step_functions import StepFunctionsGate
from turnkeep.agent import CheckIn, Scene, ToolContext, call, tool
from turnkeep.agent.scripted import Calls
from turnkeep.entry.attention import STATUS_CHANGE, attend
from turnkeep.entry.machine import take_step
from turnkeep.entry.observability import Observation
from turnkeep.entry.queue import take_messages
from turnkeep.errors import StoreUnavailableError
from turnkeep.usecases.answer_ask import Answered, answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.reconcile import Report, reconcile
from turnkeep.usecases.withdraw import withdraw_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from turnkeep.agent.port import AgentFactory
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import Deps

SAM = Caller("sam", roles=frozenset({"supervisor"}))
YES = {"approved": True, "by": "sam"}
NO = {"approved": False, "by": "sam", "note": "too late"}
RESUME_MS = 300_000


class Silent:
    """Where lines and metrics of a test go."""

    def line(self, message: str, facts: Mapping[str, Any], *, is_fault: bool) -> None:
        return None

    def metrics(self, counts: Mapping[str, int], durations_ms: Mapping[str, int]) -> None:
        return None


class MortalPort:
    """Another port of a process that may die."""

    def __init__(self, port: Any, process: Mortal) -> None:
        self._port, self._process = port, process

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)

        def reach(*arguments: Any, **more: Any) -> Any:
            self._process.live(f"before {name}")
            answer = method(*arguments, **more)
            self._process.live(f"after {name}")
            return answer

        return reach


@dataclass
class Fate:
    """At one point of all that are passed a process dies, or AWS does not answer it.

    Behind a call that is not answered the call took place all the same; in front of it, it did not.
    """

    at: int | None
    kills: bool = True
    passed: list[str] = field(default_factory=list)

    def __call__(self, point: str) -> bool:
        self.passed.append(point)
        if len(self.passed) - 1 != self.at:
            return False
        if not self.kills:
            raise StoreUnavailableError
        return True


@dataclass
class Told:
    """The bus: what was told, as its subscribers read it."""

    told: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tell(self, kind: str, record: TurnRecord) -> None:
        from turnkeep.adapters.events import detail

        self.told.append((kind, json.loads(detail(record))))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.told]


@dataclass
class Desk:
    """One deployment, its people and its machine.

    Attributes:
        dies: asked at every point of every process; true: that process dies there.
        paid: what ``pay`` did, in order; ``asked_twice`` and the like show in it.
    """

    shop: Workshop = field(default_factory=Workshop)
    paid: list[str] = field(default_factory=list)
    dies: Callable[[str], bool] = lambda point: False
    events: Told = field(default_factory=Told)
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = FifoQueue(self.shop.hand)
        self.steps = StepFunctions(self.shop.store, self.shop.hand)
        self.steps.resume = self._resume_function
        self.factory: AgentFactory = refund_desk(self.paid)

    # --- processes ------------------------------------------------------------------------------------------

    def process(self, factory: AgentFactory | None = None) -> Deps:
        """A fresh process: everything of it dies where ``dies`` says."""
        life = Mortal(self.shop.store, self.dies)
        client = MortalPort(self.steps, life)
        return replace(
            self.shop.deps(factory or self.factory, store=life),
            gate=StepFunctionsGate(lambda: client, MACHINE, note=self._note),
            doorbell=SqsDoorbell(lambda: MortalPort(self.queue, life), URL),
            events=MortalPort(self.events, life),
            probe=life.live,
            note=self._note,
        )

    def _note(self, name: str, facts: dict[str, Any]) -> None:
        self.notes.append((name, facts))

    def _resume_function(self, payload: dict[str, Any]) -> dict[str, Any]:
        return take_step(payload, self.invocation(RESUME_MS), Observation("resume", sink=Silent()))

    def invocation(self, time_ms: int) -> Any:
        deadline = FixedDeadline.after(self.shop.clock, time_ms)
        return SimpleNamespace(deps=self.process(), deadline=deadline)

    # --- people ---------------------------------------------------------------------------------------------

    def say(
        self,
        message: str,
        *,
        caller: Caller = ALICE,
        key: ConversationKey = KEY,
        factory: AgentFactory | None = None,
        **more: Any,
    ) -> TurnRecord:
        from turnkeep.usecases.take_turn import take_turn

        deadline = FixedDeadline.after(self.shop.clock, 29_000)
        return take_turn(self.process(factory), caller, key, message=message, deadline=deadline, **more)

    def queue_up(self, message: str, **more: Any) -> TurnRecord:
        """A message whose turn is queued."""
        return self.say(message, respond_async=True, **more)

    def answer(
        self,
        turn: TurnRecord | str,
        decision: Any = YES,
        *,
        caller: Caller = SAM,
        key: ConversationKey = KEY,
        factory: AgentFactory | None = None,
        **more: Any,
    ) -> Answered:
        ask_id = turn if isinstance(turn, str) else turn.ask.ask_id if turn.ask is not None else "no ask"
        deadline = FixedDeadline.after(self.shop.clock, 29_000)
        deps = self.process(factory)
        return answer_ask(deps, caller, key, ask_id=ask_id, decision=decision, deadline=deadline, **more)

    def withdraw(self, turn: int, *, caller: Caller = ALICE, key: ConversationKey = KEY) -> TurnRecord:
        deadline = FixedDeadline.after(self.shop.clock, 29_000)
        return withdraw_turn(self.process(), caller, key, turn, deadline=deadline)

    # --- time -----------------------------------------------------------------------------------------------

    def reconcile(self) -> Report:
        return reconcile(self.process(), deadline=FixedDeadline.after(self.shop.clock, 60_000))

    def work(self) -> None:
        """Every doorbell that can be delivered now is."""
        while (message := self.queue.receive()) is not None:
            self.deliver(message)

    def deliver(self, message: Message) -> None:
        """Hands one message to a worker's process, which may die."""
        try:
            told = take_messages(event_of(message), self.invocation(RESUME_MS), Observation("worker", sink=Silent()))
        except Crash:
            return
        if not told["batchItemFailures"]:
            self.queue.delete(message)

    def hear_of_ends(self) -> None:
        """EventBridge tells of executions that ended abnormally."""
        while self.steps.ended:
            self.tell_of_end(self.steps.ended[0])
            del self.steps.ended[0]  # a process that raised or died is told again, as Lambda does

    def tell_of_end(self, execution: Execution) -> dict[str, Any]:
        detail = {"status": execution.status, "input": execution.input, "name": execution.name}
        event = {"detail-type": STATUS_CHANGE, "detail": detail}
        return attend(event, self.invocation(60_000), Observation("reconcile", sink=Silent()))

    def heal(self, minutes: int = 60) -> None:
        """Time passes, and what runs by itself runs: the machine, its events, the schedule. Processes may die."""
        for _ in range(minutes):
            self.steps.settle()
            for act in (self.work, self.hear_of_ends, self.reconcile):
                try:
                    act()
                except (Crash, StoreUnavailableError):
                    continue
            self.steps.settle()
            if self.at_rest():
                return
            self.shop.pass_ms(60_000)

    def at_rest(self) -> bool:
        """Nothing moves any more before a person does, or a day has passed."""
        waits = all(one.token is not None for one in self.steps.running) and not self.queue.messages
        tomorrow_ms = self.shop.clock.now_ms() + 86_400_000
        return waits and not self.steps.ended and all(item["dueAt"] > tomorrow_ms for item in self.due())

    def due(self) -> list[dict[str, Any]]:
        """What still stands in the index of what is due."""
        return [item for item in self.shop.items("TURN#") if "due" in item]

    def turn(self, number: int = 1) -> TurnRecord:
        return self.shop.turn(number)


def refund_desk(paid: list[str], **more: Any) -> AgentFactory:
    """Agents that pay behind a supervisor's yes, ask their owner things, and look things up on the way.

    The message says what they do: words that are a tool's name, in order; each becomes a call of one model reply.
    ``pay then pay`` makes two replies of it.
    """

    @tool(check_in=CheckIn(audience="role:supervisor"))
    def pay(to: str) -> str:
        """Pays the money back.

        Args:
            to: an order.
        """
        paid.append(to)
        return f"paid {to}"

    @tool
    def look(at: str) -> str:
        """Looks an order up.

        Args:
            at: an order.
        """
        paid.append(f"looked at {at}")
        return f"{at} is a chair"

    @tool
    def ask(what: str, context: ToolContext) -> str:
        """Asks the owner.

        Args:
            what: the question.
        """
        paid.append(f"asked {what}")
        context.ask(f"Which {what}?", shown=what)

    def script(scene: Scene) -> Any:
        replies = scene.text.split(" then ")
        done = len(scene.results)
        for reply in replies:
            words = [word for word in reply.split() if word.partition(":")[0] in ("pay", "look", "ask")]
            if done >= len(words):
                done -= len(words)
                continue
            named = {"pay": "to", "look": "at", "ask": "what"}
            made = [word.partition(":") for word in words]
            return Calls([call(name, **{named[name]: about or "B-200"}) for name, _, about in made], text="One moment.")
        return "; ".join(result.content for result in scene.results) or "You are welcome."

    return scripted(script, pay, look, ask, agent_id="desk", **more)
