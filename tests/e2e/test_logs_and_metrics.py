"""What operators see of a whole session over HTTP: a line a request, metrics that add up, and nothing of anybody's.

Everything that people say and are called here is a word of its own, so that one search finds a leak wherever it is.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from local.demo import Api, Reply
from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

OWNER, HOLDER, TENANT = "zsolt-owner", "hilda-holder", "tenancy-x"
WORDS = (OWNER, HOLDER, TENANT, "A-100", "B-200", "leaky", "Bearer", "eyJ", "supervisor")
"""Names, what was said, keys, notes, cursors (each with "leaky" in it), tokens (``eyJ``), roles."""
PATIENCE_S = 30.0


class Session:
    """One conversation with everything in it."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.owner = Api(stack.api_url, stack.aws_url, stack.token(OWNER, TENANT))
        self.holder = Api(stack.api_url, stack.aws_url, stack.token(HOLDER, TENANT, ["supervisor"]))
        self.requests = 0

    def play(self) -> None:
        """Each kind of request at least once."""
        looks_up, asks = {"message": "Where is order A-100?"}, {"message": "Refund order B-200, please"}
        turns = "/conversations/c-1/turns"
        assert self.send("POST", turns, looks_up, idempotency_key="leaky-key").status == 200
        assert self.send("POST", turns, looks_up, idempotency_key="leaky-key").status == 200  # a repeat
        assert self.send("POST", turns, {"message": "leaky"}, idempotency_key="leaky-key").status == 422
        asked = self.send("POST", turns, asks)
        assert asked.status == 202
        assert self.send("POST", turns, looks_up).body["error"]["code"] == "ERR_AWAITING_DECISION"
        self.waits_for_an_answer("c-1")
        answer = {
            "askId": asked.body["awaiting"]["askId"],
            "decision": {"approved": True, "by": "leaky", "note": "leaky"},
        }
        answers = "/conversations/c-1/answers"
        assert self.send("POST", answers, answer).status == 403
        assert self.send("POST", answers, answer, by=self.holder, prefer="wait=20").status == 200
        assert self.send("POST", answers, answer, by=self.holder).status == 409
        for path in ("", "/turns", "/turns/2", "/turns/2/evidence", "/transcript"):
            assert self.send("GET", f"/conversations/c-1{path}").status == 200
        assert self.send("GET", "/conversations/c-1", by=self.holder).status == 404
        for path in ("/conversations", "/asks", "/health"):
            assert self.send("GET", path).status == 200
        assert self.send("GET", "/asks?cursor=leaky").status == 400
        assert self.send("POST", turns, {"message": 7, "leaky": "leaky"}).status == 400
        # Through the queue: one that ends, one that asks, one behind it that is taken back, and the ask as well.
        for body in (looks_up, asks, looks_up):
            assert self.send("POST", "/conversations/c-2/turns", body, prefer="respond-async").status == 202
        self.ends("c-2", 3, "refused")
        assert self.send("DELETE", "/conversations/c-2/turns/2").status == 200
        assert self.send("POST", "/conversations", {}).status == 201
        assert self.send("DELETE", "/conversations/c-1").status == 202

    def send(self, method: str, path: str, body: Any = None, *, by: Api | None = None, **headers: str) -> Reply:
        self.requests += 1
        return (by or self.owner).call(method, path, body, **headers)

    def waits_for_an_answer(self, conversation: str) -> None:
        machine = self.stack.deployment()["outputs"]["PausedRunArn"]
        steps = self.stack.client("stepfunctions")
        eventually(lambda: bool(steps.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]))

    def ends(self, conversation: str, turn: int, status: str) -> None:
        path = f"/conversations/{conversation}/turns/{turn}"
        eventually(lambda: self.send("GET", path).body.get("status") == status)


def eventually(look: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, list[str]]]:
    state: Path = tmp_path_factory.mktemp("state")
    with LocalStack(state_dir=state) as stack:
        session = Session(stack)
        session.play()
        yield session, stack.logs()


def lines_of(logs: list[str]) -> list[dict[str, Any]]:
    return [found for line in logs if "_aws" not in (found := json.loads(line))]


def metrics_of(logs: list[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in logs:
        entry = json.loads(line)
        for metric in entry.get("_aws", {}).get("CloudWatchMetrics", [{}])[0].get("Metrics", []):
            found[metric["Name"]] += int(entry[metric["Name"]][0]) if metric["Unit"] == "Count" else 1
    return found


def test_nothing_that_anybody_said_or_is_called_is_in_a_log(played: tuple[Session, list[str]]) -> None:
    _, logs = played
    assert len(logs) > 40
    leaks = [line for line in logs for word in WORDS if word in line]
    assert leaks == []


def test_one_line_a_request_says_how_it_went(played: tuple[Session, list[str]]) -> None:
    session, logs = played
    requests = [line for line in lines_of(logs) if line["message"] == "request"]
    assert len(requests) == session.requests
    assert len({line["request_id"] for line in requests}) == session.requests
    for line in requests:
        assert {"method", "route", "duration_ms"} <= line.keys()
        assert line["level"] == "INFO", line
        if "{id}" in line["route"]:
            assert line["conversation"] in {"c-1", "c-2"}
        if line["route"] != "/health" and line.get("code") != "ERR_INVALID_REQUEST":
            assert 1 <= line["store_round_trips"] <= line["store_calls"]
        if line["method"] != "GET":
            assert ("outcome" in line) is ("code" not in line), line
    ran = [line for line in requests if "claimed" in line.get("notes", {}) and line["outcome"] != "queued"]
    assert [line["outcome"] for line in ran] == ["complete", "awaiting"]
    assert all({"turn", "attempt", "run"} <= line.keys() for line in ran)
    codes = Counter(line["code"] for line in requests if "code" in line)
    assert codes == {
        "ERR_IDEMPOTENCY_MISMATCH": 1,
        "ERR_AWAITING_DECISION": 1,
        "ERR_NOT_YOURS_TO_ANSWER": 1,
        "ERR_ALREADY_ANSWERED": 1,
        "ERR_SESSION_NOT_FOUND": 1,
        "ERR_INVALID_REQUEST": 2,
    }


def test_the_other_functions_say_which_turn_they_moved(played: tuple[Session, list[str]]) -> None:
    _, logs = played
    worked = [line for line in lines_of(logs) if line["message"] == "worker" and "outcome" in line]
    assert {(line["conversation"], line["turn"], line["outcome"]) for line in worked} >= {
        ("c-2", 1, "complete"),
        ("c-2", 2, "awaiting"),
        ("c-2", 3, "refused"),
    }
    assert all({"lag_ms", "run", "attempt"} <= line.keys() for line in worked if line["outcome"] == "complete")
    resumed = [line for line in lines_of(logs) if line["message"] == "resume"]
    assert ("c-1", 2, "complete") in {(line["conversation"], line["turn"], line["outcome"]) for line in resumed}


def test_the_metrics_add_up(played: tuple[Session, list[str]]) -> None:
    _, logs = played
    found = metrics_of(logs)
    assert {name: found[name] for name in found if name.startswith(("Turns", "Answers"))} == {
        "TurnsClaimed": 5,
        "TurnsQueued": 3,
        "TurnsPaused": 2,
        "TurnsComplete": 3,  # in the request, after the answer, and in the worker: each once, however often it is read
        "TurnsRefused": 1,
        "TurnsCancelled": 1,
        "Answers": 1,
    }
    assert (found["QueueLag"] >= 3, found["Resumes"], found["Takeovers"]) == (True, 1, 0)
    assert found["TurnDuration"] == 5
