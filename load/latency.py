"""How long turnkeep itself took: each invocation's time, less what it waited for others. Pure.

Three sources, joined by the invocation's id: the meter's lines (from inside the process), the functions' own log lines
(what the invocation did), and the endpoint's calls (how long moto was at work).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from load.layer.spans import covered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORK = (
    ("a turn, its caller waiting", "request", "claimed"),
    ("a turn that is queued", "request", "queued"),
    ("a queued turn that is run", "worker", "begun"),
    ("an answer that is taken", "request", "answered"),
    ("a paused turn that goes on", "resume", "resumed"),
)
"""What is measured: its name, the message of its log line, and the note that says that it was done."""

OTHER_WORK = frozenset({"takeover", "conflict", "closed_dead", "restarted", "segment"})
"""Notes of invocations that had more to do than usual: they are not measured."""


@dataclass(frozen=True)
class Row:
    """One kind of work.

    Attributes:
        own_ms: turnkeep's own part at the 50th, 95th and 99th percentile.
        start_ms: of it, until the first request to AWS leaves: what a process does once, at the median.
        cpu_ms: the process's CPU time in the handler, at the median.
        aws_ms: waiting for the AWS endpoint, at the median; moto_ms: of it, while moto was at work.
    """

    name: str
    count: int
    own_ms: tuple[float, float, float]
    start_ms: float
    cpu_ms: float
    aws_ms: float
    moto_ms: float


def rows_of(
    meter: Sequence[Mapping[str, Any]], log: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]
) -> list[Row]:
    """The measured rows, in the order of `WORK`; kinds of work that nobody did are left out.

    Args:
        meter: the meter's lines.
        log: entries of the functions' log file.
        calls: the endpoint's calls.
    """
    metered = {line["invocation"]: line for line in meter}
    moto = _moto_ms(calls)
    found: dict[str, list[tuple[Mapping[str, Any], float]]] = defaultdict(list)
    for entry in log:
        line = metered.get(entry["request_id"])
        name = _work_of(entry["line"])
        if name and line:
            found[name].append((line, moto.get(entry["request_id"], 0)))
    return [_row(name, found[name]) for name, _, _ in WORK if found[name]]


def _work_of(text: str) -> str:
    """Which work a line tells of; "" for none, and for one that had more to do than usual."""
    if '"message"' not in text or '"notes"' not in text:
        return ""
    try:
        line = json.loads(text)
    except ValueError:
        return ""
    notes = line.get("notes", {}).keys()
    if notes & OTHER_WORK or line.get("code"):
        return ""
    if "queued" in notes:
        return WORK[1][0]
    return next((name for name, message, note in WORK if line.get("message") == message and note in notes), "")


def _moto_ms(calls: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How long moto was at work for each invocation; calls side by side count once."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for call in calls:
        if call["request_id"]:
            spans[call["request_id"]].append((call["at_ms"] - call["duration_ms"], call["at_ms"]))
    return {request_id: float(covered(each)) for request_id, each in spans.items()}


def _row(name: str, found: Sequence[tuple[Mapping[str, Any], float]]) -> Row:
    own = [line["own_us"] / 1000 for line, _ in found]
    return Row(
        name=name,
        count=len(found),
        own_ms=(percentile(own, 50), percentile(own, 95), percentile(own, 99)),
        start_ms=percentile([line["first_us"] / 1000 for line, _ in found], 50),
        cpu_ms=percentile([line["cpu_us"] / 1000 for line, _ in found], 50),
        aws_ms=percentile([line["aws_us"] / 1000 for line, _ in found], 50),
        moto_ms=percentile([moto for _, moto in found], 50),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of a hundred do not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)] if ordered else 0.0
