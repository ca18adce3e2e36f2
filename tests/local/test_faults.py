"""Each kind of fault does what it says, to the calls that it is about and to no others."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, HTTPClientError

from local.faults import Fault, FaultBook, split_batch

if TYPE_CHECKING:
    from local.stack import LocalStack

GONE = (ConnectionClosedError, EndpointConnectionError, HTTPClientError)


class Table:
    """The toy's table through a client that never tries again, and one that nothing troubles."""

    def __init__(self, stack: LocalStack) -> None:
        self.client = stack.client("dynamodb", retries={"total_max_attempts": 1})
        self.name = stack.deployment()["physical"]["Things"]
        self.pk = uuid.uuid4().hex

    def put(self, sk: str = "a", **attributes: Any) -> Any:
        item = {"pk": {"S": self.pk}, "sk": {"S": sk}, **attributes}
        return self.client.put_item(TableName=self.name, Item=item)

    def put_once(self, sk: str = "a") -> Any:
        item = {"pk": {"S": self.pk}, "sk": {"S": sk}}
        condition = "attribute_not_exists(pk)"
        return self.client.put_item(TableName=self.name, Item=item, ConditionExpression=condition)

    def has(self, sk: str = "a") -> bool:
        return "Item" in self.client.get_item(TableName=self.name, Key=self.key(sk), ConsistentRead=True)

    def key(self, sk: str = "a") -> dict[str, Any]:
        return {"pk": {"S": self.pk}, "sk": {"S": sk}}

    def transact(self, *sks: str, token: str | None = None) -> Any:
        items = [{"Put": {"TableName": self.name, "Item": self.key(sk)}} for sk in sks]
        more = {"ClientRequestToken": token} if token else {}
        return self.client.transact_write_items(TransactItems=items, **more)


@pytest.fixture
def table(toy: LocalStack) -> Table:
    return Table(toy)


def code_of(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


pytestmark = pytest.mark.process


def test_slow_waits_before_it_applies(toy: LocalStack, table: Table) -> None:
    toy.faults.add("slow", service="dynamodb", operation="PutItem", delay_ms=800)
    thread = threading.Thread(target=table.put)
    began_s = time.monotonic()
    thread.start()
    time.sleep(0.3)
    assert not table.has()
    thread.join()
    assert time.monotonic() - began_s >= 0.8
    assert table.has()


def test_slow_answer_applies_before_it_waits(toy: LocalStack, table: Table) -> None:
    toy.faults.add("slow_answer", service="dynamodb", operation="PutItem", delay_ms=1200)
    thread = threading.Thread(target=table.put)
    thread.start()
    time.sleep(0.5)
    assert table.has()
    assert thread.is_alive()
    thread.join()


def test_hold_keeps_a_call_until_it_is_released(toy: LocalStack, table: Table) -> None:
    fault = toy.faults.add("hold", service="dynamodb", operation="PutItem")
    thread = threading.Thread(target=table.put)
    thread.start()
    fault.wait_until_met()
    time.sleep(0.2)
    assert thread.is_alive()
    assert not table.has()
    fault.release()
    thread.join(5)
    assert table.has()


def test_hold_answer_keeps_what_was_applied(toy: LocalStack, table: Table) -> None:
    with toy.faults.during("hold_answer", service="dynamodb", operation="PutItem") as fault:
        thread = threading.Thread(target=table.put)
        thread.start()
        fault.wait_until_met()
        time.sleep(0.2)
        assert table.has()
        assert thread.is_alive()
    thread.join(5)  # a fault that is taken back lets go
    assert not thread.is_alive()


def test_hold_cut_keeps_a_call_that_never_arrives(toy: LocalStack, table: Table) -> None:
    fault = toy.faults.add("hold_cut", service="dynamodb", operation="PutItem")
    caught: list[Exception] = []

    def put() -> None:
        try:
            table.put()
        except GONE as error:
            caught.append(error)

    thread = threading.Thread(target=put)
    thread.start()
    fault.wait_until_met()
    assert thread.is_alive()
    fault.remove()
    thread.join(5)
    assert caught
    assert not table.has()


def test_cut_drops_the_connection_and_applies_nothing(toy: LocalStack, table: Table) -> None:
    toy.faults.add("cut", service="dynamodb", operation="PutItem")
    with pytest.raises(GONE):
        table.put()
    assert not table.has()


def test_lost_applies_and_drops_the_connection(toy: LocalStack, table: Table) -> None:
    toy.faults.add("lost", service="dynamodb", operation="PutItem")
    with pytest.raises(GONE):
        table.put()
    assert table.has()


def test_a_lost_conditional_put_collides_with_itself_when_it_is_tried_again(toy: LocalStack, table: Table) -> None:
    """What a caller must recognise as its own success: the reason for this fault."""
    table.client = toy.client("dynamodb", retries={"total_max_attempts": 3, "mode": "standard"})
    toy.faults.add("lost", service="dynamodb", operation="PutItem", contains=[table.pk])
    with pytest.raises(ClientError) as error:
        table.put_once()
    assert code_of(error) == "ConditionalCheckFailedException"


@pytest.mark.parametrize(
    ("service", "code"),
    [
        ("dynamodb", "ProvisionedThroughputExceededException"),
        ("states", "ThrottlingException"),
        ("lambda", "TooManyRequestsException"),
    ],
)
def test_throttle_refuses_in_the_services_own_words(toy: LocalStack, table: Table, service: str, code: str) -> None:
    toy.faults.add("throttle", service=service)
    once = {"retries": {"total_max_attempts": 1}}
    with pytest.raises(ClientError) as error:
        if service == "dynamodb":
            table.put()
        elif service == "states":
            toy.client("stepfunctions", **once).list_state_machines()
        else:
            toy.client("lambda", **once).invoke(FunctionName="EchoFunction", Payload=b'{"do": "plain"}')
    assert code_of(error) == code


def test_error_refuses_as_told(toy: LocalStack, table: Table) -> None:
    toy.faults.add("error", operation="PutItem", status=400, code="TransactionConflictException", message="busy")
    with pytest.raises(table.client.exceptions.TransactionConflictException) as conflict:
        table.put()
    assert conflict.value.response["Error"]["Message"] == "busy"
    toy.faults.add("error", operation="PutItem")
    with pytest.raises(table.client.exceptions.InternalServerError):
        table.put()


def test_cancelled_gives_its_reasons_in_order(toy: LocalStack, table: Table) -> None:
    item = {"pk": {"S": "x"}}
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", "Item": item},
    ]
    toy.faults.add("cancelled", operation="TransactWriteItems", reasons=reasons)
    with pytest.raises(table.client.exceptions.TransactionCanceledException) as cancelled:
        table.transact("a", "b")
    assert cancelled.value.response["CancellationReasons"] == reasons
    assert "[None, ConditionalCheckFailed]" in str(cancelled.value)
    assert not table.has("a")


def test_in_progress_is_the_transactions_own_error(toy: LocalStack, table: Table) -> None:
    toy.faults.add("in_progress", operation="TransactWriteItems")
    with pytest.raises(table.client.exceptions.TransactionInProgressException):
        table.transact("a")


@pytest.mark.parametrize(("leave", "left"), [(1, ["c"]), (2, ["b", "c"]), (3, ["a", "b", "c"])])
def test_partial_leaves_the_last_writes_of_a_batch(toy: LocalStack, table: Table, leave: int, left: list[str]) -> None:
    toy.faults.add("partial", operation="BatchWriteItem", leave=leave)
    requests = [{"PutRequest": {"Item": table.key(sk)}} for sk in "abc"]
    answer = table.client.batch_write_item(RequestItems={table.name: requests})
    unprocessed = [each["PutRequest"]["Item"]["sk"]["S"] for each in answer["UnprocessedItems"][table.name]]
    assert unprocessed == left
    assert [sk for sk in "abc" if not table.has(sk)] == left


def test_partial_leaves_the_last_keys_of_a_read(toy: LocalStack, table: Table) -> None:
    for sk in "abc":
        table.put(sk)
    toy.faults.add("partial", operation="BatchGetItem", leave=1)
    asked = {table.name: {"Keys": [table.key(sk) for sk in "abc"], "ConsistentRead": True}}
    answer = table.client.batch_get_item(RequestItems=asked)
    assert sorted(item["sk"]["S"] for item in answer["Responses"][table.name]) == ["a", "b"]
    rest = answer["UnprocessedKeys"][table.name]
    assert (rest["Keys"], rest["ConsistentRead"]) == ([table.key("c")], True)


def test_a_fault_meets_only_the_calls_that_it_names(toy: LocalStack, table: Table) -> None:
    toy.faults.add("cut", service="dynamodb", operation="PutItem", contains=[table.pk, "alpha"], times=None)
    table.put("beta")
    table.has("alpha")
    with pytest.raises(GONE):
        table.put("alpha")
    with pytest.raises(GONE):
        table.put("alpha")


def test_a_fault_may_let_calls_pass_first_and_ends_after_its_times(toy: LocalStack, table: Table) -> None:
    fault = toy.faults.add("throttle", operation="PutItem", contains=[table.pk], skip=1, times=2)
    outcomes = []
    for _ in range(5):
        try:
            table.put()
            outcomes.append("passed")
        except ClientError:
            outcomes.append("refused")
    assert outcomes == ["passed", "refused", "refused", "passed", "passed"]
    assert fault.met == 2


def test_a_fault_may_be_about_one_functions_calls(toy: LocalStack, table: Table) -> None:
    toy.faults.add("cut", operation="PutItem", function="EchoFunction", times=None)
    table.put()
    failed = toy.invoke("EchoFunction", {"do": "put", "pk": table.pk})
    assert failed.error == "Unhandled"
    toy.faults.clear()
    toy.faults.add("cut", operation="PutItem", function="-", times=None)
    assert toy.invoke("EchoFunction", {"do": "put", "pk": table.pk}).error is None
    with pytest.raises(GONE):
        table.put()


def test_a_fault_that_says_nonsense_is_refused(toy: LocalStack) -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        toy.faults.add("explode")
    with pytest.raises(ValueError, match="no wibble"):
        toy.faults.add("cut", wibble=1)


def test_a_regular_expression_finds_its_calls() -> None:
    book = FaultBook()
    book.add(Fault("cut", matches=r'"TURN#0*7"', times=None))
    assert book.meet("dynamodb", "PutItem", b'{"sk":{"S":"TURN#0007"}}', ()) is not None
    assert book.meet("dynamodb", "PutItem", b'{"sk":{"S":"TURN#0070"}}', ()) is None


def test_faults_are_met_in_the_order_in_which_they_were_set() -> None:
    book = FaultBook()
    book.add(Fault("cut"))
    book.add(Fault("throttle"))
    kinds = [fault.kind if (fault := book.meet("s", "o", b"", ())) else None for _ in range(3)]
    assert kinds == ["cut", "throttle", None]


def test_a_batch_is_split_across_its_tables() -> None:
    body = json.dumps({"RequestItems": {"one": [1, 2], "two": [3]}}).encode()
    rest, taken = split_batch("BatchWriteItem", body, leave=2)
    assert json.loads(rest) == {"RequestItems": {"one": [1]}}
    assert taken == {"one": [2], "two": [3]}


def test_calls_are_counted_by_operation_and_by_invocation(toy: LocalStack, table: Table) -> None:
    toy.calls.reset()
    invoked = toy.invoke("EchoFunction", {"do": "put", "pk": table.pk})
    table.put()
    assert toy.calls.counts() == {"dynamodb:PutItem": 2, "dynamodb:GetItem": 1, "lambda:Invoke": 1}
    calls = toy.calls.list(request_id=invoked.request_id)
    assert [(call["operation"], call["function"], call["status"]) for call in calls] == [
        ("PutItem", "EchoFunction", 200),
        ("GetItem", "EchoFunction", 200),
    ]


def test_a_refused_call_is_counted_with_its_error(toy: LocalStack, table: Table) -> None:
    table.put_once()
    toy.calls.reset()
    with pytest.raises(ClientError):
        table.put_once()
    toy.faults.add("lost", operation="PutItem")
    with pytest.raises(GONE):
        table.put()
    refused, lost = toy.calls.list()
    assert (refused["status"], refused["error"]) == (400, "ConditionalCheckFailedException")
    assert (lost["status"], lost["fault"]) == (0, "lost")


def test_a_client_request_token_applies_once(toy: LocalStack, table: Table) -> None:
    counter = {"pk": {"S": table.pk}, "sk": {"S": "n"}}
    update = {
        "Update": {
            "TableName": table.name,
            "Key": counter,
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": {"N": "1"}},
        }
    }
    for _ in range(2):
        table.client.transact_write_items(TransactItems=[update], ClientRequestToken="token-1" + table.pk[:8])
    item = table.client.get_item(TableName=table.name, Key=counter, ConsistentRead=True)["Item"]
    assert item["n"] == {"N": "1"}
    with pytest.raises(table.client.exceptions.IdempotentParameterMismatchException):
        table.transact("other", token="token-1" + table.pk[:8])


def test_a_large_attribute_can_be_replaced(table: Table) -> None:
    table.put(blob={"S": "x" * 300_000})
    table.client.update_item(
        TableName=table.name,
        Key=table.key(),
        UpdateExpression="SET #blob = :blob",
        ExpressionAttributeNames={"#blob": "blob"},
        ExpressionAttributeValues={":blob": {"S": "y" * 300_000}},
    )


def test_one_of_many_conditional_writes_wins(toy: LocalStack, table: Table) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def attempt(number: int) -> bool:
        try:
            table.put_once("contended")
        except ClientError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(48))) == 1


def test_a_cancelled_transaction_takes_nobody_elses_write_back(toy: LocalStack, table: Table) -> None:
    """moto rolls back by putting a copy of the table in place: without serialising, other writes go with it."""
    table.put("blocker")
    stop = threading.Event()

    def cancel_over_and_over() -> None:
        check = {
            "TableName": table.name,
            "Key": table.key("blocker"),
            "ConditionExpression": "attribute_not_exists(pk)",
        }
        while not stop.is_set():
            with pytest.raises(ClientError):
                table.client.transact_write_items(
                    TransactItems=[
                        {"Put": {"TableName": table.name, "Item": table.key("never")}},
                        {"ConditionCheck": check},
                    ]
                )

    thread = threading.Thread(target=cancel_over_and_over)
    thread.start()
    for number in range(150):
        table.put(f"w{number}")
    stop.set()
    thread.join()
    assert [number for number in range(150) if not table.has(f"w{number}")] == []
    assert not table.has("never")


def test_any_region_and_any_credentials_see_the_same_resources(toy: LocalStack, table: Table) -> None:
    import boto3

    table.put()
    session = boto3.session.Session(
        aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key="else", region_name="eu-central-1"
    )
    client = session.client("dynamodb", endpoint_url=toy.aws_url)
    assert "Item" in client.get_item(TableName=table.name, Key=table.key())
