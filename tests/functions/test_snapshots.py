"""SnapStart: one process is started, kept as a snapshot, and restored many times. What must not be in the snapshot?

A restore is played by a fork of a process that has imported its function. The one thing that a fork does and a restore
does not, seeding Python's random numbers anew, is taken back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.functions.fresh import HTTP_FUNCTIONS, said, start
from tests.functions.stage import saved_event

if TYPE_CHECKING:
    from local.stack import LocalStack

SNAPSHOT = {"AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}
NAMED = {
    "TURNKEEP_STATE_MACHINE_ARN": "arn:aws:states:eu-central-1:123456789012:stateMachine:m",
    "TURNKEEP_EVENT_BUS": "default",
}

HELD = """
import gc, json, os, stat, sys
import app
from botocore.client import BaseClient
from botocore.credentials import Credentials
from turnkeep.entry import wiring
gc.collect()
kinds = [type(held) for held in gc.get_objects()]

def is_socket(descriptor):
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False

print(json.dumps({
    "clients": sum(issubclass(kind, BaseClient) for kind in kinds),
    "credentials": sum(issubclass(kind, Credentials) for kind in kinds),
    "processes": len(wiring._processes),
    "sockets": sum(is_socket(descriptor) for descriptor in range(3, 256)),
    "agent": "refund_desk" in sys.modules,
    "loaded": "turnkeep.adapters.dynamo" in sys.modules,
}))
"""

RESTORED = """
import json, os, random
import app
from turnkeep.entry import wiring

event = json.loads(os.environ["EVENT"])
in_snapshot = random.getstate()
told = []
for restore in range(3):
    reading, writing = os.pipe()
    if not os.fork():
        random.setstate(in_snapshot)
        # Credentials are handed to each process that was restored; the snapshot was taken without any.
        os.environ |= {"AWS_ACCESS_KEY_ID": f"restore{restore}", "AWS_SECRET_ACCESS_KEY": "x"}
        replies = [app.handler(event, None) for _ in range(2)]
        client = wiring.process().clients.get("dynamodb", None)
        restored = {
            "statuses": [reply["statusCode"] for reply in replies],
            "bodies": [json.loads(reply["body"]) for reply in replies],
            "drawn": random.random(),
            "key": client._request_signer._credentials.access_key,
        }
        os.write(writing, json.dumps(restored).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told.append(json.load(pipe))
    os.wait()
print(json.dumps(told))
"""


@pytest.mark.parametrize("function", HTTP_FUNCTIONS)
def test_a_snapshot_holds_what_is_loaded_and_nothing_that_belongs_to_one_process(function: str) -> None:
    held = said(function, HELD, **SNAPSHOT, **NAMED)
    assert held == {
        "clients": 0,
        "credentials": 0,
        "processes": 0,
        "sockets": 0,
        "agent": function == "turn",
        "loaded": True,
    }


def test_processes_restored_from_one_snapshot_share_no_id_and_draw_nothing_alike(stack: LocalStack) -> None:
    event = saved_event("conversation-create-with-message")
    del event["headers"]["idempotency-key"]
    table = stack.deployment()["physical"]["LedgerTable"]
    restores: list[dict[str, Any]] = said(
        "turn",
        RESTORED,
        EVENT=json.dumps(event),
        TURNKEEP_TABLE=table,
        AWS_ENDPOINT_URL=stack.aws_url,
        **SNAPSHOT,
    )
    assert [restore["statuses"] for restore in restores] == [[200, 200]] * 3
    bodies = [body for restore in restores for body in restore["bodies"]]
    for name in ("conversationId", "runId"):
        assert len({body[name] for body in bodies}) == 6, name
    assert len({restore["drawn"] for restore in restores}) == 3
    assert [restore["key"] for restore in restores] == ["restore0", "restore1", "restore2"]


def test_a_version_whose_agent_is_not_there_is_not_published() -> None:
    done = start("turn", "import app", **SNAPSHOT, TURNKEEP_AGENT_FACTORY="nowhere:build")
    assert done.returncode != 0
    assert "TURNKEEP_AGENT_FACTORY names a module that cannot be imported" in done.stderr
    assert start("read", "import app", **SNAPSHOT, TURNKEEP_AGENT_FACTORY="nowhere:build").returncode == 0
