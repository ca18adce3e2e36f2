"""What the API's description says of each route beyond what the code tells: words, replies, refusals, ways on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tools import openapi_models as m
from turnkeep import errors as e
from turnkeep.agent.provider import ModelThrottledError, ModelUnavailableError
from turnkeep.entry.http.errors import REFUSALS, InternalError, Refusal
from turnkeep.entry.http.models import AnswerRequest, ConversationRequest, TurnRequest

if TYPE_CHECKING:
    from pydantic import BaseModel

COMMON = (e.InvalidRequestError, e.IdentityNotVerifiedError, InternalError, e.StoreUnavailableError)
FOUND = (e.SessionNotFoundError,)
READ = (e.UnreadableEnvelopeError, e.UnknownStoredFormatError, e.MalformedStoredItemError)
RUN = (
    e.ConcurrentRunError,
    e.AwaitingDecisionError,
    e.ConversationMismatchError,
    e.MessageTooLargeError,
    e.IdempotencyMismatchError,
    e.AdmissionRefusedError,
    e.RunFailedError,
    ModelThrottledError,
    ModelUnavailableError,
    e.TurnOutOfTimeError,
)
ANSWER = (
    e.DecisionRequiredError,
    e.NotYoursToAnswerError,
    e.AlreadyAnsweredError,
    e.AskExpiredError,
    e.StaleDecisionError,
    e.NoPendingAskError,
    e.MessageTooLargeError,
    e.IdempotencyMismatchError,
)


@dataclass(frozen=True)
class Said:
    """A reply of one status: the models it may be, in words, its headers, and where one goes on from it."""

    models: tuple[type[BaseModel], ...]
    when: str
    headers: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    """What the document says of one route beyond what the code tells."""

    name: str
    summary: str
    replies: dict[int, Said]
    refusals: tuple[type[e.TurnkeepError], ...]
    description: str = ""
    request: type[BaseModel] | None = None
    body_required: bool = True
    prefers: tuple[str, ...] = ()
    pages: bool = False
    tag: str = field(default="conversations")


HERE, THERE = "$request.path.id", "$response.body#/conversationId"
TURN, ASKED = "$response.body#/turn", "$response.body#/awaiting/askId"


def _to(operation: str, description: str, **parameters: str) -> dict[str, Any]:
    return {"operationId": operation, "description": description, "parameters": parameters}


LINKS: dict[str, dict[str, Any]] = {
    "Conversation": _to("readConversation", "The conversation that was created.", id=THERE),
    "NextMessage": _to("takeTurn", "The next message to the conversation that was created.", id=THERE),
    "FirstTurn": _to("readTurn", "The first turn of the conversation that was created.", id=THERE, n=TURN),
    "Turn": _to("readTurn", "The turn as it stands.", id=HERE, n=TURN),
    "Evidence": _to("readEvidence", "What led to the turn's answer.", id=HERE, n=TURN),
    "Withdrawal": _to("withdrawTurn", "Takes the open ask back, or cancels the queued turn.", id=HERE, n=TURN),
    "Answer": _to("answerAsk", "Answers the open ask.", id=HERE) | {"requestBody": {"askId": ASKED}},
}

ASKS_OR_GOES_ON = Said(
    (m.TurnAsks, m.TurnGoesOn),
    "It waits for a person, or it is queued or under way.",
    ("Location", "Preference-Applied"),
    ("Turn", "Answer", "Withdrawal"),
)
STANDS = Said((m.TurnEnded, m.Turn), "It ended. A repeat of a request describes its turn as it stands.",
              ("Preference-Applied",), ("Turn", "Evidence"))  # fmt: skip

CREATED = ("Conversation", "NextMessage", "FirstTurn")

OPERATIONS: dict[str, Operation] = {
    "POST /conversations": Operation(
        "createConversation",
        "Start a conversation",
        {
            200: replace(STANDS, links=CREATED),
            201: Said(
                (m.Conversation,),
                "An empty conversation, owned by the caller.",
                ("Location",),
                ("Conversation", "NextMessage"),
            ),
            202: replace(ASKS_OR_GOES_ON, links=CREATED),
        },
        (*COMMON, *FOUND, *READ, *RUN),
        "With a `message` its first turn runs, and the reply is that turn's. Its id cannot be guessed; with an "
        "`Idempotency-Key` the same request names the same conversation.",
        request=ConversationRequest,
        body_required=False,
        prefers=("wait", "respond-async"),
    ),
    "GET /conversations": Operation(
        "listConversations",
        "List your conversations",
        {200: Said((m.Conversations,), "A page, newest first.")},
        (*COMMON, e.SessionOpNeedsIdentityError),
        pages=True,
    ),
    "GET /conversations/{id}": Operation(
        "readConversation",
        "Read a conversation's summary",
        {200: Said((m.Conversation,), "The summary, and the open ask where there is one.")},
        (*COMMON, *FOUND, *READ),
    ),
    "DELETE /conversations/{id}": Operation(
        "eraseConversation",
        "Erase a conversation",
        {202: Said((m.Erasing,), "It is gone for every caller; what is stored of it is deleted in the background.")},
        (*COMMON, *FOUND, *READ),
    ),
    "POST /conversations/{id}/turns": Operation(
        "takeTurn",
        "Send a message",
        {200: STANDS, 202: ASKS_OR_GOES_ON},
        (*COMMON, *FOUND, *READ, *RUN),
        "Runs one turn. A conversation that does not exist is created and is the caller's.",
        request=TurnRequest,
        prefers=("wait", "respond-async"),
        tag="turns",
    ),
    "GET /conversations/{id}/turns": Operation(
        "listTurns",
        "List a conversation's turns",
        {200: Said((m.Turns,), "A page, in order.")},
        (*COMMON, *FOUND, *READ),
        pages=True,
        tag="turns",
    ),
    "GET /conversations/{id}/turns/{n}": Operation(
        "readTurn",
        "Read a turn",
        {200: Said((m.Turn,), "The turn as it stands.")},
        (*COMMON, *FOUND, *READ, e.TurnNotFoundError),
        tag="turns",
    ),
    "DELETE /conversations/{id}/turns/{n}": Operation(
        "withdrawTurn",
        "Withdraw an open ask, or cancel a queued turn",
        {200: Said((m.Turn,), "The turn, closed. Withdrawing twice is once.")},
        (*COMMON, *FOUND, *READ, e.TurnNotFoundError, e.AlreadyAnsweredError, e.ConcurrentRunError),
        tag="turns",
    ),
    "GET /conversations/{id}/turns/{n}/evidence": Operation(
        "readEvidence",
        "Read what led to a turn's answer",
        {200: Said((m.Evidence,), "The evidence.")},
        (*COMMON, *FOUND, *READ, e.TurnNotFoundError),
        tag="turns",
    ),
    "GET /conversations/{id}/transcript": Operation(
        "readTranscript",
        "Read a conversation's transcript",
        {200: Said((m.Transcript,), "A page of user and assistant text, in stored order.")},
        (*COMMON, *FOUND, *READ),
        pages=True,
    ),
    "POST /conversations/{id}/answers": Operation(
        "answerAsk",
        "Answer an ask",
        {
            200: Said(
                (m.TurnEnded, m.Turn, m.TurnStatusOnly), "After a wait: the turn ended.", ("Preference-Applied",)
            ),
            202: Said(
                (m.TurnAsks, m.TurnGoesOn),
                "The answer is recorded and its turn goes on, or, after a wait, asks again.",
                ("Location", "Preference-Applied"),
            ),
        },
        (*COMMON, *FOUND, *READ, *ANSWER),
        "Judged by its `askId`, first answer wins. Somebody who holds the ask's role is told the status only, ever.",
        request=AnswerRequest,
        prefers=("wait",),
        tag="asks",
    ),
    "GET /asks": Operation(
        "listAsks",
        "List the open asks that you may answer",
        {200: Said((m.Asks,), "A page, oldest first.")},
        (*COMMON, e.SessionOpNeedsIdentityError),
        pages=True,
        tag="asks",
    ),
    "GET /health": Operation(
        "readHealth",
        "Is the service there?",
        {200: Said((m.Health,), "It is.")},
        (InternalError,),
        "Needs no token, reads nothing.",
        tag="service",
    ),
}


def refusals_of(operation: Operation) -> dict[int, list[Refusal]]:
    """The rows of the table of refusals that a route may answer with, by status.

    Raises:
        ValueError: an error without a row.
    """
    missing = set(operation.refusals) - {refusal.error for refusal in REFUSALS}
    if missing:
        raise ValueError(f"no row in the table of refusals: {missing}")
    by_status: dict[int, list[Refusal]] = {}
    for refusal in REFUSALS:
        if refusal.error in operation.refusals:
            by_status.setdefault(refusal.status, []).append(refusal)
    return by_status
