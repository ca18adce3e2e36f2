"""Ids: minted ones, chosen ones, and their forms in a path."""

from __future__ import annotations

import re
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeep.errors import InvalidRequestError
from turnkeep.ids import (
    check_conversation_id,
    conversation_id_of_request,
    mint_ask_id,
    mint_conversation_id,
    mint_epoch,
    mint_run_id,
    parse_path_id,
    path_form,
    turn_of_ask,
)

TEXT = st.text(min_size=1).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text))


@given(TEXT)
def test_every_id_survives_its_path(conversation_id: str) -> None:
    form = path_form(conversation_id)
    assert re.fullmatch(r"~?[A-Za-z0-9._-]+", form)
    assert parse_path_id(form) == conversation_id


@given(TEXT, TEXT)
def test_two_ids_never_meet_in_a_path(one: str, other: str) -> None:
    assert (path_form(one) == path_form(other)) is (one == other)


@given(st.text())
def test_no_other_segment_is_an_id_by_accident(segment: str) -> None:
    try:
        conversation_id = parse_path_id(segment)
    except InvalidRequestError:
        return
    assert segment in {conversation_id, path_form(conversation_id)} or segment.startswith("~")


def test_both_forms_of_a_plain_id_are_one_conversation() -> None:
    assert parse_path_id("~YzE") == parse_path_id("c1") == "c1"


@pytest.mark.parametrize("conversation_id", ["", "\ud800", "x" * 2_045, "é" * 1_023, "%" * 682])
def test_ids_that_no_conversation_may_have(conversation_id: str) -> None:
    with pytest.raises(InvalidRequestError, match="2,048 bytes"):
        check_conversation_id(conversation_id)


@pytest.mark.parametrize("conversation_id", [" ", "x" * 2_044, "é" * 1_022, "%" * 681, "_", "..", "\x00", "a\nb"])
def test_all_others_may_be_had(conversation_id: str) -> None:
    assert check_conversation_id(conversation_id) == conversation_id


def test_minted_ids_have_their_forms() -> None:
    assert re.fullmatch(r"run-7-[A-Za-z0-9_-]{16}", mint_run_id(7, secrets.token_urlsafe))
    assert re.fullmatch(r"ask-3-[A-Za-z0-9_-]{16}", mint_ask_id(3, secrets.token_urlsafe))
    assert re.fullmatch(r"[A-Za-z0-9_-]{16}", mint_epoch(secrets.token_urlsafe))
    minted = mint_conversation_id(secrets.token_urlsafe)
    assert re.fullmatch(r"c-[A-Za-z0-9_-]{22}", minted)
    assert path_form(minted) == minted


def test_an_ask_names_its_turn() -> None:
    assert turn_of_ask(mint_ask_id(17, secrets.token_urlsafe)) == 17


@pytest.mark.parametrize(
    "text", ["", "ask", "ask-", "ask-1", "ask-1-", "ask-0-a", "ask-01-a", "ask--1-a", "ask-1-a b", "ask-1-a\n",
             "ask-x-a", "xask-1-a", "ask-" + "9" * 17 + "-a", "ask-1-" + "a" * 65, "ask-\u0661-a"]
)  # fmt: skip
def test_text_that_is_no_asks_id(text: str) -> None:
    assert turn_of_ask(text) is None


def test_a_requests_conversation_is_its_callers() -> None:
    ids = {
        conversation_id_of_request(tenant, principal, key)
        for tenant in (None, "a", "b")
        for principal in (None, "a", "b")
        for key in ("a", "b", "a,b")
    }
    assert len(ids) == 27
    assert conversation_id_of_request("a", "b", "c") == conversation_id_of_request("a", "b", "c")
