"""Envelopes that were made elsewhere: the reference's own, odd ones, and any that Hypothesis thinks of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.domain.golden_cases import GOLDEN, fixture, load, untag
from tests.domain.json_strategies import conversation, paused_run
from turnkeep.envelope import check_envelope
from turnkeep.errors import EnvelopeError

INDEX: list[dict[str, Any]] = json.loads((GOLDEN / "fixtures" / "INDEX.json").read_text(encoding="utf-8"))
FIXTURES = [one["file"] for one in INDEX if one["format"] is not None]
PAUSED_FIXTURES = [one["file"] for one in INDEX if one["format"] == "flowchart-v1"]


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def envelope(
    *history: dict[str, Any], principal: str | None = "alice", saved_at: Any = 1_700_000_000_000, **keys: Any
) -> dict[str, Any]:
    """A ``conversation-v1`` with this history; ``keys`` go into its conversation."""
    data = conversation(history=list(history), **identity(principal), **keys)
    return {"format": "conversation-v1", "data": data, "savedAt": saved_at}


def paused_envelope(
    *history: dict[str, Any], principal: str | None = "alice", saved_at: Any = 1_700_000_000_000, **keys: Any
) -> dict[str, Any]:
    """A ``flowchart-v1`` of another engine, as of this history; ``keys`` go into its paused run."""
    inside = conversation(history=list(history) or [user("go?")], **identity(principal))
    data = paused_run(conversation=inside, **keys)
    return {"format": "flowchart-v1", "data": data, "savedAt": saved_at}


def identity(principal: str | None) -> dict[str, Any]:
    return {} if principal is None else {"identity": {"principal": principal, "conversationId": "c-1"}}


def sound_cases() -> list[tuple[str, dict[str, Any]]]:
    """Every envelope among the golden cases that the strict readers take."""
    found = []
    for case in load("envelopes")["cases"]:
        value = untag(case.get("input"))
        try:
            found.append((case["id"], check_envelope(value)))
        except EnvelopeError:
            continue
    return found


ODD = {
    "leading system": envelope({"role": "system", "content": "Be kind."}, user("hi"), said("hello")),
    "only a system message": envelope({"role": "system", "content": "Be kind."}),
    "leading assistant": envelope(said("Welcome."), user("hi"), said("hello")),
    "leading tool": envelope({"role": "tool", "content": "1", "toolCallId": "x"}, user("hi"), said("hello")),
    "three users in a row": envelope(user("a"), user("b"), user("c"), said("abc")),
    "users at the end": envelope(user("a"), said("A"), user("b"), user("c")),
    "a system message in between": envelope(user("a"), said("A"), {"role": "system", "content": "now"}, user("b")),
    "a call without its result": envelope(
        user("a"), said("", toolCalls=[{"id": "1", "name": "t", "args": {}}]), user("b"), said("B")
    ),
    "a result without its call": envelope(user("a"), {"role": "tool", "content": "r", "toolCallId": "9"}, said("A")),
    "a role that nobody knows": envelope(user("a"), {"role": "narrator", "content": "Meanwhile"}, said("A")),
    "nothing said": envelope(),
    "empty texts": envelope(user(""), said("")),
    "thinking, provider data, unknown keys": envelope(
        user("a", attachments=[{"kind": "image", "bytes": 3}]),
        said(
            "A",
            thinkingBlocks=[{"type": "thinking", "content": "…", "signature": "s=="}],
            toolCalls=[{"id": "1", "name": "t", "args": {"x": 1.5}, "providerMeta": {"z": None}}],
        ),
        {"role": "tool", "content": "0.1", "toolCallId": "1", "toolName": "t", "isError": False},
        said("done", odd={"true": True, "one": 1, "float": 1.0, "big": 2**70, "tiny": 5e-324, "minus": -0.0}),
    ),
    "a skill cursor, folds and a failure": envelope(
        user("a"),
        said("A"),
        skillCursor="",
        folded=[{"summaryFingerprint": "f", "retained": "conversation", "messages": [user("old")]}],
        failurePoint={"iteration": 2, "phase": "tool", "stage": "pay"},
        agent={"id": "desk", "team": "a"},
    ),
    "unknown keys everywhere": {
        **envelope(user("a"), said("A"), {"role": "user", "content": "b", "k": 1}, odd=[None], runId=""),
        "traceId": "t-1",
        "owner": "mallory",
    },
    "no time that is one": envelope(user("a"), said("A"), saved_at="yesterday"),
    "a time with a fraction": envelope(user("a"), said("A"), saved_at=1_700_000_000_000.5),
    "a run id of a kilobyte": envelope(user("a"), said("A"), runId="r" * 1_000, lastCompletedIteration=-2.5),
    "a pause without a word": paused_envelope(pending={}, checkpoint={**paused_run()["checkpoint"], "extra": 1}),
    "a pause whose pending is a list": paused_envelope(pending=[{"question": "?"}]),
    "a pause of nothing": {
        "format": "flowchart-v1",
        "data": paused_run(conversation=conversation(history=[], originalInput={"message": "go?", "lang": "en"})),
        "savedAt": 1,
    },
    "a pause with keys of its own": {
        **paused_envelope(user("a"), said("A"), user("b"), odd=1, pending={"k": 2}),
        "x": 0,
    },
    "a pause that was answered": paused_envelope(
        answered={"decision": None, "atMs": 1, "runId": "r", "error": {"code": "E", "message": "m"}}
    ),
    "a mark of half a megabyte": paused_envelope(
        answered={"decision": [str(number) for number in range(90_000)], "error": {"code": 7, "message": "m" * 9_000}}
    ),
    "a mark that is no object": paused_envelope(answered=False),
    "a large ask": paused_envelope(
        pending={"pauseData": {"toolName": "pay", "question": "?" * 9_000, "more": "x" * 9_000}}
    ),
    "nobody's": envelope(user("a"), said("A"), principal=None),
}
"""Sound envelopes with something in them that no turn has a place for."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KNOWN = {"role", "content", "history", "format", "data", "savedAt", "checkpoint", "conversation", "pending", "answered"}
UNKNOWN = st.dictionaries(TEXT.filter(lambda name: name not in KNOWN and name != "turnkeep"), JSON, max_size=2)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["user", "user", "assistant", "assistant", "tool", "system", "narrator"]))
    more = draw(st.fixed_dictionaries({}, optional={"toolCalls": JSON, "toolCallId": TEXT, "thinkingBlocks": JSON}))
    return {**draw(UNKNOWN), **more, "role": role, "content": draw(TEXT)}


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    unknown = draw(UNKNOWN)
    more = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "checkpointedAt": JSON,
                "identity": JSON | st.fixed_dictionaries({"principal": TEXT}),
                "agent": JSON | st.fixed_dictionaries({"id": TEXT}),
                "skillCursor": TEXT,
                "folded": JSON,
                "failurePoint": JSON,
            },
        )
    )
    return {
        **unknown,
        **more,
        "version": 1,
        "runId": draw(TEXT),
        "history": draw(st.lists(messages(), max_size=7)),
        "lastCompletedIteration": draw(st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)),
        "originalInput": {**draw(UNKNOWN), "message": draw(TEXT)},
    }


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """Any sound envelope, keys that nobody knows at every level."""
    inside = draw(conversations())
    saved_at = draw(st.fixed_dictionaries({}, optional={"savedAt": JSON | st.integers(0, 2**41)}))
    if draw(st.booleans()):
        return {**draw(UNKNOWN), **saved_at, "format": "conversation-v1", "data": inside}
    checkpoint = {
        **draw(UNKNOWN),
        "pausedStageId": draw(TEXT),
        "sharedState": draw(st.lists(JSON, max_size=2) | st.dictionaries(TEXT, JSON, max_size=2)),
        "subflowPath": draw(st.lists(JSON, max_size=2)),
    }
    pending = draw(st.lists(JSON, max_size=2) | st.dictionaries(TEXT | st.just("pauseData"), JSON, max_size=3))
    mark = draw(st.fixed_dictionaries({}, optional={"answered": JSON}))
    data = {**draw(UNKNOWN), **mark, "checkpoint": checkpoint, "conversation": inside, "pending": pending}
    return {**draw(UNKNOWN), **saved_at, "format": "flowchart-v1", "data": data}


__all__ = ["FIXTURES", "ODD", "PAUSED_FIXTURES", "envelope", "envelopes", "fixture", "paused_envelope", "said", "user"]
