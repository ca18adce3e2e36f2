"""Decisions, gates, components, staleness, and what an ask shows (CONTRACT.md 5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.domain.golden_cases import case_id, fixture, load, scored, untag
from tests.domain.json_strategies import JSON
from turnkeep import decisions
from turnkeep.errors import (
    DecisionRequiredError,
    InvalidAskComponentError,
    PauseAnswerRequiredError,
    StaleDecisionError,
    TurnkeepError,
)
from turnkeep.json_values import ABSENT

CASES = scored("decisions")
NOW_MS = load("decisions")["now"]
PAUSED = ["c-paused-askhuman", "c2-paused-second-of-three-calls", "d-paused-checkin", "d-paused-checkin-2"]
PAUSED.append("f-paused-middleware-ask")


def call(case: dict[str, Any]) -> Any:
    given_value = untag(case.get("input", ABSENT))
    if case["fn"] in ("approved", "declined"):
        build = {"approved": decisions.approved, "declined": decisions.declined}[case["fn"]]
        return build(**given_value, now_ms=NOW_MS)
    if case["fn"] == "staleness":
        decisions.staleness(untag(case["pause"]), given_value)
        return "accepted"
    if case["fn"] == "assertComponent":
        decisions.assert_component(given_value, "door")
        return "accepted"
    function = {
        "isDecision": decisions.is_decision,
        "gateOf": decisions.gate_of,
        "componentOf": decisions.component_of,
    }[case["fn"]]
    result = function(given_value)
    return ABSENT if result is None else result


def test_no_case_is_left_out() -> None:
    assert CASES.left_out == {}


@pytest.mark.parametrize("case", CASES.cases, ids=case_id)
def test_golden_case(case: dict[str, Any]) -> None:
    if "returns" in case["expect"]:
        assert call(case) == untag(case["expect"]["returns"])
        return
    with pytest.raises(TurnkeepError) as caught:
        call(case)
    facts = dict(case["expect"]["raises"])
    assert (type(caught.value).__name__, caught.value.code) == (facts.pop("class"), facts.pop("code"))
    assert {name: getattr(caught.value, name) for name in facts} == facts


@pytest.mark.parametrize("row", load("errors")["received"], ids=lambda row: row["received"])
def test_what_came_is_described_and_not_quoted(row: dict[str, Any]) -> None:
    assert decisions.received_shape(untag(row["input"])) == row["received"]


@pytest.mark.parametrize("row", load("errors")["awaitingMentions"], ids=lambda row: row["mentions"][0])
def test_an_asks_question(row: dict[str, Any]) -> None:
    question = decisions.question_of(row["pending"]) or "a decision"
    assert question == row["mentions"][0].strip('"')


@pytest.mark.parametrize(
    ("pending", "question"),
    [
        ({"question": "", "ask": {"question": "Q2"}}, "Q2"),
        ({"question": 7, "checkIn": {"willDo": "W"}}, "W"),
        ({"checkIn": {"evidence": {"willDo": "E"}, "willDo": "W"}}, "E"),
        ({"checkIn": []}, None),
        (None, None),
    ],
)
def test_a_question_is_the_first_text_there_is(pending: Any, question: str | None) -> None:
    assert decisions.question_of(pending) == question


@pytest.mark.parametrize("name", PAUSED)
def test_what_an_ask_shows_is_what_the_reference_showed(name: str) -> None:
    paused = fixture(f"{name}.json")["data"]
    pending = decisions.pending_ask(paused["checkpoint"]["pauseData"], paused["pending"].get("sessionId"))
    assert pending == paused["pending"]
    assert list(pending) == list(paused["pending"])


def test_an_ask_of_odd_pause_data_shows_it_and_no_more() -> None:
    assert decisions.pending_ask("words") == {"pauseData": "words"}
    assert decisions.pending_ask({"toolName": 7, "question": None}) == {"pauseData": {"toolName": 7, "question": None}}
    both = {"checkIn": {"tool": "t"}, "ask": {"question": "q"}}
    assert decisions.pending_ask(both, "s-1") == {"sessionId": "s-1", "checkIn": {"tool": "t"}, "pauseData": both}


YES = {"approved": True, "by": "ada"}
PINNED = {"componentId": "pick", "propsRef": "art_1"}


@pytest.mark.parametrize("answer", [ABSENT, None, "yes", 1, True, [], {}, {"approved": "yes", "by": "ada"}])
def test_a_gate_takes_decisions_only(answer: Any) -> None:
    pause = {"toolName": "pay", "ask": {"question": "q", "middleware": "four-eyes"}}
    with pytest.raises(DecisionRequiredError) as caught:
        decisions.check_answer(pause, answer)
    assert caught.value.facts() == {
        "gate": "ask",
        "tool": "pay",
        "middleware": "four-eyes",
        "received": decisions.received_shape(answer),
    }


@pytest.mark.parametrize("answer", [None, False, 0, "", [], {}, YES])
def test_a_plain_ask_takes_any_value(answer: Any) -> None:
    decisions.check_answer({"toolName": "ask", "toolCallId": "c1", "question": "q"}, answer)


def test_a_plain_ask_takes_no_absence() -> None:
    with pytest.raises(PauseAnswerRequiredError) as caught:
        decisions.check_answer({"toolName": "ask", "toolCallId": "c1"}, ABSENT)
    assert (caught.value.tool_name, caught.value.tool_call_id) == ("ask", "c1")


def test_a_bare_value_is_named_before_a_stale_one() -> None:
    pause = {"checkIn": {"component": PINNED}}
    bare = {"value": {"kind": "row", "value": 1, "from": "art_2"}}
    with pytest.raises(DecisionRequiredError):
        decisions.check_answer(pause, bare)
    with pytest.raises(StaleDecisionError) as caught:
        decisions.check_answer(pause, YES | bare)
    assert (caught.value.asked, caught.value.answered) == ("art_1", "art_2")
    decisions.check_answer(pause, YES | {"value": {"kind": "row", "value": 1, "from": "art_1"}})


def test_a_null_value_of_a_decision_is_kept() -> None:
    assert decisions.approved("ada", value=None, now_ms=5)["value"] is None
    assert "value" not in decisions.approved("ada", now_ms=5)


@pytest.mark.parametrize("component", [{"componentId": "a", "props": []}, {"componentId": "a", "propsRef": None}])
def test_more_components_that_nothing_could_show(component: Any) -> None:
    with pytest.raises(InvalidAskComponentError):
        decisions.assert_component(component, "door")


@given(JSON, JSON)
def test_an_answer_is_accepted_or_refused_by_name(pause_data: Any, answer: Any) -> None:
    decisions.question_of(pause_data)
    assert decisions.pending_ask(pause_data)["pauseData"] is pause_data
    try:
        decisions.check_answer(pause_data, answer)
    except (DecisionRequiredError, StaleDecisionError) as refusal:
        assert refusal.code in ("ERR_DECISION_REQUIRED", "ERR_STALE_DECISION")


def test_a_check_in_wins_and_has_no_middleware() -> None:
    pause = {"toolName": "pay", "checkIn": {"tool": "pay"}, "ask": {"question": "q", "middleware": "m"}}
    assert decisions.gate_of(pause) == {"kind": "checkIn", "toolName": "pay"}
    assert decisions.gate_of(pause | {"checkIn": "x"}) == {"kind": "ask", "toolName": "pay", "middleware": "m"}


@pytest.mark.parametrize("first", ["", 0, False, {}, []])
def test_a_nomination_that_is_no_component_hides_the_later_ones(first: Any) -> None:
    assert decisions.component_of({"component": first, "checkIn": {"component": {"componentId": "b"}}}) is None
    assert decisions.component_of({"component": None, "ask": {"component": {"componentId": "b"}}}) == {
        "componentId": "b"
    }
