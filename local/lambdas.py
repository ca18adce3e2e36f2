"""Lambda as the functions meet it: an invocation is a fresh process with a deadline, and a crash has a report."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, TYPE_CHECKING

from local.invocation import FAILURE, FRAME, READY, RESULT
from local.settings import ACCOUNT, CREDENTIALS, REGION, ROOT

if TYPE_CHECKING:
    from local.logs import LogRing

PAYLOAD_LIMIT_BYTES = 6_291_556
INIT_LIMIT_S = 10.0


@dataclass(frozen=True)
class Function:
    """A deployed function, read back from CloudFormation.

    Attributes:
        logical_id: Its name in the template.
        name: Its physical name.
        paths: Its folder, then its layers' folders, as they go to the front of `sys.path`.
        reserved_concurrency: How many may run at once; None for any number.
        retries: How often a failed asynchronous invocation is tried again.
        failure_arn: The queue that gets a record of an asynchronous invocation that failed for good, or "".
        dead_letter_arn: The queue that gets that invocation's event, or "".
    """

    logical_id: str
    name: str
    handler: str
    environment: dict[str, str]
    timeout_s: float
    memory_mb: int
    paths: tuple[str, ...]
    reserved_concurrency: int | None = None
    retries: int = 2
    failure_arn: str = ""
    dead_letter_arn: str = ""
    log_group: str = ""

    @property
    def arn(self) -> str:
        """The function's ARN."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.name}"


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


@dataclass
class Running:
    """An invocation in progress."""

    request_id: str
    trace_root: str
    function: Function
    started_ms: int
    pid: int = 0
    ended: bool = False
    tail: bytearray = field(default_factory=bytearray)


class TooManyInvocations(Exception):
    """A function's reserved concurrency is used up."""


class Lambdas:
    """Runs functions. Every method is safe under threads."""

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
            return self._failed(running, "Function.ResponseSizeTooLarge", text)
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
            exchange = _Exchange(ours, output_read, status_read, running, self._logs)
            exchange.send(struct.pack(">QQ", len(header), len(event)) + header + event)
            return self._report(running, exchange)
        except OSError as error:
            return self._failed(running, "Runtime.ExitError", f"RequestId: {running.request_id} Error: {error}")
        finally:
            ours.close()
            os.close(output_read)
            os.close(status_read)

    def _report(self, running: Running, exchange: _Exchange) -> Outcome:
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


class _Exchange:
    """Both sides of a child's pipes: sends the request, follows output, answer and end until its deadline."""

    def __init__(self, connection: socket.socket, output: int, status: int, running: Running, logs: LogRing) -> None:
        self._connection, self._output, self._status = connection, output, status
        self._running, self._logs = running, logs
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._line = bytearray()
        self._told = bytearray()
        self._deadline_s = time.monotonic() + INIT_LIMIT_S + running.function.timeout_s
        self.outcome: tuple[bytes, bytes] | None = None
        self.status: tuple[str, int] | None = None
        self.timed_out = False
        connection.setblocking(False)
        os.set_blocking(output, False)

    def send(self, request: bytes) -> None:
        """Queues the request; it is sent while following, since a stopped child does not read."""
        self._unsent = memoryview(request)

    def follow(self, timeout_s: float) -> None:
        """Returns when the child has answered, has ended, or is out of time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._status, selectors.EVENT_READ)
            while self.outcome is None and self.status is None:
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0:
                    self.timed_out = True
                    break
                for key, events in selector.select(left_s):
                    if key.fd == self._status:
                        self._read_status(selector)
                    elif key.fd == self._output:
                        self._read_output(selector)
                    else:
                        self._converse(selector, events, timeout_s)
            if self.outcome is None:
                self._converse(selector, selectors.EVENT_READ, timeout_s)
            self._read_output(selector)
        if self._line:
            self._log(bytes(self._line))

    def _converse(self, selector: selectors.BaseSelector, events: int, timeout_s: float) -> None:
        try:
            if events & selectors.EVENT_WRITE and self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
            if not self._unsent and self._connection in selector.get_map():
                selector.modify(self._connection, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                while part := self._connection.recv(1 << 20):
                    self._received += part
                selector.unregister(self._connection)
        except BlockingIOError:
            pass
        except (ConnectionError, KeyError):
            with contextlib.suppress(KeyError):
                selector.unregister(self._connection)
        self._take_frames(timeout_s)

    def _take_frames(self, timeout_s: float) -> None:
        while len(self._received) >= FRAME.size:
            kind, length = FRAME.unpack_from(self._received)
            if len(self._received) < FRAME.size + length:
                return
            payload = bytes(self._received[FRAME.size : FRAME.size + length])
            del self._received[: FRAME.size + length]
            if kind == READY:
                self._deadline_s = time.monotonic() + timeout_s
            elif kind in (RESULT, FAILURE):
                self.outcome = (kind, payload)

    def _read_status(self, selector: selectors.BaseSelector) -> None:
        part = os.read(self._status, 4096)
        self._told += part
        *lines, rest = bytes(self._told).split(b"\n")
        self._told = bytearray(rest)
        for line in lines:
            word, number = line.split()
            if word == b"pid":
                self._running.pid = int(number)
            else:
                self.status = (word.decode(), int(number))
        if not part and self.status is None:
            self.status = ("signal", int(signal.SIGKILL))  # the zygote itself is gone

    def _read_output(self, selector: selectors.BaseSelector) -> None:
        try:
            while part := os.read(self._output, 1 << 16):
                self._running.tail += part
                del self._running.tail[:-4096]
                self._line += part
                *lines, rest = bytes(self._line).split(b"\n")
                self._line = bytearray(rest)
                for line in lines:
                    self._log(line)
            selector.unregister(self._output)
        except (BlockingIOError, KeyError):
            pass

    def _log(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self._logs.add(self._running.function.logical_id, self._running.request_id, text)


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
