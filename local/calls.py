"""What was asked of the local AWS endpoint: counts by service and operation, and the calls of each invocation."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import Any

KEPT = 20_000


@dataclass(frozen=True)
class Call:
    """One call as the endpoint saw it.

    Attributes:
        function: Logical id of the calling function, or "" for a caller that is no function.
        request_id: The invocation that made the call, or "".
        status: The answer's HTTP status; 0 where the connection was dropped.
        error: The answer's error code, or "".
        fault: Kind of the injected fault that it met, or "".
        machine: A state machine made it, with its own role.
        permissions: What IAM would have to allow the caller for it, each as `action resource`.
        conditions: The condition keys that IAM would see, where a state machine made it.
        items: The ledger's items that it names, each as partition and sort key.
        consistent: It is a strongly consistent read.
    """

    number: int
    at_ms: int
    service: str
    operation: str
    function: str
    request_id: str
    status: int
    error: str
    fault: str
    duration_ms: int
    sent_bytes: int
    received_bytes: int
    machine: bool
    permissions: list[str]
    conditions: dict[str, list[str]]
    items: list[list[str]]
    consistent: bool


class CallLog:
    """The latest calls and the counts since the last reset. Safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[Call] = deque(maxlen=KEPT)
        self._counts: Counter[str] = Counter()
        self._number = 0

    def add(self, **facts: Any) -> None:
        """Records one call."""
        with self._lock:
            self._number += 1
            call = Call(number=self._number, **facts)
            self._calls.append(call)
            self._counts[f"{call.service}:{call.operation}"] += 1

    def reset(self) -> None:
        """Forgets every call."""
        with self._lock:
            self._calls.clear()
            self._counts.clear()

    def snapshot(self, request_id: str | None = None, since: int = 0) -> dict[str, Any]:
        """Counts since the last reset, and the calls after number `since`, of one invocation or of all."""
        with self._lock:
            # From the newest on: whoever asks often wants the few that are new, and thousands are kept.
            new = itertools.takewhile(lambda call: call.number > since, reversed(self._calls))
            calls = [asdict(call) for call in new if request_id in (None, call.request_id)]
            return {"counts": dict(self._counts), "calls": calls[::-1], "last": self._number}
