"""What operators get: alarms that exist without a pager, one dashboard, outputs, prompts that explain themselves."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from turnkeep.entry.observability import COUNTED, OUTCOMES, REFUSALS_COUNTED

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = {*COUNTED.values(), *OUTCOMES.values(), *REFUSALS_COUNTED.values()}
OUTPUTS = {
    *("ApiUrl", "AnonymousWarning", "TableName", "PausedRunArn", "TurnQueueUrl", "TurnDeadLettersUrl"),
    *("TurnFunctionName", "AnswerFunctionName", "ReadFunctionName"),
    *("ResumeFunctionName", "WorkerFunctionName", "ReconcileFunctionName"),
}
MOST_WIDGETS = 12


@pytest.fixture
def alarms(plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    resources = plain["Resources"].items()
    return {name: each["Properties"] for name, each in resources if each["Type"] == "AWS::CloudWatch::Alarm"}


def test_every_alarm_exists_without_a_pager_and_says_what_it_means(alarms: dict[str, dict[str, Any]]) -> None:
    assert len(alarms) > 10
    for name, alarm in alarms.items():
        assert alarm["AlarmActions"] == {
            "Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]
        }
        assert len(alarm["AlarmDescription"]) > 40, name


def test_only_silence_of_the_reconciler_is_alarming(alarms: dict[str, dict[str, Any]]) -> None:
    alarming = [name for name, alarm in alarms.items() if alarm["TreatMissingData"] != "notBreaching"]
    assert alarming == ["ReconcileSilentAlarm"]


def test_alarms_on_our_metrics_watch_metrics_that_exist(alarms: dict[str, dict[str, Any]]) -> None:
    ours = {alarm["MetricName"]: alarm for alarm in alarms.values() if alarm.get("Namespace") == "turnkeep"}
    assert {"Conflicts", "StoreUnavailable", "TurnsFailed"} <= set(ours) <= PUBLISHED
    for alarm in ours.values():
        assert alarm["Dimensions"] == [{"Name": "service", "Value": {"Ref": "AWS::StackName"}}]


def test_errors_and_throttles_are_watched_for_every_function(
    alarms: dict[str, dict[str, Any]], source: dict[str, Any]
) -> None:
    functions = {name for name, each in source["Resources"].items() if each["Type"] == "AWS::Serverless::Function"}
    for name in ("FunctionErrorsAlarm", "FunctionThrottlesAlarm"):
        stats = [query["MetricStat"]["Metric"] for query in alarms[name]["Metrics"] if "MetricStat" in query]
        assert {metric["Dimensions"][0]["Value"]["Ref"] for metric in stats} == functions


def test_the_dashboard_shows_metrics_that_exist(source: dict[str, Any]) -> None:
    body, _ = source["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    widgets = json.loads(re.sub(r"\$\{[^}]+\}", "x", body))["widgets"]
    assert 4 <= len(widgets) <= MOST_WIDGETS
    shown: set[str] = set()
    for widget in widgets:
        namespace = name = ""
        for metric in widget["properties"]["metrics"]:
            if metric[0] != "...":
                namespace, name = (
                    old if new == "." else new for old, new in zip((namespace, name), metric[:2], strict=True)
                )
            if namespace == "turnkeep":
                shown.add(name)
    assert shown
    assert shown <= PUBLISHED


def test_the_outputs_are_those_that_the_docs_use(source: dict[str, Any]) -> None:
    assert set(source["Outputs"]) == OUTPUTS
    assert all(output["Description"] for output in source["Outputs"].values())


def test_every_parameter_is_used_and_has_its_place_in_the_console(source: dict[str, Any]) -> None:
    groups = source["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    placed = [name for group in groups for name in group["Parameters"]]
    assert sorted(placed) == sorted(source["Parameters"])
    text = json.dumps({key: source[key] for key in ("Conditions", "Globals", "Resources", "Rules")})
    for name in source["Parameters"]:
        assert f'{{"Ref": "{name}"}}' in text or f"${{{name}}}" in text, name


@pytest.mark.parametrize("name", ["AskExpiresSeconds", "MaxMessageBytes", "RequestKeyTtlSeconds", "RetentionDays"])
def test_defaults_lie_inside_their_bounds(source: dict[str, Any], name: str) -> None:
    parameter = source["Parameters"][name]
    assert parameter["MinValue"] <= parameter["Default"] <= parameter["MaxValue"]


def test_an_ask_stays_open_for_180_days_at_most(source: dict[str, Any]) -> None:
    asks = source["Parameters"]["AskExpiresSeconds"]
    assert (asks["Default"], asks["MaxValue"]) == (7 * 86_400, 180 * 86_400)


def test_samconfig_names_no_account_and_asks_before_it_changes_anything() -> None:
    text = (ROOT / "samconfig.toml").read_text(encoding="utf-8")
    assert not re.search(r"\b\d{12}\b|profile", text)
    settings = tomllib.loads(text)
    for environment in ("default", "prod"):
        assert settings[environment]["deploy"]["parameters"]["confirm_changeset"] is True
        assert settings[environment]["deploy"]["parameters"]["capabilities"] == "CAPABILITY_IAM"
        assert settings[environment]["validate"]["parameters"]["lint"] is True
