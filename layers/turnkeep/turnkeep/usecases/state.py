"""A conversation as a use case sees it: who may, what is open, what comes next. Read once, decided on purely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.usecases.closing import CONTRIBUTES_NOTHING, contribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.ledger import Ledger
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Caller, Deadline, Deps

LEASE_RESERVE_MS = 10_000
"""A lease is its holder's own deadline and this: after it the holder cannot be alive (DESIGN.md, One turn 5)."""


@dataclass(frozen=True)
class State:
    """What strict readers made of what is stored.

    Attributes:
        turns: this life's turns, oldest first, skipped numbers included.
        whole: no older turns were left unread.
    """

    conversation: ConversationRecord | None
    turns: Sequence[TurnRecord]
    highest: int
    epoch: str | None
    whole: bool

    @classmethod
    def of(cls, found: Hydrated) -> State:
        """The state behind what was read.

        Raises:
            UnreadableError: something stored cannot be read, by name.
        """
        return cls(
            conversation=found.conversation(),
            turns=found.turns(),
            highest=found.highest,
            epoch=found.epoch,
            whole=found.whole,
        )

    @property
    def first_open(self) -> TurnRecord | None:
        """The lowest turn that has not ended."""
        return next((turn for turn in self.turns if turn.is_open), None)

    @property
    def last(self) -> TurnRecord | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None

    @property
    def base_count(self) -> int:
        """Transcript messages of all turns so far."""
        return shown_by(self.turns)

    def before(self, turn: int) -> Sequence[TurnRecord]:
        """The turns before a number."""
        return [record for record in self.turns if record.turn < turn]

    def stale_conversation(self) -> TurnRecord | None:
        """The last turn that left its mark, where CONVERSATION does not show it yet: a crash came in between."""
        for record in reversed(self.turns):
            if record.is_open or record.status in CONTRIBUTES_NOTHING:
                continue
            shown = self.conversation
            if shown is None or (shown.turn, shown.attempt) < (record.turn, record.attempt):
                return record
            return None
        return None


def shown_by(turns: Sequence[TurnRecord]) -> int:
    """Transcript messages of these turns and all before them.

    The most that any of them knows of: one that was closed while it was queued counts from when it was claimed.
    """
    return max((turn.base_count + turn.shown_count for turn in turns), default=0)


ENDS_ALL_BEFORE = frozenset({Status.COMPLETE, Status.FAILED, Status.EXPIRED})
"""Statuses of a turn that has run: it could only begin when every turn before it had ended."""


def look(deps: Deps, key: ConversationKey, *, request: str | None = None, turn: int | None = None) -> Hydrated:
    """Reads a conversation for whoever may run a turn of it: no more than the agent wants to see. One round trip.

    Args:
        deps: the ports.
        key: the conversation.
        request: the hash of an Idempotency-Key whose record is read beside.
        turn: a turn whose record is wanted, however old it is.
    """
    window = deps.last_turns()
    # The turn that is to be run may be among those that are read, and is no earlier one.
    newest = None if window is None else window + 1
    return deps.ledger.hydrate(key, last_turns=newest, request=request, turn=turn)


def widened(deps: Deps, found: Hydrated, *, turn: int | None = None) -> Hydrated:
    """What was read, and where the window was too small to decide on, more: every open turn, and a full window.

    No round trip in the usual case: the oldest turn that was read has run, so those before it have ended.

    Args:
        deps: the ports.
        found: what ``look`` read.
        turn: the turn that is to be run, where it exists already; its window lies before it.
    """
    window = deps.last_turns()
    if window is None:
        return found
    wider = window + 1
    while not (found.whole or _shows_enough(found, window, turn)):
        wider = 2 * wider + 8
        found = deps.ledger.hydrate(found.key, last_turns=wider, turn=turn)
    return found


def _shows_enough(found: Hydrated, window: int, turn: int | None) -> bool:
    items = list(found.turn_items.items())
    if not items or items[0][1].get("status") not in ENDS_ALL_BEFORE:
        return False
    ended = [number for number, item in items if item.get("status") in ENDS_ALL_BEFORE]
    return sum(1 for number in ended if turn is None or number < turn) >= window


@dataclass(frozen=True)
class History:
    """What turns that have ended put before a new one.

    Attributes:
        messages: theirs, closed so that a provider accepts them, oldest first.
        turns: (turn, its messages in ``messages``), oldest first.
        left_out: turns and transcript messages that are older and not here; empty where everything is.
    """

    messages: list[Message]
    turns: list[tuple[int, int]]
    left_out: dict[str, int]


def history_of(ledger: Ledger, records: Sequence[TurnRecord], *, whole: bool, last_turns: int | None = None) -> History:
    """The messages of ended turns, closed, in order. A round trip only where some lie in segments.

    Args:
        ledger: where segments are read.
        records: the turns before the one that is to be run, oldest first.
        whole: no older turns were left unread.
        last_turns: at most so many of them count; None: all.

    Raises:
        UnreadableError: a turn's segments cannot be read.
    """
    ended = [record for record in records if not record.is_open and record.status not in CONTRIBUTES_NOTHING]
    counting = ended if last_turns is None else ended[max(0, len(ended) - last_turns) :]
    loaded = ledger.messages_of(counting)
    messages: list[Message] = []
    turns: list[tuple[int, int]] = []
    for record in counting:
        own = contribution(record, loaded[record.turn])
        messages.extend(own)
        turns.append((record.turn, len(own)))
    return History(messages, turns, _left_out(ended, counting, whole=whole))


def _left_out(ended: Sequence[TurnRecord], counting: Sequence[TurnRecord], *, whole: bool) -> dict[str, int]:
    if whole and len(counting) == len(ended):
        return {}
    if counting:
        return {"turns": counting[0].turn - 1, "messages": counting[0].base_count}
    if not ended:
        return {}
    return {"turns": ended[-1].turn, "messages": ended[-1].base_count + ended[-1].shown_count}


def lease_until_ms(deps: Deps, deadline: Deadline) -> int:
    """When an attempt that begins now can no longer be alive."""
    return deps.clock.now_ms() + deadline.left_ms() + LEASE_RESERVE_MS


def delete_after_s(deps: Deps, previous: TurnRecord | None) -> int | None:
    """When DynamoDB may delete a turn that is claimed now; never before the turn in front of it."""
    days = deps.settings.retention_days
    if days <= 0:
        return None
    due = deps.clock.now_ms() // 1000 + days * 86_400
    return max(due, previous.delete_after_s or 0) if previous is not None else due


def new_run_id(deps: Deps, now_ms: int | None = None) -> str:
    """``run-<ms>-<96 random bits>``, made where it is used and never at import; of now where no time is given."""
    return f"run-{deps.clock.now_ms() if now_ms is None else now_ms}-{deps.random_id(12)}"


def next_attempt(deps: Deps, record: TurnRecord, deadline: Deadline, *, durable_segments: int) -> TurnRecord:
    """The record as a new attempt holds it; the old attempt's segments that count are adopted by number."""
    return replace(
        record,
        status=Status.RUNNING,
        attempt=record.attempt + 1,
        run_id=new_run_id(deps),
        lease_until_ms=lease_until_ms(deps, deadline),
        adopted=(*record.adopted, (record.attempt, durable_segments)),
        segments=0,
        task_token=None,
    )


def signer(caller: Caller, conversation: ConversationRecord | None) -> str | None:
    """Whose turn it is: the caller, who owns the conversation or is the first to sign it."""
    if caller.principal is not None:
        return caller.principal
    return conversation.owner if conversation is not None else None
