"""Taking a conversation in: an envelope made elsewhere becomes turns under an id that nothing is stored under.

An import is built behind an erasure's mark: while it is being written, the conversation is one that nobody sees and
nobody may claim a turn of, and the last write takes the mark away and shows all of it at once. A crash in between
leaves a conversation that is being erased, and ``reconcile`` carries that out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnkeep.envelope import check_envelope, envelope_owner
from turnkeep.errors import ConversationExistsError, InvalidRequestError, StoreUnavailableError
from turnkeep.ids import check_conversation_id, mint_epoch
from turnkeep.json_values import same_json
from turnkeep.ledger import conditions
from turnkeep.ledger.items import conversation_attributes, turn_item
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, due_shard
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.ledger.store import Applied, Condition, Delete, Equals, Item, Key, Put, Update, Value, unwrap
from turnkeep.usecases.as_envelope import envelope_of
from turnkeep.usecases.as_turns import Place, Planned, plan_turns
from turnkeep.usecases.asks import START_ATTENTION_MS, start_execution
from turnkeep.usecases.erase import IMPORTING, LONGEST_LEASE_MS
from turnkeep.usecases.shell import conversation_in
from turnkeep.usecases.state import delete_after_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnkeep.usecases.deps import Deps

BATCH = 50
"""Turns that are written side by side."""

RENEW_MS = 60_000
"""How long the mark may stand before it is renewed: whoever erases waits the longest lease behind it."""


@dataclass(frozen=True)
class Imported:
    """What an import came to.

    Attributes:
        conversation: what a listing shows of it.
        turns: how many turns it has.
        ask: the turn that asks; None where nothing is waited for.
        unchanged: this very envelope was there already, and nothing was written.
    """

    conversation: ConversationRecord
    turns: int
    ask: TurnRecord | None = None
    unchanged: bool = False


def import_conversation(
    deps: Deps, envelope: Any, *, conversation_id: str | None = None, tenant: str | None = None
) -> Imported:
    """Stores an envelope as turns. Its owner is whoever signed it; its ask, if it has one, is open from now on.

    A paused run that another engine wrote keeps its checkpoint unchanged and shows its ask, and answering it is refused
    by name: nothing here could go on from it. It can be exported and answered where it was made, or withdrawn.

    Args:
        deps: the ports.
        envelope: the value of an envelope's JSON.
        conversation_id: its id here; None takes the one of the conversation's identity, else of its ask.
        tenant: its tenant here; None takes the one of the conversation's identity.

    Raises:
        EnvelopeError: the value is no envelope; ``kind`` says why.
        InvalidRequestError: it names no id and none is given, or an id that no conversation may have.
        UnstorableValueError: it holds a value that the ledger cannot keep exactly.
        ConversationExistsError: something else is stored under the id; nothing was changed.
        StoreUnavailableError: nothing was stored; importing again is harmless.
    """
    checked = check_envelope(envelope, conversation_id)
    key = _key(checked, conversation_id, tenant)
    found = deps.ledger.hydrate(key)
    if found.erasing:
        raise ConversationExistsError(key.conversation_id, is_going=True)
    if found.exists:
        if not same_json(envelope_of(deps.ledger, found), checked):
            raise ConversationExistsError(key.conversation_id)
        turns = found.turns()
        there = found.conversation()
        if there is None:
            raise ConversationExistsError(key.conversation_id)
        return Imported(there, len(turns), _asking(turns), unchanged=True)
    place = Place(
        key=key,
        epoch=mint_epoch(deps.random_id),
        owner=envelope_owner(checked),
        now_ms=deps.clock.now_ms(),
        ask_expires_s=deps.settings.ask_expires_s,
        random_id=deps.random_id,
        delete_after_s=delete_after_s(deps, None),
    )
    planned, shown = plan_turns(checked, place)
    _Writing(deps, place).write(planned, shown)
    records = [one.record for one in planned]
    ask = _asking(records)
    if ask is not None:
        start_execution(deps, ask)
    deps.note("imported", {"turns": len(records)})
    return Imported(shown, len(records), ask)


def _asking(records: list[TurnRecord]) -> TurnRecord | None:
    return next((record for record in records if record.status is Status.AWAITING), None)


def _key(envelope: dict[str, Any], conversation_id: str | None, tenant: str | None) -> ConversationKey:
    identity = conversation_in(envelope).get("identity")
    named = identity if isinstance(identity, dict) else {}
    pending = envelope["data"].get("pending")
    candidates = [conversation_id, named.get("conversationId")]
    candidates.append(pending.get("sessionId") if isinstance(pending, dict) else None)
    wanted = next((one for one in candidates if isinstance(one, str) and one), None)
    if wanted is None:
        raise InvalidRequestError("The envelope names no conversation; give it an id.", fields=["conversationId"])
    if tenant is None and isinstance(named.get("tenant"), str):
        tenant = named["tenant"]
    return ConversationKey(check_conversation_id(wanted, tenant), tenant or None)


class _Writing:
    """One import at work: marks, writes, shows; or takes back what it wrote."""

    def __init__(self, deps: Deps, place: Place) -> None:
        self._deps, self._store, self._place = deps, deps.ledger.store, place
        self._place_key: Key = (place.key.pk, CONVERSATION)
        self._token = deps.random_id(12)
        self._renewed_at = deps.clock.monotonic_ms()
        self._written: list[Key] = []

    def write(self, planned: list[Planned], shown: ConversationRecord) -> None:
        try:
            self._mark()
            self._deps.probe("import marked")
            for batch in _batches(planned):
                self._renew()
                self._put([item for one in batch for item in one.segments])
                self._put([turn_item(_attended(one.record)) for one in batch])
                self._deps.probe("imported some")
            self._show(shown)
        except BaseException:
            self._take_back()
            raise

    def _mark(self) -> None:
        now_ms = self._place.now_ms
        empty = ConversationRecord(
            key=self._place.key, epoch=self._place.epoch, created_at_ms=now_ms, saved_at_ms=now_ms
        )
        item: Item = {
            "pk": self._place.key.pk,
            "sk": CONVERSATION,
            **conversation_attributes(empty),
            **_erasing_since(now_ms),
            IMPORTING: self._token,
            "due": due_shard(self._place.key.pk),
        }
        answer = unwrap(self._store.write([Put(item, conditions.free(now_ms))])[0])
        if not isinstance(answer, Applied) and (answer.item or {}).get("epoch") != self._place.epoch:
            raise ConversationExistsError(self._place.key.conversation_id, is_going="erasing" in (answer.item or {}))

    def _mine(self) -> Condition:
        """The mark is this import's still: nobody has begun to erase what it writes."""
        return Equals(IMPORTING, self._token)

    def _renew(self) -> None:
        """Keeps whoever erases away: the mark's age is what they go by."""
        if self._deps.clock.monotonic_ms() - self._renewed_at < RENEW_MS:
            return
        marked = _erasing_since(self._deps.clock.now_ms())
        self._must(Update(self._place_key, set=marked, condition=self._mine()))
        self._renewed_at = self._deps.clock.monotonic_ms()

    def _put(self, items: list[Item]) -> None:
        """Puts items where nothing of another life is in the way."""
        puts = [Put(item, conditions.free(self._place.now_ms)) for item in items]
        self._written += [(str(item["pk"]), str(item["sk"])) for item in items]
        for result in self._store.write(puts) if puts else []:
            answer = unwrap(result)
            if not isinstance(answer, Applied) and (answer.item or {}).get("epoch") != self._place.epoch:
                raise ConversationExistsError(self._place.key.conversation_id)

    def _show(self, shown: ConversationRecord) -> None:
        """Takes the mark away: from here on the conversation is there, whole."""
        change = Update(
            self._place_key,
            set=conversation_attributes(shown),
            remove=("erasing", IMPORTING, "due", "dueAt"),
            condition=self._mine(),
        )
        self._must(change)

    def _must(self, change: Update) -> None:
        answer = unwrap(self._store.write([change])[0])
        if isinstance(answer, Applied):
            return
        item = answer.item or {}
        if item.get("epoch") == self._place.epoch and "erasing" not in item:
            return  # the store was told twice, and the first time had landed
        raise ConversationExistsError(self._place.key.conversation_id, is_going=True)

    def _take_back(self) -> None:
        """Deletes what was written, mark last; what fails here ``reconcile`` does, as for an erasure.

        Only under a new token: where the last write landed and its answer was lost, the conversation is there.
        """
        token = self._deps.random_id(12)
        again = Update(self._place_key, set={IMPORTING: token}, condition=self._mine())
        try:
            if not isinstance(self._store.write([again])[0], Applied):
                return
            self._token = token
            # Only what is this import's: another's turn may lie where it could not put its own.
            own = Equals("epoch", self._place.epoch)
            for result in self._store.write([Delete(key, own) for key in self._written]):
                unwrap(result)
            self._store.write([Delete(self._place_key, self._mine())])
        except StoreUnavailableError as error:
            self._deps.note("import_left", {"cause": type(error).__name__})


def _erasing_since(now_ms: int) -> dict[str, Value]:
    return {"erasing": now_ms, "dueAt": now_ms + LONGEST_LEASE_MS}


def _attended(record: TurnRecord) -> TurnRecord:
    """An open ask gets its execution right away; ``reconcile`` looks whether it has one a minute later."""
    if record.due_at_ms is None:
        return record
    return replace(record, due_at_ms=record.due_at_ms + START_ATTENTION_MS)


def _batches(planned: list[Planned]) -> Iterator[list[Planned]]:
    for at in range(0, len(planned), BATCH):
        yield planned[at : at + BATCH]
