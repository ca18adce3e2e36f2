"""Moves of a turn's record: compare-and-set on what was read, with CONVERSATION or without."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from turnkeep.errors import SessionNotFoundError, SessionOwnershipConflictError
from turnkeep.ledger import conditions
from turnkeep.ledger.items import changes
from turnkeep.ledger.keys import turn_sk
from turnkeep.ledger.records import ConversationRecord, Mover, Status, TurnRecord, may_move
from turnkeep.ledger.showing import Showing
from turnkeep.ledger.store import HELD, AllOf, Applied, Condition, ItemStore, Refused, Update, unwrap

if TYPE_CHECKING:
    from turnkeep.ledger.store import Key


def key_of(record: TurnRecord) -> Key:
    """Where a turn's record lies."""
    return (record.key.pk, turn_sk(record.turn))


def expect(before: Status | None, after: Status, movers: frozenset[Mover]) -> None:
    """Refuses a move that the table does not know: a bug of the caller, found before anything is written."""
    if before is not after and not any(may_move(before, after, mover) for mover in movers):
        raise ValueError(f"a turn does not move from {before} to {after} here")


def _cas(before: TurnRecord, after: TurnRecord, *further: Condition) -> tuple[Update, str]:
    """The compare-and-set that makes one record of another, and the mark by which its sender knows it again."""
    mark = secrets.token_urlsafe(9)
    to_set, to_remove = changes(before, after)
    if before.status is Status.QUEUED and not after.is_open:
        # Such a turn says nothing of those before it, unlike one that has run (``hydrate``).
        to_set["unrun"] = 1
    condition = AllOf((conditions.as_read(before), *further))
    return Update(key_of(before), set={**to_set, "move": mark}, remove=to_remove, condition=condition), mark


def _took(answer: Applied | Refused, mark: str) -> bool:
    """Whether the move took place; the SDK may have sent it twice, and then its second try is refused by its first."""
    return isinstance(answer, Applied) or (answer.item or {}).get("move") == mark


def compare_and_set(store: ItemStore, before: TurnRecord, after: TurnRecord, *further: Condition) -> TurnRecord | None:
    """Makes one record of another where it is still what was read; None where somebody else was first."""
    move, mark = _cas(before, after, *further)
    (result,) = store.write([move])
    return after if _took(unwrap(result), mark) else None


def move_with_conversation(
    store: ItemStore, now_ms: int, before: TurnRecord, after: TurnRecord, conversation: ConversationRecord | None
) -> TurnRecord | None:
    """The same, and CONVERSATION shows it, so that nothing of an older attempt is shown any more."""
    move, mark = _cas(before, after)
    showing = Showing(after, conversation, now_ms)
    results = store.transact([move, showing.whole()])
    moved, shown = unwrap(results[0]), unwrap(results[1])
    if isinstance(moved, Refused) and moved.item == HELD:
        # CONVERSATION is gone, shows something newer, or is another life's: the turn alone decides, as in a commit.
        moved = unwrap(store.write([move])[0])
        if _took(moved, mark):
            _show_again(store, showing, shown)
    return after if _took(moved, mark) else None


def _show_again(store: ItemStore, showing: Showing, answer: Applied | Refused) -> None:
    """Shows what was refused where it may be shown; what a move of somebody else's turn finds is not its fault."""
    try:
        again = showing.next_try(answer)
    except (SessionNotFoundError, SessionOwnershipConflictError):
        return
    if again is not None:
        unwrap(store.write([again])[0])


def hand_back(store: ItemStore, record: TurnRecord) -> None:
    """See ``Ledger.hand_back``."""
    change = Update(key_of(record), remove=("leaseUntil",), condition=conditions.mine(record.run_id))
    unwrap(store.write([change])[0])
