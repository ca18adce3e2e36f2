"""The first signer owns; leaner turns keep the owner; strangers are refused without a name (CONTRACT.md 10.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.golden_cases import case_id, scored, untag
from turnkeep.errors import SessionOwnershipConflictError
from turnkeep.json_values import ABSENT
from turnkeep.ownership import may_open, resolve_session_owner

CASES = scored("ownership")
PEOPLE = st.one_of(st.sampled_from(["ada", "bo", "Ada", "ada ", " ", "", "café", "cafe\u0301"]), st.text(max_size=3))
CLAIMS = st.one_of(PEOPLE, st.none(), st.integers(), st.just(ABSENT))


def test_no_case_is_left_out() -> None:
    assert CASES.left_out == {}


@pytest.mark.parametrize("case", CASES.cases, ids=case_id)
def test_golden_case(case: dict[str, Any]) -> None:
    session, stored, incoming = case["sessionId"], untag(case["stored"]), untag(case["incoming"])
    expect = case["expect"]
    if "owner" in expect:
        owner = untag(expect["owner"])
        assert resolve_session_owner(session, stored, incoming) == (None if owner is ABSENT else owner)
        return
    with pytest.raises(SessionOwnershipConflictError) as caught:
        resolve_session_owner(session, stored, incoming)
    raises = expect["raises"]
    assert (type(caught.value).__name__, caught.value.code) == (raises["class"], raises["code"])
    assert caught.value.conversation_id == raises["sessionId"]
    words = str(caught.value).replace(session, "")
    assert (session in str(caught.value)) == raises["messageMentionsSessionId"]
    # A blank name is in every sentence; any other would be a leak.
    names = [name for name in (stored, incoming) if name.strip() and name in words.split()]
    assert bool(names) == raises["messageNamesEitherPerson"]


@given(st.lists(CLAIMS, max_size=6))
def test_over_any_sequence_of_writes_the_first_signer_stays(signers: list[Any]) -> None:
    first = next((signer for signer in signers if isinstance(signer, str) and signer), None)
    owner: Any = None
    for signer in signers:
        try:
            owner = resolve_session_owner("s-1", owner, signer)
        except SessionOwnershipConflictError:
            assert signer not in (owner, "")
    assert owner == first


@pytest.mark.parametrize(
    ("owner", "caller", "opens"),
    [
        ("ada", "ada", True),
        ("ada", "bo", False),
        ("ada", "Ada", False),
        ("ada", None, False),
        (None, "ada", False),
        (None, None, True),
        ("", None, True),
        (7, None, True),
        (" ", None, False),
    ],
)
def test_who_may_open(owner: Any, caller: str | None, opens: bool) -> None:
    assert may_open(owner, caller) is opens
