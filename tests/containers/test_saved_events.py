"""`sam local invoke FUNCTION -e events/….json` prints, for every event, what the same event gets without containers."""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from local.settings import ROOT
from local.stack import LocalStack
from tests.containers.conftest import SAM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.containers.conftest import InContainers

pytestmark = pytest.mark.containers
OTHERS = {
    "resume": "ResumeFunction",
    "worker": "WorkerFunction",
    "reconcile": "ReconcileFunction",
    "refused-rest-api": "ReadFunction",
}
# What leaves something behind that others look at comes in this order, the erasure behind all of them; the rest only
# reads, is refused, or is about a conversation of its own.
FIRST = (
    "turn-message",
    "turn-idempotent",
    "turn-asks",
    "answer-null",
    "turn-host-counter",
    "turn-with-tenant-and-roles",
)
LAST = ("turn-withdraw", "turn-respond-async", "conversation-erase")
SAVED = sorted(path.stem for path in (ROOT / "events").glob("*.json"))
# Minted where the event arrives, or told by a clock.
OWN = re.compile(r'\b(c|run|ask)-[\w-]{16,}|"(\w+At|\w+Ms|at)":\s*\d+')


@pytest.fixture(scope="module")
def forked() -> Iterator[LocalStack]:
    with LocalStack() as stack:
        yield stack


@pytest.mark.timeout(1200)  # forty starts of the sam command, seconds of processor time each
def test_every_event_gets_what_it_gets_outside_of_a_container(contained: InContainers, forked: LocalStack) -> None:
    differ = []

    def try_out(name: str) -> None:
        event = json.loads((ROOT / "events" / f"{name}.json").read_text("utf-8"))
        function = function_of(name, event, forked)
        inside, outside = invoke(function, name, contained), forked.invoke(function, event)
        assert outside.error is None, name
        if comparable(inside) != comparable(outside.value):
            differ.append(f"{name}: {comparable(inside)}\n  but {comparable(outside.value)}")

    for name in FIRST:
        try_out(name)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(try_out, [name for name in SAVED if name not in FIRST + LAST]))
    for name in LAST:
        try_out(name)
    assert not differ, "\n".join(differ)


def function_of(name: str, event: dict[str, Any], stack: LocalStack) -> str:
    """The function that gets this event where it is deployed."""
    if other := OTHERS.get(name) or OTHERS.get(name.partition("-")[0]):
        return other
    name_of = {facts["name"]: logical_id for logical_id, facts in stack.deployment()["functions"].items()}
    targets = {route["key"]: route["function"] for route in stack.deployment()["routes"]}
    return name_of[targets[event["routeKey"]]]


def invoke(function: str, name: str, stack: InContainers) -> Any:
    """What `sam local invoke` prints."""
    command = [str(SAM), "local", "invoke", function, "-e", f"events/{name}.json", "--config-file", str(stack.config)]
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    with TemporaryDirectory() as folder:  # of its own: in a shared one sam waits for others that build the same image
        environment = os.environ | credentials | {"SAM_CLI_TELEMETRY": "0", "TMPDIR": folder}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def comparable(answer: Any) -> str:
    """The text of an answer without what is minted or measured; its body opened."""
    if isinstance(answer, dict) and isinstance(answer.get("body"), str) and answer["body"]:
        answer = answer | {"body": json.loads(answer["body"])}
    return OWN.sub("…", json.dumps(answer, sort_keys=True))
