"""Events have payload format 2.0, and answers become what an HTTP API makes of them."""

from __future__ import annotations

import json

import pytest

from local.payload import BadAnswer, build_event, query_parameters, shape_response
from local.routes import Match, Route
from local.web import Request

MATCH = Match(Route("POST", "/things/{id}", "f"), {"id": "a b"})


def event_of(
    headers: tuple[tuple[str, str], ...] = (), body: bytes = b"", query: str = "", claims: dict[str, str] | None = None
) -> dict[str, object]:
    request = Request("POST", f"/things/a%20b?{query}" if query else "/things/a%20b", headers, body, "127.0.0.1")
    return build_event(request, "/things/a b", MATCH, claims, "127.0.0.1:3000", "request-1")


def test_the_shape_is_payload_2() -> None:
    event = event_of((("User-Agent", "curl"),), b'{"a": 1}', "x=1")
    assert event["version"] == "2.0"
    assert event["routeKey"] == "POST /things/{id}"
    assert event["rawPath"] == "/things/a b"
    assert event["pathParameters"] == {"id": "a b"}
    assert event["rawQueryString"] == "x=1"
    assert event["queryStringParameters"] == {"x": "1"}
    context = event["requestContext"]
    assert isinstance(context, dict)
    assert context["http"] == {
        "method": "POST",
        "path": "/things/a b",
        "protocol": "HTTP/1.1",
        "sourceIp": "127.0.0.1",
        "userAgent": "curl",
    }
    assert context["stage"] == "$default"
    assert context["requestId"] == "request-1"
    assert "authorizer" not in context


def test_what_is_not_there_is_absent() -> None:
    event = event_of()
    assert not {"body", "cookies", "queryStringParameters"} & set(event)
    assert event["rawQueryString"] == ""
    assert event["isBase64Encoded"] is False


def test_headers_are_folded_and_joined_and_cookies_taken_out() -> None:
    event = event_of((("X-One", "a"), ("x-one", "b"), ("Cookie", "a=1; b=2"), ("Cookie", "c=3")))
    headers = event["headers"]
    assert isinstance(headers, dict)
    assert headers["x-one"] == "a,b"
    assert "cookie" not in headers
    assert event["cookies"] == ["a=1", "b=2", "c=3"]


def test_claims_arrive_where_a_jwt_authorizer_puts_them() -> None:
    context = event_of(claims={"sub": "alice", "roles": "[a b]"})["requestContext"]
    assert isinstance(context, dict)
    assert context["authorizer"] == {"jwt": {"claims": {"sub": "alice", "roles": "[a b]"}, "scopes": None}}


def test_a_parameter_that_comes_twice_is_joined() -> None:
    assert query_parameters("a=1&a=2&b=%26&c") == {"a": "1,2", "b": "&", "c": ""}


@pytest.mark.parametrize(
    ("content_type", "body", "encoded"),
    [
        ("application/json", '{"ä": 1}'.encode(), False),
        ("application/json; charset=utf-8", b"{}", False),
        ("text/plain", b"x", False),
        ("application/problem+json", b"{}", False),
        ("application/json", b"\xff\xfe", True),
        ("application/octet-stream", b"x", True),
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("image/png", b"\x89PNG", True),
        (None, b"{}", False),
    ],
)
def test_only_text_travels_as_text(content_type: str | None, body: bytes, encoded: bool) -> None:
    event = event_of((("Content-Type", content_type),) if content_type else (), body)
    assert event["isBase64Encoded"] is encoded
    if not encoded:
        assert event["body"] == body.decode()


def shaped(result: object) -> tuple[int, bytes, dict[str, str]]:
    response = shape_response(json.dumps(result).encode())
    return response.status, response.body, dict(response.headers)


def test_an_answer_with_a_status_is_sent_as_it_is() -> None:
    status, body, headers = shaped({"statusCode": 201, "headers": {"Location": "/a"}, "body": "ö"})
    assert (status, body) == (201, "ö".encode())
    assert headers == {"Location": "/a", "content-type": "text/plain;charset=UTF-8"}


def test_an_answer_without_a_status_is_the_body_of_a_200() -> None:
    assert shaped({"a": 1}) == (200, b'{"a": 1}', {"content-type": "application/json"})
    assert shaped("hello")[:2] == (200, b"hello")


def test_base64_is_decoded_and_cookies_are_set() -> None:
    status, body, _ = shaped({"statusCode": 200, "body": "AAE=", "isBase64Encoded": True})
    assert (status, body) == (200, b"\x00\x01")
    response = shape_response(b'{"statusCode": 204, "cookies": ["a=1", "b=2"]}')
    assert [value for name, value in response.headers if name == "set-cookie"] == ["a=1", "b=2"]


@pytest.mark.parametrize(
    "result",
    [
        {"statusCode": "soon"},
        {"statusCode": 200, "body": {"a": 1}},
        {"statusCode": 9000},
        {"statusCode": 200, "headers": {"a": []}},
        {"statusCode": 200, "body": "?", "isBase64Encoded": True},
    ],
)
def test_what_is_no_answer_is_refused(result: object) -> None:
    with pytest.raises(BadAnswer):
        shaped(result)
