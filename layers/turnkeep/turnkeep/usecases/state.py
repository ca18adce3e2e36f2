"""A conversation as a use case sees it: who may, what is open, what comes next. Read once, decided on purely."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.usecases.closing import CONTRIBUTES_NOTHING, contribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.hydrate import Hydrated
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
        last = self.last
        return 0 if last is None else last.base_count + last.shown_count

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


@dataclass(frozen=True)
class History:
    """What turns that have ended put before a new one."""

    messages: list[Message]
    turns: list[tuple[int, int]]
    left_out: dict[str, int]


def history_of(ledger: Ledger, records: Sequence[TurnRecord], *, whole: bool) -> History:
    """The messages of ended turns, closed, in order. A round trip only where some lie in segments.

    Raises:
        UnreadableError: a turn's segments cannot be read.
    """
    counting = [record for record in records if not record.is_open and record.status not in CONTRIBUTES_NOTHING]
    loaded = ledger.messages_of(counting)
    messages: list[Message] = []
    turns: list[tuple[int, int]] = []
    for record in counting:
        own = contribution(record, loaded[record.turn])
        messages.extend(own)
        turns.append((record.turn, len(own)))
    left_out: dict[str, int] = {}
    if not whole and counting:
        left_out = {"turns": max(0, counting[0].turn - 1), "messages": counting[0].base_count}
    return History(messages, turns, left_out)


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


def new_run_id(deps: Deps) -> str:
    """``run-<ms>-<96 random bits>``, made where it is used and never at import."""
    return f"run-{deps.clock.now_ms()}-{deps.random_id(12)}"


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
