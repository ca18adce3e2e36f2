"""``make bench-durability``: what each mode of durability costs a turn of three iterations with two tools each.

    PYTHONPATH=layers/turnkeep python -m bench.durability [--page docs/durability.md]

It writes the table of docs/durability.md anew. Calls and write units are counted under the meter, on moto. Added time
is measured on a table in memory whose every round trip takes as long as DynamoDB's usually do, beside a model that
answers at once (the worst case: no write hides behind anything) and one that takes as long as a quick one does.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3

from bench.alone import stand_alone
from bench.meter import Meter
from bench.sections import with_section
from bench.turnkeep_turn import REGION, TABLE, table
from turnkeep.adapters.dynamo import DynamoItemStore, client_config
from turnkeep.agent import Agent, ScriptedProvider, call, tool
from turnkeep.clock import SystemClock
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.usecases.deps import Caller, Deps, FixedDeadline, Settings
from turnkeep.usecases.take_turn import take_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.meter import Tally
    from turnkeep.agent.port import DurabilityMode
    from turnkeep.agent.scripted import Scene, ScriptedReply
    from turnkeep.ledger.store import ItemStore

ROOT = Path(__file__).resolve().parent.parent
MODES: Final[tuple[DurabilityMode, ...]] = ("exit", "async", "sync")
ITERATIONS: Final = 3
ROUND_TRIP_S: Final = 0.008
MODEL_S: Final = (0.0, 0.2)
RUNS: Final = 7


@dataclass(frozen=True)
class Cost:
    """What one turn of a mode costs.

    Attributes:
        calls: to DynamoDB, reads included.
        write_units: by AWS's documented rules.
        added_ms: an iteration, over ``exit``; for each of ``MODEL_S``.
    """

    mode: str
    once: bool
    calls: int
    write_units: int
    added_ms: tuple[float, ...] = ()


class Nothing:
    """Every port that a turn without a pause does not need."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **facts: None


class Slow(MemoryItemStore):
    """A table whose every round trip takes its time, for whichever thread makes it."""

    def __init__(self) -> None:
        super().__init__(lambda operation, what: time.sleep(ROUND_TRIP_S))


def run(store: ItemStore, mode: DurabilityMode, *, once: bool, model_s: float, key: ConversationKey) -> float:
    """Takes one turn; returns the seconds that it took."""

    @tool(once=once)
    def look(n: int) -> str:
        """Looks something up."""
        return f"entry {n}: delivered on Monday, signed for by a neighbour"

    @tool(once=once)
    def act(n: int) -> str:
        """Does something."""
        return f"order {n} is on its way"

    def script(scene: Scene) -> ScriptedReply:
        time.sleep(model_s)
        n = len(scene.results) // 2
        return "All three are on their way." if n == ITERATIONS else [call("look", n=n), call("act", n=n)]

    clock = SystemClock()
    nothing: Any = Nothing()
    deps = Deps(
        ledger=Ledger(store, clock),
        clock=clock,
        factory=lambda info: Agent(provider=ScriptedProvider(script), tools=[look, act], durability=mode),
        gate=nothing,
        doorbell=nothing,
        events=nothing,
        settings=Settings(),
        random_id=secrets.token_urlsafe,
    )
    began_s = time.perf_counter()
    take_turn(deps, Caller("ann"), key, message="Send all three, please.", deadline=FixedDeadline.after(clock, 28_000))
    return time.perf_counter() - began_s


def tally(mode: DurabilityMode, *, once: bool) -> Tally:
    """Counts a turn on moto, the second one of its conversation."""
    with table(), Meter() as meter:
        client = boto3.client("dynamodb", region_name=REGION, config=client_config())
        key = ConversationKey(f"c-{secrets.token_urlsafe(16)}")
        run(DynamoItemStore(client, TABLE), mode, once=once, model_s=0, key=key)
        with meter.measure() as counted:
            # The model takes longer than moto, so that no write of progress is skipped for a newer one.
            run(DynamoItemStore(client, TABLE), mode, once=once, model_s=0.1, key=key)
    return counted


def added_ms(model_s: float) -> dict[str, float]:
    """How much longer an iteration takes than under ``exit``: the median of some runs."""
    taken = {}
    for mode in MODES:
        times = [run(Slow(), mode, once=False, model_s=model_s, key=ConversationKey("c")) for _ in range(RUNS)]
        taken[mode] = statistics.median(times)
    return {mode: 1000 * (taken[mode] - taken["exit"]) / ITERATIONS for mode in MODES}


def measure() -> list[Cost]:
    """Every mode, with tools that may run twice and with tools that act once."""
    added = [added_ms(model_s) for model_s in MODEL_S]
    costs = []
    for once in (False, True):
        for mode in MODES:
            counted = tally(mode, once=once)
            times = () if once else tuple(one[mode] for one in added)
            costs.append(Cost(mode, once, counted.call_count, counted.write_units, times))
    return costs


def as_table(costs: Sequence[Cost]) -> str:
    """The figures as a table of Markdown."""
    quick = f"a model of {MODEL_S[1] * 1000:.0f} ms"
    lines = [
        f"| mode | calls to DynamoDB | write units | added to an iteration, a model of 0 ms | {quick} |",
        "|---|---|---|---|---|",
    ]
    for cost in costs:
        times = [f"{max(0.0, one):.0f} ms" for one in cost.added_ms] or ["", ""]
        name = f"`{cost.mode}`" + (", both tools `once`" if cost.once else "")
        lines.append(f"| {name} | {cost.calls} | {cost.write_units} | {times[0]} | {times[1]} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints, and writes the page's table anew."""
    parser = argparse.ArgumentParser(prog="bench.durability", description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "durability.md")
    page: Path = parser.parse_args().page
    stand_alone()
    found = as_table(measure())
    sys.stdout.write(found + "\n")
    page.write_text(with_section(page.read_text("utf-8"), "bench/durability.py", found), "utf-8")


if __name__ == "__main__":
    main()
