"""What is stored and cannot be read: refused by name, never taken for absent."""

from __future__ import annotations

from typing import ClassVar

from turnkeep.errors.tree import TurnkeepError


class UnreadableError(TurnkeepError):
    """Something stored cannot be read; it is refused by name and never taken for absent (invariant 4)."""

    fact_names: ClassVar[dict[str, str]] = {"conversation_id": "conversationId", "found": "found", "known": "known"}

    def __init__(
        self,
        sentence: str,
        *,
        conversation_id: str | None = None,
        found: str | None = None,
        known: list[str] | None = None,
    ) -> None:
        self.conversation_id, self.found, self.known = conversation_id, found, known
        super().__init__(sentence)


class UnknownStoredFormatError(UnreadableError):
    """A stored item names a format that this release does not know, such as a newer release's."""

    code = "ERR_UNKNOWN_FORMAT"

    def __init__(self, *, found: str, known: list[str], conversation_id: str | None = None) -> None:
        super().__init__(
            f"A stored item has the format {found}; this release reads {', '.join(known)}. "
            "Deploy the release that wrote it, or a newer one; nothing was changed.",
            conversation_id=conversation_id,
            found=found,
            known=known,
        )


class ForeignPauseError(UnknownStoredFormatError):
    """An ask came with an imported paused run of another engine: its answer could not be gone on from here.

    It stays open and its checkpoint unchanged: exported, it can be answered where it was made.
    """

    def __init__(self, *, known: list[str], conversation_id: str | None = None) -> None:
        UnreadableError.__init__(
            self,
            "This ask was imported with a paused run that only its own engine can go on from; nothing was changed. "
            "Export the conversation and answer it there, or withdraw the ask and go on here.",
            conversation_id=conversation_id,
            found="flowchart-v1 of another engine",
            known=known,
        )


class MalformedStoredItemError(UnreadableError):
    """A stored item of a known format lacks what the format demands, or holds something else there."""

    code = "ERR_MALFORMED_ENVELOPE"

    def __init__(self, *, found: str, part: str, conversation_id: str | None = None) -> None:
        self.part = part
        super().__init__(
            f"A stored item of format {found} cannot be read at {part}; nothing was changed. "
            "Export the conversation's items and look at that part, or erase the conversation.",
            conversation_id=conversation_id,
            found=found,
        )


class EnvelopeError(UnreadableError, TypeError):
    """A stored value that an envelope reader refuses: the base of the four below, and a TypeError as well.

    Attributes:
        kind: the stable name of what is wrong, such as ``conversation-bad-skill-cursor``.
        history_index: which history entry is at fault, where one is.
    """

    fact_names: ClassVar[dict[str, str]] = {
        "conversation_id": "conversationId",
        "found": "found",
        "known": "known",
        "kind": "kind",
        "history_index": "historyIndex",
    }

    def __init__(
        self,
        sentence: str,
        *,
        kind: str,
        conversation_id: str | None = None,
        found: str | None = None,
        known: list[str] | None = None,
        history_index: int | None = None,
    ) -> None:
        self.kind, self.history_index = kind, history_index
        super().__init__(sentence, conversation_id=conversation_id, found=found, known=known)


class UnreadableEnvelopeError(EnvelopeError):
    """What is stored is no envelope at all. Present but unreadable is never answered as absent (invariant 4).

    Attributes:
        stored_preview: what was found, by the rule of CONTRACT.md 4.4: up to 64 characters of a string, anything
            else described. For whoever may read the conversation; neither the message nor a reply holds it.
        found: its shape only, such as ``a string``.
    """

    code = "ERR_UNREADABLE_ENVELOPE"

    def __init__(
        self, *, stored_preview: str, found: str, known: list[str], conversation_id: str | None = None
    ) -> None:
        self.stored_preview = stored_preview
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)} is no envelope but {found}; nothing was changed. "
            f"An envelope is an object of the format {' or '.join(known)}.",
            kind="unreadable",
            conversation_id=conversation_id,
            found=found,
            known=known,
        )

    def with_conversation(self, conversation_id: str) -> UnreadableEnvelopeError:
        """A copy that names the conversation, caused by this one; this one itself where it names one already."""
        if self.conversation_id is not None:
            return self
        named = UnreadableEnvelopeError(
            stored_preview=self.stored_preview,
            found=self.found or "unreadable",
            known=self.known or [],
            conversation_id=conversation_id,
        )
        named.__cause__ = self
        return named


class UnknownEnvelopeFormatError(EnvelopeError):
    """An object whose ``format`` is none that this release knows, a newer release's for instance."""

    code = "ERR_UNKNOWN_FORMAT"

    def __init__(self, *, found: str, known: list[str], conversation_id: str | None = None) -> None:
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)} has the format {found}; this release reads "
            f"{' and '.join(known)}. Deploy the release that wrote it, or a newer one; nothing was changed.",
            kind="unknown-format",
            conversation_id=conversation_id,
            found=found,
            known=known,
        )


class MalformedEnvelopeError(EnvelopeError):
    """An envelope of a known format that lacks what the format demands, or holds something else there.

    Args:
        kind: which demand, by its stable name.
        found: the envelope's format; None where a bare conversation or paused run was read.
        demand: what the format demands, in fixed words, such as ``pending must be an object``.
        history_index: which history entry is at fault, where one is.
    """

    code = "ERR_MALFORMED_ENVELOPE"

    def __init__(
        self,
        *,
        kind: str,
        demand: str,
        found: str | None = None,
        history_index: int | None = None,
        conversation_id: str | None = None,
    ) -> None:
        form = f" of the format {found}" if found else ""
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)}{form} cannot be read: {demand}. Nothing was changed.",
            kind=kind,
            conversation_id=conversation_id,
            found=found,
            history_index=history_index,
        )


class WrongEnvelopeReaderError(EnvelopeError):
    """A sound envelope was given to the reader of the other format: a mistake in the program, not in the store.

    Args:
        kind: ``is-paused-run`` or ``is-conversation``.
        found: the envelope's format.
        reader: the reader to use instead.
    """

    def __init__(self, *, kind: str, found: str, reader: str, conversation_id: str | None = None) -> None:
        self.reader = reader
        super().__init__(
            f"What is stored {_of_conversation(conversation_id)} has the format {found}; read it with {reader}.",
            kind=kind,
            conversation_id=conversation_id,
            found=found,
        )


def _of_conversation(conversation_id: str | None) -> str:
    return "here" if conversation_id is None else f"of conversation {conversation_id}"


class SessionRetentionUnavailableError(TurnkeepError):
    """A store does not say who deletes what is old (CONTRACT.md 10.4); nothing is taken for "nobody deletes".

    Args:
        purpose: what it was asked for, in the program's own words.
    """

    code = "ERR_SESSION_RETENTION_UNAVAILABLE"

    def __init__(self, purpose: str) -> None:
        self.purpose = purpose
        super().__init__(f"The store does not say who deletes old conversations, which {purpose} needs to know.")
