"""Writers beyond the reference's cases: all messages count, writing again is harmless, and bounds hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.memory_bench import ADA, all_pages, an_entry
from turnkeep.clock import ManualClock
from turnkeep.errors import UnstorableValueError
from turnkeep.memory.beats import beats_from_reply, checked_beat, default_beats
from turnkeep.memory.entries import Place, is_expired, place_of
from turnkeep.memory.in_memory import InMemoryMemoryStore
from turnkeep.memory.snapshots import snapshot_turn, snapshot_value
from turnkeep.memory.writers import Keeping, TurnScope, message_entries, write_beats, write_messages, write_snapshot
from turnkeep.turns import resolve_turn_number

TOOL_TURN: list[dict[str, Any]] = [
    {"role": "user", "content": "Which bed has rain?"},
    {"role": "assistant", "content": "", "toolCalls": [{"id": "c", "name": "forecast", "args": {}}]},
    {"role": "tool", "content": "north: 4 mm", "toolCallId": "c", "toolName": "forecast"},
    {"role": "assistant", "content": "The north bed."},
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> InMemoryMemoryStore:
    return InMemoryMemoryStore(clock)


def test_indexes_count_all_messages_of_a_turn_and_beats_point_at_them(store: InMemoryMemoryStore) -> None:
    scope = TurnScope(ADA, 4, TOOL_TURN)
    assert [entry["id"] for entry in write_messages(store, scope)] == [f"msg-4-{index}" for index in range(4)]
    beats = [entry["value"] for entry in write_beats(store, scope)]
    assert [beat["refs"] for beat in beats] == [["msg-4-0"], ["msg-4-2"], ["msg-4-3"]]
    for beat in beats:
        entry = store.get(ADA, beat["refs"][0])
        assert entry is not None
        assert beat["summary"].endswith(entry["value"]["content"])


def test_a_snapshot_holds_the_answer_and_not_the_call(store: InMemoryMemoryStore) -> None:
    entry = write_snapshot(store, TurnScope(ADA, 4, TOOL_TURN))
    assert entry is not None
    assert (entry["value"]["query"], entry["value"]["finalContent"]) == ("Which bed has rain?", "The north bed.")
    assert "embedding" not in entry
    assert "embeddingModel" not in entry


def test_writing_a_turn_again_stores_nothing_new(store: InMemoryMemoryStore) -> None:
    scope = TurnScope(ADA, 4, TOOL_TURN)
    for _ in range(2):
        write_messages(store, scope)
        write_beats(store, scope)
        write_snapshot(store, scope)
    assert len(all_pages(store)) == 4 + 3 + 1


def test_the_next_turn_is_resolved_past_what_a_writer_stored(store: InMemoryMemoryStore) -> None:
    assert resolve_turn_number([store], ADA, 1) == 1
    write_messages(store, TurnScope(ADA, 7, TOOL_TURN))
    assert resolve_turn_number([store], ADA, 1) == 8


def test_the_next_snapshot_is_found_over_many_pages_and_past_other_kinds(store: InMemoryMemoryStore) -> None:
    store.put_many(ADA, [an_entry(f"snap-{number}", updatedAt=number) for number in range(1, 1203)])
    store.put_many(ADA, [an_entry("msg-9999-0"), an_entry("beat-9999-0"), an_entry("snap-" + "9" * 400)])
    assert snapshot_turn(store, ADA) == 1203
    assert snapshot_turn(store, ADA, 5000) == 5000
    assert snapshot_turn(store, ADA, True) == 1203


@pytest.mark.parametrize("write", [write_messages, write_beats, write_snapshot])
@pytest.mark.parametrize("ttl_ms", [0, 1, None])
def test_a_lifetime_of_zero_expires_now_for_every_kind(
    store: InMemoryMemoryStore, clock: ManualClock, write: Any, ttl_ms: int | None
) -> None:
    write(store, TurnScope(ADA, 1, TOOL_TURN), clock=clock, keeping=Keeping(ttl_ms=ttl_ms, tier="warm"))
    live = store.list(ADA, tiers=["warm"]).entries
    assert (live == []) == (ttl_ms == 0)
    clock.advance_ms(1)
    assert (store.list(ADA).entries == []) == (ttl_ms is not None)


@pytest.mark.parametrize("messages", [[], [{"role": "assistant", "content": "hi"}], [{"role": "user", "content": ""}]])
def test_a_turn_that_asked_nothing_leaves_no_snapshot_and_embeds_nothing(
    store: InMemoryMemoryStore, messages: list[Any]
) -> None:
    def embed(text: str) -> list[float]:
        raise AssertionError("nothing to embed")

    assert write_snapshot(store, TurnScope(ADA, 1, messages), embed=embed) is None
    assert store.list(ADA).entries == []


def test_embeddings_may_be_fewer_or_more_than_messages() -> None:
    two = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    for embeddings, kept in (([], [False, False]), ([[1]], [True, False]), ([[1], [2], [3]], [True, True])):
        entries = message_entries(TurnScope(ADA, 1, two), now_ms=1, embeddings=embeddings)
        assert ["embedding" in entry for entry in entries] == kept


def test_an_extractor_is_asked_once_and_its_fault_is_not_hidden(store: InMemoryMemoryStore) -> None:
    asked: list[int] = []

    def extract(turn: int, messages: Any) -> list[dict[str, Any]]:
        asked.append(turn)
        if not messages[0]["content"]:
            raise RuntimeError("the model is away")
        return [{"summary": "s", "importance": 7, "refs": ("msg-2-0", 3), "category": "", "more": 1}]

    (entry,) = write_beats(store, TurnScope(ADA, 2, TOOL_TURN), extract=extract)
    assert entry["value"] == {"summary": "s", "importance": 1, "refs": ["msg-2-0"]}
    assert write_beats(store, TurnScope(ADA, 3), extract=extract) == []
    with pytest.raises(RuntimeError):
        write_beats(store, TurnScope(ADA, 3, [{"role": "user", "content": ""}]), extract=extract)
    assert asked == [2, 3]


# --- beats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("importance", "stored"),
    [(0.4, 0.4), (-1, 0), (1.5, 1), (1, 1), (True, 0.5), (None, 0.5), ("1", 0.5), (math.nan, 0.5), (math.inf, 0.5)],
)
def test_importance_is_clamped_and_what_is_no_number_is_neutral(importance: Any, stored: float) -> None:
    assert checked_beat({"summary": "s", "importance": importance})["importance"] == stored


@pytest.mark.parametrize(
    "reply",
    ["", "nothing", "[]", "{}", '{"beats": {}}', '{"beats": [1, {}, {"summary": 2}]}', None, 3, [], "[" * 100_000],
)
def test_a_reply_that_does_not_parse_gives_no_beats(reply: Any) -> None:
    assert beats_from_reply(reply) == []


def test_a_reply_that_parses_gives_its_beats() -> None:
    beat = {"summary": "likes tea", "importance": 0.8, "refs": ["msg-1-0"], "category": "taste"}
    assert (
        beats_from_reply(json.dumps({"beats": [beat, {"summary": ""}]}))
        == beats_from_reply({"beats": [beat]})
        == [beat]
    )


@pytest.mark.parametrize(
    ("content", "summary"),
    [
        ("\ufeff\u3000hi\u00a0\n", "User said: hi"),
        (
            [{"type": "text", "text": " a "}, "text", {"type": "text"}, {"type": "text", "text": "b "}],
            "User said: a  b",
        ),
        ("\u001ehi", "User said: \u001ehi"),
    ],
)
def test_text_is_trimmed_as_the_reference_trims(content: Any, summary: str) -> None:
    assert default_beats(1, [{"role": "user", "content": content}])[0]["summary"] == summary


@pytest.mark.parametrize("content", [None, 3, {}, [], [{"type": "image"}], " \t\u2003"])
def test_a_message_without_text_makes_no_beat(content: Any) -> None:
    assert default_beats(1, [{"role": "user", "content": content}, {"role": "tool"}]) == []


def test_a_role_of_a_newer_writer_is_not_given_to_anybody() -> None:
    (beat,) = default_beats(1, [{"role": "developer", "content": "hi"}])
    assert beat == {"summary": "Noted: hi", "importance": 0.5, "refs": ["msg-1-0"]}


# --- snapshots ----------------------------------------------------------------------------------------------


def evidence_value(evidence: dict[str, Any]) -> dict[str, Any]:
    value = snapshot_value([{"role": "user", "content": "q"}], evidence)
    assert value is not None
    return value


def test_long_evidence_is_cut() -> None:
    call = {"name": "t", "args": {"a": "x" * 3000}, "resultPreview": "é" * 201, "errored": 1}
    decision = {"stageId": "s", "chosen": "c", "evidence": ["y" * 3000], "unknown": 1}
    value = evidence_value({"toolCalls": [call], "decisions": [decision]})
    (kept,), (decided,) = value["toolCalls"], value["decisions"]
    assert kept["resultPreview"] == "é" * 200 + "…"
    assert kept["errored"] is True
    assert kept["args"] == {"__truncated": '{"a":"' + "x" * 1994 + "…"}
    assert decided == {"stageId": "s", "chosen": "c", "evidence": {"__truncated": '["' + "y" * 1998 + "…"}}


def test_evidence_at_its_bounds_is_whole() -> None:
    args = {"a": "x" * (2000 - len('{"a":""}'))}
    (kept,) = evidence_value({"toolCalls": [{"name": "t", "args": args, "resultPreview": "é" * 200}]})["toolCalls"]
    assert kept == {"name": "t", "args": args, "resultPreview": "é" * 200, "errored": False}


def test_evidence_of_other_kinds_counts_nothing() -> None:
    value = evidence_value({"iterations": True, "durationMs": "9", "tokenUsage": None, "decisions": None})
    assert (value["iterations"], value["durationMs"], value["tokenUsage"]) == (0, 0, {"input": 0, "output": 0})
    assert (value["decisions"], value["toolCalls"]) == ([], [])
    assert "narrative" not in value
    assert evidence_value({"narrative": "n", "evalScore": 0})["evalScore"] == 0


def test_evidence_that_is_no_json_is_refused_by_its_path() -> None:
    with pytest.raises(UnstorableValueError) as caught:
        evidence_value({"toolCalls": [{"name": "t", "args": {"when": {1}}}]})
    assert caught.value.path == "toolCalls.args.when"
    result = {"rows": [1]}
    (kept,) = evidence_value({"toolCalls": [{"name": "t", "resultPreview": result}]})["toolCalls"]
    assert kept["resultPreview"] == '{"rows":[1]}'


def test_structured_content_is_put_together() -> None:
    parts = [{"type": "text", "text": "which"}, {"type": "text", "text": "bed"}]
    value = snapshot_value([{"role": "user", "content": parts}, {"role": "assistant", "content": parts}])
    assert value is not None
    assert (value["query"], value["finalContent"]) == ("which bed", "which bed")


# --- ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry_id", "place"),
    [
        ("msg-3-0", Place("msg", 3, 0)),
        ("beat-12-34", Place("beat", 12, 34)),
        ("snap-007", Place("snap", 7)),
        ("snap-0", Place("snap", 0)),
        ("snap-" + "0" * 50 + "5", Place("snap", 5)),
        *(
            (other, None)
            for other in ("snap-1-0", "msg-3", "msg-3-0 ", "msg-3-0\n", "msg-٣-0", "Msg-3-0", "snap-", "", 7)
        ),
        ("snap-" + "9" * 5000, None),
    ],
)
def test_an_id_is_read_exactly(entry_id: Any, place: Place | None) -> None:
    assert place_of(entry_id) == place


@given(turn=st.integers(1, 10**16 - 1), index=st.integers(0, 10**6))
def test_ids_are_read_back(turn: int, index: int) -> None:
    (entry,) = message_entries(TurnScope(ADA, turn, [{"role": "user", "content": "x"}]), now_ms=5)
    assert place_of(entry["id"]) == Place("msg", turn, 0)
    assert place_of(f"beat-{turn}-{index}") == Place("beat", turn, index)
    assert not is_expired(entry, 10**15)
