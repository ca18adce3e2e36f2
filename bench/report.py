"""The measurements as ``docs/performance.md`` tells them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.texts import KINDS
from bench.turnkeep_turn import WINDOW, Measured

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    turn: int
    round_trips: int
    calls: int
    table_units: int
    index_units: int
    read_units: float
    request_bytes: int
    largest_item_bytes: int

    @classmethod
    def of(cls, measured: Measured) -> Row:
        """The line of a measured turn."""
        tally = measured.tally
        return cls(
            turn=measured.turn,
            round_trips=measured.round_trips,
            calls=tally.call_count,
            table_units=tally.table_units,
            index_units=tally.index_units,
            read_units=tally.read_units,
            request_bytes=tally.request_bytes,
            largest_item_bytes=tally.largest_item_bytes,
        )

    @property
    def write_units(self) -> int:
        """All write units."""
        return self.table_units + self.index_units


@dataclass(frozen=True)
class Ours:
    """Everything that was measured of turnkeep, by kind of text."""

    turns: dict[str, list[Row]]
    with_key: dict[str, Row]
    whole: dict[str, Row]


HEAD = f"""# What a turn costs

Written by `make bench`; every figure was measured by the run that wrote it. Parts that say so are other runs'.

A turn is one message of 1 KB, answered with 1 KB by turnkeep's own agent: claim, owner, evidence, the conversation's
listing and that listing's index included, in `exit` mode, with a window of {WINDOW} turns. The agent is scripted, so
that only the ledger is measured.

**How it is counted.** Calls are counted at botocore, bytes as the bodies of requests leave. Capacity units follow
DynamoDB's documented rules from the items themselves (`bench/sizes.py`): moto's own figures are constants. An index
costs a write wherever the projected item changes, and two where its key changes, as `savedAt` does with every turn. A
round trip is a call at the store's port: calls that it makes side by side count once.

**The texts.** {{kinds}}

"""


def page(ours: Ours, peers: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    kinds = "; ".join(f"*{name}*: {meaning}" for name, meaning in KINDS.items())
    parts = [HEAD.replace("{kinds}", kinds + ".")]
    parts.append("## A turn, however long the conversation is\n")
    for kind, rows in ours.turns.items():
        parts.append(f"### {kind.capitalize()}\n")
        parts.append(_turns_table(rows))
        with_key, plain = ours.with_key[kind], rows[-1]
        more = with_key.write_units - plain.write_units
        trips = with_key.round_trips - plain.round_trips
        parts.append(
            f"With an Idempotency-Key: {_units(more)} more, {trips or 'no'} round trip more "
            f"({with_key.request_bytes - plain.request_bytes} bytes more).\n"
        )
    parts.append(_words_on_kinds(ours))
    parts.append("## Reading the whole conversation at turn 200\n")
    parts.append("Without a window, which is what an agent that wants everything does.\n")
    parts.append("| text | round trips | read units |\n|---|---:|---:|")
    parts += [f"| {kind} | {row.round_trips} | {row.read_units:g} |" for kind, row in ours.whole.items()]
    parts.append("\nClosed turns are read eventually, the newest two and the conversation's own item strongly.\n")
    parts.append(_peers(peers))
    return "\n".join(parts).rstrip() + "\n"


def _turns_table(rows: Sequence[Row]) -> str:
    lines = [
        "| turn | round trips | calls | write units | of them index | read units | request bytes | largest item |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.turn:,} | {row.round_trips} | {row.calls} | {row.write_units} | {row.index_units} "
        f"| {row.read_units:g} | {row.request_bytes:,} | {row.largest_item_bytes:,} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _words_on_kinds(ours: Ours) -> str:
    steady = {kind: rows[-1] for kind, rows in ours.turns.items()}
    told = ", ".join(
        f"{row.write_units} units and {row.request_bytes:,} bytes of {kind}" for kind, row in steady.items()
    )
    return (
        f"A turn writes {told}. Units are whole kilobytes of a whole item, so text that does not get smaller costs one "
        "or two more, and its bytes travel as base64. The first turn has no index entry to take out. Reading costs "
        "more at turn 100 than at turn 2 because the window fills up; it stays at that.\n"
    )


def _units(count: int) -> str:
    return f"{count} write unit{'' if count == 1 else 's'}"


def _peers(peers: Sequence[dict[str, Any]]) -> str:
    lines = [
        "## Other libraries, by the same meter\n",
        "The same texts (*words*), each library as its documentation shows it: what is asked of DynamoDB (and S3) for "
        "one turn of a process that has nothing in memory, load and save. None of them claims a turn, records an "
        "owner or keeps a listing with that.\n",
    ]
    if not peers:
        lines.append("Not measured in this run: their packages could not be installed.\n")
        return "\n".join(lines)
    lines += [
        "| library | turn | calls | write units | read units | bytes | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for peer in peers:
        for row in peer["rows"]:
            lines.append(
                f"| {peer['name']} | {row['turn']} | {row['calls']} | {row['write_units']} | {row['read_units']:g} "
                f"| {row['request_bytes']:,} | |"
            )
        if peer.get("died"):
            lines.append(f"| {peer['name']} | {peer['died']['turn']} | | | | | fails: {peer['died']['error']} |")
    lines.append("")
    lines += [f"{peer['name']}: {peer['versions']}." for peer in peers]
    return "\n".join(lines) + "\n"


def as_json(ours: Ours) -> dict[str, Any]:
    """Plain values, for whoever wants to compare two runs."""
    return asdict(ours)
