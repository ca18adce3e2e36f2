"""The ledger's conditions, by name. Each is the sentence of DESIGN.md that it enforces."""

from __future__ import annotations

from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import AllOf, AnyOf, AtMost, Condition, Differs, Equals, LessThan, Missing


def expired(now_ms: int) -> Condition:
    """What is there has expired, and DynamoDB is late to delete it."""
    return AtMost("deleteAfter_s", now_ms // 1000)


def free(now_ms: int) -> Condition:
    """A number may be claimed: nothing is there, or what is there has expired."""
    return AnyOf((Missing("pk"), expired(now_ms)))


def mine(run_id: str) -> Condition:
    """The fence of every write to a running turn: this attempt still holds it (invariants 1 and 10)."""
    return AllOf((Equals("runId", run_id), Equals("status", Status.RUNNING.value)))


def as_read(record: TurnRecord) -> Condition:
    """Compare-and-set: the turn is still what was read (same life, attempt, status and ask)."""
    same: list[Condition] = [
        Equals("epoch", record.epoch),
        Equals("status", record.status.value),
        Equals("attempt", record.attempt),
        Equals("runId", record.run_id) if record.run_id else Missing("runId"),
    ]
    if record.ask is not None:
        same.append(Equals("askId", record.ask.ask_id))
    return AllOf(tuple(same))


def open_and_undecided(ask_id: str) -> Condition:
    """This ask is open and has no decision yet (invariant 6)."""
    return AllOf((Equals("askId", ask_id), Equals("status", Status.AWAITING.value), Missing("decision")))


def not_past(turn: int, attempt: int) -> Condition:
    """CONVERSATION shows nothing newer: ``(turn, attempt)`` is not lower than what it shows."""
    return AnyOf((LessThan("turn", turn), AllOf((Equals("turn", turn), AtMost("attempt", attempt)))))


def shows(epoch: str, turn: int, attempt: int) -> Condition:
    """CONVERSATION is what was read: every write to it moves ``(turn, attempt)`` or marks an erasure."""
    return AllOf((Equals("epoch", epoch), Equals("turn", turn), Equals("attempt", attempt), Missing("erasing")))


def unowned_or(owner: str) -> Condition:
    """Nobody owns it yet, or this person does (invariant 7)."""
    return AnyOf((Missing("owner"), Equals("owner", owner)))


def conversation_takes(epoch: str, owner: str | None, turn: int, attempt: int, *, may_create: bool) -> Condition:
    """CONVERSATION may be changed by this turn's move: same life, same owner or none yet, not newer, not erasing."""
    there: list[Condition] = [Equals("epoch", epoch), Missing("erasing"), not_past(turn, attempt)]
    if owner is not None:
        there.append(unowned_or(owner))
    condition: Condition = AllOf(tuple(there))
    return AnyOf((Missing("pk"), condition)) if may_create else condition


def conversation_is_over(now_ms: int) -> Condition:
    """CONVERSATION belongs to a life that has expired, and nobody is erasing it."""
    return AllOf((expired(now_ms), Missing("erasing")))


def fresh_segment(epoch: str, now_ms: int) -> Condition:
    """A segment is put once: nothing is there, or a leftover of an earlier life of the id or use of the number."""
    return AnyOf((Missing("pk"), Differs("epoch", epoch), expired(now_ms)))


def fresh_request(now_ms: int, stale_turn: int | None) -> Condition:
    """A request may be recorded: none is there, it has expired, or it points at a turn that another request won."""
    ways: list[Condition] = [Missing("pk"), expired(now_ms)]
    if stale_turn is not None:
        ways.append(Equals("turn", stale_turn))
    return AnyOf(tuple(ways))
