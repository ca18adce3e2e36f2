"""The ledger: the one home of what is true about a conversation. One method a move, each with its round trips.

Order of operations and record layout are DESIGN.md's. Everything here is atomic per item or per transaction; what must
hold across items is held by the order of writes and by what readers accept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import (
    LostClaimError,
    SessionNotFoundError,
    SessionOwnershipConflictError,
    UnreadableError,
)
from turnkeep.ledger import conditions
from turnkeep.ledger.hydrate import Hydrated, hydrate, load_segments
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, request_sk, segment_sk, turn_sk
from turnkeep.ledger.records import (
    SKIPPED_V1,
    ConversationRecord,
    Decision,
    RequestRecord,
    Status,
    TurnRecord,
    changes,
    conversation_attributes,
    is_expired,
    request_attributes,
    turn_item,
    turn_record,
)
from turnkeep.ledger.segments import batch_items
from turnkeep.ledger.store import (
    HELD,
    AllOf,
    Applied,
    Equals,
    Get,
    Item,
    ItemStore,
    Missing,
    Present,
    Put,
    Refused,
    Result,
    Unavailable,
    Update,
    Write,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.clock import Clock
    from turnkeep.messages import Message


@dataclass(frozen=True)
class Contended:
    """A claim that somebody else won.

    Attributes:
        winner: what lies at the contended number, as the failed write gave it; None where that could not be read.
    """

    winner: TurnRecord | None


class Ledger:
    """Conversations on an item store.

    Args:
        store: the table.
        clock: for what has expired by now.
    """

    def __init__(self, store: ItemStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    # --- reading --------------------------------------------------------------------------------------------

    def hydrate(
        self,
        key: ConversationKey,
        *,
        last_turns: int | None = None,
        history: bool = True,
        request: str | None = None,
        turn: int | None = None,
    ) -> Hydrated:
        """What is stored of a conversation. One round trip; more only where the chain of turns is not proven by it.

        Args:
            key: the conversation.
            last_turns: the newest so many turns; None reads all.
            history: whether older turns are wanted at all; False reads the newest few.
            request: the hash of an Idempotency-Key whose record is read beside.
            turn: a turn whose record is wanted, however old it is.
        """
        return hydrate(
            self.store, key, self.clock.now_ms(), last_turns=last_turns, history=history, request=request, turn=turn
        )

    def messages_of(self, records: Sequence[TurnRecord]) -> dict[int, list[Message]]:
        """Every stored message of the turns, in order. A round trip where segments have to be read.

        Of a running turn: what its attempt has made durable so far.

        Raises:
            UnreadableError: a segment that belongs to a turn cannot be read.
        """
        return load_segments(self.store, records, self.clock.now_ms()).messages

    def checkpoint_of(self, record: TurnRecord) -> tuple[list[Message], dict[str, Any] | None]:
        """A paused turn's messages and its checkpoint (None where it has none)."""
        loaded = load_segments(self.store, [record], self.clock.now_ms())
        return loaded.messages[record.turn], loaded.checkpoints.get(record.turn)

    def turn(self, key: ConversationKey, turn: int) -> TurnRecord | None:
        """One turn's record, strongly read; None where there is none (or it has expired)."""
        (page,) = self.store.read([Get((key.pk, turn_sk(turn)))])
        if not page.items or is_expired(page.items[0], self.clock.now_ms()):
            return None
        return turn_record(page.items[0], key)

    # --- claiming -------------------------------------------------------------------------------------------

    def claim(
        self, record: TurnRecord, *, stored: int, request: RequestRecord | None = None, stale_turn: int | None = None
    ) -> TurnRecord | Contended:
        """Claims the record's number. One round trip.

        Everybody contends for ``stored + 1``: where the record's number is higher, one transaction puts it and a
        ``skipped`` record there.

        Args:
            record: the turn as it shall be (running or queued), its message included.
            stored: the highest stored turn that was read.
            request: the request's record, put beside the claim.
            stale_turn: the turn that an outdated record of the same request points at.

        Raises:
            StoreUnavailableError: nobody knows; sending the same request again finds out.
        """
        now_ms = self.clock.now_ms()
        put = Put(turn_item(record), conditions.free(now_ms))
        beside: list[Write] = []
        if request is not None:
            item: Item = {"pk": record.key.pk, "sk": request_sk(request.hashed), **request_attributes(request)}
            beside.append(Put(item, conditions.fresh_request(now_ms, stale_turn)))
        if record.turn == stored + 1:
            results = self.store.write([put, *beside])
            claimed, contended, noted = unwrap(results[0]), results[0], results[1:]
        else:
            skipped = Put(turn_item(_skipped(record, stored)), conditions.free(now_ms))
            results = self.store.transact([put, skipped])
            claimed = unwrap(results[0])
            contended = next((one for one in results if isinstance(one, Refused) and one.item != HELD), results[0])
            noted = []
        won = record if isinstance(claimed, Applied) else self._contended(record, contended)
        if won is record and request is not None:
            for result in noted or self.store.write(beside):
                self._repoint(record, request, unwrap(result))
        return won

    def note_request(self, record: TurnRecord, request: RequestRecord, stale_turn: int | None) -> None:
        """Records which turn a request became, where the claim's own record of it was lost. One round trip."""
        item: Item = {"pk": record.key.pk, "sk": request_sk(request.hashed), **request_attributes(request)}
        condition = conditions.fresh_request(self.clock.now_ms(), stale_turn)
        unwrap(self.store.write([Put(item, condition)])[0])

    def _repoint(self, record: TurnRecord, request: RequestRecord, noted: Applied | Refused) -> None:
        """The turn knows its request; a record that points elsewhere is what a try that lost its claim left behind."""
        pointed = (noted.item or {}).get("turn") if isinstance(noted, Refused) else None
        if isinstance(pointed, int) and pointed != record.turn:
            self.note_request(record, request, pointed)

    def _contended(self, record: TurnRecord, result: Result) -> TurnRecord | Contended:
        """The failed condition brought the winner's item: an earlier try of mine is a success."""
        item = result.item if isinstance(result, Refused) else None
        if item is None:
            return Contended(None)
        if item.get("runId") == record.run_id and item.get("sk") == turn_sk(record.turn):
            return record
        try:
            return Contended(turn_record(item, record.key))
        except UnreadableError:
            return Contended(None)

    def begin_queued(self, queued: TurnRecord, running: TurnRecord) -> TurnRecord | None:
        """Moves a queued turn to running by compare-and-set. One round trip; None where somebody else moved it."""
        return self._compare_and_set(queued, running)

    def take_over(
        self, dead: TurnRecord, running: TurnRecord, conversation: ConversationRecord | None
    ) -> TurnRecord | None:
        """Takes a dead attempt's turn over: compare-and-set on the runId read, CONVERSATION fenced with it.

        One round trip (a transaction). None where somebody else was first.
        """
        return self._move_with_conversation(dead, running, conversation)

    def close(
        self, before: TurnRecord, after: TurnRecord, conversation: ConversationRecord | None
    ) -> TurnRecord | None:
        """Closes a turn that is not this process's own (dead, expired, withdrawn) by compare-and-set.

        One round trip. A queued turn that never ran leaves CONVERSATION alone. None where somebody else was first.
        """
        if before.status is Status.QUEUED:
            return self._compare_and_set(before, after)
        return self._move_with_conversation(before, after, conversation)

    def _compare_and_set(self, before: TurnRecord, after: TurnRecord) -> TurnRecord | None:
        to_set, to_remove = changes(before, after)
        (result,) = self.store.write(
            [Update(_key(before), set=to_set, remove=to_remove, condition=conditions.as_read(before))]
        )
        return after if self._took(unwrap(result), before, after) else None

    def _move_with_conversation(
        self, before: TurnRecord, after: TurnRecord, conversation: ConversationRecord | None
    ) -> TurnRecord | None:
        to_set, to_remove = changes(before, after)
        move = Update(_key(before), set=to_set, remove=to_remove, condition=conditions.as_read(before))
        beside = _conversation_update(after, conversation, self.clock.now_ms())
        moved, shown = self.store.transact([move, beside])
        if isinstance(moved, Refused) and moved.item == HELD and isinstance(shown, Refused):
            # CONVERSATION shows something newer, or another life: the turn alone decides, as in a commit.
            return self._compare_and_set(before, after)
        return after if self._took(unwrap(moved), before, after) else None

    @staticmethod
    def _took(result: Applied | Refused, before: TurnRecord, after: TurnRecord) -> bool:
        if isinstance(result, Applied):
            return True
        item = result.item or {}
        # The SDK sent it twice and the first one landed: what lies there is what this call wrote.
        return (
            item.get("status") == after.status.value
            and item.get("attempt") == after.attempt
            and item.get("runId") == (after.run_id or None)
            and after.run_id != before.run_id
        )

    # --- writing a turn -------------------------------------------------------------------------------------

    def write_segments(self, record: TurnRecord, index: int, kind: str, start: int, value: Any) -> int:
        """Makes a batch durable, beginning at segment ``index`` of this attempt. One round trip.

        Returns:
            The index behind its last part. A retried batch that landed is recognised by its hash; where something
            else lies there, the batch is written anew behind it.

        Raises:
            StoreUnavailableError: the store did not answer; writing again is harmless.
            UnstorableValueError: the value is no JSON that the ledger can keep.
        """
        while True:
            items = batch_items(record, index, kind, start, value)
            results = self.store.write([Put(item, conditions.fresh_segment(record.epoch)) for item in items])
            if all(
                isinstance(answer := unwrap(result), Applied) or (answer.item or {}).get("hash") == item["hash"]
                for result, item in zip(results, items, strict=True)
            ):
                return index + len(items)
            index += len(items)

    def commit(self, before: TurnRecord, after: TurnRecord, conversation: ConversationRecord | None) -> TurnRecord:
        """Makes what a run came to the turn's agreed state, under this attempt's fence. One round trip.

        CONVERSATION is updated beside it (two conditional writes, not a transaction: half the units, and what a
        crash leaves between them is healed before the next claim).

        Raises:
            LostClaimError: the claim was closed or taken over; nothing of this is visible.
            SessionOwnershipConflictError, SessionNotFoundError: the id belongs to another life or person by now.
            StoreUnavailableError: the store did not answer for the turn itself; it may have landed.
        """
        to_set, to_remove = changes(before, after)
        move = Update(_key(before), set=to_set, remove=to_remove, condition=conditions.mine(before.run_id))
        beside = _conversation_update(after, conversation, self.clock.now_ms())
        moved, shown = self.store.write([move, beside])
        answer = unwrap(moved)
        if isinstance(answer, Refused) and not _is_own_commit(answer.item, after):
            raise LostClaimError(turn=before.turn)
        if not isinstance(shown, Unavailable):
            # Where it did not answer, it is healed before the next claim: the turn has landed, and that is what counts.
            self._check_shown(shown, after)
        return after

    @staticmethod
    def _check_shown(shown: Applied | Refused, after: TurnRecord) -> None:
        if isinstance(shown, Applied) or shown.item is None:
            return
        if shown.item.get("epoch") != after.epoch or "erasing" in shown.item:
            raise SessionNotFoundError(after.key.conversation_id)
        owner = shown.item.get("owner")
        if owner is not None and after.principal is not None and owner != after.principal:
            raise SessionOwnershipConflictError(after.key.conversation_id)

    def keep_segments(self, record: TurnRecord, until_s: int) -> None:
        """Lets a turn's segments live as long as its record is about to. One round trip; none where it has none."""
        counts = [*record.adopted, (record.attempt, record.segments)]
        keys = [
            (record.key.pk, segment_sk(record.turn, attempt, index + 1))
            for attempt, count in counts
            for index in range(count)
        ]
        if keys:
            longer = [Update(key, set={"deleteAfter_s": until_s}, condition=Present("pk")) for key in keys]
            for result in self.store.write(longer):
                unwrap(result)

    def hand_back(self, record: TurnRecord) -> None:
        """Gives the lease up: the turn stays running and may be taken over or closed at once. One round trip."""
        change = Update(_key(record), remove=("leaseUntil",), condition=conditions.mine(record.run_id))
        unwrap(self.store.write([change])[0])

    # --- answering ------------------------------------------------------------------------------------------

    def decide(self, record: TurnRecord, decision: Decision, *, due_at_ms: int) -> TurnRecord | None:
        """Records the decision for exactly this ask. One round trip.

        Returns:
            The turn as it is now (its task token included), or None where the ask is no longer open and undecided.
        """
        # The token is not this write's to touch: AwaitAnswer may have stored it since the record was read.
        before = replace(record, task_token=None)
        after = replace(before, status=Status.ANSWERED, decision=decision, due_at_ms=due_at_ms)
        to_set, to_remove = changes(before, after)
        taken = conditions.open_and_undecided(decision.ask_id)
        (result,) = self.store.write(
            [Update(_key(record), set=to_set, remove=to_remove, condition=taken, wants_item=True)]
        )
        answer = unwrap(result)
        if isinstance(answer, Applied) and answer.item is not None:
            return turn_record(answer.item, record.key)
        item = answer.item
        if item is not None and item.get("decisionMark") == decision.mark:
            return turn_record(item, record.key)
        return None

    def postpone(self, record: TurnRecord, due_at_ms: int) -> TurnRecord | None:
        """Moves an open turn's due time on, by compare-and-set: whoever moved it does what was due. One round trip."""
        after = replace(record, due_at_ms=due_at_ms)
        was = Equals("dueAt", record.due_at_ms) if record.due_at_ms is not None else Missing("dueAt")
        to_set, to_remove = changes(record, after)
        condition = AllOf((conditions.as_read(record), was))
        (result,) = self.store.write([Update(_key(record), set=to_set, remove=to_remove, condition=condition)])
        return after if isinstance(unwrap(result), Applied) else None

    def set_start(self, record: TurnRecord, start_number: int, due_at_ms: int) -> TurnRecord | None:
        """Moves on to the next start number of the ask's execution, once. One round trip."""
        after = replace(record, start_number=start_number, due_at_ms=due_at_ms, task_token=None)
        before = record
        to_set, to_remove = changes(before, after)
        unchanged = Equals("starts", before.start_number) if before.start_number != 1 else Missing("starts")
        condition = AllOf((conditions.as_read(before), unchanged))
        (result,) = self.store.write([Update(_key(before), set=to_set, remove=to_remove, condition=condition)])
        return after if isinstance(unwrap(result), Applied) else None

    # --- CONVERSATION ---------------------------------------------------------------------------------------

    def create(self, record: ConversationRecord, *, request: RequestRecord | None = None) -> ConversationRecord | None:
        """Stores an empty conversation where there is none. One round trip; None where one is there.

        Args:
            record: the conversation.
            request: the record of the request that creates it, of turn 0, put beside it.
        """
        now_ms = self.clock.now_ms()
        item: Item = {"pk": record.key.pk, "sk": CONVERSATION, **conversation_attributes(record)}
        writes: list[Write] = [Put(item, conditions.free(now_ms))]
        if request is not None:
            noted: Item = {"pk": record.key.pk, "sk": request_sk(request.hashed), **request_attributes(request)}
            writes.append(Put(noted, conditions.fresh_request(now_ms, None)))
        results = self.store.write(writes)
        answer = unwrap(results[0])
        if isinstance(answer, Applied) or (answer.item or {}).get("epoch") == record.epoch:
            return record
        return None

    def heal(self, last: TurnRecord, conversation: ConversationRecord | None) -> None:
        """Writes CONVERSATION anew from the last turn that ended, where a crash left it behind. One round trip."""
        unwrap(self.store.write([_conversation_update(last, conversation, self.clock.now_ms())])[0])


def _key(record: TurnRecord) -> tuple[str, str]:
    return (record.key.pk, turn_sk(record.turn))


def _skipped(record: TurnRecord, stored: int) -> TurnRecord:
    """The record that says that a number was never a turn."""
    return TurnRecord(
        key=record.key,
        turn=stored + 1,
        status=Status.SKIPPED,
        epoch=record.epoch,
        format=SKIPPED_V1,
        previous=stored,
        run_id=record.run_id,
        principal=record.principal,
        started_at_ms=record.started_at_ms,
        base_count=record.base_count,
        delete_after_s=record.delete_after_s,
    )


def _is_own_commit(item: Item | None, after: TurnRecord) -> bool:
    """Whether an earlier try of this very commit landed (its answer was lost, the SDK sent it again)."""
    return item is not None and item.get("runId") == after.run_id and item.get("status") == after.status.value


def _conversation_update(turn: TurnRecord, known: ConversationRecord | None, now_ms: int) -> Update:
    """What a turn's move shows in CONVERSATION."""
    count = turn.base_count + turn.shown_count
    shown = ConversationRecord(
        key=turn.key,
        epoch=turn.epoch,
        owner=turn.principal if known is None or known.owner is None else None,
        saved_at_ms=turn.saved_at_ms or now_ms,
        turn=turn.turn,
        attempt=turn.attempt,
        status=turn.status.value,
        format=turn.format,
        message_count=count,
        agent_id=turn.agent_id,
        agent_version=turn.agent_version,
        delete_after_s=turn.delete_after_s,
    )
    attributes = conversation_attributes(shown)
    created = {"createdAt": turn.started_at_ms or now_ms}
    attributes.pop("createdAt")
    return Update(
        (turn.key.pk, CONVERSATION),
        set=attributes,
        set_if_absent=created if known is None else {},
        condition=conditions.conversation_takes(
            turn.epoch, turn.principal, turn.turn, turn.attempt, may_create=known is None
        ),
    )
