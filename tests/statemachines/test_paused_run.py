"""PausedRun, executed: every branch, with what the ledger holds and what the console shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.statemachines.machine import SECRET, LambdaError, Machine

IDS = {"pk": "5:alice|c-1", "sk": "TURN#0000000000000007", "conversationId": "c-1", "turn": 7, "askId": "ask-1"}
# Lambda's longest time-out, and the 10 s that a lease outlives it.
LONGEST_LEASE_S = 910


def test_an_answer_after_the_token_runs_the_turn_on(machine: Machine) -> None:
    machine.put_turn()
    machine.reply("resume", {"status": "complete"})
    card = machine.card()
    machine.start(card)

    token = machine.token()
    assert machine.turn()["dueAt"] == {"N": str(card["expiresAtMs"] + 300_000)}
    assert machine.calls == []
    machine.decide()
    machine.signal(token)

    assert machine.output() == {"conversationId": "c-1", "turn": 7, "status": "complete"}
    assert machine.states() == ["AwaitAnswer", "Resume", "Outcome", "Done"]
    assert machine.calls == [{"action": "resume", **IDS}]
    assert machine.entered()[1][1] == card, "every state shows the card of the ask"


def test_the_tenant_travels_where_there_is_one(machine: Machine) -> None:
    machine.put_turn()
    machine.reply("resume", {"status": "complete"})
    machine.start(machine.card(tenant="acme"))
    token = machine.token()
    machine.decide()
    machine.signal(token)
    machine.end()
    assert machine.calls == [{"action": "resume", "tenant": "acme", **IDS}]


def test_an_answer_before_the_token_is_taken_up(machine: Machine) -> None:
    machine.put_turn()
    machine.decide()
    machine.reply("resume", {"status": "complete"})
    machine.start()

    assert machine.output()["status"] == "complete"
    assert machine.states() == ["AwaitAnswer", "CheckAsk", "Decided", "Resume", "Outcome", "Done"]
    assert "taskToken" not in machine.turn()


@pytest.mark.parametrize(
    ("status", "ask_id", "shown"),
    [
        pytest.param("cancelled", "ask-1", "cancelled", id="withdrawn"),
        pytest.param("expired", "ask-1", "expired", id="expired"),
        pytest.param("complete", "ask-1", "complete", id="resumed-by-another-execution"),
        pytest.param("awaiting", "ask-2", "gone", id="another-ask-is-open"),
        pytest.param("answered", "ask-2", "gone", id="another-ask-is-answered"),
    ],
)
def test_an_ask_that_is_not_open_ends_the_execution(machine: Machine, status: str, ask_id: str, shown: str) -> None:
    machine.put_turn(status, ask_id)
    machine.start()

    assert machine.output() == {"conversationId": "c-1", "turn": 7, "status": shown}
    assert machine.states() == ["AwaitAnswer", "CheckAsk", "Decided", "Done"]
    assert machine.calls == []
    assert "taskToken" not in machine.turn()


def test_an_erased_turn_stays_erased(machine: Machine) -> None:
    machine.start()
    assert machine.output()["status"] == "gone"
    assert machine.turn() == {}


def test_nobody_answers(machine: Machine) -> None:
    machine.put_turn()
    machine.reply("expire", {"status": "expired"})
    machine.start(machine.card(expires_in_s=-60))

    assert machine.output() == {"conversationId": "c-1", "turn": 7, "status": "expired"}
    assert machine.states() == ["AwaitAnswer", "ExpireAsk", "Decided", "Done"]
    assert machine.calls == [{"action": "expire", **IDS}]


def test_the_expiry_finds_a_decision(machine: Machine) -> None:
    machine.put_turn()
    machine.reply("expire", {"status": "answered"})
    machine.reply("resume", {"status": "complete"})
    machine.start(machine.card(expires_in_s=-60))

    assert machine.output()["status"] == "complete"
    assert machine.states() == ["AwaitAnswer", "ExpireAsk", "Decided", "Resume", "Outcome", "Done"]
    assert [call["action"] for call in machine.calls] == ["expire", "resume"]


def test_the_wait_ends_at_the_expiry(machine: Machine) -> None:
    machine.put_turn()
    machine.start(machine.card(expires_in_s=3600))
    machine.token()
    scheduled = [event["taskScheduledEventDetails"] for event in machine.history() if "taskScheduled" in str(event)]
    assert 3598 <= scheduled[0]["timeoutInSeconds"] <= 3602


def test_a_turn_that_asks_again_waits_in_the_same_execution(machine: Machine) -> None:
    machine.put_turn()
    second = {
        "status": "awaiting",
        "askId": "ask-2",
        "question": "And the other one?",
        "audience": "owner",
        "expiresAtMs": machine.card()["expiresAtMs"],
    }

    def ask_again(_payload: dict[str, Any]) -> dict[str, Any]:
        machine.put_turn("awaiting", "ask-2")  # the commit with a new ask removes the old token
        return second

    machine.reply("resume", ask_again, {"status": "complete"})
    machine.start()
    first_token = machine.token()
    machine.decide()
    machine.signal(first_token)
    second_token = machine.token(other_than=first_token)
    machine.decide()
    machine.signal(second_token)

    assert machine.output() == {"conversationId": "c-1", "turn": 7, "status": "complete"}
    assert machine.states() == ["AwaitAnswer", "Resume", "Outcome", "AwaitAnswer", "Resume", "Outcome", "Done"]
    assert [call["askId"] for call in machine.calls] == ["ask-1", "ask-2"]
    ids = {key: IDS[key] for key in ("pk", "sk", "conversationId", "turn")}
    assert machine.entered()[3][1] == ids | second, "the new ask's card holds nothing of the old ask"


def test_an_ask_beyond_the_executions_year_is_handed_over(machine: Machine) -> None:
    machine.put_turn()
    far = machine.card(expires_in_s=365 * 86_400)["expiresAtMs"]
    machine.reply("resume", {"status": "awaiting", "askId": "ask-2", "question": "Still?", "expiresAtMs": far})
    machine.start()
    token = machine.token()
    machine.decide()
    machine.signal(token)

    assert machine.output() == {"conversationId": "c-1", "turn": 7, "status": "awaiting"}
    assert machine.states()[-2:] == ["Outcome", "HandedOver"]


@pytest.mark.parametrize(
    "error_type",
    [
        "LeaseHeldError",
        "StoreUnavailableError",
        "Lambda.TooManyRequestsException",
        "Lambda.ServiceException",
        "Lambda.Unknown",
        "Sandbox.Timedout",
        "Runtime.ExitError",
        "Runtime.OutOfMemory",
    ],
)
def test_what_may_pass_is_tried_again(machine: Machine, error_type: str) -> None:
    machine.put_turn()
    machine.decide()
    machine.reply("resume", LambdaError(error_type), LambdaError(error_type), {"status": "complete"})
    machine.start()

    assert machine.output()["status"] == "complete"
    assert [call["action"] for call in machine.calls] == ["resume"] * 3
    assert len(machine.waits_s) == 2


@pytest.mark.parametrize("action", ["resume", "expire", "failed"])
def test_the_waits_outlast_the_longest_lease(machine: Machine, action: str) -> None:
    machine.put_turn()
    machine.reply("expire", {"status": "answered"})
    machine.reply("resume", LambdaError("KeyError"))
    machine.reply("failed", {"status": "failed"})
    machine.reply(action, LambdaError("LeaseHeldError"))
    machine.start(machine.card(expires_in_s=-60))

    assert machine.end()["status"] == "FAILED"
    assert sum(machine.waits_s) > LONGEST_LEASE_S
    assert machine.waits_s[0] <= 2, "a crash that left no lease costs seconds, not minutes"


def test_a_resume_that_cannot_run_is_marked_and_fails(machine: Machine) -> None:
    machine.put_turn()
    machine.decide()
    machine.reply("resume", LambdaError("KeyError", SECRET))
    machine.reply("failed", {"status": "failed"})
    machine.start()

    ended = machine.end()
    assert ended["status"] == "FAILED"
    assert machine.states()[-4:] == ["Resume", "MarkFailed", "Outcome", "ResumeFailed"]
    assert [call["action"] for call in machine.calls] == ["resume", "failed"]
    assert machine.calls[1] == {"action": "failed", **IDS}
    failed = machine.history()[-1]["executionFailedEventDetails"]
    assert failed["error"] == "Turnkeep.ResumeFailed"
    assert "Turn 7 of conversation c-1" in failed["cause"]
    assert "KeyError" in failed["cause"]
    assert SECRET not in failed["cause"], "the error's name, never its words"


def test_a_resume_whose_answer_was_lost_is_not_called_failed(machine: Machine) -> None:
    machine.put_turn()
    machine.decide()
    machine.reply("resume", LambdaError("KeyError"))
    machine.reply("failed", {"status": "complete"})
    machine.start()
    assert machine.output()["status"] == "complete"


def test_a_turn_that_failed_by_itself_ends_well(machine: Machine) -> None:
    machine.put_turn()
    machine.decide()
    machine.reply("resume", {"status": "failed"})
    machine.start()
    assert machine.output() == {"conversationId": "c-1", "turn": 7, "status": "failed"}


def test_a_token_counts_once(machine: Machine) -> None:
    machine.put_turn()
    machine.reply("resume", {"status": "complete"})
    machine.start()
    token = machine.token()
    machine.decide()
    machine.signal(token)
    machine.end()

    with pytest.raises(ClientError) as refused:
        machine.signal(token)
    assert refused.value.response["Error"]["Code"] in {"InvalidToken", "TaskDoesNotExist", "TaskTimedOut"}
    assert [call["action"] for call in machine.calls] == ["resume"]


def test_a_second_execution_takes_the_wait_over(machine: Machine) -> None:
    """An execution was stopped in the console: the next one waits with a token of its own."""
    machine.put_turn()
    machine.reply("resume", {"status": "complete"})
    machine.start()
    first_token = machine.token()
    machine.steps.stop_execution(executionArn=machine.execution)
    machine.start(machine.card(start=2))
    second_token = machine.token(other_than=first_token)
    machine.decide()
    machine.signal(second_token)
    assert machine.output()["status"] == "complete"


def test_a_throttled_table_is_tried_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.dynamodb.exceptions import DynamodbException
    from moto.dynamodb.models import DynamoDBBackend

    update = DynamoDBBackend.update_item
    refusals = ["once", "twice"]

    def throttled(backend: Any, *arguments: Any, **options: Any) -> Any:
        if refusals and "taskToken" in str((arguments, options)):
            refusals.pop()
            raise DynamodbException("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "slow")
        return update(backend, *arguments, **options)

    monkeypatch.setattr(DynamoDBBackend, "update_item", throttled)
    machine.put_turn()
    machine.reply("resume", {"status": "complete"})
    machine.start()
    token = machine.token()
    assert len(machine.waits_s) == 2
    machine.decide()
    machine.signal(token)
    assert machine.output()["status"] == "complete"


def test_nothing_that_was_said_is_in_an_execution(machine: Machine) -> None:
    """The record is full of it; the history of every branch is not."""
    machine.put_turn()
    machine.reply("expire", {"status": "answered"})
    machine.reply("resume", LambdaError("KeyError"))
    machine.reply("failed", {"status": "failed"})
    machine.start(machine.card(expires_in_s=-60))
    machine.end()
    expired = json.dumps(machine.history(), default=str)

    machine.put_turn()
    machine.decide()
    machine.start()
    ended = machine.end()
    checked = json.dumps(machine.history(), default=str)

    assert "CheckAsk" in checked
    assert SECRET not in expired + checked
    token = machine.turn().get("taskToken", {}).get("S", "no token")
    shown = [ended["input"], ended.get("output", "")] + [json.dumps(card) for _, card in machine.entered()]
    assert not any(token in text for text in shown)
