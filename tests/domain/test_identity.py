"""Namespaces: every golden case, and injectivity over alphabets made to break it (CONTRACT.md 6.2)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.domain.golden_cases import case_id, load, scored, untag
from turnkeep.identity import NAMESPACE_FIELDS, identity_namespace, namespace_segment, segment_field, split_namespace

FILE = load("identity-namespace")
CASES = scored("identity-namespace")

HOSTILE = st.text(alphabet=st.sampled_from("_%/5F2fFa.é\u0301\u200b \0"), max_size=8)
FIELDS = st.one_of(st.none(), HOSTILE, st.text(max_size=6), st.sampled_from(["_", "%5F", "%5f", "%2F", "%25", "a/b"]))
IDENTITIES = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMESPACE_FIELDS, FIELDS))


def named_fields(identity: dict[str, Any]) -> dict[str, str]:
    """What an identity says: the fields that somebody fills."""
    return {name: identity[name] for name in NAMESPACE_FIELDS if identity.get(name)}


def test_no_case_is_left_out() -> None:
    assert CASES.left_out == {}


@pytest.mark.parametrize("case", CASES.cases, ids=case_id)
def test_golden_case(case: dict[str, Any]) -> None:
    identity = untag(case["identity"])
    if "namespace" in case["expect"]:
        assert identity_namespace(identity) == case["expect"]["namespace"]
        return
    with pytest.raises(TypeError) as refusal:
        identity_namespace(identity)
    values = [value for value in identity.values() if not isinstance(value, str)]
    assert values
    assert not [value for value in values if str(value) in str(refusal.value)], "the refusal quotes the value"


@pytest.mark.parametrize("pair", FILE["pairs"], ids=case_id)
def test_golden_pair(pair: dict[str, Any]) -> None:
    a, b = identity_namespace(untag(pair["a"])), identity_namespace(untag(pair["b"]))
    assert (a, b, a == b) == (pair["expect"]["a"], pair["expect"]["b"], pair["expect"]["same"])


@pytest.mark.parametrize("row", FILE["fields"], ids=lambda row: repr(row["field"]))
def test_golden_field(row: dict[str, Any]) -> None:
    field = untag(row["field"])
    assert namespace_segment(field) == row["segment"]
    assert segment_field(row["segment"]) == (field or None)


def test_exhaustive_tuples_do_not_clash() -> None:
    table = FILE["exhaustive"]
    tuples = list(product(table["alphabetWithAbsent"], repeat=3))
    namespaces = {identity_namespace(dict(zip(NAMESPACE_FIELDS, fields, strict=True))) for fields in tuples}
    assert (len(tuples), len(namespaces)) == (table["tuples"], table["distinctNamespaces"])


@pytest.mark.parametrize("value", [0, False, [], {}, 7, b"x"])
def test_falsy_values_that_are_no_strings_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        namespace_segment(value)


@given(IDENTITIES, IDENTITIES)
@example({"tenant": "_"}, {})
@example({"tenant": "%5F"}, {"tenant": "_"})
@example({"tenant": "a/b"}, {"tenant": "a", "principal": "b"})
def test_two_identities_share_a_namespace_only_if_they_agree(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert (identity_namespace(a) == identity_namespace(b)) == (named_fields(a) == named_fields(b))


@given(IDENTITIES)
def test_a_namespace_splits_into_its_identity(identity: dict[str, Any]) -> None:
    assert split_namespace(identity_namespace(identity)) == named_fields(identity)


@given(st.one_of(HOSTILE, st.builds("/".join, st.lists(HOSTILE, min_size=3, max_size=3))))
@example("_/%5F/%255F")
@example("a/%2f/c")
@example("//")
@example("a%/b/c")
@example("a%5F/b/c")
@example("a\n/b/c")
def test_what_splits_at_all_is_a_namespace_and_the_refusal_repeats_nothing(key: str) -> None:
    try:
        identity = split_namespace(key)
    except ValueError as refusal:
        assert len(key) < 3 or key not in str(refusal)
        return
    assert identity_namespace(identity) == key


@pytest.mark.parametrize(
    "key", ["", "a", "a/b", "a/b/c/d", "a//c", "%/_/c", "%2f/_/c", "a%5F/_/c", "%5f/_/c", "%2/_/c"]
)
def test_a_key_that_is_no_namespace_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"namespace"):
        split_namespace(key)
