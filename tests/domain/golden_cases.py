"""Reads the golden cases as tests/golden/cases/README.md says: tags taken off, fixtures put in, flags obeyed.

A case whose flag says "do not score" is left out when tests are collected, and `left_out` remembers it with the
reason, so that each test file can assert exactly which ones it does not run and why.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnkeep.json_values import ABSENT

GOLDEN = Path(__file__).parents[1] / "golden"

NOT_SCORED = {
    "unintended-in-reference": "recorded for knowledge; a good implementation differs",
    "superseded-by-newer-release": "a later release of the reference changes this on purpose",
    "beyond-safe-integer": "JavaScript rounds above 2^53 and Python does not",
}

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-0": -0.0}


def untag(value: Any) -> Any:
    """The value that a tagged one stands for; keys whose value is absent are gone."""
    if isinstance(value, list):
        return [untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value == {"$undefined": True}:
        return ABSENT
    if set(value) == {"$num"}:
        return _NUMBERS[value["$num"]]
    if set(value) == {"$fixture"}:
        return fixture(value["$fixture"])
    plain = {key: untag(item) for key, item in value.items()}
    return {key: item for key, item in plain.items() if item is not ABSENT}


def fixture(name: str) -> Any:
    return json.loads((GOLDEN / "fixtures" / name).read_text(encoding="utf-8"))


def load(name: str) -> dict[str, Any]:
    """A case file as it is, tags included: a case's absent and its null are told apart by `untag` where used."""
    loaded: dict[str, Any] = json.loads((GOLDEN / "cases" / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


@dataclass
class Scored:
    """The cases of a file that are to be run, and those that are not, by id with the reason."""

    cases: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def scored(name: str) -> Scored:
    """Splits a file's cases by their flags. A flag `x:function` speaks of one function only and is left to the test."""
    result = Scored()
    for case in load(name)["cases"]:
        reason = next((NOT_SCORED[flag] for flag in case.get("flags", []) if flag in NOT_SCORED), None)
        if reason is None:
            result.cases.append(case)
        else:
            result.left_out[case["id"]] = reason
    return result


def case_id(case: dict[str, Any]) -> str:
    return f"{case['id']} {case.get('name', case.get('fn', ''))}"
