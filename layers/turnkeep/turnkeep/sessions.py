"""The session store of CONTRACT.md 10 on the ledger: envelopes in and out, kept as turns (17.10).

For a host that knows sessions and envelopes and nothing of turns. It sees the very conversations that turnkeep's own
doors serve: a conversation of theirs is handed out as an envelope, and one that is put here goes on there.

A ``persist`` whose history begins with the stored one adds turns; any other begins a new life of the conversation (a
new epoch) and drops the old one. Either is one transaction, ownership decided in it: a reader finds the whole of one
writer's envelope or the whole of another's.
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from turnkeep.envelope import CONVERSATION_FORMAT, check_envelope, envelope_owner
from turnkeep.errors import ConversationExistsError, InvalidRequestError, SessionNotFoundError, StoreUnavailableError
from turnkeep.ids import check_conversation_id, from_base64url, mint_epoch, to_base64url
from turnkeep.json_values import same_json
from turnkeep.ledger import conditions
from turnkeep.ledger.items import conversation_attributes, turn_item
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, owner_key
from turnkeep.ledger.store import AllOf, Applied, Condition, Equals, Item, Missing, Put, Query, unwrap
from turnkeep.ownership import resolve_session_owner
from turnkeep.retention import BackendRetention
from turnkeep.usecases.as_envelope import envelope_of
from turnkeep.usecases.as_turns import Place, Planned, plan_turns
from turnkeep.usecases.deps import Caller, Deps, FixedDeadline, Settings
from turnkeep.usecases.erase import erase_as_operator
from turnkeep.usecases.listing import list_conversations
from turnkeep.usecases.shell import conversation_in
from turnkeep.usecases.state import delete_after_s
from turnkeep.usecases.waiting import between_looks_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import HostedAgent, TurnInfo
    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.ledger import Ledger
    from turnkeep.ledger.records import ConversationRecord, TurnRecord

MOST_TURNS: Final = 90
"""Records of one ``persist``: DynamoDB takes 100 items in a transaction. A longer history has neighbours joined."""

MOST_TRIES: Final = 12
FORGET_MS: Final = 60_000
SWEEP_ITEMS: Final = 200
DEFAULT_LIMIT: Final = 50


@dataclass(frozen=True)
class SessionPage:
    """A page of a listing.

    Attributes:
        sessions: rows ``{"sessionId", "savedAt", "format", "messageCount"}``, newest first.
        cursor: where the next page begins; None on the last one.
    """

    sessions: list[dict[str, Any]] = field(default_factory=list)
    cursor: str | None = None


class SessionStore:
    """Sessions on the ledger.

    Args:
        ledger: where they are kept.
        tenant: whose sessions these are, inside a stack with tenants; None outside of any.
        settings: retention and how long an ask stays open.
        wake: told before a session is hydrated, with its id and why (``invoke``, ``resume``, ``artifact``,
            ``transcript``); what it raises fails the request.
        random_id: mints ids that nobody can guess, URL-safe text of so many random bytes.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        tenant: str | None = None,
        settings: Settings | None = None,
        wake: Callable[[str, str], None] | None = None,
        random_id: Callable[[int], str] = secrets.token_urlsafe,
    ) -> None:
        quiet = _NoPorts()
        self._deps = Deps(
            ledger=ledger,
            clock=ledger.clock,
            factory=quiet.build,
            gate=quiet,
            doorbell=quiet,
            events=quiet,
            settings=settings or Settings(),
            random_id=random_id,
        )
        self._tenant, self._wake = tenant, wake

    # --- the port -------------------------------------------------------------------------------------------

    def on_wake(self, session_id: str, reason: str) -> None:
        """Says that a session is about to be read, and why."""
        if self._wake is not None:
            self._wake(session_id, reason)

    def hydrate(self, session_id: str) -> dict[str, Any] | None:
        """The session's envelope; None only where nothing was ever stored, or it was forgotten or has expired.

        Raises:
            UnreadableError: something is stored and cannot be read, by name.
            StoreUnavailableError: the store did not answer.
        """
        ledger = self._deps.ledger
        return envelope_of(ledger, ledger.hydrate(self._key(session_id)))

    def persist(self, session_id: str, envelope: Any) -> None:
        """Stores an envelope; the last write wins, and the first signer owns.

        An open ask in it is waited for from now on. Nothing is changed by storing again what is there.

        Raises:
            SessionOwnershipConflictError: somebody else signed what is stored; nothing was written.
            EnvelopeError: this is no envelope; nothing was written.
            UnreadableError: what is stored cannot be read; it is not overwritten.
            ConversationExistsError: the session is being erased.
            StoreUnavailableError: the store did not answer, or too many others write; storing again is harmless.
        """
        key = self._key(session_id)
        checked: dict[str, Any] = check_envelope(envelope, session_id)
        for _ in range(MOST_TRIES):
            found = self._deps.ledger.hydrate(key)
            if found.erasing:
                raise ConversationExistsError(session_id, is_going=True)
            owner = resolve_session_owner(session_id, found.owner if found.exists else None, envelope_owner(checked))
            stored = envelope_of(self._deps.ledger, found)
            if (stored is not None and same_json(stored, checked)) or self._write(found, stored, checked, owner):
                return
            self._deps.clock.sleep_ms(between_looks_ms())
        raise StoreUnavailableError

    def list_by_user(self, user_id: str, *, cursor: str | None = None, limit: float = DEFAULT_LIMIT) -> SessionPage:
        """A page of the sessions that a person owns, newest ``savedAt`` first. Sessions of nobody are in no list.

        Args:
            user_id: the person.
            cursor: as the page before gave it, for the same person.
            limit: at most so many rows; floored, and at least 1.

        Raises:
            InvalidRequestError: the cursor was not made for this person's listing.
        """
        after = None if cursor is None else self._read_cursor(user_id, cursor)
        if not user_id:
            return SessionPage()
        caller = Caller(principal=user_id, tenant=self._tenant)
        rows = max(1, math.floor(limit))
        records, following = list_conversations(self._deps, caller, after=after, limit=rows)
        sessions = [
            {
                "sessionId": record.key.conversation_id,
                "savedAt": record.saved_at_ms,
                "format": record.format,
                "messageCount": record.message_count,
            }
            for record in records
        ]
        return SessionPage(sessions, None if following is None else self._make_cursor(user_id, following))

    def owner_of(self, session_id: str) -> str | None:
        """Who owns the session; None for a missing one and for one of nobody."""
        found = self._deps.ledger.hydrate(self._key(session_id), history=False)
        return found.owner if found.exists else None

    def retention(self) -> BackendRetention:
        """Who deletes what is old: DynamoDB, by its TTL attribute, where the stack stamps it."""
        return BackendRetention(
            active=self._deps.settings.retention_days > 0,
            expires_on="deleteAfter_s",
            enable_with=(
                "Deploy the stack with RetentionDays=N (TURNKEEP_RETENTION_DAYS where there is no stack) and keep TTL "
                "enabled on the table's attribute deleteAfter_s; turns written from then on expire after N days."
            ),
        )

    def forget(self, session_id: str) -> None:
        """Erases the session, all of it; quiet where there is none.

        Its id is free again when the second pass of the erasure is through, a quarter of an hour later.
        """
        deadline = FixedDeadline.after(self._deps.clock, FORGET_MS)
        try:
            erase_as_operator(self._deps, self._key(session_id), deadline=deadline)
        except SessionNotFoundError:
            return

    # --- writing --------------------------------------------------------------------------------------------

    def _write(
        self, found: Hydrated, stored: dict[str, Any] | None, envelope: dict[str, Any], owner: str | None
    ) -> bool:
        """One try; False where somebody else wrote in between and it has to be looked at again."""
        known = found.conversation()
        turns = found.turns()
        skip = _extends(stored, envelope, turns)
        last = turns[-1] if turns else None
        place = Place(
            key=found.key,
            epoch=mint_epoch(self._deps.random_id),
            owner=owner,
            now_ms=self._deps.clock.now_ms(),
            ask_expires_s=self._deps.settings.ask_expires_s,
            random_id=self._deps.random_id,
            after=found.highest,
            delete_after_s=delete_after_s(self._deps, last),
        )
        if skip is not None and last is not None:
            base_count = last.base_count + last.shown_count
            place = replace(place, epoch=last.epoch, previous=found.highest, base_count=base_count)
        planned, shown = plan_turns(envelope, place, skip=skip or 0, at_most=MOST_TURNS)
        if known is not None:
            shown = replace(shown, created_at_ms=known.created_at_ms)
        if not self._put(found, planned, shown):
            return False
        if found.epoch is not None and found.epoch != place.epoch:
            self._drop(found.key, found.epoch)
        return True

    def _put(self, found: Hydrated, planned: list[Planned], shown: ConversationRecord) -> bool:
        """Segments first, which nobody sees, then all records and CONVERSATION at once."""
        store = self._deps.ledger.store
        segments = [item for one in planned for item in one.segments]
        for result in store.write([Put(item, conditions.free(found.now_ms)) for item in segments]) if segments else []:
            unwrap(result)
        item: Item = {"pk": found.key.pk, "sk": CONVERSATION, **conversation_attributes(shown)}
        turns = [Put(turn_item(one.record), conditions.free(found.now_ms)) for one in planned]
        results = store.transact([Put(item, _unchanged(found)), *turns])
        if all(isinstance(result, Applied) for result in results):
            return True
        store.delete([(str(item["pk"]), str(item["sk"])) for item in segments])
        return False

    def _drop(self, key: ConversationKey, epoch: str) -> None:
        """Deletes an earlier life's items, which no reader takes any more."""
        store = self._deps.ledger.store
        low = "!"
        while True:
            query = Query(key.pk, low, "~", limit=SWEEP_ITEMS, attributes=("pk", "sk", "epoch"))
            (page,) = store.read([query])
            old = [(str(item["pk"]), str(item["sk"])) for item in page.items if item.get("epoch") == epoch]
            if old:
                store.delete(old)
            if not page.more or not page.items:
                return
            low = str(page.items[-1]["sk"]) + "\0"

    # --- ids and cursors ------------------------------------------------------------------------------------

    def _key(self, session_id: str) -> ConversationKey:
        return ConversationKey(check_conversation_id(session_id, self._tenant), self._tenant)

    def _make_cursor(self, user_id: str, position: Item) -> str:
        conversation_id = ConversationKey.from_pk(str(position["pk"])).conversation_id
        text = json.dumps([position["savedAt"], conversation_id], separators=(",", ":")).encode()
        return to_base64url(self._seal(user_id, text) + text)

    def _read_cursor(self, user_id: str, cursor: str) -> Item:
        try:
            raw = from_base64url(cursor)
            seal, text = raw[:12], raw[12:]
            if seal != self._seal(user_id, text):
                raise ValueError("not made here, or for somebody else")
            saved_at_ms, conversation_id = json.loads(text)
        except ValueError as error:
            raise InvalidRequestError("This cursor was not made for this listing.", fields=["cursor"]) from error
        pk = ConversationKey(conversation_id, self._tenant).pk
        return {"ownerKey": owner_key(self._tenant, user_id), "savedAt": saved_at_ms, "pk": pk, "sk": CONVERSATION}

    def _seal(self, user_id: str, text: bytes) -> bytes:
        return sha256(json.dumps([self._tenant, user_id]).encode() + b"\n" + text).digest()[:12]


class _NoPorts:
    """What a session store has no use for: it runs no agent, starts nothing and tells nobody.

    An ask that it stores is in the index of what is due, so a stack's ``reconcile`` starts its execution.
    """

    def build(self, info: TurnInfo) -> HostedAgent:
        raise RuntimeError("a session store runs no agent")

    def start(self, record: TurnRecord) -> None:
        return None

    def signal(self, token: str) -> bool:
        return False

    def stop(self, record: TurnRecord, cause: str) -> None:
        return None

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        return None

    def tell(self, kind: str, record: TurnRecord) -> None:
        return None


def _unchanged(found: Hydrated) -> Condition:
    """CONVERSATION is still what was read: absent, or the same life of the same owner."""
    item = found.conversation_item
    if item is None:
        return conditions.free(found.now_ms)
    owner = item.get("owner")
    return AllOf(
        (
            Equals("epoch", item["epoch"]),
            Missing("erasing"),
            Missing("owner") if owner is None else Equals("owner", owner),
        )
    )


def _extends(stored: dict[str, Any] | None, envelope: dict[str, Any], turns: list[TurnRecord]) -> int | None:
    """How many messages of the envelope's history are stored already, where all it does is to add turns; else None."""
    if stored is None or stored["format"] != CONVERSATION_FORMAT or any(turn.is_open for turn in turns):
        return None
    before, history = stored["data"]["history"], conversation_in(envelope)["history"]
    longer = len(history) > len(before) and history[len(before)]["role"] == "user"
    return len(before) if longer and same_json(history[: len(before)], before) else None
