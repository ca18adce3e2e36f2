"""The stack that `make load` drives, without Locust: acts are in the book, times in the meter, and all is read back."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from load.audit import audit
from load.journal import Message, Reply, read_lines
from load.kills import Killer
from load.latency import rows_of
from load.stack import RunFolder, make_stack
from load.stored import read_stored
from local.demo import request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.stack import LocalStack

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def driven(folder: RunFolder) -> Iterator[LocalStack]:
    with make_stack(folder) as stack:
        yield stack


def say(stack: LocalStack, conversation: str, token: str, words: str, key: str) -> Message:
    sent = {"authorization": f"Bearer {stack.token('ann')}", "content-type": "application/json", "idempotency-key": key}
    path = f"{stack.api_url}/conversations/{conversation}/turns"
    reply = request(path, "POST", {"message": f"{token} {words}"}, sent)
    code = reply.body.get("error", {}).get("code", "")
    told = Reply(reply.status, code, reply.body.get("turn", 0), reply.body.get("status", ""), reply.body.get("output"))
    fate = told.turn_status if told.is_accepted else f"refused:{code}"
    return Message(token, conversation, "plain", acts="act" in words or "pay" in words, replies=[told], fate=fate)


def read(stack: LocalStack, folder: RunFolder, *told: str) -> Any:
    return read_stored(stack, [("ann", stack.token("ann"))], told, folder.book)


def test_turns_of_every_mode_act_once_and_are_read_back(driven: LocalStack, folder: RunFolder) -> None:
    messages = [say(driven, f"load-{mode}-1", f"m-{mode}", "look act", "k-1") for mode in ("exit", "async", "sync")]
    assert [message.fate for message in messages] == ["complete"] * 3
    messages.append(say(driven, "load-exit-1", "m-look", "look", "k-2"))
    messages.append(say(driven, "load-exit-1", "m-other", "act", "k-2"))  # its key was used with other words
    assert messages[-1].fate == "refused:ERR_IDEMPOTENCY_MISMATCH"
    stored = read(driven, folder, "load-exit-1", "load-async-1", "load-sync-1")
    assert [(turn.conversation, turn.number, turn.token, turn.status) for turn in stored.turns] == [
        ("load-async-1", 1, "m-async", "complete"),
        ("load-exit-1", 1, "m-exit", "complete"),
        ("load-exit-1", 2, "m-look", "complete"),
        ("load-sync-1", 1, "m-sync", "complete"),
    ]
    assert dict(stored.acted) == {"m-exit": 1, "m-async": 1, "m-sync": 1}
    assert dict(stored.said) == {"m-exit": 1, "m-look": 1, "m-async": 1, "m-sync": 1}
    assert audit(messages, [], stored).findings == []

    # The same run, had the ledger forgotten or the world been changed again.
    lost = audit([*messages, Message("m-gone", "load-exit-9", "plain", replies=[Reply(202, turn=1)])], [], stored)
    assert [finding.what for finding in lost.findings] == ["it was taken as turn 1, and no turn holds it"]
    with folder.book.open("ab") as book:
        book.write(json.dumps({"token": "m-sync"}).encode() + b"\n")
    doubled = audit(messages, [], read(driven, folder))
    assert [str(finding) for finding in doubled.findings] == [
        "doubled: it acted 2 times · m-sync · load-sync-1 turn 1",
    ]
    assert read(driven, folder, "load-exit-none").unread == {"load-exit-none": "in no listing"}


def test_the_meter_knows_what_was_turnkeeps_own_part(driven: LocalStack, folder: RunFolder) -> None:
    driven.calls.reset()
    before = len(read_lines(folder.meter))
    say(driven, "load-exit-2", "m-metered", "look act", "k-1")
    (line,) = read_lines(folder.meter)[before:]
    assert line["own_us"] + line["aws_us"] + line["agent_us"] >= line["wall_us"] - 1_000
    assert line["own_us"] <= line["wall_us"] - max(line["aws_us"], line["agent_us"])
    # Three replies of the model, and an act: at least what they sleep.
    assert line["agent_us"] >= 3 * 50_000 + 50_000
    assert 0 < line["first_us"] < line["wall_us"]
    log = [entry for entry in read_lines(folder.log) if entry["request_id"] == line["invocation"]]
    (row,) = rows_of([line], log, driven.calls.list())
    assert (row.name, row.count, row.own_ms[0]) == ("a turn, its caller waiting", 1, line["own_us"] / 1000)
    assert row.moto_ms > 0


def test_whoever_is_to_die_is_killed_and_reads_are_spared(driven: LocalStack, folder: RunFolder) -> None:
    killer = Killer(driven, 1.0, seed=1)
    killer.start()
    until_s = time.monotonic() + 60
    number = 0
    while not killer.killed:
        assert time.monotonic() < until_s, "nobody died"
        number += 1
        say(driven, f"load-exit-dying-{number}", f"m-dying-{number}", "look act", "k-1")
    killer.stop()
    assert say(driven, "load-exit-alive", "m-alive", "look act", "k-1").fate == "complete"
    killer.close()
    assert set(killer.killed.values()) <= {"TurnFunction", "ReconcileFunction"}
    died = {entry["request_id"] for entry in read_lines(folder.log) if "signal: killed" in entry["line"]}
    assert died == set(killer.killed)
    numbers = [call["number"] for call in killer.calls]
    assert numbers == list(range(1, len(numbers) + 1))
