"""The scenes of ``make chaos``: that they are all on the page, that the page tells what went wrong, and two of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench.chaos import asks, calls, expiry, queues, turns
from bench.chaos.page import Happened, section
from bench.chaos.processes import PLACES, EveryPoint
from bench.chaos.stage import Row, Stage
from bench.sections import sections
from local.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "chaos.md").read_text("utf-8")
SCENES = (*asks.SCENES, *queues.SCENES, *calls.SCENES, *expiry.SCENES)
DEATH = turns.Death(turns.POINTS[1], "exit", "500", 1, "", "200 `complete`", 0, 0, "complete", (), ())
ROW = Row("exit", "200", "a retry", "`complete`", "1 ×", did="Something was lost")
EVERY = EveryPoint("sync", 46, 46, 46, Counter({0: 22, 1: 24}), 0)


def test_the_page_was_written_by_a_run_of_these_scenes() -> None:
    written = sections(PAGE)["bench/chaos"]
    for scene, _ in SCENES:
        assert f"| {(scene.__doc__ or '').rstrip('.')} |" in written
    for point in turns.POINTS:
        assert f"| {point.name} |" in written
    for place in PLACES.values():
        assert place in written
    assert "Messages and answers lost: 0. Everything that is promised held." in written
    assert "**" not in written, "what went wrong is bold"


def test_scenes_differ_by_what_they_do() -> None:
    told = [scene.__doc__ for scene, _ in SCENES]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (Happened([replace(DEATH, broken=("it is told",))], [], {}, []), "behind the claim, exit: it is told"),
        (Happened([], [replace(DEATH, lost=("hello",))], {}, []), "behind the claim, exit: lost: 'hello'"),
        (Happened([], [], {"x": [replace(ROW, lost=("hello",))]}, []), "Something was lost, exit: lost: 'hello'"),
        (Happened([], [], {"x": [replace(ROW, broken=("twice",))]}, []), "Something was lost, exit: twice"),
        (Happened([], [], {}, [replace(EVERY, once=45)]), "every point, sync: "),
        (Happened([], [], {}, [replace(EVERY, lost=1)]), "every point, sync: "),
    ],
)
def test_what_went_wrong_is_said(happened: Happened, line: str) -> None:
    (said,) = happened.broken()
    assert said.startswith(line)
    written = section(happened)
    assert "1 promises did not hold" in written
    assert "Everything that is promised held" not in written


def test_modes_that_agree_share_a_line() -> None:
    rows = [ROW, replace(ROW, mode="async", acted="2 ×"), replace(ROW, mode="sync", acted="2 ×")]
    written = section(Happened([DEATH], [DEATH], {"Calls": rows}, [EVERY]))
    assert "| Something was lost | `exit` | 200 | a retry | `complete` | 1 × | nothing |" in written
    assert "| Something was lost | `async`, `sync` | 200 | a retry | `complete` | 2 × | nothing |" in written


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage.set_up(tmp_path_factory.mktemp("chaos")) as playing:
        yield playing


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["exit", "sync"])
def test_a_death_behind_a_tool_is_seen(stage: Stage, mode: str) -> None:
    (point,) = [one for one in turns.POINTS if one.at == "after step 2"]
    death = turns.the_same_request(stage, point, mode)
    assert (death.saw, death.status, death.lost, death.broken) == ("500", "complete", (), ())
    assert (death.kept, death.again) == ({"exit": (1, 2), "sync": (4, 1)}[mode])


@pytest.mark.process
@pytest.mark.timeout(120)
def test_a_lost_signal_is_seen(stage: Stage) -> None:
    row = asks.the_signal_was_lost(stage, "exit")
    assert (row.saw, row.came, row.acted, row.lost, row.broken) == ("202 `answered`", "`complete`", "1 ×", (), ())
