"""Hostile input at the real handlers: a clear 4xx, no 500, nothing written, and nothing of it in the logs.

Everything that is sent carries ``LEAK``, so that one search over what was logged and replied finds it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import string
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.functions.stage import Context, handler_of, saved_event
from turnkeep.ids import path_form

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.functions.stage import Stage

EVENTS = {
    "POST /conversations/{id}/turns": ("turn", "turn-message"),
    "POST /conversations": ("turn", "conversation-create-with-message"),
    "POST /conversations/{id}/answers": ("answer", "answer-approve"),
    "DELETE /conversations/{id}": ("turn", "conversation-erase"),
    "DELETE /conversations/{id}/turns/{n}": ("answer", "turn-withdraw"),
    "GET /conversations/{id}": ("read", "read-conversation"),
    "GET /conversations/{id}/turns": ("read", "read-turns"),
    "GET /conversations/{id}/turns/{n}": ("read", "read-turn"),
    "GET /conversations/{id}/turns/{n}/evidence": ("read", "read-evidence"),
    "GET /conversations/{id}/transcript": ("read", "read-transcript"),
    "GET /conversations": ("read", "read-conversations"),
    "GET /asks": ("read", "read-asks"),
}
POSTS = [route for route in EVENTS if route.startswith("POST")]
WITH_ID = [route for route in EVENTS if "{id}" in route]
PAGED = [route for route in EVENTS if route.startswith("GET") and not route.endswith(("{id}", "{n}", "evidence"))]
MARK = "LEAK"


@dataclass
class Said:
    """A reply, and what was logged of its request."""

    status: int
    text: str
    headers: dict[str, str]
    log: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> Any:
        return self.body.get("error", {}).get("code")


@dataclass
class Target:
    """The functions, given events that nobody well-meaning would send."""

    stage: Stage
    handlers: dict[str, Any] = field(default_factory=dict)

    def send(self, route: str, **changes: Any) -> Said:
        event = saved_event(EVENTS[route][1])
        event["headers"] |= changes.pop("headers", {})
        if "id" in changes:
            event["pathParameters"]["id"] = changes["id"]
            event["rawPath"] = f"/conversations/{changes.pop('id')}"
        if "n" in changes:
            event["pathParameters"]["n"] = changes.pop("n")
        event |= changes
        return self.give(EVENTS[route][0], event)

    def give(self, function: str, event: Any) -> Said:
        if function not in self.handlers:
            self.handlers[function] = handler_of(function)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            reply = self.handlers[function](event, Context())
        assert "\n" not in json.dumps(reply["headers"]).replace("\\n", "\n"), "a header that ends early"
        return Said(reply["statusCode"], reply["body"], reply["headers"], out.getvalue())

    def refused(self, said: Said, *statuses: int) -> None:
        """It was refused, in words of ours, and left nothing anywhere."""
        assert said.status in (statuses or (400,)), (said.status, said.text[:300])
        assert said.code.startswith("ERR_")
        assert MARK not in said.text
        assert MARK not in said.log
        assert "Traceback" not in said.log


@pytest.fixture
def target(stage: Stage) -> Iterator[Target]:
    made = Target(stage)
    yield made


# --- bodies -------------------------------------------------------------------------------------------------

BODIES: dict[str, str] = {
    "no JSON": MARK,
    "cut": '{"message":"LEAK',
    "a text": '"LEAK"',
    "a list": '["LEAK"]',
    "a number": "7",
    "null": "null",
    "two objects": '{"message":"LEAK"}{"message":"LEAK"}',
    "a comment": '{"message":"LEAK"}//',
    "single quotes": "{'message':'LEAK'}",
    "a trailing comma": '{"message":"LEAK",}',
    "a BOM": '\ufeff{"message":"LEAK"}',
    "a key twice": '{"message":"LEAK","message":"LEAK2"}',
    "a key twice, inside": '{"message":"m","askId":"ask-1-a","decision":{"LEAK":1,"LEAK":2}}',
    "NaN": '{"message":"m","askId":"ask-1-a","decision":NaN,"LEAK":1}',
    "an infinity": '{"message":"m","askId":"ask-1-a","decision":1e999,"LEAK":1}',
    "a huge integer": '{"message":"m","askId":"ask-1-a","decision":' + "9" * 5_000 + ',"LEAK":1}',
    "deep": "[" * 100_000 + MARK,
    "deep inside": '{"message":"m","askId":"ask-1-a","LEAK":' + "[" * 300 + "]" * 300 + ',"decision":1}',
    "deep objects": '{"LEAK":' * 5_000 + "1" + "}" * 5_000,
    "a lone surrogate": '{"message":"LEAK\\ud800","askId":"LEAK\\ud800","decision":"LEAK\\ud800"}',
    "a lone surrogate in a key": '{"message":"m","askId":"ask-1-a","decision":{"LEAK\\udfff":1}}',
    "a lone surrogate in a name": '{"message":"m","askId":"ask-1-a","decision":1,"LEAK\\udfff":1}',
    "a control character": '{"message":"LEAK\x01"}',
    "wrong types": '{"message":["LEAK"],"askId":["LEAK"],"decision":1}',
    "more wrong types": '{"message":{"LEAK":1},"askId":{"LEAK":1},"turn":"LEAK","decision":1}',
    "null everywhere": '{"message":null,"askId":null,"decision":null,"LEAK":null}',
    "a boolean": '{"message":true,"askId":false,"decision":1,"LEAK":1}',
}


@pytest.mark.parametrize("route", POSTS)
def test_bodies(target: Target, route: str) -> None:
    for name, raw in BODIES.items():
        said = target.send(route, body=raw)
        try:
            target.refused(said)
        except AssertionError as error:
            raise AssertionError(f"{route}, {name}: {error}") from error
        encoded = base64.b64encode(raw.encode("utf-8", "surrogatepass")).decode()
        target.refused(target.send(route, body=encoded, isBase64Encoded=True))
    for raw_bytes in (b"\xff\xfe\x00", b'{"message":"LEAK\xc3\x28"}', b'{"message":"LEAK\xed\xa0\x80"}'):
        target.refused(target.send(route, body=base64.b64encode(raw_bytes).decode(), isBase64Encoded=True))
    target.refused(target.send(route, body="LEAK!", isBase64Encoded=True))
    assert target.stage.items() == []


@pytest.mark.parametrize("size", [262_145, 1_000_000, 5_000_000])
def test_large_messages_and_decisions(target: Target, size: int) -> None:
    long = "LEAK" + "x" * (size - 4)
    for route in POSTS:
        body = {"message": long} if not route.endswith("answers") else {"askId": "ask-1-a", "decision": long}
        said = target.send(route, body=json.dumps(body))
        target.refused(said, 413)
        assert said.body["error"]["limitBytes"] == 262_144
    assert target.stage.items() == []


def test_a_host_counter_out_of_reach(target: Target) -> None:
    for turn in (1_000_002, 2**53, 2**63, 10**400):
        said = target.send("POST /conversations/{id}/turns", body=json.dumps({"message": MARK, "turn": turn}))
        target.refused(said)
        assert said.body["error"]["fields"] == ["turn"]
    assert target.stage.items() == []


# --- ids ----------------------------------------------------------------------------------------------------

PLAIN = set(string.ascii_letters + string.digits + "._-")
TRICKS = [
    *("a%2Fb", "a%252Fb", "a%3Fb", "%2e%2e", "..%2f..", "a/b", "a?b", "a#b", "a b", "a+b", "a;b", "a\\b", "$ne"),
    *("a\r\nX-Evil: 1", "a\x00b", ".", "..", "...\u2025", "é", "e\u0301", "\u202eLEAK", "LEAK\ud800", "LEAK" * 60),
    *("~", "~=", "~YQ==", "~YR", "~_w", "~LEAK!", "~\u00e9", "~~YQ", "{id}", "<script>LEAK</script>"),
    *("' OR 1=1 --LEAK", "../../etc/passwd"),
]  # fmt: skip


def encoded(raw: bytes) -> str:
    return "~" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def test_every_byte_in_both_forms_of_an_id(target: Target) -> None:
    for byte in range(256):
        letter = chr(byte)
        plain = target.send("GET /conversations/{id}", id=f"LEAK{letter}b")
        assert plain.status == (404 if letter in PLAIN else 400), byte
        form = target.send("GET /conversations/{id}", id=encoded(b"a" + bytes([byte]) + b"b"))
        assert form.status == (404 if byte < 128 else 400), byte  # above that it is no UTF-8
        if plain.status == 400:
            target.refused(plain)
    assert target.stage.items() == []


def test_two_ids_never_meet_and_two_forms_of_one_always_do(target: Target) -> None:
    made = {}
    for letter in (*(chr(byte) for byte in range(128) if chr(byte) not in PLAIN), "-", ""):
        conversation = f"a{letter}b"
        said = target.send("POST /conversations/{id}/turns", id=encoded(conversation.encode()))
        assert (said.status, said.body["turn"], said.body["conversationId"]) == (200, 1, conversation)
        made[conversation] = said.body["runId"]
    for conversation in made:
        read = target.send("GET /conversations/{id}", id=path_form(conversation))
        assert (read.status, read.body["conversationId"], read.body["turn"]) == (200, conversation, 1)
    listed: list[str] = []
    query: dict[str, str] = {"limit": "20"}
    while True:
        page = target.send("GET /conversations", queryStringParameters=query).body
        listed += [line["conversationId"] for line in page["conversations"]]
        if "cursor" not in page:
            break
        query["cursor"] = page["cursor"]
    assert sorted(listed) == sorted(made)


@pytest.mark.parametrize("route", WITH_ID)
def test_ids_that_are_none(target: Target, route: str) -> None:
    for segment in TRICKS:
        said = target.send(route, id=segment)
        target.refused(said)
        assert said.body["error"]["fields"] == ["path.id"]
    for raw in (b"", b"x" * 2_045, b"\xff", b"\xed\xa0\x80", b"LEAK" * 1_000):
        target.refused(target.send(route, id=encoded(raw)))
    assert target.stage.items() == []


def test_a_location_cannot_be_broken_out_of(target: Target) -> None:
    for conversation in ("a\r\nX-Evil: 1", "a\nb", "a\x00b", "é\u2028", "a%0d%0ab", "..", '"><script>'):
        said = target.send(
            "POST /conversations/{id}/turns", id=encoded(conversation.encode()), headers={"prefer": "respond-async"}
        )
        assert said.status == 202
        assert said.headers["Location"] == f"/conversations/{encoded(conversation.encode())}/turns/1"
        assert set(said.headers) == {"Location", "Preference-Applied", "Cache-Control", "Content-Type"}


def test_turn_numbers_that_are_none(target: Target) -> None:
    long = ("9" * 16, "9" * 5_000)
    for n in ("0", "-1", "+1", "01", "1.0", "1e3", "٣", " 1", "1 ", "", "LEAK", "1\n", *long):
        for route in WITH_ID:
            if "{n}" in route:
                said = target.send(route, n=n)
                target.refused(said)
                assert said.body["error"]["fields"] == ["path.n"]


# --- headers, queries, cursors ------------------------------------------------------------------------------


@pytest.mark.parametrize("route", POSTS)
def test_keys_that_are_none(target: Target, route: str) -> None:
    for key in ("", "LEAK\r\nX-Evil: 1", "LEAK\x00", "LEAK\n", "\x7fLEAK", "LEAK\u2028", "LEAK\ud800", "LEAK" * 64):
        said = target.send(route, headers={"idempotency-key": key})
        target.refused(said)
        assert said.body["error"]["fields"] == ["header.idempotency-key"]
    assert target.stage.items() == []


def test_preferences_never_fail_a_request_and_never_come_back(target: Target) -> None:
    wishes = (
        "LEAK\r\nX-Evil: 1",
        "wait=LEAK",
        'wait="1\r\nX: LEAK"',
        "wait=" + "9" * 5_000,
        "a=" * 5_000,
        '"' * 5_000,
        ";" * 9_000,
    )
    for wish in wishes:
        said = target.send("POST /conversations/{id}/turns", headers={"prefer": wish})
        assert said.status == 200, said.text
        assert MARK not in said.log + json.dumps(said.headers)
        assert "Preference-Applied" not in said.headers


@pytest.mark.parametrize("route", PAGED)
def test_cursors_and_limits_that_are_none(target: Target, route: str) -> None:
    sealed = base64.urlsafe_b64encode(b"\x00" * 12 + b"[1,2]").decode().rstrip("=")
    for cursor in ("", MARK, sealed, "A" * 9_000, "==", "\ud800LEAK", "LEAK\x00", '[1,"LEAK"]', "%00", "../LEAK"):
        said = target.send(route, queryStringParameters={"cursor": cursor})
        target.refused(said)
        assert said.body["error"]["fields"] == ["query.cursor"]
    for limit in ("0", "-1", "101", "1.5", "LEAK", "", "9" * 400, "٣", "1,2", "1e1"):
        said = target.send(route, queryStringParameters={"limit": limit})
        target.refused(said)
        assert said.body["error"]["fields"] == ["query.limit"]


def test_a_cursor_that_was_changed_anywhere_is_refused(target: Target) -> None:
    for number in range(3):
        target.send("POST /conversations/{id}/turns", id=f"c-{number}")
    cursor = target.send("GET /conversations", queryStringParameters={"limit": "1"}).body["cursor"]
    for at, letter in enumerate(cursor):
        changed = cursor[:at] + ("A" if letter != "A" else "B") + cursor[at + 1 :]
        target.refused(target.send("GET /conversations", queryStringParameters={"cursor": changed}))
    target.refused(target.send("GET /asks", queryStringParameters={"cursor": cursor}))
    for cut in (cursor[:-1], cursor[1:], cursor + "A", cursor * 2):
        target.refused(target.send("GET /conversations", queryStringParameters={"cursor": cut}))
    following = target.send("GET /conversations", queryStringParameters={"cursor": cursor, "limit": "9"}).body
    assert len(following["conversations"]) == 2


# --- anything at all ----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=()), max_size=30).map(lambda text: MARK + text)
NAMES = TEXT | st.sampled_from(["message", "askId", "turn", "decision"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
SEGMENT = st.text(st.characters(exclude_categories=()), max_size=30) | st.binary(max_size=40).map(encoded)
PARTS = (
    *("version", "routeKey", "rawPath", "headers", "queryStringParameters", "pathParameters", "body", "resource"),
    *("requestContext", "isBase64Encoded", "httpMethod", "path", "cookies", "multiValueHeaders"),
)
SHAPES = st.sampled_from([{"http": {"method": "GET"}}, {"authorizer": {"jwt": {"claims": []}}}, *EVENTS, "$default"])
ANYTHING = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@ANYTHING
@given(route=st.sampled_from(POSTS), body=JSON, key=st.none() | TEXT, prefer=TEXT, extra=TEXT)
def test_any_json_is_served_or_refused(
    target: Target, route: str, body: Any, key: str | None, prefer: str, extra: str
) -> None:
    headers = {"prefer": prefer, "x-anything": extra} | ({} if key is None else {"idempotency-key": key})
    said = target.send(route, body=json.dumps(body), headers=headers)
    assert said.status in {200, 201, 202, 400, 404, 409, 422}, said.text
    assert MARK not in said.log
    if said.status >= 400:
        assert said.code.startswith("ERR_")
        assert MARK not in said.text


@ANYTHING
@given(route=st.sampled_from(WITH_ID), segment=SEGMENT, n=TEXT | st.integers().map(str))
def test_any_path_is_served_or_refused(target: Target, route: str, segment: str, n: str) -> None:
    said = target.send(route, id=segment, **({"n": n} if "{n}" in route else {}))
    assert said.status in {200, 202, 400, 404, 409}, said.text
    if said.status == 400:
        target.refused(said)


@ANYTHING
@given(
    function=st.sampled_from(["turn", "answer", "read"]),
    event=st.dictionaries(st.sampled_from(PARTS), JSON | SHAPES, max_size=8),
)
def test_no_event_of_any_shape_ends_a_process(target: Target, function: str, event: Any) -> None:
    said = target.give(function, event)
    assert 200 <= said.status < 500, said.text
    assert MARK not in said.text + said.log
