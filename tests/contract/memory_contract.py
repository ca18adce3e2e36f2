"""What every memory store promises (CONTRACT.md 7.2, 17.6, 17.10, 17.11), the reference's traces included.

Subclass it and give it a store:

    class TestMyStore(MemoryContract):
        def make_store(self, clock: ManualClock) -> SearchableMemoryStore: ...

A store without ``search`` sets ``searches = False``.
"""

from __future__ import annotations

from tests.contract.memory_keeping import MemoryKeeping
from tests.contract.memory_reading import MemoryReading
from tests.contract.memory_traces import MemoryTraces


class MemoryContract(MemoryTraces, MemoryKeeping, MemoryReading):
    """All of it, on one fresh store a test."""
