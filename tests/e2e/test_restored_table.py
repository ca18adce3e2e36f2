"""After a restore: the same stack on another table, by one parameter, with what was kept there and what comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from local.demo import Api
from local.settings import ACCOUNT, REGION
from local.stack import LocalStack
from tests.contract.tables import new_table

if TYPE_CHECKING:
    from pathlib import Path

RESTORED = "turnkeep-restored"
ASKS = {"message": "Refund order B-200, please"}
PATIENCE_S = 20.0


@pytest.mark.process
@pytest.mark.timeout(120)
def test_a_stack_goes_on_with_a_restored_table(tmp_path: Path) -> None:
    arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{RESTORED}"
    with LocalStack(state_dir=tmp_path, parameters={"RestoredTableArn": arn}) as stack:
        new_table(stack.client("dynamodb"), RESTORED)
        assert stack.deployment()["outputs"]["TableName"] == RESTORED
        assert "LedgerTable" not in stack.deployment()["physical"], "the stack makes no table beside it"
        alice = Api(stack.api_url, stack.aws_url, stack.token("alice"))
        boss = Api(stack.api_url, stack.aws_url, stack.token("sam", roles=["supervisor"]))

        asked = alice.call("POST", "/conversations/kept/turns", ASKS)
        assert asked.status == 202, asked.body
        answer = {"askId": asked.body["awaiting"]["askId"], "decision": {"approved": True, "by": "sam"}}
        assert boss.call("POST", "/conversations/kept/answers", answer).status == 202
        _until_complete(alice)
        assert [one["conversationId"] for one in alice.call("GET", "/conversations").body["conversations"]] == ["kept"]
        assert stack.fire("ReconcileFunction")

        used = {each for call in stack.calls.list() for each in call["permissions"] if "dynamodb:" in each}
        assert used
        assert all(f"{arn}" in each for each in used), "every function and the machine turned to it"
        for function in ("TurnFunction", "ReadFunction", "ReconcileFunction"):
            named = stack.client("lambda").get_function(FunctionName=stack.deployment()["functions"][function]["name"])
            assert named["Configuration"]["Environment"]["Variables"]["TURNKEEP_TABLE"] == RESTORED


def _until_complete(api: Api) -> Any:
    until = time.monotonic() + PATIENCE_S
    while (turn := api.call("GET", "/conversations/kept/turns/1").body).get("status") != "complete":
        assert time.monotonic() < until, turn
        time.sleep(0.1)
