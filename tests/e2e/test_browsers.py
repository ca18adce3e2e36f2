"""Browsers of other origins, by the parameter ``CorsOrigins``: preflights, replies and errors; and nobody else's."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

PAGE, ELSEWHERE = "https://app.example.com", "https://evil.example.com"


@pytest.fixture(scope="module")
def open_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    parameters = {"CorsOrigins": f"{PAGE},https://other.example.com"}
    with LocalStack(state_dir=tmp_path_factory.mktemp("state"), parameters=parameters) as running:
        yield running


def ask(stack: LocalStack, method: str, path: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(stack.api_url + path, method=method, headers=sent)
    if method == "POST":
        request.data = b'{"message": "Where is order A-100?"}'
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.read(), {name.lower(): value for name, value in reply.headers.items()}
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read(), {name.lower(): value for name, value in refusal.headers.items()}


def words(header: str) -> set[str]:
    return {word.strip().lower() for word in header.split(",")}


def test_a_preflight_allows_what_a_client_needs(open_stack: LocalStack) -> None:
    asked = {"origin": PAGE, "access_control_request_method": "POST", "access_control_request_headers": "prefer"}
    status, body, headers = ask(open_stack, "OPTIONS", "/conversations/c-1/turns", **asked)
    assert (status, body) == (204, b"")
    assert headers["access-control-allow-origin"] == PAGE
    assert words(headers["access-control-allow-headers"]) >= {
        "authorization", "content-type", "idempotency-key", "prefer",
    }  # fmt: skip
    assert words(headers["access-control-allow-methods"]) >= {"get", "post", "delete"}


def test_a_page_may_read_replies_and_errors_with_their_headers(open_stack: LocalStack) -> None:
    token = open_stack.token("alice")
    cases = [
        ("POST", "/conversations/c-1/turns", {"authorization": f"Bearer {token}"}, 200),
        ("POST", "/conversations/c-2/turns", {"authorization": f"Bearer {token}", "prefer": "respond-async"}, 202),
        ("GET", "/conversations/nowhere", {"authorization": f"Bearer {token}"}, 404),
        ("GET", "/conversations", {"authorization": "Bearer none"}, 401),  # the gateway's own
        ("GET", "/health", {}, 200),
    ]
    for method, path, sent, expected in cases:
        status, body, headers = ask(open_stack, method, path, origin=PAGE, **sent)
        assert (status, headers["access-control-allow-origin"]) == (expected, PAGE)
        assert words(headers["access-control-expose-headers"]) >= {"location", "retry-after", "preference-applied"}
        error = json.loads(body).get("error")
        assert error is None or error["requestId"] == headers["apigw-requestid"]


@pytest.mark.parametrize("origin", [ELSEWHERE, "null", f"{PAGE}.evil.example.com", "http://app.example.com"])
def test_no_other_page_may(open_stack: LocalStack, origin: str) -> None:
    _, _, headers = ask(open_stack, "GET", "/health", origin=origin)
    assert "access-control-allow-origin" not in headers
    _, _, headers = ask(open_stack, "OPTIONS", "/health", origin=origin, access_control_request_method="GET")
    assert "access-control-allow-origin" not in headers


def test_without_the_parameter_there_is_no_cors(stack: LocalStack) -> None:
    _, _, headers = ask(stack, "GET", "/health", origin=PAGE)
    assert not [name for name in headers if name.startswith("access-control-")]
