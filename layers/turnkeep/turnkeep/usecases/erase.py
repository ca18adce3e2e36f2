"""Erasure: everything of one conversation, in bounded steps, and once more behind the longest lease.

CONVERSATION is marked first, which refuses claims and hides the conversation; then its executions are stopped and its
items deleted. A process that is still at work may write once more, so a second pass follows when none can be alive, and
takes the mark with it. Every step may be repeated; ``reconcile`` goes on with one that stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnkeep.errors import SessionNotFoundError
from turnkeep.ledger.items import conversation_attributes
from turnkeep.ledger.keys import CONVERSATION, due_shard, turn_of_sk
from turnkeep.ledger.records import OPEN, Ask, ConversationRecord, Status, TurnRecord
from turnkeep.ledger.store import (
    AllOf,
    AnyOf,
    Applied,
    Condition,
    Delete,
    Equals,
    Get,
    Item,
    Key,
    Missing,
    Query,
    Update,
    unwrap,
)
from turnkeep.usecases.door import require_own, verify
from turnkeep.usecases.state import LEASE_RESERVE_MS

if TYPE_CHECKING:
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Caller, Deadline, Deps

LONGEST_LEASE_MS = 900_000 + LEASE_RESERVE_MS
"""Lambda's fifteen minutes and the lease's reserve: whoever saw the conversation without the mark is gone by then."""

STEP_ITEMS = 100
STEP_ATTENTION_MS = 60_000
RESERVE_MS = 3_000
IMPORTING = "importing"
"""The attribute of a mark behind which an import is being written: whose; an erasure takes it, and the import too."""

FIRST, LAST = "!", "~"
"""Sort before and behind every sort key of the ledger."""

STEP_ATTRIBUTES = ("pk", "sk", "epoch", "status", "askId", "starts", "startedFor", "taskToken")
"""What a step reads: the keys, and what names an execution."""


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
    """Erases the caller's conversation. What the time does not suffice for, ``reconcile`` does.

    Raises:
        SessionNotFoundError: missing or not the caller's, or being erased already.
        StoreUnavailableError: the store did not answer; what was begun goes on by itself.
    """
    verify(deps, caller)
    while True:
        found = deps.ledger.hydrate(key, history=False)
        require_own(found, caller)
        # What was judged is what is marked: a life of the id that began in between belongs to somebody else.
        if _mark(deps, found, _as_judged(found)):
            return _first_pass(deps, key, deadline)


def erase_as_operator(deps: Deps, key: ConversationKey, *, deadline: Deadline) -> Erased:
    """Erases a conversation whoever owns it, readable or not, an erasure under way or not.

    Raises:
        SessionNotFoundError: nothing at all is stored under the id.
        StoreUnavailableError: the store did not answer; what was begun goes on by itself.
    """
    (page,) = deps.ledger.store.read([Query(key.pk, FIRST, LAST, limit=1)])
    if not page.items:
        raise SessionNotFoundError(key.conversation_id)
    _mark(deps, deps.ledger.hydrate(key, history=False), None)
    return _first_pass(deps, key, deadline)


def _as_judged(found: Hydrated) -> Condition:
    item = found.conversation_item
    if item is None:
        return Missing("pk")
    same = [Equals(name, item[name]) if name in item else Missing(name) for name in ("epoch", "owner", "erasing")]
    return AllOf(tuple(same))


def _mark(deps: Deps, found: Hydrated, condition: Condition | None) -> bool:
    """Marks CONVERSATION, and makes one to mark where a crash left none; False where the condition failed."""
    key, now_ms = found.key, deps.clock.now_ms()
    empty = ConversationRecord(
        key=key, epoch=found.epoch or deps.random_id(12), created_at_ms=now_ms, saved_at_ms=now_ms
    )
    mark = Update(
        (key.pk, CONVERSATION),
        set={"erasing": now_ms, "due": due_shard(key.pk), "dueAt": now_ms + STEP_ATTENTION_MS},
        set_if_absent=conversation_attributes(empty),
        # No listing shows it any more, and the TTL must not take the mark before the second pass does.
        remove=("ownerKey", "deleteAfter_s", IMPORTING),
        condition=condition,
    )
    answer = unwrap(deps.ledger.store.write([mark])[0])
    marked = isinstance(answer, Applied) or (answer.item or {}).get("erasing") == now_ms
    if marked:
        deps.probe("marked")
    return marked


def _first_pass(deps: Deps, key: ConversationKey, deadline: Deadline) -> Erased:
    erased = _delete(deps, key, deadline)
    if erased.done:
        _await_second_pass(deps, key)
    deps.note("erased", {"items": erased.items, "stopped": erased.stopped})
    return erased


def _delete(deps: Deps, key: ConversationKey, deadline: Deadline) -> Erased:
    """Stops what waits and deletes everything but CONVERSATION, in steps; not done where the time ran out first."""
    items = stopped = 0
    step = Query(key.pk, FIRST, LAST, limit=STEP_ITEMS, attributes=STEP_ATTRIBUTES)
    while deadline.left_ms() > RESERVE_MS:
        (page,) = deps.ledger.store.read([step])
        found = [item for item in page.items if item["sk"] != CONVERSATION]
        if not found:
            return Erased(items, stopped, done=True)
        for item in found:
            stopped += _stop_execution(deps, key, item)
        items += _delete_step(deps, found)
        deps.probe("erased some")
    return Erased(items, stopped, done=False)


def _delete_step(deps: Deps, found: list[Item]) -> int:
    """Deletes items; an open turn only as it was read, so that an ask that it raises meanwhile is stopped too."""
    store = deps.ledger.store
    open_turns = [item for item in found if item.get("status") in _OPEN_TEXTS]
    store.delete([_key(item) for item in found if item not in open_turns])
    deletes = [Delete(_key(item), Equals("status", item["status"])) for item in open_turns]
    gone = sum(isinstance(unwrap(result), Applied) for result in (store.write(deletes) if deletes else []))
    return len(found) - len(open_turns) + gone


_OPEN_TEXTS = frozenset(status.value for status in OPEN)


def _key(item: Item) -> Key:
    return (str(item["pk"]), str(item["sk"]))


def _stop_execution(deps: Deps, key: ConversationKey, item: Item) -> int:
    """Stops the execution that waits on a turn, before the turn goes; what a step repeats is stopped twice."""
    ask_id, epoch, starts = item.get("askId"), item.get("epoch"), item.get("starts", 1)
    waits = item.get("status") in (Status.AWAITING.value, Status.ANSWERED.value)
    if not waits or not isinstance(ask_id, str) or not isinstance(epoch, str) or not isinstance(starts, int):
        return 0
    started_for, token = item.get("startedFor"), item.get("taskToken")
    try:
        turn = turn_of_sk(str(item["sk"]))
    except ValueError:
        return 0
    # Only what names the execution: a turn that cannot be read has one all the same.
    record = TurnRecord(
        key=key,
        turn=turn,
        status=Status.AWAITING,
        epoch=epoch,
        ask=Ask(ask_id, "owner", None, 0, 0),
        start_number=starts,
        execution_ask=started_for if isinstance(started_for, str) else None,
        task_token=token if isinstance(token, str) else None,
    )
    deps.gate.stop(record, "erased")
    return 1


def _await_second_pass(deps: Deps, key: ConversationKey) -> None:
    """Sets when the second pass is due: behind the longest lease that can have begun before the mark."""
    (page,) = deps.ledger.store.read([Get((key.pk, CONVERSATION))])
    erasing = page.items[0].get("erasing") if page.items else None
    if not isinstance(erasing, int):
        return
    due = Update(
        (key.pk, CONVERSATION), set={"dueAt": erasing + LONGEST_LEASE_MS}, condition=Equals("erasing", erasing)
    )
    unwrap(deps.ledger.store.write([due])[0])


def go_on_erasing(deps: Deps, key: ConversationKey, *, deadline: Deadline) -> bool:
    """Goes on with an erasure that is due; behind the longest lease it takes the mark too.

    Returns:
        Whether the conversation is gone for good, and its id free.
    """
    (page,) = deps.ledger.store.read([Get((key.pk, CONVERSATION))])
    mark = page.items[0] if page.items else None
    erasing = mark.get("erasing") if mark is not None else None
    if not isinstance(erasing, int):
        return False
    is_second_pass = deps.clock.now_ms() >= erasing + LONGEST_LEASE_MS
    if not _delete(deps, key, deadline).done:
        return False
    if not is_second_pass:
        _await_second_pass(deps, key)
        return False
    take = Delete((key.pk, CONVERSATION), AnyOf((Missing("pk"), Equals("erasing", erasing))))
    gone = unwrap(deps.ledger.store.write([take])[0])
    if isinstance(gone, Applied):
        deps.probe("mark taken")
    return isinstance(gone, Applied)
