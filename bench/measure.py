"""turnkeep's figures, and the bounds that they have to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.meter import Meter
from bench.report import Ours, Row
from bench.texts import KINDS
from bench.turnkeep_turn import Desk, table

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTHS: Final = (1, 2, 100, 1_000, 10_000)
WHOLE_TURNS: Final = 200

MOST_ROUND_TRIPS: Final = 3
MOST_UNITS: Final = {"words": 6, "tokens": 7}
"""Where the text halves when it is deflated, and where it does not. *Symbols* have no bound: no text is so."""

MOST_REQUEST_BYTES: Final = 4_096
MOST_WHOLE_READ_UNITS: Final = 40
FLAT_WITHIN: Final = 0.02


def measure_turnkeep(lengths: Sequence[int] = LENGTHS, kinds: Sequence[str] = tuple(KINDS)) -> Ours:
    """Takes a turn at every length, one more with an Idempotency-Key, and reads a whole conversation."""
    turns: dict[str, list[Row]] = {}
    with_key: dict[str, Row] = {}
    whole: dict[str, Row] = {}
    with Meter() as meter:
        for kind in kinds:
            with table():
                desk = Desk(meter, kind)
                turns[kind] = []
                for turn in lengths:
                    desk.seed(turn - 1)
                    turns[kind].append(Row.of(desk.measure(turn)))
                with_key[kind] = Row.of(desk.measure(lengths[-1] + 1, idempotency_key="a-key-of-the-callers"))
                reader = Desk(meter, kind)
                reader.seed(WHOLE_TURNS)
                whole[kind] = Row.of(reader.whole_read())
    return Ours(turns, with_key, whole)


def broken_bounds(ours: Ours) -> list[str]:
    """The bounds that do not hold, one sentence each; none where all do."""
    broken: list[str] = []
    for kind, rows in ours.turns.items():
        steady = [row for row in rows if row.turn > 1]
        for row in rows:
            if row.round_trips > MOST_ROUND_TRIPS:
                broken.append(f"{kind}, turn {row.turn}: {row.round_trips} round trips")
            if row.write_units > MOST_UNITS.get(kind, row.write_units):
                broken.append(f"{kind}, turn {row.turn}: {row.write_units} write units")
            if kind == "words" and row.request_bytes > MOST_REQUEST_BYTES:
                broken.append(f"{kind}, turn {row.turn}: {row.request_bytes} bytes of requests")
        smallest, largest = (pick(row.request_bytes for row in steady) for pick in (min, max))
        if largest > smallest * (1 + FLAT_WITHIN) or len({row.write_units for row in steady}) > 1:
            broken.append(f"{kind}: from {smallest} to {largest} bytes, which is not flat")
    for kind in ("words",):
        if kind in ours.with_key:
            more, plain = ours.with_key[kind], ours.turns[kind][-1]
            if more.write_units - plain.write_units > 1 or more.round_trips > plain.round_trips:
                broken.append(f"{kind}: an Idempotency-Key adds more than one unit, or a round trip")
            if ours.whole[kind].read_units > MOST_WHOLE_READ_UNITS:
                broken.append(f"{kind}: a whole read of {ours.whole[kind].read_units} units")
    return broken
