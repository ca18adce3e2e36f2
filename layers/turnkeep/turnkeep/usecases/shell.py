"""What an imported envelope leaves in the ledger besides its messages: its shell, and marks in its turns' evidence.

The *shell* is the envelope without its history and its checkpoint, which lie in turns. A turn that an envelope brought
says so in its evidence; the newest of them keeps the shell in a segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnkeep.envelope import PAUSED_RUN_FORMAT
from turnkeep.ledger.records import Status, TurnRecord

if TYPE_CHECKING:
    from turnkeep.messages import Message

SHELL: Final = "envelope"
"""The kind of the segments that hold a shell."""

IMPORTED: Final = "imported"
"""The key in a turn's evidence that says that an envelope brought it: ``{"atMs", "format", "last"?, "foreign"?}``."""

HOST_KEY: Final = "turnkeep"
"""The key of a paused run that says what the reference's shape has no place for: for whom its ask is, until when."""


def conversation_in(envelope: dict[str, Any]) -> dict[str, Any]:
    """The conversation inside a checked envelope, of an open pause too (which ``conversation_of`` refuses)."""
    data = envelope["data"]
    found: dict[str, Any] = data["conversation"] if envelope["format"] == PAUSED_RUN_FORMAT else data
    return found


def shell_of(envelope: dict[str, Any]) -> dict[str, Any]:
    """The envelope without its history and its checkpoint, which lie in the turns."""
    data = envelope["data"]
    if envelope["format"] != PAUSED_RUN_FORMAT:
        return {**envelope, "data": _without(data, "history")}
    inner = {**_without(data, "checkpoint"), "conversation": _without(data["conversation"], "history")}
    return {**envelope, "data": inner}


def filled(shell: dict[str, Any], history: list[Message], checkpoint: dict[str, Any] | None) -> dict[str, Any]:
    """The envelope that a shell was made of: the inverse of ``shell_of``."""
    data = shell["data"]
    if shell["format"] != PAUSED_RUN_FORMAT:
        return {**shell, "data": {**data, "history": history}}
    conversation = {**data["conversation"], "history": history}
    return {**shell, "data": {**data, "checkpoint": checkpoint, "conversation": conversation}}


def is_imported(record: TurnRecord) -> bool:
    """Whether an envelope brought the turn."""
    return isinstance(record.evidence.get(IMPORTED), dict)


def has_shell(record: TurnRecord) -> bool:
    """Whether the turn was the newest of the envelope that brought it, and so keeps that envelope's shell."""
    return is_imported(record) and record.evidence[IMPORTED].get("last") is True


def as_imported(record: TurnRecord) -> bool:
    """Whether nobody has moved the turn since an envelope brought it."""
    return is_imported(record) and record.attempt == 1 and record.status is not Status.ANSWERED


def is_foreign_pause(record: TurnRecord) -> bool:
    """Whether the turn's ask was raised by an engine that cannot be resumed here."""
    return is_imported(record) and record.evidence[IMPORTED].get("foreign") is True


def _without(data: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}
