"""Runs an invocation in a container of its own, by `sam local start-lambda`."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from typing import IO, TYPE_CHECKING

from local.function import Outcome, Running, failed
from local.settings import CREDENTIALS, REGION, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from local.logs import LogRing

START_LIMIT_S = 60.0
# A container starts in one to three seconds, and the first of a function builds its image before that.
CONTAINER_LIMIT_S = 120.0
STOP_LIMIT_S = 20.0
HOST = "127.0.0.1"
CONTAINER = re.compile(rb"SAM_CONTAINER_ID: ([0-9a-f]{64})")


class Sam:
    """One of sam's local services, as a process of its own.

    Args:
        sam: The `sam` command.
        config: The `samconfig.toml` that `write_config` made.
        output: Where what it and its containers say goes.
    """

    def __init__(self, sam: Path, config: Path, output: IO[bytes]) -> None:
        self._sam, self._config, self._output = sam, config, output
        self._process: subprocess.Popen[bytes] | None = None
        self._containers: set[str] = set()
        self._passing_on: threading.Thread | None = None

    def start(self, command: str, port: int) -> None:
        """Starts `sam local COMMAND` and returns when it listens; raises RuntimeError where it does not."""
        # sam locks what it builds by a file in here, and one that was ended meanwhile leaves it: five minutes' wait for
        # whoever finds it.
        scratch = self._config.with_name(f"{command}-tmp")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_", "SAM_"))}
        environment = kept | {
            "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
            "AWS_SESSION_TOKEN": CREDENTIALS["aws_session_token"],
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SAM_CLI_TELEMETRY": "0",
            "TMPDIR": str(scratch),
        }
        arguments = ["local", command, "--config-file", str(self._config), "--host", HOST, "--port", str(port)]
        self._process = subprocess.Popen(
            [str(self._sam), *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the whole terminal; this process decides what stops when
        )
        said = self._process.stdout
        self._passing_on = threading.Thread(target=self._pass_on, args=(said,), name=f"sam-{command}", daemon=True)
        self._passing_on.start()
        until_s = time.monotonic() + START_LIMIT_S
        while not _listens(port):
            if self._process.poll() is not None:
                raise RuntimeError(f"sam local {command} ended with {self._process.returncode}; its output says why")
            if time.monotonic() > until_s:
                raise RuntimeError(f"sam local {command} does not listen on port {port} after {START_LIMIT_S:.0f} s")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops it, and the containers in which something ran until now: those sam forgets."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._passing_on is not None:
            self._passing_on.join(STOP_LIMIT_S)
        there = _docker("ps", "--all", "--quiet", "--no-trunc").stdout.split()
        if left := self._containers.intersection(there):
            _docker("rm", "--force", *left)

    def _pass_on(self, said: IO[bytes]) -> None:
        """Until it ends: what it says, and which containers it says that it started."""
        for line in said:
            self._output.write(line)
            self._output.flush()
            self._containers |= {found.decode() for found in CONTAINER.findall(line)}


class Containers:
    """The runner behind `make sam-local`: what sam does with a function is what happens.

    Processes in containers are Docker's: `signal` finds none (`docker kill` does).
    """

    def __init__(self, logs: LogRing, service: Sam, config: Path, port: int) -> None:
        self._logs, self._service, self._config, self._port = logs, service, config, port

    def prepare(self, environments: dict[str, dict[str, str]]) -> None:
        """Writes sam's files and starts its Lambda service."""
        write_config(self._config, environments)
        self._service.start("start-lambda", self._port)

    def run(self, running: Running, event: bytes, environment: dict[str, str]) -> Outcome:
        """Runs one invocation in a fresh container; its variables are those that sam was started with."""
        function = running.function
        running.in_handler = True
        connection = http.client.HTTPConnection(HOST, self._port, timeout=CONTAINER_LIMIT_S + function.timeout_s)
        try:
            connection.request("POST", f"/2015-03-31/functions/{function.logical_id}/invocations", event)
            answer = connection.getresponse()
            payload = answer.read()
        except OSError as error:
            return failed(running, self._logs, "Runtime.ExitError", f"sam local start-lambda does not answer: {error}")
        finally:
            running.ended = True
            connection.close()
        if answer.status != 200 or not _is_json(payload):
            said = payload.decode("utf-8", "replace").strip() or "the container ended without an answer"
            return failed(running, self._logs, "Runtime.ExitError", f"RequestId: {running.request_id} Error: {said}")
        return Outcome(running.request_id, payload, answer.getheader("x-amz-function-error") is not None)

    def signal(self, running: Running, number: int) -> bool:
        """Always False."""
        return False

    def close(self) -> None:
        """Stops sam's Lambda service."""
        self._service.stop()


def write_config(config: Path, environments: dict[str, dict[str, str]]) -> None:
    """Writes a `samconfig.toml` for sam's local commands, and beside it the variables that it names.

    With it `sam local invoke FUNCTION -e FILE --config-file …` finds the table, the machine and moto.
    """
    config.parent.mkdir(parents=True, exist_ok=True)
    variables = config.with_name("environment.json")
    variables.write_text(json.dumps(environments, indent=2) + "\n", encoding="utf-8")
    parameters = {
        "env_vars": str(variables),
        "skip_pull_image": True,
        "region": REGION,
        "parameter_overrides": f"Architecture={architecture()}",
    }
    lines = ["version = 0.1"]
    for command in ("local_start_api", "local_start_lambda", "local_invoke"):
        lines += ["", f"[default.{command}.parameters]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in parameters.items()]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")


def architecture() -> str:
    """This machine's, as Lambda spells it."""
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"


def docker_gateway() -> str:
    """This machine's address on Docker's bridge, where containers find it.

    Raises:
        RuntimeError: No Docker answers.
    """
    try:
        asked = _docker("network", "inspect", "bridge", "--format", "{{json .IPAM.Config}}")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"sam local runs functions in Docker, and no Docker answers: {error}") from error
    if asked.returncode:
        reason = asked.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RuntimeError(f"sam local runs functions in Docker, and no Docker answers: {reason[0]}")
    network = json.loads(asked.stdout)[0]
    # Some releases leave the gateway out; it is the subnet's first address unless somebody chose another.
    return str(network.get("Gateway") or next(ipaddress.ip_network(network["Subnet"]).hosts()))


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=30, check=False)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex((HOST, port)) == 0


def _is_json(payload: bytes) -> bool:
    try:
        json.loads(payload)
    except ValueError:
        return False
    return True
