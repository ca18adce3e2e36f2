"""Positions inside cursors, read strictly: what a cursor says is judged like any other word of a caller.

A position names a place by what the caller can see (times, ids, turns). The keys of the table are built here, from the
verified caller, so that no cursor can name a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.entry.http.cursors import CURSOR_RULE
from turnkeep.errors import InvalidRequestError
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, owner_key, turn_of_sk, turn_sk

if TYPE_CHECKING:
    from turnkeep.ledger.store import Item
    from turnkeep.usecases.deps import Caller


def turn(position: Any) -> int | None:
    """The turn behind which a page starts.

    Raises:
        InvalidRequestError: no such position, as in all of these.
    """
    return None if position is None else _whole(position)


def message(position: Any) -> tuple[int, int] | None:
    """The (turn, index) behind which a page starts."""
    if position is None:
        return None
    turn_number, index = _parts(position, 2)
    return _whole(turn_number), _whole(index)


def conversation(position: Any, caller: Caller) -> Item | None:
    """The place in ``byOwner`` behind which a page of the caller's conversations starts."""
    if position is None:
        return None
    saved_at_ms, conversation_id = _parts(position, 2)
    pk = ConversationKey(_text(conversation_id), caller.tenant).pk
    owner = owner_key(caller.tenant, caller.principal or "")
    return {"ownerKey": owner, "savedAt": _whole(saved_at_ms), "pk": pk, "sk": CONVERSATION}


def of_conversation(item: Item | None) -> Any:
    """What a cursor holds of a place in ``byOwner``."""
    return None if item is None else [item["savedAt"], ConversationKey.from_pk(str(item["pk"])).conversation_id]


def ask(position: Any, caller: Caller) -> Item | None:
    """The place in ``byAudience`` behind which a page of open asks starts, in whichever partitions are the caller's."""
    if position is None:
        return None
    asked_at_ms, conversation_id, turn_number = _parts(position, 3)
    pk = ConversationKey(_text(conversation_id), caller.tenant).pk
    return {"askedAt": _whole(asked_at_ms), "pk": pk, "sk": turn_sk(_whole(turn_number))}


def of_ask(item: Item | None) -> Any:
    """What a cursor holds of a place in ``byAudience``."""
    if item is None:
        return None
    conversation_id = ConversationKey.from_pk(str(item["pk"])).conversation_id
    return [item["askedAt"], conversation_id, turn_of_sk(str(item["sk"]))]


def _parts(position: Any, count: int) -> list[Any]:
    if not isinstance(position, list) or len(position) != count:
        raise InvalidRequestError(CURSOR_RULE, fields=["query.cursor"])
    return position


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 10**16:
        raise InvalidRequestError(CURSOR_RULE, fields=["query.cursor"])
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(CURSOR_RULE, fields=["query.cursor"])
    return value
