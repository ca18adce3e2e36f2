"""turnkeep's own turn under the meter: what ``take_turn`` sends at a conversation of any length."""

from __future__ import annotations

import base64
import contextlib
import secrets
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import boto3

from bench.texts import text
from turnkeep.adapters.dynamo import DynamoItemStore, client_config
from turnkeep.adapters.dynamo_expressions import wire
from turnkeep.agent import Agent, ScriptedProvider
from turnkeep.clock import SystemClock
from turnkeep.ledger.items import conversation_attributes, turn_item
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, request_hash
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.usecases.deps import Caller, Deps, FixedDeadline, Idempotency, Settings
from turnkeep.usecases.take_turn import take_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.meter import Meter, Tally
    from turnkeep.ledger.store import Item

REGION: Final = "eu-central-1"
TABLE: Final = "turnkeep-LedgerTable-1A2B3C4D5E6F7"
WINDOW: Final = 20
CALLER: Final = Caller("3f2b8a44-6a0e-4a55-9d0c-2f6b8f7f9f10", "acme")
PROMPT: Final = "You are a support desk. Answer in a few sentences."


@dataclass(frozen=True)
class Measured:
    """One turn's cost.

    Attributes:
        turn: its number.
        tally: what the meter counted.
        round_trips: calls in a row, counted at the store's port; calls side by side count once.
    """

    turn: int
    tally: Tally
    round_trips: int


class Desk:
    """One deployment on moto in this process."""

    def __init__(self, meter: Meter, kind: str) -> None:
        self.meter, self.kind = meter, kind
        self.client = boto3.client("dynamodb", region_name=REGION, config=client_config())
        self.key = ConversationKey(f"c-{secrets.token_urlsafe(16)}", CALLER.tenant)
        self._answer = ""

    def measure(self, turn: int, *, idempotency_key: str | None = None) -> Measured:
        """Takes one turn behind so many as there have to be before it, and counts what it costs."""
        store, clock = DynamoItemStore(self.client, TABLE), SystemClock()
        self._answer = text(self.kind, f"answer {turn}")
        deps = Deps(
            ledger=Ledger(store, clock),
            clock=clock,
            factory=lambda info: Agent(
                provider=ScriptedProvider(lambda scene: self._answer), system=PROMPT, agent_id="support-desk"
            ),
            gate=_Nothing(),
            doorbell=_Nothing(),
            events=_Nothing(),
            settings=Settings(),
            random_id=secrets.token_urlsafe,
            last_turns=lambda: WINDOW,
        )
        key = None
        if idempotency_key is not None:
            key = Idempotency(request_hash(idempotency_key), sha256(idempotency_key.encode()).hexdigest())
        message = text(self.kind, f"message {turn}")
        with self.meter.measure() as tally:
            deadline = FixedDeadline.after(clock, 28_000)
            done = take_turn(deps, CALLER, self.key, message=message, idempotency=key, deadline=deadline)
        if done.turn != turn or done.output != self._answer:
            raise RuntimeError(f"turn {turn} came out as turn {done.turn}")
        return Measured(turn, tally, store.round_trips)

    def seed(self, upto: int) -> None:
        """Puts turns up to a number straight into moto's table, as turns like these leave them."""
        if upto < 1:
            return
        with self.meter.quiet():
            answer = self.client.query(
                TableName=TABLE,
                KeyConditionExpression="pk=:p AND begins_with(sk,:t)",
                ExpressionAttributeValues={":p": {"S": self.key.pk}, ":t": {"S": "TURN#"}},
                ScanIndexForward=False,
                Limit=1,
            )
        last = int(answer["Items"][0]["sk"]["S"][5:]) if answer["Items"] else 0
        epoch = answer["Items"][0]["epoch"]["S"] if answer["Items"] else secrets.token_urlsafe(12)
        for turn in range(last + 1, upto + 1):
            self._put(turn_item(self._record(turn, epoch)))
        record = self._record(upto, epoch)
        shown = ConversationRecord(
            key=self.key,
            epoch=epoch,
            owner=CALLER.principal,
            created_at_ms=record.started_at_ms,
            saved_at_ms=record.saved_at_ms,
            turn=upto,
            attempt=1,
            status="complete",
            message_count=2 * upto,
            agent_id="support-desk",
        )
        self._put({"pk": self.key.pk, "sk": CONVERSATION, **conversation_attributes(shown)})

    def _record(self, turn: int, epoch: str) -> TurnRecord:
        now_ms = SystemClock().now_ms()
        example = _example(self.kind)
        return replace(
            example,
            key=self.key,
            turn=turn,
            epoch=epoch,
            previous=turn - 1,
            base_count=2 * (turn - 1),
            run_id=f"run-{now_ms}-{secrets.token_urlsafe(12)}",
            started_at_ms=now_ms,
            saved_at_ms=now_ms,
        )

    def _put(self, item: Item) -> None:
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.dynamodb.models import dynamodb_backends

        moto_table = dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables[TABLE]
        moto_table.put_item(_as_sent(item))

    def whole_read(self) -> Measured:
        """Reads the whole conversation."""
        store = DynamoItemStore(self.client, TABLE)
        with self.meter.measure() as tally:
            found = Ledger(store, SystemClock()).hydrate(self.key)
        return Measured(len(found.turns()), tally, store.round_trips)


def _as_sent(item: Item) -> dict[str, Any]:
    """An item as a request's JSON carries it, which is how moto keeps it."""
    return {
        name: {"B": base64.b64encode(typed["B"]).decode()} if "B" in typed else typed
        for name, typed in wire(item).items()
    }


def _example(kind: str) -> TurnRecord:
    """A complete turn of the workload, without whose it is."""
    evidence: dict[str, Any] = {
        "modelCalls": [{"iteration": 1, "usage": {"inputTokens": 12_345, "outputTokens": 300},
                        "stopReason": "end_turn", "durationMs": 2_345, "message": "msg-1-1"}],
        "toolCalls": [],
        "system": {"name": "system", "sha256": sha256(PROMPT.encode()).hexdigest(), "characters": len(PROMPT)},
        "agent": {"id": "support-desk"},
        "window": {"turns": 20, "messages": 40, "firstTurn": 80, "lastTurn": 99, "leftOut": {"turns": 79}},
    }  # fmt: skip
    return TurnRecord(
        key=ConversationKey("-"),
        turn=1,
        status=Status.COMPLETE,
        epoch="-",
        principal=CALLER.principal,
        shown_count=2,
        user={"role": "user", "content": text(kind, "seeded message")},
        messages=({"role": "assistant", "content": text(kind, "seeded answer")},),
        usage={"inputTokens": 12_345, "outputTokens": 300},
        evidence=evidence,
        agent_id="support-desk",
        iteration=1,
    )


class _Nothing:
    """Every port that a plain turn never uses."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **facts: None


@contextlib.contextmanager
def table() -> Iterator[None]:
    """The ledger's table, as the template describes it, on moto in this process."""
    from moto import mock_aws

    from local.settings import ROOT
    from local.template import load_yaml

    properties = load_yaml((ROOT / "template.yaml").read_text(encoding="utf-8"))["Resources"]["LedgerTable"][
        "Properties"
    ]
    same = ("BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
    with mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        client.create_table(TableName=TABLE, **{name: properties[name] for name in same})
        yield
