"""Bodies: what is refused before anybody looks at it, and when two bodies are the same request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeep.entry.http.json_body import MAX_NESTING, body_digest, parse_body, refuse_lone_surrogates
from turnkeep.errors import InvalidRequestError
from turnkeep.ledger.codec import MAX_DEPTH

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("hello", "not JSON"),
        ('{"message": "a"', "not JSON"),
        ('{"message": "a"} {}', "not JSON"),
        ("\ufeff{}", "not JSON"),
        ("{'message': 1}", "not JSON"),
        ('{"a": 1, "a": 2}', "key twice"),
        ('{"x": [{"a": 1, "a": 1}]}', "key twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "NaN or an infinity"),
        ('{"a": 1e999}', "NaN or an infinity"),
        ('{"a": ' + "9" * 4_301 + "}", "integer"),
        ("[]", "no JSON object"),
        ('"text"', "no JSON object"),
        ("null", "no JSON object"),
        ("7", "no JSON object"),
    ],
)
def test_what_is_no_strict_json_object_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says):
        parse_body(text)


def nested(levels: int, opening: str = "[", closing: str = "]") -> str:
    return '{"a":' + opening * (levels - 1) + closing * (levels - 1) + "}"


def test_nesting_is_bounded_where_the_ledger_bounds_it() -> None:
    assert MAX_NESTING == MAX_DEPTH
    parse_body(nested(MAX_NESTING))
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        parse_body(nested(MAX_NESTING + 1))


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_hundred_thousand_levels_are_refused_and_not_followed(opening: str) -> None:
    with pytest.raises(InvalidRequestError, match="nested deeper"):
        parse_body(opening * 100_000)


def test_brackets_inside_text_are_no_nesting() -> None:
    text = json.dumps({"message": '[{"\\' * 5_000})
    assert parse_body(text) == json.loads(text)


def test_many_levels_side_by_side_are_no_depth() -> None:
    text = json.dumps({"list": [[]] * 5_000})
    assert parse_body(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"message": "\\ud800"}', "message"),
        ('{"message": "ok", "decision": {"a": ["\\uDFFF"]}}', "decision"),
        ('{"decision": {"\\ud800": 1}}', "decision"),
        ('{"\\ud800": 1}', "body"),
        ('{"message": "\\ud800\\ud800"}', "message"),
        ('{"message": "raw \ud83d"}', "message"),
    ],
)
def test_a_lone_surrogate_is_refused_with_its_field(text: str, field: str) -> None:
    with pytest.raises(InvalidRequestError, match="surrogate") as refusal:
        refuse_lone_surrogates(text, parse_body(text))
    assert refusal.value.fields == [field]


@pytest.mark.parametrize("text", ['{"m": "\\ud83d\\ude00"}', '{"m": "😀"}', '{"m": "\\\\ud800"}', '{"m": "\\u00e9"}'])
def test_whole_characters_pass(text: str) -> None:
    refuse_lone_surrogates(text, parse_body(text))


# --- one request or two -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":2}', '{ "b" : 2,\n "a" : 1 }'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":1}', '{"a":10e-1}'),
        ('{"a":100}', '{"a":1E+2}'),
        ('{"a":0}', '{"a":-0.0}'),
        ('{"a":0}', '{"a":0e99}'),
        ('{"a":1e23}', '{"a":100000000000000000000000}'),
        ('{"a":"é"}', '{"a":"\\u00e9"}'),
        ('{"a":"/"}', '{"a":"\\/"}'),
        ('{"a":[1,{"c":1,"d":2}]}', '{"a":[1.00,{"d":2,"c":1}]}'),
    ],
)
def test_equal_as_json_is_the_same_request(one: str, other: str) -> None:
    assert body_digest("POST /x", one) == body_digest("POST /x", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":2}'),
        ('{"a":1}', '{"a":"1"}'),
        ('{"a":1}', '{"a":true}'),
        ('{"a":null}', "{}"),
        ('{"a":0}', '{"a":false}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":9007199254740993}', '{"a":9007199254740992}'),
        ('{"a":0.1}', '{"a":0.10000000000000000001}'),
        ('{"a":1}', '{"a":-1}'),
        ('{"a":10}', '{"a":1}'),
        ('{"a":1e-400}', '{"a":1e-401}'),
        ('{"a":["b","c"]}', '{"a":["b,c"]}'),
        ('{"a":"b"}', '{"a":{"b":null}}'),
        ('{"a":"e\\u0301"}', '{"a":"\\u00e9"}'),
        ("", "{}"),
    ],
)
def test_other_content_is_another_request(one: str, other: str) -> None:
    assert body_digest("POST /x", one) != body_digest("POST /x", other)


def test_a_body_belongs_to_its_route() -> None:
    assert body_digest("POST /conversations", "{}") != body_digest("POST /conversations/{id}/turns", "{}")


@given(JSON)
def test_writing_a_body_anew_changes_nothing(value: Any) -> None:
    plain = json.dumps({"v": value})
    spread = json.dumps({"v": value}, indent=3, sort_keys=True, ensure_ascii=False)
    assert parse_body(plain) == {"v": value}
    assert body_digest("POST /x", plain) == body_digest("POST /x", spread)
