"""Envelopes: packing what a turn leaves behind, and reading it back or refusing it by name (CONTRACT.md 2, 4, 5, 17).

This file is the only one that inspects a stored value's format. Its strict readers hand back the very object that is
inside, unknown keys included, or raise one refusal with a stable ``kind``; the first fault in CONTRACT.md's order is
the one reported. The two projections at the end, owner and transcript, judge nothing and never raise.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from turnkeep.errors import (
    MalformedEnvelopeError,
    UnknownEnvelopeFormatError,
    UnreadableEnvelopeError,
    WrongEnvelopeReaderError,
)
from turnkeep.json_values import ABSENT, is_number, shape_of
from turnkeep.preview import named, preview

JsonObject = dict[str, Any]

CONVERSATION_FORMAT: Final = "conversation-v1"
PAUSED_RUN_FORMAT: Final = "flowchart-v1"
KNOWN_FORMATS: Final = (CONVERSATION_FORMAT, PAUSED_RUN_FORMAT)
"""Formats are added, never redefined."""


# --- packing ------------------------------------------------------------------------------------------------


def to_envelope(conversation: JsonObject, now_ms: int) -> JsonObject:
    """Packs a conversation (CONTRACT.md 2) for a store. What the readers would refuse is not packed.

    Args:
        conversation: kept as it is, not copied.
        now_ms: the time of saving, milliseconds since the Unix epoch.

    Raises:
        MalformedEnvelopeError: it is no conversation; ``kind`` says why.
    """
    _check_conversation(conversation, None, None)
    return {"format": CONVERSATION_FORMAT, "data": conversation, "savedAt": now_ms}


def to_paused_envelope(paused_run: JsonObject, now_ms: int) -> JsonObject:
    """Packs a paused run (CONTRACT.md 5.1) for a store. What the readers would refuse is not packed.

    Args:
        paused_run: ``{"checkpoint", "conversation", "pending", "answered"?}``; kept as it is, not copied.
        now_ms: the time of saving, milliseconds since the Unix epoch.

    Raises:
        MalformedEnvelopeError: it is no paused run; ``kind`` says why.
    """
    _check_paused_run(paused_run, None, None)
    return {"format": PAUSED_RUN_FORMAT, "data": paused_run, "savedAt": now_ms}


def with_answered(
    paused_run: JsonObject,
    *,
    decision: Any,
    at_ms: int,
    run_id: str,
    error_code: str | None,
    error_message: str,
    answered_by: str | None = None,
) -> JsonObject:
    """A copy of a paused run that carries the ``answered`` mark: its resume was started and failed (17.1).

    It is never resumed again, and its conversation goes on with the next message. Refusals made before anything ran
    leave no mark.

    Args:
        paused_run: the paused run; the copy shares its parts.
        decision: the answer that was used up.
        at_ms: when the resume failed, milliseconds since the Unix epoch.
        run_id: the attempt that failed.
        error_code: the stable code of what it raised, None where that has none.
        error_message: a sentence without content.
        answered_by: the verified principal who answered; left out when anonymous.
    """
    mark: JsonObject = {"decision": decision}
    if answered_by is not None:
        mark["answeredBy"] = answered_by
    mark |= {"atMs": at_ms, "runId": run_id, "error": {"code": error_code, "message": error_message}}
    return {**paused_run, "answered": mark}


# --- the strict readers -------------------------------------------------------------------------------------


def read_envelope(value: Any, conversation_id: str | None = None) -> JsonObject:
    """The conversation inside a ``conversation-v1``: that very object, unknown keys included.

    Args:
        value: what the store handed over; ``ABSENT`` and None are refused like anything else that is no envelope.
        conversation_id: named in the refusal where it is given.

    Raises:
        UnreadableEnvelopeError: null, absent, a boolean, a number, a string or a list.
        UnknownEnvelopeFormatError: an object of another format, or of none.
        WrongEnvelopeReaderError: a paused run; ``read_paused_run`` reads it.
        MalformedEnvelopeError: the format's demands are not met; ``kind`` is the first that is not.
    """
    if _format_of(value, conversation_id) == PAUSED_RUN_FORMAT:
        raise WrongEnvelopeReaderError(
            kind="is-paused-run", found=PAUSED_RUN_FORMAT, reader="read_paused_run", conversation_id=conversation_id
        )
    return _check_conversation(value.get("data"), CONVERSATION_FORMAT, conversation_id)


def read_paused_run(value: Any, conversation_id: str | None = None) -> JsonObject:
    """The paused run inside a ``flowchart-v1``: that very object, an ``answered`` mark and unknown keys included.

    Args:
        value: what the store handed over; ``ABSENT`` and None are refused like anything else that is no envelope.
        conversation_id: named in the refusal where it is given.

    Raises:
        UnreadableEnvelopeError: null, absent, a boolean, a number, a string or a list.
        UnknownEnvelopeFormatError: an object of another format, or of none.
        WrongEnvelopeReaderError: a conversation; ``read_envelope`` reads it.
        MalformedEnvelopeError: the format's demands are not met; ``kind`` is the first that is not.
    """
    if _format_of(value, conversation_id) == CONVERSATION_FORMAT:
        raise WrongEnvelopeReaderError(
            kind="is-conversation", found=CONVERSATION_FORMAT, reader="read_envelope", conversation_id=conversation_id
        )
    return _check_paused_run(value.get("data"), PAUSED_RUN_FORMAT, conversation_id)


def check_envelope(value: Any, conversation_id: str | None = None) -> JsonObject:
    """The envelope itself, the same object, after the validation of whichever format it is.

    Args:
        value: what the store handed over.
        conversation_id: named in the refusal where it is given.

    Raises:
        UnreadableEnvelopeError: null, absent, a boolean, a number, a string or a list.
        UnknownEnvelopeFormatError: an object of another format, or of none.
        MalformedEnvelopeError: the format's demands are not met; ``kind`` is the first that is not.
    """
    if _format_of(value, conversation_id) == CONVERSATION_FORMAT:
        read_envelope(value, conversation_id)
    else:
        read_paused_run(value, conversation_id)
    envelope: JsonObject = value
    return envelope


def answered_mark(paused_run: JsonObject) -> Any:
    """The mark of a pause whose resume was started and failed (17.1); None while the pause is open."""
    return paused_run.get("answered")


def is_open_pause(envelope: JsonObject) -> bool:
    """Whether a checked envelope holds a pause that still waits for its answer or its resume."""
    return envelope["format"] == PAUSED_RUN_FORMAT and answered_mark(envelope["data"]) is None


def conversation_of(value: Any, conversation_id: str | None = None) -> JsonObject:
    """The conversation that a message continues: a conversation's own, or that of a pause marked ``answered``.

    Every door that continues a conversation reads it here, so that a pause whose tool may have run is never resumed
    again and never taken for an open one.

    Args:
        value: what the store handed over.
        conversation_id: named in the refusal where it is given.

    Raises:
        UnreadableEnvelopeError: null, absent, a boolean, a number, a string or a list.
        UnknownEnvelopeFormatError: an object of another format, or of none.
        MalformedEnvelopeError: the format's demands are not met; ``kind`` is the first that is not.
        WrongEnvelopeReaderError: the pause is open: it wants an answer and no message (``is-paused-run``).
    """
    envelope = check_envelope(value, conversation_id)
    if is_open_pause(envelope):
        return read_envelope(envelope, conversation_id)  # which refuses it by name
    data: JsonObject = envelope["data"]
    conversation: JsonObject = data if envelope["format"] == CONVERSATION_FORMAT else data["conversation"]
    return conversation


# --- the lenient projections --------------------------------------------------------------------------------


def envelope_owner(value: Any) -> str | None:
    """The principal who signed the conversation inside; None for nobody. Never raises.

    Works on conversations that would fail validation. Owner fields planted beside the conversation's identity are
    not read.
    """
    identity = _conversation_inside(value).get("identity")
    principal = identity.get("principal") if isinstance(identity, dict) else None
    return principal if isinstance(principal, str) and principal else None


def envelope_transcript(value: Any) -> list[dict[str, str]]:
    """What the user and the assistant said, in order, as ``{"role", "content"}``. Never raises.

    System and tool messages, empty and structured content, and entries that are no messages are left out.
    """
    return transcript_of(_conversation_inside(value).get("history"))


def transcript_of(history: Any) -> list[dict[str, str]]:
    """The same projection of a bare history; ``[]`` for what is no list. Never raises."""
    if not isinstance(history, list):
        return []
    return [
        {"role": entry["role"], "content": entry["content"]}
        for entry in history
        if isinstance(entry, dict)
        and entry.get("role") in ("user", "assistant")
        and isinstance(entry.get("content"), str)
        and entry["content"]
    ]


def _conversation_inside(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        return {}
    data = value.get("data")
    if value.get("format") == PAUSED_RUN_FORMAT:
        data = data.get("conversation") if isinstance(data, dict) else None
    elif value.get("format") != CONVERSATION_FORMAT:
        return {}
    return data if isinstance(data, dict) else {}


# --- validation, in CONTRACT.md's order ---------------------------------------------------------------------


def _format_of(value: Any, conversation_id: str | None) -> str:
    if not isinstance(value, dict):
        raise UnreadableEnvelopeError(
            stored_preview=preview(value),
            found=shape_of(value),
            known=list(KNOWN_FORMATS),
            conversation_id=conversation_id,
        )
    form = value.get("format", ABSENT)
    if not isinstance(form, str) or form not in KNOWN_FORMATS:
        raise UnknownEnvelopeFormatError(found=named(form), known=list(KNOWN_FORMATS), conversation_id=conversation_id)
    return form


def _check_conversation(data: Any, form: str | None, conversation_id: str | None) -> JsonObject:
    def refuse(fault: str, demand: str, index: int | None = None) -> NoReturn:
        raise MalformedEnvelopeError(
            kind=fault, demand=demand, found=form, history_index=index, conversation_id=conversation_id
        )

    if not _is_object_or_list(data):
        refuse("conversation-not-an-object", "a conversation must be an object")
    # A list is an object to the reference: it gets past the first demand and has none of the keys.
    keys: JsonObject = data if isinstance(data, dict) else {}
    version = keys.get("version", ABSENT)
    if not is_number(version) or version != 1:
        refuse("conversation-unsupported-version", f"its version is {named(version)}, and this release reads 1")
    history = keys.get("history")
    if not isinstance(keys.get("runId"), str) or not isinstance(history, list):
        refuse("conversation-missing-run-id-or-history", "runId must be a string and history a list")
    if not is_number(keys.get("lastCompletedIteration")):
        refuse("conversation-missing-last-completed-iteration", "lastCompletedIteration must be a number")
    original = keys.get("originalInput")
    if not isinstance(original, dict) or not isinstance(original.get("message"), str):
        refuse("conversation-missing-original-input", "originalInput must be an object whose message is a string")
    if not isinstance(keys.get("skillCursor", ""), str):
        refuse("conversation-bad-skill-cursor", "skillCursor must be a string or left out")
    for index, entry in enumerate(history):
        if not _is_object_or_list(entry):
            refuse("history-entry-not-a-message", f"history entry {index} must be an object", index)
        message: JsonObject = entry if isinstance(entry, dict) else {}
        if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            refuse("history-entry-missing-text", f"role and content of history entry {index} must be strings", index)
    return keys


def _check_paused_run(data: Any, form: str | None, conversation_id: str | None) -> JsonObject:
    def refuse(fault: str, demand: str) -> NoReturn:
        raise MalformedEnvelopeError(kind=fault, demand=demand, found=form, conversation_id=conversation_id)

    if not _is_object_or_list(data):
        refuse("paused-not-an-object", "a paused run must be an object")
    keys: JsonObject = data if isinstance(data, dict) else {}
    checkpoint = keys.get("checkpoint")
    if not _is_object_or_list(checkpoint):
        refuse("paused-missing-checkpoint", "checkpoint must be an object")
    place: JsonObject = checkpoint if isinstance(checkpoint, dict) else {}
    if not isinstance(place.get("pausedStageId"), str) or not _is_object_or_list(place.get("sharedState")):
        refuse(
            "paused-missing-stage-or-state",
            "checkpoint.pausedStageId must be a string and checkpoint.sharedState an object",
        )
    if not isinstance(place.get("subflowPath"), list):
        refuse("paused-missing-subflow-path", "checkpoint.subflowPath must be a list")
    if not _is_object_or_list(keys.get("pending")):
        refuse("paused-missing-pending", "pending must be an object")
    _check_conversation(keys.get("conversation"), form, conversation_id)
    return keys


def _is_object_or_list(value: Any) -> bool:
    return isinstance(value, dict | list)
