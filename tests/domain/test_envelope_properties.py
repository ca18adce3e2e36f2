"""The readers over any JSON: the same object or a named refusal, the first fault in order, no word of content."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.domain.json_strategies import JSON, STORED, conversation, paused_run
from turnkeep import envelope as reading
from turnkeep.errors import (
    EnvelopeError,
    MalformedEnvelopeError,
    UnknownEnvelopeFormatError,
    UnreadableEnvelopeError,
    WrongEnvelopeReaderError,
)
from turnkeep.json_values import ABSENT

Fault = Callable[[dict[str, Any]], None]


def setting(key: str, value: Any) -> Fault:
    return lambda data: data.__setitem__(key, value)


def dropping(key: str) -> Fault:
    return lambda data: data.pop(key) and None


# In CONTRACT.md's order; any set of them is reported by its first.
CONVERSATION_FAULTS: list[tuple[str, list[Fault]]] = [
    (
        "conversation-unsupported-version",
        [dropping("version"), *(setting("version", bad) for bad in ("1", True, 2, None, [1]))],
    ),
    (
        "conversation-missing-run-id-or-history",
        [
            dropping("runId"),
            setting("runId", None),
            setting("runId", 7),
            dropping("history"),
            setting("history", {"0": {}}),
        ],
    ),
    (
        "conversation-missing-last-completed-iteration",
        [
            dropping("lastCompletedIteration"),
            setting("lastCompletedIteration", True),
            setting("lastCompletedIteration", "1"),
        ],
    ),
    (
        "conversation-missing-original-input",
        [
            dropping("originalInput"),
            setting("originalInput", "hello"),
            setting("originalInput", {}),
            setting("originalInput", {"message": None}),
            setting("originalInput", ["message"]),
        ],
    ),
    (
        "conversation-bad-skill-cursor",
        [setting("skillCursor", None), setting("skillCursor", 1), setting("skillCursor", [])],
    ),
    (
        "history-entry-not-a-message",
        [setting("history", [{"role": "user", "content": ""}, None]), setting("history", [7])],
    ),
]
PAUSED_FAULTS: list[tuple[str, list[Fault]]] = [
    ("paused-missing-checkpoint", [dropping("checkpoint"), setting("checkpoint", None), setting("checkpoint", "cp")]),
    (
        "paused-missing-stage-or-state",
        [
            lambda data: data["checkpoint"].pop("pausedStageId") and None,
            lambda data: data["checkpoint"].update(pausedStageId=3),
            lambda data: data["checkpoint"].update(sharedState=None),
            lambda data: data["checkpoint"].update(sharedState=0),
            setting("checkpoint", []),
        ],
    ),
    (
        "paused-missing-subflow-path",
        [
            lambda data: data["checkpoint"].pop("subflowPath", None) and None,
            lambda data: data["checkpoint"].update(subflowPath={}),
        ],
    ),
    ("paused-missing-pending", [dropping("pending"), setting("pending", None), setting("pending", "ask")]),
    ("conversation-not-an-object", [dropping("conversation"), setting("conversation", None)]),
]


def broken(
    draw: st.DrawFn, sound: dict[str, Any], faults: list[tuple[str, list[Fault]]]
) -> tuple[dict[str, Any], str | None]:
    """A sound object with some faults put in, the last demand's first, and the kind to be reported."""
    chosen = sorted(draw(st.sets(st.integers(0, len(faults) - 1))), reverse=True)
    for index in chosen:
        draw(st.sampled_from(faults[index][1]))(sound)
    return sound, faults[chosen[-1]][0] if chosen else None


@st.composite
def broken_conversations(draw: st.DrawFn) -> tuple[dict[str, Any], str | None]:
    return broken(draw, conversation(), CONVERSATION_FAULTS)


@st.composite
def broken_pauses(draw: st.DrawFn) -> tuple[dict[str, Any], str | None]:
    return broken(draw, paused_run(), PAUSED_FAULTS)


def kind_of(reader: Callable[[], Any]) -> str | None:
    try:
        reader()
    except EnvelopeError as refusal:
        return refusal.kind
    return None


@given(broken_conversations())
def test_the_first_fault_of_a_conversation_is_the_one_reported(case: tuple[dict[str, Any], str | None]) -> None:
    data, kind = case
    stored = {"format": "conversation-v1", "data": data}
    assert kind_of(lambda: reading.read_envelope(stored)) == kind
    assert kind_of(lambda: reading.check_envelope(stored)) == kind
    paused = {"format": "flowchart-v1", "data": paused_run(conversation=data)}
    assert kind_of(lambda: reading.read_paused_run(paused)) == kind


@given(broken_pauses())
def test_the_first_fault_of_a_paused_run_is_the_one_reported(case: tuple[dict[str, Any], str | None]) -> None:
    data, kind = case
    stored = {"format": "flowchart-v1", "data": data}
    assert kind_of(lambda: reading.read_paused_run(stored)) == kind
    assert kind_of(lambda: reading.check_envelope(stored)) == kind


@pytest.mark.parametrize("data", [ABSENT, None, 7, "x", True])
def test_what_is_no_object_is_said_to_be_none(data: Any) -> None:
    for form, kind in (("conversation-v1", "conversation-not-an-object"), ("flowchart-v1", "paused-not-an-object")):
        stored = {"format": form} if data is ABSENT else {"format": form, "data": data}
        assert kind_of(lambda stored=stored: reading.check_envelope(stored)) == kind


@given(STORED | st.just(ABSENT))
@example({"format": "conversation-v1", "data": []})
@example({"format": "flowchart-v1", "data": [], "savedAt": "never"})
@example({"format": ["conversation-v1"]})
def test_checking_returns_the_same_object_or_refuses_by_name(value: Any) -> None:
    try:
        assert reading.check_envelope(value, "s-1") is value
    except UnreadableEnvelopeError as refusal:
        assert not isinstance(value, dict)
        assert (refusal.kind, refusal.conversation_id) == ("unreadable", "s-1")
    except UnknownEnvelopeFormatError as refusal:
        assert value.get("format") not in reading.KNOWN_FORMATS
        assert refusal.known == list(reading.KNOWN_FORMATS)
    except MalformedEnvelopeError as refusal:
        assert refusal.found == value["format"]
        assert refusal.conversation_id == "s-1"


@given(STORED)
def test_a_known_format_has_exactly_one_reader(value: Any) -> None:
    kinds = [kind_of(lambda: reading.read_envelope(value)), kind_of(lambda: reading.read_paused_run(value))]
    verdict = kind_of(lambda: reading.check_envelope(value))
    if isinstance(value, dict) and value.get("format") == "conversation-v1":
        assert kinds == [verdict, "is-conversation"]
    elif isinstance(value, dict) and value.get("format") == "flowchart-v1":
        assert kinds == ["is-paused-run", verdict]
    else:
        assert kinds == [verdict, verdict] and verdict in ("unreadable", "unknown-format")


@given(STORED)
def test_a_conversation_to_continue_is_read_or_refused_by_name(value: Any) -> None:
    try:
        talk = reading.conversation_of(value)
    except WrongEnvelopeReaderError:
        assert value["format"] == "flowchart-v1"
        assert value["data"].get("answered") is None
        return
    except EnvelopeError:
        assert kind_of(lambda: reading.check_envelope(value)) is not None
        return
    assert isinstance(talk["history"], list)


@given(STORED | st.just(ABSENT))
@example({"format": "conversation-v1", "data": {"history": [None, [], {}, {"role": ["user"], "content": "x"}]}})
@example({"format": "flowchart-v1", "data": {"conversation": {"history": {}, "identity": []}}})
def test_the_projections_never_raise(value: Any) -> None:
    for entry in reading.envelope_transcript(value):
        assert set(entry) == {"role", "content"}
        assert entry["role"] in ("user", "assistant") and isinstance(entry["content"], str) and entry["content"]
    owner = reading.envelope_owner(value)
    assert owner is None or (isinstance(owner, str) and owner)


@given(JSON)
def test_a_bare_history_of_anything_has_a_transcript(history: Any) -> None:
    assert isinstance(reading.transcript_of(history), list)


SECRET = "pineapple-4711"


def talk_full_of_secrets() -> dict[str, Any]:
    said = {"role": "user", "content": SECRET, "toolCalls": [{"args": {SECRET: SECRET}}]}
    identity = {"principal": SECRET, "tenant": SECRET}
    return conversation(history=[said, said], originalInput={"message": SECRET}, identity=identity, odd=SECRET)


@given(st.data())
def test_no_refusal_repeats_what_somebody_said(data: st.DataObject) -> None:
    talk = talk_full_of_secrets()
    pause = paused_run(conversation=talk, pending={"question": SECRET, "pauseData": {SECRET: SECRET}})
    for sound, faults in ((talk, CONVERSATION_FAULTS), (pause, PAUSED_FAULTS)):
        for _, ways in reversed(faults):  # a fault in a part comes before the loss of the part
            if data.draw(st.booleans()):
                data.draw(st.sampled_from(ways))(sound)
    shapes = [talk, pause, [talk], SECRET, json.dumps(talk), {SECRET: talk}]
    shapes += [{"format": form, "data": inner} for form in ("conversation-v1", "flowchart-v1") for inner in shapes]
    shapes += [{"format": {SECRET: talk}}, {"format": [SECRET]}, {"data": talk}]
    for value in shapes:
        for read in (reading.read_envelope, reading.read_paused_run, reading.check_envelope, reading.conversation_of):
            try:
                read(value, "s-1")
            except EnvelopeError as refusal:
                assert SECRET not in str(refusal) + repr(refusal) + json.dumps(refusal.facts())
