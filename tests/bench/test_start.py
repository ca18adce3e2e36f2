"""How ``make bench-start`` tells what it measured, and that pages keep what other measurements wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.sections import carried_over, sections, with_section
from bench.start import CONTROL, FUNCTIONS, NO_BYTE_CODE, Import, Measured, Start, as_section, environment
from turnkeep.entry.settings import read_environment

if TYPE_CHECKING:
    from pathlib import Path


def starts(*cpu_ms: float) -> list[Start]:
    return [Start(alone_s=0.012, cpu_s=ms / 1000, wall_s=2 * ms / 1000, modules=500) for ms in cpu_ms]


def measured(turn_ms: tuple[float, ...] = (250, 400, 260)) -> Measured:
    found = {CONTROL: starts(200, 400, 200)} | {function: starts(*turn_ms) for function in FUNCTIONS}
    imports = [
        Import("botocore.model", 3_000, is_shared=True),
        Import("turnkeep.ledger.store", 2_500, is_shared=False),
        Import("turnkeep.errors", 500, is_shared=False),
    ]
    return Measured("3.13.0", "1.43.1", found | {NO_BYTE_CODE: starts(500, 800, 500)}, imports)


def test_rounds_that_something_else_slowed_down_do_not_count() -> None:
    assert measured().times("TurnFunction") == 1.25
    assert measured((900, 900, 250)).times("TurnFunction") == 1.25
    assert measured((251, 251, 251)).times("TurnFunction") == 1.255
    assert measured().times(CONTROL) == 1


def test_the_section_says_what_was_measured() -> None:
    said = as_section([measured(), measured((280, 560, 280))])
    assert "**1.25** here. On Python 3.13.0 the turn function's is 1.40" in said
    assert "| `TurnFunction` | 250 | 260 | 520 | 500 | 1.25 |" in said
    assert "| boto3's client | 200 | 200 | 400 | 500 | 1.00 |" in said
    assert "| Python alone | 12 | 12 | | | |" in said
    assert "| `turnkeep` | 2 | 3.0 | 3.0 |" in said
    assert "| `botocore` | 1 | 3.0 | 0.0 |" in said
    assert "`turnkeep.ledger.store` 2.5, `turnkeep.errors` 0.5." in said


def test_what_is_started_has_the_environment_that_the_template_sets(tmp_path: Path) -> None:
    set_up = read_environment(environment(tmp_path))
    assert set_up.agent_factory == "refund_desk:build"
    assert set_up.core.ask_expires_s == 604_800
    assert (set_up.region, set_up.event_bus) == ("eu-central-1", "default")
    assert all((set_up.table, set_up.queue_url, set_up.state_machine_arn))


PAGE = "# A page\n\nText.\n"


def test_a_section_is_made_anew_where_it_stands_and_the_rest_stays() -> None:
    once = with_section(PAGE, "bench/a.py", "one")
    both = with_section(once, "bench/b.py", "two\n")
    assert list(sections(both)) == ["bench/a.py", "bench/b.py"]
    again = with_section(both, "bench/a.py", "three")
    assert again == both.replace("one", "three")
    assert with_section(again, "bench/a.py", "three") == again


def test_a_page_that_is_written_anew_keeps_what_others_measured() -> None:
    old = with_section(with_section(PAGE, "bench/a.py", "one"), "bench/b.py", "two")
    new = carried_over(old, "# A new page\n")
    assert new.startswith("# A new page\n")
    assert "Text." not in new
    assert sections(new) == sections(old)
    assert carried_over(new, new) == new
    assert carried_over("", PAGE) == PAGE
