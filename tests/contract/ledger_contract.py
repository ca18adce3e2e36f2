"""What a ledger promises on any item store, as tests (docs/extending.md).

Whoever writes a third item store holds it to ``ItemStoreContract`` first and to this one then:

    class TestOnMyStore(LedgerContract):
        def make_store(self) -> ItemStore: ...
"""

from __future__ import annotations

from tests.contract.ledger_asks import LedgerAsks
from tests.contract.ledger_claims import LedgerClaims
from tests.contract.ledger_commits import LedgerCommits
from tests.contract.ledger_reading import LedgerReading
from tests.contract.ledger_segments import LedgerSegments


class LedgerContract(LedgerClaims, LedgerCommits, LedgerReading, LedgerAsks, LedgerSegments):
    """All of it: claims, commits, readings, asks, segments. Every test has a conversation of its own."""
