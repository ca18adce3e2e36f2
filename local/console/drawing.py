"""Lays a state machine out: states in rows by how far they are from the start, transitions routed between them.

Rows follow the longest way from the start; a transition that leads back is drawn around the side. One that skips rows
passes through points of its own in each, so that no line crosses a state's box.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

WIDTH: Final = 132
HEIGHT: Final = 40
GAP_X: Final = 26
GAP_Y: Final = 44
BEND_WIDTH: Final = 24
SIDE: Final = 34
SWEEPS: Final = 6


@dataclass
class Transition:
    """One way from a state to another; `kinds` says which: next, choice, default, catch."""

    source: str
    target: str
    kinds: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def transitions_of(definition: dict[str, Any]) -> list[Transition]:
    """Every transition of a definition, those between the same two states together."""
    found: dict[tuple[str, str], Transition] = {}

    def add(source: str, target: str | None, kind: str, label: str = "") -> None:
        if target:
            each = found.setdefault((source, target), Transition(source, target))
            each.kinds.append(kind)
            if label:
                each.labels.append(label)

    for name, state in definition["States"].items():
        add(name, state.get("Next"), "next")
        for choice in state.get("Choices", []):
            add(name, choice.get("Next"), "choice", str(choice.get("Comment", "")))
        add(name, state.get("Default"), "default")
        for catch in state.get("Catch", []):
            add(name, catch.get("Next"), "catch", ", ".join(catch.get("ErrorEquals", [])))
    return list(found.values())


def lay_out(definition: dict[str, Any]) -> dict[str, Any]:
    """The drawing: `width`, `height`, `states` (name, type, comment, x, y, width, height), `transitions` (points).

    Coordinates are in pixels from the upper left corner; a state's x and y are its box's own corner, a transition's
    points lead from the border of one box to the border of the other.
    """
    transitions = transitions_of(definition)
    names = list(definition["States"])
    back = _back_edges(definition["StartAt"], transitions)
    ranks = _ranks(definition["StartAt"], names, [each for each in transitions if each not in back])
    rows: list[list[str]] = [[] for _ in range(max(ranks.values()) + 1)]
    for name in names:
        rows[ranks[name]].append(name)
    chains: dict[int, list[str]] = {}
    for index, each in enumerate(transitions):
        if each in back:
            continue
        bends = [f"\0{index}-{rank}" for rank in range(ranks[each.source] + 1, ranks[each.target])]
        for bend, rank in zip(bends, range(ranks[each.source] + 1, ranks[each.target]), strict=True):
            rows[rank].append(bend)
        chains[index] = [each.source, *bends, each.target]
    _order(rows, list(chains.values()))
    middle_x, width = _place(rows)
    top = {name: rank * (HEIGHT + GAP_Y) for rank, row in enumerate(rows) for name in row}
    side = width + SIDE
    states = [
        {
            "name": name,
            "type": definition["States"][name]["Type"],
            "comment": definition["States"][name].get("Comment", ""),
            "x": middle_x[name] - WIDTH / 2,
            "y": top[name],
            "width": WIDTH,
            "height": HEIGHT,
        }
        for name in names
    ]
    drawn = []
    for index, each in enumerate(transitions):
        if index in chains:
            points = _down(chains[index], middle_x, top)
        else:
            points = _around(each, middle_x, top, side)
            side += SIDE / 2
        drawn.append(
            {
                "source": each.source,
                "target": each.target,
                "kinds": each.kinds,
                "label": "; ".join(each.labels),
                "back": index not in chains,
                "points": points,
            }
        )
    return {
        "start": definition["StartAt"],
        "width": side if back else width,
        "height": len(rows) * HEIGHT + (len(rows) - 1) * GAP_Y,
        "states": states,
        "transitions": drawn,
    }


def _back_edges(start: str, transitions: list[Transition]) -> list[Transition]:
    """Those that lead to a state on the way to their own source."""
    back: list[Transition] = []
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        for each in (each for each in transitions if each.source == name):
            if each.target in (*way, name):
                back.append(each)
            elif each.target not in done:
                visit(each.target, (*way, name))
        done.add(name)

    visit(start, ())
    return back


def _ranks(start: str, names: list[str], forward: list[Transition]) -> dict[str, int]:
    ranks = dict.fromkeys(names, 0)
    for _ in names:  # the longest way has at most as many steps as there are states
        for each in forward:
            ranks[each.target] = max(ranks[each.target], ranks[each.source] + 1)
    ranks[start] = 0
    return ranks


def _order(rows: list[list[str]], chains: list[list[str]]) -> None:
    """Puts each row's members where their neighbours are, so that few lines cross."""
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            above.setdefault(lower, []).append(upper)
            below.setdefault(upper, []).append(lower)
    for sweep in range(SWEEPS):
        neighbours, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in order:
            share = {name: (at + 0.5) / len(each) for each in rows for at, name in enumerate(each)}
            wanted = {
                name: sum(share[other] for other in neighbours[name]) / len(neighbours[name])
                if neighbours.get(name)
                else share[name]
                for name in row
            }
            row.sort(key=wanted.__getitem__)


def _place(rows: list[list[str]]) -> tuple[dict[str, float], float]:
    """The middle of each member, rows centred; and the widest row's width."""
    widths = [sum(_width(name) for name in row) + GAP_X * (len(row) - 1) for row in rows]
    widest = max(widths)
    middle: dict[str, float] = {}
    for row, width in zip(rows, widths, strict=True):
        x = (widest - width) / 2
        for name in row:
            middle[name] = x + _width(name) / 2
            x += _width(name) + GAP_X
    return middle, widest


def _width(name: str) -> int:
    return BEND_WIDTH if name.startswith("\0") else WIDTH


def _down(chain: list[str], middle_x: dict[str, float], top: dict[str, int]) -> list[list[float]]:
    points: list[list[float]] = [[middle_x[chain[0]], top[chain[0]] + HEIGHT]]
    for bend in chain[1:-1]:
        points += [[middle_x[bend], top[bend]], [middle_x[bend], top[bend] + HEIGHT]]
    return [*points, [middle_x[chain[-1]], top[chain[-1]]]]


def _around(each: Transition, middle_x: dict[str, float], top: dict[str, int], side: float) -> list[list[float]]:
    half = HEIGHT / 2
    source = [middle_x[each.source] + WIDTH / 2, top[each.source] + half]
    target = [middle_x[each.target] + WIDTH / 2, top[each.target] + half]
    return [source, [side - SIDE / 2, source[1]], [side - SIDE / 2, target[1]], target]
