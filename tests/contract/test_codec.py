"""JSON in the ledger: what goes in comes out, to the last digit, or is refused before anything is written."""

from __future__ import annotations

import math
import random
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from turnkeep.errors import UnstorableValueError
from turnkeep.ledger.codec import (
    DICTIONARY_1,
    MAX_DEPTH,
    from_text,
    pack,
    pack_bytes,
    pack_text,
    size_of,
    to_text,
    unpack,
    unpack_text,
)
from turnkeep.ledger.items import changes, turn_item
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.parsing import turn_record
from turnkeep.ledger.records import Ask, Decision, PastAsk, Status, TurnRecord
from turnkeep.ledger.segments import PART_BYTES, batch_items, read_batches

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers() | st.integers(-(2**70), 2**70) | st.sampled_from([2**63 - 1, -(2**63), 10**400, 2**53 + 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5))
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=5)
KEY = ConversationKey("c-1", "acme")


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit and type: 1 is not 1.0 and not True, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(VALUES)
@example(-0.0)
@example([0.1, 1e308, 5e-324, -0.0, 1.0, 1, True])
@example("\u0000")
@example({"": ""})
@example("\ufeff\ud7ff\ue000\uffff\U0010ffff")
def test_every_value_comes_out_as_it_went_in(value: Any) -> None:
    assert same(unpack(pack(value)), value)


@given(VALUES, TEXTS)
def test_also_behind_another_text(value: Any, behind: str) -> None:
    text = to_text(value)
    assert same(unpack(pack_text(text, behind=behind), behind=behind), value)


@given(TEXTS)
@example("a" * 5_000)
@example("")
def test_it_is_deflated_only_where_that_is_smaller(text: str) -> None:
    packed = pack_text(text)
    assert size_of(packed) <= len(text.encode())
    assert unpack_text(packed) == text
    assert isinstance(packed, str) == (size_of(packed) == len(text.encode()))
    assert unpack_text(pack_bytes(text)) == text


def test_an_answer_that_repeats_its_question_costs_little() -> None:
    rand = random.Random(1)
    question = "".join(chr(rand.randrange(0x21, 0x7E)) for _ in range(1_000))
    assert size_of(pack_text(question, behind=question)) < 50
    assert size_of(pack_text(question)) > 700


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "value"),
        ({"a": [1, float("inf")]}, "value.a[1]"),
        ({"a": {"b": -math.inf}}, "value.a.b"),
        ({1: 2}, "value"),
        ({"a": (1, 2)}, "value.a"),
        ({"a": {1, 2}}, "value.a"),
        (["x", b"bytes"], "value[1]"),
        ({"a": 10**5_000}, "value.a"),
        ({"a": object()}, "value.a"),
        ({"a": "\ud800"}, "value.a"),
        ({"a": ["ok", "x\udfffy"]}, "value.a[1]"),
        ({"a": {"\ud800": 1}}, "value.a"),
    ],
    ids=[f"case {number}" for number in range(12)],
)
def test_what_json_cannot_keep_is_refused_with_its_place(value: Any, path: str) -> None:
    with pytest.raises(UnstorableValueError) as refused:
        to_text(value)
    assert refused.value.path == path


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_deep_values_are_kept_to_a_bound_and_refused_beyond_it() -> None:
    assert same(unpack(pack(nested(MAX_DEPTH))), nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(UnstorableValueError):
            to_text(nested(depth))
    with pytest.raises(ValueError, match="nested"):
        from_text("[" * 100_000 + "]" * 100_000)


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused_and_never_something(data: bytes) -> None:
    try:
        text = unpack_text(data)
    except ValueError:
        return
    assert data[:1] in (b"\x00", b"\x01"), "ours"
    assert isinstance(text, str)


@given(TEXTS.filter(lambda text: len(text) > 60), st.integers(1, 40))
def test_bytes_that_were_cut_or_extended_are_refused(text: str, cut: int) -> None:
    packed = pack_text(text * 3)
    if isinstance(packed, str):
        return
    for damaged in (packed[:-cut], packed + b"x"):
        with pytest.raises(ValueError):
            unpack(damaged)


@pytest.mark.parametrize("stored", [5, None, 1.5, b"\x02newer", b"", zlib.compress(b"[1]")], ids=repr)
def test_what_was_not_written_here_is_refused(stored: Any) -> None:
    with pytest.raises(ValueError):
        unpack_text(stored)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "{", "", "1 2", "'a'"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_the_dictionary_is_the_one_that_stored_items_were_made_with() -> None:
    """Whoever changes it makes everything that was ever stored unreadable: another one gets another mark."""
    assert (len(DICTIONARY_1), zlib.crc32(DICTIONARY_1)) == (897, 1777664047)


# --- whole records ----------------------------------------------------------------------------------------------

MESSAGES = st.builds(lambda role, content, more: {"role": role, "content": content, **more}, TEXTS, TEXTS, OBJECTS)
SMALL = st.integers(0, 2**40)


@st.composite
def records(draw: st.DrawFn) -> TurnRecord:
    """Any record that a use case could make, and many that none does."""
    status = draw(st.sampled_from([status for status in Status if status is not Status.SKIPPED]))
    ask = None
    if draw(st.booleans()):
        ask = Ask(draw(TEXTS), draw(TEXTS), draw(VALUES), draw(SMALL), draw(SMALL), whole=draw(st.booleans()))
    decision = None
    if draw(st.booleans()):
        decision = Decision(draw(TEXTS), draw(VALUES), draw(st.none() | TEXTS), draw(SMALL), draw(TEXTS))
    return TurnRecord(
        key=KEY,
        turn=draw(st.integers(1, 10**15)),
        status=status,
        epoch=draw(TEXTS),
        attempt=draw(st.integers(1, 99)),
        run_id=draw(st.just("") | TEXTS.filter(bool) | st.just("run-1700000000000-x")),
        lease_until_ms=draw(SMALL),
        principal=draw(st.none() | TEXTS),
        previous=draw(SMALL),
        started_at_ms=draw(SMALL | st.just(1_700_000_000_000)),
        saved_at_ms=draw(SMALL),
        base_count=draw(SMALL),
        shown_count=draw(st.integers(0, 5)),
        user=draw(MESSAGES),
        messages=tuple(draw(st.lists(MESSAGES, max_size=3))),
        segments=draw(st.integers(0, 3)),
        adopted=tuple(draw(st.lists(st.tuples(SMALL, SMALL), max_size=2))),
        checkpoint_segment=draw(st.none() | st.tuples(SMALL, SMALL)),
        usage=draw(st.dictionaries(TEXTS, SMALL, max_size=2)),
        evidence=draw(OBJECTS),
        agent_id=draw(st.none() | TEXTS.filter(bool)),
        agent_version=draw(st.none() | TEXTS.filter(bool)),
        request=draw(st.none() | st.just("ab" * 32) | TEXTS),
        digest=draw(st.none() | st.just("cd" * 32) | TEXTS),
        claim_id=draw(st.none() | TEXTS),
        iteration=draw(st.integers(0, 99)),
        ask=ask,
        past_asks=tuple(draw(st.lists(st.builds(PastAsk, TEXTS, TEXTS, SMALL, TEXTS, TEXTS), max_size=2))),
        decision=decision,
        task_token=draw(st.none() | TEXTS),
        start_number=draw(st.integers(1, 5)),
        execution_ask=draw(st.none() | TEXTS),
        due_at_ms=draw(st.none() | SMALL),
        error=draw(st.none() | OBJECTS.filter(bool)),
        answered_mark=draw(st.none() | OBJECTS.filter(bool)),
        delete_after_s=draw(st.none() | SMALL),
    )


def completed(record: TurnRecord) -> TurnRecord:
    """A mark without a decision is read with its turn's: that is how it is kept once only."""
    mark, decision = record.answered_mark, record.decision
    if mark is None or decision is None or "decision" in mark:
        return record
    return replace(record, answered_mark={"decision": decision.value, **mark})


@given(records())
@settings(max_examples=60)
def test_every_record_comes_out_of_its_item_as_it_went_in(record: TurnRecord) -> None:
    assert turn_record(turn_item(record), KEY) == completed(record)


@given(records(), records())
@settings(max_examples=60)
def test_the_changes_between_two_records_make_one_of_the_other(before: TurnRecord, after: TurnRecord) -> None:
    after = replace(after, turn=before.turn)
    item = turn_item(before)
    to_set, to_remove = changes(before, after)
    assert not set(to_set) & set(to_remove)
    item = {name: value for name, value in {**item, **to_set}.items() if name not in to_remove}
    assert turn_record(item, KEY) == completed(after)
    assert changes(after, after) == ({}, ())


# --- large and odd things ---------------------------------------------------------------------------------------


def noise(size: int) -> str:
    """Text that does not get smaller."""
    rand = random.Random(size)
    return "".join(chr(rand.randrange(0x21, 0x7E)) for _ in range(size))


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "tool", "content": noise(5_000_000), "toolCallId": "c1"}],
        [{"role": "tool", "content": "\u0000" * 5_000_000, "toolCallId": "c1"}],
        [{"role": "assistant", "content": f"{number}: {noise(500)}"} for number in range(300)],
        [{"role": "user", "content": noise(450_000)}],
        [{"role": "assistant", "content": "\U0001f980" * 200_000}],
        [],
    ],
    ids=["5 MB result", "5 MB of NUL", "300 messages", "450 KB message", "four bytes a sign", "nothing"],
)
def test_a_batch_of_any_size_is_split_and_read_back_whole(value: Any) -> None:
    record = TurnRecord(key=KEY, turn=7, status=Status.RUNNING, epoch="e", attempt=3)
    items = batch_items(record, 5, "messages", 1, value)
    for item in items:
        data = item["data"]
        assert size_of(data) <= PART_BYTES  # type: ignore[arg-type]
    before = [part for at in range(1, 5) for part in batch_items(record, at, "messages", 0, [])]
    read = read_batches([*reversed(items), *before], KEY, "e", 3, 4 + len(items), now_ms=0)
    assert same(read[-1].value, value)
    assert (read[-1].first, read[-1].last) == (5, 4 + len(items))
