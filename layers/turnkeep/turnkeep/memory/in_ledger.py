"""Memory entries on the ledger's own table: beside the turns they come from, erased and expired with them.

An identity's entries lie in the partition of its conversation (``tenant/_/conversationId``), whoever the principal is,
so that erasing a conversation takes them along; the principal is a hash in the sort key. An identity without a
conversation has the partition ``tenant/principal/_``, which is no conversation's.

| sk | what |
|---|---|
| ``SNAP#<who>#<turn>`` | the snapshot ``snap-{turn}`` |
| ``BEAT#<who>#<turn>#<index>`` | the beat ``beat-{turn}-{index}`` |
| ``NOTE#<who>#<id>`` | an entry of any other id |
| ``FEEDBACK#<who>#<sha256 of id>`` | sum and count of an entry's feedback |
| ``SIGNATURE#<who>#<sha256 of signature>`` | that it was recorded |

An entry is kept as JSON text, so that its numbers come back to the last digit. Reads are counted beside the text by
DynamoDB's own addition, which loses none to another reader.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from turnkeep.clock import Clock, SystemClock
from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError, UnstorableValueError
from turnkeep.identity import identity_namespace, namespace_segment
from turnkeep.json_values import is_number
from turnkeep.ledger.codec import pack_text, to_text, unpack
from turnkeep.ledger.keys import number
from turnkeep.ledger.store import Applied as Written
from turnkeep.ledger.store import (
    AtMost,
    Condition,
    Delete,
    Equals,
    Get,
    Item,
    ItemStore,
    Missing,
    Present,
    Put,
    Query,
    Update,
    all_of,
    any_of,
    unwrap,
)
from turnkeep.memory.entries import MAX_ID_BYTES, Entry, Identity, Kind, beat_id, entry_text, place_of, snapshot_id
from turnkeep.memory.paging import read_cursor, write_cursor
from turnkeep.memory.ranking import most_alike
from turnkeep.memory.store import DEFAULT_K, DEFAULT_LIMIT, Applied, Feedback, Found, Page, bounded_limit, in_tiers

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

MEMORY_V1: Final = "memory-v1"
MAX_STORED_BYTES: Final = 380_000
"""Of an entry's text as it is kept (compressed where that is smaller): an item ends at 400 KB, keys included."""

_ENTRIES: Final = ("SNAP", "BEAT", "NOTE")
_BESIDE: Final = ("FEEDBACK", "SIGNATURE")
_LATEST_MS: Final = 10**16
"""Later than any clock: such an expiry is none."""


class LedgerMemory:
    """Implements ``SearchableMemoryStore`` on an item store. See there for what each method does.

    Listing and searching read all entries of the identity: right for what a conversation leaves behind, not for a
    library of documents. ``newest`` reads only as much as it returns.

    Args:
        store: the ledger's table.
        clock: for what has expired by now.
    """

    supports_vector_search: Final = True
    ranks_by: Final[Literal["vector"]] = "vector"

    def __init__(self, store: ItemStore, clock: Clock | None = None) -> None:
        self._store = store
        self._clock: Clock = SystemClock() if clock is None else clock

    # --- writing --------------------------------------------------------------------------------------------

    def put(self, identity: Identity, entry: Entry) -> None:
        """Stores an entry, replacing the whole one of that id."""
        self.put_many(identity, [entry])

    def put_many(self, identity: Identity, entries: Sequence[Entry]) -> None:
        """Checks all of the entries, then puts each. One round trip; none for none."""
        home = _Home(identity)
        items = {entry["id"]: item for entry in entries if (item := self._item(home, entry))}
        for result in self._store.write([Put(item) for item in items.values()]) if items else []:
            unwrap(result)

    def put_if_version(self, identity: Identity, entry: Entry, expected_version: float) -> Applied:
        """Puts an entry if the stored one has the expected version. One round trip; two over an entry with a ttl."""
        item = self._item(_Home(identity), entry)
        now_ms = self._clock.now_ms()
        expires: Condition = Missing("expiresAt")
        while True:
            condition = all_of(Equals("version", _canonical(expected_version)), expires)
            if expected_version == 0:
                condition = any_of(Missing("pk"), AtMost("expiresAt", now_ms), condition)
            answer = unwrap(self._store.write([Put(item, condition)])[0])
            # An earlier try of this very put may have landed, its answer lost.
            if isinstance(answer, Written) or (answer.item or {}).get("revision") == item["revision"]:
                return Applied(applied=True)
            current = None if answer.item is None or _expired(answer.item, now_ms) else _version(answer.item)
            if (0 if current is None else current) != expected_version:
                return Applied(applied=False, current_version=current)
            # It is the expected one, with a ttl that has not come: to be replaced as long as it is that one.
            seen = (answer.item or {}).get("expiresAt")
            expires = Missing("expiresAt") if seen is None else Equals("expiresAt", seen)

    def delete(self, identity: Identity, entry_id: str) -> None:
        """Removes an entry and its feedback."""
        home = _Home(identity)
        if _is_possible(entry_id):
            gone = [Delete(home.entry(entry_id)), Delete(home.beside("FEEDBACK", entry_id))]
            for result in self._store.write(gone):
                unwrap(result)

    def forget(self, identity: Identity) -> None:
        """Removes all of this identity, in batches (no function of the stack but the erasing ones may do that)."""
        home = _Home(identity)
        keys_only = ("pk", "sk")
        pages = self._store.read([home.all_of(kind, attributes=keys_only) for kind in (*_ENTRIES, *_BESIDE)])
        found = [(str(item["pk"]), str(item["sk"])) for page in pages for item in page.items]
        if found:
            self._store.delete(found)

    # --- reading --------------------------------------------------------------------------------------------

    def get(self, identity: Identity, entry_id: str) -> Entry | None:
        """One live entry, counted as read. One round trip."""
        home = _Home(identity)
        if not _is_possible(entry_id):
            return None
        now_ms = self._clock.now_ms()
        key = home.entry(entry_id)
        count = Update(key, set={"readAt": now_ms}, add={"reads": 1}, condition=Present("pk"), wants_item=True)
        answer = unwrap(self._store.write([count])[0])
        if not isinstance(answer, Written) or answer.item is None:
            return None
        if _expired(answer.item, now_ms):
            unwrap(self._store.write([Delete(key, AtMost("expiresAt", now_ms))])[0])
            return None
        return home.entry_of(answer.item)

    def list(
        self,
        identity: Identity,
        *,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
        tiers: Collection[str] | None = None,
    ) -> Page:
        """One page of live entries, newest first; those of one moment by id."""
        home = _Home(identity)
        after = None if cursor is None else read_cursor(cursor, identity, numbered=False)
        limit = bounded_limit(limit)
        rows = sorted(((_position(home, item), item) for item in self._live(home, tiers)), key=lambda row: row[0])
        if after is not None:
            rows = [row for row in rows if row[0] > (-after[0], after[1])]
        page = rows[:limit]
        last = page[-1][0] if len(rows) > limit else None
        more = None if last is None else write_cursor(identity, -last[0], last[1])
        return Page([home.entry_of(item) for _, item in page], more)

    def newest(self, identity: Identity, kind: Kind, count: int) -> Sequence[Entry] | None:
        """The live beats or snapshots of the newest turns, newest first, read backwards: at most ``count``.

        Returns:
            None for a kind that is not kept in the order of its turns here.
        """
        home = _Home(identity)
        names = {"beat": "BEAT", "snap": "SNAP"}
        if kind not in names:
            return None
        found: list[Entry] = []
        query = home.all_of(names[kind], limit=max(1, count), forward=False)
        while count > 0:
            (page,) = self._store.read([query])
            now_ms = self._clock.now_ms()
            found += [home.entry_of(item) for item in page.items if not _expired(item, now_ms)]
            if len(found) >= count or not page.more:
                break
            query = home.all_of(names[kind], limit=count, forward=False, below=str(page.items[-1]["sk"]))
        return found[: max(0, count)]

    def search(
        self,
        identity: Identity,
        vector: Sequence[float],
        *,
        k: int = DEFAULT_K,
        tiers: Collection[str] | None = None,
        min_score: float | None = None,
        embedder_id: str | None = None,
        text: str | None = None,
    ) -> Sequence[Found]:
        """The live entries most like a vector."""
        home = _Home(identity)
        entries = [home.entry_of(item) for item in self._live(home, tiers)]
        return most_alike(entries, vector, k=k, min_score=min_score, embedder_id=embedder_id)

    # --- recognition and feedback ---------------------------------------------------------------------------

    def seen(self, identity: Identity, signature: str) -> bool:
        """Whether the signature was recorded."""
        (page,) = self._store.read([Get(_Home(identity).beside("SIGNATURE", signature))])
        return bool(page.items)

    def record_signature(self, identity: Identity, signature: str) -> None:
        """Records a signature."""
        pk, sk = _Home(identity).beside("SIGNATURE", signature)
        unwrap(self._store.write([Put({"pk": pk, "sk": sk, "format": MEMORY_V1})])[0])

    def feedback(self, identity: Identity, entry_id: str, usefulness: float) -> None:
        """Adds feedback, clamped to [-1, 1]. Two round trips, more beside others who give some at once."""
        key = _Home(identity).beside("FEEDBACK", entry_id)
        if not is_number(usefulness) or not math.isfinite(usefulness):
            return
        (page,) = self._store.read([Get(key)])
        before = page.items[0] if page.items else None
        given, mine = max(-1.0, min(1.0, usefulness)), uuid.uuid4().hex
        while True:
            total, count = _opinion(before)
            item: Item = {"pk": key[0], "sk": key[1], "format": MEMORY_V1, "revision": mine}
            item |= {"total": to_text(total + given), "count": count + 1}
            as_read: Condition = Missing("pk") if before is None else Equals("revision", before["revision"])
            answer = unwrap(self._store.write([Put(item, as_read)])[0])
            if isinstance(answer, Written) or (answer.item or {}).get("revision") == mine:
                return
            before = answer.item

    def get_feedback(self, identity: Identity, entry_id: str) -> Feedback | None:
        """The feedback's average and count."""
        (page,) = self._store.read([Get(_Home(identity).beside("FEEDBACK", entry_id))])
        total, count = _opinion(page.items[0] if page.items else None)
        return Feedback(total / count, count) if count else None

    # --- items ----------------------------------------------------------------------------------------------

    def _item(self, home: _Home, entry: Entry) -> Item:
        """The item of an entry.

        Raises:
            UnstorableValueError: it is no entry, or larger than an item can be.
        """
        text = entry_text(entry)
        packed = pack_text(text)
        size = len(packed if isinstance(packed, bytes) else packed.encode())
        if size > MAX_STORED_BYTES:
            raise UnstorableValueError(path="entry", reason=f"{size} bytes, over the limit of {MAX_STORED_BYTES}")
        pk, sk = home.entry(entry["id"])
        item: Item = {
            "pk": pk,
            "sk": sk,
            "format": MEMORY_V1,
            "entry": packed,
            "updatedAt": to_text(entry["updatedAt"]),
            "version": _canonical(entry["version"]),
            "revision": uuid.uuid4().hex,
        }
        if "tier" in entry:
            item["tier"] = entry["tier"]
        ttl: Any = entry.get("ttl")
        if is_number(ttl) and ttl < _LATEST_MS:
            expires_at = max(0, math.ceil(ttl))
            # DynamoDB deletes nothing whose time is years past; what has expired already expires now.
            item |= {"expiresAt": expires_at, "deleteAfter_s": -(-max(expires_at, self._clock.now_ms()) // 1000)}
        return item

    def _live(self, home: _Home, tiers: Collection[str] | None) -> Sequence[Item]:
        pages = self._store.read([home.all_of(kind) for kind in _ENTRIES])
        now_ms = self._clock.now_ms()
        found = [item for page in pages for item in page.items if not _expired(item, now_ms)]
        return [item for item in found if in_tiers(item.get("tier"), tiers)]


class _Home:
    """Where the items of one identity lie."""

    def __init__(self, identity: Identity) -> None:
        identity_namespace(identity)  # refuses what is no identity, in every operation alike
        principal = identity.get("principal")
        self.conversation_id: str | None = identity.get("conversationId") or None
        only = {} if self.conversation_id else {"principal": principal}
        self.pk = identity_namespace({"tenant": identity.get("tenant"), "conversationId": self.conversation_id, **only})
        self.who = _hash(namespace_segment(principal))[:32] if principal else "_"

    def entry(self, entry_id: str) -> tuple[str, str]:
        """The key of an entry."""
        place = place_of(entry_id)
        if place is not None and place.kind == "snap" and entry_id == snapshot_id(place.turn):
            return self.pk, f"SNAP#{self.who}#{number(place.turn)}"
        if place is not None and place.kind == "beat" and entry_id == beat_id(place.turn, place.index):
            return self.pk, f"BEAT#{self.who}#{number(place.turn)}#{number(place.index)}"
        return self.pk, f"NOTE#{self.who}#{entry_id}"

    def beside(self, kind: str, name: str) -> tuple[str, str]:
        """The key of what is kept under a name of any length."""
        return self.pk, f"{kind}#{self.who}#{_hash(name)}"

    def all_of(
        self,
        kind: str,
        *,
        limit: int | None = None,
        forward: bool = True,
        attributes: tuple[str, ...] | None = None,
        below: str | None = None,
    ) -> Query:
        """All items of one kind; ``below``, a sort key that ends in a number, leaves out itself and those behind it."""
        # One character lower at the end is the next text below it among keys of one length.
        high = f"{kind}#{self.who}$" if below is None else below[:-1] + chr(ord(below[-1]) - 1)
        return Query(self.pk, f"{kind}#{self.who}#", high, limit=limit, forward=forward, attributes=attributes)

    def entry_of(self, item: Item) -> Entry:
        """The entry that an item keeps, its reads counted in.

        Raises:
            UnknownStoredFormatError: a newer release wrote it.
            MalformedStoredItemError: it cannot be read.
        """
        self._check_format(item)
        try:
            entry = unpack(item.get("entry"))
            reads, read_at = item.get("reads"), item.get("readAt")
            if isinstance(reads, int):
                entry["accessCount"] += reads
                entry["lastAccessedAt"] = read_at
            return cast("Entry", entry)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedStoredItemError(
                found=MEMORY_V1, part="entry", conversation_id=self.conversation_id
            ) from error

    def _check_format(self, item: Item) -> None:
        if item.get("format") != MEMORY_V1:
            raise UnknownStoredFormatError(
                found=str(item.get("format", "(none)")), known=[MEMORY_V1], conversation_id=self.conversation_id
            )


def _position(home: _Home, item: Item) -> tuple[float, str]:
    """Sorts newest first, ties by id."""
    try:
        updated_at = json.loads(str(item["updatedAt"]))
    except (ValueError, KeyError):
        updated_at = home.entry_of(item)["updatedAt"]
    return -updated_at, str(item["sk"])


def _expired(item: Item, now_ms: int) -> bool:
    expires_at = item.get("expiresAt")
    return isinstance(expires_at, int) and expires_at <= now_ms


def _canonical(version: float) -> str:
    """A version as text that is equal exactly where the numbers are."""
    return str(int(version)) if isinstance(version, int) or version.is_integer() else repr(version)


def _version(item: Item) -> float:
    return cast("float", json.loads(str(item["version"])))


def _opinion(item: Item | None) -> tuple[float, int]:
    if item is None:
        return 0.0, 0
    return float(json.loads(str(item["total"]))), int(item["count"])


def _is_possible(entry_id: object) -> bool:
    """Whether an entry of this id can be stored; no other one is asked for."""
    if not isinstance(entry_id, str) or entry_id == "":
        return False
    try:
        return len(entry_id.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
