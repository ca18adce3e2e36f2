"""An invocation is a fresh process in the function's own environment, with a deadline and a report of its end."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from local.stack import LocalStack

pytestmark = pytest.mark.process
TOY = Path(__file__).parent / "toy"


def is_gone(pid: int, within_s: float = 5.0) -> bool:
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_every_invocation_is_a_process_of_its_own(toy: LocalStack) -> None:
    first, second = (toy.invoke("EchoFunction", {"do": "facts"}).value for _ in range(2))
    assert first["pid"] != second["pid"]
    # The function's module is imported in the very process that serves: nothing of it is warmed or shared.
    assert first["made_in"] == first["pid"]
    assert first["threads"] == 1


def test_a_function_sees_its_own_environment_and_nobody_elses(toy: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMEBODY", "else")
    facts = toy.invoke("EchoFunction", {"do": "facts"}).value
    environment = facts["environment"]
    deployment = toy.deployment()
    assert environment["TABLE"] == deployment["physical"]["Things"]
    assert environment["MACHINE"] == deployment["outputs"]["MachineArn"]
    assert environment["GREETING"] == "good day"
    assert environment["AWS_ENDPOINT_URL"] == toy.aws_url
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == deployment["functions"]["EchoFunction"]["name"]
    assert not {"SOMEBODY", "HOME", "PYTHONPATH", "VIRTUAL_ENV"} & set(environment)


def test_a_function_imports_from_its_folder_then_its_layers_and_not_from_the_checkout(toy: LocalStack) -> None:
    facts = toy.invoke("EchoFunction", {"do": "facts"}).value
    folders = [str(TOY / part) for part in ("functions/echo", "layers/shared", "layers/agent")]
    assert facts["path"][:3] == folders
    assert str(TOY.parents[2]) not in facts["path"]
    assert facts["cwd"] == folders[0]
    assert facts["names"] == ["shared", "agent"]
    assert facts["modules"] == []


def test_the_context_is_lambdas(toy: LocalStack) -> None:
    invoked = toy.invoke("EchoFunction", {"do": "facts"})
    context = invoked.value["context"]
    name = toy.deployment()["functions"]["EchoFunction"]["name"]
    assert context["aws_request_id"] == invoked.request_id
    assert context["function_name"] == name
    assert context["memory_limit_in_mb"] == "512"
    assert context["invoked_function_arn"] == f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
    assert 1500 < context["remaining_ms"] <= 2000


def test_an_exception_is_reported_with_its_type_and_frames(toy: LocalStack) -> None:
    invoked = toy.invoke("EchoFunction", {"do": "raise"})
    assert invoked.error == "Unhandled"
    assert invoked.value["errorType"] == "ValueError"
    assert invoked.value["errorMessage"] == "as wished"
    assert invoked.value["requestId"] == invoked.request_id
    assert 'raise ValueError("as wished")' in invoked.value["stackTrace"][-1]
    assert not any("invocation.py" in frame for frame in invoked.value["stackTrace"])


def test_a_function_out_of_time_is_killed_with_its_children(toy: LocalStack) -> None:
    began_s = time.monotonic()
    invoked = toy.invoke("EchoFunction", {"do": "child", "seconds": 30})
    assert 1.8 < time.monotonic() - began_s < 6
    assert invoked.error == "Unhandled"
    assert invoked.value["errorType"] == "Sandbox.Timedout"
    assert invoked.value["errorMessage"].endswith("Task timed out after 2.00 seconds")
    assert invoked.request_id in invoked.value["errorMessage"]
    (line,) = [line for line in toy.logs(request_id=invoked.request_id) if line.startswith("child ")]
    assert is_gone(int(line.split()[1]))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"do": "exit", "code": 3}, "Runtime exited with error: exit status 3"),
        ({"do": "sys_exit", "code": 4}, "Runtime exited with error: exit status 4"),
        ({"do": "exit", "code": 0}, "Runtime exited without providing a reason"),
        ({"do": "die", "signal": "SIGKILL"}, "Runtime exited with error: signal: killed"),
        ({"do": "die", "signal": "SIGSEGV"}, "Runtime exited with error: signal: SIGSEGV"),
    ],
)
def test_a_crash_is_a_runtime_exit(toy: LocalStack, event: dict[str, object], reason: str) -> None:
    invoked = toy.invoke("EchoFunction", event)
    assert invoked.error == "Unhandled"
    # Noticed, and not waited for: a time-out would say so.
    assert invoked.value == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {invoked.request_id} Error: {reason}",
    }


def test_a_result_that_is_no_json_is_a_marshal_error(toy: LocalStack) -> None:
    invoked = toy.invoke("EchoFunction", {"do": "set"})
    assert invoked.error == "Unhandled"
    assert invoked.value["errorType"] == "Runtime.MarshalError"
    assert "set is not JSON serializable" in invoked.value["errorMessage"]


def test_large_events_and_results_pass_up_to_lambdas_limit(toy: LocalStack) -> None:
    assert toy.invoke("EchoFunction", {"do": "size", "filler": "ü" * 2_500_000}).value == {"bytes": 2_500_000}
    assert len(toy.invoke("EchoFunction", {"do": "large", "bytes": 5_900_000}).value) == 5_900_000
    too_large = toy.invoke("EchoFunction", {"do": "large", "bytes": 6_300_000})
    assert too_large.value["errorType"] == "Function.ResponseSizeTooLarge"


def test_threads_that_a_handler_leaves_behind_end_with_its_answer(toy: LocalStack) -> None:
    invoked = toy.invoke("EchoFunction", {"do": "thread"})
    assert invoked.error is None
    assert is_gone(invoked.value["pid"])


def test_many_run_at_once(toy: LocalStack) -> None:
    began_s = time.monotonic()
    with ThreadPoolExecutor(12) as pool:
        invoked = list(pool.map(lambda _: toy.invoke("EchoFunction", {"do": "sleep", "seconds": 1}), range(12)))
    assert [each.error for each in invoked] == [None] * 12
    assert len({each.value["pid"] for each in invoked}) == 12
    assert time.monotonic() - began_s < 12  # one after the other would take longer


def test_a_running_invocation_can_be_killed(toy: LocalStack) -> None:
    ended = []
    thread = threading.Thread(target=lambda: ended.append(toy.invoke("WorkerFunction", _job(seconds=9))))
    thread.start()
    (running,) = toy.lambdas.wait_for("WorkerFunction")
    assert toy.lambdas.signal(running["request_id"], "KILL")
    thread.join(5)
    assert ended[0].value["errorMessage"].endswith("signal: killed")
    assert not toy.lambdas.signal(running["request_id"], "KILL")


def test_a_running_invocation_can_be_stopped_and_woken(toy: LocalStack) -> None:
    ended = []
    thread = threading.Thread(target=lambda: ended.append(toy.invoke("WorkerFunction", _job(seconds=1))))
    thread.start()
    (running,) = toy.lambdas.wait_for("WorkerFunction")
    assert toy.lambdas.signal(running["request_id"], "STOP")
    time.sleep(2.0)
    assert not ended
    os.kill(running["pid"], signal.SIGCONT)
    thread.join(8)
    assert ended[0].error is None


def test_a_stopped_invocation_still_ends_at_its_deadline(toy: LocalStack) -> None:
    ended = []
    thread = threading.Thread(target=lambda: ended.append(toy.invoke("EchoFunction", {"do": "sleep", "seconds": 1.5})))
    thread.start()
    (running,) = toy.lambdas.wait_for("EchoFunction")
    toy.lambdas.signal(running["request_id"], "STOP")
    thread.join(8)
    assert ended[0].value["errorType"] == "Sandbox.Timedout"
    assert is_gone(running["pid"])


def test_a_crash_point_is_set_for_as_many_invocations_as_wanted(toy: LocalStack) -> None:
    toy.set_environment({"CRASH_POINT": "here"}, function="EchoFunction", times=1)
    first, second = (toy.invoke("EchoFunction", {"do": "crash_point"}) for _ in range(2))
    assert first.value["errorMessage"].endswith("exit status 70")
    assert second.value == {"survived": True}


def test_output_is_kept_by_function_and_invocation(toy: LocalStack) -> None:
    invoked = toy.invoke("EchoFunction", {"do": "answer", "answer": 1})
    assert "wish answer" in toy.logs(request_id=invoked.request_id)
    assert "wish answer" in toy.logs(function="EchoFunction")
    assert "wish answer" not in toy.logs(function="WorkerFunction")


def test_the_log_tail_comes_with_the_answer_where_it_is_asked_for(toy: LocalStack) -> None:
    import base64

    answer = toy.client("lambda").invoke(FunctionName="EchoFunction", LogType="Tail", Payload=b'{"do": "plain"}')
    assert b"wish plain" in base64.b64decode(answer["LogResult"])


def test_a_function_that_is_not_there_is_not_found(toy: LocalStack) -> None:
    client = toy.client("lambda")
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.invoke(FunctionName="Nobody")


def test_a_function_is_found_by_every_name_it_has(toy: LocalStack) -> None:
    name = toy.deployment()["functions"]["EchoFunction"]["name"]
    arn = f"arn:aws:lambda:us-east-1:123456789012:function:{name}"
    for spelled in (name, arn, f"{arn}:$LATEST", f"123456789012:function:{name}", "EchoFunction"):
        assert toy.invoke(spelled, {"do": "plain"}).value == {"plain": True}


def test_more_than_the_reserved_concurrency_is_throttled(toy: LocalStack) -> None:
    ended = []
    wish = {"do": "sleep", "seconds": 1.5}
    thread = threading.Thread(target=lambda: ended.append(toy.invoke("SingleFunction", wish)))
    thread.start()
    toy.lambdas.wait_for("SingleFunction")
    client = toy.client("lambda", retries={"total_max_attempts": 1})
    with pytest.raises(client.exceptions.TooManyRequestsException):
        client.invoke(FunctionName="SingleFunction", Payload=b'{"do": "plain"}')
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{toy.api_url}/single", timeout=10)
    assert refused.value.code == 503
    thread.join(8)
    assert ended[0].error is None
    assert toy.invoke("SingleFunction", {"do": "plain"}).value == {"plain": True}


def test_an_asynchronous_invocation_is_retried_then_handed_to_its_dead_letters(toy: LocalStack) -> None:
    client = toy.client("lambda")
    accepted = client.invoke(
        FunctionName="TickFunction", InvocationType="Event", Payload=b'{"detail-type": "doomed", "detail": {"fail": 1}}'
    )
    assert accepted["StatusCode"] == 202
    queue = toy.deployment()["physical"]["Failed"]
    sqs = toy.client("sqs")
    received: list[dict[str, str]] = []
    until_s = time.monotonic() + 15
    while not received and time.monotonic() < until_s:
        received = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages", [])
    assert re.search("doomed", received[0]["Body"])
    item = toy.client("dynamodb").get_item(
        TableName=toy.deployment()["physical"]["Things"], Key={"pk": {"S": "ticks"}, "sk": {"S": "doomed"}}
    )["Item"]
    assert item["seen"] == {"N": "2"}  # MaximumRetryAttempts: 1


def _job(**facts: object) -> dict[str, object]:
    import json

    body = {"run": "direct", "name": "job", **facts}
    return {"Records": [{"messageId": "m", "body": json.dumps(body), "attributes": {"MessageGroupId": "g"}}]}
