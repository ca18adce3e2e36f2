"""``make chaos``: plays everything and writes the tables of ``docs/chaos.md`` anew.

    python -m bench.chaos [--page docs/chaos.md]

Takes some minutes. Ends with 1 where anything was lost or a promise did not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

ROOT = Path(__file__).resolve().parents[2]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.chaos.page import Happened
    from bench.chaos.stage import Row, Scene, Stage

Found = TypeVar("Found")


def main() -> int:
    """Plays and writes."""
    parser = argparse.ArgumentParser(prog="bench.chaos", description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "chaos.md")
    page: Path = parser.parse_args().page
    sys.path[:0] = [str(ROOT / "layers" / "turnkeep"), str(ROOT)]
    from bench.chaos.page import section
    from bench.sections import with_section

    with tempfile.TemporaryDirectory() as folder:
        happened = play(Path(folder))
    page.write_text(with_section(page.read_text("utf-8"), "bench/chaos", section(happened)), "utf-8")
    _say(f"wrote {page}")
    broken = happened.broken()
    for line in broken:
        _say(f"did not hold: {line}")
    return 1 if broken else 0


def play(folder: Path) -> Happened:
    """Everything, on one stack."""
    from bench.chaos import asks, calls, expiry, processes, queues, turns
    from bench.chaos.page import Happened
    from bench.chaos.stage import MODES, Stage

    with Stage.set_up(folder) as stage:
        same, new = _timed("turns", lambda: turns.play(stage))
        scenes = {
            "A question is open": _timed("asks", lambda: _scenes(stage, asks.SCENES)),
            "A turn is queued": _timed("queues", lambda: _scenes(stage, queues.SCENES)),
            "Calls are lost, and messages come at once": _timed("calls", lambda: _scenes(stage, calls.SCENES)),
        }
        expired = _timed("expiry", lambda: _scenes(stage, expiry.SCENES))
        forge = processes.set_up(stage.stack, folder)
        try:
            slept = _timed("sleepers", lambda: processes.sleepers(forge))
            wrong = _timed("clocks", lambda: processes.wrong_clocks(forge))
            every = [
                _timed(f"every point, {mode}", lambda mode=mode: processes.every_point(forge, mode)) for mode in MODES
            ]
        finally:
            forge.stop()
    scenes["Time goes wrong"] = [*slept, *wrong, *expired]
    return Happened(same, new, scenes, every)


def _scenes(stage: Stage, scenes: Sequence[tuple[Scene, tuple[str, ...]]]) -> list[Row]:
    from tests.process.forge import side_by_side

    def one(case: tuple[Scene, str]) -> Row:
        scene, mode = case
        return replace(scene(stage, mode), did=(scene.__doc__ or "").rstrip("."))

    return side_by_side(one, [(scene, mode) for scene, modes in scenes for mode in modes])


def _timed(what: str, work: Callable[[], Found]) -> Found:
    began_s = time.monotonic()
    found = work()
    _say(f"chaos: {what} ({time.monotonic() - began_s:.0f} s)")
    return found


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
