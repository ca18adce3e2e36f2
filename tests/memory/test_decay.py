"""The decay factor: the reference's values, and what holds for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeep.memory.decay import MAX_BOOST, decay_factor

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "cases" / "memory-store.json").read_text("utf-8"))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POLICIES = st.fixed_dictionaries({"halfLifeMs": FINITE, "accessBoost": FINITE})


@pytest.mark.parametrize("case", GOLDEN["decay"], ids=lambda case: case["id"])
def test_a_value_of_the_reference(case: dict[str, Any]) -> None:
    assert decay_factor(case["entry"], case["now"], case.get("policy")) == pytest.approx(case["expect"], rel=1e-12)


@given(policy=POLICIES, age=st.integers(-(10**13), 10**13), reads=st.integers(0, 10**9))
def test_it_is_never_negative_nor_above_the_cap(policy: Any, age: int, reads: int) -> None:
    entry = {"lastAccessedAt": 0, "accessCount": reads, "decayPolicy": policy}
    assert 0 <= decay_factor(entry, age) <= MAX_BOOST


@given(policy=POLICIES, age=st.integers(0, 10**12), later=st.integers(0, 10**12), reads=st.integers(0, 100))
def test_it_never_grows_with_age(policy: Any, age: int, later: int, reads: int) -> None:
    entry = {"lastAccessedAt": 0, "accessCount": reads}
    assert decay_factor(entry, age + later, policy) <= decay_factor(entry, age, policy)
