"""An envelope as turns: how a conversation that was made elsewhere lies in the ledger (CONTRACT.md 17.10).

Its history is cut in front of each user message; what stands before the first one goes with it. What of an envelope
belongs to no turn (its own keys, those of the conversation and of the paused run, ``folded``, keys nobody knows) stays
in its shell, in a segment of the newest turn. So nothing of an envelope is lost, and ``as_envelope`` puts the very same
one together again.

Pure: it makes records and items, and writes nothing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from turnkeep.agent.port import ENGINE
from turnkeep.decisions import question_of
from turnkeep.envelope import PAUSED_RUN_FORMAT, answered_mark, is_open_pause
from turnkeep.errors import InvalidRequestError
from turnkeep.ids import RandomId, mint_ask_id
from turnkeep.ledger.codec import pack
from turnkeep.ledger.records import Ask, ConversationRecord, Status, TurnRecord
from turnkeep.ledger.segments import batch_items
from turnkeep.messages import shown_count
from turnkeep.usecases.shell import HOST_KEY, IMPORTED, SHELL, conversation_in, shell_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.store import Item
    from turnkeep.messages import Message

NO_ANSWER: Final = {"code": "ERR_RUN_FAILED", "message": "Imported without an answer: its run ended before one."}

INLINE_BYTES: Final = 6_000
"""Of a turn's messages; what is larger goes to segments, so that a hundred records fit into one transaction."""

INLINE_ASK_BYTES: Final = 2_000
MAX_RUN_ID_CHARACTERS: Final = 200
MAX_SENTENCE: Final = 500
LATEST_MS: Final = 10**16
_AUDIENCE: Final = re.compile(r"owner|role:[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Place:
    """Where an envelope's turns go, and by which clock.

    Attributes:
        epoch: of the life that they belong to.
        owner: who owns the conversation from now on; None: nobody.
        after: the highest number that is taken.
        previous: what the first new record names as the one before it (0: this life begins with it).
        base_count: transcript messages of this life before the first new turn.
        delete_after_s: their TTL; None keeps them.
    """

    key: ConversationKey
    epoch: str
    owner: str | None
    now_ms: int
    ask_expires_s: int
    random_id: RandomId
    after: int = 0
    previous: int = 0
    base_count: int = 0
    delete_after_s: int | None = None


@dataclass(frozen=True)
class Planned:
    """A turn's record, and the segments that have to lie there before it does."""

    record: TurnRecord
    segments: list[Item]


def split_history(history: Sequence[Message]) -> list[list[Message]]:
    """The history cut in front of each user message but the first; joined again it is the same list."""
    groups: list[list[Message]] = []
    said = False
    for message in history:
        is_user = message["role"] == "user"
        if not groups or (is_user and said):
            groups.append([])
            said = False
        groups[-1].append(message)
        said = said or is_user
    return groups


def plan_turns(
    envelope: dict[str, Any], place: Place, *, skip: int = 0, at_most: int | None = None
) -> tuple[list[Planned], ConversationRecord]:
    """The turns that an envelope becomes, oldest first, and what CONVERSATION says then.

    Args:
        envelope: a checked one.
        place: where they go.
        skip: so many messages of its history are stored already; they end where a user message follows.
        at_most: at most so many records: neighbours are joined, the newest turn is left alone.

    Raises:
        InvalidRequestError: its ask is for an audience of no form that is known.
        UnstorableValueError: a value that the ledger cannot keep exactly.
    """
    conversation = conversation_in(envelope)
    groups = split_history(conversation["history"][skip:]) or [[]]
    if at_most is not None and len(groups) > at_most:
        groups = _joined(groups, at_most)
    attempt = _segment_attempt(place.random_id)
    planned: list[Planned] = []
    previous, base_count = place.previous, place.base_count
    for index, group in enumerate(groups):
        last = index == len(groups) - 1
        number = place.after + 1 + index
        record = _record(envelope, group, place, number, last=last)
        record = replace(record, previous=previous, base_count=base_count)
        planned.append(_stored(envelope, group, record, attempt, last=last))
        previous, base_count = number, base_count + record.shown_count
    newest = planned[-1].record
    saved_at_ms = saved_at(envelope, place.now_ms)
    shown = ConversationRecord(
        key=place.key,
        epoch=place.epoch,
        owner=place.owner,
        created_at_ms=min(place.now_ms, saved_at_ms),
        saved_at_ms=saved_at_ms,
        turn=newest.turn,
        attempt=newest.attempt,
        status=newest.status.value,
        format=newest.format,
        message_count=base_count,
        agent_id=newest.agent_id,
        delete_after_s=newest.delete_after_s,
    )
    return planned, shown


def saved_at(envelope: dict[str, Any], now_ms: int) -> int:
    """When the envelope says it was saved, as a listing sorts by it; now where it says nothing that could be a time."""
    value = envelope.get("savedAt")
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST_MS
    return int(value) if usable and value is not None else now_ms


# --- one turn -----------------------------------------------------------------------------------------------


def _record(envelope: dict[str, Any], group: list[Message], place: Place, number: int, *, last: bool) -> TurnRecord:
    """The turn's record, its messages not yet in their place."""
    saved_at_ms = saved_at(envelope, place.now_ms)
    record = TurnRecord(
        key=place.key,
        turn=number,
        status=_status(group),
        epoch=place.epoch,
        principal=place.owner,
        started_at_ms=saved_at_ms,
        saved_at_ms=saved_at_ms,
        shown_count=shown_count(group),
        error=None if _status(group) is Status.COMPLETE else dict(NO_ANSWER),
        evidence={IMPORTED: _marks(envelope, place, last=last)},
        delete_after_s=place.delete_after_s,
    )
    if not last:
        return record
    conversation = conversation_in(envelope)
    run_id, iteration = conversation["runId"], conversation["lastCompletedIteration"]
    record = replace(
        record,
        format=envelope["format"],
        run_id=run_id if len(run_id) <= MAX_RUN_ID_CHARACTERS else "",
        iteration=iteration if type(iteration) is int and 0 <= iteration < LATEST_MS else 0,
        agent_id=_agent_id(conversation),
    )
    if is_open_pause(envelope):
        return _asking(envelope["data"], record, place)
    if envelope["format"] == PAUSED_RUN_FORMAT:
        mark = answered_mark(envelope["data"])
        return replace(record, status=Status.FAILED, error=_error_of(mark), answered_mark=_mark_to_keep(mark))
    return record


def _marks(envelope: dict[str, Any], place: Place, *, last: bool) -> dict[str, Any]:
    marks: dict[str, Any] = {"atMs": place.now_ms, "format": envelope["format"]}
    if last:
        marks["last"] = True
        if is_open_pause(envelope) and is_foreign(envelope["data"]):
            marks["foreign"] = True
    return marks


def _status(group: list[Message]) -> Status:
    """A turn whose last word is an assistant's text is complete; any other was cut off before it had an answer."""
    last = group[-1] if group else None
    answered = last is not None and last["role"] == "assistant" and not last.get("toolCalls")
    return Status.COMPLETE if answered else Status.FAILED


def _error_of(mark: Any) -> dict[str, Any]:
    """What the turn's record says of a resume that failed: the mark's own code and sentence, where they are texts."""
    error = mark.get("error") if isinstance(mark, dict) else None
    named = error if isinstance(error, dict) else {}
    texts = {name: named[name][:MAX_SENTENCE] for name in ("code", "message") if isinstance(named.get(name), str)}
    return {**NO_ANSWER, **texts}


def _mark_to_keep(mark: Any) -> dict[str, Any]:
    """The mark as the record has it; all of a large one, and one that is no object, is in the shell."""
    found = mark if isinstance(mark, dict) and mark else {"mark": mark}
    return found if _size_bytes(found) <= INLINE_ASK_BYTES else {"mark": "large"}


def is_foreign(paused: dict[str, Any]) -> bool:
    """Whether a paused run was neither hosted by turnkeep nor raised by its agent: nothing here can resume it."""
    shared = paused["checkpoint"]["sharedState"]
    ours = isinstance(shared, dict) and shared.get("engine") == ENGINE
    return not ours and not isinstance(paused.get(HOST_KEY), dict)


def _asking(paused: dict[str, Any], record: TurnRecord, place: Place) -> TurnRecord:
    host = paused.get(HOST_KEY)
    facts = host if isinstance(host, dict) else {}
    audience = facts.get("audience", "owner")
    if not isinstance(audience, str) or not _AUDIENCE.fullmatch(audience):
        raise InvalidRequestError("The ask's audience is owner or role:NAME.", fields=[f"data.{HOST_KEY}.audience"])
    until = facts.get("expiresAt")
    expires_at_ms = place.now_ms + place.ask_expires_s * 1000
    if type(until) is int and place.now_ms < until < LATEST_MS:
        expires_at_ms = until
    pause_data, whole = _shown_pause_data(paused)
    ask = Ask(
        ask_id=mint_ask_id(record.turn, place.random_id),
        audience=audience,
        pause_data=pause_data,
        asked_at_ms=place.now_ms,
        expires_at_ms=expires_at_ms,
        whole=whole,
    )
    keep_s = expires_at_ms // 1000 + 86_400
    return replace(
        record,
        status=Status.AWAITING,
        error=None,
        ask=ask,
        due_at_ms=place.now_ms,
        delete_after_s=None if record.delete_after_s is None else max(record.delete_after_s, keep_s),
    )


def _shown_pause_data(paused: dict[str, Any]) -> tuple[Any, bool]:
    """What the record says of the ask, and whether that is the whole of it (else the checkpoint has it)."""
    pending, checkpoint = paused["pending"], paused["checkpoint"]
    found = pending.get("pauseData") if isinstance(pending, dict) else None
    if found is None:
        found = checkpoint.get("pauseData")
    if found is None and isinstance(pending, dict):
        names = ("tool", "question", "checkIn", "ask", "component")
        found = {"toolName" if name == "tool" else name: pending[name] for name in names if name in pending}
    if _size_bytes(found) <= INLINE_ASK_BYTES:
        return found, True
    short = {"toolName": pending.get("tool") if isinstance(pending, dict) else None, "question": question_of(pending)}
    return (
        {name: text[:300] for name, text in short.items() if isinstance(text, str)},
        checkpoint.get("pauseData") != found,
    )


def _stored(envelope: dict[str, Any], group: list[Message], record: TurnRecord, attempt: int, *, last: bool) -> Planned:
    """Puts a turn's messages into its record or its segments, and behind them a checkpoint and a shell."""
    segments: list[Item] = []
    # Written under a number that no attempt has: two who write the same turn at once never meet in one segment.
    writer = replace(record, attempt=attempt)

    def add(kind: str, start: int, value: Any) -> None:
        segments.extend(batch_items(writer, len(segments) + 1, kind, start, value))

    original = conversation_in(envelope)["originalInput"]["message"]
    user = group[0] if group else {"role": "user", "content": original}
    if _size_bytes(user) > INLINE_BYTES or not group:
        # A batch that starts at 0 replaces the message in the record, which is only there to be looked at.
        content = user["content"]
        user = {"role": user["role"], "content": content if len(content) <= 200 else f"{content[:200]}…"}
        add("messages", 0, group)
        record = replace(record, user=user)
    elif record.status is Status.AWAITING or _size_bytes(group[1:]) > INLINE_BYTES:
        record = replace(record, user=user)
        if group[1:]:
            add("messages", 1, group[1:])
    else:
        record = replace(record, user=user, messages=tuple(group[1:]))
    if last and envelope["format"] == PAUSED_RUN_FORMAT:
        add("checkpoint", 0, envelope["data"]["checkpoint"])
        record = replace(record, checkpoint_segment=(attempt, len(segments)))
    if last:
        add(SHELL, 0, shell_of(envelope))
    if segments:
        record = replace(record, adopted=((attempt, len(segments)),))
    return Planned(record, segments)


def _joined(groups: list[list[Message]], at_most: int) -> list[list[Message]]:
    """The groups in at most so many, neighbours joined evenly; the last one stays as it is."""
    older, room = groups[:-1], at_most - 1
    joined: list[list[Message]] = [[] for _ in range(room)]
    for index, group in enumerate(older):
        joined[index * room // len(older)].extend(group)
    return [*joined, groups[-1]]


def _segment_attempt(random_id: RandomId) -> int:
    """A number of 16 digits that nobody else writes segments under."""
    digest = hashlib.sha256(random_id(12).encode()).digest()
    return 10**15 + int.from_bytes(digest[:6], "big")


def _agent_id(conversation: dict[str, Any]) -> str | None:
    agent = conversation.get("agent")
    found = agent.get("id") if isinstance(agent, dict) else None
    return found if isinstance(found, str) and 0 < len(found) <= MAX_RUN_ID_CHARACTERS else None


def _size_bytes(value: Any) -> int:
    packed = pack(value)
    return len(packed if isinstance(packed, bytes) else packed.encode())
