"""What callers have been admitted to of late: one small item a caller, counted by compare-and-set.

An item holds how many turns began in which minute, as text (``29000123:2 29000124:1``). Whoever counts writes the text
anew on condition that it is still what was read, so no two requests ever count from the same state, and nothing has to
be taken back. A request with an Idempotency-Key leaves a mark beside its count, in one transaction: its repeat, however
soon, is admitted already.

These items lie in partitions of their own (no conversation's key is without a slash), under a hash of the caller, and
expire when nothing in them counts any more.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from turnkeep.errors import UnknownStoredFormatError
from turnkeep.ledger import conditions
from turnkeep.ledger.keys import owner_key
from turnkeep.ledger.parsing import is_expired
from turnkeep.ledger.store import (
    HELD,
    Applied,
    Condition,
    Equals,
    Get,
    Item,
    Key,
    Missing,
    Put,
    Refused,
    Update,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.store import ItemStore

SPEND_V1: Final = "spend-v1"
WINDOW_MS: Final = 3_600_000
SLOT_MS: Final = 60_000
_MINUTE: Final = re.compile(r"(\d{1,12}):(\d{1,12})")


@dataclass(frozen=True)
class Tally:
    """What is stored of one caller.

    Attributes:
        text: the minutes as they are stored; None where nothing is.
        is_admitted: an earlier try of this very request has been counted.
    """

    text: str | None = None
    is_admitted: bool = False

    def minutes(self, now_ms: int) -> dict[int, int]:
        """Turns by the minute in which they began, of those minutes that still count.

        A minute counts until an hour has passed since its end, so that no hour ever holds more than was allowed.
        """
        found = {int(minute): int(count) for minute, count in _MINUTE.findall(self.text or "")}
        return {minute: count for minute, count in sorted(found.items()) if leaves_ms(minute) > now_ms}


def leaves_ms(minute: int) -> int:
    """The wall time at which a minute's turns count no more."""
    return (minute + 1) * SLOT_MS + WINDOW_MS


@dataclass(frozen=True)
class Counter:
    """One request's place at the counter.

    Attributes:
        pk: the caller's partition.
        mark: the sort key of the request's mark; None for a request that cannot be told from another.
        stamp: names this try, so that a write that was sent twice knows its own.
    """

    store: ItemStore
    pk: str
    mark: str | None
    stamp: str

    @classmethod
    def of(
        cls, store: ItemStore, principal: str | None, key: ConversationKey, hashed: str | None, stamp: str
    ) -> Counter:
        """The counter of a caller (all who are anonymous share one), for a request of one conversation."""
        who = owner_key(key.tenant, principal or "")
        mark = None if hashed is None else f"ADMITTED#{_hash([key.pk, hashed])}"
        return cls(store, f"admission#{_hash(['spend', who])}", mark, stamp)

    def read(self, now_ms: int) -> Tally:
        """What is stored. One round trip.

        Raises:
            UnknownStoredFormatError: another release's count; counting anew would forget it.
            StoreUnavailableError: the store did not answer.
        """
        keys: list[Key] = [(self.pk, "SPEND")]
        if self.mark is not None:
            keys.append((self.pk, self.mark))
        spend, *marks = [page.items[0] if page.items else None for page in self.store.read([Get(key) for key in keys])]
        return Tally(_text(spend), any(item is not None and not is_expired(item, now_ms) for item in marks))

    def count(self, tally: Tally, now_ms: int, *, mark_life_s: int) -> Tally | None:
        """Counts one turn, where the tally is still what is stored. One round trip.

        Returns:
            None when it is counted, by this call or by an earlier try of this request; else what is stored by now.

        Raises:
            UnknownStoredFormatError, StoreUnavailableError: as ``read``; the turn may have been counted.
        """
        minutes = tally.minutes(now_ms)
        minute = now_ms // SLOT_MS
        minutes[minute] = minutes.get(minute, 0) + 1
        unchanged: Condition = Missing("minutes") if tally.text is None else Equals("minutes", tally.text)
        update = Update(
            (self.pk, "SPEND"),
            set={
                "format": SPEND_V1,
                "minutes": " ".join(f"{one}:{count}" for one, count in sorted(minutes.items())),
                "stamp": self.stamp,
                "deleteAfter_s": leaves_ms(minute) // 1000 + 1,
            },
            condition=unchanged,
        )
        if self.mark is None:
            return self._outcome(unwrap(self.store.write([update])[0]))
        item: Item = {"pk": self.pk, "sk": self.mark, "format": SPEND_V1, "deleteAfter_s": now_ms // 1000 + mark_life_s}
        counted, marked = self.store.transact([update, Put(item, conditions.free(now_ms))])
        if isinstance(marked, Refused) and marked.item != HELD:
            return None
        return self._outcome(unwrap(counted))

    def _outcome(self, counted: Applied | Refused) -> Tally | None:
        if isinstance(counted, Applied) or (counted.item or {}).get("stamp") == self.stamp:
            return None
        return Tally(_text(counted.item))


def _text(item: Mapping[str, object] | None) -> str | None:
    if item is None:
        return None
    text = item.get("minutes")
    if item.get("format") != SPEND_V1 or not isinstance(text, str):
        raise UnknownStoredFormatError(found=str(item.get("format"))[:64], known=[SPEND_V1])
    return text


def _hash(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
