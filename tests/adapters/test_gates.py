"""The gates to Step Functions, SQS and EventBridge: what is asked of AWS, and what each of its answers means here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from tests.entry.doors import NOW_MS, asking, completed
from turnkeep.adapters.events import EventBridgeSink, detail
from turnkeep.adapters.queue import SqsDoorbell, doorbell_message, read_doorbell
from turnkeep.adapters.step_functions import (
    MAX_CARD_BYTES,
    StepFunctionsGate,
    ask_card,
    execution_arn,
    execution_input,
    execution_name,
)
from turnkeep.errors import ExecutionClosedError, StoreUnavailableError
from turnkeep.ledger.keys import ConversationKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnkeep.ledger.records import TurnRecord

REGION = "eu-central-1"
MACHINE = "arn:aws:states:eu-central-1:123456789012:stateMachine:PausedRun"
WAIT = '{"StartAt":"W","States":{"W":{"Type":"Wait","Seconds":60,"End":true}}}'


class Says:
    """An AWS client that answers every call with the same error, or the same value, and remembers the calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((operation, arguments))
            answer = self.answer.get(operation) if isinstance(self.answer, dict) else self.answer
            if isinstance(answer, Exception):
                raise answer
            return answer or {}

        return call


def fault(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "SECRET"}}, "Operation")


CUT = EndpointConnectionError(endpoint_url="https://example")


def gate(client: Any, **more: Any) -> StepFunctionsGate:
    return StepFunctionsGate(lambda: client, MACHINE, **more)


# --- Step Functions, run by moto ----------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client = boto3.client("stepfunctions", region_name=REGION)
        made = client.create_state_machine(
            name="PausedRun", definition=WAIT, roleArn="arn:aws:iam::123456789012:role/machine"
        )
        yield client, made["stateMachineArn"]


def test_starting_twice_is_one_execution(machine: tuple[Any, str]) -> None:
    client, arn = machine
    paused = StepFunctionsGate(lambda: client, arn)
    paused.start(asking())
    paused.start(asking())
    (execution,) = client.list_executions(stateMachineArn=arn)["executions"]
    assert execution["name"] == execution_name(asking())
    described = client.describe_execution(executionArn=execution["executionArn"])
    assert json.loads(described["input"]) == ask_card(asking())


def test_a_running_execution_with_another_input_is_the_same_execution(machine: tuple[Any, str]) -> None:
    """An earlier release may have written the card differently; the name says that it waits on this ask."""
    client, arn = machine
    client.start_execution(stateMachineArn=arn, name=execution_name(asking()), input='{"earlier": "release"}')
    StepFunctionsGate(lambda: client, arn).start(asking())
    assert len(client.list_executions(stateMachineArn=arn)["executions"]) == 1


def test_a_closed_execution_blocks_its_name_and_says_so(machine: tuple[Any, str]) -> None:
    client, arn = machine
    paused = StepFunctionsGate(lambda: client, arn)
    paused.start(asking())
    paused.stop(asking(), "withdrawn")
    with pytest.raises(ExecutionClosedError):
        paused.start(asking())
    paused.start(replace(asking(), start_number=2))
    statuses = sorted(execution["status"] for execution in client.list_executions(stateMachineArn=arn)["executions"])
    assert statuses == ["ABORTED", "RUNNING"]


def test_stopping_what_is_not_there_is_quiet(machine: tuple[Any, str]) -> None:
    client, arn = machine
    notes: list[str] = []
    StepFunctionsGate(lambda: client, arn, note=lambda name, facts: notes.append(name)).stop(
        replace(asking(), task_token=None), "withdrawn"
    )
    assert notes == []


# --- Step Functions, as AWS documents its errors ------------------------------------------------------------


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
def test_a_token_that_is_gone_is_no_error(code: str) -> None:
    assert gate(Says(fault(code))).signal("token") is False


def test_a_signal_says_nothing_of_the_decision() -> None:
    client = Says({})
    assert gate(client).signal("token") is True
    assert client.calls == [("send_task_success", {"taskToken": "token", "output": '{"status":"answered"}'})]


@pytest.mark.parametrize("error", [fault("ThrottlingException"), fault("AccessDeniedException"), CUT])
def test_what_could_not_be_done_now_is_done_later(error: Exception) -> None:
    with pytest.raises(StoreUnavailableError) as start:
        gate(Says(error)).start(asking())
    with pytest.raises(StoreUnavailableError) as signal:
        gate(Says(error)).signal("token")
    assert start.value.__cause__ is signal.value.__cause__ is error
    assert "SECRET" not in str(start.value)


def test_whether_a_name_is_closed_has_to_be_known() -> None:
    client = Says({"start_execution": fault("ExecutionAlreadyExists"), "describe_execution": CUT})
    with pytest.raises(StoreUnavailableError):
        gate(client).start(asking())


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
def test_every_end_of_an_execution_closes_its_name(status: str) -> None:
    client = Says({"start_execution": fault("ExecutionAlreadyExists"), "describe_execution": {"status": status}})
    with pytest.raises(ExecutionClosedError):
        gate(client).start(asking())
    assert client.calls[1] == (
        "describe_execution",
        {"executionArn": execution_arn(MACHINE, execution_name(asking()))},
    )


def test_a_stop_that_fails_is_noted_and_raises_nothing() -> None:
    notes: list[tuple[str, dict[str, Any]]] = []
    gate(Says(fault("AccessDenied")), note=lambda name, facts: notes.append((name, facts))).stop(asking(), "x")
    gate(Says({"stop_execution": fault("ExecutionDoesNotExist"), "send_task_success": CUT}),
         note=lambda name, facts: notes.append((name, facts))).stop(asking(), "x")  # fmt: skip
    assert notes == [
        ("stop_failed", {"turn": 3, "cause": "AccessDenied"}),
        ("stop_failed", {"turn": 3, "cause": "EndpointConnectionError"}),
    ]


def test_a_later_ask_of_an_execution_is_stopped_through_its_token() -> None:
    client = Says({"stop_execution": fault("ExecutionDoesNotExist")})
    gate(client).stop(asking(), "withdrawn")
    assert [operation for operation, _ in client.calls] == ["stop_execution", "send_task_success"]


def test_no_client_is_made_before_a_call_is_due() -> None:
    def make() -> Any:
        raise AssertionError("made too early")

    StepFunctionsGate(make, MACHINE)
    SqsDoorbell(make, "https://queue")
    EventBridgeSink(make, "bus")


# --- names and cards ----------------------------------------------------------------------------------------


def named(conversation_id: str = "c1", **changes: Any) -> TurnRecord:
    return replace(asking(), key=ConversationKey(conversation_id, changes.pop("tenant", "acme")), **changes)


def test_a_name_reads_by_itself() -> None:
    assert re.fullmatch(r"c1-t3-[0-9a-f]{40}-1", execution_name(asking()))
    assert re.fullmatch(r"order-42-customer-s-t3-[0-9a-f]{40}-1", execution_name(named("order 42/customer's")))


AWKWARD = ["c1", "x" * 2_000, "x" * 1_999 + "y", "日本語", "a b", "a/b", "a-b", "--", "…", "\x00", "." * 300]


def test_no_two_asks_share_a_name() -> None:
    ask = asking().ask
    assert ask is not None
    records = [named(one) for one in AWKWARD]
    records += [named(tenant=None), named(tenant="other"), named(epoch="e2"), named(turn=4), named(start_number=2)]
    records += [named(ask=replace(ask, ask_id="ask-3-other")), named("acme/_/c1", tenant=None)]
    names = [execution_name(record) for record in records]
    assert len({*names}) == len(names)


@pytest.mark.parametrize("conversation_id", AWKWARD)
@pytest.mark.parametrize("turn", [1, 10**15])
@pytest.mark.parametrize("start", [1, 10_000])
def test_every_name_is_one_that_step_functions_takes(conversation_id: str, turn: int, start: int) -> None:
    name = execution_name(named(conversation_id, turn=turn, start_number=start))
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name)


def test_a_card_shows_a_paused_session_and_nothing_from_inside() -> None:
    assert ask_card(asking("role:supervisor")) == {
        "pk": "acme/_/c1",
        "sk": "TURN#0000000000000003",
        "conversationId": "c1",
        "tenant": "acme",
        "turn": 3,
        "askId": "ask-3-abc",
        "question": "Refund an order — with order=B-200",
        "tool": "refund",
        "audience": "role:supervisor",
        "askedAt": "2027-01-15T07:59:59Z",
        "expiresAt": "2027-01-15T08:10:00Z",
        "expiresAtMs": NOW_MS + 600_000,
        "howToAnswer": 'POST /conversations/c1/answers with {"askId": "ask-3-abc", "decision": …} as somebody with the '
        "role:supervisor",
        "start": 1,
    }
    text = execution_input(asking())
    for secret in ("SECRET", "checkpoint", "TOKEN", '"ann"', "hello"):
        assert secret not in text


def test_a_card_stays_small_whatever_is_asked() -> None:
    pause_data = {"toolName": "t" * 10_000, "question": "é" * 100_000}
    assert len(execution_input(asking(pause_data=pause_data)).encode()) <= MAX_CARD_BYTES
    long = replace(asking(pause_data=pause_data), key=ConversationKey("x" * 1_500, "acme"))
    assert len(execution_input(long).encode()) <= MAX_CARD_BYTES
    assert json.loads(execution_input(long))["conversationId"] == "x" * 1_500


def test_a_turn_that_does_not_ask_has_no_execution() -> None:
    with pytest.raises(ValueError, match="only a turn that asks"):
        execution_name(completed())


# --- the queue ----------------------------------------------------------------------------------------------


def test_a_ring_is_one_message_in_its_conversations_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client = boto3.client("sqs", region_name=REGION)
        url = client.create_queue(QueueName="turns.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        bell = SqsDoorbell(lambda: client, url)
        for again in ("", "", "epoch-2"):
            bell.ring(ConversationKey("c1", "acme"), 4, again=again)
        bell.ring(ConversationKey("c1"), 4)
        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"])["Messages"]
    bodies = [json.loads(message["Body"]) for message in found]
    assert bodies == [{"conversationId": "c1", "turn": 4, "tenant": "acme"}] * 2 + [{"conversationId": "c1", "turn": 4}]
    groups = [message["Attributes"]["MessageGroupId"] for message in found]
    assert groups[0] == groups[1] != groups[2]


@pytest.mark.parametrize("key", [ConversationKey("c1"), ConversationKey("a/b ü", "acme")])
def test_a_message_is_read_back(key: ConversationKey) -> None:
    assert read_doorbell(doorbell_message(key, 7)) == (key, 7)


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{}", '{"conversationId":"","turn":1}', '{"conversationId":"c","turn":true}', "null"]
)
def test_a_message_that_is_none_of_ours(text: str) -> None:
    with pytest.raises(ValueError):
        read_doorbell(text)


def test_a_ring_that_was_not_heard() -> None:
    with pytest.raises(StoreUnavailableError):
        SqsDoorbell(lambda: Says(CUT), "https://queue").ring(ConversationKey("c1"), 1)  # type: ignore[arg-type,return-value]


# --- events -------------------------------------------------------------------------------------------------


def test_an_event_tells_ids_only() -> None:
    client = Says({"put_events": {"FailedEntryCount": 0}})
    EventBridgeSink(lambda: client, "bus").tell("ask.opened", asking("role:supervisor"))  # type: ignore[arg-type,return-value]
    ((_, arguments),) = client.calls
    (entry,) = arguments["Entries"]
    assert (entry["Source"], entry["DetailType"], entry["EventBusName"]) == ("turnkeep", "ask.opened", "bus")
    assert json.loads(entry["Detail"]) == {
        "conversationId": "c1",
        "tenant": "acme",
        "turn": 3,
        "status": "awaiting",
        "askId": "ask-3-abc",
        "audience": "role:supervisor",
        "expiresAt": NOW_MS + 600_000,
    }
    assert "ann" not in detail(completed())


@pytest.mark.parametrize("answer", [fault("ThrottlingException"), CUT, {"put_events": {"FailedEntryCount": 1}}])
def test_an_event_that_nobody_took_disturbs_no_turn(answer: Any) -> None:
    notes: list[str] = []
    sink = EventBridgeSink(lambda: Says(answer), "bus", note=lambda name, facts: notes.append(name))  # type: ignore[arg-type,return-value]
    sink.tell("turn.ended", completed())
    assert notes == ["event_failed"]
