"""What a run came to: a table for the terminal, and the same as a page."""

from __future__ import annotations

import os
import platform
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from load.audit import KINDS
from load.latency import percentile
from load.plan import TURN_TIME_S

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping, Sequence

    from load.audit import Verdict
    from load.latency import Row
    from load.plan import Plan

MOST_FINDINGS = 20
LABEL_WIDTH = 26
NAME_WIDTH = 31
ROW_HEADS = ("count", "p50", "p95", "p99", "start", "CPU", "AWS", "moto")


@dataclass
class Outcome:
    """A whole run.

    Attributes:
        killed: processes that got a SIGKILL, by function.
        out_of_time: invocations that the sandbox ended, because the machine had too much to do.
        took_over: turns that went on behind a death.
        closed_dead: turns that a death ended.
        waits_ms: how long callers waited for answers that came at the first try.
        settle_s: how long it took after the last message until every sender knew.
        troubles: what kept the run from being one, such as a Locust that did not start.
    """

    plan: Plan
    verdict: Verdict
    killed: Counter[str]
    out_of_time: int
    took_over: int
    closed_dead: int
    rows: Sequence[Row]
    waits_ms: Sequence[int]
    settle_s: float
    troubles: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Nothing was lost or doubled, nothing is stuck, and something was measured."""
        return self.verdict.holds and not self.troubles and self.verdict.answered > 0


def lines_of(outcome: Outcome) -> list[tuple[str, str]]:
    """What was counted, as labels and values."""
    verdict = outcome.verdict
    return [
        ("messages sent", f"{verdict.sent}, in {verdict.conversations} conversations"),
        ("turns answered", str(verdict.answered)),
        ("of them, queued before", str(verdict.queued)),
        ("asked a person", f"{verdict.asked}; {verdict.declined} declined, {verdict.contested} answered twice at once"),
        ("submitted twice at once", str(verdict.sent_twice)),
        ("refused, by name", _counted(verdict.refused)),
        ("turns failed, by name", _counted(verdict.failed)),
        ("processes killed", f"{outcome.killed.total()}: {_counted(outcome.killed)}"),
        (
            "after deaths",
            f"{outcome.took_over} turns taken over, {outcome.closed_dead} closed by the next message "
            f"({verdict.given_up} senders had given up), {verdict.in_doubt} asked in doubt",
        ),
        ("told to come again", _counted(verdict.told_again)),
        *([("ended by their time limit", str(outcome.out_of_time))] if outcome.out_of_time else []),
    ]


def as_text(outcome: Outcome) -> str:
    """The report for a terminal."""
    plan, verdict = outcome.plan, outcome.verdict
    lines = [f"{plan.load_s} s, {plan.people} people, {_machine()}; settled {outcome.settle_s:.0f} s later", ""]
    for label, value in lines_of(outcome):
        lines += textwrap.wrap(value, 92, initial_indent=f"{label:<{LABEL_WIDTH}}", subsequent_indent=" " * LABEL_WIDTH)
    lines += ["", _line("turnkeep's own part, ms", ROW_HEADS)]
    lines += [_line(row.name, [str(row.count), *_figures(row)]) for row in outcome.rows]
    lines += textwrap.wrap(_waits(outcome), 92)
    lines += ["", f"{_zeros(outcome)}: {'holds' if outcome.holds else 'DOES NOT HOLD'}"]
    lines += [f"  {finding}" for finding in verdict.findings[:MOST_FINDINGS]]
    if len(verdict.findings) > MOST_FINDINGS:
        lines.append(f"  and {len(verdict.findings) - MOST_FINDINGS} more")
    lines += [f"  {trouble}" for trouble in outcome.troubles]
    return "\n".join(lines)


PAGE_HEAD = """# Under load

Written by `{command} LOAD_PAGE=docs/load.md`
on a machine of {machine}, beside whatever else it did. Every figure is of that one run.

[Locust](https://locust.io) plays {people} people who write to a local stack for {load_s} s, each as
[http-api.md](http-api.md) tells clients to: an `Idempotency-Key` with every POST, and the same request again until it
is answered. Six messages in ten are sent twice at once, are in another one's way, ask a person, are queued, or use a
key again. Half of the conversations are `exit`, the others `async` and `sync`. Every invocation is a process of its
own, and {kills:g} % of them (reads left out) are to get a SIGKILL between two of their calls to AWS; some are through
before. A turn may take {turn_s} s here instead of 29, so that leases end soon.

The agent's tools act `once`, and write what they did into a book that outlives every process: what was done is counted,
not believed. Where a process died inside a tool, the person who is asked in doubt looks into that book.

When every sender knows what became of their messages, each conversation is read through the API and from the table, and
compared with what its sender was told:

- **lost**: taken by the API and not there exactly as told; an answer that is kept otherwise than it was read; a turn
  that is complete and did not act.
- **doubled**: stands twice, became two turns, got two answers or two decisions, acted twice; or was refused and is
  there all the same.
- **stuck**: a turn that does not end, a sender who never learned.
- **faults**: a refusal that nothing here may cause, a turn that failed where no process died, an error in a function's
  log, a process that died by itself.

Any of them ends the command with an error, and it is a step of CI. **{zeros}.**

## What became of the messages

| | |
|---|---|
"""

PAGE_LATENCY = """
## turnkeep's own part

An invocation's time in its handler, measured inside the process, less the time in which it waited for the AWS endpoint,
slept while another process was at work, or ran the agent's model and tools. Milliseconds; turns in `exit` mode, and no
invocation that cleaned up behind a death.

Each invocation here is a fresh process: *start* is the part until the first request to AWS leaves (imports, clients,
the agent's module), which Lambda pays once a process. *CPU* is what the handler computes, all threads. *AWS* is the
wait for the endpoint, of which the emulator was at work for *moto* (its calls' own times, in whole milliseconds):
neither is turnkeep's. The process's fork and the import of the function itself come before the handler and are in none
of these. Locust, moto and all functions share this machine's cores: the percentiles hold many waits for a core, CPU
does not.

| | count | p50 | p95 | p99 | start, p50 | CPU, p50 | AWS, p50 | moto, p50 |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
"""


def as_page(outcome: Outcome) -> str:
    """The report as ``docs/load.md``."""
    plan = outcome.plan
    head = PAGE_HEAD.format(
        command=plan.command,
        machine=_machine(),
        people=plan.people,
        load_s=plan.load_s,
        kills=100 * plan.kill_share,
        turn_s=TURN_TIME_S,
        zeros=_zeros(outcome).capitalize(),
    )
    counts = "\n".join(f"| {label} | {value} |" for label, value in lines_of(outcome))
    rows = "\n".join(f"| {row.name} | {row.count} | {' | '.join(_figures(row))} |" for row in outcome.rows)
    return f"{head}{counts}\n{PAGE_LATENCY}{rows}\n\n{textwrap.fill(_waits(outcome), 120)}\n"


def _line(name: str, figures: Sequence[str]) -> str:
    return f"{name:<{NAME_WIDTH}}" + "".join(f"{figure:>8}" for figure in figures)


def _figures(row: Row) -> list[str]:
    return [f"{value:.0f}" for value in (*row.own_ms, row.start_ms, row.cpu_ms, row.aws_ms, row.moto_ms)]


def _zeros(outcome: Outcome) -> str:
    names = {kind: "faults" if kind == "fault" else kind for kind in KINDS}
    return ", ".join(f"{names[kind]} {outcome.verdict.count(kind)}" for kind in KINDS)


def _waits(outcome: Outcome) -> str:
    waits = [float(each) for each in outcome.waits_ms]
    p50, p95, p99 = (percentile(waits, share) for share in (50, 95, 99))
    return (
        f"A caller waited {p50:.0f} ms for an answer (p95 {p95:.0f}, p99 {p99:.0f}), with the fork of a process, its "
        "imports, moto and the waits for a core in it."
    )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores} cores ({platform.machine()}), Python {platform.python_version()}"


def took_over_and_closed(log: Iterable[Mapping[str, object]]) -> tuple[int, int]:
    """How many turns went on behind a death, and how many were closed by the next message, by the functions' logs."""
    text = [str(entry["line"]) for entry in log]
    return sum('"takeover":' in line for line in text), sum('"closed_dead":' in line for line in text)
