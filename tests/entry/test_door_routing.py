"""The door itself: routes, ids in paths, who is calling, and what goes wrong behind it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.entry.doors import REQUEST_ID, Answer, House, event, jwt, serve
from turnkeep.entry.http.bodies import Reply
from turnkeep.entry.http.door import Incoming, Route
from turnkeep.entry.http.posts import key_of
from turnkeep.errors import (
    ConcurrentRunError,
    DurabilityError,
    LostClaimError,
    SessionNotFoundError,
    SessionOwnershipConflictError,
    StoreUnavailableError,
    TurnkeepError,
)

GET = "GET /conversations/{id}"


def echo(incoming: Incoming) -> Reply:
    key = key_of(incoming)
    caller = incoming.caller
    body = {"id": key.conversation_id, "who": caller.principal, "tenant": caller.tenant, "roles": sorted(caller.roles)}
    return Reply(200, body)


def ask(house: House, **parts: Any) -> Answer:
    return serve(house.door([Route("GET", "/conversations/{id}", echo)]), event(GET, **parts))


def raising(error: Exception) -> tuple[House, Answer]:
    def fail(incoming: Incoming) -> Reply:
        raise error

    house = House()
    door = house.door([Route("GET", "/conversations/{id}", fail)])
    return house, serve(door, event(GET, path_parameters={"id": "c1"}, authorizer=jwt()))


# --- ids ----------------------------------------------------------------------------------------------------

PLAIN = ["c1", "a.b_c-D", "...", "x" * 200, "-", "_"]
ENCODED = [
    "a b",
    "a/b",
    "a%2Fb",
    "a?b",
    "a#b",
    "~",
    "~abc",
    ".",
    "..",
    "é",
    "e\u0301",
    "a\x00b",
    "\n",
    "x" * 201,
    "日本",
]


@pytest.mark.parametrize("conversation_id", PLAIN)
def test_a_plain_id_arrives_as_it_is(conversation_id: str) -> None:
    assert ask(House(), path_parameters={"id": conversation_id}, authorizer=jwt()).body["id"] == conversation_id


@pytest.mark.parametrize("conversation_id", [*PLAIN, *ENCODED])
def test_every_id_arrives_in_its_encoded_form(conversation_id: str) -> None:
    segment = "~" + base64.urlsafe_b64encode(conversation_id.encode()).decode().rstrip("=")
    assert ask(House(), path_parameters={"id": segment}, authorizer=jwt()).body["id"] == conversation_id


@pytest.mark.parametrize(
    "segment",
    ["", "a b", "a/b", "a?b", "a%2Fb", "a%252Fb", ".", "..", "x" * 201, "é", "a\n", "a\r\nX-Evil: 1", "\x00", "~", "~a",
     "~YQ==", "~YR", "~_w", "~ Y Q", "a<b>", "\ud800", "~\ud800"],
)  # fmt: skip
def test_an_id_in_neither_form_is_a_400_that_states_the_rule(segment: str) -> None:
    house = House()
    answer = ask(house, path_parameters={"id": segment}, authorizer=jwt())
    assert (answer.status, answer.code) == (400, "ERR_INVALID_REQUEST")
    assert "base64url" in answer.body["error"]["message"]
    assert answer.body["error"]["fields"] == ["path.id"]


@pytest.mark.parametrize("size", [2_045, 2_046])
def test_an_id_ends_where_its_key_would_be_too_long(size: int) -> None:
    # The key is "_/_/" and the id: 2,044 bytes fit.
    segment = "~" + base64.urlsafe_b64encode(b"x" * size).decode().rstrip("=")
    answer = ask(House(), path_parameters={"id": segment}, authorizer=jwt())
    assert (answer.status, answer.body["error"]["fields"]) == (400, ["conversationId"])
    fits = "~" + base64.urlsafe_b64encode(b"x" * 2_044).decode().rstrip("=")
    assert ask(House(), path_parameters={"id": fits}, authorizer=jwt()).status == 200


def test_a_tenant_counts_towards_the_key() -> None:
    segment = "~" + base64.urlsafe_b64encode(b"x" * 2_044).decode().rstrip("=")
    answer = ask(House(), path_parameters={"id": segment}, authorizer=jwt(tenant="acme"))
    assert answer.status == 400


# --- routes -------------------------------------------------------------------------------------------------


def test_a_route_is_found_by_the_path_where_the_event_names_none() -> None:
    house = House()
    door = house.door([Route("GET", "/conversations/{id}", echo)])
    request = event("$default", authorizer=jwt())
    request["requestContext"]["http"]["method"] = "GET"
    request["rawPath"] = "/conversations/c9"
    assert serve(door, request).body["id"] == "c9"


def test_the_stage_is_no_part_of_the_path() -> None:
    door = House().door([Route("GET", "/conversations/{id}", echo)])
    request = event("$default", authorizer=jwt())
    request["requestContext"] |= {"stage": "prod", "http": {"method": "GET"}}
    request["rawPath"] = "/prod/conversations/c9"
    assert serve(door, request).body["id"] == "c9"


@pytest.mark.parametrize(
    "route_key", ["GET /nothing", "POST /conversations/{id}", "$default", "", "GET /conversations/"]
)
def test_an_unknown_route_is_an_error_in_json(route_key: str) -> None:
    door = House().door([Route("GET", "/conversations/{id}", echo)])
    answer = serve(door, event(route_key, authorizer=jwt()))
    assert (answer.status, answer.code) == (404, "ERR_ROUTE_NOT_FOUND")
    assert answer.body["error"]["requestId"] == REQUEST_ID


def test_text_of_a_caller_never_reaches_the_matcher_of_routes() -> None:
    """A template is matched as the text it is: an id that looks like a route is an id."""
    routes = [
        Route("GET", "/conversations/{id}", echo),
        Route("GET", "/asks", lambda incoming: Reply(200, {"asks": 1})),
    ]
    door = House().door(routes)
    request = event(GET, path_parameters={"id": "c1"}, authorizer=jwt())
    request["rawPath"] = "/asks"
    assert serve(door, request).body["id"] == "c1"


# --- who is calling -----------------------------------------------------------------------------------------

REST = {
    "resource": "/conversations/{id}",
    "path": "/conversations/c1",
    "httpMethod": "GET",
    "pathParameters": {"id": "c1"},
    "headers": {"Authorization": "Bearer x.y.z"},
    "requestContext": {"requestId": REQUEST_ID, "authorizer": {"claims": {"sub": "ann"}}},
    "body": None,
}
NO_CLAIMS = {
    "no authorizer": event(GET, path_parameters={"id": "c1"}),
    "an empty authorizer": event(GET, path_parameters={"id": "c1"}, authorizer={}),
    "empty claims": event(GET, path_parameters={"id": "c1"}, authorizer={"jwt": {"claims": {}}}),
    "a Lambda authorizer": event(GET, path_parameters={"id": "c1"}, authorizer={"lambda": {"sub": "ann"}}),
    "claims of another kind": event(GET, path_parameters={"id": "c1"}, authorizer={"claims": {"sub": "ann"}}),
    "IAM": event(GET, path_parameters={"id": "c1"}, authorizer={"iam": {"userId": "ann"}}),
    "headers that claim": event(GET, path_parameters={"id": "c1"}, headers={"x-user-id": "ann", "authorization": "a"}),
    "claims that are a list": event(GET, path_parameters={"id": "c1"}, authorizer={"jwt": {"claims": ["ann"]}}),
    "a REST API": REST,
}  # fmt: skip


@pytest.mark.parametrize("name", NO_CLAIMS)
def test_an_event_without_claims_is_nobody(name: str) -> None:
    door = House().door([Route("GET", "/conversations/{id}", echo)])
    answer = serve(door, NO_CLAIMS[name])
    assert (answer.status, answer.code) == (401, "ERR_IDENTITY_NOT_VERIFIED")


@pytest.mark.parametrize("name", NO_CLAIMS)
def test_nobody_is_anonymous_only_where_that_was_switched_on(name: str) -> None:
    door = House().with_settings(allow_anonymous=True).door([Route("GET", "/conversations/{id}", echo)])
    answer = serve(door, NO_CLAIMS[name])
    assert (answer.status, answer.body["who"], answer.body["tenant"], answer.body["roles"]) == (200, None, None, [])


@pytest.mark.parametrize("sub", ["", 7, None, ["ann"], "x" * 513, "\ud800"])
def test_claims_that_name_nobody_are_refused_even_where_anonymity_is_on(sub: Any) -> None:
    house = House().with_settings(allow_anonymous=True)
    answer = ask(house, path_parameters={"id": "c1"}, authorizer={"jwt": {"claims": {"sub": sub, "iss": "i"}}})
    assert answer.status == 401


def test_tenant_and_roles_come_from_the_claims_that_the_deployment_names() -> None:
    claims = jwt("ann", tenant="acme", roles="[supervisor auditor]")
    answer = ask(House(), path_parameters={"id": "c1"}, authorizer=claims)
    assert answer.body == {"id": "c1", "who": "ann", "tenant": "acme", "roles": ["auditor", "supervisor"]}


def test_health_asks_nobody_who_they_are() -> None:
    from turnkeep.entry.http.read_routes import health_route

    answer = serve(House().door([health_route()]), event("GET /health"))
    assert (answer.status, answer.body["status"]) == (200, "ok")


# --- what goes wrong ----------------------------------------------------------------------------------------


def test_an_unexpected_error_tells_the_caller_nothing_and_the_log_where() -> None:
    house, answer = raising(KeyError("what ann said"))
    assert (answer.status, answer.code) == (500, "ERR_INTERNAL")
    assert "what ann said" not in str(answer.body)
    assert "what ann said" not in house.lines.text
    (_, facts, is_fault) = house.lines.lines[0]
    assert is_fault
    assert facts["error"][0]["class"] == "builtins.KeyError"
    assert any(frame.endswith(" fail") for frame in facts["error"][0]["at"])
    assert house.lines.counts["InternalErrors"] == 1


def not_durable(cause: Exception) -> DurabilityError:
    error = DurabilityError(cause)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (ConcurrentRunError(turn=4), 409, "ERR_CONCURRENT_RUN", "1"),
        (LostClaimError(turn=4), 409, "ERR_CONCURRENT_RUN", "1"),
        (StoreUnavailableError(retry_after_s=3), 503, "ERR_STORE_UNAVAILABLE", "3"),
        (not_durable(LostClaimError(turn=4)), 409, "ERR_CONCURRENT_RUN", "1"),
        (not_durable(StoreUnavailableError()), 503, "ERR_STORE_UNAVAILABLE", "1"),
        (not_durable(OSError("cut")), 503, "ERR_STORE_UNAVAILABLE", "1"),
        (TurnkeepError("no code of its own"), 500, "ERR_INTERNAL", None),
    ],
)
def test_an_error_is_answered_by_its_class(error: Exception, status: int, code: str, retry_after: str | None) -> None:
    _, answer = raising(error)
    assert (answer.status, answer.code, answer.headers.get("retry-after")) == (status, code, retry_after)
    assert answer.body["error"]["requestId"] == REQUEST_ID


def test_somebody_elses_and_missing_are_one_answer_to_the_byte() -> None:
    door = House().door([Route("GET", "/conversations/{id}", echo)])
    replies = []
    for error in (SessionNotFoundError("c1"), SessionOwnershipConflictError("c1"), SessionNotFoundError()):

        def fail(incoming: Incoming, error: Exception = error) -> Reply:
            raise error

        door = House().door([Route("GET", "/conversations/{id}", fail)])
        replies.append(door(event(GET, path_parameters={"id": "c1"}, authorizer=jwt()), None))
    assert replies[0] == replies[1] == replies[2]
    assert replies[0]["statusCode"] == 404


# --- browsers -----------------------------------------------------------------------------------------------


def test_an_allowed_origin_may_read_replies_and_errors() -> None:
    house = House()
    house.environment = house.environment.__class__(table="Ledger", cors_origins=("https://desk.example",))
    good = ask(house, path_parameters={"id": "c1"}, authorizer=jwt(), headers={"origin": "https://desk.example"})
    bad_id = ask(house, path_parameters={"id": "a b"}, authorizer=jwt(), headers={"origin": "https://desk.example"})
    other = ask(house, path_parameters={"id": "c1"}, authorizer=jwt(), headers={"origin": "https://evil.example"})
    assert good.headers["access-control-allow-origin"] == "https://desk.example"
    assert bad_id.headers["access-control-allow-origin"] == "https://desk.example"
    assert "Location" in good.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in other.headers


def test_a_preflight_is_answered_where_the_gateway_leaves_it_to_us() -> None:
    house = House()
    house.environment = house.environment.__class__(table="Ledger", cors_origins=("*",))
    answer = serve(
        house.door([Route("GET", "/conversations/{id}", echo)]),
        event("OPTIONS /conversations/{id}", path_parameters={"id": "c1"}, headers={"origin": "https://a.example"}),
    )
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
    assert "Idempotency-Key" in answer.headers["access-control-allow-headers"]
