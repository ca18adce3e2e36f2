"""The example that mails a supervisor: its rule takes what turnkeep tells, and what it mails is there and is ids."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto.events.models import EventPattern

from local.settings import ROOT
from local.template import load_yaml
from tests.entry.doors import asking, completed
from turnkeep.adapters.events import SOURCE, detail

TEMPLATE = ROOT / "examples" / "tell-a-supervisor" / "template.yaml"


def rule() -> dict[str, Any]:
    found: dict[str, Any] = load_yaml(TEMPLATE.read_text(encoding="utf-8"))["Resources"]["TellOfAsks"]["Properties"]
    return found


def takes(event: dict[str, Any]) -> bool:
    text = json.dumps(rule()["EventPattern"]).replace('{"Fn::Sub": "role:${Role}"}', '"role:supervisor"')
    return bool(EventPattern.load(text).matches_event(event))  # type: ignore[arg-type]


def event_of(kind: str, audience: str) -> dict[str, Any]:
    record = asking()
    assert record.ask is not None
    record = replace(record, ask=replace(record.ask, audience=audience))
    return {"source": SOURCE, "detail-type": kind, "detail": json.loads(detail(record))}


@pytest.mark.parametrize(
    ("kind", "audience", "mailed"),
    [
        ("ask.opened", "role:supervisor", True),
        ("ask.opened", "role:clerk", False),
        ("ask.opened", "owner", False),
        ("ask.closed", "role:supervisor", False),
        ("turn.ended", "role:supervisor", False),
    ],
)
def test_it_mails_questions_for_its_role_and_nothing_else(kind: str, audience: str, mailed: bool) -> None:
    assert takes(event_of(kind, audience)) is mailed


def test_a_turn_that_ended_is_none_of_its_business() -> None:
    ended = {"source": SOURCE, "detail-type": "turn.ended", "detail": json.loads(detail(completed()))}
    assert not takes(ended)


def test_what_it_mails_is_in_the_event() -> None:
    (target,) = rule()["Targets"]
    paths = target["InputTransformer"]["InputPathsMap"]
    event = event_of("ask.opened", "role:supervisor")
    for path in paths.values():
        assert path.removeprefix("$.detail.") in event["detail"]
    named = re.findall(r"<(\w+)>", target["InputTransformer"]["InputTemplate"]["Fn::Sub"])
    assert sorted(named) == sorted(paths)


def test_the_template_lints() -> None:
    linter = Path(sys.executable).with_name("cfn-lint")
    command = [linter, "--template", TEMPLATE]
    done = subprocess.run(command, cwd=TEMPLATE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
