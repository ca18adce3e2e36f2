"""Faults that the local AWS endpoint injects on request, so that tests meet what AWS really does at times."""

from __future__ import annotations

import itertools
import json
import re
import threading
from dataclasses import asdict, dataclass, field
from typing import Any

KINDS = frozenset(
    {
        "slow",  # waits `delay_ms`, then applies the call
        "slow_answer",  # applies the call, then waits `delay_ms`
        "hold",  # waits until released, then applies the call
        "hold_answer",  # applies the call, then waits until released
        "hold_cut",  # waits until released, then drops the connection; the call is not applied
        "cut",  # drops the connection; the call is not applied
        "lost",  # applies the call, then drops the connection: nobody hears of it
        "throttle",  # refuses as the service refuses when it is asked too much
        "error",  # refuses with `status`, `code` and `message`
        "cancelled",  # TransactionCanceledException with `reasons`
        "in_progress",  # TransactionInProgressException
        "partial",  # leaves `leave` items of a batch unprocessed, applies the rest
    }
)


@dataclass
class Fault:
    """One fault: what it does, and which calls it meets.

    Attributes:
        kind: One of `KINDS`.
        service: The signing name (`dynamodb`, `states`, `sqs`, `lambda`, `events`), or None for any.
        operation: The API's name of the call (`PutItem`), or None for any.
        contains: Texts that must all be in the request's body.
        matches: A regular expression that must be found in the request's body.
        function: The logical id or name of the calling function; `-` means a caller that is no function.
        skip: How many matching calls pass first (0: the first one meets the fault).
        times: How many calls meet it; None for all from then on.
    """

    kind: str
    service: str | None = None
    operation: str | None = None
    contains: list[str] = field(default_factory=list)
    matches: str | None = None
    function: str | None = None
    skip: int = 0
    times: int | None = 1
    delay_ms: int = 0
    status: int = 500
    code: str = "InternalServerError"
    message: str = "Injected by the local stack."
    reasons: list[dict[str, Any]] = field(default_factory=list)
    leave: int = 1
    id: int = 0
    met: int = 0
    met_by: list[str] = field(default_factory=list)  # the invocations that met it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind of fault {self.kind!r}; known: {', '.join(sorted(KINDS))}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def covers(self, service: str, operation: str, body: bytes, callers: tuple[str, ...]) -> bool:
        """Is this call one of those that the fault is about?"""
        if self.service not in (None, service) or self.operation not in (None, operation):
            return False
        if self.kind == "partial" and operation not in ("BatchGetItem", "BatchWriteItem"):
            return False
        if self.function is not None and (bool(callers) if self.function == "-" else self.function not in callers):
            return False
        if not self.contains and self.matches is None:
            return True
        text = body.decode("utf-8", "replace")
        return all(part in text for part in self.contains) and (
            self.matches is None or re.search(self.matches, text) is not None
        )


class FaultBook:
    """The faults that are set, in the order in which they were set. Safe under threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._faults: dict[int, Fault] = {}
        self._seen: dict[int, int] = {}
        self._gates: dict[int, threading.Event] = {}

    def add(self, fault: Fault) -> Fault:
        """Sets a fault and gives it its id."""
        with self._lock:
            fault.id = next(self._ids)
            self._faults[fault.id] = fault
            self._seen[fault.id] = 0
            self._gates[fault.id] = threading.Event()
        return fault

    def meet(self, service: str, operation: str, body: bytes, callers: tuple[str, ...]) -> Fault | None:
        """The fault that this call meets, counted as met; None for a call that passes."""
        with self._lock:
            for fault in self._faults.values():
                if not fault.covers(service, operation, body, callers):
                    continue
                if fault.times is not None and fault.met >= fault.times:
                    continue
                self._seen[fault.id] += 1
                if self._seen[fault.id] > fault.skip:
                    fault.met += 1
                    return fault
        return None

    def wait_for_release(self, fault: Fault, timeout_s: float = 600.0) -> None:
        """Blocks a held call until its fault is released or removed."""
        gate = self._gates.get(fault.id)
        if gate is not None:
            gate.wait(timeout_s)

    def release(self, fault_id: int) -> bool:
        """Lets go of every call that a `hold` keeps, now and later."""
        gate = self._gates.get(fault_id)
        if gate is None:
            return False
        gate.set()
        return True

    def remove(self, fault_id: int | None = None) -> None:
        """Removes one fault, or all; whatever they hold is let go."""
        with self._lock:
            for each in list(self._faults) if fault_id is None else [fault_id]:
                self._faults.pop(each, None)
                self._seen.pop(each, None)
                gate = self._gates.pop(each, None)
                if gate is not None:
                    gate.set()

    def snapshot(self) -> list[dict[str, Any]]:
        """Every fault as plain values, with how many calls met it."""
        with self._lock:
            return [fault.to_dict() for fault in self._faults.values()]


_THROTTLES = {
    "dynamodb": ("ProvisionedThroughputExceededException", "The level of configured provisioned throughput for the "
                 "table was exceeded. Consider increasing your provisioning level with the UpdateTable API."),
    "lambda": ("TooManyRequestsException", "Rate Exceeded."),
    "sqs": ("ThrottlingException", "Request is throttled."),
}  # fmt: skip


def refusal_of(fault: Fault, service: str) -> tuple[int, str, str, dict[str, Any]]:
    """Status, code, message and further members of the answer that a refusing fault gives."""
    match fault.kind:
        case "throttle":
            code, message = _THROTTLES.get(service, ("ThrottlingException", "Rate exceeded"))
            return (429 if service == "lambda" else 400), code, message, {}
        case "cancelled":
            reasons = fault.reasons or [{"Code": "TransactionConflict"}]
            codes = ", ".join(str(reason.get("Code", "None")) for reason in reasons)
            text = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
            return 400, "TransactionCanceledException", text, {"CancellationReasons": reasons}
        case "in_progress":
            text = "The transaction with the given request token is already in progress."
            return 400, "TransactionInProgressException", text, {}
        case _:
            return fault.status, fault.code, fault.message, {}


def split_batch(operation: str, body: bytes, leave: int) -> tuple[bytes, dict[str, Any]]:
    """Takes the last `leave` items out of a batch.

    Returns:
        The body with what is left to apply (empty where nothing is), and the items taken out, in the shape of
        `UnprocessedItems` (BatchWriteItem) or `UnprocessedKeys` (BatchGetItem).
    """
    request = json.loads(body)
    taken: dict[str, Any] = {}
    for table in reversed(list(request["RequestItems"])):
        entry = request["RequestItems"][table]
        items = entry["Keys"] if operation == "BatchGetItem" else entry
        cut = max(0, len(items) - max(0, leave))
        out, items[cut:] = items[cut:], []
        leave -= len(out)
        if out:
            taken[table] = {**entry, "Keys": out} if operation == "BatchGetItem" else out
        if not items:
            del request["RequestItems"][table]
    return (json.dumps(request).encode() if request["RequestItems"] else b""), taken
