"""Identity at the handlers: one table over every route, with what each request asked of the store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.client import BaseClient

from tests.functions.identity import (
    CALLERS,
    CONVERSATIONS,
    LISTINGS,
    ROUTES,
    ROWS,
    Person,
    Seen,
    expected,
    furnish,
    request_of,
)
from tests.functions.stage import Context, handler_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.functions.stage import Stage

FUNCTION_OF = {"GET": "read", "POST": "turn", "DELETE": "turn"}


def authorizer(caller: Person) -> dict[str, Any]:
    """What the gateway hands over: every claim is text."""
    if caller.name is None:
        return {}
    claims = {"sub": caller.name, "iss": "https://issuer.example", "exp": "1900000000"}
    if caller.tenant:
        claims["tenant"] = caller.tenant
    if caller.roles:
        claims["roles"] = caller.roles if isinstance(caller.roles, str) else f"[{' '.join(caller.roles)}]"
    return {"authorizer": {"jwt": {"claims": claims, "scopes": None}}}


class Handlers:
    """The functions, each from its folder, and what they asked of AWS since the last request began."""

    def __init__(self) -> None:
        self._handlers: dict[str, Any] = {}
        self.calls: list[tuple[str, str]] = []
        self.requests = 0

    def ask(self, route: str, caller: Person, conversation: str, *, n: int = 1, body: Any = None) -> Seen:
        method, _, template = route.partition(" ")
        function = "answer" if template.endswith("/answers") or (route.startswith("DELETE") and "{n}" in route) else ""
        function = function or FUNCTION_OF[method]
        if function not in self._handlers:
            self._handlers[function] = handler_of(function)
        self.requests += 1
        path = template.replace("{id}", conversation).replace("{n}", str(n))
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": route,
            "rawPath": path,
            "headers": {"content-type": "application/json"},
            "requestContext": {
                "http": {"method": method, "path": path},
                "requestId": f"request-{self.requests:04d}",
                "stage": "$default",
                **authorizer(caller),
            },
            "pathParameters": {
                name: value for name, value in (("id", conversation), ("n", str(n))) if name in template
            },
            "isBase64Encoded": False,
        }
        if body is not None:
            event["body"] = json.dumps(body)
        self.calls.clear()
        reply = self._handlers[function](event, Context())
        return Seen(reply["statusCode"], reply["body"], reply["headers"])

    def asked(self, conversation: str) -> list[tuple[str, str]]:
        """What the last request asked of AWS, whatever the conversation's name; side by side means in any order."""
        return sorted((name, said.replace(conversation, "ID")) for name, said in self.calls)


@pytest.fixture
def handlers(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handlers]:
    made = Handlers()
    call = BaseClient._make_api_call  # type: ignore[attr-defined]  # botocore's own: every call comes through it

    def noted(client: BaseClient, name: str, arguments: dict[str, Any]) -> Any:
        made.calls.append((name, json.dumps(arguments, sort_keys=True, default=str)))
        return call(client, name, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    monkeypatch.setenv("TURNKEEP_ALLOW_ANONYMOUS", "true")
    yield made


def reads_of(calls: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [call for call in calls if call[0] in ("GetItem", "Query")]


@pytest.mark.parametrize(("caller", "takes_anonymous"), ROWS)
def test_every_route_for_every_caller(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, caller: str, takes_anonymous: bool
) -> None:
    asks = furnish(handlers, "")
    monkeypatch.setenv("TURNKEEP_ALLOW_ANONYMOUS", str(takes_anonymous).lower())
    who = CALLERS[caller]
    nowhere = {}
    for route in ROUTES:
        if route != "POST /conversations/{id}/turns":
            # What this caller is told of a conversation that is nowhere, and what it costs.
            seen = handlers.ask(route, who, "nowhere", **request_of(route, asks["alices"]))
            nowhere[route] = seen.without_request_id(), handlers.asked("nowhere")
    for conversation in CONVERSATIONS:
        for route, status in expected(conversation, caller, takes_anonymous=takes_anonymous):
            seen = handlers.ask(route, who, conversation, **request_of(route, asks.get(conversation, asks["alices"])))
            asked = handlers.asked(conversation)
            assert seen.status == status, (conversation, route, seen.text)
            if status not in (401, 404):
                continue
            assert seen.code == {401: "ERR_IDENTITY_NOT_VERIFIED", 404: "ERR_SESSION_NOT_FOUND"}[status]
            assert (seen.without_request_id(), asked) == nowhere.get(route, (seen.without_request_id(), asked))
            # It wrote nothing, nowhere.
            assert {name for name, _ in asked} <= (set() if status == 401 else {"GetItem", "Query"})
            for secret in ("alice", "bob", "carl", "acme", "supervisor", conversation):
                assert secret not in seen.text


def test_a_message_to_somebody_elses_conversation_reads_what_a_new_one_reads(stage: Stage, handlers: Handlers) -> None:
    furnish(handlers, "")
    route, bob = "POST /conversations/{id}/turns", CALLERS["bob"]
    refused = handlers.ask(route, bob, "alices", body={"message": "Hello"})
    costs = handlers.asked("alices")
    created = handlers.ask(route, bob, "bobs", body={"message": "Hello"})
    assert (refused.status, created.status) == (404, 200)
    assert costs == reads_of(handlers.asked("bobs"))


def test_listings_show_ones_own_and_what_one_may_answer(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(handlers, "")
    owned = {"alice": ["alices"], "carl, of no tenant": ["carls"]}
    answers = {"sue, a supervisor": ["alices"]}
    for caller, who in CALLERS.items():
        conversations, asks = (handlers.ask(route, who, "") for route in LISTINGS)
        if caller == "nobody":
            assert {conversations.status, asks.status} == {501}
            continue
        listed = [line["conversationId"] for line in conversations.body["conversations"]]
        assert listed == owned.get(caller, []), caller
        assert [line["conversationId"] for line in asks.body["asks"]] == answers.get(caller, []), caller
    monkeypatch.setenv("TURNKEEP_ALLOW_ANONYMOUS", "false")
    assert {handlers.ask(route, CALLERS["nobody"], "").status for route in LISTINGS} == {401}


@pytest.mark.parametrize("route", ["POST /conversations", *LISTINGS])
def test_without_claims_a_verifying_stack_serves_nobody(
    stage: Stage, handlers: Handlers, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    monkeypatch.setenv("TURNKEEP_ALLOW_ANONYMOUS", "false")
    body = {"message": "Hello"} if route.startswith("POST") else None
    seen = handlers.ask(route, CALLERS["nobody"], "", body=body)
    assert (seen.status, seen.code) == (401, "ERR_IDENTITY_NOT_VERIFIED")
    assert handlers.calls == []
    assert stage.items() == []
    assert handlers.ask("GET /health", CALLERS["nobody"], "").status == 200


ROLES = {
    "[clerk supervisor]": True,
    "[supervisor]": True,
    "supervisor": True,
    "clerk supervisor": True,
    '["supervisor"]': False,
    "[supervisors]": False,
    "[]": False,
}


def test_roles_as_the_gateway_writes_them(handlers: Handlers) -> None:
    furnish(handlers, "")
    for roles, holds in ROLES.items():
        listed = handlers.ask("GET /asks", Person("sue", "acme", roles), "").body["asks"]
        assert bool(listed) is holds, roles


def test_a_body_a_header_or_a_path_names_nobody(handlers: Handlers) -> None:
    furnish(handlers, "")
    body = {"message": "Hello", "userId": "alice", "principal": "alice", "tenant": "acme", "sub": "alice"}
    assert handlers.ask("POST /conversations/{id}/turns", CALLERS["bob"], "alices", body=body).status == 404
