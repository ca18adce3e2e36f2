"""Functions: their settings, their times, and what their names promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnkeep.usecases.work_queue import MAX_ATTEMPTS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "TurnFunction": "functions/turn",
    "AnswerFunction": "functions/answer",
    "ReadFunction": "functions/read",
    "ResumeFunction": "functions/resume",
    "WorkerFunction": "functions/worker",
    "ReconcileFunction": "functions/reconcile",
}
BEHIND_THE_API = ("TurnFunction", "AnswerFunction", "ReadFunction")
# Lambda's deadline and this: the lease (DESIGN.md, Dead attempts).
LEASE_MARGIN_S = 10
GATEWAY_GIVES_UP_S = 30


def of_type(template: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in template["Resources"].items() if each["Type"] == kind}


def test_each_folder_is_one_function(source: dict[str, Any]) -> None:
    functions = of_type(source, "AWS::Serverless::Function")
    assert {name: each["Properties"]["CodeUri"] for name, each in functions.items()} == FOLDERS
    for folder in FOLDERS.values():
        assert (ROOT / folder / "app.py").is_file()
        assert not (ROOT / folder / "requirements.txt").exists(), "a function's dependencies are in its layers"


@pytest.mark.parametrize("name", FOLDERS)
def test_every_setting_that_the_code_reads_is_set_and_no_other(plain: dict[str, Any], name: str) -> None:
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "layers/turnkeep/turnkeep").rglob("*.py")
        if path.parent.name in ("entry", "adapters")
    )
    read = set(re.findall(r"TURNKEEP_[A-Z_]+[A-Z]\b", code)) - {"TURNKEEP_BEDROCK"}
    variables = plain["Resources"][name]["Properties"]["Environment"]["Variables"]
    assert {each for each in variables if each.startswith("TURNKEEP_")} == read
    assert variables["POWERTOOLS_SERVICE_NAME"] == {"Ref": "AWS::StackName"}
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "turnkeep"


@pytest.mark.parametrize("name", FOLDERS)
def test_every_function_is_traced_and_logs_json_into_its_own_group(plain: dict[str, Any], name: str) -> None:
    properties = plain["Resources"][name]["Properties"]
    assert properties["TracingConfig"] == {"Mode": "Active"}
    assert properties["LoggingConfig"] == {"LogFormat": "JSON", "LogGroup": {"Ref": name.replace("Function", "Logs")}}
    assert properties["Handler"] == "app.handler"
    assert len(properties["Layers"]) == 2


@pytest.mark.parametrize("name", BEHIND_THE_API)
def test_the_api_never_gives_up_before_its_function(plain: dict[str, Any], name: str) -> None:
    assert plain["Resources"][name]["Properties"]["Timeout"] < GATEWAY_GIVES_UP_S


@pytest.mark.parametrize("name", ["ResumeFunction", "WorkerFunction"])
def test_long_turns_have_the_time_of_the_parameter(plain: dict[str, Any], name: str) -> None:
    assert plain["Resources"][name]["Properties"]["Timeout"] == {"Ref": "TurnTimeoutSeconds"}


def test_what_follows_from_the_time_of_a_turn(source: dict[str, Any]) -> None:
    times = source["Mappings"]["TurnTime"]
    assert list(times) == source["Parameters"]["TurnTimeoutSeconds"]["AllowedValues"]
    for seconds, derived in times.items():
        # A doorbell that comes back earlier would meet its own dead attempt's lease; much later, and a crash is felt.
        assert 0 < derived["VisibilitySeconds"] - int(seconds) - LEASE_MARGIN_S <= 10
        assert derived["NearTimeoutMs"] == int(seconds) * 800


def test_the_worker_takes_one_doorbell_at_a_time(plain: dict[str, Any]) -> None:
    (mapping,) = of_type(plain, "AWS::Lambda::EventSourceMapping").values()
    assert mapping["Properties"]["BatchSize"] == 1
    assert mapping["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    queue = plain["Resources"]["TurnQueue"]["Properties"]
    assert queue["QueueName"]["Fn::Sub"].endswith(".fifo")
    assert queue["VisibilityTimeout"] == {
        "Fn::FindInMap": ["TurnTime", {"Ref": "TurnTimeoutSeconds"}, "VisibilitySeconds"]
    }


def test_a_doorbell_is_dead_when_its_turn_has_failed_for_good(plain: dict[str, Any]) -> None:
    redrive = plain["Resources"]["TurnQueue"]["Properties"]["RedrivePolicy"]
    assert redrive["maxReceiveCount"] == MAX_ATTEMPTS
    assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": ["TurnDeadLetters", "Arn"]}
    assert plain["Resources"]["TurnDeadLetters"]["Properties"]["FifoQueue"] is True


def test_reconcile_runs_by_the_clock_and_when_an_execution_ends_abnormally(plain: dict[str, Any]) -> None:
    schedule, pattern = sorted(
        (rule["Properties"] for rule in of_type(plain, "AWS::Events::Rule").values()),
        key=lambda rule: "EventPattern" in rule,
    )
    assert schedule["ScheduleExpression"] == {"Ref": "ReconcileRate"}
    assert pattern["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"], "stateMachineArn": [{"Ref": "PausedRun"}]},
    }
    (retries,) = of_type(plain, "AWS::Lambda::EventInvokeConfig").values()
    assert retries["Properties"]["MaximumRetryAttempts"] == 2, "an execution's end is told once"


def test_the_machine_is_the_one_that_the_functions_name(source: dict[str, Any]) -> None:
    machine = source["Resources"]["PausedRun"]["Properties"]
    variables = source["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["TURNKEEP_STATE_MACHINE_ARN"]["Fn::Sub"].endswith(f":{machine['Name']['Fn::Sub']}")
    assert machine["Type"] == "STANDARD"
    assert machine["Tracing"] == {"Enabled": True}
    assert machine["Logging"]["IncludeExecutionData"] is False
    definition = (ROOT / machine["DefinitionUri"]).read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)\}", definition)) == set(machine["DefinitionSubstitutions"])


def test_the_machine_waits_for_the_longest_lease(source: dict[str, Any]) -> None:
    definition = yaml.safe_load(
        (ROOT / source["Resources"]["PausedRun"]["Properties"]["DefinitionUri"]).read_text("utf-8")
    )
    longest_s = max(int(seconds) for seconds in source["Mappings"]["TurnTime"])
    (patient,) = [each for each in definition["States"]["Resume"]["Retry"] if "LeaseHeldError" in each["ErrorEquals"]]
    waits = [
        min(patient["IntervalSeconds"] * patient["BackoffRate"] ** attempt, patient["MaxDelaySeconds"])
        for attempt in range(patient["MaxAttempts"])
    ]
    assert "JitterStrategy" not in patient, "jitter would shorten the waits"
    assert sum(waits) > longest_s + LEASE_MARGIN_S
    assert definition["States"]["Resume"]["TimeoutSeconds"] > longest_s
