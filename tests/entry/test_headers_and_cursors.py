"""Preferences, keys, limits and cursors: small words of a caller, each read strictly or ignored by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeep.entry.http import positions
from turnkeep.entry.http.cursors import make_cursor, read_cursor
from turnkeep.entry.http.paths import parse_path_turn, turn_location
from turnkeep.entry.http.prefer import Preferences, parse_idempotency_key, parse_prefer
from turnkeep.entry.http.request import Request
from turnkeep.errors import InvalidRequestError
from turnkeep.usecases.deps import Caller

if TYPE_CHECKING:
    from turnkeep.ledger.store import Item

ANN = Caller(principal="ann", tenant="acme")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Preferences()),
        ("", Preferences()),
        ("wait=10", Preferences(wait_s=10)),
        ("WAIT = 10", Preferences(wait_s=10)),
        ('wait="7"', Preferences(wait_s=7)),
        ("wait=0", Preferences(wait_s=0)),
        ("wait=25", Preferences(wait_s=25)),
        ("wait=26", Preferences(wait_s=25)),
        ("wait=99999999999999999999", Preferences()),
        ("wait=-1", Preferences()),
        ("wait=1.5", Preferences()),
        ("wait=ten", Preferences()),
        ("wait=\u0663", Preferences()),
        ("wait", Preferences()),
        ("wait=3, wait=9", Preferences(wait_s=3)),
        ("respond-async", Preferences(respond_async=True)),
        ("Respond-Async, wait=5", Preferences(wait_s=5, respond_async=True)),
        ("wait=5; foo=bar, respond-async; x", Preferences(wait_s=5, respond_async=True)),
        ("return=representation, wait=4", Preferences(wait_s=4)),
        ('x="a, wait=9", wait=4', Preferences(wait_s=4)),
        (",,, wait=4", Preferences(wait_s=4)),
        ("=;=, wait=4", Preferences(wait_s=4)),
        ('"unclosed, wait=4', Preferences(wait_s=4)),
        ("respond-async=yes", Preferences()),
    ],
)
def test_preferences_are_read_as_rfc_7240_says(header: str | None, expected: Preferences) -> None:
    assert parse_prefer(header) == expected


@given(st.text())
def test_no_preference_fails_a_request(header: str) -> None:
    found = parse_prefer(header)
    assert found.wait_s is None or 0 <= found.wait_s <= 25


@pytest.mark.parametrize("key", ["a", "x" * 255, "8e03978e-40d5-43dd-bc93-6894a57f9324", "a b", "ü"])
def test_a_key_of_printable_characters_is_taken(key: str) -> None:
    assert parse_idempotency_key(key) == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "a\x00", "\x7f", "\ud800"])
def test_any_other_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequestError, match="1 to 255 printable") as refusal:
        parse_idempotency_key(key)
    assert refusal.value.fields == ["header.idempotency-key"]


@pytest.mark.parametrize("segment", ["1", "42", "999999999999999"])
def test_a_turn_in_a_path(segment: str) -> None:
    assert parse_path_turn(segment) == int(segment)


@pytest.mark.parametrize("segment", ["", "0", "01", "+1", "-1", "1.0", "1e3", "1" * 16, "١", " 1", "1\n", "x"])
def test_what_is_no_turn_in_a_path(segment: str) -> None:
    with pytest.raises(InvalidRequestError, match="whole number from 1"):
        parse_path_turn(segment)


def test_a_location_has_the_form_that_fits() -> None:
    assert turn_location("c1", 2) == "/conversations/c1/turns/2"
    assert turn_location("a b", 2) == "/conversations/~YSBi/turns/2"


@pytest.mark.parametrize(("said", "limit"), [(None, 50), ("1", 1), ("100", 100), ("007", 7)])
def test_limits(said: str | None, limit: int) -> None:
    assert Request("GET", None, "/", query={} if said is None else {"limit": said}).limit() == limit


@pytest.mark.parametrize("said", ["0", "101", "-1", "1.0", "ten", "", "1,2", "\u0661", "9" * 30])
def test_limits_that_are_none(said: str) -> None:
    with pytest.raises(InvalidRequestError, match="limit is a whole number"):
        Request("GET", None, "/", query={"limit": said}).limit()


# --- cursors ------------------------------------------------------------------------------------------------

SCOPE = ("/conversations", "acme", "ann", None)
POSITION = [1_800_000_000_000, "c/1 ü"]


def test_a_cursor_holds_its_position_in_plain_characters() -> None:
    cursor = make_cursor(SCOPE, POSITION)
    assert read_cursor(SCOPE, cursor) == POSITION
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert cursor.isascii()


@pytest.mark.parametrize(
    "scope",
    [
        ("/asks", "acme", "ann", None),
        ("/conversations", "acme", "bob", None),
        ("/conversations", "other", "ann", None),
        ("/conversations", None, "ann", None),
        ("/conversations", "acme", "ann", "c1"),
        ("/conversations", "acme", None, "ann"),
    ],
)
def test_a_cursor_is_its_owners_and_its_listings(scope: tuple[str | None, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="not made for this"):
        read_cursor(scope, make_cursor(SCOPE, POSITION))


def test_no_single_character_of_a_cursor_can_be_changed() -> None:
    cursor = make_cursor(SCOPE, POSITION)
    for at, old in enumerate(cursor):
        changed = cursor[:at] + ("A" if old != "A" else "B") + cursor[at + 1 :]
        with pytest.raises(InvalidRequestError):
            read_cursor(SCOPE, changed)


@given(st.text())
def test_no_text_is_a_cursor_by_accident(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_cursor(SCOPE, text)


@pytest.mark.parametrize("cursor", ["", "A", "A" * 16, "====", "A" * 9_000, make_cursor(SCOPE, 1) + "="])
def test_tampered_cursors(cursor: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_cursor(SCOPE, cursor)


def test_a_position_in_a_listing_is_rebuilt_from_the_caller() -> None:
    item: Item = {"ownerKey": "acme/ann/_", "savedAt": 5, "pk": "acme/_/c%2F1", "sk": "CONVERSATION"}
    position = positions.of_conversation(item)
    assert position == [5, "c/1"]
    assert positions.conversation(position, ANN) == item
    bobs = positions.conversation(position, Caller(principal="bob", tenant="other"))
    assert bobs == {"ownerKey": "other/bob/_", "savedAt": 5, "pk": "other/_/c%2F1", "sk": "CONVERSATION"}


@pytest.mark.parametrize(
    "forged",
    [5, "c1", {}, [], [1], [1, 2], [1, ""], ["1", "c"], [-1, "c"], [True, "c"], [10**16, "c"], [1.5, "c"], [1, "c", 2]],
)
def test_a_forged_position_is_refused(forged: Any) -> None:
    with pytest.raises(InvalidRequestError):
        positions.conversation(forged, ANN)


@pytest.mark.parametrize("forged", ["1", True, -1, 10**17, [1], {}])
def test_a_forged_turn_or_message_is_refused(forged: Any) -> None:
    with pytest.raises(InvalidRequestError):
        positions.turn(forged)
    with pytest.raises(InvalidRequestError):
        positions.message([1, forged])
    with pytest.raises(InvalidRequestError):
        positions.ask([1, "c", forged], ANN)


def test_no_cursor_is_the_beginning() -> None:
    assert positions.turn(None) is None
    assert positions.message(None) is None
    assert positions.conversation(None, ANN) is None
    assert positions.ask(None, ANN) is None
    assert positions.of_ask(None) is None
    assert positions.of_conversation(None) is None


def test_a_place_among_asks_names_no_partition() -> None:
    item: Item = {"audienceKey": "acme/role:x/_", "askedAt": 9, "pk": "acme/_/c1", "sk": "TURN#0000000000000007"}
    assert positions.of_ask(item) == [9, "c1", 7]
    assert positions.ask([9, "c1", 7], ANN) == {name: item[name] for name in ("askedAt", "pk", "sk")}
