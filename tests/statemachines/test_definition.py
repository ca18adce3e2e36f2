"""The definition as text: valid to cfn-lint, readable in the console, and patient in every call."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.statemachines.definition import load_definition

STATES: dict[str, Any] = load_definition()["States"]
LAMBDA_STATES = ("ExpireAsk", "Resume", "MarkFailed")


def complaints(definition: dict[str, Any], folder: Path) -> dict[str, str]:
    """What cfn-lint's E3601 says, by place; it looks only into a plain StateMachine's own Definition."""
    properties = {"RoleArn": "arn:aws:iam::123456789012:role/paused-run", "Definition": definition}
    template = folder / "template.json"
    machine = {"Type": "AWS::StepFunctions::StateMachine", "Properties": properties}
    template.write_text(json.dumps({"Resources": {"PausedRun": machine}}), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--format", "json", str(template)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=60)
    assert not done.stderr
    return {
        ".".join(str(part) for part in each["Location"]["Path"][4:]): each["Message"]
        for each in json.loads(done.stdout)
        if each["Rule"]["Id"] == "E3601"
    }


def test_cfn_lint_accepts_the_definition(tmp_path: Path) -> None:
    # cfn-lint 1.58 wants a number where JSONata's own text may stand (its issue 4342 mended the like of Wait.Seconds).
    assert list(complaints(load_definition(), tmp_path)) == ["States.AwaitAnswer.TimeoutSeconds"]


def test_cfn_lint_would_notice_a_fault(tmp_path: Path) -> None:
    broken = load_definition()
    del broken["States"]["Resume"]["Next"]
    broken["States"]["Done"]["Unheard"] = 1
    assert set(complaints(broken, tmp_path)) >= {"States.Resume", "States.Done.Unheard"}


@pytest.mark.parametrize("name", STATES)
def test_every_state_says_what_it_is(name: str) -> None:
    assert len(STATES[name]["Comment"]) > 15


@pytest.mark.parametrize("name", [name for name, state in STATES.items() if state["Type"] == "Task"])
def test_every_call_ends_and_is_tried_again(name: str) -> None:
    assert STATES[name]["TimeoutSeconds"]
    assert STATES[name]["Retry"]


@pytest.mark.parametrize("name", LAMBDA_STATES)
def test_every_call_of_the_function_has_the_same_patience(name: str) -> None:
    assert STATES[name]["Retry"] == STATES["Resume"]["Retry"]


@pytest.mark.parametrize("name", LAMBDA_STATES)
def test_functions_get_ids_and_nothing_else(name: str) -> None:
    payload = STATES[name]["Arguments"]["Payload"]
    named = set(re.findall(r"'(\w+)':", payload))
    assert named == {"action", "pk", "sk", "conversationId", "tenant", "turn", "askId"}


def test_only_s_and_n_values_are_sent_to_dynamodb() -> None:
    """AWS spells the other kinds differently from moto, so a fake would hide a fault."""
    values = STATES["AwaitAnswer"]["Arguments"]["ExpressionAttributeValues"].values()
    assert {kind for value in values for kind in value} == {"S", "N"}


def test_the_check_reads_no_more_than_how_the_turn_stands() -> None:
    arguments = STATES["CheckAsk"]["Arguments"]
    assert arguments["ProjectionExpression"] == "#status, askId"
    assert arguments["ConsistentRead"] is True
