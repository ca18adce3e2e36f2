"""Items as records: read strictly. What a newer release wrote, and what lacks a part, is refused by name (invariant 4).

The few facts that are needed before anybody may judge an item (its owner, whether it has expired) are read leniently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError
from turnkeep.ledger.codec import from_text, unpack_text
from turnkeep.ledger.items import began_ms, hash_value, shown_in
from turnkeep.ledger.keys import ConversationKey, turn_of_sk
from turnkeep.ledger.records import (
    KNOWN_FORMATS,
    REQUEST_V1,
    SKIPPED_V1,
    Ask,
    ConversationRecord,
    Decision,
    PastAsk,
    RequestRecord,
    Status,
    TurnRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnkeep.ledger.store import Item


class _Reader:
    """Reads one item's attributes strictly, and names the part that cannot be read."""

    def __init__(self, item: Item, known: Iterable[str], *, conversation_id: str | None = None) -> None:
        self.item, self.conversation_id = item, conversation_id
        found = item.get("format")
        if not isinstance(found, str):
            raise MalformedStoredItemError(found="unknown", part="format", conversation_id=conversation_id)
        if found not in set(known):
            raise UnknownStoredFormatError(found=found[:64], known=list(known), conversation_id=conversation_id)
        self.format = found

    def fail(self, part: str) -> MalformedStoredItemError:
        return MalformedStoredItemError(found=self.format, part=part, conversation_id=self.conversation_id)

    def text(self, name: str) -> str:
        value = self.item.get(name)
        if not isinstance(value, str):
            raise self.fail(name)
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if name not in self.item else self.text(name)

    def maybe_hash(self, name: str) -> str | None:
        value = self.item.get(name)
        return value.hex() if isinstance(value, bytes) else self.maybe_text(name)

    def integer(self, name: str) -> int:
        value = self.item.get(name)
        if not isinstance(value, int):
            raise self.fail(name)
        return value

    def maybe_integer(self, name: str, default: int = 0) -> int:
        return default if name not in self.item else self.integer(name)

    def json_text(self, name: str, *, behind: str = "") -> str:
        try:
            return unpack_text(self.item[name], behind=behind)
        except (KeyError, ValueError) as error:
            raise self.fail(name) from error

    def json(self, name: str, *, behind: str = "") -> Any:
        try:
            return from_text(self.json_text(name, behind=behind))
        except ValueError as error:
            raise self.fail(name) from error

    def maybe_object(self, name: str, *, behind: str = "") -> dict[str, Any] | None:
        if name not in self.item:
            return None
        value = self.json(name, behind=behind)
        if not isinstance(value, dict):
            raise self.fail(name)
        return value

    def rows(self, name: str, *kinds: type) -> list[list[Any]]:
        """A list of rows whose columns are of these types; empty where it is not there."""
        found = self.json(name) if name in self.item else []
        if not isinstance(found, list):
            raise self.fail(name)
        for row in found:
            if not isinstance(row, list) or [type(one) for one in row] != list(kinds):
                raise self.fail(name)
        return found

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        return tuple((row[0], row[1]) for row in self.rows(name, int, int))


def turn_record(item: Item, key: ConversationKey) -> TurnRecord:
    """The record of a TURN item.

    Raises:
        UnknownStoredFormatError: a format that this release does not know.
        MalformedStoredItemError: a known format with a part missing or unreadable.
    """
    read = _Reader(item, [*KNOWN_FORMATS, SKIPPED_V1], conversation_id=key.conversation_id)
    try:
        turn = turn_of_sk(read.text("sk"))
        status = Status(read.text("status"))
    except ValueError as error:
        raise read.fail("status") from error
    adopted = read.pairs("adopted")
    segments = read.maybe_integer("segments")
    user_text = read.json_text("user") if "user" in item else ""
    user = read.maybe_object("user")
    if user is None and status is not Status.SKIPPED and not (adopted or segments):
        raise read.fail("user")
    body = read.maybe_object("body", behind=user_text) or {}
    decision = _decision(read)
    run_id = read.maybe_text("runId") or ""
    record = TurnRecord(
        key=key,
        turn=turn,
        status=status,
        epoch=read.text("epoch"),
        format=read.format,
        attempt=read.maybe_integer("attempt", 1),
        run_id=run_id,
        lease_until_ms=read.maybe_integer("leaseUntil"),
        principal=read.maybe_text("principal"),
        previous=read.maybe_integer("previous", turn - 1),
        started_at_ms=read.maybe_integer("startedAt", began_ms(run_id)),
        saved_at_ms=read.maybe_integer("savedAt"),
        base_count=read.maybe_integer("before"),
        shown_count=read.maybe_integer("shown"),
        user=user,
        messages=_messages(read, body),
        segments=segments,
        adopted=adopted,
        checkpoint_segment=_checkpoint(read),
        usage=_part(read, body, "usage", dict) or {},
        evidence=_part(read, body, "evidence", dict) or {},
        agent_id=_part(read, body, "agentId", str),
        agent_version=_part(read, body, "agentVersion", str),
        request=read.maybe_hash("request"),
        digest=read.maybe_hash("digest"),
        claim_id=read.maybe_text("claim"),
        iteration=_part(read, body, "iteration", int) or 0,
        ask=_ask(read),
        past_asks=_past_asks(read),
        decision=decision,
        task_token=read.maybe_text("taskToken"),
        start_number=read.maybe_integer("starts", 1),
        execution_ask=read.maybe_text("startedFor"),
        due_at_ms=read.integer("dueAt") if "dueAt" in item else None,
        error=_part(read, body, "error", dict),
        answered_mark=_mark(read, decision),
        delete_after_s=read.integer("deleteAfter_s") if "deleteAfter_s" in item else None,
    )
    return record if "shown" in item else replace(record, shown_count=shown_in(record))


def _part(read: _Reader, body: dict[str, Any], name: str, kind: type) -> Any:
    """A part of the body; None where it is not there."""
    value = body.get(name)
    if value is not None and type(value) is not kind:
        raise read.fail(f"body.{name}")
    return value


def _messages(read: _Reader, body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    found = _part(read, body, "messages", list) or []
    if not all(isinstance(message, dict) for message in found):
        raise read.fail("body.messages")
    return tuple(found)


def _checkpoint(read: _Reader) -> tuple[int, int] | None:
    if "checkpoint" not in read.item:
        return None
    found = read.json("checkpoint")
    if not isinstance(found, list) or len(found) != 2 or not all(type(one) is int for one in found):
        raise read.fail("checkpoint")
    return found[0], found[1]


def _ask(read: _Reader) -> Ask | None:
    if "askId" not in read.item:
        return None
    return Ask(
        ask_id=read.text("askId"),
        audience=read.text("audience"),
        pause_data=read.json("ask"),
        asked_at_ms=read.integer("askedAt"),
        expires_at_ms=read.integer("expiresAt"),
        whole="askPart" not in read.item,
    )


def _past_asks(read: _Reader) -> tuple[PastAsk, ...]:
    return tuple(PastAsk(*row) for row in read.rows("pastAsks", str, str, int, str, str))


def _decision(read: _Reader) -> Decision | None:
    if "decision" not in read.item:
        return None
    return Decision(
        ask_id=read.text("decisionFor"),
        value=read.json("decision"),
        answered_by=read.maybe_text("answeredBy"),
        answered_at_ms=read.integer("answeredAt"),
        mark=read.text("decisionMark"),
        parts=read.maybe_integer("decisionParts"),
    )


def _mark(read: _Reader, decision: Decision | None) -> dict[str, Any] | None:
    mark = read.maybe_object("answered")
    if mark is not None and "decision" not in mark and decision is not None:
        return {"decision": decision.value, **mark}
    return mark


def conversation_record(item: Item, key: ConversationKey) -> ConversationRecord:
    """The record of a CONVERSATION item.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: as ``turn_record``.
    """
    read = _Reader(item, KNOWN_FORMATS, conversation_id=key.conversation_id)
    return ConversationRecord(
        key=key,
        epoch=read.text("epoch"),
        owner=read.maybe_text("owner"),
        created_at_ms=read.maybe_integer("createdAt"),
        saved_at_ms=read.integer("savedAt"),
        turn=read.integer("turn"),
        attempt=read.maybe_integer("attempt"),
        status=read.maybe_text("status") or "",
        format=read.format,
        message_count=read.maybe_integer("messageCount"),
        agent_id=read.maybe_text("agentId"),
        agent_version=read.maybe_text("agentVersion"),
        erasing="erasing" in item,
        delete_after_s=read.integer("deleteAfter_s") if "deleteAfter_s" in item else None,
    )


def request_record(item: Item, hashed: str) -> RequestRecord:
    """The record of a REQUEST item.

    Raises:
        UnknownStoredFormatError, MalformedStoredItemError: as ``turn_record``.
    """
    read = _Reader(item, [REQUEST_V1])
    digest = read.maybe_hash("digest")
    if digest is None:
        raise read.fail("digest")
    return RequestRecord(
        hashed=hashed,
        turn=read.integer("turn"),
        epoch=read.text("epoch"),
        digest=digest,
        delete_after_s=read.integer("deleteAfter_s"),
    )


# --- what is read without judging ---------------------------------------------------------------------------


def is_expired(item: Item, now_ms: int) -> bool:
    """Whether DynamoDB may delete the item by now; it does so days late, so every read asks this itself."""
    until = item.get("deleteAfter_s")
    return isinstance(until, int) and until <= now_ms // 1000


def lenient_owner(item: Item) -> str | None:
    """The owner that a CONVERSATION item names, read without judging the rest of it."""
    owner = item.get("owner")
    return owner if isinstance(owner, str) and owner else None


def made_by(item: Item, hashed: str) -> bool:
    """Whether a TURN item is what the request with this hash became, read without judging the rest of it."""
    return item.get("request") == hash_value(hashed)
