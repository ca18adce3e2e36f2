"""``make demo``: a customer talks to the refund desk through twelve turns, and the ledger shows what was kept.

Plays against the running stack (``make run``); where none runs it starts one of its own for the while. Everything goes
over HTTP, as a real caller's requests would: a stale host counter (``turn: 1`` in every request), ten double submits at
once, a question to a supervisor and its answer. Ends with an error where the stack did anything else than it promises.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.demo_view import View
from local.settings import CREDENTIALS, Settings
from local.stack import LocalStack
from local.token import make_token

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE = [
    "Hello!",
    "Where is order A-100?",
    "Refund order A-100, please",
    "Thank you",
    "And where is order B-200?",
]
CONTENDED = "Where is order A-100 now?"
ASKING = "Refund order B-200, please"
AFTER = [
    "Where is order B-200?",
    "Refund order B-200 once more, please",
    "What is the meaning of life?",
    "Where is order Z-999?",
    "Thanks, goodbye",
]
SUBMITS = 10


class PromiseBroken(Exception):
    """The stack did something else than it promises; the message says what."""


@dataclass(frozen=True)
class Reply:
    """A reply of the API."""

    status: int
    body: dict[str, Any]
    duration_ms: int


class Api:
    """The API of a running stack, as one person."""

    def __init__(self, api_url: str, aws_url: str, token: str) -> None:
        self.api_url, self.aws_url, self._token = api_url, aws_url, token

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Reply:
        """One request."""
        sent = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return request(f"{self.api_url}{path}", method, body, sent)

    def control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request to the stack's own control paths."""
        return request(f"{self.aws_url}/_local/{path}", method, body, {"content-type": "application/json"}).body


def request(url: str, method: str, body: dict[str, Any] | None, headers: dict[str, str]) -> Reply:
    """Sends it, and takes refusals for replies."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, method=method, headers=headers)
    began = time.monotonic()
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    return Reply(status, json.loads(text or b"{}"), int((time.monotonic() - began) * 1000))


@contextmanager
def running_stack() -> Iterator[tuple[str, str]]:
    """The addresses of the stack that runs on PORT and AWS_PORT, or of one that is started for the while."""
    api_url = f"http://127.0.0.1:{os.environ.get('PORT') or 3000}"
    aws_url = f"http://127.0.0.1:{os.environ.get('AWS_PORT') or 5000}"
    if _answers(f"{api_url}/health") and _answers(f"{aws_url}/_local/deployment"):
        yield api_url, aws_url
        return
    with LocalStack() as stack:
        yield stack.api_url, stack.aws_url


def _answers(url: str) -> bool:
    try:
        return request(url, "GET", None, {}).status == 200
    except (OSError, ValueError):
        return False


class Demo:
    """Plays the conversation; every step checks what it promises."""

    def __init__(self, api_url: str, aws_url: str, view: View, *, state_dir: Path) -> None:
        self.customer = Api(api_url, aws_url, make_token("carla", state_dir=state_dir))
        self.supervisor = Api(api_url, aws_url, make_token("sam", roles=["supervisor"], state_dir=state_dir))
        self.view = view
        self.conversation = f"demo-{int(time.time())}"
        self.turn = 0

    def play(self) -> None:
        """The whole conversation, and what is left of it in the ledger.

        Raises:
            PromiseBroken: the stack did something else than it promises.
        """
        self.view.title(self.conversation, self.customer.api_url)
        for message in BEFORE:
            self.say(message)
        self.double_submit(CONTENDED)
        self.ask_and_answer(ASKING)
        for message in AFTER:
            self.say(message)
        self.show_what_is_kept()

    def say(self, message: str) -> None:
        """One turn, with the counter of a host that was just born."""
        self.turn += 1
        reply = self._post(message)
        expect(reply.status == 200 and reply.body["turn"] == self.turn, f"turn {self.turn} completes", reply)
        self.view.turn(self.turn, message, reply.body["output"], reply.duration_ms)

    def double_submit(self, message: str) -> None:
        """Ten processes send a turn at once; the winner is held until the nine others have their 409."""
        self.turn += 1
        # The winner is caught at its commit: everything before it, the claim most of all, has happened by then.
        fault = self.customer.control(
            "POST",
            "faults",
            {
                "kind": "hold",
                "service": "dynamodb",
                "operation": "UpdateItem",
                "contains": ["complete", self.conversation],
            },
        )
        with ThreadPoolExecutor(SUBMITS) as pool:
            sent = [pool.submit(self._post, message) for _ in range(SUBMITS)]
            wait_until(lambda: sum(one.done() for one in sent) >= SUBMITS - 1, "nine of ten are refused")
            self.customer.control("POST", f"faults/{fault['id']}/release")
            replies = [one.result() for one in sent]
        won = [reply for reply in replies if reply.status == 200]
        lost = [reply for reply in replies if reply.status == 409 and reply.body["error"]["turn"] == self.turn]
        expect(len(won) == 1 and len(lost) == SUBMITS - 1, "one of ten double submits wins", replies)
        self.view.contest(self.turn, message, won[0].body["output"], [reply.status for reply in replies])

    def ask_and_answer(self, message: str) -> None:
        """A turn that asks a supervisor, the execution that waits, and the answer."""
        self.turn += 1
        asked = self._post(message)
        expect(asked.status == 202 and asked.body["status"] == "awaiting", "a large refund asks", asked)
        ask = asked.body["awaiting"]
        open_asks = self.supervisor.call("GET", "/asks").body["asks"]
        seen = next((one for one in open_asks if one["askId"] == ask["askId"]), None)
        expect(seen is not None, "the supervisor sees the ask", open_asks)
        self.view.pause(self.turn, message, seen or ask)
        decision = {"approved": True, "by": "sam", "note": "regular customer"}
        answered = self.supervisor.call(
            "POST", f"/conversations/{self.conversation}/answers", {"askId": ask["askId"], "decision": decision}
        )
        expect(answered.status == 202, "the answer is taken", answered)
        began = time.monotonic()
        path = f"/conversations/{self.conversation}/turns/{self.turn}"
        wait_until(lambda: self.customer.call("GET", path).body.get("status") == "complete", "the turn completes")
        ended = self.customer.call("GET", path)
        self.view.resumed(ended.body["output"], decision, time.monotonic() - began)

    def show_what_is_kept(self) -> None:
        """The transcript as the API gives it, the ledger's items, and the execution."""
        transcript = self.customer.call("GET", f"/conversations/{self.conversation}/transcript?limit=100").body
        said = transcript["messages"]
        expect(len(said) == 2 * self.turn, "the transcript holds every turn once", said)
        table = self.customer.control("GET", "deployment")["outputs"]["TableName"]
        self.view.transcript(said)
        self.view.ledger(self._items(table), table)
        self.view.executions(self._executions())
        self.view.closing(self.turn, SUBMITS)

    def _post(self, message: str) -> Reply:
        path = f"/conversations/{self.conversation}/turns"
        return self.customer.call("POST", path, {"message": message, "turn": 1})

    def _client(self, service: str) -> Any:
        import boto3

        return boto3.client(service, endpoint_url=self.customer.aws_url, **CREDENTIALS)  # type: ignore[call-overload]

    def _items(self, table: str) -> list[dict[str, Any]]:
        pages = (
            self._client("dynamodb")
            .get_paginator("query")
            .paginate(
                TableName=table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": f"_/_/{self.conversation}"}},
            )
        )
        return [item for page in pages for item in page["Items"]]

    def _executions(self) -> list[dict[str, Any]]:
        steps = self._client("stepfunctions")
        machine = self.customer.control("GET", "deployment")["outputs"]["PausedRunArn"]
        found = steps.list_executions(stateMachineArn=machine)["executions"]
        return [one for one in found if one["name"].startswith(self.conversation[:20])]


def expect(holds: bool, promise: str, found: Any) -> None:
    """Checks a promise.

    Raises:
        PromiseBroken: it does not hold.
    """
    if not holds:
        raise PromiseBroken(f"it was promised that {promise}; found {found}")


def wait_until(done: Any, promise: str, timeout_s: float = 30) -> None:
    """Waits for something that has to happen.

    Raises:
        PromiseBroken: it did not in time.
    """
    until = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > until:
            raise PromiseBroken(f"it was promised that {promise}; it did not within {timeout_s:.0f} s")
        time.sleep(0.1)


def main() -> int:
    """Plays the demo; the exit code says whether every promise held."""
    view = View()
    try:
        with running_stack() as (api_url, aws_url):
            Demo(api_url, aws_url, view, state_dir=Path(Settings().state_dir)).play()
    except PromiseBroken as broken:
        view.broken(str(broken))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
