"""Listings: a person's own conversations, and the open asks that they may answer. From sparse indexes, paged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.errors import SessionOpNeedsIdentityError, UnreadableError
from turnkeep.ledger.keys import ConversationKey, audience_key, owner_key
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord, conversation_record, is_expired, turn_record
from turnkeep.ledger.store import Get, IndexQuery, Item, position_of

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Caller, Deps


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


def list_asks(deps: Deps, caller: Caller, *, after: Item | None, limit: int) -> tuple[list[TurnRecord], Item | None]:
    """The open asks that the caller may answer, oldest first: their own conversations' and those of their roles.

    Each is read again strongly: an answered one is not shown, however late the index is.

    Raises:
        SessionOpNeedsIdentityError: nobody verified is asking.
    """
    if caller.principal is None:
        raise SessionOpNeedsIdentityError
    audiences = [audience_key(caller.tenant, "owner", caller.principal)]
    audiences += [audience_key(caller.tenant, f"role:{role}", None) for role in sorted(caller.roles)]
    shown: list[TurnRecord] = []
    while True:
        merged, more = _merged(deps, audiences, after, limit)
        now_ms = deps.clock.now_ms()
        pages = deps.ledger.store.read([Get((str(item["pk"]), str(item["sk"]))) for item in merged]) if merged else []
        for item, page in zip(merged, pages, strict=True):
            after = position_of("byAudience", item)
            record = _open_ask(page.items, caller, now_ms)
            if record is not None:
                shown.append(record)
                if len(shown) == limit:
                    return shown, after if more or item is not merged[-1] else None
        if not more:
            return shown, None


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
