"""Tool calls that act once: the ledger's own conditional record of a call and its result.

The key is of stable call content and of the conversation's epoch (``agent.idempotency``), so no other person's call and
no earlier life of an id meets it. A record without a result, left by an attempt that died, is a call in doubt: nobody
can know whether it acted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import CallInDoubtError, MalformedStoredItemError
from turnkeep.ledger.codec import pack_text, unpack_text
from turnkeep.ledger.keys import number
from turnkeep.ledger.store import AllOf, AnyOf, Applied, Equals, Item, Missing, Present, Put, Update, unwrap

if TYPE_CHECKING:
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import Deps

ONCE_V1 = "once-v1"


def once_sk(turn: int, key: str) -> str:
    """The sort key of a call's record."""
    return f"ONCE#{number(turn)}#{key}"


class LedgerOnce:
    """``OnceMemory`` on the ledger, for one attempt."""

    def __init__(self, deps: Deps, record: TurnRecord) -> None:
        self._store, self._record = deps.ledger.store, record

    def begin(self, key: str) -> str | None:
        """See ``OnceMemory.begin``.

        Raises:
            CallInDoubtError: an attempt that died had begun this call.
            StoreUnavailableError: the store did not answer; the call has not begun.
        """
        record = self._record
        item: Item = {
            "pk": record.key.pk,
            "sk": once_sk(record.turn, key),
            "format": ONCE_V1,
            "epoch": record.epoch,
            "runId": record.run_id,
        }
        if record.delete_after_s is not None:
            item["deleteAfter_s"] = record.delete_after_s
        # Ours already: this write was sent twice, and its first answer was lost.
        free = AnyOf((Missing("pk"), AllOf((Equals("runId", record.run_id), Missing("result")))))
        answer = unwrap(self._store.write([Put(item, free)])[0])
        if isinstance(answer, Applied):
            return None
        found = answer.item or {}
        if "result" not in found:
            raise CallInDoubtError
        try:
            return unpack_text(found["result"])
        except ValueError as error:
            raise MalformedStoredItemError(
                found=ONCE_V1, part="result", conversation_id=record.key.conversation_id
            ) from error

    def finish(self, key: str, result_text: str) -> None:
        """See ``OnceMemory.finish``.

        Raises:
            StoreUnavailableError: the result is not remembered; a re-run of the call will be in doubt.
        """
        record = self._record
        change = Update(
            (record.key.pk, once_sk(record.turn, key)),
            set={"result": pack_text(result_text)},
            condition=AllOf((Present("pk"), Missing("result"))),
        )
        # Refused: a call in doubt that another attempt finished first (its result stays), or an erased conversation.
        unwrap(self._store.write([change])[0])
