"""Settings, wiring and observability: what the deployment says, what is made of it and when, and what operators see."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.entry.doors import Lines, asking, completed, record
from turnkeep.clock import ManualClock
from turnkeep.entry.observability import (
    LOGGED_FACTS,
    OUTCOMES,
    CountedEvents,
    InvocationFailedError,
    Observation,
    describe,
)
from turnkeep.entry.settings import BadSettingError, Environment, read_environment
from turnkeep.entry.wiring import Invocation, NoDoorbell, NoGate, Process, load_factory
from turnkeep.errors import LeaseHeldError, StoreUnavailableError
from turnkeep.ledger.records import Status
from turnkeep.usecases.deps import Settings

ROOT = Path(__file__).parents[2]

# --- settings -----------------------------------------------------------------------------------------------


def test_what_is_not_said_has_its_default() -> None:
    found = read_environment({"TURNKEEP_TABLE": "Ledger", "TURNKEEP_DURABILITY": "", "TURNKEEP_ASK_EXPIRES_S": " "})
    assert found == Environment(table="Ledger")
    assert found.core == Settings()


def test_everything_said_is_read() -> None:
    found = read_environment(
        {
            "TURNKEEP_TABLE": "Ledger",
            "TURNKEEP_STATE_MACHINE_ARN": "arn",
            "TURNKEEP_QUEUE_URL": "https://queue",
            "TURNKEEP_AGENT_FACTORY": "desk:build",
            "TURNKEEP_DURABILITY": "sync",
            "TURNKEEP_ASK_EXPIRES_S": "60",
            "TURNKEEP_RETENTION_DAYS": "30",
            "TURNKEEP_MAX_MESSAGE_BYTES": "1024",
            "TURNKEEP_ON_CONCURRENT": "enqueue",
            "TURNKEEP_ALLOW_ANONYMOUS": "True",
            "TURNKEEP_TENANT_CLAIM": "org",
            "TURNKEEP_ROLES_CLAIM": "groups",
            "TURNKEEP_REQUEST_KEY_TTL_S": "120",
            "TURNKEEP_TURNS_PER_HOUR": "10",
            "TURNKEEP_CORS_ORIGINS": "https://a.example, https://b.example",
            "TURNKEEP_EVENT_BUS": "bus",
            "AWS_REGION": "eu-central-1",
        }
    )
    assert found == Environment(
        table="Ledger",
        agent_factory="desk:build",
        state_machine_arn="arn",
        queue_url="https://queue",
        event_bus="bus",
        tenant_claim="org",
        roles_claim="groups",
        cors_origins=("https://a.example", "https://b.example"),
        region="eu-central-1",
        core=Settings(
            allow_anonymous=True,
            durability="sync",
            ask_expires_s=60,
            retention_days=30,
            max_message_bytes=1024,
            on_concurrent="enqueue",
            request_key_ttl_s=120,
            turns_per_hour=10,
        ),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TURNKEEP_TABLE", ""),
        ("TURNKEEP_DURABILITY", "always"),
        ("TURNKEEP_ASK_EXPIRES_S", "0"),
        ("TURNKEEP_ASK_EXPIRES_S", "-1"),
        ("TURNKEEP_RETENTION_DAYS", "1.5"),
        ("TURNKEEP_MAX_MESSAGE_BYTES", "256 KB"),
        ("TURNKEEP_ON_CONCURRENT", "wait"),
        ("TURNKEEP_ALLOW_ANONYMOUS", "yes"),
        ("TURNKEEP_TURNS_PER_HOUR", "\u0661"),
        ("TURNKEEP_REQUEST_KEY_TTL_S", "9" * 40),
    ],
)
def test_a_setting_that_makes_no_sense_is_named_and_not_repeated(name: str, value: str) -> None:
    with pytest.raises(BadSettingError, match=name) as refusal:
        read_environment({"TURNKEEP_TABLE": "Ledger", name: value})
    assert refusal.value.variable == name
    assert value == "" or f" {value}." not in str(refusal.value)


# --- wiring -------------------------------------------------------------------------------------------------


def test_a_factory_is_found_by_its_name() -> None:
    from turnkeep.ids import path_form

    assert load_factory("turnkeep.ids:path_form") is path_form  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    "name", ["", "desk", "desk:", ":build", "no_such_module:build", "turnkeep.ids:nothing", "turnkeep.ids:PATH_RULE"]
)
def test_a_factory_that_is_none_is_a_named_setting(name: str) -> None:
    with pytest.raises(BadSettingError, match="TURNKEEP_AGENT_FACTORY"):
        load_factory(name)


def test_a_module_that_fails_to_import_keeps_its_own_error_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_desk_module.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadSettingError) as refusal:
        load_factory("broken_desk_module:build")
    assert "no_such_library" in str(refusal.value.__cause__)


@dataclass(frozen=True)
class LambdaContext:
    left_ms: int

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


def invocation(context: Any = None, **settings: Any) -> Invocation:
    process = Process(Environment(table="Ledger", region="eu-central-1", **settings))
    return Invocation(process, context, Observation("x", sink=Lines()), clock=ManualClock())


def test_an_invocation_has_the_time_that_lambda_gives_it() -> None:
    assert invocation(LambdaContext(12_345)).deadline.left_ms() == 12_345
    assert invocation().deadline.left_ms() == 28_000


def test_a_stack_without_a_queue_a_machine_or_a_bus_says_so_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    deps = invocation().deps
    assert isinstance(deps.doorbell, NoDoorbell)
    assert isinstance(deps.gate, NoGate)
    deps.events.tell("turn.ended", completed())  # to nobody
    with pytest.raises(BadSettingError, match="TURNKEEP_STATE_MACHINE_ARN"):
        deps.gate.signal("token")


CLIENTS = """
import json, sys
from turnkeep.entry.observability import Observation
from turnkeep.entry.settings import Environment
from turnkeep.entry.wiring import Invocation, Process
process = Process(Environment(table="T", state_machine_arn="arn:aws:states:x:1:stateMachine:M", queue_url="https://q",
                              event_bus="bus", region="eu-central-1"))
before = list(process.clients._made)
deps = Invocation(process, None, Observation("x")).deps
again = Invocation(process, None, Observation("x")).deps
print(json.dumps([before, list(process.clients._made), "boto3" in sys.modules, "pydantic" in sys.modules,
                  deps.ledger.store._client is again.ledger.store._client]))
"""


def python(code: str, **variables: str) -> Any:
    environment = {"PYTHONPATH": str(ROOT / "layers" / "turnkeep"), "AWS_ACCESS_KEY_ID": "x",
                   "AWS_SECRET_ACCESS_KEY": "y", **variables}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_turn_that_does_not_pause_makes_no_client_but_the_stores() -> None:
    before, after, boto3_imported, pydantic_imported, same = python(CLIENTS)
    assert (before, after, same) == ([], ["dynamodb"], True)
    assert (boto3_imported, pydantic_imported) == (False, False)


# --- observability ------------------------------------------------------------------------------------------


@dataclass
class Told:
    """An event sink that remembers."""

    told: list[tuple[str, Any]] = field(default_factory=list)

    def tell(self, kind: str, record: Any) -> None:
        self.told.append((kind, record))


@dataclass
class Asked:
    """A store that was asked so much."""

    round_trips: int
    calls: int


def test_a_line_holds_no_fact_that_is_not_on_the_list() -> None:
    lines = Lines()
    with Observation("request", sink=lines, clock=ManualClock()) as observation:
        observation.note("segment", {"turn": 4, "principal": "ann", "message": "hello", "runId": "run-1"})
        observation.note("segment", {"turn": {"not": "a number"}, "error": "text"})
        observation.note("something", {"status": "x" * 5_000})
    ((message, facts, is_fault),) = lines.lines
    assert (message, is_fault) == ("request", False)
    assert facts == {
        "turn": 4,
        "run": "run-1",
        "status": "x" * 512,
        "duration_ms": 0,
        "notes": {"segment": 2, "something": 1},
    }
    assert lines.counts == {"DurableWrites": 2}
    assert not {"principal", "tenant", "message", "output", "token", "key"} & {*LOGGED_FACTS, *LOGGED_FACTS.values()}


def test_a_turn_is_counted_where_it_ends_and_nowhere_else() -> None:
    lines, told = Lines(), Told()
    with Observation("request", sink=lines, clock=ManualClock()) as observation:
        events = CountedEvents(told, observation)
        events.tell("ask.opened", asking())
        events.tell("ask.closed", asking())
        for status in (Status.COMPLETE, Status.FAILED, Status.EXPIRED, Status.CANCELLED, Status.REFUSED):
            events.tell("turn.ended", record(status))
        observation.outcome("complete")
    assert lines.counts == dict.fromkeys(OUTCOMES.values(), 1)
    assert [kind for kind, _ in told.told] == ["ask.opened", "ask.closed", *["turn.ended"] * 5]


def test_the_duration_of_what_ran_a_turn_is_a_metric() -> None:
    lines, clock = Lines(), ManualClock()
    for notes in (["claimed", "paused"], ["resumed"], ["takeover"], ["claimed", "queued"], ["answered"]):
        with Observation("request", sink=lines, clock=clock) as observation:
            for note in notes:
                observation.note(note, {})
            clock.advance_ms(40)
    assert [durations.get("TurnDuration") for durations in lines.durations] == [40, 40, 40, None, None]


def test_the_line_says_what_was_asked_of_the_store() -> None:
    lines = Lines()
    with Observation("request", sink=lines, clock=ManualClock(), store=Asked(3, 7)):
        pass
    ((_, facts, _),) = lines.lines
    assert facts == {"duration_ms": 0, "store_round_trips": 3, "store_calls": 7}


def test_a_foreign_exception_is_told_and_leaves_without_its_words() -> None:
    """Lambda's runtime prints what leaves a function, and Step Functions keeps it in the execution's history."""
    lines = Lines()
    with pytest.raises(InvocationFailedError) as left, Observation("resume", sink=lines):
        raise ZeroDivisionError("SECRET")
    ((_, facts, is_fault),) = lines.lines
    assert is_fault
    assert facts["error"][0]["class"] == "builtins.ZeroDivisionError"
    assert "SECRET" not in lines.text
    assert str(left.value).startswith("builtins.ZeroDivisionError;")
    assert "SECRET" not in "".join(traceback.format_exception(left.value))


def test_an_exception_of_ours_passes_on_by_its_name() -> None:
    """The state machine's retries go by it."""
    with pytest.raises(LeaseHeldError), Observation("resume", sink=Lines()):
        raise LeaseHeldError(turn=1)


def test_an_error_is_described_without_what_it_says() -> None:
    aws = ClientError({"Error": {"Code": "ValidationException", "Message": "SECRET"}}, "PutItem")
    try:
        try:
            raise aws
        except ClientError as error:
            raise StoreUnavailableError from error
    except StoreUnavailableError as error:
        outer, inner = describe(error)
    assert outer["class"] == "turnkeep.errors.running.StoreUnavailableError"
    assert outer["says"].startswith("The store is not available")
    assert (inner["code"], inner["operation"]) == ("ValidationException", "PutItem")
    assert "SECRET" not in json.dumps([outer, inner])
    assert inner["at"][-1].endswith("test_an_error_is_described_without_what_it_says")


def test_an_error_that_was_hidden_on_purpose_stays_hidden() -> None:
    try:
        try:
            raise KeyError("SECRET")
        except KeyError:
            raise StoreUnavailableError from None
    except StoreUnavailableError as error:
        assert len(describe(error)) == 1


def test_lines_and_metrics_are_json_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "desk")
    with Observation("request") as observation:
        observation.outcome("complete")
        observation.ended("complete")
        observation.note("ring_late", {"lag_ms": 250})
    line, metrics = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["level"], line["message"], line["outcome"], line["lag_ms"]) == ("INFO", "request", "complete", 250)
    assert (metrics["TurnsComplete"], metrics["QueueLag"]) == ([1.0], [250.0])
    assert metrics["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "desk"
