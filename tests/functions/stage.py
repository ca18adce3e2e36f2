"""A stage for the functions: moto's DynamoDB, Step Functions and SQS in this process, and the functions as deployed.

Each function is loaded from its own folder as ``app.handler``, as Lambda does, and is given events from ``events/``.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from pydantic import ValidationError

from tools.openapi_models import Error
from tools.openapi_operations import OPERATIONS, refusals_of
from turnkeep.agent.port import Answered, Asked, Outcome, TurnContext, TurnInfo

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
REGION = "eu-central-1"
TABLE, QUEUE = "Ledger-functions", "turns.fifo"
ROLE_ARN = "arn:aws:iam::123456789012:role/machine"

INDEXES = (("byOwner", "ownerKey", "savedAt"), ("byAudience", "audienceKey", "askedAt"), ("byDue", "due", "dueAt"))


def saved_event(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text("utf-8"))
    return event


def handler_of(function: str) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """The handler of a function, from its folder."""
    path = ROOT / "functions" / function / "app.py"
    spec = importlib.util.spec_from_file_location(f"function_{function}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handler: Callable[[dict[str, Any], Any], dict[str, Any]] = module.handler
    return handler


@dataclass(frozen=True)
class Context:
    """Lambda's context, as far as the functions use it."""

    aws_request_id: str = "lambda-request"
    left_ms: int = 29_000

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


class Desk:
    """An agent for these tests: it answers with what it was told, or asks a supervisor about a refund."""

    agent_id = "desk"
    agent_version = "1"
    durability = None

    def run(self, context: TurnContext) -> Outcome:
        text = str(context.messages[0]["content"])
        if "Refund" in text:
            call = {"id": "call-1", "name": "refund", "args": {"order": "B-200"}}
            asked = {"role": "assistant", "content": "", "toolCalls": [call]}
            pause_data = {"toolCallId": "call-1", "toolName": "refund", "question": "Refund B-200?"}
            return Asked(pause_data, {"at": 1}, [*context.messages, asked], iteration=1, audience="role:supervisor")
        said = f"You said: {text}"
        return Answered(said, [*context.messages, {"role": "assistant", "content": said}], iteration=1)

    def resume(self, context: TurnContext, checkpoint: dict[str, Any], decision: Any) -> Outcome:
        raise AssertionError("these tests do not resume")


def build(info: TurnInfo) -> Desk:
    """The factory that TURNKEEP_AGENT_FACTORY names here."""
    return Desk()


@dataclass
class Reply:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> Any:
        return self.body["error"]["code"]


def hold_against_description(route: str, reply: Reply) -> None:
    """Fails where a reply is not one that ``docs/openapi.json`` promises for its route, to the last field."""
    operation = OPERATIONS[route]
    if reply.status in operation.replies:
        said = operation.replies[reply.status]
        faults = []
        for model in said.models:
            try:
                model.model_validate(reply.body)
                break
            except ValidationError as error:
                faults.append(str(error))
        else:
            raise AssertionError("\n".join(faults))
        promised = {name.lower() for name in said.headers}
    else:
        rows = refusals_of(operation).get(reply.status, [])
        Error.model_validate(reply.body)
        assert reply.code in {row.code for row in rows}, f"{reply.status} {reply.code} is not described for {route}"
        promised = {"retry-after"}
    assert set(reply.headers) <= promised | {"content-type", "cache-control"}


@dataclass
class Stage:
    """What the tests use of it all."""

    machine_arn: str
    queue_url: str
    handlers: dict[str, Any] = field(default_factory=dict)

    def call(self, function: str, event: dict[str, Any], context: Any = None) -> Reply:
        if function not in self.handlers:
            self.handlers[function] = handler_of(function)
        answer = self.handlers[function](event, context or Context())
        reply = Reply(
            answer["statusCode"],
            json.loads(answer["body"]) if answer["body"] else None,
            {name.lower(): value for name, value in answer["headers"].items()},
        )
        if event.get("routeKey"):
            hold_against_description(event["routeKey"], reply)
        return reply

    def items(self) -> list[dict[str, Any]]:
        return list(boto3.client("dynamodb", region_name=REGION).scan(TableName=TABLE)["Items"])

    def executions(self) -> list[Any]:
        client = boto3.client("stepfunctions", region_name=REGION)
        return list(client.list_executions(stateMachineArn=self.machine_arn)["executions"])

    def rings(self) -> list[dict[str, Any]]:
        client = boto3.client("sqs", region_name=REGION)
        found = client.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in found.get("Messages", [])]


def build_stage(set_variable: Callable[[str, str], None]) -> Stage:
    """Makes the table, the machine and the queue, and sets the functions' environment."""
    dynamo = boto3.client("dynamodb", region_name=REGION)
    attributes = {"pk": "S", "sk": "S"}
    indexes: list[Any] = []
    for name, hash_key, range_key in INDEXES:
        attributes |= {hash_key: "S", range_key: "N"}
        keys = [{"AttributeName": hash_key, "KeyType": "HASH"}, {"AttributeName": range_key, "KeyType": "RANGE"}]
        indexes.append({"IndexName": name, "KeySchema": keys, "Projection": {"ProjectionType": "ALL"}})
    dynamo.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in attributes.items()],  # type: ignore[typeddict-item]
        GlobalSecondaryIndexes=indexes,
        BillingMode="PAY_PER_REQUEST",
    )
    machine = boto3.client("stepfunctions", region_name=REGION).create_state_machine(
        name="PausedRun",
        roleArn=ROLE_ARN,
        definition='{"StartAt":"W","States":{"W":{"Type":"Wait","Seconds":9,"End":true}}}',
    )
    queue = boto3.client("sqs", region_name=REGION).create_queue(QueueName=QUEUE, Attributes={"FifoQueue": "true"})
    stage = Stage(machine["stateMachineArn"], queue["QueueUrl"])
    variables = {
        "TURNKEEP_TABLE": TABLE,
        "TURNKEEP_STATE_MACHINE_ARN": stage.machine_arn,
        "TURNKEEP_QUEUE_URL": stage.queue_url,
        "TURNKEEP_AGENT_FACTORY": "tests.functions.stage:build",
        "TURNKEEP_ROLES_CLAIM": "roles",
        "TURNKEEP_TENANT_CLAIM": "tenant",
        "TURNKEEP_ALLOW_ANONYMOUS": "false",
    }
    for name, value in variables.items():
        set_variable(name, value)
    return stage


SECRETS = re.compile(r"A-100|B-200|8e03978e|first-contact|\bann\b|\bsue\b|You said|customer is right")
"""What the events say, who says it, and their keys: none of it may be in a log."""
