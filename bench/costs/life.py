"""What else turns and questions ask of AWS, counted on the local stack: transitions, invocations, events, log bytes."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from local.demo import Api
from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S: Final = 30.0


@dataclass(frozen=True)
class Life:
    """What one thing asked of the services beside DynamoDB.

    Attributes:
        requests: of the API.
        invocations: of functions, those that the API makes included.
        transitions: of the state machine.
        events: put on the bus.
        queue: calls of the functions to the queue.
        log_bytes: what the functions wrote, metrics included.
    """

    requests: int
    invocations: int
    transitions: int
    events: int
    queue: int
    log_bytes: int


def lives() -> dict[str, Life]:
    """A turn, a question with its answer, and a queued turn."""
    with tempfile.TemporaryDirectory() as folder, LocalStack(state_dir=Path(folder)) as stack:
        ann = Api(stack.api_url, stack.aws_url, stack.token("ann"))
        boss = Api(stack.api_url, stack.aws_url, stack.token("sam", roles=["supervisor"]))
        found = {}
        with _Counting(stack) as turn:
            ann.call("POST", "/conversations/turn/turns", {"message": "Where is order A-100?"})
        found["turn"] = turn.life(requests=1)
        with _Counting(stack) as question:
            asked = ann.call("POST", "/conversations/question/turns", {"message": "Refund order B-200, please"})
            _until(lambda: _awaits(stack))
            answer = {"askId": asked.body["awaiting"]["askId"], "decision": {"approved": True, "by": "sam"}}
            boss.call("POST", "/conversations/question/answers", answer)
            _until(lambda: not _running(stack))
        found["question"] = question.life(requests=2)
        with _Counting(stack) as queued:
            ann.call(
                "POST", "/conversations/queued/turns", {"message": "Where is order A-100?"}, prefer="respond-async"
            )
            _until(lambda: any('"message":"worker"' in line for line in stack.logs("WorkerFunction")))
        found["queued turn"] = queued.life(requests=1)
    return found


class _Counting:
    """What a stack saw while a block ran."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack

    def __enter__(self) -> _Counting:
        self._stack.calls.reset()
        self._logged = len(self._stack.logs())
        self._transitions = _transitions(self._stack)
        return self

    def __exit__(self, *error: object) -> None:
        calls = self._stack.calls
        self._counts = Counter(calls.counts())
        functions = {call["request_id"] for call in calls.list() if call["request_id"]}
        self._invocations = len(functions)
        self._lines = self._stack.logs()[self._logged :]
        self._transitions = _transitions(self._stack) - self._transitions

    def life(self, *, requests: int) -> Life:
        """What was counted."""
        return Life(
            requests=requests,
            invocations=self._invocations,
            transitions=self._transitions,
            events=self._counts["events:PutEvents"],
            queue=self._counts["sqs:SendMessage"],
            log_bytes=sum(len(line.encode()) for line in self._lines),
        )


def _executions(stack: LocalStack) -> list[dict[str, Any]]:
    steps, machine = stack.client("stepfunctions"), stack.deployment()["outputs"]["PausedRunArn"]
    found: list[dict[str, Any]] = steps.list_executions(stateMachineArn=machine)["executions"]
    return found


def _running(stack: LocalStack) -> list[dict[str, Any]]:
    return [one for one in _executions(stack) if one["status"] == "RUNNING"]


def _transitions(stack: LocalStack) -> int:
    """States entered, of all executions; AWS bills each."""
    steps, entered = stack.client("stepfunctions"), 0
    for one in _executions(stack):
        events = steps.get_execution_history(executionArn=one["executionArn"])["events"]
        entered += sum(1 for event in events if event["type"].endswith("StateEntered"))
    return entered


def _awaits(stack: LocalStack) -> bool:
    """Whether the machine has left its token."""
    table = stack.deployment()["outputs"]["TableName"]
    items = stack.client("dynamodb").scan(TableName=table)["Items"]
    return any("taskToken" in item for item in items)


def _until(look: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > until:
            raise TimeoutError("the stack did not come so far")
        time.sleep(0.05)
