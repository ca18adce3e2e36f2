"""What the tests of a memory store stand on: two people, entries, a fresh store a test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from turnkeep.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.memory.store import SearchableMemoryStore

NOW_MS = 1_700_000_000_000
ADA = {"tenant": "acme", "principal": "ada", "conversationId": "c-1"}
BO = {"tenant": "acme", "principal": "bo", "conversationId": "c-1"}


def an_entry(entry_id: str = "a", **parts: Any) -> dict[str, Any]:
    stamps = {"version": 1, "createdAt": 1, "updatedAt": 1, "lastAccessedAt": 1, "accessCount": 0}
    return {"id": entry_id, "value": f"v-{entry_id}", **stamps, **parts}


def all_pages(store: SearchableMemoryStore, identity: Any = None, **options: Any) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    cursor = None
    for _ in range(2000):
        page = store.list(identity or ADA, cursor=cursor, **options)
        entries += page.entries
        cursor = page.cursor
        if cursor is None:
            return entries
    raise AssertionError("the pages never end")


class MemoryBench:
    """One fresh store a test, at the traces' own time."""

    searches = True

    def make_store(self, clock: ManualClock) -> SearchableMemoryStore:
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(wall_ms=NOW_MS)

    @pytest.fixture
    def store(self, clock: ManualClock) -> SearchableMemoryStore:
        return self.make_store(clock)


def in_parallel(calls: list[Callable[[], None]]) -> None:
    """Runs all at once; raises the first error that one of them met."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
