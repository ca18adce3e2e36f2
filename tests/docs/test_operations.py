"""The runbook: a row for every alarm, commands that can be run, queries of logged fields, outputs that exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from local.settings import ROOT
from local.template import load_yaml
from turnkeep.cli.main import main as turnkeep
from turnkeep.entry.observability import LOGGED_FACTS, Observation
from turnkeep.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
DOCS = "\n".join(
    path.read_text("utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if path.is_file()
)
TEMPLATE: dict[str, Any] = load_yaml((ROOT / "template.yaml").read_text("utf-8"))
RESOURCES = TEMPLATE["Resources"]
SHELL = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
QUERIES = [
    *re.findall(r"^[A-Z]+='(.*?)'$", SHELL[0], re.DOTALL | re.MULTILINE),
    *re.findall(r"^logs '(.*?)'", PAGE, re.DOTALL | re.MULTILINE),
]
INSIGHTS = {"@timestamp", "@log", "filter", "sort", "desc", "limit", "fields", "stats", "count", "as", "by", "n", "pct"}
INSIGHTS |= {"max", "avg", "sum", "calls", "ispresent", "and", "or"}
LAMBDAS_OWN = {"type", "requestId", "record.requestId", "record.status", "record.metrics.durationMs"}
LAMBDAS_OWN |= {"record.metrics.maxMemoryUsedMB"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert found
    lines = found[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_alarm_has_its_row_and_every_row_its_alarm() -> None:
    alarms = {name.removesuffix("Alarm") for name, one in RESOURCES.items() if one["Type"] == "AWS::CloudWatch::Alarm"}
    told = [name for row in rows("Alarms") for name in row[0].split(", ")]
    assert sorted(told) == sorted(alarms)
    for row in rows("Alarms"):
        assert len(row) == 4, row
        assert "`" in row[2] or row[2].startswith("the same"), f"{row[0]}: nothing to run"


@pytest.mark.parametrize("script", SHELL, ids=lambda script: script.split("\n")[0][:40])
def test_the_shell_understands_every_command(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_run_names_outputs_that_exist_and_every_output_is_used() -> None:
    used = set(re.findall(r"\$\(out (\w+)\)", DOCS))
    assert used <= set(TEMPLATE["Outputs"])
    unnamed = {name for name in TEMPLATE["Outputs"] if not re.search(rf"\b{name}\b", DOCS)}
    assert unnamed == set()


def test_queries_ask_for_fields_that_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with Observation("request", store=Asked()) as observation:
        try:
            raise StoreUnavailableError from KeyError("x")
        except StoreUnavailableError as error:
            observation.refused(error, "ERR_STORE_UNAVAILABLE", is_fault=True)
        observation.outcome("failed")
    line = json.loads(capsys.readouterr().out.splitlines()[0])
    logged = set(flat(line)) | set(LOGGED_FACTS.values()) | {"error.1.code"}
    assert len(QUERIES) >= 9
    for query in QUERIES:
        words = set(re.findall(r"@?[A-Za-z_][\w.]*", re.sub(r'"[^"]*"', "", query)))
        assert words - INSIGHTS - LAMBDAS_OWN <= logged, query


def flat(value: Any, path: str = "") -> Iterator[str]:
    """The names of a line's fields, as CloudWatch Logs Insights finds them."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for name, member in members:
        yield from flat(member, f"{path}.{name}" if path else str(name))


class Asked:
    """A store that was asked."""

    round_trips, calls = 3, 6


def test_the_log_groups_are_the_templates() -> None:
    named = set(re.findall(r'"/aws/lambda/\$STACK/(\w+)"', SHELL[0]))
    there = {
        one["Properties"]["LogGroupName"]["Fn::Sub"].rpartition("/")[2]
        for one in RESOURCES.values()
        if one["Type"] == "AWS::Logs::LogGroup" and "/aws/lambda/" in one["Properties"]["LogGroupName"]["Fn::Sub"]
    }
    assert named == there


def test_the_query_for_stuck_turns_asks_the_index_for_all_its_shards() -> None:
    from turnkeep.ledger.keys import DUE_SHARDS

    script = next(one for one in SHELL if "byDue" in one)
    index = next(
        one for one in RESOURCES["LedgerTable"]["Properties"]["GlobalSecondaryIndexes"] if one["IndexName"] == "byDue"
    )
    keys = [key["AttributeName"] for key in index["KeySchema"]]
    assert re.findall(r"(\w+) [=<] :", script) == keys
    assert script.startswith("for shard in " + " ".join(str(shard) for shard in range(DUE_SHARDS)) + ";")


def test_the_command_line_knows_every_command_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join([*SHELL, *re.findall(r"`([^`\n]+)`", DOCS)])
    named = set(re.findall(r"\bturnkeep (?:--table \S+ )?([a-z]+)", code))
    assert {"paused", "why", "answer", "cancel", "export", "import", "erase"} <= named
    for command in sorted(named):
        with pytest.raises(SystemExit) as ended:
            turnkeep([command, "--help"])
        assert ended.value.code == 0, command
    assert "usage: turnkeep" in capsys.readouterr().out


def test_parameters_that_are_named_exist() -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:=[a-z]+)?`", PAGE))
    resources = set(RESOURCES) | set(TEMPLATE["Outputs"])
    others = {"MemorySize", "BadSettingError", "ImportError", "AccessDenied"}
    assert named - resources - others <= set(TEMPLATE["Parameters"])


def test_one_command_a_cell_can_be_split_into_words() -> None:
    for row in rows("Alarms"):
        for command in re.findall(r"`((?:aws|logs|turnkeep) [^`]+)`", " ".join(row)):
            assert shlex.split(command)
