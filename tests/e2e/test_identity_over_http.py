"""Identity over HTTP: real tokens through the local stack's authorizer, the same table, the same words for all."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from local.keys import KEY_ID
from local.settings import AUDIENCE, ISSUER, ROOT
from tests.functions.identity import (
    CALLERS,
    LISTINGS,
    ROUTES,
    Person,
    Seen,
    expected,
    furnish,
    request_of,
)

if TYPE_CHECKING:
    from local.stack import LocalStack

pytestmark = pytest.mark.process
FUNCTIONS = ("TurnFunction", "AnswerFunction", "ReadFunction")
PEOPLE = ("bob", "alice of another tenant", "nobody", "sue, a supervisor", "alice")
ANEW = ("sue, a supervisor", "alice")
"""Those of a tenant in which somebody before them has made, or answered, something: they get conversations anew."""


class OverHttp:
    """The stack's API, asked as whoever holds the token."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack

    def token(self, who: Person) -> str | None:
        return None if who.name is None else self.stack.token(who.name, who.tenant, list(who.roles))

    def ask(self, route: str, caller: Person, conversation: str, *, n: int = 1, body: Any = None) -> Seen:
        return self.send(route, self.token(caller), conversation, n=n, body=body)

    def send(self, route: str, token: str | None, conversation: str, *, n: int = 1, body: Any = None) -> Seen:
        method, _, template = route.partition(" ")
        request = urllib.request.Request(
            self.stack.api_url + template.replace("{id}", conversation).replace("{n}", str(n)),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return Seen(reply.status, reply.read().decode(), {k.lower(): v for k, v in reply.headers.items()})
        except urllib.error.HTTPError as refusal:
            headers = {name.lower(): value for name, value in refusal.headers.items()}
            return Seen(refusal.code, refusal.read().decode(), headers)

    def asked_of_aws(self) -> list[str]:
        """What the API's functions asked of AWS since the last reset (an execution may be at work beside them)."""
        calls = self.stack.calls.list()
        return sorted(f"{call['service']}:{call['operation']}" for call in calls if call["function"] in FUNCTIONS)


@pytest.mark.timeout(300)
def test_every_route_for_every_caller_over_http(stack: LocalStack) -> None:
    site = OverHttp(stack)
    prefix, asks = "", dict[str, str]()
    for caller in PEOPLE:
        who = CALLERS[caller]
        if caller in ANEW or not asks:
            prefix = f"id-{uuid.uuid4().hex[:8]}-"
            asks = furnish(site, prefix)
        nowhere: dict[str, Any] = {}
        for conversation in ("missing", "nobodys", "alices"):
            for route, status in expected(conversation, caller, takes_anonymous=True):
                stack.calls.reset()
                parts = request_of(route, asks.get(conversation, asks["alices"]))
                seen = site.ask(route, who, prefix + conversation, **parts)
                assert seen.status == status, (caller, conversation, route, seen.text)
                if status == 404:
                    told = seen.without_request_id(), site.asked_of_aws()
                    assert nowhere.setdefault(route, told) == told, (caller, conversation, route)


def test_listings_over_http(stack: LocalStack) -> None:
    site = OverHttp(stack)
    tenant = f"t{uuid.uuid4().hex[:8]}"
    alice, sue = Person("alice", tenant), Person("sue", tenant, ("clerk", "supervisor"))
    turns = "POST /conversations/{id}/turns"
    site.ask(turns, alice, "listed", body={"message": "Refund order B-200, please"})
    for who, owned, asked in ((alice, ["listed"], []), (sue, [], ["listed"])):
        conversations, asks = (site.ask(route, who, "").body for route in LISTINGS)
        assert [line["conversationId"] for line in conversations["conversations"]] == owned
        assert [line["conversationId"] for line in asks["asks"]] == asked


# --- tokens -------------------------------------------------------------------------------------------------


def unsigned(claims: dict[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def bad_tokens(stack: LocalStack) -> dict[str, str]:
    now_s = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + 600}
    good = stack.token("alice")
    head, _, signature = good.split(".")
    stranger = RSAKey.generate_key(2048, private=True)
    changed = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "bob"}).encode()).rstrip(b"=").decode()
    return {
        "expired": stack.token("alice", life_s=-10),
        "not valid yet": stack.token("alice", claims={"nbf": now_s + 600}),
        "another audience": stack.token("alice", claims={"aud": "another"}),
        "no audience": stack.token("alice", claims={"aud": None}),
        "another issuer": stack.token("alice", claims={"iss": "https://elsewhere.example"}),
        "unsigned": unsigned(claims),
        "signed by another key": jwt.encode({"alg": "RS256", "kid": KEY_ID}, claims, stranger),
        "signed with a secret": jwt.encode({"alg": "HS256", "kid": KEY_ID}, claims, OctKey.import_key("s" * 32)),
        "another payload": f"{head}.{changed}.{signature}",
        "cut": good[:-8],
        "no token": "hello",
    }


KINDS = (
    *("expired", "not valid yet", "another audience", "no audience", "another issuer", "unsigned"),
    *("signed by another key", "signed with a secret", "another payload", "cut", "no token"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_token_is_refused_on_every_route_before_any_function_runs(stack: LocalStack, kind: str) -> None:
    site, token = OverHttp(stack), bad_tokens(stack)[kind]
    said = len(stack.logs())
    for route in (*ROUTES, *LISTINGS, "POST /conversations"):
        seen = site.send(route, token, "c-1", **ROUTES.get(route, {}))
        assert (seen.status, seen.body) == (401, {"message": "Unauthorized"}), (route, seen.text)
    assert len(stack.logs()) == said
    assert site.send("GET /health", token, "").status == 200


def test_make_token_prints_a_token_and_nothing_else(stack: LocalStack) -> None:
    state = Path(stack.settings.state_dir)
    # Where this suite is itself run by make, its words to a make below are not for this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "token", "USER=alice", "TENANT=acme", "ROLES=supervisor,clerk", f"VENV={Path(sys.prefix)}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True)
    (printed,) = done.stdout.splitlines()
    _, payload, _ = printed.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert (claims["sub"], claims["tenant"], claims["roles"]) == ("alice", "acme", ["supervisor", "clerk"])
    # The checkout's own issuer signed it, which is not this stack's where its state lies elsewhere.
    if state == ROOT / ".turnkeep":
        assert OverHttp(stack).send("GET /conversations", printed, "").status == 200
