"""Writes ``docs/openapi.json``, the API's description, from the code: its routes, models and table of refusals.

``python -m tools.openapi`` writes the file; with ``--check`` it says whether the file is current, and exits with 1
where it is not.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from tools import openapi_models as m
from turnkeep import __version__
from turnkeep import errors as e
from turnkeep.entry.http.answer_routes import answer_routes
from turnkeep.entry.http.errors import REFUSALS, InternalError, Refusal
from turnkeep.entry.http.models import AnswerRequest, ConversationRequest, TurnRequest
from turnkeep.entry.http.prefer import MAX_KEY_CHARACTERS, MAX_WAIT_S
from turnkeep.entry.http.read_routes import read_routes
from turnkeep.entry.http.request import DEFAULT_LIMIT, MAX_LIMIT
from turnkeep.entry.http.turn_routes import turn_routes
from turnkeep.ids import PATH_RULE

if TYPE_CHECKING:
    from pydantic import BaseModel

    from turnkeep.entry.http.resolver import Route

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"
REF = "#/components/schemas/{model}"
GATEWAY_STATUSES = {401, 500, 503, 504}
"""Where API Gateway may answer by itself: no valid token, a function that died, nobody there, too late."""

DESCRIPTION = """\
turnkeep keeps an agent's conversation when every turn of it is run by a fresh agent.

**Who is calling** is what the gateway's JWT authorizer verified, and nothing in a header, a body or a path. A
conversation belongs to the first person who signed it; to everybody else it is one that does not exist.

**One turn at a time.** A message to a conversation whose turn has not ended is a 409. Send an `Idempotency-Key` with
every POST: the same request sent again, for whatever reason, runs once and is told how it stands.

**Questions to people.** A turn may end as `awaiting`: a 202 with the ask. Whoever its `audience` names answers it; the
turn goes on in a fresh process, and its end is at `Location`.

**Long turns.** API Gateway gives up after 30 s. `Prefer: respond-async` queues a turn; `Prefer: wait=N` waits up to N
seconds for its end.

All times are integer milliseconds since the Unix epoch. Fields of a request that are not named here are ignored. A
reply may gain fields; a `code` never changes its meaning."""

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
    """A reply of one status: the models it may be, in words, and its headers."""

    models: tuple[type[BaseModel], ...]
    when: str
    headers: tuple[str, ...] = ()


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


ASKS_OR_GOES_ON = Said(
    (m.TurnAsks, m.TurnGoesOn),
    "It waits for a person, or it is queued or under way.",
    ("Location", "Preference-Applied"),
)
STANDS = Said((m.TurnEnded, m.Turn), "It ended. A repeat of a request describes its turn as it stands.",
              ("Preference-Applied",))  # fmt: skip

OPERATIONS: dict[str, Operation] = {
    "POST /conversations": Operation(
        "createConversation",
        "Start a conversation",
        {
            200: STANDS,
            201: Said((m.Conversation,), "An empty conversation, owned by the caller.", ("Location",)),
            202: ASKS_OR_GOES_ON,
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

HEADERS: dict[str, dict[str, Any]] = {
    "Location": {"description": "Where the conversation or the turn is to be read.", "schema": {"type": "string"}},
    "Preference-Applied": {"description": "The preferences that were honoured.", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "Seconds after which the same request may be sent again.",
        "schema": {"type": "integer", "minimum": 0},
    },
}


def routes() -> list[Route]:
    """The routes of the code. Nothing is served, so the use cases are nobody."""
    nobody: Any = None
    return [
        *turn_routes(take_turn=nobody, create_conversation=nobody, erase_conversation=nobody),
        *answer_routes(answer_ask=nobody, withdraw_turn=nobody),
        *read_routes(
            read_conversation=nobody,
            read_turn=nobody,
            read_turns=nobody,
            read_transcript=nobody,
            read_evidence=nobody,
            list_conversations=nobody,
            list_asks=nobody,
        ),
    ]


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document.

    Raises:
        ValueError: a route of the code is not described here, or the other way round.
    """
    served = {f"{route.method} {route.path}": route for route in routes()}
    if served.keys() != OPERATIONS.keys():
        raise ValueError(f"described and served routes differ: {sorted(served.keys() ^ OPERATIONS.keys())}")
    paths: dict[str, dict[str, Any]] = {}
    refused = Refused()
    for key, operation in OPERATIONS.items():
        method, _, path = key.partition(" ")
        paths.setdefault(path, {})[method.lower()] = _operation(
            operation, path, refused, is_public=served[key].is_public
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "turnkeep",
            "version": __version__,
            "summary": "Conversations with an agent, kept turn by turn.",
            "description": DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": "conversations", "description": "Threads, each of one owner."},
            {"name": "turns", "description": "A message and all that it leads to."},
            {"name": "asks", "description": "Questions that a paused turn waits on."},
            {"name": "service", "description": "The service itself."},
        ],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "parameters": _parameters(),
            "headers": HEADERS,
            "responses": refused.responses,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "A token of the stack's issuer and audience. A stack that allows anonymous callers "
                    "takes requests without one.",
                }
            },
        },
    }


def _operation(operation: Operation, path: str, refused: Refused, *, is_public: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "security": [] if is_public else [{"token": []}, {}],
    }
    if operation.description:
        found["description"] = operation.description
    names = [name for name in ("id", "n") if f"{{{name}}}" in path]
    names += ["limit", "cursor"] if operation.pages else []
    names += ["Idempotency-Key", *(f"Prefer-{'-'.join(operation.prefers)}",)] if operation.request else []
    if names:
        found["parameters"] = [{"$ref": f"#/components/parameters/{name}"} for name in names]
    if operation.request is not None:
        found["requestBody"] = {
            "required": operation.body_required,
            "content": {"application/json": {"schema": {"$ref": REF.format(model=operation.request.__name__)}}},
        }
    found["responses"] = {str(status): _reply(said) for status, said in operation.replies.items()}
    found["responses"] |= refused.of(operation)
    return found


def _reply(said: Said) -> dict[str, Any]:
    refs: list[dict[str, Any]] = [{"$ref": REF.format(model=model.__name__)} for model in said.models]
    found: dict[str, Any] = {
        "description": said.when,
        "content": {"application/json": {"schema": refs[0] if len(refs) == 1 else {"anyOf": refs}}},
    }
    if said.headers:
        found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in said.headers}
    return found


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


class Refused:
    """Refusals as responses that routes share: one for each status and set of codes."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}

    def of(self, operation: Operation) -> dict[str, Any]:
        """A route's refusals, by status, as references."""
        found = {}
        for status, rows in sorted(refusals_of(operation).items()):
            response = _refusal(status, rows)
            name = next((name for name, known in self.responses.items() if known == response), None)
            if name is None:
                name = f"Refused{status}"
                if name in self.responses:
                    name += f"Of{operation.name[0].upper()}{operation.name[1:]}"
                self.responses[name] = response
            found[str(status)] = {"$ref": f"#/components/responses/{name}"}
        return found


def _refusal(status: int, rows: list[Refusal]) -> dict[str, Any]:
    ours = {
        "allOf": [
            {"$ref": REF.format(model="Error")},
            {"properties": {"error": {"properties": {"code": {"enum": sorted({row.code for row in rows})}}}}},
        ]
    }
    schema = {"anyOf": [ours, {"$ref": REF.format(model="GatewayMessage")}]} if status in GATEWAY_STATUSES else ours
    lines = []
    for row in rows:
        fields = f" Further fields: {', '.join(f'`{name}`' for name in row.fields)}." if row.fields else ""
        lines.append(f"`{row.code}`: {row.when}{fields}")
    found: dict[str, Any] = {
        "description": "\n\n".join(lines),
        "content": {"application/json": {"schema": schema}},
    }
    if any(row.retry_after for row in rows):
        found["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return found


def _parameters() -> dict[str, Any]:
    def prefer(*names: str) -> dict[str, Any]:
        words = {
            "wait": f"`wait=N`: wait up to N seconds, at most {MAX_WAIT_S}, for the turn to end.",
            "respond-async": "`respond-async`: answer as soon as the turn is queued.",
        }
        return {
            "name": "Prefer",
            "in": "header",
            "description": "RFC 7240. " + " ".join(words[name] for name in names),
            "schema": {"type": "string"},
            "example": "wait=10",
        }

    return {
        "id": {
            "name": "id",
            "in": "path",
            "required": True,
            "description": PATH_RULE,
            "schema": {"type": "string", "pattern": r"^([A-Za-z0-9._-]{1,200}|~[A-Za-z0-9_-]+)$"},
        },
        "n": {
            "name": "n",
            "in": "path",
            "required": True,
            "description": "The turn's number.",
            "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999_999_999},
        },
        "limit": {
            "name": "limit",
            "in": "query",
            "description": "How many entries a page has at most.",
            "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
        },
        "cursor": {
            "name": "cursor",
            "in": "query",
            "description": "Of the page before. Valid for its caller and listing only.",
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
        },
        "Idempotency-Key": {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Names this request: sent again, it runs once. Kept for 24 h, a parameter of the stack.",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARACTERS, "pattern": "^[ -~]+$"},
        },
        "Prefer-wait": prefer("wait"),
        "Prefer-wait-respond-async": prefer("wait", "respond-async"),
    }


def _schemas() -> dict[str, Any]:
    used: dict[str, type[BaseModel]] = {model.__name__: model for model in (m.Error, m.GatewayMessage)}
    for operation in OPERATIONS.values():
        for said in operation.replies.values():
            used |= {model.__name__: model for model in said.models}
        if operation.request is not None:
            used[operation.request.__name__] = operation.request
    _, found = models_json_schema([(model, "validation") for model in used.values()], ref_template=REF)
    return {name: _plain(schema) for name, schema in sorted(found["$defs"].items())}


def _plain(schema: Any, *, is_names: bool = False) -> Any:
    """A schema without pydantic's titles, defaults that mean "absent", and closed objects: a reply may gain fields."""
    if isinstance(schema, list):
        return [_plain(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if is_names:
        return {name: _plain(inner) for name, inner in schema.items()}
    return {
        name: _plain(inner, is_names=name == "properties")
        for name, inner in schema.items()
        if name not in {"title", "additionalProperties"} and not (name == "default" and inner in (None, 0, ""))
    } | ({"additionalProperties": schema["additionalProperties"]} if schema.get("additionalProperties") else {})


def text() -> str:
    """The file's text."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Writes the file, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the file is current")
    if parser.parse_args().check:
        current = FILE.is_file() and FILE.read_text("utf-8") == text()
        print("docs/openapi.json is current." if current else "docs/openapi.json is not current: run make openapi.")
        return 0 if current else 1
    FILE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
