"""The HTTP API: finds the route, checks a token where one is sent, runs the function, shapes its answer."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from local.authorizer import Authorizer, Refused
from local.lambdas import PAYLOAD_LIMIT_BYTES, Lambdas, TooManyInvocations
from local.payload import BadAnswer, build_event, shape_response
from local.routes import Cors, Match, Route, decode_path, match_route
from local.web import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.function import Outcome

BODY_LIMIT_BYTES = 10_485_760
INTEGRATION_TIMEOUT_S = 30.0


def _said(status: int, message: str, *headers: tuple[str, str]) -> Response:
    body = json.dumps({"message": message}, separators=(",", ":")).encode()
    return Response(status, body, [("content-type", "application/json"), *headers])


@dataclass
class HttpApi:
    """One HTTP API; `answer` is the web server's handler.

    Attributes:
        timeout_s: How long the gateway waits for a function.
        on_answer: Told of every request, its answer and how many milliseconds it took.
    """

    lambdas: Lambdas
    authorizer: Authorizer
    routes: list[Route]
    cors: Cors | None = None
    timeout_s: float = INTEGRATION_TIMEOUT_S
    on_answer: Callable[[Request, Response, int], None] = lambda request, response, ms: None

    def answer(self, request: Request) -> Response:
        """Serves one request."""
        request_id, began_s = uuid.uuid4().hex[:16], time.monotonic()
        response = self._preflight(request) or self._routed(request, request_id)
        response.headers.append(("apigw-requestid", request_id))
        self._add_cors(request, response)
        self.on_answer(request, response, round((time.monotonic() - began_s) * 1000))
        return response

    def _routed(self, request: Request, request_id: str) -> Response:
        path = decode_path(request.path)
        match = match_route(self.routes, request.method, path)
        if match is None:
            return _said(404, "Not Found")
        claims = None
        token = request.header("authorization")
        if token and not match.route.open:
            try:
                claims = self.authorizer.claims(token)
            except Refused as refused:
                return _said(401, "Unauthorized", ("www-authenticate", refused.challenge))
        if request.too_large:
            return _said(413, "Request Entity Too Large")
        host = request.header("host", "localhost")
        event = json.dumps(build_event(request, path, match, claims, host, request_id), ensure_ascii=False)
        encoded = event.encode("utf-8", "replace")
        if len(encoded) > PAYLOAD_LIMIT_BYTES:
            return _said(413, "Request Entity Too Large")
        return self._integrate(match, encoded)

    def _integrate(self, match: Match, event: bytes) -> Response:
        function = self.lambdas.find(match.route.function)
        if function is None:
            return _said(500, "Internal Server Error")
        box: list[Outcome] = []

        def run() -> None:
            try:
                box.append(self.lambdas.invoke(function, event))
            except TooManyInvocations:
                return

        # The function goes on when the gateway has given up: only the caller is told otherwise.
        thread = threading.Thread(target=run, name=f"http-{function.logical_id}", daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if not box:
            return _said(503, "Service Unavailable")
        if box[0].error:
            return _said(500, "Internal Server Error")
        try:
            return shape_response(box[0].payload)
        except BadAnswer:
            return _said(500, "Internal Server Error")

    def _preflight(self, request: Request) -> Response | None:
        cors = self.cors
        asked = request.header("access-control-request-method")
        if cors is None or request.method != "OPTIONS" or not asked:
            return None
        headers: list[tuple[str, str]] = []
        if _allowed_origin(cors, request.header("origin")):
            headers.append(("access-control-allow-methods", ",".join(cors.methods)))
            headers.append(("access-control-allow-headers", ",".join(cors.headers)))
            if cors.max_age_s is not None:
                headers.append(("access-control-max-age", str(cors.max_age_s)))
        return Response(204, b"", headers)

    def _add_cors(self, request: Request, response: Response) -> None:
        """Where an API has a CORS configuration, it replaces whatever CORS headers the function sent."""
        cors = self.cors
        if cors is None:
            return
        response.headers[:] = [
            (name, value)
            for name, value in response.headers
            if not name.lower().startswith("access-control-") or response.status == 204
        ]
        origin = _allowed_origin(cors, request.header("origin"))
        if origin:
            response.headers.append(("access-control-allow-origin", origin))
            if origin != "*":
                response.headers.append(("vary", "Origin"))
            if cors.credentials:
                response.headers.append(("access-control-allow-credentials", "true"))
            if cors.exposed:
                response.headers.append(("access-control-expose-headers", ",".join(cors.exposed)))


def _allowed_origin(cors: Cors, origin: str) -> str | None:
    if not origin:
        return None
    if "*" in cors.origins:
        return "*"
    for allowed in cors.origins:
        if allowed == origin or (allowed.endswith("://*") and origin.startswith(allowed[:-1])):
            return origin
    return None


def describe(routes: list[Route]) -> list[dict[str, Any]]:
    """The routes as plain values."""
    return [{"key": route.key, "function": route.function, "open": route.open} for route in routes]
