"""A local stack for tests: in a process of its own, stopped with whoever started it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from botocore.config import Config

from local.settings import ROOT, Settings, aws_session
from local.token import make_token

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class StackFailed(RuntimeError):
    """The stack did not start; its own words are the message."""


class LocalStack:
    """Starts, drives and stops a local stack. A context manager; every method is safe under threads.

    Attributes:
        command: The module that serves it, and its arguments.
        addresses: What it said when it was up, `api_url` and `aws_url` among it.

    Args:
        ports: The API's and the AWS endpoint's ports; 0 takes free ones.
        env_overrides: Laid over every function's environment; a dict as a value is for the function of that name.
        parameters: Template parameters, laid over the local defaults.
        template: Another template than the checkout's.
        state_dir: Where the signing key and the transform's cache are kept.
        schedule_s: Replaces the period of every schedule. By default schedules are off: `fire` them.
        retry_delays_s: The waits before an asynchronous invocation's retries.
    """

    command: tuple[str, ...] = ("local",)

    def __init__(
        self,
        ports: int | tuple[int, int] = 0,
        *,
        env_overrides: dict[str, Any] | None = None,
        parameters: dict[str, str] | None = None,
        template: Path | None = None,
        state_dir: Path | None = None,
        schedule_s: float = 0,
        retry_delays_s: tuple[float, ...] = (0.5, 1.0),
        log_file: Path | None = None,
    ) -> None:
        port, aws_port = ports if isinstance(ports, tuple) else (ports, ports)
        self.settings = Settings(
            template=str(template or ROOT / "template.yaml"),
            port=port,
            aws_port=aws_port,
            state_dir=str(state_dir or ROOT / ".turnkeep"),
            parameters=parameters or {},
            environment=env_overrides or {},
            schedule_s=schedule_s,
            retry_delays_s=retry_delays_s,
            log_file=str(log_file) if log_file else None,
        )
        self.api_url = ""
        self.aws_url = ""
        self.addresses: dict[str, str] = {}
        self._process: subprocess.Popen[str] | None = None
        self.faults = Faults(self)
        self.calls = Calls(self)
        self.lambdas = Invocations(self)

    def start(self) -> LocalStack:
        """Starts the stack and returns when it serves.

        Raises:
            StackFailed: It said why, and ended.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", *self.command, "--supervised"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process = process
        assert process.stdin and process.stdout
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(self.settings.to_json() + "\n")
            process.stdin.flush()
        said = json.loads(process.stdout.readline() or '{"refused": "it ended; its standard error says why"}')
        if "refused" in said:
            self.stop()
            raise StackFailed(said["refused"])
        self.addresses = said
        self.api_url, self.aws_url = said["api_url"], said["aws_url"]
        return self

    @property
    def pid(self) -> int:
        """The stack's process."""
        assert self._process
        return self._process.pid

    def stop(self) -> None:
        """Stops the stack and waits for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin and process.stdout
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def __enter__(self) -> LocalStack:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def client(self, service: str, **config: Any) -> Any:
        """A boto3 client on the stack; `config` goes to botocore's `Config`."""
        return aws_session().client(service, endpoint_url=self.aws_url, config=Config(**config))

    def invoke(self, name: str, event: Any) -> Invoked:
        """Invokes a function by its logical id or its name and waits for its end."""
        client = self.client("lambda", read_timeout=900, retries={"total_max_attempts": 1})
        answer = client.invoke(FunctionName=name, Payload=json.dumps(event, ensure_ascii=False).encode())
        payload = answer["Payload"].read()
        return Invoked(json.loads(payload), answer.get("FunctionError"), answer["ResponseMetadata"]["RequestId"])

    def token(self, user: str, tenant: str | None = None, roles: list[str] | None = None, **more: Any) -> str:
        """A token that this stack takes."""
        return make_token(user, tenant, roles, state_dir=Path(self.settings.state_dir), **more)

    def deployment(self) -> dict[str, Any]:
        """What is deployed: functions, routes, physical ids, outputs, parameters."""
        found: dict[str, Any] = self.control("GET", "deployment")
        return found

    def logs(self, function: str | None = None, request_id: str | None = None, since: int = 0) -> list[str]:
        """What functions wrote, line by line."""
        query = _query(function=function, request_id=request_id, since=since)
        return [entry["line"] for entry in self.control("GET", f"logs{query}")["lines"]]

    def set_environment(self, variables: dict[str, str], function: str | None = None, times: int | None = None) -> None:
        """Lays variables over the environment of the next `times` invocations (None: of all), as of a crash point."""
        self.control("POST", "environment", {"function": function, "variables": variables, "times": times})

    def clear_environment(self) -> None:
        """Takes back what `set_environment` laid over."""
        self.control("DELETE", "environment")

    def fire(self, rule: str) -> bool:
        """Fires a schedule now, by its rule's or its function's logical id; False where there is none."""
        deployment = self.deployment()
        name = deployment["functions"].get(rule, {}).get("name") or deployment["physical"].get(rule) or rule
        fired: bool = self.control("POST", f"schedules/{quote(name, safe='')}")["fired"]
        return fired

    def reset(self) -> None:
        """Takes back faults and environment, and forgets calls. Data stays."""
        self.control("DELETE", "faults")
        self.control("DELETE", "environment")
        self.control("DELETE", "calls")

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the stack's own paths."""
        request = urllib.request.Request(
            f"{self.aws_url}/_local/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as refusal:
            raise ValueError(json.loads(refusal.read())["message"]) from refusal
        except OSError as error:
            code = self._process.poll() if self._process else None
            raise StackFailed(f"the local stack does not answer; its process ended with {code}") from error


class Invoked:
    """An invocation's end: its value, and `error` (`Unhandled`) where it failed."""

    def __init__(self, value: Any, error: str | None, request_id: str) -> None:
        self.value = value
        self.error = error
        self.request_id = request_id


class SetFault:
    """A fault that is set."""

    def __init__(self, stack: LocalStack, fault_id: int) -> None:
        self._stack = stack
        self.id = fault_id

    @property
    def met(self) -> int:
        """How many calls met it."""
        faults = self._stack.control("GET", "faults")["faults"]
        return next((int(fault["met"]) for fault in faults if fault["id"] == self.id), 0)

    def wait_until_met(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Waits until so many calls met it; raises TimeoutError."""
        until_s = time.monotonic() + timeout_s
        while self.met < times:
            if time.monotonic() > until_s:
                raise TimeoutError(f"the fault was met {self.met} times, not {times}")
            time.sleep(0.02)

    def release(self) -> None:
        """Lets go of what a `hold` keeps."""
        self._stack.control("POST", f"faults/{self.id}/release")

    def remove(self) -> None:
        """Takes the fault back."""
        self._stack.control("DELETE", f"faults/{self.id}")


class Faults:
    """The faults of a stack."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack

    def add(self, kind: str, **facts: Any) -> SetFault:
        """Sets a fault; see `local.faults.Fault` for what it may say."""
        return SetFault(self._stack, self._stack.control("POST", "faults", {"kind": kind, **facts})["id"])

    @contextlib.contextmanager
    def during(self, kind: str, **facts: Any) -> Iterator[SetFault]:
        """Sets a fault for the length of a `with` block."""
        fault = self.add(kind, **facts)
        try:
            yield fault
        finally:
            fault.remove()

    def clear(self) -> None:
        """Removes every fault."""
        self._stack.control("DELETE", "faults")


class Calls:
    """What was asked of the stack's AWS endpoint."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack

    def reset(self) -> None:
        """Forgets every call."""
        self._stack.control("DELETE", "calls")

    def counts(self) -> dict[str, int]:
        """Calls since the last reset by `service:Operation`."""
        found: dict[str, int] = self._stack.control("GET", "calls")["counts"]
        return found

    def list(self, request_id: str | None = None, since: int = 0) -> list[dict[str, Any]]:
        """The calls in order, of one invocation or of all."""
        query = _query(request_id=request_id, since=since)
        found: list[dict[str, Any]] = self._stack.control("GET", f"calls{query}")["calls"]
        return found


class Invocations:
    """The invocations in progress."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack

    def running(self, function: str | None = None) -> list[dict[str, Any]]:
        """Each with `request_id`, `function` (its logical id), `pid`, `started_ms`, `phase` (`init`, `handler`)."""
        found = self._stack.control("GET", "invocations")["invocations"]
        return [each for each in found if function in (None, each["function"])]

    def wait_for(self, function: str, count: int = 1, timeout_s: float = 30.0) -> list[dict[str, Any]]:
        """Waits until so many invocations of a function are in their handler; raises TimeoutError."""
        until_s = time.monotonic() + timeout_s
        while len(found := [each for each in self.running(function) if each["phase"] == "handler"]) < count:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{len(found)} invocations of {function} run, not {count}")
            time.sleep(0.02)
        return found

    def signal(self, request_id: str, name: str) -> bool:
        """Sends `KILL`, `STOP` or `CONT` to an invocation; False where it has ended."""
        sent: bool = self._stack.control("POST", f"invocations/{request_id}/signal", {"signal": name})["sent"]
        return sent


def _query(**facts: Any) -> str:
    return "?" + urlencode({name: value for name, value in facts.items() if value})
