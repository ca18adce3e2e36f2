"""The guides against the code: no refusal, header, limit, log field or metric is missing there or gone here."""

from __future__ import annotations

import re
from pathlib import Path

from tools.openapi_operations import OPERATIONS
from turnkeep.entry.http.errors import REFUSALS, Refusal
from turnkeep.entry.http.json_body import MAX_NESTING
from turnkeep.entry.http.prefer import MAX_KEY_CHARACTERS, MAX_WAIT_S
from turnkeep.entry.http.request import DEFAULT_LIMIT, MAX_LIMIT
from turnkeep.entry.observability import COUNTED, LOGGED_FACTS, OUTCOMES, REFUSALS_COUNTED
from turnkeep.entry.settings import read_environment
from turnkeep.usecases.take_turn import FLOOR_REACH

DOCS = Path(__file__).parents[2] / "docs"
ROUTES = re.compile(r"`((?:GET|POST|DELETE) /[^` ]*)`")


def rows(guide: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    text = (DOCS / guide).read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def row_of(refusal: Refusal) -> list[str]:
    fields = [f"`{name}`" for name in (*refusal.fields, *(["Retry-After"] if refusal.retry_after else []))]
    return [str(refusal.status), f"`{refusal.code}`", refusal.when, ", ".join(fields)]


def test_every_refusal_is_in_the_guide_and_no_other() -> None:
    wanted = [row_of(refusal) for refusal in REFUSALS]
    assert rows("http-api.md", "Refusals") == wanted, "\n".join("| " + " | ".join(row) + " |" for row in wanted)


def test_the_guide_says_the_limits_of_the_code() -> None:
    text = (DOCS / "http-api.md").read_text("utf-8")
    core = read_environment({"TURNKEEP_TABLE": "T"}).core
    for said in (
        f"{core.max_message_bytes:,} bytes",
        f"{MAX_LIMIT} entries ({DEFAULT_LIMIT} by default)",
        f"{MAX_NESTING} levels",
        f"up to N seconds ({MAX_WAIT_S} at most)",
        f"1 to {MAX_KEY_CHARACTERS} printable characters",
        f"the last turn and {FLOOR_REACH:,}",
        f"{core.request_key_ttl_s // 3600} h (`RequestKeyTtlSeconds`)",
    ):
        assert said in text, said


def test_the_guide_names_routes_that_exist() -> None:
    found = ROUTES.findall((DOCS / "http-api.md").read_text("utf-8"))
    assert found
    assert set(found) <= set(OPERATIONS)


def test_every_metric_is_in_the_guide_and_no_other() -> None:
    listed = [name for row in rows("logs-and-metrics.md", "Metrics") for name in names(row[0])]
    published = {*COUNTED.values(), *OUTCOMES.values(), *REFUSALS_COUNTED.values(), "QueueLag", "TurnDuration"}
    assert sorted(listed) == sorted(published)


def test_every_field_of_a_line_is_in_the_guide_and_no_other() -> None:
    listed = [name for row in rows("logs-and-metrics.md", "Fields of a line") for name in names(row[0])]
    always = {"duration_ms", "store_round_trips", "store_calls", "notes", "error"}
    assert sorted(listed) == sorted({*LOGGED_FACTS.values(), *always})
