"""Lambda as the functions meet it: an invocation is a fresh process with a deadline, and a crash has a report."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local.exchange import Exchange
from local.function import Function, Running
from local.invocation import FAILURE
from local.settings import CREDENTIALS, REGION, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.logs import LogRing

PAYLOAD_LIMIT_BYTES = 6_291_556


@dataclass(frozen=True)
class Outcome:
    """How an invocation ended: what it returned, or `error` and Lambda's report of it."""

    request_id: str
    payload: bytes
    error: bool
    log_tail: bytes = b""

    @property
    def value(self) -> Any:
        """The payload, parsed."""
        return json.loads(self.payload)


class TooManyInvocations(Exception):
    """A function's reserved concurrency is used up."""


class Lambdas:
    """Runs functions. Every method is safe under threads.

    Attributes:
        on_failure: Told of every invocation that failed.
    """

    def __init__(self, logs: LogRing) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "local.zygote", str(theirs.fileno())],
            cwd=ROOT,
            env=_own_environment(),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._endpoint = ""
        self._functions: dict[str, Function] = {}
        self._running: dict[str, Running] = {}
        self._overrides: list[dict[str, Any]] = []
        self.on_failure: Callable[[Function, Outcome], None] = lambda function, outcome: None

    def wait_until_warm(self) -> None:
        """Waits for the zygote; raises RuntimeError where it did not come up."""
        if self._control.recv(1) != b"R":
            raise RuntimeError("the process that runs the functions did not start; its output says why")

    def deploy(self, functions: list[Function], endpoint: str) -> None:
        """Sets what can be invoked, and the AWS endpoint that functions talk to."""
        self._endpoint = endpoint
        self._functions = {function.name: function for function in functions}

    def find(self, name: str) -> Function | None:
        """A function by its name, its ARN (with or without qualifier) or its logical id."""
        parts = name.split(":")
        if name.startswith("arn:") and len(parts) >= 7:
            name = parts[6]
        else:
            name = parts[-1] if "function" in parts else parts[0]
        found = self._functions.get(name)
        return found or next((each for each in self._functions.values() if each.logical_id == name), None)

    def override(self, function: str | None, variables: dict[str, str], times: int | None) -> None:
        """Lays variables over the environment of the next `times` invocations (None: of all)."""
        with self._lock:
            self._overrides.append({"function": function, "variables": variables, "times": times})

    def clear_overrides(self) -> None:
        """Takes every override back."""
        with self._lock:
            self._overrides.clear()

    def running(self) -> list[Running]:
        """The invocations in progress, oldest first."""
        with self._lock:
            return list(self._running.values())

    def caller(self, trace_header: str) -> Running | None:
        """The invocation that a request's trace header names (Lambda's SDKs send it with every call)."""
        if not trace_header:
            return None
        with self._lock:
            return next((each for each in self._running.values() if each.trace_root in trace_header), None)

    def signal(self, request_id: str, number: int) -> bool:
        """Sends a signal to a running invocation's processes; False where there is none."""
        with self._lock:
            running = self._running.get(request_id)
            if running is None or not running.pid or running.ended:
                return False
            return _signal(running.pid, number)

    def invoke(self, function: Function, event: bytes, request_id: str | None = None) -> Outcome:
        """Runs a function to its end and reports as Lambda does.

        Raises:
            TooManyInvocations: As many run as are reserved.
        """
        running = self._admit(function, request_id or str(uuid.uuid4()))
        try:
            outcome = self._run(running, event)
        finally:
            with self._lock:
                self._running.pop(running.request_id, None)
        if not outcome.error and len(outcome.payload) > PAYLOAD_LIMIT_BYTES:
            text = f"Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT_BYTES} bytes)."
            outcome = self._failed(running, "Function.ResponseSizeTooLarge", text)
        if outcome.error:
            self.on_failure(function, outcome)
        return outcome

    def close(self) -> None:
        """Ends the zygote and every invocation."""
        self._control.close()
        try:
            self._zygote.wait(5)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
            self._zygote.wait()

    # -- one invocation -------------------------------------------------------------------------------------

    def _admit(self, function: Function, request_id: str) -> Running:
        now_ms = time.time_ns() // 1_000_000
        root = f"1-{now_ms // 1000:08x}-{secrets.token_hex(12)}"
        with self._lock:
            busy = sum(each.function is function for each in self._running.values())
            if function.reserved_concurrency is not None and busy >= function.reserved_concurrency:
                raise TooManyInvocations(function.name)
            running = Running(request_id, root, function, now_ms)
            self._running[request_id] = running
            return running

    def _environment(self, running: Running) -> dict[str, str]:
        function = running.function
        environment = {
            "AWS_ENDPOINT_URL": self._endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
            "AWS_SESSION_TOKEN": CREDENTIALS["aws_session_token"],
            # Nobody's own settings may leak into a function.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": function.log_group or f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{running.request_id.replace('-', '')}",
            "LAMBDA_TASK_ROOT": function.paths[0],
            "_HANDLER": function.handler,
            "_X_AMZN_TRACE_ID": f"Root={running.trace_root};Parent={secrets.token_hex(8)};Sampled=0",
            "LANG": "en_US.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TZ": ":UTC",
        }
        environment |= function.environment
        with self._lock:
            for override in self._overrides:
                if override["function"] in (None, function.logical_id, function.name) and override["times"] != 0:
                    environment |= override["variables"]
                    if override["times"] is not None:
                        override["times"] -= 1
        return environment

    def _run(self, running: Running, event: bytes) -> Outcome:
        function = running.function
        header = json.dumps(
            {
                "request_id": running.request_id,
                "function_name": function.name,
                "arn": function.arn,
                "handler": function.handler,
                "memory_mb": function.memory_mb,
                "timeout_ms": int(function.timeout_s * 1000),
                "environment": self._environment(running),
                "paths": list(function.paths),
                "checkout": str(ROOT),
            }
        ).encode()
        ours, theirs = socket.socketpair()
        output_read, output_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            try:
                with self._lock:
                    descriptors = [theirs.fileno(), output_write, status_write]
                    socket.send_fds(self._control, [b"i"], descriptors)
            finally:
                theirs.close()
                os.close(output_write)
                os.close(status_write)
            exchange = Exchange(ours, output_read, status_read, running, self._logs)
            exchange.send(struct.pack(">QQ", len(header), len(event)) + header + event)
            return self._report(running, exchange)
        except OSError as error:
            return self._failed(running, "Runtime.ExitError", f"RequestId: {running.request_id} Error: {error}")
        finally:
            ours.close()
            os.close(output_read)
            os.close(status_read)

    def _report(self, running: Running, exchange: Exchange) -> Outcome:
        timeout_s = running.function.timeout_s
        prefix = f"RequestId: {running.request_id} Error: "
        exchange.follow(timeout_s)
        running.ended = True
        if exchange.outcome is not None:
            kind, payload = exchange.outcome
            return Outcome(running.request_id, payload, kind == FAILURE, bytes(running.tail))
        if exchange.timed_out:
            if running.pid:
                _signal(running.pid, signal.SIGKILL)
            return self._failed(running, "Sandbox.Timedout", f"{prefix}Task timed out after {timeout_s:.2f} seconds")
        how, number = exchange.status or ("exit", 1)
        if how == "signal":
            name = "killed" if number == signal.SIGKILL else signal.Signals(number).name
            text = f"{prefix}Runtime exited with error: signal: {name}"
        elif number:
            text = f"{prefix}Runtime exited with error: exit status {number}"
        else:
            text = f"{prefix}Runtime exited without providing a reason"
        return self._failed(running, "Runtime.ExitError", text)

    def _failed(self, running: Running, error_type: str, message: str) -> Outcome:
        payload = {"errorType": error_type, "errorMessage": message}
        self._logs.add(running.function.logical_id, running.request_id, json.dumps(payload))
        return Outcome(running.request_id, json.dumps(payload).encode(), True, bytes(running.tail))


def _signal(pid: int, number: int) -> bool:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        try:
            os.kill(pid, number)  # forked a moment ago, not yet leader of its own group
        except ProcessLookupError:
            return False
    return True


def _own_environment() -> dict[str, str]:
    """The zygote's environment: enough to start Python, none of the caller's AWS settings."""
    kept = ("PATH", "HOME", "VIRTUAL_ENV", "TMPDIR", "LANG", "LC_ALL", "SYSTEMROOT")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def log_result(outcome: Outcome) -> str:
    """The tail of the log as `X-Amz-Log-Result` carries it."""
    return base64.b64encode(outcome.log_tail).decode()
