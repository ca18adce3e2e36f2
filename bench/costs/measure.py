"""The units of turns, of a question's whole life and of an idle reconciler, counted under the meter on moto."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import boto3
import yaml

from bench import durability
from bench.meter import Meter
from bench.turnkeep_turn import REGION, TABLE, Desk, table
from local.settings import ROOT
from turnkeep.adapters.dynamo import DynamoItemStore, client_config
from turnkeep.agent import Agent, CheckIn, ScriptedProvider, call, tool
from turnkeep.clock import SystemClock
from turnkeep.ledger.keys import ConversationKey, turn_sk
from turnkeep.ledger.ledger import Ledger
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, Deps, FixedDeadline, Settings
from turnkeep.usecases.reconcile import reconcile
from turnkeep.usecases.resume_turn import resume_turn
from turnkeep.usecases.take_turn import take_turn

if TYPE_CHECKING:
    from bench.meter import Tally
    from turnkeep.agent.scripted import Scene, ScriptedReply

FULL_WINDOW: Final = 100
"""A turn whose window of twenty earlier ones is full."""

TIME_MS: Final = 28_000


@dataclass(frozen=True)
class Units:
    """What something costs at DynamoDB."""

    what: str
    writes: int
    reads: float
    calls: int

    @classmethod
    def of(cls, what: str, tally: Tally) -> Units:
        """What a meter counted."""
        return cls(what, tally.write_units, tally.read_units, tally.call_count)

    def __add__(self, other: Units) -> Units:
        return Units(self.what, self.writes + other.writes, self.reads + other.reads, self.calls + other.calls)


def turns() -> list[Units]:
    """One turn each: of one answer, with and without a key, and of three iterations in every mode."""
    found = []
    with Meter() as meter, table():
        desk = Desk(meter, "words")
        desk.seed(FULL_WINDOW - 1)
        found.append(Units.of("one answer, without a tool", desk.measure(FULL_WINDOW).tally))
        keyed = desk.measure(FULL_WINDOW + 1, idempotency_key="a-key-of-the-callers")
        found.append(Units.of("the same, with an `Idempotency-Key`", keyed.tally))
    for once in (False, True):
        for mode in durability.MODES:
            what = f"three iterations with two tools each, `{mode}`" + (", both tools `once`" if once else "")
            found.append(Units.of(what, durability.tally(mode, once=once)))
    return found


def question() -> list[Units]:
    """A question's life in its steps: asked, waited for, answered, run on."""
    with Meter() as meter, table():
        client = boto3.client("dynamodb", region_name=REGION, config=client_config())
        key, clock = ConversationKey(f"c-{secrets.token_urlsafe(16)}"), SystemClock()
        boss = Caller("sam", roles=frozenset({"supervisor"}))

        def deps() -> Deps:
            nothing: Any = durability.Nothing()
            return Deps(
                ledger=Ledger(DynamoItemStore(client, TABLE), clock),
                clock=clock,
                factory=lambda info: _desk(),
                gate=nothing,
                doorbell=nothing,
                events=nothing,
                settings=Settings(),
                random_id=secrets.token_urlsafe,
            )

        def deadline() -> FixedDeadline:
            return FixedDeadline.after(clock, TIME_MS)

        take_turn(deps(), Caller("ann"), key, message="Hello.", deadline=deadline())
        with meter.measure() as asked:
            turn = take_turn(deps(), Caller("ann"), key, message="Refund it, please.", deadline=deadline())
        if turn.ask is None:
            raise RuntimeError("nobody was asked")
        with meter.measure() as waited:
            _leave_the_token(client, key, turn.turn, turn.ask.ask_id, turn.ask.expires_at_ms)
        with meter.measure() as answered:
            answer_ask(
                deps(), boss, key, ask_id=turn.ask.ask_id, decision={"approved": True, "by": "sam"}, deadline=deadline()
            )
        with meter.measure() as resumed:
            done = resume_turn(deps(), key, turn.turn, turn.ask.ask_id, deadline=deadline())
        if done.record is None or done.record.status != "complete":
            raise RuntimeError("the turn was not run on")
        return [
            Units.of("the turn that asks", asked),
            Units.of("the machine leaves its token", waited),
            Units.of("the answer", answered),
            Units.of("the resume", resumed),
        ]


def idle_reconciler() -> Units:
    """One look of the reconciler at a table in which nothing is due."""
    with Meter() as meter, table():
        client = boto3.client("dynamodb", region_name=REGION, config=client_config())
        clock = SystemClock()
        nothing: Any = durability.Nothing()
        deps = Deps(
            ledger=Ledger(DynamoItemStore(client, TABLE), clock), clock=clock, factory=nothing, gate=nothing,
            doorbell=nothing, events=nothing, settings=Settings(), random_id=secrets.token_urlsafe,
        )  # fmt: skip
        with meter.measure() as tally:
            reconcile(deps, deadline=FixedDeadline.after(clock, TIME_MS))
    return Units.of("one look of the reconciler, nothing due", tally)


def _desk() -> Agent:
    @tool(check_in=CheckIn(audience="role:supervisor"))
    def refund(n: int) -> str:
        """Pays an order back."""
        return f"order {n} is paid back"

    def script(scene: Scene) -> ScriptedReply:
        if "Refund" not in scene.text:
            return "Hello."
        return scene.results[-1].content if scene.results else [call("refund", n=1)]

    return Agent(provider=ScriptedProvider(script), tools=[refund])


def _leave_the_token(client: Any, key: ConversationKey, turn: int, ask_id: str, expires_at_ms: int) -> None:
    """What AwaitAnswer writes, by its own definition; a task token has about a thousand characters at most."""
    definition = yaml.safe_load((ROOT / "statemachines" / "paused_run.asl.yaml").read_text("utf-8"))
    arguments = definition["States"]["AwaitAnswer"]["Arguments"]
    client.update_item(
        TableName=TABLE,
        Key={"pk": {"S": key.pk}, "sk": {"S": turn_sk(turn)}},
        ConditionExpression=arguments["ConditionExpression"],
        UpdateExpression=arguments["UpdateExpression"],
        ExpressionAttributeNames=arguments["ExpressionAttributeNames"],
        ExpressionAttributeValues={
            ":ask": {"S": ask_id},
            ":awaiting": {"S": "awaiting"},
            ":token": {"S": secrets.token_urlsafe(450)[:600]},
            ":due": {"N": str(expires_at_ms + 300_000)},
        },
    )
