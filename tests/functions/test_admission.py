"""Admission behind the real handlers and DynamoDB's conditions: 429 with the time to wait, and repeats that pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.functions.stage import saved_event

if TYPE_CHECKING:
    import pytest

    from tests.functions.stage import Stage


def message(conversation: str, key: str | None = None) -> dict[str, Any]:
    event = saved_event("turn-message")
    event["pathParameters"] = {"id": conversation}
    event["rawPath"] = f"/conversations/{conversation}/turns"
    if key is not None:
        event["headers"]["idempotency-key"] = key
    return event


def test_one_turn_too_many(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNKEEP_TURNS_PER_HOUR", "2")
    first = stage.call("turn", message("c-1", "k-1"))
    assert (first.status, stage.call("turn", message("c-2")).status) == (200, 200)
    before = stage.items()
    for event in (message("c-2"), message("c-3", "k-2")):
        refused = stage.call("turn", event)
        assert (refused.status, refused.code) == (429, "ERR_ADMISSION_REFUSED")
        assert 3_500 < int(refused.headers["retry-after"]) <= 3_660
    assert stage.call("turn", message("c-1", "k-1")).body == first.body
    assert stage.items() == before
    assert stage.call("read", saved_event("read-conversations")).status == 200


def test_an_empty_conversation_is_no_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNKEEP_TURNS_PER_HOUR", "1")
    for _ in range(3):
        assert stage.call("turn", saved_event("conversation-create")).status == 201
    with_message = saved_event("conversation-create-with-message")
    assert stage.call("turn", with_message).status == 200
    with_message["headers"]["idempotency-key"] = "another"
    assert stage.call("turn", with_message).code == "ERR_ADMISSION_REFUSED"


def test_the_log_counts_a_refusal_and_names_nobody(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURNKEEP_TURNS_PER_HOUR", "1")
    stage.call("turn", message("c-1"))
    capsys.readouterr()
    stage.call("turn", message("c-2"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["code"] for line in lines if line.get("message") == "request"] == ["ERR_ADMISSION_REFUSED"]
    assert [line["AdmissionsRefused"] for line in lines if "_aws" in line] == [[1.0]]
