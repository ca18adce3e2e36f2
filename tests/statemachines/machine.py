"""PausedRun executed by moto's interpreter: its own DynamoDB table, and a resume function that a test scripts.

The table holds one turn with a secret in it, as the ledger would, so that a test can look for it where it must not be.
Waits between retries are noted instead of waited.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import boto3

from tests.statemachines.definition import TABLE, load_definition

REGION = "us-east-1"
SECRET = "what-was-said-stays-in-the-ledger"
PATIENCE_S = 20.0

Found = TypeVar("Found")
Payload = dict[str, Any]
Reply = Payload | Exception | Callable[[Payload], Payload]


class LambdaError(Exception):
    """What a function raises, as Step Functions learns of it: the name of the error's type, and its words."""

    def __init__(self, error_type: str, message: str = "") -> None:
        self.error_type = error_type
        super().__init__(message)


class Machine:
    """A table with one turn, the machine, and what happened."""

    def __init__(self) -> None:
        self.calls: list[Payload] = []
        self.waits_s: list[float] = []
        self._replies: dict[str, list[Reply]] = {}
        self.table = boto3.client("dynamodb", region_name=REGION)
        self.steps = boto3.client("stepfunctions", region_name=REGION)
        self.table.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        )
        self.key = {"pk": {"S": "5:alice|c-1"}, "sk": {"S": "TURN#0000000000000007"}}
        self.arn = self.steps.create_state_machine(
            name="paused-run",
            definition=json.dumps(load_definition()),
            roleArn="arn:aws:iam::123456789012:role/paused-run",
        )["stateMachineArn"]
        self.execution = ""

    # --- the world around the machine ---------------------------------------------------------------------------

    def card(self, ask_id: str = "ask-1", *, expires_in_s: float = 3600, **more: Any) -> Payload:
        """An execution's input."""
        return {
            "pk": self.key["pk"]["S"],
            "sk": self.key["sk"]["S"],
            "conversationId": "c-1",
            "turn": 7,
            "askId": ask_id,
            "question": 'Refund "B-200" (€250)?\nIt\'s $millis() {% old %}',
            "tool": "refund",
            "audience": "role:supervisor",
            "askedAt": "2026-01-01T00:00:00Z",
            "expiresAt": "2026-01-08T00:00:00Z",
            "expiresAtMs": int((time.time() + expires_in_s) * 1000),
            "howToAnswer": "POST /conversations/c-1/answers",
            "start": 1,
            **more,
        }

    def put_turn(self, status: str = "awaiting", ask_id: str = "ask-1", **more: dict[str, str]) -> None:
        """The turn's record as the ledger would hold it."""
        said = {"message": {"S": SECRET}, "principal": {"S": SECRET}}
        self.table.put_item(
            TableName=TABLE, Item={**self.key, "status": {"S": status}, "askId": {"S": ask_id}, **said, **more}
        )

    def turn(self) -> dict[str, Any]:
        """The turn's record now."""
        return self.table.get_item(TableName=TABLE, Key=self.key, ConsistentRead=True).get("Item", {})

    def decide(self) -> None:
        """Records a decision as the answer's one conditional write does."""
        self.table.update_item(
            TableName=TABLE,
            Key=self.key,
            UpdateExpression="SET decision = :d, #s = :answered",
            ConditionExpression="attribute_not_exists(decision)",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":d": {"S": SECRET}, ":answered": {"S": "answered"}},
        )

    def reply(self, action: str, *replies: Reply) -> None:
        """What the resume function answers to an action, call by call; the last one again and again."""
        self._replies[action] = list(replies)

    def invoke(self, payload: Payload) -> Payload:
        """The resume function."""
        self.calls.append(payload)
        replies = self._replies[payload["action"]]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply(payload) if callable(reply) else reply

    # --- the execution ------------------------------------------------------------------------------------------

    def start(self, card: Payload | None = None) -> None:
        """Starts an execution."""
        started = self.steps.start_execution(
            stateMachineArn=self.arn, name=uuid.uuid4().hex, input=json.dumps(card or self.card())
        )
        self.execution = started["executionArn"]

    def token(self, *, other_than: str = "") -> str:
        """The task token in the ledger, waited for."""

        def stored() -> str:
            found: str = self.turn().get("taskToken", {}).get("S", "")
            return "" if found == other_than else found

        return _wait_for(stored, "a task token")

    def signal(self, token: str) -> None:
        """Tells the machine that the answer is recorded."""
        self.steps.send_task_success(taskToken=token, output="{}")

    def end(self) -> dict[str, Any]:
        """The execution's description once it has ended."""

        def ended() -> dict[str, Any] | None:
            found = self.steps.describe_execution(executionArn=self.execution)
            return None if found["status"] == "RUNNING" else dict(found)

        return _wait_for(ended, "the execution's end")

    def output(self) -> Payload:
        """The output of an execution that has to succeed."""
        description = self.end()
        assert description["status"] == "SUCCEEDED", self.history()[-3:]
        found: Payload = json.loads(description["output"])
        return found

    def history(self) -> list[dict[str, Any]]:
        """All events of the execution."""
        events: list[dict[str, Any]] = []
        token: dict[str, Any] = {}
        while True:
            page = self.steps.get_execution_history(executionArn=self.execution, maxResults=100, **token)
            events += [dict(event) for event in page["events"]]
            if not page.get("nextToken"):
                return events
            token = {"nextToken": page["nextToken"]}

    def states(self) -> list[str]:
        """The states that were entered, in order."""
        return [name for name, _ in self.entered()]

    def entered(self) -> list[tuple[str, Payload]]:
        """Name and input of every state that was entered."""
        details = [event["stateEnteredEventDetails"] for event in self.history() if "stateEnteredEventDetails" in event]
        return [(detail["name"], json.loads(detail["input"])) for detail in details]

    def stop(self) -> None:
        """Ends what is still running, so that no thread outlives the test."""
        for execution in self.steps.list_executions(stateMachineArn=self.arn, statusFilter="RUNNING")["executions"]:
            self.steps.stop_execution(executionArn=execution["executionArn"])


def _wait_for(look: Callable[[], Found | None], what: str) -> Found:
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come within {PATIENCE_S} s")
