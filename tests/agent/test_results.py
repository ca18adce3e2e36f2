"""From a tool's value to text (CONTRACT.md 1): kept exactly, or refused with the path to the value."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.agent.support import answered, by_step, turn
from turnkeep.agent import Agent, call, tool
from turnkeep.agent.results import NO_VALUE, plain_json, result_text, value_text
from turnkeep.errors import UnstorableValueError


class Price(BaseModel):
    cents: int
    at: datetime.date


@dataclasses.dataclass
class Line:
    price: Price
    note: str | None = None


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        ({"a": 1}, '{"a":1}'),
        ([1], "[1]"),
        ((1, (2,)), "[1,[2]]"),
        (False, "false"),
        (0, "0"),
        (0.1, "0.1"),
        (10**40, "1" + "0" * 40),
        ({"ä": "😀"}, '{"ä":"😀"}'),
        (Colour.RED, "red"),
        ([Colour.RED], '["red"]'),
        (Line(Price(cents=5, at=datetime.date(2026, 1, 2))), '{"price":{"cents":5,"at":"2026-01-02"},"note":null}'),
    ],
)
def test_values_become_text(value: Any, text: str) -> None:
    assert result_text(value) == text


def test_an_absent_value_is_a_placeholder_and_null_is_null() -> None:
    assert result_text(None) == NO_VALUE == "(no value)"
    assert value_text(None) == "null"
    assert result_text({"a": None}) == '{"a":null}'


loop: list[Any] = []
loop.append(loop)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"items": [{"price": float("nan")}]}, "result.items[0].price"),
        ([1.0, float("-inf")], "result[1]"),
        ({"raw": b"x"}, "result.raw"),
        ({"when": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "result.when"),
        ({"tags": {1, 2}}, "result.tags"),
        (decimal.Decimal("1.1"), "result"),
        ("broken \ud83d here", "result"),
        ({"a": ["\udfff"]}, "result.a[0]"),
        ({1: "x"}, "result"),
        ({"\ud800": 1}, "result (a key)"),
        ({"n": 10**5000}, "result.n"),
        (loop, "result"),
        (object(), "result"),
        (int, "result"),
    ],
)
def test_what_json_cannot_keep_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(UnstorableValueError) as refused:
        result_text(value)
    assert refused.value.path.startswith(path)
    assert len(refused.value.path) <= 200
    str(refused.value).encode("utf-8")


@pytest.mark.parametrize("value", [{"price": float("nan")}, {1, 2}, b"x", "\ud800", [10**5000], {1: 2}])
def test_the_model_is_told_where_and_the_turn_goes_on(value: Any) -> None:
    @tool
    def odd() -> Any:
        return value

    recorded = turn()
    outcome = answered(Agent(provider=by_step(call("odd"), "Sorry."), tools=[odd]).run(recorded.context))
    assert outcome.messages[2]["content"].startswith("error: the tool ran, but its result cannot be kept: result")
    assert outcome.messages[2]["isError"] is True
    assert outcome.output == "Sorry."
    json.dumps(outcome.messages, allow_nan=False).encode("utf-8")


def test_a_result_of_many_megabytes_is_one_failure_that_names_both_sizes() -> None:
    runs: list[int] = []

    @tool
    def huge() -> str:
        runs.append(1)
        return "é" * 10_000_000

    outcome = answered(Agent(provider=by_step(call("huge"), "Sorry."), tools=[huge]).run(turn().context))
    assert outcome.messages[2]["content"] == (
        "error: the tool ran, but its result of 20000000 bytes is over the limit of 262144 bytes; ask for less"
    )
    assert runs == [1]


def test_text_of_an_exception_that_cannot_be_stored_still_reaches_the_model() -> None:
    @tool
    def breaks() -> str:
        raise ValueError("odd \ud800 text")

    outcome = answered(Agent(provider=by_step(call("breaks"), "Sorry."), tools=[breaks]).run(turn().context))
    assert outcome.messages[2]["content"] == "error: the tool failed: ValueError: odd ? text"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_whatever_json_can_say_comes_back_exactly(value: Any) -> None:
    assert plain_json(value, at="x") == value
    if not isinstance(value, str):
        assert json.loads(value_text(value)) == value
