"""Bodies of replies as models: what ``docs/openapi.json`` promises, and what tests hold every reply against.

A field with a default may be missing; none is ever ``null`` unless its type says so.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ABSENT: Any = None
Milliseconds = int
TurnStatus = Literal[
    "queued", "running", "awaiting", "answered", "complete", "failed", "expired", "refused", "cancelled"
]


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Ask(Reply):
    """A question that a paused turn waits on. Only its audience sees what is behind `expiresAt`."""

    askId: str
    question: str = Field(default=ABSENT, description="The question in one line.")
    tool: str = Field(default=ABSENT, description="The tool that asks.")
    audience: str = Field(
        description="Who answers: `owner`, or `role:NAME`.", pattern=r"^(owner|role:[A-Za-z0-9._-]+)$"
    )
    askedAt: Milliseconds
    expiresAt: Milliseconds
    checkIn: dict[str, Any] = Field(default=ABSENT, description="What a tool is about to do, and why.")
    ask: dict[str, Any] = Field(default=ABSENT, description="A middleware's ask.")
    component: dict[str, Any] = Field(default=ABSENT, description="A component to show the ask with.")
    pauseData: Any = Field(default=ABSENT, description="What the tool passed, uninterpreted.")


class TurnEnded(Reply):
    """A turn that ended with an answer."""

    conversationId: str
    turn: int
    status: Literal["complete"]
    output: str
    runId: str
    savedAt: Milliseconds
    usage: dict[str, int]


class TurnAsks(Reply):
    """A turn that waits for a person."""

    conversationId: str
    turn: int
    status: Literal["awaiting"]
    runId: str
    savedAt: Milliseconds
    awaiting: Ask


class TurnGoesOn(Reply):
    """A turn whose end is to be looked up at `Location`."""

    conversationId: str
    turn: int
    status: Literal["queued", "running", "awaiting", "answered"]


class TurnStatusOnly(Reply):
    """What somebody who may answer, and not read, is told of a turn."""

    conversationId: str
    turn: int
    status: TurnStatus


class TurnError(Reply):
    """Why a turn ended without an answer. `turn` and `awaiting`: a queued one found that turn asking this."""

    code: str
    message: str = ABSENT
    turn: int = ABSENT
    awaiting: Ask = ABSENT


class Turn(Reply):
    """One turn. `answered`: the decision is recorded, its resume due or running. `stalled`: running past its lease."""

    conversationId: str
    turn: int
    status: TurnStatus
    startedAt: Milliseconds
    savedAt: Milliseconds
    output: str = ABSENT
    awaiting: Ask = ABSENT
    error: TurnError = ABSENT
    usage: dict[str, int] = ABSENT
    stalled: bool = ABSENT


class ConversationLine(Reply):
    """One line of a listing: nothing from inside the conversation."""

    conversationId: str
    savedAt: Milliseconds
    format: Literal["conversation-v1", "flowchart-v1"]
    status: TurnStatus | Literal["empty"] = Field(description="Of its last turn; `empty` before the first one.")
    turn: int = Field(description="The last turn's number.")
    messageCount: int


class Conversation(ConversationLine):
    """A conversation's summary, and its open ask where there is one."""

    createdAt: Milliseconds
    awaiting: Ask = ABSENT
    stalled: bool = ABSENT


class Erasing(Reply):
    """An erasure that has begun; the conversation is not found from now on."""

    conversationId: str
    status: Literal["erasing"]


class Turns(Reply):
    """A page of turns, in order. It ends at `limit` turns or 4 MB."""

    conversationId: str
    turns: list[Turn]
    cursor: str = ABSENT


class TranscriptMessage(Reply):
    """What somebody said."""

    role: Literal["user", "assistant"]
    content: str


class Transcript(Reply):
    """User and assistant text, in stored order. A page ends at `limit` messages or 4 MB."""

    conversationId: str
    messages: list[TranscriptMessage]
    cursor: str = ABSENT


class Evidence(Reply):
    """What led to a turn's answer."""

    conversationId: str
    turn: int
    status: TurnStatus
    runId: str
    agent: dict[str, str] = Field(description="The agent's name and version, where it has them: `id`, `version`.")
    evidence: dict[str, Any]


class Conversations(Reply):
    """The caller's own conversations, newest first."""

    conversations: list[ConversationLine]
    cursor: str = ABSENT


class ListedAsk(Ask):
    """An open ask that the caller may answer, and where it is."""

    conversationId: str
    turn: int


class Asks(Reply):
    """Open asks that the caller may answer, oldest first."""

    asks: list[ListedAsk]
    cursor: str = ABSENT


class Health(Reply):
    """The service answers."""

    status: Literal["ok"]
    version: str


class ErrorFacts(BaseModel):
    """What went wrong. `code` is stable; `message` says in one sentence what to do. Further fields depend on `code`."""

    model_config = ConfigDict(extra="allow", strict=True)

    code: str
    message: str
    requestId: str


class Error(Reply):
    """A refusal."""

    error: ErrorFacts


class GatewayMessage(Reply):
    """What API Gateway answers by itself, before or instead of the application."""

    message: str
