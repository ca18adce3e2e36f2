"""Lambda as the functions meet it: an invocation has a deadline and a process of its own, and a crash has a report."""

from __future__ import annotations

import base64
import secrets
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

from local.function import Function, Outcome, Running, failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.logs import LogRing

PAYLOAD_LIMIT_BYTES = 6_291_556


class TooManyInvocations(Exception):
    """A function's reserved concurrency is used up."""


class Runner(Protocol):
    """What runs an invocation: `local.forking.Forks`, or `local.containers.Containers`."""

    def prepare(self, environments: dict[str, dict[str, str]]) -> None:
        """Returns when invocations can run; gets each function's variables by its logical id.

        Raises:
            RuntimeError: They will never run; its words say why.
        """

    def run(self, running: Running, event: bytes, environment: dict[str, str]) -> Outcome:
        """Runs one invocation to its end, `environment` being what the template and overrides set."""

    def signal(self, running: Running, number: int) -> bool:
        """Sends a signal to an invocation's processes; False where there is none."""

    def close(self) -> None:
        """Ends every invocation."""


class Lambdas:
    """Runs functions. Every method is safe under threads.

    Attributes:
        on_failure: Told of every invocation that failed.
    """

    def __init__(self, logs: LogRing, runner: Runner) -> None:
        self._logs = logs
        self._runner = runner
        self._lock = threading.Lock()
        self._endpoint = ""
        self._functions: dict[str, Function] = {}
        self._running: dict[str, Running] = {}
        self._overrides: list[dict[str, Any]] = []
        self.on_failure: Callable[[Function, Outcome], None] = lambda function, outcome: None

    def wait_until_warm(self) -> None:
        """Waits for the runner; raises RuntimeError where it did not come up."""
        functions = list(self._functions.values())
        self._runner.prepare({function.logical_id: self._environment(function) for function in functions})

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
            return running is not None and self._runner.signal(running, number)

    def invoke(self, function: Function, event: bytes, request_id: str | None = None) -> Outcome:
        """Runs a function to its end and reports as Lambda does.

        Raises:
            TooManyInvocations: As many run as are reserved.
        """
        running = self._admit(function, request_id or str(uuid.uuid4()))
        try:
            outcome = self._runner.run(running, event, self._environment(function))
        finally:
            with self._lock:
                self._running.pop(running.request_id, None)
        if not outcome.error and len(outcome.payload) > PAYLOAD_LIMIT_BYTES:
            text = f"Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT_BYTES} bytes)."
            outcome = failed(running, self._logs, "Function.ResponseSizeTooLarge", text)
        if outcome.error:
            self.on_failure(function, outcome)
        return outcome

    def close(self) -> None:
        """Ends the runner and every invocation."""
        self._runner.close()

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

    def _environment(self, function: Function) -> dict[str, str]:
        environment = {"AWS_ENDPOINT_URL": self._endpoint} | function.environment
        with self._lock:
            for override in self._overrides:
                if override["function"] in (None, function.logical_id, function.name) and override["times"] != 0:
                    environment |= override["variables"]
                    if override["times"] is not None:
                        override["times"] -= 1
        return environment


def log_result(outcome: Outcome) -> str:
    """The tail of the log as `X-Amz-Log-Result` carries it."""
    return base64.b64encode(outcome.log_tail).decode()
