"""A function's handler with a stop watch around it: how long it was at work, and how long it waited for others.

The template's handler is replaced by ``metered.handler``, which calls the function's own. It measures from inside the
process, so that neither the fork nor the gateway is in it, and notes the stretches in which the process waits for the
AWS endpoint, sleeps on purpose, or runs the agent. What is left is turnkeep's own part.

Each invocation that reaches its end writes one line to the file that LOAD_METER names.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.httpsession import URLLib3Session
from spans import covered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AWS, ASLEEP, AGENT = "aws", "asleep", "agent"

_spans: list[tuple[str, int, int]] = []


@contextmanager
def noted(kind: str) -> Iterator[None]:
    """Notes the time that a block takes. Appending to a list is safe under threads."""
    began_ns = time.monotonic_ns()
    try:
        yield
    finally:
        _spans.append((kind, began_ns, time.monotonic_ns()))


def _watch(owner: Any, name: str, kind: str) -> None:
    plain: Callable[..., Any] = getattr(owner, name)

    def watched(*arguments: Any, **named: Any) -> Any:
        with noted(kind):
            return plain(*arguments, **named)

    setattr(owner, name, watched)


_watch(URLLib3Session, "send", AWS)
_watch(time, "sleep", ASLEEP)
_began_ns = time.monotonic_ns()
_own_handler = importlib.import_module("app").handler
_imported_ns = time.monotonic_ns() - _began_ns


def handler(event: dict[str, Any], context: Any) -> Any:
    """Calls the function's own handler and writes down how long what took."""
    _spans.clear()
    began_ns, began_cpu_ns = time.monotonic_ns(), time.process_time_ns()
    try:
        return _own_handler(event, context)
    finally:
        ended_ns, ended_cpu_ns = time.monotonic_ns(), time.process_time_ns()
        _write(context, ended_ns - began_ns, ended_cpu_ns - began_cpu_ns, began_ns)


def _write(context: Any, wall_ns: int, cpu_ns: int, began_ns: int) -> None:
    spans = list(_spans)
    waits = {kind: covered((b, e) for k, b, e in spans if k == kind) for kind in (AWS, ASLEEP, AGENT)}
    first_ns = min((begin for kind, begin, _ in spans if kind == AWS), default=began_ns + wall_ns) - began_ns
    line = {
        "invocation": context.aws_request_id,
        "import_us": _imported_ns // 1000,
        "wall_us": wall_ns // 1000,
        "cpu_us": cpu_ns // 1000,
        "first_us": first_ns // 1000,
        "own_us": (wall_ns - covered((begin, end) for _, begin, end in spans)) // 1000,
        **{f"{kind}_us": ns // 1000 for kind, ns in waits.items()},
    }
    with Path(os.environ["LOAD_METER"]).open("ab", buffering=0) as meter:  # one write, appended whole
        meter.write(json.dumps(line).encode() + b"\n")
