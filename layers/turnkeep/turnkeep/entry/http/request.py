"""A request, as an HTTP API's event (payload 2.0) tells it. The only place that knows the event's shape."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnkeep.errors import InvalidRequestError

MAX_LIMIT = 100
DEFAULT_LIMIT = 50


@dataclass(frozen=True)
class Request:
    """What of an event the application reads.

    Attributes:
        method: upper case; empty where the event names none.
        route: the template that the gateway matched, such as ``/conversations/{id}``; None where it names none.
        path: the decoded path.
        path_parameters: the template's variables, decoded as the gateway hands them over.
        query: query parameters; what was sent twice is one text with a comma.
        headers: names in lower case.
        authorizer: the event's authorizer context as it is.
        request_id: of the gateway, else of the Lambda invocation.
    """

    method: str
    route: str | None
    path: str
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    authorizer: Mapping[str, Any] = field(default_factory=dict)
    body: str | None = None
    is_base64: bool = False
    request_id: str = ""

    @classmethod
    def of(cls, event: Mapping[str, Any], context: Any = None) -> Request:
        """Reads an event of any shape; what is not there is empty, and refused where it is needed.

        An event of a REST API (payload 1.0) is read as well, so that it is refused for its missing claims in the
        application's words and not by a crash.
        """
        scope = _mapping(event.get("requestContext"))
        http = _mapping(scope.get("http"))
        method = (_text(http.get("method")) or _text(event.get("httpMethod"))).upper()
        _, _, template = _text(event.get("routeKey")).partition(" ")
        request_id = _text(scope.get("requestId")) or getattr(context, "aws_request_id", None) or ""
        body = event.get("body")
        return cls(
            method=method,
            route=template or _text(event.get("resource")) or None,
            path=_path(event, scope),
            path_parameters=_texts(event.get("pathParameters")),
            query=_texts(event.get("queryStringParameters")),
            headers={name.lower(): value for name, value in _texts(event.get("headers")).items()},
            authorizer=_mapping(scope.get("authorizer")),
            body=body if isinstance(body, str) else None,
            is_base64=event.get("isBase64Encoded") is True,
            request_id=str(request_id),
        )

    def text(self) -> str:
        """The body's text; empty where there is none.

        Raises:
            InvalidRequestError: the body is not UTF-8.
        """
        if self.body is None:
            return ""
        if not self.is_base64:
            return self.body
        try:
            return base64.b64decode(self.body, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise InvalidRequestError("The body is not UTF-8; send JSON in UTF-8.", fields=["body"]) from error

    def limit(self) -> int:
        """How many entries a page may have: ``limit``, by default ``DEFAULT_LIMIT``.

        Raises:
            InvalidRequestError: no whole number from 1 to ``MAX_LIMIT``.
        """
        said = self.query.get("limit")
        if said is None:
            return DEFAULT_LIMIT
        if not (said.isascii() and said.isdigit() and len(said) <= 9 and 1 <= int(said) <= MAX_LIMIT):
            raise InvalidRequestError(
                f"limit is a whole number from 1 to {MAX_LIMIT}.",
                fields=["query.limit"],
            )
        return int(said)


def _path(event: Mapping[str, Any], scope: Mapping[str, Any]) -> str:
    path = _text(event.get("rawPath")) or _text(event.get("path"))
    stage = scope.get("stage")
    if isinstance(stage, str) and stage not in {"", "$default"} and path.startswith(f"/{stage}/"):
        return path[len(stage) + 1 :]
    return path


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> dict[str, str]:
    return {str(name): inner for name, inner in _mapping(value).items() if isinstance(inner, str)}
