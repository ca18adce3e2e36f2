"""The costs as the tables of ``docs/operations.md``."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.costs import prices as p
from local.settings import ROOT
from local.template import load_yaml
from turnkeep.entry.observability import COUNTED, OUTCOMES, REFUSALS_COUNTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.costs.life import Life
    from bench.costs.measure import Units

WIDTH: Final = 120
MINUTES_A_MONTH: Final = 43_800
RECONCILE_S: Final = 0.1
"""What one look of the reconciler is taken to last on Lambda: an assumption, nothing here ran there."""

MEMORY_GB: Final = 1.0
"""The template's MemorySize."""

WORKERS_OWN_REQUESTS: Final = 2
"""Lambda receives a queued turn's message and deletes it."""


@dataclass(frozen=True)
class Measured:
    """Everything that the tables are computed from."""

    turns: Sequence[Units]
    question: Sequence[Units]
    idle: Units
    lives: dict[str, Life]


def section(found: Measured) -> str:
    """What stands between the page's marks."""
    return "\n".join([_turns(found), _questions(found), _idle(found), _prices()])


def dynamodb_usd(units: Units) -> float:
    """What so many units cost."""
    return p.WRITES.of(units.writes) + p.READS.of(units.reads)


def services_usd(life: Life) -> float:
    """What everything beside DynamoDB and Lambda's time costs."""
    queue = life.queue + (WORKERS_OWN_REQUESTS if life.queue else 0)
    return (
        p.API_REQUESTS.of(life.requests)
        + p.INVOCATIONS.of(life.invocations)
        + p.TRANSITIONS.of(life.transitions)
        + p.EVENTS.of(life.events)
        + p.QUEUE_REQUESTS.of(queue)
        + p.LOG_GB.of(life.log_bytes / 1e9)
    )


def _turns(found: Measured) -> str:
    life, queued = found.lives["turn"], found.lives["queued turn"]
    lines = [
        "| one turn | write units | read units | calls to DynamoDB | DynamoDB, a million turns | with the rest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for units in found.turns:
        usd = 1e6 * dynamodb_usd(units)
        lines.append(
            f"| {units.what} | {units.writes} | {units.reads:g} | {units.calls} | {_usd(usd)} "
            f"| {_usd(usd + 1e6 * services_usd(life))} |"
        )
    more = 1e6 * (services_usd(queued) - services_usd(life))
    second = 1e6 * p.GB_SECONDS.of(MEMORY_GB)
    told = f"""
        The first two are turns of 1 KB in and 1 KB out behind a full window of twenty; the others are short and the
        second of their conversation. *The rest* is the API, Lambda's requests, {life.events} event and
        {round(life.log_bytes, -1)} bytes of log. Lambda's time comes on top, and the model: each second that a turn
        takes is {_usd(second)} a million turns, at {MEMORY_GB:g} GB, mostly spent on waiting for the
        model. A queued turn adds {_usd(more)} a million: another invocation, and
        {queued.queue + WORKERS_OWN_REQUESTS} requests of the queue.
    """
    return _paragraphs(lines, told)


def _questions(found: Measured) -> str:
    life = found.lives["question"]
    lines = ["| a question | write units | read units | calls to DynamoDB |", "|---|---:|---:|---:|"]
    lines += [f"| {one.what} | {one.writes} | {one.reads:g} | {one.calls} |" for one in found.question]
    whole = found.question[0]
    for one in found.question[1:]:
        whole += one
    lines.append(f"| **its whole life** | {whole.writes} | {whole.reads:g} | {whole.calls} |")
    usd = 1_000 * (dynamodb_usd(whole) + services_usd(life))
    steps = 1_000 * p.TRANSITIONS.of(life.transitions)
    told = f"""
        With it go {life.transitions} state transitions, {life.requests} requests, {life.invocations} invocations,
        {life.events} events and {round(life.log_bytes, -1):,} bytes of log: {_usd(usd)} a thousand questions, of which
        {_usd(steps)} are Step Functions'. Waiting itself costs nothing, for a second or for months: no process runs
        and nothing polls. Each further question of the same turn enters three states more.
    """
    return _paragraphs(lines, told)


def _idle(found: Measured) -> str:
    resources = load_yaml((ROOT / "template.yaml").read_text("utf-8"))["Resources"]
    alarms = [one["Properties"] for one in resources.values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    watched = sum(sum(1 for query in one.get("Metrics", []) if "MetricStat" in query) or 1 for one in alarms)
    names = len({*COUNTED.values(), *OUTCOMES.values(), *REFUSALS_COUNTED.values()})
    reads = found.idle.reads * MINUTES_A_MONTH
    seconds = MINUTES_A_MONTH * RECONCILE_S * MEMORY_GB
    rows = [
        (f"reconciler: {found.idle.reads:g} read units a minute", p.READS.of(reads)),
        (
            f"reconciler: Lambda, at {RECONCILE_S * 1000:.0f} ms a minute (assumed)",
            p.INVOCATIONS.of(MINUTES_A_MONTH) + p.GB_SECONDS.of(seconds),
        ),
        (f"{len(alarms)} alarms on {watched} metrics", p.ALARMS.of(watched)),
        ("the dashboard", p.DASHBOARDS.of(1)),
    ]
    lines = ["| a stack that nobody uses | a month |", "|---|---:|"]
    lines += [f"| {what} | {_usd(usd)} |" for what, usd in rows]
    lines.append(f"| **in all** | {_usd(sum(usd for _, usd in rows))} |")
    told = f"""
        Lambda polls the empty queue besides, which SQS bills as requests. In use, each of turnkeep's {names} metrics
        that occurs costs {_usd(p.METRICS.usd)} a month. A larger `ReconcileRate` saves little and lets people wait.
    """
    return _paragraphs(lines, told)


def _prices() -> str:
    lines = ["| price | dollars | for | looked up at |", "|---|---:|---|---|"]
    lines += [f"| {one.what} | {_plain(one.usd)} | {one.unit} | {one.seen} |" for one in p.ALL]
    told = f"""
        Prices: {p.REGION}, on demand, without free tiers, as of {p.AS_OF}. Check yours: they are constants in
        `bench/costs/prices.py`, and `make costs` writes all this anew.
    """
    return _paragraphs(lines, told)


def _paragraphs(lines: Sequence[str], told: str) -> str:
    """A table and what is told of it."""
    text = textwrap.fill(" ".join(told.split()), WIDTH, break_on_hyphens=False)
    return "\n".join([*lines, "", text, ""])


def _plain(number: float) -> str:
    return f"{number:.10f}".rstrip("0").rstrip(".")


def _usd(dollars: float) -> str:
    """Two digits that count."""
    return f"${dollars:,.{2 if dollars >= 0.1 else 3}f}"
