"""The ledger: the one home of what is true about a conversation. One method a move, each with its round trips.

Order of operations and record layout are DESIGN.md's. Everything here is atomic per item or per transaction; what must
hold across items is held by the order of writes and by what readers accept.

What is known when the time runs out: a ``StoreUnavailableError`` of a read says that nothing was written. That of a
write says that nobody heard how it ended: it may have taken place, or may still do so. It is safe all the same to send
the request again. A claim that landed is found by its request or runs out with its lease; a commit that landed is
found committed; a segment that landed is recognised by its hash; a decision by its mark. Nothing is lost in between,
and nothing is doubled, because whatever comes late meets a condition that no longer holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import LostClaimError
from turnkeep.ledger import conditions
from turnkeep.ledger.claiming import Contended, claim, note_request
from turnkeep.ledger.codec import unpack_text
from turnkeep.ledger.hydrate import Hydrated, highest_turn, hydrate
from turnkeep.ledger.items import changes, conversation_attributes, request_attributes
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, request_sk, segment_sk, turn_sk
from turnkeep.ledger.loading import load_segments
from turnkeep.ledger.moving import compare_and_set, expect, hand_back, key_of, move_with_conversation
from turnkeep.ledger.parsing import is_expired, turn_record
from turnkeep.ledger.records import ConversationRecord, Decision, Mover, RequestRecord, Status, TurnRecord
from turnkeep.ledger.segments import batch_items
from turnkeep.ledger.showing import Showing
from turnkeep.ledger.store import (
    AnyOf,
    Applied,
    Equals,
    Get,
    Item,
    ItemStore,
    Missing,
    Put,
    Refused,
    Unavailable,
    Update,
    Write,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.clock import Clock
    from turnkeep.messages import Message

TAKERS = frozenset({Mover.RETRY, Mover.WORKER, Mover.RESUME})
CLOSERS = frozenset({Mover.NEXT_MESSAGE, Mover.WORKER, Mover.RESUME, Mover.EXPIRY, Mover.OWNER})


__all__ = ["Contended", "Ledger"]


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
            last_turns: the newest so many turns, and as many more as it takes to see every open one; None reads all.
            history: whether older turns are wanted at all; False reads the newest few.
            request: the hash of an Idempotency-Key whose record is read beside.
            turn: a turn whose record is wanted, however old it is.

        Raises:
            StoreUnavailableError: nothing is known.
        """
        return hydrate(
            self.store, key, self.clock.now_ms(), last_turns=last_turns, history=history, request=request, turn=turn
        )

    def highest_turn(self, key: ConversationKey) -> int:
        """The highest live turn number, 0 where there is none: one strong query, of one item in the usual case."""
        return highest_turn(self.store, key, self.clock.now_ms())

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
        ``skipped`` record there, and the request is recorded behind it. A message over ``LARGE_MESSAGE_BYTES`` is
        written in front of it. Each of these is one round trip more.

        Args:
            record: the turn as it shall be (running or queued), its message included; ``previous`` names the last
                turn of this life.
            stored: the highest stored turn that was read.
            request: the request's record, put beside the claim.
            stale_turn: the turn that an outdated record of the same request points at.

        Returns:
            The turn as it lies there: go on with this one, as a large message is no longer in it.

        Raises:
            StoreUnavailableError: nobody knows; sending the same request again finds out.
            UnstorableValueError: the message is no JSON that the ledger can keep; nothing was written.
        """
        expect(None, record.status, frozenset({Mover.CALLER}))
        return claim(self.store, self.clock, record, stored=stored, request=request, stale_turn=stale_turn)

    def note_request(self, record: TurnRecord, request: RequestRecord, stale_turn: int | None) -> None:
        """Records which turn a request became, where the claim's own record of it was lost. One round trip."""
        note_request(self.store, self.clock, record, request, stale_turn)

    def begin_queued(self, queued: TurnRecord, running: TurnRecord) -> TurnRecord | None:
        """Moves a queued or an answered turn to running by compare-and-set. One round trip.

        Returns:
            The turn as it is now; None where somebody else moved it.
        """
        expect(queued.status, running.status, TAKERS)
        if queued.status is Status.QUEUED:
            # Whoever claimed it may still be asking whether the claim landed, and must know it again.
            running = replace(running, claim_id=queued.run_id)
        return compare_and_set(self.store, queued, running)

    def take_over(
        self, dead: TurnRecord, running: TurnRecord, conversation: ConversationRecord | None
    ) -> TurnRecord | None:
        """Takes a dead attempt's turn over: compare-and-set on the runId read, CONVERSATION fenced with it.

        One round trip (a transaction). None where somebody else was first.
        """
        expect(dead.status, running.status, TAKERS)
        return move_with_conversation(self.store, self.clock.now_ms(), dead, running, conversation)

    def close(
        self, before: TurnRecord, after: TurnRecord, conversation: ConversationRecord | None
    ) -> TurnRecord | None:
        """Closes a turn that is not this process's own (dead, expired, withdrawn) by compare-and-set.

        One round trip. A queued turn that never ran leaves CONVERSATION alone. None where somebody else was first.
        """
        expect(before.status, after.status, CLOSERS)
        if before.status is Status.QUEUED:
            return compare_and_set(self.store, before, after)
        return move_with_conversation(self.store, self.clock.now_ms(), before, after, conversation)

    # --- writing a turn -------------------------------------------------------------------------------------

    def write_segments(self, record: TurnRecord, index: int, kind: str, start: int, value: Any) -> int:
        """Makes a batch durable, beginning at segment ``index`` of this attempt. One round trip.

        Returns:
            The index behind its last part. A retried batch that landed is recognised by its hash; where something
            else lies there, the batch is written anew behind it.

        Raises:
            StoreUnavailableError: nobody knows which parts landed; writing again at the same index is harmless.
            UnstorableValueError: the value is no JSON that the ledger can keep; nothing was written.
        """
        while True:
            items = batch_items(record, index, kind, start, value)
            put_once = conditions.fresh_segment(record.epoch, self.clock.now_ms())
            answers = [unwrap(result) for result in self.store.write([Put(item, put_once) for item in items])]
            index += len(items)
            if all(
                isinstance(answer, Applied) or (answer.item or {}).get("hash") == item["hash"]
                for answer, item in zip(answers, items, strict=True)
            ):
                return index

    def commit(self, before: TurnRecord, after: TurnRecord, conversation: ConversationRecord | None) -> TurnRecord:
        """Makes what a run came to the turn's agreed state, under this attempt's fence. One round trip.

        CONVERSATION is updated beside it (two conditional writes, not a transaction: half the units, and what a
        crash leaves between them is healed before the next claim). A second round trip where CONVERSATION is not what
        was read.

        Raises:
            LostClaimError: the claim was closed or taken over; nothing of this is visible.
            SessionOwnershipConflictError, SessionNotFoundError: the id belongs to another life or person by now.
            StoreUnavailableError: nobody answered for the turn itself; its next reader knows whether it landed.
            UnstorableValueError: a part of it is no JSON that the ledger can keep; nothing was written.
        """
        expect(before.status, after.status, frozenset({Mover.RUN}))
        to_set, to_remove = changes(before, after)
        move = Update(key_of(before), set=to_set, remove=to_remove, condition=conditions.mine(before.run_id))
        showing = Showing(after, conversation, self.clock.now_ms())
        moved, shown = self.store.write([move, showing.usual()])
        answer = unwrap(moved)
        if isinstance(answer, Refused) and not _is_own_commit(answer.item, after):
            raise LostClaimError(turn=before.turn)
        # A CONVERSATION that did not answer is healed before the next claim: the turn has landed, which is what counts.
        again = None if isinstance(shown, Unavailable) else showing.next_try(shown)
        if again is not None:
            self.store.write([again])
        return after

    def keep_segments(self, record: TurnRecord, until_s: int) -> None:
        """Lets a turn's segments live as long as its record is about to. One round trip; none where it has none."""
        counts = [*record.adopted, (record.attempt, record.segments)]
        longer = [
            Update(
                (record.key.pk, segment_sk(record.turn, attempt, index + 1)),
                set={"deleteAfter_s": until_s},
                condition=Equals("epoch", record.epoch),
            )
            for attempt, count in counts
            for index in range(count)
        ]
        for result in self.store.write(longer) if longer else []:
            unwrap(result)

    def hand_back(self, record: TurnRecord) -> None:
        """Gives the lease up: the turn stays running and may be taken over or closed at once. One round trip."""
        hand_back(self.store, record)

    # --- answering ------------------------------------------------------------------------------------------

    def decide(self, record: TurnRecord, decision: Decision, *, due_at_ms: int) -> TurnRecord | None:
        """Records the decision for exactly this ask. One round trip.

        Returns:
            The turn as it is now (its task token included), or None where the ask is no longer open and undecided.

        Raises:
            StoreUnavailableError: nobody knows whether it landed; answering again finds out.
            UnstorableValueError: the decision is no JSON that the ledger can keep; nothing was written.
        """
        # The token is not this write's to touch: AwaitAnswer may have stored it since the record was read.
        before = replace(record, task_token=None)
        after = replace(before, status=Status.ANSWERED, decision=decision, due_at_ms=due_at_ms)
        expect(before.status, after.status, frozenset({Mover.ANSWER}))
        to_set, to_remove = changes(before, after)
        taken = conditions.open_and_undecided(decision.ask_id)
        (result,) = self.store.write(
            [Update(key_of(record), set=to_set, remove=to_remove, condition=taken, wants_item=True)]
        )
        answer = unwrap(result)
        item = answer.item
        if item is None or (isinstance(answer, Refused) and item.get("decisionMark") != decision.mark):
            return None
        return turn_record(item, record.key)

    def postpone(self, record: TurnRecord, due_at_ms: int) -> TurnRecord | None:
        """Moves an open turn's due time on, by compare-and-set: whoever moved it does what was due. One round trip."""
        after = replace(record, due_at_ms=due_at_ms)
        was = Equals("dueAt", record.due_at_ms) if record.due_at_ms is not None else Missing("dueAt")
        return compare_and_set(self.store, record, after, was)

    def set_start(self, record: TurnRecord, start_number: int, due_at_ms: int) -> TurnRecord | None:
        """Moves on to the next start number of the ask's execution, once. One round trip."""
        after = replace(record, start_number=start_number, due_at_ms=due_at_ms, task_token=None)
        was = Equals("starts", record.start_number) if record.start_number != 1 else Missing("starts")
        return compare_and_set(self.store, record, after, was)

    # --- CONVERSATION ---------------------------------------------------------------------------------------

    def create(self, record: ConversationRecord, *, request: RequestRecord | None = None) -> ConversationRecord | None:
        """Stores an empty conversation where there is none. One round trip; None where one is there.

        Args:
            record: the conversation.
            request: the record of the request that creates it, of turn 0, put beside it.
        """
        now_ms = self.clock.now_ms()
        item: Item = {"pk": record.key.pk, "sk": CONVERSATION, **conversation_attributes(record)}
        nobody_there = AnyOf((Missing("pk"), conditions.conversation_is_over(now_ms)))
        writes: list[Write] = [Put(item, nobody_there)]
        if request is not None:
            noted: Item = {"pk": record.key.pk, "sk": request_sk(request.hashed), **request_attributes(request)}
            writes.append(Put(noted, conditions.fresh_request(now_ms, None)))
        answer = unwrap(self.store.write(writes)[0])
        if isinstance(answer, Applied) or (answer.item or {}).get("epoch") == record.epoch:
            return record
        return None

    def heal(self, last: TurnRecord, conversation: ConversationRecord | None) -> ConversationRecord:
        """Writes CONVERSATION anew from the last turn that ended, where a crash left it behind. One round trip.

        Returns:
            CONVERSATION as it is now, for the commit that follows.

        Raises:
            SessionOwnershipConflictError, SessionNotFoundError: the id belongs to another life or person by now.
        """
        showing = Showing(last, conversation, self.clock.now_ms())
        again: Write | None = showing.whole()
        for _ in range(2):
            if again is not None:
                again = showing.next_try(unwrap(self.store.write([again])[0]))
        return showing.record


def _is_own_commit(item: Item | None, after: TurnRecord) -> bool:
    """Whether an earlier try of this very commit landed, whatever has become of the turn since."""
    if item is None:
        return False
    if after.ask is not None and after.ask.ask_id in str(item.get("askId", "")) + _text(item.get("pastAsks")):
        return True
    return (item.get("runId"), item.get("attempt"), item.get("status")) == (
        after.run_id,
        after.attempt,
        after.status.value,
    )


def _text(value: object) -> str:
    try:
        return unpack_text(value)
    except ValueError:
        return ""
