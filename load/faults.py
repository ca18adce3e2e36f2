"""What the functions' logs say went wrong that nobody made go wrong. Pure."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from load.audit import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KILLED = "signal: killed"
TIMED_OUT = "Sandbox.Timedout"
"""Where every call to the store takes a second, no margin is wide enough. It is a death like any other."""

LIVED_WITH = frozenset({"LeaseHeldError", "TurnOutOfTimeError", "StoreUnavailableError"})
"""Errors that somebody comes again for: the state machine behind a lease, the queue, a sender."""


def faults_of(log: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """One finding for each kind of failure that is neither a kill of ours nor lived with.

    Args:
        log: entries of the functions' log file.
    """
    counts = Counter(f"{entry['function']}: {why}" for entry in log for why in _failures(entry["line"]))
    return [Finding("fault", f"{why} ({count} times)") for why, count in sorted(counts.items())]


def died_in(log: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> set[str]:
    """The conversations in which a process died, or stopped because its time was over.

    Args:
        log: entries of the functions' log file.
        calls: the endpoint's calls: a dead process's tell what it was about.
    """
    dead = {entry["request_id"] for entry in log if '"errorType"' in entry["line"]}
    found = {_conversation(pk) for call in calls if call["request_id"] in dead for pk, _ in call["items"]}
    for entry in log:
        if '"out_of_time"' in entry["line"] and '"conversation"' in entry["line"]:
            found.add(str(json.loads(entry["line"])["conversation"]))
    return found


def _conversation(pk: str) -> str:
    return pk.rpartition("/")[2]


def out_of_time(log: Sequence[Mapping[str, Any]]) -> int:
    """How many invocations were ended by their time limit."""
    return sum(TIMED_OUT in entry["line"] and '"errorType"' in entry["line"] for entry in log)


def _failures(line: str) -> Iterator[str]:
    if not line.startswith("{"):
        return
    try:
        facts = json.loads(line)
    except ValueError:
        return
    if "errorType" in facts:  # the runtime's own report of an invocation that died
        if facts["errorType"] != TIMED_OUT and KILLED not in facts.get("errorMessage", ""):
            yield facts["errorType"]
    elif facts.get("level") in ("ERROR", "CRITICAL"):
        errors = facts.get("error") or [{}]
        name = str(errors[0].get("class", "an error")).rpartition(".")[2]
        if name not in LIVED_WITH:
            yield f"{name} {facts.get('code', '')}".strip()
