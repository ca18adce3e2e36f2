"""The page's server: whom it answers, and what it says where something is wrong. And what a turn is said to cost."""

from __future__ import annotations

import json
import secrets
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from local.console.costs import units_of
from local.console.page import STATIC
from local.console.page import Page as Console
from local.touched import touched_by

if TYPE_CHECKING:
    from local.stack import LocalStack

ROOT = Path(__file__).parent.parent.parent
CARLA = {"name": "carla", "roles": [], "tenant": None}


def ask(
    console: Console, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(console.url)
    connection = HTTPConnection(str(where.hostname), where.port, timeout=60)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent.setdefault("content-type", "application/json")
    connection.request(method, path, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def act(console: Console, name: str, **said: Any) -> Any:
    status, _, body = ask(console, "POST", f"/api/{name}", said)
    assert status == 200, body
    return json.loads(body)


def read(console: Console, name: str, **query: Any) -> Any:
    sent = "&".join(f"{key}={quote(str(value), safe='')}" for key, value in query.items())
    status, _, body = ask(console, "GET", f"/api/{name}?{sent}")
    assert status == 200, body
    return json.loads(body)


def test_its_files_come_with_a_policy_that_runs_no_other_code(console: Console) -> None:
    for path, kind in (("/", "text/html"), ("/main.js", "text/javascript"), ("/style.css", "text/css")):
        status, headers, body = ask(console, "GET", path)
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert body
    for path in ("/../page.py", "/..%2fpage.py", "/page.py", "/static/main.js", "/api/no-such"):
        assert ask(console, "GET", path)[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example", "origin": "http://evil.example"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
    ],
)
def test_another_site_s_page_cannot_use_it(console: Console, headers: dict[str, str]) -> None:
    name = f"stolen-{secrets.token_hex(3)}"
    said = {"conversationId": name, "message": "Hello!", "as": CARLA}
    status, _, _ = ask(console, "POST", "/api/send", said, **headers)
    assert status == 403
    assert name not in {row["conversationId"] for row in read(console, "conversations")["conversations"]}


def test_looking_is_neither_counted_nor_troubled_by_faults(console: Console, stack: LocalStack) -> None:
    sent = act(
        console, "send", conversationId=f"look-{secrets.token_hex(3)}", message="Where is order A-100?", **{"as": CARLA}
    )
    before = len(stack.calls.list())
    with stack.faults.during("throttle", service="dynamodb", times=None):
        for name in ("conversation", "items", "envelope"):
            read(console, name, pk=sent["pk"])
        read(console, "evidence", pk=sent["pk"], turn=1)
    assert len(stack.calls.list()) == before


def test_what_a_turn_costs_is_told_by_the_calls_of_those_who_wrote_it(console: Console) -> None:
    name = f"cost-{secrets.token_hex(3)}"
    for _ in range(4):
        sent = act(console, "send", conversationId=name, message="Where is order A-100?", **{"as": CARLA})
    act(console, "send", conversationId=f"{name}-other", message="Where is order A-100?", **{"as": CARLA})
    costs = read(console, "items", pk=sent["pk"])["costs"]
    assert [cost["turn"] for cost in costs] == [1, 2, 3, 4]
    assert {cost["write"] for cost in costs} == {3.0}  # claim, turn, CONVERSATION; flat
    refused = act(console, "send", conversationId=name, message="Hello!", **{"as": {"name": "dan"}})
    assert refused["body"]["error"]["code"] == "ERR_SESSION_NOT_FOUND"
    assert read(console, "items", pk=sent["pk"])["costs"] == costs


def test_what_cannot_be_done_is_said_in_words(console: Console) -> None:
    bad_role = {"name": "x", "roles": ["no spaces"]}
    for said, status, words in (
        ({"message": "Hello!", "as": bad_role}, 409, "A role consists of"),
        ({"as": CARLA}, 400, "KeyError: 'message'"),
    ):
        found, _, body = ask(console, "POST", "/api/send", said)
        assert found == status
        assert words in json.loads(body)["error"]
    found, _, body = ask(console, "GET", "/api/conversation?pk=nonsense")
    assert found == 400
    gone = {"pk": f"_/_/gone-{secrets.token_hex(3)}", "turn": 1, "runId": "run-1"}
    found, _, body = ask(console, "POST", "/api/lease", gone)
    assert (found, "is over" in json.loads(body)["error"]) == (409, True)


def test_units_by_dynamodb_s_rule() -> None:
    call = {"service": "dynamodb", "status": 200, "items": [["p", "s"]], "consistent": True}
    sizes = {"sent_bytes": 1025, "received_bytes": 4097}
    assert units_of({**call, **sizes, "operation": "PutItem"}) == (0.0, 2.0)
    assert units_of({**call, **sizes, "operation": "TransactWriteItems"}) == (0.0, 4.0)
    assert units_of({**call, **sizes, "operation": "Query"}) == (2.0, 0.0)
    assert units_of({**call, **sizes, "operation": "Query", "consistent": False}) == (1.0, 0.0)
    assert units_of({**call, **sizes, "operation": "PutItem", "status": 0}) == (0.0, 0.0)
    assert units_of({**call, **sizes, "service": "states", "operation": "StartExecution"}) == (0.0, 0.0)


def test_the_items_that_a_call_names() -> None:
    key = {"pk": {"S": "p"}, "sk": {"S": "s"}}
    other = {"pk": {"S": "p"}, "sk": {"S": "t"}, "text": {"S": '"pk"'}}
    for operation, body, items in (
        ("PutItem", {"Item": other}, [["p", "t"]]),
        ("GetItem", {"Key": key}, [["p", "s"]]),
        (
            "TransactWriteItems",
            {"TransactItems": [{"Put": {"Item": other}}, {"Delete": {"Key": key}}]},
            [["p", "t"], ["p", "s"]],
        ),
        ("BatchWriteItem", {"RequestItems": {"T": [{"PutRequest": {"Item": other}}]}}, [["p", "t"]]),
        ("BatchGetItem", {"RequestItems": {"T": {"Keys": [key]}}}, [["p", "s"]]),
        ("Query", {"KeyConditionExpression": "pk=:p", "ExpressionAttributeValues": {":p": {"S": "p"}}}, [["p", ""]]),
        ("Query", {"IndexName": "byDue", "KeyConditionExpression": "x=:p"}, []),
        ("PutItem", {"Item": {"id": {"S": "of another table"}}}, []),
        ("PutItem", [], []),
    ):
        assert touched_by("dynamodb", operation, json.dumps(body).encode()) == items
    assert touched_by("dynamodb", "PutItem", b"\xff") == []
    assert touched_by("sqs", "SendMessage", b"{}") == []


def test_nothing_of_it_comes_from_elsewhere_or_goes_into_a_package() -> None:
    for path in STATIC.iterdir():
        addresses = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in addresses, path
        assert "innerHTML" not in addresses, path
    for folder in ("layers", "functions"):
        for source in (ROOT / folder).rglob("*.py"):
            assert "local.console" not in source.read_text(), source
