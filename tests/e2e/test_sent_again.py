"""One request sent several times, over HTTP and with real processes: it runs once, its copies learn how it stands."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.stack import LocalStack, SetFault

pytestmark = pytest.mark.process

BODY = '{"message": "Where is order A-100?", "turn": 1}'
SAME_JSON = '{ "turn" : 1.0,\n  "message" : "Where is order \\u0041-100?" }'
OTHER = '{"message": "Where is order B-200?", "turn": 1}'


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> Any:
        return self.body["error"]["code"]


class Desk:
    """The API, as one person with a conversation of their own."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.conversation = f"again-{uuid.uuid4().hex[:8]}"
        self.token = stack.token("alice", "acme")
        self.pool = ThreadPoolExecutor(8)

    def send(self, raw: str = BODY, *, path: str | None = None, key: str | None = "k-1", prefer: str = "") -> Reply:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        headers |= {"idempotency-key": key} if key else {}
        headers |= {"prefer": prefer} if prefer else {}
        target = path or f"/conversations/{self.conversation}/turns"
        return self._ask(urllib.request.Request(self.stack.api_url + target, raw.encode(), headers, method="POST"))

    def read(self, rest: str) -> Reply:
        target = f"{self.stack.api_url}/conversations/{self.conversation}{rest}"
        return self._ask(urllib.request.Request(target, headers={"authorization": f"Bearer {self.token}"}))

    def soon(self, **request: Any) -> Future[Reply]:
        return self.pool.submit(self.send, **request)

    def hold_commit(self) -> SetFault:
        """Keeps the turn's process where it is about to commit, its answer in its hands."""
        return self.stack.faults.add(
            "hold", service="dynamodb", operation="UpdateItem", function="TurnFunction",
            contains=[self.conversation, "TURN#", "complete"],
        )  # fmt: skip

    @staticmethod
    def _ask(request: urllib.request.Request) -> Reply:
        try:
            with urllib.request.urlopen(request, timeout=60) as found:
                return Reply(found.status, json.loads(found.read()), _folded(found.headers))
        except urllib.error.HTTPError as refusal:
            return Reply(refusal.code, json.loads(refusal.read()), _folded(refusal.headers))


def _folded(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@pytest.fixture
def desk(stack: LocalStack) -> Iterator[Desk]:
    made = Desk(stack)
    yield made
    stack.faults.clear()
    made.pool.shutdown()


def test_copies_of_a_request_that_runs_attach_to_it(desk: Desk) -> None:
    held = desk.hold_commit()
    first = desk.soon()
    held.wait_until_met()
    waiting = desk.soon(prefer="wait=20")
    for raw in (BODY, SAME_JSON):
        at_once = desk.send(raw)
        assert (at_once.status, at_once.code, at_once.body["error"]["turn"]) == (409, "ERR_CONCURRENT_RUN", 1)
        assert int(at_once.headers["retry-after"]) >= 1
    assert desk.send(OTHER).code == "ERR_IDEMPOTENCY_MISMATCH"
    assert desk.send(OTHER, key="k-2").code == "ERR_CONCURRENT_RUN"  # another request altogether
    assert not first.done()
    assert not waiting.done()
    held.release()

    answered, attached = first.result(30), waiting.result(30)
    assert (answered.status, answered.body["status"], answered.body["turn"]) == (200, "complete", 1)
    assert attached.body == answered.body
    assert attached.headers["preference-applied"] == "wait=20"
    # After its end a repeat is told how it stands, however it is written, and other words are refused.
    assert desk.send(SAME_JSON).body == answered.body
    assert desk.send(OTHER).code == "ERR_IDEMPOTENCY_MISMATCH"
    assert [turn["turn"] for turn in desk.read("/turns").body["turns"]] == [1]


def test_a_repeat_takes_over_from_a_process_that_was_killed(desk: Desk, stack: LocalStack) -> None:
    # Its claim lands, and it never hears of that.
    held = stack.faults.add(
        "hold_answer", service="dynamodb", operation="PutItem", function="TurnFunction",
        contains=[desk.conversation, "TURN#"],
    )  # fmt: skip
    first = desk.soon()
    held.wait_until_met()
    (running,) = stack.lambdas.wait_for("TurnFunction")
    assert stack.lambdas.signal(running["request_id"], "KILL")
    assert first.result(30).status == 500  # the gateway's word for a function that died
    held.remove()

    early = desk.send()
    assert (early.status, early.code) == (409, "ERR_CONCURRENT_RUN")  # its lease says that it may be alive
    assert desk.read("/turns/1").body["status"] == "running"
    _let_the_lease_run_out(stack, desk.conversation)
    assert desk.read("/turns/1").body["stalled"] is True
    with ThreadPoolExecutor(3) as pool:
        replies = list(pool.map(lambda _: desk.send(prefer="wait=20"), range(3)))
    assert {reply.status for reply in replies} == {200}
    assert len({json.dumps(reply.body) for reply in replies}) == 1
    assert replies[0].body["turn"] == 1
    took_over = [line for line in stack.logs() if '"takeover":1' in line and desk.conversation in line]
    assert [json.loads(line)["attempt"] for line in took_over] == [2]


def _let_the_lease_run_out(stack: LocalStack, conversation: str) -> None:
    table = stack.deployment()["outputs"]["TableName"]
    stack.client("dynamodb").update_item(
        TableName=table,
        Key={"pk": {"S": f"acme/_/{conversation}"}, "sk": {"S": f"TURN#{1:016d}"}},
        UpdateExpression="SET leaseUntil = :past",
        ConditionExpression="attribute_exists(leaseUntil)",
        ExpressionAttributeValues={":past": {"N": "1"}},
    )


@pytest.mark.parametrize("raw", ["{}", BODY], ids=["empty", "with a message"])
def test_creating_a_conversation_is_once_a_key(desk: Desk, raw: str) -> None:
    key, barrier = uuid.uuid4().hex, threading.Barrier(3)

    def create(_: int) -> Reply:
        barrier.wait()
        return desk.send(raw, path="/conversations", key=key, prefer="wait=20")

    with ThreadPoolExecutor(3) as pool:
        replies = list(pool.map(create, range(3)))
    assert {reply.status for reply in replies} == ({201} if raw == "{}" else {200})
    (desk.conversation,) = {reply.body["conversationId"] for reply in replies}
    assert len(desk.read("/turns").body["turns"]) == (0 if raw == "{}" else 1)
    other = desk.send(OTHER, path="/conversations", key=key)
    assert (other.status, other.code) == (422, "ERR_IDEMPOTENCY_MISMATCH")
    assert desk.send(raw, path="/conversations", key=None).body["conversationId"] != desk.conversation


def test_turns_over_the_limit_are_refused_whichever_process_takes_them(desk: Desk, stack: LocalStack) -> None:
    stack.set_environment({"TURNKEEP_TURNS_PER_HOUR": "3"}, function="TurnFunction")
    desk.token = stack.token(f"busy-{uuid.uuid4().hex[:8]}")
    barrier = threading.Barrier(7)

    def create(number: int) -> Reply:
        barrier.wait()
        return desk.send(BODY, path="/conversations", key=f"{desk.conversation}-{number}")

    with ThreadPoolExecutor(7) as pool:
        replies = list(pool.map(create, range(7)))
    assert sorted(reply.status for reply in replies) == [200] * 3 + [429] * 4
    for number, reply in enumerate(replies):
        if reply.status == 429:
            assert reply.code == "ERR_ADMISSION_REFUSED"
            assert 3_500 < int(reply.headers["retry-after"]) <= 3_660
        else:
            assert desk.send(BODY, path="/conversations", key=f"{desk.conversation}-{number}").body == reply.body
