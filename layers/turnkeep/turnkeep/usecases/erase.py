"""Erasure: everything of one conversation, in bounded steps, and once more behind the longest lease.

CONVERSATION is marked first, which refuses claims and hides the conversation; then its executions are stopped and its
items deleted. A process that is still at work may write once more, so a second pass follows when none can be alive, and
takes the mark with it. Every step may be repeated; ``reconcile`` goes on with one that stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.errors import UnreadableError
from turnkeep.ledger.keys import CONVERSATION, due_shard
from turnkeep.ledger.records import ConversationRecord, Status, conversation_attributes
from turnkeep.ledger.store import AnyOf, Applied, Delete, Get, Missing, Present, Query, Update, unwrap
from turnkeep.usecases.door import require_own, verify
from turnkeep.usecases.state import LEASE_RESERVE_MS

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deadline, Deps

LONGEST_LEASE_MS = 900_000 + LEASE_RESERVE_MS
"""Lambda's fifteen minutes and the lease's reserve."""

STEP_ITEMS = 500
STEP_ATTENTION_MS = 60_000
RESERVE_MS = 3_000
LAST = "~"
"""Sorts behind every sort key of the ledger."""


@dataclass(frozen=True)
class Erased:
    """What an erasure removed so far.

    Attributes:
        items: how many items were deleted by this call.
        stopped: how many executions were told to stop.
        done: nothing is left but the mark, which the second pass takes.
    """

    items: int
    stopped: int
    done: bool


def erase_conversation(deps: Deps, caller: Caller, key: ConversationKey, *, deadline: Deadline) -> Erased:
    """Erases the caller's conversation.

    Raises:
        SessionNotFoundError: missing or not the caller's.
    """
    verify(deps, caller)
    found = deps.ledger.hydrate(key, history=False)
    require_own(found, caller)
    return _erase(deps, found, deadline)


def erase_as_operator(deps: Deps, key: ConversationKey, *, deadline: Deadline) -> Erased:
    """Erases a conversation whoever owns it, readable or not."""
    return _erase(deps, deps.ledger.hydrate(key, history=False), deadline)


def _erase(deps: Deps, found: Hydrated, deadline: Deadline) -> Erased:
    key, now_ms = found.key, deps.clock.now_ms()
    if found.conversation_item is None and not found.turn_items:
        items, done = _delete(deps, key, deadline)
        return Erased(items, 0, done)
    mark = Update(
        (key.pk, CONVERSATION),
        set={"erasing": now_ms, "due": due_shard(key.pk), "dueAt": now_ms + STEP_ATTENTION_MS},
        set_if_absent=conversation_attributes(
            ConversationRecord(
                key=key,
                epoch=found.epoch or deps.random_id(12),
                owner=found.owner,
                created_at_ms=now_ms,
                saved_at_ms=now_ms,
            )
        ),
        remove=("ownerKey",),
    )
    mark = replace(mark, set_if_absent={n: v for n, v in mark.set_if_absent.items() if n != "ownerKey"})
    unwrap(deps.ledger.store.write([mark])[0])
    deps.probe("marked")
    stopped = _stop_executions(deps, found)
    items, done = _delete(deps, key, deadline)
    if done:
        _await_second_pass(deps, key, now_ms)
    deps.note("erased", {"items": items, "stopped": stopped})
    return Erased(items, stopped, done)


def _stop_executions(deps: Deps, found: Hydrated) -> int:
    stopped = 0
    try:
        turns = found.turns()
    except UnreadableError:
        # Unreadable turns have no readable ask: their execution ends by itself, on a record that is gone.
        return 0
    for turn in turns:
        if turn.status in (Status.AWAITING, Status.ANSWERED) and turn.ask is not None:
            deps.gate.stop(turn, "erased")
            stopped += 1
    return stopped


def _delete(deps: Deps, key: ConversationKey, deadline: Deadline) -> tuple[int, bool]:
    """Deletes everything but CONVERSATION, in steps; False where the time ran out first."""
    items = 0
    while deadline.left_ms() > RESERVE_MS:
        below = Query(key.pk, "", "CONVERSATIO~", limit=STEP_ITEMS, attributes=("pk", "sk"))
        above = Query(key.pk, "CONVERSATION ", LAST, limit=STEP_ITEMS, attributes=("pk", "sk"))
        pages = deps.ledger.store.read([replace(below, low="!"), above])
        keys = [(str(item["pk"]), str(item["sk"])) for page in pages for item in page.items]
        if not keys:
            return items, True
        deps.ledger.store.delete(keys)
        deps.probe("erased some")
        items += len(keys)
    return items, False


def _await_second_pass(deps: Deps, key: ConversationKey, marked_at_ms: int) -> None:
    wait = Update(
        (key.pk, CONVERSATION),
        set={"dueAt": marked_at_ms + LONGEST_LEASE_MS},
        condition=Present("erasing"),
    )
    unwrap(deps.ledger.store.write([wait])[0])


def go_on_erasing(deps: Deps, key: ConversationKey, *, deadline: Deadline) -> bool:
    """Goes on with an erasure that is due; behind the longest lease it takes the mark too. Returns whether it did."""
    (page,) = deps.ledger.store.read([Get((key.pk, CONVERSATION))])
    mark = page.items[0] if page.items else None
    erasing = mark.get("erasing") if mark is not None else None
    if not isinstance(erasing, int):
        return False
    _, done = _delete(deps, key, deadline)
    if not done:
        return False
    if deps.clock.now_ms() < erasing + LONGEST_LEASE_MS:
        _await_second_pass(deps, key, erasing)
        return False
    gone = unwrap(
        deps.ledger.store.write([Delete((key.pk, CONVERSATION), AnyOf((Missing("pk"), Present("erasing"))))])[0]
    )
    return isinstance(gone, Applied)
