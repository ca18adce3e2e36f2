"""Hypothesis strategies for JSON values, sound and unsound envelopes among them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**5000, max_value=10**5001)
    | st.floats()
    | st.text(max_size=80)
    | st.text(alphabet=st.characters(categories=["Cs", "Lu"]), max_size=80)
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


def sometimes(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly the sound value, now and then any JSON."""
    return st.one_of(sound, sound, sound, JSON)


ROLES = st.sampled_from(["user", "assistant", "tool", "system", "narrator"])
MESSAGES = st.fixed_dictionaries(
    {"role": sometimes(ROLES), "content": sometimes(st.text(max_size=10))}, optional={"toolCalls": JSON, "odd": JSON}
)
CONVERSATIONS = st.fixed_dictionaries(
    {},
    optional={
        "version": sometimes(st.sampled_from([1, 1.0])),
        "runId": sometimes(st.text(max_size=5)),
        "history": sometimes(st.lists(sometimes(MESSAGES), max_size=4)),
        "lastCompletedIteration": sometimes(st.integers()),
        "originalInput": sometimes(st.fixed_dictionaries({"message": sometimes(st.text(max_size=5))})),
        "skillCursor": sometimes(st.text(max_size=5)),
        "identity": sometimes(st.fixed_dictionaries({}, optional={"principal": sometimes(st.text(max_size=5))})),
    },
)
CHECKPOINTS = st.fixed_dictionaries(
    {},
    optional={
        "pausedStageId": sometimes(st.text(max_size=5)),
        "sharedState": sometimes(st.dictionaries(st.text(max_size=3), JSON, max_size=2)),
        "subflowPath": sometimes(st.lists(st.text(max_size=3), max_size=2)),
    },
)
PAUSED_RUNS = st.fixed_dictionaries(
    {},
    optional={
        "checkpoint": sometimes(CHECKPOINTS),
        "conversation": sometimes(CONVERSATIONS),
        "pending": sometimes(st.dictionaries(st.text(max_size=3), JSON, max_size=2)),
        "answered": JSON,
    },
)
NEAR_ENVELOPES = st.one_of(
    st.fixed_dictionaries({"format": st.just("conversation-v1"), "data": sometimes(CONVERSATIONS)}),
    st.fixed_dictionaries({"format": st.just("flowchart-v1"), "data": sometimes(PAUSED_RUNS)}),
    st.fixed_dictionaries({}, optional={"format": JSON, "data": sometimes(CONVERSATIONS), "savedAt": JSON}),
)
STORED = st.one_of(JSON, NEAR_ENVELOPES)


def conversation(**changes: Any) -> dict[str, Any]:
    """A sound conversation with some keys changed."""
    return {
        "version": 1,
        "runId": "run-1",
        "history": [{"role": "user", "content": "hello"}],
        "lastCompletedIteration": 1,
        "originalInput": {"message": "hello"},
        "checkpointedAt": 1_700_000_000_000,
    } | changes


def paused_run(**changes: Any) -> dict[str, Any]:
    """A sound paused run with some keys changed."""
    return {
        "checkpoint": {"pausedStageId": "tool-calls", "sharedState": {"history": []}, "subflowPath": []},
        "conversation": conversation(),
        "pending": {"question": "Go?", "pauseData": {"question": "Go?"}},
    } | changes
