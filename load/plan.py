"""What a run is asked to do, and the bounds that follow from it."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

N = TypeVar("N", int, float)

TURN_TIME_S = 10
"""How long a turn may run in here: as short as the template takes, so that what died is gone on with soon."""

START_LIMIT_S = 90
SETTLE_LIMIT_S = 120
"""Behind the last message. Most that one death costs: the queue's redelivery (25 s), or the state machine's retries
(2 + 4 + 8 + 16 s) until the lease (20 s) is over, and the run itself. Two deaths of one turn fit in."""
AUDIT_LIMIT_S = 120


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        load_s: how long messages are sent.
        people: how many people write at the same time, each into a conversation of their own at a time.
        kill_share: which share of invocations gets a SIGKILL, 0 to 1.
        seed: of what is said and killed; what meets what is up to the machine.
        page: where the report is written as Markdown, or None.
    """

    load_s: int = 60
    people: int = 5
    kill_share: float = 0.15
    seed: int = 1
    page: Path | None = None

    @property
    def limit_s(self) -> int:
        """When the watchdog ends the run, whatever it does."""
        return START_LIMIT_S + self.load_s + SETTLE_LIMIT_S + AUDIT_LIMIT_S

    @property
    def command(self) -> str:
        """The command that does the same."""
        return f"make load LOAD_S={self.load_s} LOAD_USERS={self.people} LOAD_KILLS={self.kill_share:g}"


def read_plan(arguments: list[str] | None = None) -> Plan:
    """The plan of a command line; what it does not say comes from the environment, as make hands it over."""
    parser = argparse.ArgumentParser(prog="python -m load", description="Drives a local stack and audits what is left.")
    parser.add_argument(
        "--seconds", type=int, default=_number("LOAD_S", Plan.load_s), help="how long messages are sent"
    )
    parser.add_argument("--people", type=int, default=_number("LOAD_USERS", Plan.people), help="who write at once")
    parser.add_argument("--kills", type=float, default=_number("LOAD_KILLS", Plan.kill_share), help="share, 0 to 1")
    parser.add_argument("--seed", type=int, default=_number("LOAD_SEED", Plan.seed))
    parser.add_argument(
        "--page", type=Path, default=os.environ.get("LOAD_PAGE") or None, help="writes the report there"
    )
    asked = parser.parse_args(arguments)
    if not (5 <= asked.seconds <= 3600 and 1 <= asked.people <= 200 and 0 <= asked.kills <= 1):
        parser.error("5 to 3600 seconds, 1 to 200 people, a share of kills from 0 to 1")
    return Plan(asked.seconds, asked.people, asked.kills, asked.seed, asked.page)


def _number(name: str, default: N) -> N:
    said = os.environ.get(name)
    return type(default)(said) if said else default
