"""State machines run for real: JSONata, a task token kept by DynamoDB itself, and Lambda in fresh processes."""

from __future__ import annotations

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from local.stack import LocalStack

pytestmark = pytest.mark.process


class Machine:
    """The toy's machine and one item that it waits on."""

    def __init__(self, stack: LocalStack) -> None:
        deployment = stack.deployment()
        self.stack = stack
        self.arn = deployment["outputs"]["MachineArn"]
        self.table = deployment["physical"]["Things"]
        self.states = stack.client("stepfunctions")
        self.dynamo = stack.client("dynamodb")
        self.pk = f"run-{uuid.uuid4().hex}"

    @property
    def key(self) -> dict[str, Any]:
        return {"pk": {"S": self.pk}, "sk": {"S": 'it says "hello" \\ ü 😀'}}

    def put(self, status: str) -> None:
        self.dynamo.put_item(TableName=self.table, Item={**self.key, "status": {"S": status}})

    def item(self) -> dict[str, Any]:
        return self.dynamo.get_item(TableName=self.table, Key=self.key, ConsistentRead=True).get("Item", {})

    def given(self, seconds: float = 60) -> str:
        expires_ms = int((time.time() + seconds) * 1000)
        return json.dumps({"pk": self.pk, "sk": self.key["sk"]["S"], "expiresAtMs": expires_ms})

    def start(self, seconds: float = 60) -> str:
        given = self.given(seconds)
        started = self.states.start_execution(stateMachineArn=self.arn, name=self.pk, input=given)
        return str(started["executionArn"])

    def token(self, timeout_s: float = 10) -> str:
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s:
            if "taskToken" in (item := self.item()):
                return str(item["taskToken"]["S"])
            time.sleep(0.05)
        raise TimeoutError("no token was stored")

    def end(self, execution: str, timeout_s: float = 15) -> dict[str, Any]:
        until_s = time.monotonic() + timeout_s
        while (found := self.states.describe_execution(executionArn=execution))["status"] == "RUNNING":
            if time.monotonic() > until_s:
                raise TimeoutError("the execution still runs")
            time.sleep(0.05)
        return dict(found)


@pytest.fixture
def machine(toy: LocalStack) -> Machine:
    return Machine(toy)


def test_a_token_waits_in_the_table_and_an_answer_resumes_through_lambda(machine: Machine) -> None:
    machine.put("open")
    execution = machine.start()
    said = 'yes, "certainly" \\ ü 😀'
    machine.states.send_task_success(taskToken=machine.token(), output=json.dumps({"said": said}))
    began_s = time.monotonic()
    ended = machine.end(execution)
    assert ended["status"] == "SUCCEEDED"
    assert time.monotonic() - began_s < 5
    output = json.loads(ended["output"])
    assert output["resumed"] == said
    assert machine.item()["status"] == {"S": "resumed"}
    assert machine.item()["said"] == {"S": said}
    # The resume ran in a process of its own, and its calls are known as its own.
    calls = [call for call in machine.stack.calls.list() if call["function"] == "ResumeFunction"]
    assert "UpdateItem" in [call["operation"] for call in calls]


def test_a_failed_condition_is_caught_and_reads_what_is_there(machine: Machine) -> None:
    machine.put("closed")
    ended = machine.end(machine.start())
    assert (ended["status"], json.loads(ended["output"])) == ("SUCCEEDED", {"found": "closed"})
    assert "taskToken" not in machine.item()


def test_a_condition_on_nothing_leaves_no_ghost(machine: Machine) -> None:
    ended = machine.end(machine.start())
    assert json.loads(ended["output"]) == {"found": "nothing"}
    assert machine.item() == {}


def test_the_time_out_is_an_expression_of_the_expiry(machine: Machine) -> None:
    machine.put("open")
    began_s = time.monotonic()
    ended = machine.end(machine.start(seconds=2.5))
    assert json.loads(ended["output"]) == {"found": "expired"}
    assert 1.5 < time.monotonic() - began_s < 10


def test_an_expiry_in_the_past_times_out_at_once(machine: Machine) -> None:
    machine.put("open")
    assert json.loads(machine.end(machine.start(seconds=-60))["output"]) == {"found": "expired"}


def test_the_same_name_and_input_is_the_same_execution_while_it_runs(machine: Machine) -> None:
    machine.put("open")
    given = machine.given()
    start = {"stateMachineArn": machine.arn, "name": machine.pk, "input": given}
    first = machine.states.start_execution(**start)["executionArn"]
    assert machine.states.start_execution(**start)["executionArn"] == first
    with pytest.raises(machine.states.exceptions.ExecutionAlreadyExists):
        machine.states.start_execution(**{**start, "input": "{}"})
    machine.states.send_task_success(taskToken=machine.token(), output='{"said": "x"}')
    machine.end(first)
    with pytest.raises(machine.states.exceptions.ExecutionAlreadyExists):
        machine.states.start_execution(**start)


def test_a_used_token_is_timed_out_and_an_unknown_one_is_invalid(machine: Machine) -> None:
    machine.put("open")
    fault = machine.stack.faults.add("hold", operation="UpdateItem", function="ResumeFunction")
    execution = machine.start()
    token = machine.token()
    machine.states.send_task_success(taskToken=token, output='{"said": "x"}')
    fault.wait_until_met()
    with pytest.raises(machine.states.exceptions.TaskTimedOut):  # while its execution goes on
        machine.states.send_task_success(taskToken=token, output="{}")
    fault.release()
    machine.end(execution)
    with pytest.raises(machine.states.exceptions.TaskTimedOut):  # and after that
        machine.states.send_task_success(taskToken=token, output="{}")
    with pytest.raises(machine.states.exceptions.InvalidToken):
        machine.states.send_task_success(taskToken="x" * 100, output="{}")


def test_one_name_starts_one_execution_however_many_ask(machine: Machine) -> None:
    machine.put("open")
    given = machine.given()
    with ThreadPoolExecutor(8) as pool:
        arns = list(
            pool.map(
                lambda _: machine.states.start_execution(stateMachineArn=machine.arn, name=machine.pk, input=given)[
                    "executionArn"
                ],
                range(8),
            )
        )
    assert len(set(arns)) == 1
    listed = machine.states.list_executions(stateMachineArn=machine.arn)["executions"]
    assert [each["name"] for each in listed].count(machine.pk) == 1
    machine.states.stop_execution(executionArn=arns[0])


def test_one_of_many_signals_of_a_token_is_taken(machine: Machine) -> None:
    machine.put("open")
    execution = machine.start()
    token = machine.token()

    def signal(number: int) -> bool:
        try:
            machine.states.send_task_success(taskToken=token, output=json.dumps({"said": str(number)}))
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(signal, range(8)))
    assert sum(taken) == 1
    assert json.loads(machine.end(execution)["output"])["resumed"] == str(taken.index(True))


def test_a_waiting_execution_can_be_stopped(machine: Machine) -> None:
    machine.put("open")
    execution = machine.start()
    machine.token()
    machine.states.stop_execution(executionArn=execution, cause="erased")
    assert machine.end(execution)["status"] == "ABORTED"


def test_many_executions_wait_and_resume_side_by_side(toy: LocalStack) -> None:
    machines = [Machine(toy) for _ in range(8)]
    for machine in machines:
        machine.put("open")
    executions = [machine.start() for machine in machines]
    for number, machine in enumerate(machines):
        machine.states.send_task_success(taskToken=machine.token(), output=json.dumps({"said": str(number)}))
    for number, (machine, execution) in enumerate(zip(machines, executions, strict=True)):
        assert json.loads(machine.end(execution, 30)["output"])["resumed"] == str(number)


def test_a_throttled_invocation_is_retried_as_the_definition_says(machine: Machine) -> None:
    machine.put("open")
    fault = machine.stack.faults.add("throttle", service="lambda", operation="Invoke")
    execution = machine.start()
    machine.states.send_task_success(taskToken=machine.token(), output='{"said": "x"}')
    assert machine.end(execution)["status"] == "SUCCEEDED"
    assert fault.met == 1


def test_a_crash_of_the_resumed_function_has_its_name(machine: Machine) -> None:
    machine.put("open")
    fault = machine.stack.faults.add("slow", operation="UpdateItem", function="ResumeFunction", delay_ms=6000)
    execution = machine.start()
    machine.states.send_task_success(taskToken=machine.token(), output='{"said": "x"}')
    ended = machine.end(execution, 20)
    assert json.loads(ended["output"]) == {"resumed": "timed out"}
    assert fault.met == 1


def test_the_history_tells_what_happened(machine: Machine) -> None:
    machine.put("closed")
    execution = machine.start()
    machine.end(execution)
    events = machine.states.get_execution_history(executionArn=execution)["events"]
    names = [event["stateEnteredEventDetails"]["name"] for event in events if "stateEnteredEventDetails" in event]
    assert names == ["Await", "Look"]
    assert events[-1]["type"] == "ExecutionSucceeded"


def test_executions_can_be_listed(machine: Machine) -> None:
    machine.put("closed")
    execution = machine.start()
    machine.end(execution)
    listed = machine.states.list_executions(stateMachineArn=machine.arn)["executions"]
    assert execution in [each["executionArn"] for each in listed]


class Expressions:
    """Evaluates JSONata in a state of its own."""

    def __init__(self, stack: LocalStack) -> None:
        self.states = stack.client("stepfunctions")

    def run(self, expression: str) -> dict[str, Any]:
        state = {"Type": "Pass", "Output": {"v": "{% " + expression + " %}"}, "End": True}
        definition = {"QueryLanguage": "JSONata", "StartAt": "A", "States": {"A": state}}
        arn = self.states.create_state_machine(
            name=uuid.uuid4().hex, definition=json.dumps(definition), roleArn="arn:aws:iam::123456789012:role/x"
        )["stateMachineArn"]
        given = json.dumps({"n": 1, "list": [{"x": 1}], "text": 'a "quoted" \\ line\n😀'})
        execution = self.states.start_execution(stateMachineArn=arn, input=given)["executionArn"]
        until_s = time.monotonic() + 10
        while (found := self.states.describe_execution(executionArn=execution))["status"] == "RUNNING":
            assert time.monotonic() < until_s
            time.sleep(0.02)
        return dict(found)

    def value(self, expression: str) -> Any:
        return json.loads(self.run(expression)["output"])["v"]


@pytest.fixture
def expressions(toy: LocalStack) -> Expressions:
    return Expressions(toy)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("$states.input.n + 1", 2),
        ("$states.input.text", 'a "quoted" \\ line\n😀'),
        ("$length($states.input.text)", 19),
        ("{'a': $states.input.missing, 'b': 1}", {"b": 1}),
        ("$states.input.list[x=1].x", 1),
        ("null", None),
        ("[]", []),
        ("1/4", 0.25),
        ("$string(5.0)", "5"),
        ("$toMillis('2020-01-01T00:00:00Z')", 1577836800000),
        ("$partition([1,2,3],2)", [[1, 2], [3]]),
        ("$range(1,5,2)", [1, 3, 5]),
        ("$hash('a','SHA-256')", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ("$parse('{\"a\":1}')", {"a": 1}),
        ("$length($uuid())", 36),
        ("$random(7) = $random(7)", True),
        ("$toMillis($states.context.Execution.StartTime) > 1577836800000", True),
    ],
)
def test_expressions_evaluate_as_in_step_functions(expressions: Expressions, expression: str, value: object) -> None:
    assert expressions.value(expression) == value


@pytest.mark.parametrize("expression", ["$states.input.missing", "$number('x')", "$error('no')", "$nothing()"])
def test_an_expression_without_a_value_fails_as_a_query(expressions: Expressions, expression: str) -> None:
    failed = expressions.run(expression)
    assert (failed["status"], failed["error"]) == ("FAILED", "States.QueryEvaluationError")
