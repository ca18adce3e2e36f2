"""Writes ``docs/openapi.json``, the API's description, from the code: its routes, models and table of refusals.

``python -m tools.openapi`` writes the file; with ``--check`` it says whether the file is current, and exits with 1
where it is not.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from tools import openapi_models as m
from tools.openapi_operations import LINKS, OPERATIONS, Operation, Said, refusals_of
from turnkeep import __version__
from turnkeep.entry.http.answer_routes import answer_routes
from turnkeep.entry.http.prefer import MAX_KEY_CHARACTERS, MAX_WAIT_S
from turnkeep.entry.http.read_routes import read_routes
from turnkeep.entry.http.request import DEFAULT_LIMIT, MAX_LIMIT
from turnkeep.entry.http.turn_routes import turn_routes
from turnkeep.ids import PATH_RULE

if TYPE_CHECKING:
    from pydantic import BaseModel

    from turnkeep.entry.http.door import Route
    from turnkeep.entry.http.errors import Refusal

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"
REF = "#/components/schemas/{model}"
GATEWAY_STATUSES = {
    401: "no valid token",
    404: "no such route, as where an id holds a slash",
    413: "over 10 MB",
    429: "too many requests at once",
    500: "the function died",
    503: "the function was not there, or not in time",
    504: "not in time",
}
"""Where API Gateway may answer by itself, and why."""
ON_EVERY_ROUTE = (429, 503)

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
            "links": LINKS,
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
    if said.links:
        found["links"] = {name: {"$ref": f"#/components/links/{name}"} for name in said.links}
    return found


class Refused:
    """Refusals as responses that routes share: one for each status and set of codes."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}

    def of(self, operation: Operation) -> dict[str, Any]:
        """A route's refusals, by status, as references."""
        found = {}
        nothing_of_ours: dict[int, list[Refusal]] = {status: [] for status in ON_EVERY_ROUTE}
        by_status = nothing_of_ours | refusals_of(operation)
        for status, rows in sorted(by_status.items()):
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
    ways: list[dict[str, Any]] = []
    lines = []
    if rows:
        codes = {"enum": sorted({row.code for row in rows})}
        code = {"properties": {"error": {"properties": {"code": codes}}}}
        ways.append({"allOf": [{"$ref": REF.format(model="Error")}, code]})
    for row in rows:
        fields = f" Further fields: {', '.join(f'`{name}`' for name in row.fields)}." if row.fields else ""
        lines.append(f"`{row.code}`: {row.when}{fields}")
    if status in GATEWAY_STATUSES:
        ways.append({"$ref": REF.format(model="GatewayMessage")})
        lines.append(f"Without a code, API Gateway itself: {GATEWAY_STATUSES[status]}.")
    found: dict[str, Any] = {
        "description": "\n\n".join(lines),
        "content": {"application/json": {"schema": ways[0] if len(ways) == 1 else {"anyOf": ways}}},
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
