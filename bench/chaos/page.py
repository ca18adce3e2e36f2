"""What happened, as the tables of ``docs/chaos.md``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bench.chaos.stage import MODES
from bench.chaos.turns import POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.chaos.processes import EveryPoint
    from bench.chaos.stage import Row
    from bench.chaos.turns import Death


@dataclass(frozen=True)
class Happened:
    """Everything that one run saw.

    Attributes:
        same: turns whose process was killed, and whose request came again.
        new: those that a new message found.
        scenes: everything else, by its heading.
        every: all points there are.
    """

    same: Sequence[Death]
    new: Sequence[Death]
    scenes: dict[str, Sequence[Row]]
    every: Sequence[EveryPoint]

    def broken(self) -> list[str]:
        """The promises that did not hold, and what was lost, each in a line."""
        lines = []
        for death in (*self.same, *self.new):
            lines += [f"{death.point.name}, {death.mode}: {what}" for what in (*death.broken, *map(_lost, death.lost))]
        for rows in self.scenes.values():
            for row in rows:
                lines += [f"{row.did}, {row.mode}: {what}" for what in (*row.broken, *map(_lost, row.lost))]
        for one in self.every:
            if one.answered < one.killed or one.once < one.killed or one.lost:
                lines.append(f"every point, {one.mode}: {one}")
        return lines


def _lost(message: str) -> str:
    return f"lost: {message!r}"


def section(happened: Happened) -> str:
    """What stands between the page's marks."""
    parts = [_summary(happened), "## A turn's process is killed\n", _deaths(happened.same, happened.new)]
    for heading, rows in happened.scenes.items():
        parts += [f"## {heading}\n", _scenes(rows)]
    parts += ["## Every point there is\n", _every(happened.every)]
    return "\n".join(parts)


def _summary(happened: Happened) -> str:
    rows = [row for rows in happened.scenes.values() for row in rows]
    deaths = [*happened.same, *happened.new]
    scenes = len(deaths) + len(rows)
    killed = sum(one.killed for one in happened.every)
    lost = sum(len(one.lost) for one in (*deaths, *rows)) + sum(one.lost for one in happened.every)
    broken = happened.broken()
    held = "Everything that is promised held." if not broken else f"{len(broken)} promises did not hold."
    return (
        f"In the run that wrote this page {scenes} conversations met one of these each, and {killed} processes more\n"
        f"were killed, one at every point that a turn has. Messages and answers lost: {lost}. {held}\n"
    )


# --- killed turns -------------------------------------------------------------------------------------------


def _deaths(same: Sequence[Death], new: Sequence[Death]) -> str:
    lines = [
        "| SIGKILL | the caller saw; who came too early | durable then, of 11 messages "
        "| the same request, behind the lease | tools that acted again, of 3 | the tool that acts once "
        "| a new message instead | lost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for point in POINTS:
        died = [one for one in same if one.point == point]
        said = [one for one in new if one.point == point]
        if not died:
            continue
        early = {one.early for one in died} - {""}
        asked = ", asks its owner first" if any(one.asked for one in died) else ""
        acted = "once" if all("what acts once acted once" not in one.broken for one in died) else "**not once**"
        cells = [
            point.name,
            _alike(died, lambda one: one.saw) + (f"; {', '.join(sorted(early))}" if early else ""),
            _alike(died, lambda one: one.kept),
            _alike(died, lambda one: one.then) + asked,
            _alike(died, lambda one: one.again),
            acted,
            f"{_alike(said, lambda one: one.then)}; the dead turn {_alike(said, lambda one: f'`{one.status}`')}",
            "nothing" if not any(one.lost for one in (*died, *said)) else "**something**",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    told = "Three figures are those of `exit`, `async` and `sync`. Only the latter two have records of iterations."
    return "\n".join(lines) + f"\n\n{told}\n"


def _alike(deaths: Sequence[Death], of: Callable[[Death], Any]) -> str:
    """One figure where all modes have the same, else each mode's."""
    found = [str(of(one)) for one in sorted(deaths, key=lambda one: MODES.index(one.mode))]
    return found[0] if len(set(found)) == 1 else " · ".join(found)


# --- scenes -------------------------------------------------------------------------------------------------


def _scenes(rows: Sequence[Row]) -> str:
    lines = [
        "| what was done | mode | the caller saw | what put it right | the turn | tools acted | lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for (did, *cells), alike in _grouped(rows):
        modes = ", ".join(f"`{row.mode}`" for row in alike)
        saw, healed, came, acted, lost = cells
        shown = "nothing" if not lost else "**something**"
        lines.append(f"| {did} | {modes} | {saw} | {healed} | {came} | {acted} | {shown} |")
    return "\n".join(lines) + "\n"


def _grouped(rows: Iterable[Row]) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """Neighbours that differ in their mode only."""

    def what(row: Row) -> tuple[Any, ...]:
        return row.did, row.saw, row.healed, row.came, row.acted, row.lost

    return [(key, list(alike)) for key, alike in groupby(rows, what)]


# --- every point --------------------------------------------------------------------------------------------


def _every(every: Sequence[EveryPoint]) -> str:
    lines = [
        "| mode | killed, one process a point | answered by the same request | what acts once acted once "
        "| tools that acted again | lost |",
        "|---|---|---|---|---|---|",
    ]
    for one in every:
        again = ", ".join(f"{count} at {points} points" for count, points in sorted(one.again.items()))
        lost = "nothing" if not one.lost else f"**{one.lost} turns**"
        lines.append(f"| `{one.mode}` | {one.killed} | {one.answered} | {one.once} | {again} | {lost} |")
    worst = max((max(one.again, default=0) for one in every if one.mode == "sync"), default=0)
    total = sum(one.killed for one in every)
    return (
        "\n".join(lines)
        + f"\n\nBefore and after every call to DynamoDB and everything that a tool does, {total} points in all. Under\n"
        + f"`sync` at most {worst} tool{'' if worst == 1 else 's'} acted again, at any of them.\n"
    )
