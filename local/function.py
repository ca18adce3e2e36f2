"""A deployed function, an invocation of it in progress, and how an invocation ended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local.settings import ACCOUNT, REGION

if TYPE_CHECKING:
    from local.logs import LogRing


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


@dataclass
class Running:
    """An invocation in progress."""

    request_id: str
    trace_root: str
    function: Function
    started_ms: int
    pid: int = 0
    in_handler: bool = False
    ended: bool = False
    tail: bytearray = field(default_factory=bytearray)


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


def failed(running: Running, logs: LogRing, error_type: str, message: str) -> Outcome:
    """The outcome of an invocation that its runtime, not the function, reports as failed; logged as such."""
    report = json.dumps({"errorType": error_type, "errorMessage": message})
    logs.add(running.function.logical_id, running.request_id, report)
    return Outcome(running.request_id, report.encode(), True, bytes(running.tail))
