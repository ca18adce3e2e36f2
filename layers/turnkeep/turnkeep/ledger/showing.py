"""CONVERSATION: what a turn's move shows there, and when it may.

Every write to CONVERSATION moves its ``(turn, attempt)``, and each such pair belongs to one process. So a commit that
finds the pair it read sets only what differs; any other finding is looked at once more, and decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.errors import SessionNotFoundError, SessionOwnershipConflictError
from turnkeep.ledger import conditions
from turnkeep.ledger.items import conversation_attributes
from turnkeep.ledger.keys import CONVERSATION
from turnkeep.ledger.parsing import is_expired, lenient_owner
from turnkeep.ledger.records import ConversationRecord, TurnRecord
from turnkeep.ledger.store import AllOf, Applied, Condition, Missing, Put, Refused, Update, Write

if TYPE_CHECKING:
    from turnkeep.ledger.store import Item


@dataclass(frozen=True)
class Showing:
    """What a turn's move makes CONVERSATION say.

    Attributes:
        turn: the turn as it is after its move.
        known: CONVERSATION as it was read; None where there was none.
        now_ms: the wall time.
    """

    turn: TurnRecord
    known: ConversationRecord | None
    now_ms: int

    @property
    def record(self) -> ConversationRecord:
        """CONVERSATION as it shall be."""
        turn, known = self.turn, self.known
        return ConversationRecord(
            key=turn.key,
            epoch=turn.epoch,
            owner=turn.principal if known is None or known.owner is None else known.owner,
            created_at_ms=known.created_at_ms if known is not None else turn.started_at_ms or self.now_ms,
            saved_at_ms=turn.saved_at_ms or self.now_ms,
            turn=turn.turn,
            attempt=turn.attempt,
            status=turn.status.value,
            format=turn.format,
            message_count=turn.base_count + turn.shown_count,
            agent_id=turn.agent_id,
            agent_version=turn.agent_version,
            delete_after_s=turn.delete_after_s,
        )

    def usual(self) -> Write:
        """The write that goes beside a commit: the difference to what was read, where that is still what is there."""
        known = self.known
        if known is None:
            return self._made(Missing("pk"))
        if known.epoch != self.turn.epoch:
            return self.whole()
        new = self.record
        old_attributes, attributes = conversation_attributes(known), conversation_attributes(new)
        fence: Condition = conditions.shows(known.epoch, known.turn, known.attempt)
        if known.owner is None and new.owner is not None:
            fence = AllOf((fence, conditions.unowned_or(new.owner)))
        return Update(
            self._key,
            set={name: value for name, value in attributes.items() if old_attributes.get(name) != value},
            remove=tuple(name for name in old_attributes if name not in attributes),
            condition=fence,
        )

    def whole(self) -> Write:
        """Everything that it shall say, where it shows nothing newer; an owner that is there stays."""
        attributes = conversation_attributes(self.record)
        created = {"createdAt": attributes.pop("createdAt")}
        if self.known is not None and self.known.owner is not None:
            del attributes["owner"], attributes["ownerKey"]
        gone = tuple(name for name in ("agentId", "agentVersion", "deleteAfter_s") if name not in attributes)
        return Update(
            self._key,
            set=attributes,
            remove=gone,
            set_if_absent=created if self.known is None else {},
            condition=conditions.conversation_takes(
                self.turn.epoch,
                self.turn.principal,
                self.turn.turn,
                self.turn.attempt,
                may_create=self.known is None,
            ),
        )

    def _made(self, where: Condition) -> Write:
        """As a new item; nothing of what may be there stays."""
        record = replace(self.record, owner=self.turn.principal, created_at_ms=self.turn.started_at_ms or self.now_ms)
        pk, sk = self._key
        item: Item = {"pk": pk, "sk": sk, **conversation_attributes(record)}
        return Put(item, where)

    def next_try(self, answer: Applied | Refused) -> Write | None:
        """What is left to write after the usual write's answer: nothing, where it took or where more is shown.

        Raises:
            SessionNotFoundError: the id belongs to another life by now, or is being erased.
            SessionOwnershipConflictError: it belongs to another person.
        """
        if isinstance(answer, Applied) or answer.item is None:
            # Gone: deleted by its TTL, and healed before the next claim, or erased for good.
            return None
        item, turn = answer.item, self.turn
        if is_expired(item, self.now_ms) and "erasing" not in item:
            return self._made(conditions.conversation_is_over(self.now_ms))
        if item.get("epoch") != turn.epoch or "erasing" in item:
            raise SessionNotFoundError(turn.key.conversation_id)
        owner = lenient_owner(item)
        if owner is not None and turn.principal is not None and owner != turn.principal:
            raise SessionOwnershipConflictError(turn.key.conversation_id)
        shown, mine = (item.get("turn"), item.get("attempt", 0)), (turn.turn, turn.attempt)
        if not all(isinstance(number, int) for number in shown) or shown > mine:
            return None
        if shown == mine and item.get("status") == turn.status.value:
            return None
        return self.whole()

    @property
    def _key(self) -> tuple[str, str]:
        return (self.turn.key.pk, CONVERSATION)
