"""The API over the wire: routes of the template, tokens, limits and what a failing function looks like."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from local.authorizer import Authorizer
from local.function import Function, Outcome
from local.http import INTEGRATION_TIMEOUT_S, HttpApi
from local.keys import load_or_create_key
from local.routes import Route
from local.settings import AUDIENCE, ISSUER
from local.token import make_token
from local.web import Request

if TYPE_CHECKING:
    from pathlib import Path

    from local.stack import LocalStack

pytestmark = pytest.mark.process


def send(
    stack: LocalStack, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """One request, its target sent as it is written."""
    address = urlsplit(stack.api_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def act(stack: LocalStack, wish: dict[str, Any], **headers: str) -> tuple[int, dict[str, str], bytes]:
    return send(stack, "POST", "/act", json.dumps(wish).encode(), {"Content-Type": "application/json", **headers})


def echoed(stack: LocalStack, target: str, **headers: str) -> dict[str, Any]:
    status, _, body = send(stack, "GET", target, headers=headers)
    assert status == 200
    event: dict[str, Any] = json.loads(body)
    return event


def test_a_function_gets_the_decoded_path(toy: LocalStack) -> None:
    event = echoed(toy, "/things/a%20%C3%A9%7E?x=1&x=2&y=%2F")
    assert event["rawPath"] == "/things/a é~"
    assert event["pathParameters"] == {"id": "a é~"}
    assert event["routeKey"] == "GET /things/{id}"
    assert event["rawQueryString"] == "x=1&x=2&y=%2F"
    assert event["queryStringParameters"] == {"x": "1,2", "y": "/"}
    assert event["requestContext"]["http"]["path"] == "/things/a é~"


@pytest.mark.parametrize("target", ["/things/a%2Fb", "/nowhere", "/things/", "/things/%3Fa", "/"])
def test_what_no_route_matches_is_the_gateways_404(toy: LocalStack, target: str) -> None:
    status, headers, body = send(toy, "GET", target)
    assert (status, body) == (404, b'{"message":"Not Found"}')
    assert headers["content-type"] == "application/json"
    assert headers["apigw-requestid"]


def test_an_encoded_question_mark_cuts_the_path(toy: LocalStack) -> None:
    assert echoed(toy, "/things/a%3Fb")["pathParameters"] == {"id": "a"}


def test_a_plain_result_is_a_200(toy: LocalStack) -> None:
    status, headers, body = act(toy, {"do": "plain"})
    assert (status, json.loads(body), headers["content-type"]) == (200, {"plain": True}, "application/json")


@pytest.mark.parametrize(
    "wish",
    [{"do": "raise"}, {"do": "exit", "code": 1}, {"do": "answer", "answer": {"statusCode": 200, "body": {"a": 1}}}],
)
def test_a_failing_function_is_the_gateways_500(toy: LocalStack, wish: dict[str, Any]) -> None:
    status, _, body = act(toy, wish)
    assert (status, body) == (500, b'{"message":"Internal Server Error"}')


def test_a_function_out_of_time_is_the_gateways_500(toy: LocalStack) -> None:
    began_s = time.monotonic()
    assert act(toy, {"do": "sleep", "seconds": 20})[0] == 500
    assert time.monotonic() - began_s < 8


def test_a_body_past_the_limit_is_refused_and_the_caller_hears_of_it(toy: LocalStack) -> None:
    status, _, body = send(toy, "POST", "/things/a/parts", b"x" * 11_000_000, {"Content-Type": "text/plain"})
    assert (status, body) == (413, b'{"message":"Request Entity Too Large"}')


def test_connections_are_kept_and_carry_request_after_request(toy: LocalStack) -> None:
    address = urlsplit(toy.api_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()


def test_a_chunked_body_is_put_together(toy: LocalStack) -> None:
    address = urlsplit(toy.api_url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as plain:
        plain.sendall(
            b"POST /things/a/parts HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
        )
        answer = b""
        while part := plain.recv(65_536):
            answer += part
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["body"] == "hello world"


@pytest.mark.parametrize(
    "head",
    [b"Content-Length: many\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"],
)
def test_a_body_that_cannot_be_read_is_a_400(toy: LocalStack, head: bytes) -> None:
    address = urlsplit(toy.api_url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as plain:
        plain.sendall(b"POST /act HTTP/1.1\r\nHost: x\r\n" + head)
        assert plain.recv(65_536).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "rest",
    [b"Content-Length: 40\r\n\r\n{}", b"Content-Length: 40\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n28\r\n{}"],
    ids=["cut", "without its body", "chunks"],
)
def test_a_caller_that_dies_while_it_asks_has_asked_for_nothing(toy: LocalStack, rest: bytes) -> None:
    toy.calls.reset()
    heads = {
        toy.aws_url: b"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Target: DynamoDB_20120810.GetItem\r\n",
        toy.api_url: b"POST /act HTTP/1.1\r\nHost: x\r\n",
    }
    for url, head in heads.items():
        address = urlsplit(url)
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as plain:
            plain.sendall(head + rest)
            plain.shutdown(socket.SHUT_WR)
            assert plain.recv(4096) == b""
    assert toy.calls.counts() == {}


def test_a_tokenless_caller_comes_in_without_claims(toy: LocalStack) -> None:
    assert "authorizer" not in echoed(toy, "/things/a")["requestContext"]


def test_a_token_becomes_claims_in_text(toy: LocalStack) -> None:
    token = toy.token("alice", "acme", ["supervisor", "clerk"], claims={"admin": True, "level": 3})
    claims = echoed(toy, "/things/a", Authorization=f"Bearer {token}")["requestContext"]["authorizer"]["jwt"]["claims"]
    assert (claims["sub"], claims["tenant"], claims["roles"]) == ("alice", "acme", "[supervisor clerk]")
    assert (claims["admin"], claims["level"]) == ("true", "3")
    assert claims["exp"].isdigit()


def test_tokens_that_are_not_this_issuers_are_refused(toy: LocalStack, tmp_path: Path) -> None:
    good = toy.token("alice")
    head, payload, signature = good.split(".")
    bad = {
        "foreign key": make_token("alice", state_dir=tmp_path),
        "expired": toy.token("alice", life_s=-10),
        "no expiry": toy.token("alice", claims={"exp": None}),
        "other issuer": toy.token("alice", claims={"iss": "https://elsewhere.example"}),
        "other audience": toy.token("alice", claims={"aud": ["another"]}),
        "not yet": toy.token("alice", claims={"nbf": int(time.time()) + 600}),
        "cut": f"{head}.{payload}.{signature[:-4]}",
        "unsigned": f"eyJhbGciOiJub25lIn0.{payload}.",
        "no token": "hello",
        "another scheme": "Basic YTpi",
    }
    for name, token in bad.items():
        value = token if name == "another scheme" else f"Bearer {token}"
        status, headers, body = send(toy, "GET", "/things/a", headers={"Authorization": value})
        assert (name, status, body) == (name, 401, b'{"message":"Unauthorized"}')
        assert headers["www-authenticate"].startswith("Bearer")
    assert send(toy, "GET", "/things/a", headers={"Authorization": f"Bearer {good}"})[0] == 200


def test_an_open_route_does_not_look_at_tokens(toy: LocalStack) -> None:
    status, _, body = send(toy, "GET", "/health", headers={"Authorization": "Bearer nonsense"})
    assert status == 200
    assert "authorizer" not in json.loads(body)["requestContext"]


def test_cors_is_answered_as_the_template_says(toy: LocalStack) -> None:
    asking = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    status, headers, _ = send(toy, "OPTIONS", "/act", headers=asking)
    assert status == 204
    assert headers["access-control-allow-origin"] == "https://shop.example"
    assert headers["access-control-allow-methods"] == "GET,POST"
    assert headers["access-control-allow-headers"] == "content-type"
    assert headers["access-control-max-age"] == "60"
    stranger = send(toy, "OPTIONS", "/act", headers={**asking, "Origin": "https://elsewhere.example"})[1]
    assert "access-control-allow-origin" not in stranger
    assert (
        send(toy, "GET", "/health", headers={"Origin": "https://shop.example"})[1]["access-control-allow-origin"]
        == "https://shop.example"
    )


class NeverEnding:
    """A function runner whose functions outlive the gateway's patience."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.asked = threading.Event()
        self.may_end = threading.Event()
        self.ended = threading.Event()

    def find(self, name: str) -> Function:
        return self.function

    def invoke(self, function: Function, event: bytes) -> Outcome:
        self.asked.set()
        self.may_end.wait(10)
        self.ended.set()
        return Outcome("id", b"{}", error=False)


def test_the_gateway_gives_up_before_a_function_that_goes_on(tmp_path: Path) -> None:
    function = Function("F", "f", "app.handler", {}, 300.0, 128, ("/",))
    runner = NeverEnding(function)
    authorizer = Authorizer(load_or_create_key(tmp_path), ISSUER, AUDIENCE)
    api = HttpApi(runner, authorizer, [Route("GET", "/slow", "f")], timeout_s=0.3)  # type: ignore[arg-type]
    response = api.answer(Request("GET", "/slow", (), b"", "127.0.0.1"))
    assert (response.status, response.body) == (503, b'{"message":"Service Unavailable"}')
    assert runner.asked.is_set()
    assert not runner.ended.is_set()
    runner.may_end.set()
    assert runner.ended.wait(5)
    assert INTEGRATION_TIMEOUT_S == 30.0
