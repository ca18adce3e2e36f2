"""Schedules, event rules and the queue reach their functions."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from local.stack import LocalStack

pytestmark = pytest.mark.process


def wait_until(what: Any, timeout_s: float = 15.0) -> Any:
    until_s = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() > until_s:
            raise TimeoutError("it did not happen")
        time.sleep(0.05)
    return found


def item(stack: LocalStack, pk: str, sk: str) -> dict[str, Any]:
    table = stack.deployment()["physical"]["Things"]
    key = {"pk": {"S": pk}, "sk": {"S": sk}}
    found = stack.client("dynamodb").get_item(TableName=table, Key=key, ConsistentRead=True)
    return dict(found.get("Item", {}))


def seen(stack: LocalStack, kind: str) -> int:
    return int(item(stack, "ticks", kind).get("seen", {"N": "0"})["N"])


def test_a_schedule_fires_when_a_test_wants_it(toy: LocalStack) -> None:
    before = seen(toy, "Scheduled Event")
    assert toy.fire("TickFunctionEveryMinute")
    wait_until(lambda: seen(toy, "Scheduled Event") == before + 1)
    latest = json.loads(item(toy, "ticks", "Scheduled Event")["latest"]["S"])
    assert (latest["source"], latest["detail"]) == ("aws.events", {})
    assert latest["resources"][0].endswith(toy.deployment()["physical"]["TickFunctionEveryMinute"])
    assert toy.fire("TickFunction")
    assert not toy.fire("nothing of that name")


def test_an_event_reaches_the_rules_that_match_it(toy: LocalStack) -> None:
    mine = f"kind-{uuid.uuid4().hex}"
    events = toy.client("events")
    events.put_events(Entries=[{"Source": "toy", "DetailType": mine, "Detail": json.dumps({"a": 1})}])
    events.put_events(Entries=[{"Source": "other", "DetailType": f"{mine}-other", "Detail": "{}"}])
    wait_until(lambda: seen(toy, mine))
    latest = json.loads(item(toy, "ticks", mine)["latest"]["S"])
    assert (latest["source"], latest["detail-type"], latest["detail"]) == ("toy", mine, {"a": 1})
    time.sleep(0.3)
    assert seen(toy, f"{mine}-other") == 0


def test_an_execution_that_is_aborted_is_an_event_and_one_that_succeeds_is_none(toy: LocalStack) -> None:
    kind = "Step Functions Execution Status Change"
    before = seen(toy, kind)
    deployment = toy.deployment()
    states, table = toy.client("stepfunctions"), deployment["physical"]["Things"]
    names = [uuid.uuid4().hex for _ in range(2)]
    for name, status in zip(names, ("closed", "open"), strict=True):
        key = {"pk": {"S": name}, "sk": {"S": "x"}, "status": {"S": status}}
        toy.client("dynamodb").put_item(TableName=table, Item=key)
        given = {"pk": name, "sk": "x", "expiresAtMs": int(time.time() * 1000) + 60_000}
        arn = deployment["outputs"]["MachineArn"]
        execution = states.start_execution(stateMachineArn=arn, name=name, input=json.dumps(given))["executionArn"]
    wait_until(lambda: "taskToken" in item(toy, names[1], "x"))
    states.stop_execution(executionArn=execution)
    wait_until(lambda: seen(toy, kind) > before)
    detail = json.loads(item(toy, "ticks", kind)["latest"]["S"])["detail"]
    assert (detail["executionArn"], detail["status"], detail["name"]) == (execution, "ABORTED", names[1])
    assert json.loads(detail["input"])["pk"] == names[1]
    time.sleep(0.3)
    assert seen(toy, kind) == before + 1


class Jobs:
    """The toy's queue and what its worker wrote down."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.sqs = stack.client("sqs")
        physical = stack.deployment()["physical"]
        self.url, self.dead_url = physical["Jobs"], physical["DeadJobs"]
        self.run = uuid.uuid4().hex

    def send(self, name: str, group: str, **facts: Any) -> None:
        body = json.dumps({"run": self.run, "name": name, **facts})
        ids = {"MessageGroupId": f"{group}-{self.run}", "MessageDeduplicationId": uuid.uuid4().hex}
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body, **ids)

    def done(self, group: str) -> list[str]:
        found = item(self.stack, f"jobs-{self.run}", f"{group}-{self.run}").get("jobs", {"L": []})
        return [job["S"] for job in found["L"]]

    def dead(self) -> list[str]:
        received = self.sqs.receive_message(QueueUrl=self.dead_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        bodies = [json.loads(message["Body"]) for message in received.get("Messages", [])]
        return [body["name"] for body in bodies if body["run"] == self.run]


@pytest.fixture
def jobs(toy: LocalStack) -> Jobs:
    return Jobs(toy)


def test_a_groups_messages_are_handled_in_their_order_and_groups_side_by_side(jobs: Jobs) -> None:
    for number in range(4):
        for group in ("one", "two"):
            jobs.send(f"{group}{number}", group)
    jobs.send("slow", "three", seconds=2)
    wait_until(lambda: len(jobs.done("one")) == 4 and len(jobs.done("two")) == 4)
    assert jobs.done("one") == ["one0", "one1", "one2", "one3"]
    assert jobs.done("two") == ["two0", "two1", "two2", "two3"]


def test_a_reported_failure_comes_back_and_ends_in_the_dead_letters(jobs: Jobs) -> None:
    jobs.send("bad", "one", report=True)
    jobs.send("good", "one")
    assert wait_until(jobs.dead, 20) == ["bad"]
    wait_until(lambda: "good" in jobs.done("one"))
    assert jobs.done("one") == ["bad", "bad", "good"]  # received twice, as the redrive policy says


def test_a_raising_worker_gets_its_message_again(jobs: Jobs) -> None:
    jobs.send("raising", "one", **{"raise": True})
    assert wait_until(jobs.dead, 20) == ["raising"]
    assert jobs.done("one") == ["raising", "raising"]
