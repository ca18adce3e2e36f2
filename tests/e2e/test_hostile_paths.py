"""Percent-encoding tricks over HTTP, undecoded by any client: what an HTTP API makes of them, and what we then do."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from local.stack import LocalStack

pytestmark = pytest.mark.process

GATEWAY, REFUSED, NOT_FOUND = (404, None), (400, "ERR_INVALID_REQUEST"), (404, "ERR_SESSION_NOT_FOUND")
PATHS = {
    "/conversations/LEAK%2Fb": GATEWAY,  # decoded first: two segments, and no such route
    "/conversations/LEAK%252Fb": REFUSED,  # decoded once: a percent sign is in neither form
    "/conversations/hostile-1%3Fb": NOT_FOUND,  # the path ends at a decoded question mark
    "/conversations/%2e%2e": REFUSED,
    "/conversations/..": REFUSED,
    "/conversations/%2e%2e%2fhealth": GATEWAY,
    "/conversations/LEAK%00b": REFUSED,
    "/conversations/LEAK%0d%0aX-Evil:%201": REFUSED,
    "/conversations/LEAK%ff": REFUSED,
    "/conversations/LEAK%C3%A9": REFUSED,
    "/conversations/%7EYWI": NOT_FOUND,  # an encoded tilde is a tilde
    "/conversations/hostile%2D1": NOT_FOUND,
    "/conversations/%E0%80%AF": REFUSED,
    "/conversations/LEAK%": REFUSED,
    "/conversations/LEAK;b=c": REFUSED,
    "/conversations/hostile-1/turns/%31": NOT_FOUND,
    "/conversations/hostile-1/turns/1%2F": GATEWAY,
    "/conversations/hostile-1/turns/%D9%A1": REFUSED,
    "/conversations/hostile-1/turns?cursor=LEAK%00": REFUSED,
    "/conversations/hostile-1/turns?cursor=LEAK&cursor=LEAK": REFUSED,
    "/conversations?limit=%31%30%31": REFUSED,
    "/conversations/": GATEWAY,
    "/Conversations": GATEWAY,
}


def test_percent_encoding_tricks(stack: LocalStack) -> None:
    where = urlsplit(stack.api_url)
    table = stack.deployment()["outputs"]["TableName"]
    headers = {"authorization": f"Bearer {stack.token('mallory')}"}
    said, stored = len(stack.logs()), stack.client("dynamodb").scan(TableName=table, Select="COUNT")["Count"]
    connection = http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)
    for path, expected in PATHS.items():
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        text = reply.read().decode()
        body: Any = json.loads(text)
        assert (reply.status, body.get("error", {}).get("code")) == expected, (path, text)
        assert reply.getheader("x-evil") is None
        assert "LEAK" not in text
    connection.close()
    assert not [line for line in stack.logs()[said:] if "LEAK" in line]
    assert stack.client("dynamodb").scan(TableName=table, Select="COUNT")["Count"] == stored
