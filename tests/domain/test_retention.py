"""A store says who deletes what is old, or is refused; silence is never an answer (CONTRACT.md 10.4)."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeep.errors import SessionRetentionUnavailableError
from turnkeep.retention import BackendRetention, Forgotten, Retention, StoreRetention, session_retention


class Answering:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def retention(self) -> Any:
        return self.answer


def sweep(before_ms: int, *, limit: int = 1000) -> Forgotten:
    return Forgotten(forgotten=min(before_ms, limit), more=before_ms > limit)


@pytest.mark.parametrize(
    ("answer", "deleted_by"),
    [
        (StoreRetention(forget_older_than=sweep), "this-store"),
        (BackendRetention(active=True, expires_on="deleteAfter_s", enable_with="Set RetentionDays."), "the-backend"),
    ],
)
def test_the_stores_own_answer_is_handed_on(answer: Retention, deleted_by: str) -> None:
    found = session_retention(Answering(answer), "the nightly job")
    assert found is answer
    assert found.deleted_by == deleted_by


@pytest.mark.parametrize("store", [object(), Answering(None), Answering({"deletedBy": "nobody"})])
def test_a_store_without_an_answer_is_refused_by_name(store: Any) -> None:
    with pytest.raises(SessionRetentionUnavailableError) as caught:
        session_retention(store, "the nightly job")
    assert caught.value.purpose == "the nightly job"


def test_an_attribute_that_is_no_method_is_no_answer() -> None:
    store = Answering(None)
    store.retention = "the-backend"  # type: ignore[method-assign,assignment]
    with pytest.raises(SessionRetentionUnavailableError):
        session_retention(store, "the nightly job")
