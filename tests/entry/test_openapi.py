"""The API's description: made from the code, current, valid, and of every route."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_spec_validator import validate

from tools.openapi import FILE, document, routes, text
from tools.openapi_operations import OPERATIONS, refusals_of
from turnkeep import errors
from turnkeep.entry.http.errors import REFUSALS, error_reply
from turnkeep.errors import TurnkeepError


def test_the_file_is_current() -> None:
    assert FILE.read_text("utf-8") == text(), "run make openapi"


def test_the_description_is_openapi_3_1() -> None:
    validate(document())


def test_every_route_is_described() -> None:
    assert {f"{route.method} {route.path}" for route in routes()} == set(OPERATIONS)


def test_only_health_is_public() -> None:
    paths = document()["paths"]
    public = [(path, method) for path, item in paths.items() for method, said in item.items() if said["security"] == []]
    assert public == [("/health", "get")]


@pytest.mark.parametrize(
    "error",
    [
        errors.AgentContractError("a message is an object"),
        errors.SessionIndexUnavailableError(),
        errors.PauseAnswerRequiredError(),
        errors.InvalidAskComponentError(reason="shape", door="a tool"),
        errors.ExecutionClosedError(),
        TurnkeepError("of nobody's kind"),
        KeyError("foreign"),
    ],
)
def test_what_has_no_row_leaves_as_an_internal_error(error: Exception) -> None:
    reply = error_reply(error, "req-1")
    assert (reply.status, reply.body["error"]["code"]) == (500, "ERR_INTERNAL")
    assert set(reply.body["error"]) == {"code", "message", "requestId"}


def test_every_row_is_answered_as_it_is_described() -> None:
    samples: dict[str, Any] = {
        "InvalidRequestError": errors.InvalidRequestError("Do it otherwise.", fields=["turn"]),
        "AskExpiredError": errors.AskExpiredError(expired_at_ms=5),
        "ConcurrentRunError": errors.ConcurrentRunError(turn=4),
        "StaleDecisionError": errors.StaleDecisionError(ask_id="ask-1-a"),
        "MessageTooLargeError": errors.MessageTooLargeError(limit_bytes=8),
    }
    for refusal in REFUSALS:
        if refusal.error.__name__ not in samples:
            continue
        reply = error_reply(samples[refusal.error.__name__], "req-1")
        assert (reply.status, reply.body["error"]["code"]) == (refusal.status, refusal.code)
        assert ("Retry-After" in reply.headers) is refusal.retry_after
        assert set(reply.body["error"]) - {"code", "message", "requestId"} <= set(refusal.fields)


@pytest.mark.parametrize("route", OPERATIONS)
def test_every_route_describes_its_refusals(route: str) -> None:
    by_status = refusals_of(OPERATIONS[route])
    assert 500 in by_status
    if route != "GET /health":
        assert {400, 401, 503} <= set(by_status)
    if "{id}" in route:
        assert 404 in by_status
