"""``turnkeep`` at a real command line, against the local stack: the same commands as on AWS, but for the endpoint."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from local.settings import REGION, ROOT
from tests.usecases.envelopes import PAUSED_FIXTURES, envelope, fixture, said, user
from turnkeep import __version__
from turnkeep.cli.main import main
from turnkeep.cli.text import named
from turnkeep.json_values import same_json

if TYPE_CHECKING:
    from pathlib import Path

    from local.stack import LocalStack

pytestmark = pytest.mark.process
YES = json.dumps({"approved": True, "by": "ops"})


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Process:
    """A shell of an operator: every command is a process."""

    environment: dict[str, str]

    def __call__(self, *arguments: str, given: str | None = None, **environment: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "turnkeep", *arguments],
            env={**self.environment, **environment},
            cwd=ROOT,
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Inside:
    """The same without a process, which takes most of the time: the same entry point, environment and outputs."""

    environment: dict[str, str]
    patch: pytest.MonkeyPatch

    def __call__(self, *arguments: str, given: str | None = None, **environment: str) -> Said:
        out, err = io.StringIO(), io.StringIO()
        with self.patch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in os.environ:
                if name.startswith(("AWS_", "TURNKEEP_")):
                    patch.delenv(name)
            for name, value in (self.environment | environment).items():
                patch.setenv(name, value)
            if given is not None:
                patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
            try:
                code = main(arguments)
            except SystemExit as ended:
                code = int(str(ended.code))
        return Said(code, out.getvalue(), err.getvalue())


Shell = Process | Inside


@pytest.fixture(scope="module")
def environment(stack: LocalStack) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TURNKEEP_"))}
    return kept | {
        "PYTHONPATH": str(ROOT / "layers" / "turnkeep"),
        "AWS_ENDPOINT_URL": stack.aws_url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "TURNKEEP_TABLE": stack.deployment()["physical"]["LedgerTable"],
    }


@pytest.fixture
def process(environment: dict[str, str]) -> Process:
    return Process(environment)


@pytest.fixture
def shell(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(environment, monkeypatch)


@pytest.fixture
def name() -> str:
    """An id of this test's own."""
    return f"cli-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any


def post(stack: LocalStack, path: str, body: Any, who: str) -> Reply:
    headers = {"content-type": "application/json", "authorization": f"Bearer {stack.token(who)}"}
    request = urllib.request.Request(stack.api_url + path, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Reply(answer.status, json.loads(answer.read()))
    except urllib.error.HTTPError as refusal:
        return Reply(refusal.code, json.loads(refusal.read()))


def talk(stack: LocalStack, conversation_id: str, message: str, who: str = "alice") -> Reply:
    return post(stack, f"/conversations/{conversation_id}/turns", {"message": message}, who)


def asking(stack: LocalStack, shell: Shell, name: str) -> str:
    """A conversation that waits for a supervisor; its ask's id, as `turnkeep paused` shows it."""
    assert talk(stack, name, "Refund order B-200, please").status == 202
    return waiting(shell, name).split()[2]


def waiting(shell: Shell, name: str) -> str:
    """The conversation's line in `turnkeep paused`."""
    shown = shell("paused")
    assert (shown.code, shown.err) == (0, "")
    (line,) = [line for line in shown.out.splitlines() if line.startswith(name)]
    return line


# --- export and import --------------------------------------------------------------------------------------


def test_a_conversation_goes_out_to_a_file_and_comes_in_under_another_id(
    stack: LocalStack, process: Process, name: str, tmp_path: Path
) -> None:
    shell = process
    talk(stack, name, "Where is order A-100?")
    file = tmp_path / "conversation.json"
    said_out = shell("export", name, "--out", str(file))
    assert (said_out.code, said_out.err) == (0, "")
    assert str(file) in said_out.out
    assert file.stat().st_mode & 0o077 == 0, "a conversation is for whoever exports it"
    value = json.loads(file.read_text(encoding="utf-8"))
    assert value["data"]["history"][0] == {"role": "user", "content": "Where is order A-100?"}
    assert shell("export", name).out == file.read_text(encoding="utf-8")
    copied = shell("import", str(file), "--id", f"{name}-copy")
    assert copied.code == 0
    assert f"Imported conversation {name}-copy: 1 turn, complete." in copied.out
    assert same_json(json.loads(shell("export", f"{name}-copy").out), value)
    on = talk(stack, f"{name}-copy", "thanks")
    assert (on.status, on.body["turn"]) == (200, 2)
    again = shell("import", str(file), "--id", f"{name}-copy")
    assert (again.code, "ERR_CONVERSATION_EXISTS" in again.err) == (1, True)


@pytest.mark.parametrize("file", ["a-plain-turn-3.json", *PAUSED_FIXTURES[:1], "g-crash-checkpoint.json"])
def test_an_envelope_of_the_reference_comes_in_from_standard_input_and_out_again(
    shell: Shell, name: str, file: str
) -> None:
    value = fixture(file)
    assert shell("import", "-", "--id", name, given=json.dumps(value)).code == 0
    assert same_json(json.loads(shell("export", name).out), value)
    assert "nothing was changed" in shell("import", "-", "--id", name, given=json.dumps(value)).out


def test_an_imported_pause_waits_is_listed_and_is_not_answered(stack: LocalStack, shell: Shell, name: str) -> None:
    value = envelope_of_a_pause(name)
    told = shell("import", "-", given=json.dumps(value))
    assert told.code == 0
    assert "cannot be answered here" in told.out
    line = waiting(shell, name)
    ask_id = line.split()[2]
    assert "Order invented seed packets" in line
    refused = shell("answer", name, ask_id, "--decision", YES)
    assert (refused.code, refused.out) == (1, "")
    assert "ERR_UNKNOWN_FORMAT" in refused.err
    assert name in refused.err
    assert same_json(json.loads(shell("export", name).out), value)
    assert talk(stack, name, "hello?", "bo").status == 409
    decided = {"askId": ask_id, "decision": {"approved": True, "by": "bo"}}
    answered = post(stack, f"/conversations/{name}/answers", decided, "bo")
    assert (answered.status, answered.body["error"]["code"]) == (500, "ERR_UNKNOWN_FORMAT")
    assert shell("cancel", name, "1").code == 0
    assert talk(stack, name, "Where is order A-100?", "bo").status == 200


def envelope_of_a_pause(name: str) -> dict[str, Any]:
    """The reference's paused run, named so that it comes in under its own id."""
    value = fixture("d-paused-checkin-2.json")
    conversation = {**value["data"]["conversation"], "identity": {"conversationId": name, "principal": "bo"}}
    return {**value, "data": {**value["data"], "conversation": conversation}}


# --- asks ---------------------------------------------------------------------------------------------------


def test_an_operator_answers_and_the_turn_goes_on(stack: LocalStack, shell: Shell, name: str) -> None:
    ask_id = asking(stack, shell, name)
    bare = shell("answer", name, ask_id, "--decision", '"yes"')
    assert (bare.code, "ERR_DECISION_REQUIRED" in bare.err) == (1, True)
    done = shell("answer", name, ask_id, "--decision", YES, "--operator", "night shift")
    assert (done.code, done.err) == (0, "")
    assert "operator:night shift" in done.out
    second = shell("answer", name, ask_id, "--decision", YES)
    assert (second.code, "ERR_ALREADY_ANSWERED" in second.err) == (1, True)
    assert wait_for(lambda: "complete" in shell("why", name, "1").out)
    why = shell("why", name, "1").out
    assert "refund" in why
    assert "by operator:night shift" in why
    assert name not in shell("paused").out


def test_paused_shows_the_question_and_nothing_else_that_was_said(stack: LocalStack, shell: Shell, name: str) -> None:
    talk(stack, name, "My secret is SESAME. Where is order A-100?")
    asking(stack, shell, name)
    shown = shell("paused").out
    (line,) = [line for line in shown.splitlines() if line.startswith(name)]
    assert "Pays an order's price back to the customer. — with order_id=B-200" in line
    assert "role:supervisor" in line
    assert " in 6 d 23 h" in line
    assert "SESAME" not in shown
    assert "alice" not in line  # other tests' conversations may be named after her
    assert shell("paused", "--tenant", "nobody").out == "Nothing waits for a person.\n"


def test_an_ask_is_withdrawn_and_the_conversation_goes_on(stack: LocalStack, shell: Shell, name: str) -> None:
    asking(stack, shell, name)
    done = shell("cancel", name, "1")
    assert (done.code, "cancelled" in done.out) == (0, True)
    assert shell("cancel", name, "1").code == 0
    assert talk(stack, name, "thanks").status == 200
    assert wait_for(lambda: not executions(stack, name))
    refused = shell("cancel", name, "9")
    assert (refused.code, "ERR_TURN_NOT_FOUND" in refused.err) == (1, True)


# --- erase --------------------------------------------------------------------------------------------------


def test_an_erasure_says_what_it_removed_and_stops_what_waits(
    stack: LocalStack, process: Process, shell: Inside, name: str
) -> None:
    talk(stack, name, "Where is order A-100?")
    asking(stack, shell, name)
    assert wait_for(lambda: bool(executions(stack, name)))
    unsure = process("erase", name)
    assert (unsure.code, "--yes" in unsure.err) == (2, True)
    done = process("erase", name, "--yes")
    assert (done.code, done.err) == (0, "")
    assert "1 execution stopped" in done.out
    assert wait_for(lambda: not executions(stack, name))
    for again in (shell("export", name), shell("why", name, "1"), shell("cancel", name, "1")):
        assert (again.code, "ERR_SESSION_NOT_FOUND" in again.err) == (1, True)
    assert talk(stack, name, "hello").status == 404
    assert name not in shell("paused").out


def executions(stack: LocalStack, name: str) -> list[Any]:
    """Executions that wait on an ask of the conversation."""
    client = stack.client("stepfunctions")
    machine = stack.deployment()["physical"]["PausedRun"]
    running = client.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]
    return [one for one in running if one["name"].startswith(name)]


# --- tenants, odd ids ---------------------------------------------------------------------------------------


def test_a_tenant_is_named_before_or_behind_the_command(shell: Shell, name: str) -> None:
    value = json.dumps(envelope(user("a"), said("A")))
    assert shell("import", "-", "--id", name, "--tenant", "acme", given=value).code == 0
    assert shell("--tenant", "acme", "export", name).code == 0
    assert shell("export", name, "--tenant", "acme").code == 0
    assert shell("export", name).code == 1


@pytest.mark.parametrize("odd", ["a/b ünï·cødé ", "--dashes", "~tilde", "line\nbreak"])
def test_any_id_can_be_said_as_it_is_printed(shell: Shell, name: str, odd: str) -> None:
    conversation_id = f"{odd}{name}"
    said_as = named(conversation_id)
    assert said_as.startswith("~") is (odd[0] in "-~" or "\n" in odd)
    value = envelope(user("a"), said("A"))
    told = shell("import", "-", "--id", said_as, given=json.dumps(value))
    assert (told.code, said_as in told.out) == (0, True)
    assert same_json(json.loads(shell("export", said_as).out), value)


# --- said wrongly, refused, not there -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["undo"], "invalid choice"),
        (["export"], "ID"),
        (["why", "x", "0"], "whole number from 1"),
        (["why", "x", "one"], "whole number from 1"),
        (["answer", "x", "ask-1-a"], "--decision"),
        (["answer", "x", "ask-1-a", "--decision", "{yes"], "--decision is JSON"),
        (["answer", "x", "ask-1-a", "--decision", "NaN"], "--decision is JSON"),
        (["import", "no/such/file.json"], "cannot read no/such/file.json"),
        (["export", "x", "--out", "/no/such/folder/f.json"], "turnkeep:"),
    ],
)
def test_what_is_said_wrongly_ends_with_two(shell: Shell, stack: LocalStack, arguments: list[str], says: str) -> None:
    if arguments[:2] == ["export", "x"]:
        talk(stack, "x", "hello")
    done = shell(*arguments)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("text", ["", "{", "[object Object]", "NaN", "[" * 100_000])
def test_a_file_without_json_is_said_wrongly(shell: Shell, text: str) -> None:
    done = shell("import", "-", "--id", "x", given=text)
    assert (done.code, done.out, done.err) == (2, "", "turnkeep: - holds no JSON\n")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("[object Object]", "ERR_UNREADABLE_ENVELOPE"),
        ({"format": "conversation-v9", "data": {}}, "ERR_UNKNOWN_FORMAT"),
        ({"format": "conversation-v1", "data": {}}, "ERR_MALFORMED_ENVELOPE"),
        (envelope(user("a")) | {"x": "\ud800"}, "ERR_INVALID_REQUEST"),
    ],
)
def test_an_envelope_that_cannot_be_read_is_refused_by_name(shell: Shell, name: str, value: Any, code: str) -> None:
    done = shell("import", "-", "--id", name, given=json.dumps(value))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"turnkeep: {code}")
    assert done.err.count("\n") == 1
    assert shell("export", name).code == 1


def test_a_stored_item_that_cannot_be_read_is_refused_by_name(stack: LocalStack, shell: Shell, name: str) -> None:
    talk(stack, name, "Where is order A-100?")
    key = {"pk": {"S": f"_/_/{name}"}, "sk": {"S": "TURN#0000000000000001"}}
    stack.client("dynamodb").update_item(
        TableName=shell.environment["TURNKEEP_TABLE"],
        Key=key,
        UpdateExpression="SET #f = :v",
        ExpressionAttributeNames={"#f": "format"},
        ExpressionAttributeValues={":v": {"S": "conversation-v7"}},
    )
    for command in (["export", name], ["why", name, "1"], ["cancel", name, "1"]):
        done = shell(*command)
        assert (done.code, done.out) == (1, "")
        assert "ERR_UNKNOWN_FORMAT" in done.err
        assert name in done.err
        assert "conversation-v7" in done.err


def test_what_is_missing_around_it_is_said_in_one_sentence(shell: Shell) -> None:
    for arguments, environment, code, says in (
        (["paused"], {"TURNKEEP_TABLE": ""}, 2, "--table"),
        (["paused"], {"AWS_REGION": ""}, 2, "--region"),
        (["paused", "--table", "nope"], {}, 1, "there is no table nope"),
        (["paused"], {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": "/nonexistent"}, 1, "credentials"),
        (["paused"], {"TURNKEEP_RETENTION_DAYS": "a week"}, 2, "TURNKEEP_RETENTION_DAYS"),
    ):
        done = shell(*arguments, **environment, AWS_EC2_METADATA_DISABLED="true")
        assert (done.code, done.out) == (code, ""), arguments
        assert says in done.err
        assert done.err.startswith("turnkeep: ")
        assert done.err.count("\n") == 1


def test_it_says_which_release_it_is_and_how_to_use_it(shell: Shell) -> None:
    assert shell("--version").out == f"turnkeep {__version__}\n"
    helped = shell("--help").out
    for command in ("export", "import", "erase", "paused", "answer", "cancel", "why"):
        assert command in helped
        assert shell(command, "--help").code == 0


def test_it_needs_neither_rich_nor_the_other_things_of_development(process: Process, tmp_path: Path) -> None:
    """A module of that name that cannot be imported stands in front of the real one."""
    for module in ("rich", "moto", "pydantic", "aws_lambda_powertools", "boto3"):
        (tmp_path / f"{module}.py").write_text("raise ImportError('not installed')\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), process.environment["PYTHONPATH"]])
    done = process("paused", PYTHONPATH=path)
    assert (done.code, done.err) == (0, "")


def wait_for(condition: Any, seconds: float = 20) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.2)
    return False
