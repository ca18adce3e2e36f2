"""Tool calls that act once: the ledger's own conditional record of a call and its result.

The key is of stable call content and of the conversation's epoch (``agent.idempotency``), so no other person's call and
no earlier life of an id meets it. A record without a result, left by an attempt that died, is a call in doubt: nobody
can know whether it acted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import CallInDoubtError, LostClaimError, MalformedStoredItemError, TurnOutOfTimeError
from turnkeep.ledger.codec import pack_bytes, pack_text, size_of, unpack_text
from turnkeep.ledger.keys import number
from turnkeep.ledger.segments import PART_BYTES
from turnkeep.ledger.store import (
    AllOf,
    AnyOf,
    Applied,
    Condition,
    Delete,
    Equals,
    Get,
    Item,
    Missing,
    Present,
    Put,
    Update,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import Deps

ONCE_V1 = "once-v1"


def once_sk(turn: int, key: str) -> str:
    """The sort key of a call's record."""
    return f"ONCE#{number(turn)}#{key}"


def _part_sk(turn: int, key: str, writer: str, index: int) -> str:
    """The sort key of one part of a result that is too large for the call's own record."""
    return f"{once_sk(turn, key)}#{writer}#{number(index)}"


class LedgerOnce:
    """``OnceMemory`` on the ledger, for one attempt.

    Args:
        deps: the ports.
        record: the turn as this attempt holds it.
        check: raises where this attempt may call nothing any more.
    """

    def __init__(self, deps: Deps, record: TurnRecord, *, check: Callable[[], None]) -> None:
        self._store, self._record, self._check = deps.ledger.store, record, check

    def begin(self, key: str) -> str | None:
        """See ``OnceMemory.begin``. One round trip; another one where the remembered result is large.

        Raises:
            CallInDoubtError: an attempt that died had begun this call.
            LostClaimError, TurnOutOfTimeError: the run has to stop; the call has not begun.
            StoreUnavailableError: the store did not answer; the call has not begun.
        """
        item = self._item(key) | {"runId": self._record.run_id}
        # Ours already: this write was sent twice, and its first answer was lost.
        free = AnyOf((Missing("pk"), self._begun_here()))
        answer = unwrap(self._store.write([Put(item, free)])[0])
        if isinstance(answer, Applied):
            self._still_ours(key)
            return None
        found = answer.item or {}
        if "result" in found:
            return self._read(found["result"])
        if "parts" in found:
            return self._read(self._joined(key, found))
        raise CallInDoubtError

    def finish(self, key: str, result_text: str) -> None:
        """See ``OnceMemory.finish``. One round trip; another one before it where the result is large.

        Not fenced by the lease, on purpose: what a call did is true, however late its attempt is to say so.

        Raises:
            StoreUnavailableError: the result is not remembered; a re-run of the call will be in doubt.
        """
        record = self._record
        packed = pack_text(result_text)
        remembered: Item = {"result": packed}
        if size_of(packed) > PART_BYTES:
            parts = self._parts(key, pack_bytes(result_text))
            for answer in self._store.write([Put(part) for part in parts]):
                unwrap(answer)
            remembered = {"parts": len(parts), "partsOf": record.run_id}
        change = Update(
            (record.key.pk, once_sk(record.turn, key)),
            set=remembered,
            condition=AllOf((Present("pk"), Missing("result"), Missing("parts"))),
        )
        # Refused: a call in doubt that another attempt finished first (its result stays), or an erased conversation.
        unwrap(self._store.write([change])[0])

    def _item(self, key: str) -> Item:
        record = self._record
        item: Item = {"pk": record.key.pk, "sk": once_sk(record.turn, key), "format": ONCE_V1, "epoch": record.epoch}
        if record.delete_after_s is not None:
            item["deleteAfter_s"] = record.delete_after_s
        return item

    def _begun_here(self) -> Condition:
        return AllOf((Equals("runId", self._record.run_id), Missing("result"), Missing("parts")))

    def _still_ours(self, key: str) -> None:
        """A process that slept while the store answered has begun nothing: its mark would leave a call in doubt."""
        try:
            self._check()
        except (LostClaimError, TurnOutOfTimeError):
            # Where this does not land either, the mark stays and the call is in doubt, which is safe.
            self._store.write([Delete((self._record.key.pk, once_sk(self._record.turn, key)), self._begun_here())])
            raise

    def _parts(self, key: str, data: bytes) -> list[Item]:
        record = self._record
        pieces = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        return [
            self._item(key) | {"sk": _part_sk(record.turn, key, record.run_id, index), "data": piece}
            for index, piece in enumerate(pieces)
        ]

    def _joined(self, key: str, found: Item) -> bytes:
        record, count, writer = self._record, found.get("parts"), found.get("partsOf")
        if not isinstance(count, int) or not isinstance(writer, str):
            raise self._malformed("parts")
        keys = [(record.key.pk, _part_sk(record.turn, key, writer, index)) for index in range(count)]
        pieces = [page.items[0].get("data") for page in self._store.read([Get(one) for one in keys]) if page.items]
        whole = b"".join(piece for piece in pieces if isinstance(piece, bytes))
        if len(pieces) != count:
            raise self._malformed("parts")
        return whole

    def _read(self, stored: object) -> str:
        try:
            return unpack_text(stored)
        except ValueError as error:
            raise self._malformed("result") from error

    def _malformed(self, part: str) -> MalformedStoredItemError:
        conversation_id = self._record.key.conversation_id
        return MalformedStoredItemError(found=ONCE_V1, part=part, conversation_id=conversation_id)
