"""Who may do what: every route, every kind of caller, every kind of conversation, in one table.

What the table does not allow is a 404 that says nothing, for everybody who is verified; and a 401 for whoever is not,
on a stack that wants that. It is held against the handlers (``test_identity``) and against the stack over HTTP
(``tests/e2e/test_identity_over_http``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Person:
    """A caller; the one without a name is anonymous. Roles are names, or the claim's own text."""

    name: str | None
    tenant: str | None = None
    roles: tuple[str, ...] | str = ()


CALLERS = {
    "alice": Person("alice", "acme"),
    "bob": Person("bob", "acme"),
    "alice of another tenant": Person("alice", "other"),
    "sue, a supervisor": Person("sue", "acme", ("clerk", "supervisor")),
    "a supervisor of another tenant": Person("sam", "other", ("supervisor",)),
    "carl, of no tenant": Person("carl"),
    "a stranger of no tenant": Person("alice"),
    "nobody": Person(None),
}
ROUTES: dict[str, dict[str, Any]] = {
    "GET /conversations/{id}": {},
    "GET /conversations/{id}/turns": {},
    "GET /conversations/{id}/turns/{n}": {"n": 1},
    "GET /conversations/{id}/turns/{n}/evidence": {"n": 1},
    "GET /conversations/{id}/transcript": {},
    "POST /conversations/{id}/turns": {"body": {"message": "Hello again"}},
    "POST /conversations/{id}/answers": {"body": {"askId": "ASK", "decision": {"approved": True, "by": "x"}}},
    "DELETE /conversations/{id}/turns/{n}": {"n": 2},
    "DELETE /conversations/{id}": {},
}
LISTINGS = ("GET /conversations", "GET /asks")

READS = {route: 200 for route in ROUTES if route.startswith("GET")}
OWNER = READS | {
    "POST /conversations/{id}/turns": 409,  # an ask is open
    "POST /conversations/{id}/answers": 403,  # and it is for a role
    "DELETE /conversations/{id}/turns/{n}": 200,
    "DELETE /conversations/{id}": 202,
}
MAY: dict[tuple[str, str], dict[str, int]] = {
    ("alices", "alice"): OWNER,
    ("alices", "sue, a supervisor"): {"POST /conversations/{id}/answers": 202},
    ("carls", "carl, of no tenant"): OWNER,
    ("nobodys", "nobody"): OWNER
    | {"POST /conversations/{id}/answers": 202, "DELETE /conversations/{id}/turns/{n}": 409},  # it has its answer then
}
OWNERS = {"alices": "alice", "carls": "carl, of no tenant", "nobodys": "nobody"}
CONVERSATIONS = (*OWNERS, "missing")
ROWS = [
    *((caller, False) for caller in CALLERS),  # a stack that verifies, as on AWS
    *((caller, True) for caller in ("nobody", "alice", "a stranger of no tenant")),  # one that takes anonymous callers
]
"""(caller, whether the stack takes anonymous callers): each is tried on every conversation."""


def expected(conversation: str, caller: str, *, takes_anonymous: bool) -> Iterator[tuple[str, int]]:
    """The status that each route answers with, route by route, in an order in which none changes a later one's."""
    creates = []
    for route in ROUTES:
        if caller == "nobody" and not takes_anonymous:
            yield route, 401
        elif (status := MAY.get((conversation, caller), {}).get(route)) is not None:
            yield route, status
        elif route == "POST /conversations/{id}/turns" and not is_there(conversation, caller):
            creates.append((route, 200))  # it is theirs from now on
        else:
            yield route, 404
    yield from creates


def is_there(conversation: str, caller: str) -> bool:
    """Whether the id names something in the caller's tenant."""
    owner = OWNERS.get(conversation)
    return owner is not None and CALLERS[owner].tenant == CALLERS[caller].tenant


@dataclass(frozen=True)
class Seen:
    """A reply, as its bytes and headers are."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> Any:
        return self.body.get("error", {}).get("code")

    def without_request_id(self) -> tuple[int, str, dict[str, str]]:
        """All of it but the one thing that may differ between two refusals."""
        request_id = self.body["error"]["requestId"]
        assert self.text.count(request_id) == 1
        headers = {name: value for name, value in self.headers.items() if name not in ("date", "apigw-requestid")}
        return self.status, self.text.replace(request_id, "REQUEST"), headers


class Site(Protocol):
    """A deployment to ask."""

    def ask(self, route: str, caller: Person, conversation: str, *, n: int = 1, body: Any = None) -> Seen:
        """One request."""
        ...


def furnish(site: Site, prefix: str) -> dict[str, str]:
    """Makes the conversations, each with a turn that ended and one that asks a supervisor; returns their asks' ids."""
    asks = {}
    for name, owner in OWNERS.items():
        turns = "POST /conversations/{id}/turns"
        conversation = prefix + name
        first = site.ask(turns, CALLERS[owner], conversation, body={"message": "Where is order A-100?"})
        assert (first.status, first.body["turn"]) == (200, 1), first.text
        second = site.ask(turns, CALLERS[owner], conversation, body={"message": "Refund order B-200, please"})
        assert (second.status, second.body["turn"]) == (202, 2), second.text
        asks[name] = second.body["awaiting"]["askId"]
    return asks


def request_of(route: str, ask_id: str) -> dict[str, Any]:
    """The parts of a route's request, naming an ask."""
    parts = ROUTES[route]
    body = parts.get("body")
    return parts if body is None else {**parts, "body": {**body, **({"askId": ask_id} if "askId" in body else {})}}
