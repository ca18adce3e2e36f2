"""Starting and stopping: taken ports, broken templates, and no process left behind however the stack ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from local.settings import ROOT
from local.stack import LocalStack, StackFailed

pytestmark = pytest.mark.process
TOY = Path(__file__).parent / "toy" / "template.yaml"


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def all_gone(processes: list[psutil.Process], within_s: float = 8.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    return not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_by_hand(port: int, aws_port: int, console_port: int = 0) -> subprocess.Popen[str]:
    ports = {"PORT": str(port), "AWS_PORT": str(aws_port), "CONSOLE_PORT": str(console_port)}
    environment = {**os.environ, **ports, "COLUMNS": "120"}
    return subprocess.Popen(
        [sys.executable, "-m", "local", "--template", str(TOY)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout
    seen = ""
    while text not in seen:
        line = process.stdout.readline()
        if not line:
            assert process.stderr
            raise AssertionError(f"it ended early: {seen}{process.stderr.read()}")
        seen += line
    return seen


@pytest.mark.parametrize("variable", ["PORT", "AWS_PORT", "CONSOLE_PORT"])
def test_a_taken_port_is_one_clear_line(variable: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        ports = {"PORT": free_port(), "AWS_PORT": free_port(), "CONSOLE_PORT": 0, variable: number}
        began_s = time.monotonic()
        process = run_by_hand(ports["PORT"], ports["AWS_PORT"], ports["CONSOLE_PORT"])
        out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert out == ""
    assert err == f"local stack: port {number} is taken; choose another one with {variable}=…\n"
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize(("number", "to_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_it_says_where_it_listens_and_ends_with_everything_it_started(number: signal.Signals, to_group: bool) -> None:
    port, aws_port = free_port(), free_port()
    process = run_by_hand(port, aws_port)
    try:
        said = read_until(process, "Ctrl-C stops all of it.")
        addresses = re.findall(r"http://127\.0\.0\.1:\d+", said)
        assert addresses[1:3] == [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{aws_port}"]
        with urllib.request.urlopen(addresses[0], timeout=30) as page:  # the console's comes first
            assert b"turnkeep" in page.read()
        assert said.count("curl") + said.count("aws dynamodb scan") == 3
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as answer:
            assert answer.status == 200
        # A function runs while it is stopped: it goes too, and whatever it started.
        _start_slow_function(aws_port)
        processes = family(process.pid)
        assert len(processes) >= 4  # the stack, the zygote, the function, the function's child
        if to_group:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait(10) == 0
        assert all_gone(processes)
    finally:
        process.kill()
        process.communicate()
    for freed in (port, aws_port):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", freed))


def test_nothing_is_left_when_the_stack_is_killed(tmp_path: Path) -> None:
    stack = LocalStack(template=TOY, state_dir=tmp_path).start()
    _start_slow_function(int(stack.aws_url.rpartition(":")[2]))
    processes = family(stack.pid)
    assert len(processes) >= 4
    os.kill(stack.pid, signal.SIGKILL)
    assert all_gone(processes)
    stack.stop()


def test_nothing_is_left_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom local.stack import LocalStack\n"
        f"stack = LocalStack(template=Path({str(TOY)!r}), state_dir=Path({str(tmp_path)!r})).start()\n"
        "print('up', flush=True)\ntime.sleep(60)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout
    assert starter.stdout.readline() == "up\n"
    processes = family(starter.pid)
    assert len(processes) >= 3
    starter.kill()
    starter.communicate()
    assert all_gone(processes)


def test_a_template_that_cannot_be_deployed_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "template.yaml"
    broken.write_text(
        "Transform: AWS::Serverless-2016-10-31\nResources:\n  F:\n    Type: AWS::Serverless::Function\n"
        "    Properties: {Handler: app.handler, Runtime: python3.13, CodeUri: nowhere}\n"
    )
    with pytest.raises(StackFailed, match="F: nowhere is not a folder"):
        LocalStack(template=broken, state_dir=tmp_path).start()
    with pytest.raises(StackFailed, match="no-such"):
        LocalStack(template=tmp_path / "no-such.yaml", state_dir=tmp_path).start()


def test_two_stacks_stand_side_by_side(toy: LocalStack, tmp_path: Path) -> None:
    with LocalStack(template=TOY, state_dir=tmp_path, env_overrides={"GREETING": "other"}) as other:
        name = toy.deployment()["physical"]["Things"]
        toy.client("dynamodb").put_item(TableName=name, Item={"pk": {"S": "only"}, "sk": {"S": "here"}})
        found = other.client("dynamodb").scan(TableName=other.deployment()["physical"]["Things"])
        assert found["Count"] == 0
        assert other.invoke("EchoFunction", {"do": "facts"}).value["environment"]["GREETING"] == "other"


def test_overrides_reach_the_function_that_they_name(tmp_path: Path) -> None:
    overrides = {"COMMON": "1", "EchoFunction": {"OWN": "2"}}
    with LocalStack(template=TOY, state_dir=tmp_path, env_overrides=overrides) as stack:
        functions = stack.deployment()["functions"]
    assert functions["EchoFunction"]["environment"]["OWN"] == "2"
    assert {function["environment"]["COMMON"] for function in functions.values()} == {"1"}
    assert "OWN" not in functions["TickFunction"]["environment"]


def _start_slow_function(aws_port: int) -> None:
    def invoke() -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{aws_port}/2015-03-31/functions/EchoFunction/invocations",
            data=json.dumps({"do": "child", "seconds": 1.9}).encode(),
        )
        try:
            urllib.request.urlopen(request, timeout=30).read()
        except OSError:
            return  # the stack went first

    threading.Thread(target=invoke, daemon=True).start()
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        with urllib.request.urlopen(f"http://127.0.0.1:{aws_port}/_local/logs", timeout=10) as answer:
            if any(entry["line"].startswith("child ") for entry in json.loads(answer.read())["lines"]):
                return
        time.sleep(0.02)
    raise TimeoutError("the function did not start")
