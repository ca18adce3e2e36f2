"""Permissions proven: what functions and the state machine asked of AWS, against their own roles as deployed.

One scenario drives every route and every repair on the local stack; the endpoint notes what IAM would have been asked.
Invariants: every call is allowed by exactly one statement of its caller's role, so that the test fails without it;
every statement is used by a call, or is named below with the reason why this scenario cannot reach it; and whatever is
not proven so has its sentence in docs/security.md.
"""

from __future__ import annotations

import json
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from local.demo import Api, Reply
from local.settings import ROOT
from local.stack import LocalStack
from tests.e2e.iam import MACHINE, Asked, allows, as_list, faults_of, idle_in, statements_of, without

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALICE, BOB = "alice", "bob"
ASKS = {"message": "Refund order B-200, please"}
LOOKS_UP = {"message": "Where is order A-100?"}
FUNCTIONS = (
    *("TurnFunction", "AnswerFunction", "ReadFunction"),
    *("ResumeFunction", "WorkerFunction", "ReconcileFunction"),
)
# (whose role, Sid) -> why the scenario does not use it.
NOT_REACHED = {
    **{(caller, "WriteItsLog"): "Lambda writes the log, in the function's name" for caller in FUNCTIONS},
    **{(caller, "SendTraces"): "Lambda and Step Functions send the traces" for caller in (*FUNCTIONS, MACHINE)},
    ("WorkerFunction", "HearDoorbells"): "Lambda polls the queue, in the function's name",
    (MACHINE, "DeliverLogs"): "Step Functions delivers its log",
    ("TurnFunction", "EndTheWaitOfALaterAsk"): "the refund desk never asks twice in one turn",
    ("ResumeFunction", "AskPastTheExecutionsYear"): "no scenario lasts a year",
    ("ResumeFunction", "SeeWhetherItsExecutionRuns"): "goes with the start past the year",
    ("ResumeFunction", "TakeBackTheMarkOfACallThatDidNotBegin"): "a claim has to be lost while the store answers",
    ("WorkerFunction", "TakeBackTheMarkOfACallThatDidNotBegin"): "a claim has to be lost while the store answers",
    ("WorkerFunction", "SeeWhetherItsExecutionRuns"): "an execution of a fresh ask's name would have to exist",
}
# Statements of policies that a parameter adds; the local stack has neither model nor key.
OF_PARAMETERS = {"CallTheModel", "CallTheModelsBehindTheProfile", "UseTheTablesKey"}
PATIENCE_S = 20.0


@pytest.mark.process
@pytest.mark.timeout(300)
def test_roles_allow_what_was_done_and_nothing_else(tmp_path: Path) -> None:
    # With so short a time the worker soon rings again where it has to wait for another turn.
    # An execution's end that nobody heard of is not told again while this plays.
    settings: dict[str, Any] = {"parameters": {"TurnTimeoutSeconds": "10"}, "retry_delays_s": (600.0, 600.0)}
    with LocalStack(state_dir=tmp_path, **settings) as stack:
        Scenario(stack).play()
        calls = stack.calls.list()
        granted = {caller: statements_of(stack, caller) for caller in (*FUNCTIONS, MACHINE)}
    needed: dict[str, set[Asked]] = {caller: set() for caller in granted}
    for call in calls:
        if caller := MACHINE if call["machine"] else call["function"]:
            needed[caller] |= Asked.of(call)
    assert all(needed.values()), "everybody asked for something"
    problems = [fault for caller in granted for fault in faults_of(caller, granted[caller], needed[caller])]
    assert problems == []
    unused = {(caller, sid) for caller in granted for sid in idle_in(granted[caller], needed[caller])}
    assert sorted(unused) == sorted(NOT_REACHED)

    # And the test would notice: without any one action of a statement that is used, something is missing.
    for caller, statements in granted.items():
        for statement in statements:
            for action in as_list(statement["Action"]):
                if (caller, statement["Sid"]) not in NOT_REACHED:
                    assert faults_of(caller, without(statements, statement["Sid"], action), needed[caller])


def test_what_is_not_proven_by_a_call_has_its_sentence() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    unproven = {sid for _, sid in NOT_REACHED} | OF_PARAMETERS
    assert [sid for sid in sorted(unproven) if f"`{sid}`" not in page] == []


def test_a_call_that_nobody_allowed_would_be_noticed() -> None:
    table = "arn:aws:dynamodb:r:1:table/T"
    statement = {"Sid": "Read", "Effect": "Allow", "Action": ["dynamodb:Query"], "Resource": table}
    assert faults_of("F", [statement], {Asked(f"dynamodb:Query {table}")}) == []
    for other in (
        f"dynamodb:Query {table}/index/byOwner",
        f"dynamodb:Scan {table}",
        "dynamodb:Query arn:aws:dynamodb:r:1:table/Other",
    ):
        assert faults_of("F", [statement], {Asked(other)}) == [f"F may not {other}"]
    assert faults_of("F", [statement, statement], {Asked(f"dynamodb:Query {table}")}) == [
        f"F may dynamodb:Query {table} by 2 statements: Read, Read"
    ]


@pytest.mark.parametrize(
    ("seen", "allowed"),
    [
        ({"dynamodb:Attributes": ("pk", "status"), "dynamodb:Select": ("SPECIFIC_ATTRIBUTES",)}, True),
        ({"dynamodb:Attributes": ("pk", "user"), "dynamodb:Select": ("SPECIFIC_ATTRIBUTES",)}, False),
        ({"dynamodb:Attributes": ("pk",), "dynamodb:Select": ("ALL_ATTRIBUTES",)}, False),
        ({"dynamodb:Attributes": ("pk",)}, True),
    ],
)
def test_conditions_are_read_as_iam_reads_them(seen: dict[str, tuple[str, ...]], allowed: bool) -> None:
    statement = {
        "Action": "dynamodb:GetItem",
        "Resource": "t",
        "Condition": {
            "ForAllValues:StringEquals": {"dynamodb:Attributes": ["pk", "status"]},
            "StringEqualsIfExists": {"dynamodb:Select": "SPECIFIC_ATTRIBUTES"},
        },
    }
    assert allows(statement, Asked("dynamodb:GetItem t", tuple(seen.items()))) is allowed


class Scenario:
    """Every route, and every repair of what a fault left behind."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.alice = Api(stack.api_url, stack.aws_url, stack.token(ALICE, "acme"))
        self.boss = Api(stack.api_url, stack.aws_url, stack.token(BOB, "acme", ["supervisor"]))
        self.table = stack.client("dynamodb")
        self.table_name = stack.deployment()["outputs"]["TableName"]

    def play(self) -> None:
        self.everyday()
        self.queued()
        self.queued_behind_a_running_turn()
        self.two_answer_at_once()
        self.withdrawn()
        self.start_was_lost()
        self.signal_was_lost()
        self.ring_was_lost()
        self.nobody_answered()
        self.erased()

    def everyday(self) -> None:
        self.send("everyday", LOOKS_UP)
        ask = self.ask("everyday")
        self.until_waiting("everyday")
        assert self.answer("everyday", ask).status == 202
        self.until("everyday", 2, "complete")
        for path in ("", "/turns", "/turns/1", "/turns/1/evidence", "/transcript"):
            assert self.alice.call("GET", f"/conversations/everyday{path}").status == 200
        for path in ("/conversations", "/asks", "/health"):
            assert self.alice.call("GET", path).status == 200
        assert self.alice.call("POST", "/conversations", LOOKS_UP).status == 200
        assert self.alice.call("POST", "/conversations", {}).status == 201

    def queued(self) -> None:
        for _ in range(3):
            assert self.send("queued", LOOKS_UP, prefer="respond-async").status == 202
        self.until("queued", 3, "complete")
        # A turn that asks in the worker, and one behind it.
        assert self.send("queued", ASKS, prefer="respond-async").status == 202
        self.until("queued", 4, "awaiting")

    def queued_behind_a_running_turn(self) -> None:
        held = self.stack.faults.add(
            "hold", function="TurnFunction", operation="UpdateItem", contains=["busy", "TURN#"], times=None
        )
        with ThreadPoolExecutor() as pool:
            first = pool.submit(self.send, "busy", LOOKS_UP)
            held.wait_until_met()
            assert self.send("busy", LOOKS_UP, prefer="respond-async").status == 202
            rings = ("WorkerFunction", "SendMessage")
            self.eventually(
                lambda: any((call["function"], call["operation"]) == rings for call in self.stack.calls.list()),
                "the worker rang again",
            )
            held.release()
            assert first.result().status == 200
        self.until("busy", 2, "complete")

    def two_answer_at_once(self) -> None:
        ask = self.ask("contended")
        self.until_waiting("contended")
        held = self.stack.faults.add("hold", function="AnswerFunction", operation="UpdateItem", contains=["contended"])
        with ThreadPoolExecutor() as pool:
            large = pool.submit(self.answer, "contended", ask, note=secrets.token_hex(40_000))
            held.wait_until_met()
            assert self.answer("contended", ask).status == 202
            held.release()
            assert large.result().status == 409
        self.until("contended", 1, "complete")

    def withdrawn(self) -> None:
        self.ask("withdrawn")
        self.until_waiting("withdrawn")
        assert self.alice.call("DELETE", "/conversations/withdrawn/turns/1").status == 200

    def start_was_lost(self) -> None:
        """Nothing waits on the ask: whoever looks next starts the execution, and sees whether its name is taken."""
        for name, look in (
            ("read", lambda: self.alice.call("GET", "/conversations/read")),
            ("reconciled", lambda: self.reconcile("reconciled")),
        ):
            self.ask_without_execution(name)
            look()
            self.until_waiting(name)
        for name, look in (
            ("read-taken", lambda: self.alice.call("GET", "/conversations/read-taken")),
            ("reconciled-taken", lambda: self.reconcile("reconciled-taken")),
        ):
            self.ask_whose_execution_ended(name)
            look()
        ask = self.ask_whose_execution_ended("answered-taken")
        assert self.answer("answered-taken", ask).status == 202
        self.until("answered-taken", 1, "complete")
        ask = self.ask_whose_execution_ended("asked-taken")
        # A message while an ask is open starts its execution too, before it is refused.
        assert self.send("asked-taken", LOOKS_UP).status == 409

    def signal_was_lost(self) -> None:
        ask = self.ask("unsignalled")
        self.until_waiting("unsignalled")
        with self.stack.faults.during("error", service="states", function="AnswerFunction", times=None):
            assert self.answer("unsignalled", ask).status == 202
        self.reconcile("unsignalled")
        self.until("unsignalled", 1, "complete")

    def ring_was_lost(self) -> None:
        with self.stack.faults.during("error", service="sqs", function="TurnFunction", times=None):
            self.send("unrung", LOOKS_UP, prefer="respond-async")
        self.reconcile("unrung")
        self.until("unrung", 1, "complete")

    def nobody_answered(self) -> None:
        self.ask("expired")
        self.until_waiting("expired")
        self.change("expired", "TURN#", "SET expiresAt = :past, dueAt = :past", {":past": {"N": "1"}})
        self.look_around()
        self.until("expired", 1, "expired")

    def erased(self) -> None:
        self.ask("erased")
        self.until_waiting("erased")
        late = [item for item in self.items("erased") if item["sk"]["S"] != "CONVERSATION"]
        assert self.alice.call("DELETE", "/conversations/erased").status == 202
        long_ago = {":past": {"N": "1"}}
        self.change("erased", "CONVERSATION", "SET erasing = :past, dueAt = :past", long_ago)
        # As if a process that slept through the first pass had written behind it.
        for item in late:
            self.table.put_item(TableName=self.table_name, Item=item)
        self.look_around()
        self.eventually(lambda: not self.items("erased"), "the erased conversation is gone")

    # --- steps ----------------------------------------------------------------------------------------------

    def send(self, conversation: str, body: dict[str, Any], **headers: str) -> Reply:
        return self.alice.call("POST", f"/conversations/{conversation}/turns", body, **headers)

    def ask(self, conversation: str) -> str:
        reply = self.send(conversation, ASKS)
        assert reply.status == 202, reply.body
        return str(reply.body["awaiting"]["askId"])

    def answer(self, conversation: str, ask_id: str, **more: str) -> Reply:
        body = {"askId": ask_id, "decision": {"approved": True, "by": BOB, **more}}
        return self.boss.call("POST", f"/conversations/{conversation}/answers", body)

    def ask_without_execution(self, conversation: str) -> str:
        with self.stack.faults.during("error", service="states", operation="StartExecution", times=None) as fault:
            ask_id = self.ask(conversation)
            assert fault.met
        return ask_id

    def ask_whose_execution_ended(self, conversation: str) -> str:
        """As after a stop in the console that nobody heard of: no token, and the execution's name is used up."""
        faults = self.stack.faults
        token = {"service": "dynamodb", "operation": "UpdateItem", "contains": ["taskToken", conversation]}
        deaf = {"service": "dynamodb", "function": "ReconcileFunction", "status": 400, "code": "ValidationException"}
        with (
            faults.during("error", times=None, **deaf) as unheard,
            faults.during("throttle", times=None, **token) as kept,
        ):
            ask_id = self.ask(conversation)
            kept.wait_until_met()
            steps = self.stack.client("stepfunctions")
            machine = self.stack.deployment()["outputs"]["PausedRunArn"]
            for execution in steps.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]:
                shown = json.loads(steps.describe_execution(executionArn=execution["executionArn"])["input"])
                if shown["conversationId"] == conversation:
                    steps.stop_execution(executionArn=execution["executionArn"])
            unheard.wait_until_met()
        return ask_id

    def look_around(self) -> None:
        """What the schedule does every minute."""
        done = self.stack.invoke("ReconcileFunction", {"detail-type": "Scheduled Event"})
        assert done.error is None, done.value

    def reconcile(self, conversation: str) -> None:
        """Lets the scheduled reconciler find the conversation's open turn now."""
        self.change(conversation, "TURN#", "SET dueAt = :past", {":past": {"N": "1"}})
        self.look_around()

    def items(self, conversation: str) -> list[dict[str, Any]]:
        pages = self.table.get_paginator("scan").paginate(TableName=self.table_name, ConsistentRead=True)
        return [
            item
            for page in pages
            for item in page["Items"]
            if item["pk"]["S"].endswith(conversation) and not item["pk"]["S"].endswith(f"-{conversation}")
        ]

    def change(self, conversation: str, prefix: str, expression: str, values: dict[str, Any]) -> None:
        for item in self.items(conversation):
            if item["sk"]["S"].startswith(prefix):
                self.table.update_item(
                    TableName=self.table_name,
                    Key={"pk": item["pk"], "sk": item["sk"]},
                    UpdateExpression=expression,
                    ExpressionAttributeValues=values,
                )

    def until(self, conversation: str, turn: int, status: str) -> None:
        path = f"/conversations/{conversation}/turns/{turn}"
        self.eventually(
            lambda: self.alice.call("GET", path).body.get("status") == status, f"{conversation} {turn} is {status}"
        )

    def until_waiting(self, conversation: str) -> None:
        self.eventually(
            lambda: any("taskToken" in item for item in self.items(conversation)), f"{conversation} has its token"
        )

    def eventually(self, look: Callable[[], bool], what: str) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not look():
            assert time.monotonic() < give_up_at, f"not within {PATIENCE_S} s: {what}"
            time.sleep(0.05)
