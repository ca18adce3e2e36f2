"""What one invocation's process does: become the function's environment, run its handler, report, end.

Runs in a process that the zygote forked for it. Nothing of it outlives the answer: Lambda freezes a process the
moment its handler returns, so here it ends there, without exit handlers and whatever threads it started.
"""

from __future__ import annotations

import decimal
import importlib
import json
import logging
import os
import struct
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from types import TracebackType

READY, RESULT, FAILURE = b"R", b"O", b"E"
FRAME = struct.Struct(">cQ")


def receive(connection: socket.socket, count: int) -> bytes:
    """Reads exactly `count` bytes; raises EOFError where the other side is gone."""
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class Context:
    """The context object of Lambda's Python runtime."""

    def __init__(self, request: dict[str, Any], deadline_ms: int) -> None:
        self.aws_request_id: str = request["request_id"]
        self.function_name: str = request["function_name"]
        self.function_version = "$LATEST"
        self.invoked_function_arn: str = request["arn"]
        # A text there too, whatever the documentation's examples suggest.
        self.memory_limit_in_mb = str(request["memory_mb"])
        self.log_group_name: str = request["environment"]["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name: str = request["environment"]["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.client_context = None
        self.identity = None
        self._deadline_ms = deadline_ms

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until this process is killed; never below 0."""
        return max(0, self._deadline_ms - time.time_ns() // 1_000_000)

    def log(self, message: Any) -> None:
        """Writes to the function's log."""
        sys.stdout.write(str(message))


class _Fault(Exception):
    """A failure that the runtime names, not the function."""

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


def run(connection: socket.socket) -> NoReturn:
    """Serves the one invocation that arrives on `connection`, then ends the process."""
    header_bytes, event_bytes = struct.unpack(">QQ", receive(connection, 16))
    request = json.loads(receive(connection, header_bytes))
    event_text = receive(connection, event_bytes)
    _become(request)
    outcome, payload = _invoke(request, event_text, connection)
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(FRAME.pack(outcome, len(payload)) + payload)
    os._exit(0)


def _become(request: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["paths"][0])
    checkout = request["checkout"]
    rest = [path for path in sys.path if path not in ("", checkout)]
    sys.path[:] = request["paths"] + rest
    # The function must not see the stack's own package.
    for name in [name for name in sys.modules if name == "local" or name.startswith("local.")]:
        del sys.modules[name]
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    handler = logging.StreamHandler(sys.stdout)
    form = f"[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t{request['request_id']}\t%(message)s"
    formatter = logging.Formatter(form, "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.getLogger().addHandler(handler)


def _invoke(request: dict[str, Any], event_text: bytes, connection: socket.socket) -> tuple[bytes, bytes]:
    try:
        function = _load(request["handler"])
        deadline_ms = time.time_ns() // 1_000_000 + request["timeout_ms"]
        ready = json.dumps({"deadline_ms": deadline_ms}).encode()
        connection.sendall(FRAME.pack(READY, len(ready)) + ready)
        return RESULT, _marshal(function(json.loads(event_text), Context(request, deadline_ms)))
    except _Fault as fault:
        failure = _failure(request, fault.error_type, str(fault), [])
    except Exception as error:
        failure = _failure(request, type(error).__name__, str(error), _frames(error.__traceback__))
    sys.stdout.write("[ERROR] " + json.dumps(failure) + "\n")
    return FAILURE, json.dumps(failure).encode()


def _load(handler: str) -> Callable[[Any, Any], Any]:
    module_name, _, function_name = handler.rpartition(".")
    if not module_name:
        raise _Fault("Runtime.MalformedHandlerName", f"Bad handler '{handler}': it has no module")
    try:
        module = importlib.import_module(module_name.replace("/", "."))
    except ImportError as error:
        traceback.print_exc(file=sys.stdout)
        raise _Fault("Runtime.ImportModuleError", f"Unable to import module '{module_name}': {error}") from error
    except SyntaxError as error:
        raise _Fault("Runtime.UserCodeSyntaxError", f"Syntax error in module '{module_name}': {error}") from error
    function: Callable[[Any, Any], Any] | None = getattr(module, function_name, None)
    if function is None:
        raise _Fault("Runtime.HandlerNotFound", f"Handler '{function_name}' missing on module '{module_name}'")
    return function


def _marshal(response: Any) -> bytes:
    def number(value: Any) -> Any:
        if isinstance(value, decimal.Decimal):
            return int(value) if value == value.to_integral_value() else float(value)
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")

    try:
        return json.dumps(response, ensure_ascii=False, default=number).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise _Fault("Runtime.MarshalError", f"Unable to marshal response: {error}") from error


def _frames(trace: TracebackType | None) -> list[str]:
    frames = [frame for frame in traceback.extract_tb(trace) if frame.filename != __file__]
    return traceback.format_list(frames)


def _failure(request: dict[str, Any], error_type: str, message: str, frames: list[str]) -> dict[str, Any]:
    return {
        "errorMessage": message,
        "errorType": error_type,
        "requestId": request["request_id"],
        "stackTrace": frames,
    }
