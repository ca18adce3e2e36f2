"""A conversation as the reference's envelope, put together from its turns (CONTRACT.md 2, 4, 5 and 17).

The ledger is the envelope's storage: nothing keeps an envelope as such. What an envelope that was made elsewhere
brought along and no turn has a place for comes out of its shell (``as_turns``): all of it while nothing has happened
since, the parts that belong to the whole conversation afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnkeep.decisions import pending_ask
from turnkeep.envelope import PAUSED_RUN_FORMAT, to_envelope, to_paused_envelope
from turnkeep.errors import MalformedStoredItemError
from turnkeep.ledger.hydrate import Hydrated, load_segments
from turnkeep.ledger.keys import segments_high, segments_low
from turnkeep.ledger.large_decisions import with_whole_decision
from turnkeep.ledger.records import SEGMENT_V1, Status, TurnRecord
from turnkeep.ledger.segments import read_batches
from turnkeep.ledger.store import Query
from turnkeep.usecases.closing import CONTRIBUTES_NOTHING, contribution
from turnkeep.usecases.shell import HOST_KEY, SHELL, as_imported, filled, has_shell, is_imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.ledger import Ledger
    from turnkeep.ledger.records import ConversationRecord
    from turnkeep.messages import Message

OF_A_RUN: Final = frozenset(
    {
        "version",
        "runId",
        "history",
        "lastCompletedIteration",
        "originalInput",
        "checkpointedAt",
        "identity",
        "agent",
        "failurePoint",
    }
)
"""Keys of a conversation that its newest turn says anew. All others belong to the whole and go on (2.3: ``folded``)."""

OF_AN_ENVELOPE: Final = frozenset({"format", "data", "savedAt"})

UNFINISHED: Final = {
    "code": "ERR_CONCURRENT_RUN",
    "message": "The decision was recorded and its resume had not ended when this was exported.",
}


def envelope_of(ledger: Ledger, found: Hydrated) -> dict[str, Any] | None:
    """The envelope of what was read: a ``flowchart-v1`` while a person is waited for, else a ``conversation-v1``.

    A decision that is recorded counts as used, whether or not its resume has ended: such a pause carries the
    ``answered`` mark, so that whoever takes the envelope elsewhere does not run its tool again. A turn that is running
    gives what it has made durable; one that is queued, cancelled or refused gives nothing.

    Args:
        ledger: for what lies in segments.
        found: the whole conversation, as ``Ledger.hydrate`` reads it without a window.

    Returns:
        None where nothing is stored.

    Raises:
        UnreadableError: something stored cannot be read, by name.
    """
    if not found.exists:
        return None
    conversation = found.conversation()
    everything = found.turns()
    turns = [record for record in everything if record.status not in CONTRIBUTES_NOTHING]
    loaded = load_segments(ledger.store, turns, found.now_ms)
    history: list[Message] = []
    own: list[Message] = []
    for record in turns:
        own = _said(record, loaded.messages[record.turn])
        history.extend(own)
    last = turns[-1] if turns else None
    shell = _shell(ledger, everything, found.now_ms)
    checkpoint = None if last is None else loaded.checkpoints.get(last.turn)
    if last is not None and shell is not None and has_shell(last) and as_imported(last):
        return filled(shell, history, checkpoint)
    data = {**_conversation(found, conversation, last, history, own), **_carried(shell)}
    saved_at_ms = _saved_at(conversation, last)
    if last is None or checkpoint is None or not _is_paused(last):
        envelope = to_envelope(data, saved_at_ms)
    else:
        envelope = to_paused_envelope(_paused(with_whole_decision(ledger.store, last), checkpoint, data), saved_at_ms)
    if shell is not None:
        envelope |= {name: value for name, value in shell.items() if name not in OF_AN_ENVELOPE}
    return envelope


def _said(record: TurnRecord, messages: list[Message]) -> list[Message]:
    """What a turn puts into the history; of an imported one exactly what came, of others what a provider accepts."""
    return messages if record.is_open or is_imported(record) else contribution(record, messages)


def _conversation(
    found: Hydrated,
    conversation: ConversationRecord | None,
    last: TurnRecord | None,
    history: list[Message],
    own: Sequence[Message],
) -> dict[str, Any]:
    """The conversation checkpoint (CONTRACT.md 2)."""
    asked = next((message["content"] for message in reversed(own) if message.get("role") == "user"), "")
    data: dict[str, Any] = {
        "version": 1,
        "runId": (last.run_id if last is not None else "") or "unknown",
        "history": history,
        "lastCompletedIteration": last.iteration if last is not None else 0,
        "originalInput": {"message": asked if isinstance(asked, str) else ""},
        "checkpointedAt": _saved_at(conversation, last),
    }
    if found.owner is not None:
        tenant = {} if found.key.tenant is None else {"tenant": found.key.tenant}
        data["identity"] = {**tenant, "principal": found.owner, "conversationId": found.key.conversation_id}
    agent_id = last.agent_id if last is not None else None
    if agent_id is None and conversation is not None:
        agent_id = conversation.agent_id
    if agent_id is not None:
        data["agent"] = {"id": agent_id}
    if last is not None and last.status is Status.FAILED and last.answered_mark is None:
        data["failurePoint"] = {"iteration": last.iteration, "phase": "unknown"}
    return data


def _saved_at(conversation: ConversationRecord | None, last: TurnRecord | None) -> int:
    if last is not None:
        return last.saved_at_ms or last.started_at_ms
    return 0 if conversation is None else conversation.saved_at_ms


def _is_paused(record: TurnRecord) -> bool:
    """Whether the turn is a pause still: open, answered and not yet gone on from, or marked."""
    if record.status in (Status.AWAITING, Status.ANSWERED):
        return True
    if record.status is Status.RUNNING:
        return record.decision is not None
    return record.status is Status.FAILED and record.answered_mark is not None


def _paused(record: TurnRecord, checkpoint: dict[str, Any], conversation: dict[str, Any]) -> dict[str, Any]:
    """The paused run (CONTRACT.md 5.1), with the mark (17.1) as soon as its decision is used."""
    ask = record.ask
    pause_data = ask.pause_data if ask is not None and ask.whole else checkpoint.get("pauseData")
    paused: dict[str, Any] = {
        "checkpoint": checkpoint,
        "conversation": conversation,
        "pending": pending_ask(pause_data, record.key.conversation_id),
    }
    decision = record.decision
    if record.answered_mark is not None:
        whole = {} if decision is None else {"decision": decision.value}
        paused["answered"] = {**record.answered_mark, **whole}
    elif decision is not None:
        mark: dict[str, Any] = {"decision": decision.value}
        if decision.answered_by is not None:
            mark["answeredBy"] = decision.answered_by
        mark |= {"atMs": decision.answered_at_ms, "runId": record.run_id or "unknown", "error": dict(UNFINISHED)}
        paused["answered"] = mark
    if ask is not None:
        paused[HOST_KEY] = {"audience": ask.audience, "askedAt": ask.asked_at_ms, "expiresAt": ask.expires_at_ms}
    return paused


def _carried(shell: dict[str, Any] | None) -> dict[str, Any]:
    """What of an imported conversation still holds after turns of its own: ``folded``, a cursor, unknown keys."""
    if shell is None:
        return {}
    data = shell["data"]
    inside = data["conversation"] if shell["format"] == PAUSED_RUN_FORMAT else data
    return {name: value for name, value in inside.items() if name not in OF_A_RUN}


def _shell(ledger: Ledger, turns: Sequence[TurnRecord], now_ms: int) -> dict[str, Any] | None:
    """The newest shell. A round trip where there is one."""
    record = next((one for one in reversed(turns) if has_shell(one)), None)
    if record is None:
        return None
    key = record.key
    query = Query(key.pk, segments_low(record.turn), segments_high(record.turn))
    (page,) = ledger.store.read([query])
    for attempt, count in record.adopted:
        for batch in read_batches(page.items, key, record.epoch, attempt, count, now_ms):
            value = batch.value
            if batch.kind == SHELL and isinstance(value, dict) and isinstance(value.get("data"), dict):
                return value
    raise MalformedStoredItemError(found=SEGMENT_V1, part=SHELL, conversation_id=key.conversation_id)
