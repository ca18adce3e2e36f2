"""Listings: a person's own conversations, and the open asks that they may answer. From sparse indexes, paged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from turnkeep.errors import SessionOpNeedsIdentityError, UnreadableError
from turnkeep.ledger.keys import ConversationKey, audience_key, owner_key
from turnkeep.ledger.parsing import conversation_record, is_expired, turn_record
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.ledger.store import Get, IndexQuery, Item, position_of
from turnkeep.usecases.asks import with_whole_asks

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Caller, Deps

ASKS_AT_ONCE: Final = 12
"""How many asks are read at a time: their checkpoints may be large, and a page ends by its size."""


def list_conversations(
    deps: Deps, caller: Caller, *, after: Item | None, limit: int
) -> tuple[list[ConversationRecord], Item | None]:
    """The caller's own conversations, newest first, and where the next page begins (None: no more).

    Raises:
        SessionOpNeedsIdentityError: nobody verified is asking.
    """
    if caller.principal is None:
        raise SessionOpNeedsIdentityError
    partition = owner_key(caller.tenant, caller.principal)
    rows: list[ConversationRecord] = []
    now_ms = deps.clock.now_ms()
    while True:
        query = IndexQuery("byOwner", partition, limit=limit - len(rows), forward=False, after=after)
        (page,) = deps.ledger.store.read([query])
        for item in page.items:
            after = position_of("byOwner", item)
            row = _row(item, now_ms)
            if row is not None:
                rows.append(row)
        if not page.more or not page.items:
            return rows, None
        if len(rows) >= limit:
            return rows, after


def _row(item: Item, now_ms: int) -> ConversationRecord | None:
    """A line of the listing; what has expired, or cannot be read, is not listed (opening it says why)."""
    if is_expired(item, now_ms) or "erasing" in item:
        return None
    try:
        return conversation_record({"epoch": "", **item}, ConversationKey.from_pk(str(item["pk"])))
    except (UnreadableError, ValueError):
        return None


def list_asks(
    deps: Deps, caller: Caller, *, after: Item | None, limit: int, max_bytes: int
) -> tuple[list[TurnRecord], Item | None]:
    """The open asks that the caller may answer, oldest first: their own conversations' and those of their roles.

    Each is read again strongly: an answered one is not shown, however late the index is. All that an ask shows is in
    its record.

    Args:
        deps: the ports.
        caller: who asks.
        after: the position behind which the page begins.
        limit: at most so many asks.
        max_bytes: at most so much that they show, in bytes of JSON; one ask always fits.

    Returns:
        The asks, and where the next page begins (None: no more).

    Raises:
        SessionOpNeedsIdentityError: nobody verified is asking.
    """
    if caller.principal is None:
        raise SessionOpNeedsIdentityError
    audiences = [audience_key(caller.tenant, "owner", caller.principal)]
    audiences += [audience_key(caller.tenant, f"role:{role}", None) for role in sorted(caller.roles)]
    shown: list[TurnRecord] = []
    size_bytes = 0
    while True:
        merged, more = _merged(deps, audiences, after, min(limit, ASKS_AT_ONCE))
        for item, record in zip(merged, _open_asks(deps, caller, merged), strict=True):
            size_bytes += 0 if record is None else _shown_bytes(record)
            if record is not None and (len(shown) == limit or (shown and size_bytes > max_bytes)):
                return shown, after
            if record is not None:
                shown.append(record)
            after = position_of("byAudience", item)
        if not more:
            return shown, None


def _open_asks(deps: Deps, caller: Caller, found: list[Item]) -> list[TurnRecord | None]:
    """What an index shows, read strongly and whole; None for what this caller has not to answer (any more)."""
    now_ms = deps.clock.now_ms()
    pages = deps.ledger.store.read([Get((str(item["pk"]), str(item["sk"]))) for item in found]) if found else []
    records = [_open_ask(page.items, caller, now_ms) for page in pages]
    whole = iter(with_whole_asks(deps, [record for record in records if record is not None]))
    return [None if record is None else next(whole) for record in records]


def _shown_bytes(record: TurnRecord) -> int:
    """About what an ask is in a reply, where its check-in, its ask or its component stand beside the pause data."""
    pause_data = None if record.ask is None else record.ask.pause_data
    return 1_000 + 2 * len(json.dumps(pause_data, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _merged(deps: Deps, audiences: list[str], after: Item | None, limit: int) -> tuple[list[Item], bool]:
    """The oldest asks over all audiences behind a position, in one order: by time, then by key."""
    queries = [
        IndexQuery(
            "byAudience", audience, limit=limit, after=None if after is None else {**after, "audienceKey": audience}
        )
        for audience in audiences
    ]
    pages = deps.ledger.store.read(queries)
    items = [item for page in pages for item in page.items]
    items.sort(key=lambda item: (int(item["askedAt"]), str(item["pk"]), str(item["sk"])))
    return items[:limit], len(items) > limit or any(page.more for page in pages)


def _open_ask(items: list[Item], caller: Caller, now_ms: int) -> TurnRecord | None:
    if not items or is_expired(items[0], now_ms):
        return None
    try:
        record = turn_record(items[0], ConversationKey.from_pk(str(items[0]["pk"])))
    except (UnreadableError, ValueError):
        return None
    if record.status is not Status.AWAITING or record.ask is None or record.ask.expires_at_ms <= now_ms:
        return None
    if record.ask.audience != "owner" and record.principal == caller.principal:
        return None  # a role-holder does not answer in their own conversation
    return record
