"""Envelopes: the golden cases of all five readers, every fixture, packing, the answered mark (CONTRACT.md 4, 17)."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.domain.golden_cases import GOLDEN, case_id, fixture, load, scored, untag
from tests.domain.json_strategies import conversation, paused_run
from turnkeep import envelope as reading
from turnkeep.errors import EnvelopeError, MalformedEnvelopeError, TurnkeepError, WrongEnvelopeReaderError
from turnkeep.json_values import ABSENT
from turnkeep.preview import preview

CASES = scored("envelopes")
SESSION = load("envelopes")["checkSessionId"]
READERS = {
    "readEnvelope": reading.read_envelope,
    "readPausedRun": reading.read_paused_run,
    "checkEnvelope": lambda value: reading.check_envelope(value, SESSION),
    "envelopeOwner": reading.envelope_owner,
    "envelopeTranscript": reading.envelope_transcript,
}
PYTHON_NAMES = {"readEnvelope": "read_envelope", "readPausedRun": "read_paused_run"}
CODES = {"unreadable": "ERR_UNREADABLE_ENVELOPE", "unknown-format": "ERR_UNKNOWN_FORMAT"}
CODES |= {"is-paused-run": None, "is-conversation": None}

PAIRS, LEFT_OUT = [], {}
for _case in CASES.cases:
    for _function in _case["expect"]:
        if f"unintended-in-reference:{_function}" in _case.get("flags", []):
            LEFT_OUT[_case["id"]] = _function
        else:
            PAIRS.append(pytest.param(_case, _function, id=f"{case_id(_case)} {_function}"))


def test_only_the_reference_s_crash_on_null_entries_is_left_out() -> None:
    """The preview flags leave nothing out: turnkeep's previews count and cut as the reference's do."""
    assert CASES.left_out == {}
    assert dict.fromkeys(["env-079", "env-089", "env-136"], "envelopeTranscript") == LEFT_OUT


@pytest.mark.parametrize(("case", "function"), PAIRS)
def test_golden_case(case: dict[str, Any], function: str) -> None:
    value = untag(case["input"])
    before = copy.deepcopy(value)
    expect = case["expect"][function]
    if "returns" in expect:
        returned = READERS[function](value)
        if expect["returns"] == "input":
            assert returned is value
        elif expect["returns"] == "input.data":
            assert returned is value["data"]
        else:
            expected = untag(expect["returns"])
            assert returned == (None if expected is ABSENT else expected)
    else:
        with pytest.raises(EnvelopeError) as caught:
            READERS[function](value)
        check_refusal(caught.value, expect["raises"], case.get("messageMustNotContain", []))
    assert value == before, "reading changed what was read"


def check_refusal(error: EnvelopeError, raises: dict[str, Any], unsayable: list[str]) -> None:
    assert isinstance(error, TypeError) == raises["isTypeError"]
    assert isinstance(error, TurnkeepError)
    assert (error.kind, error.status) == (raises["kind"], 500)
    assert error.code == CODES.get(error.kind, "ERR_MALFORMED_ENVELOPE")
    if raises["class"] != "TypeError":
        assert (type(error).__name__, error.code) == (raises["class"], raises["code"])
    assert getattr(error, "stored_preview", None) == raises.get("preview")
    assert error.history_index == raises.get("historyIndex")
    if "sessionId" in raises:
        assert error.conversation_id == raises["sessionId"]
    message = str(error)
    assert not [word for word in raises.get("mentions", []) if PYTHON_NAMES.get(word, word) not in message]
    assert not [word for word in unsayable if word in message + repr(error) + json.dumps(error.facts())]


@pytest.mark.parametrize("id_", sorted(LEFT_OUT))
def test_a_null_entry_is_left_out_of_a_transcript(id_: str) -> None:
    case = next(case for case in CASES.cases if case["id"] == id_)
    history = case["input"]["data"]["history"]
    kept = [entry for entry in history if isinstance(entry, dict) and entry.get("content")]
    assert reading.envelope_transcript(case["input"]) == kept


def stored_envelopes(value: Any, path: str) -> list[Any]:
    """Every envelope inside a fixture, wherever it is."""
    if isinstance(value, list):
        return [found for n, item in enumerate(value) for found in stored_envelopes(item, f"{path}[{n}]")]
    if not isinstance(value, dict):
        return []
    if value.get("format") in reading.KNOWN_FORMATS and isinstance(value.get("data"), dict):
        return [pytest.param(value, id=path)]
    return [found for key, item in value.items() for found in stored_envelopes(item, f"{path}.{key}")]


FIXTURES = [
    found
    for file in sorted((GOLDEN / "fixtures").glob("*.json"))
    for found in stored_envelopes(fixture(file.name), file.stem)
]


def test_every_fixture_that_the_index_calls_an_envelope_is_read() -> None:
    indexed = {row["file"] for row in fixture("INDEX.json") if row["format"] in reading.KNOWN_FORMATS}
    read = {f"{found.id}.json" for found in FIXTURES}
    assert indexed
    assert {file for file in indexed if (GOLDEN / "fixtures" / file).exists()} <= read


@pytest.mark.parametrize("stored", FIXTURES)
def test_what_the_reference_wrote_reads_and_survives(stored: dict[str, Any]) -> None:
    text = json.dumps(stored)
    assert reading.check_envelope(stored, "c-1") is stored
    inner = stored["data"]
    if stored["format"] == "flowchart-v1":
        assert reading.read_paused_run(stored) is inner
        assert reading.is_open_pause(stored)
        packed = reading.to_paused_envelope(inner, stored["savedAt"])
        inner = inner["conversation"]
    else:
        packed = reading.to_envelope(inner, stored["savedAt"])
        assert reading.conversation_of(stored) is inner
    assert json.dumps(packed) == text, "packing lost or moved something"
    assert reading.envelope_owner(stored) == inner.get("identity", {}).get("principal")
    said = [m for m in inner["history"] if m["role"] in ("user", "assistant") and m["content"]]
    assert reading.envelope_transcript(stored) == [{"role": m["role"], "content": m["content"]} for m in said]
    assert json.dumps(stored) == text


# --- packing --------------------------------------------------------------------------------------------------


def test_packing_stamps_the_time_and_keeps_the_object() -> None:
    talk, pause = conversation(odd={"kept": [1]}), paused_run()
    assert reading.to_envelope(talk, 5) == {"format": "conversation-v1", "data": talk, "savedAt": 5}
    assert reading.to_envelope(talk, 5)["data"] is talk
    assert reading.to_paused_envelope(pause, 6) == {"format": "flowchart-v1", "data": pause, "savedAt": 6}


def test_what_could_not_be_read_back_is_not_packed() -> None:
    with pytest.raises(MalformedEnvelopeError) as caught:
        reading.to_envelope(conversation(version=2), 5)
    assert caught.value.kind == "conversation-unsupported-version"
    with pytest.raises(MalformedEnvelopeError) as caught:
        reading.to_paused_envelope(paused_run(pending=None), 5)
    assert caught.value.kind == "paused-missing-pending"


# --- the answered mark ----------------------------------------------------------------------------------------


def marked_pause(**facts: Any) -> dict[str, Any]:
    return reading.with_answered(
        paused_run(), decision=None, at_ms=7, run_id="run-2", error_code=None, error_message="It failed.", **facts
    )


def test_an_open_pause_is_refused_as_a_conversation() -> None:
    stored = reading.to_paused_envelope(paused_run(answered=None), 5)
    assert reading.is_open_pause(stored)
    with pytest.raises(WrongEnvelopeReaderError) as caught:
        reading.conversation_of(stored, "c-1")
    assert (caught.value.kind, caught.value.conversation_id) == ("is-paused-run", "c-1")
    assert "read_paused_run" in str(caught.value)


def test_a_marked_pause_is_its_conversation() -> None:
    pause = marked_pause(answered_by="bo")
    assert pause["answered"] == {
        "decision": None,
        "answeredBy": "bo",
        "atMs": 7,
        "runId": "run-2",
        "error": {"code": None, "message": "It failed."},
    }
    stored = reading.to_paused_envelope(pause, 5)
    assert not reading.is_open_pause(stored)
    assert reading.conversation_of(stored) is pause["conversation"]
    assert reading.answered_mark(reading.read_paused_run(stored)) is pause["answered"]


def test_marking_copies_and_an_anonymous_answerer_is_left_out() -> None:
    pause = paused_run()
    marked = reading.with_answered(
        pause, decision=True, at_ms=7, run_id="run-2", error_code="ERR_RUN_FAILED", error_message="It failed."
    )
    assert "answered" not in pause
    assert "answeredBy" not in marked["answered"]
    assert {key: marked[key] for key in pause} == pause


@pytest.mark.parametrize("mark", [False, 0, "", {}, []])
def test_any_mark_that_is_not_null_is_a_mark(mark: Any) -> None:
    stored = reading.to_paused_envelope(paused_run(answered=mark), 5)
    assert reading.conversation_of(stored) is stored["data"]["conversation"]


# --- previews -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ABSENT, "undefined"),
        (True, "boolean true"),
        (42.0, "number 42"),
        (1e21, "number 1e+21"),
        (-0.0, "number 0"),
        (float("nan"), "number NaN"),
        (float("-inf"), "number -Infinity"),
        (2**63, "number 9223372036854775808"),
        (10**5000, "number of 16610 bits"),
        ([], "an array of 0 item(s)"),
        ({}, "an object with no keys"),
        (dict.fromkeys("abcdefghij", 1), "an object with keys: a, b, c, d, e, f, g, h"),
        ("a" * 63 + "🌱", '"' + "a" * 63 + '…" (65 chars)'),
        ("a" * 62 + "🌱", '"' + "a" * 62 + '🌱"'),
        ("\ud800" + "a" * 64, '"\ud800' + "a" * 63 + '…" (65 chars)'),
    ],
    ids=range(15),
)
def test_previews(value: Any, text: str) -> None:
    assert preview(value) == text
