"""Runs an invocation in a process of its own, forked from a warmed one."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from local.exchange import Exchange
from local.function import Outcome, Running, failed
from local.invocation import FAILURE
from local.settings import CREDENTIALS, REGION, ROOT

if TYPE_CHECKING:
    from local.logs import LogRing


class Forks:
    """The stack's own runner: milliseconds an invocation, and every process can be seen and signalled.

    Raises:
        OSError: The process that the others are forked from cannot be started.
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

    def prepare(self, environments: dict[str, dict[str, str]]) -> None:
        """Waits for the zygote; raises RuntimeError where it did not come up."""
        if self._control.recv(1) != b"R":
            raise RuntimeError("the process that runs the functions did not start; its output says why")

    def run(self, running: Running, event: bytes, environment: dict[str, str]) -> Outcome:
        """Runs one invocation to its end."""
        function = running.function
        header = json.dumps(
            {
                "request_id": running.request_id,
                "function_name": function.name,
                "arn": function.arn,
                "handler": function.handler,
                "memory_mb": function.memory_mb,
                "timeout_ms": int(function.timeout_s * 1000),
                "environment": _runtime_environment(running) | environment,
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
            return failed(running, self._logs, "Runtime.ExitError", f"RequestId: {running.request_id} Error: {error}")
        finally:
            ours.close()
            os.close(output_read)
            os.close(status_read)

    def signal(self, running: Running, number: int) -> bool:
        """Sends a signal to an invocation's processes; False where there is none."""
        return bool(running.pid) and not running.ended and _signal(running.pid, number)

    def close(self) -> None:
        """Ends the zygote and every invocation."""
        self._control.close()
        try:
            self._zygote.wait(5)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
            self._zygote.wait()

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
            return failed(
                running, self._logs, "Sandbox.Timedout", f"{prefix}Task timed out after {timeout_s:.2f} seconds"
            )
        how, number = exchange.status or ("exit", 1)
        if how == "signal":
            name = "killed" if number == signal.SIGKILL else signal.Signals(number).name
            text = f"{prefix}Runtime exited with error: signal: {name}"
        elif number:
            text = f"{prefix}Runtime exited with error: exit status {number}"
        else:
            text = f"{prefix}Runtime exited without providing a reason"
        return failed(running, self._logs, "Runtime.ExitError", text)


def _runtime_environment(running: Running) -> dict[str, str]:
    """What Lambda's runtime sets, whatever the function's own variables are."""
    function = running.function
    return {
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
