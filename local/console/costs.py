"""What each turn cost: the store calls of the invocations that wrote its record.

moto counts no capacity units, so they are reckoned here by DynamoDB's own rule (a write: one unit a kilobyte begun, two
in a transaction; a read: one a four kilobytes begun, half of it where it is not strong) from the sizes on the wire,
which are somewhat larger than the items. A figure for comparing turns, not for a bill.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from local.console.source import Source

WRITES: Final = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"})
READS: Final = frozenset({"GetItem", "Query", "BatchGetItem", "TransactGetItems", "Scan"})
INVOCATIONS_KEPT: Final = 5_000

_TURN: Final = re.compile(r"TURN#(\d{16})")


def units_of(call: dict[str, Any]) -> tuple[float, float]:
    """The read and the write units that a call took, as (read, write)."""
    if call["service"] != "dynamodb" or not call["status"]:
        return 0.0, 0.0
    operation = call["operation"]
    if operation in WRITES:
        each = 2 if operation == "TransactWriteItems" else 1
        return 0.0, float(max(1, len(call["items"]), math.ceil(call["sent_bytes"] / 1024)) * each)
    if operation in READS:
        return max(1, math.ceil(call["received_bytes"] / 4096)) * (1.0 if call["consistent"] else 0.5), 0.0
    return 0.0, 0.0


@dataclass
class _Invocation:
    calls: list[dict[str, Any]] = field(default_factory=list)
    turns: dict[str, int] = field(default_factory=dict)  # the highest turn that it wrote, by partition


class Costs:
    """Keeps up with the stack's log of calls. Safe under threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._last = 0
        self._invocations: OrderedDict[str, _Invocation] = OrderedDict()

    def of(self, pk: str) -> dict[int, dict[str, Any]]:
        """By turn of one conversation: `calls` (each a plain value), `read` and `write` units, `round_ms`."""
        with self._lock:
            self._keep_up()
            found: dict[int, list[dict[str, Any]]] = {}
            for invocation in self._invocations.values():
                turn = invocation.turns.get(pk)
                if turn is not None:
                    ours = [call for call in invocation.calls if not call["items"] or _names(call, pk)]
                    found.setdefault(turn, []).extend(ours)
        return {turn: _summed(calls) for turn, calls in found.items()}

    def writers_of(self, pk: str, turn: int) -> list[str]:
        """The invocations (request ids) that wrote a turn's record, in order."""
        with self._lock:
            self._keep_up()
            return [name for name, each in self._invocations.items() if each.turns.get(pk) == turn]

    def _keep_up(self) -> None:
        seen = self._source.control("GET", f"calls?since={self._last}")
        if seen["last"] < self._last:  # another stack than before
            self._invocations.clear()
            seen = self._source.control("GET", "calls?since=0")
        self._last = seen["last"]
        for call in seen["calls"]:
            # What no function did, the state machine's own task did: each such call stands for itself.
            name = call["request_id"] or f"machine-{call['number']}"
            invocation = self._invocations.setdefault(name, _Invocation())
            invocation.calls.append(call)
            if call["operation"] in WRITES and call["status"] == 200:
                for pk, sk in call["items"]:
                    if match := _TURN.fullmatch(sk):
                        invocation.turns[pk] = max(int(match[1]), invocation.turns.get(pk, 0))
        while len(self._invocations) > INVOCATIONS_KEPT:
            self._invocations.popitem(last=False)


def _names(call: dict[str, Any], pk: str) -> bool:
    return any(partition == pk for partition, _ in call["items"])


def _summed(calls: list[dict[str, Any]]) -> dict[str, Any]:
    shown = []
    for call in sorted(calls, key=lambda call: call["number"]):
        read, write = units_of(call)
        facts = ("number", "at_ms", "service", "operation", "function", "status", "error", "fault", "duration_ms")
        shown.append({name: call[name] for name in facts} | {"read": read, "write": write})
    return {
        "calls": shown,
        "store": sum(1 for call in shown if call["service"] == "dynamodb"),
        "read": sum(call["read"] for call in shown),
        "write": sum(call["write"] for call in shown),
    }
