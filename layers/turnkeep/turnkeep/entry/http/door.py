"""The door: from an event to a reply.

API Gateway has matched the route before it calls us, on the decoded path, and says which one: that template is looked
up, and ids come from the event's path parameters. Matching the decoded text again, against an alphabet of some
resolver's, would lose ids that API.md allows and let others mean something else (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from turnkeep.entry.http.bodies import Reply, to_json
from turnkeep.entry.http.caller import caller_of
from turnkeep.entry.http.errors import RouteNotFoundError, as_refusal, error_reply
from turnkeep.entry.http.request import Request
from turnkeep.entry.observability import Observation
from turnkeep.entry.wiring import Invocation, start_is_over
from turnkeep.usecases.deps import Caller, Deadline, Deps

if TYPE_CHECKING:
    from turnkeep.entry.settings import Environment

EXPOSED_HEADERS: Final = "Location, Preference-Applied, Retry-After"
ALLOWED_HEADERS: Final = "Authorization, Content-Type, Idempotency-Key, Prefer"


@dataclass(frozen=True)
class Incoming:
    """What a route is given: the request, who sends it, and what to serve it with."""

    request: Request
    caller: Caller
    invocation: Invocation
    observation: Observation

    @property
    def deps(self) -> Deps:
        """The ports."""
        return self.invocation.deps

    @property
    def environment(self) -> Environment:
        """The deployment's settings."""
        return self.invocation.environment

    @property
    def deadline(self) -> Deadline:
        """The time that is left."""
        return self.invocation.deadline


@dataclass(frozen=True)
class Route:
    """One route of the API.

    Attributes:
        method, path: as API Gateway names them, such as ``GET`` and ``/conversations/{id}``.
        answer: what serves it.
        is_public: whether it is served without asking who calls.
    """

    method: str
    path: str
    answer: Callable[[Incoming], Reply]
    is_public: bool = False


Invoke = Callable[[Any, Observation], Invocation]
"""Composes what one invocation needs: ``entry.wiring.invocation``, or a test's own."""


class Door:
    """The routes of one function, as a Lambda handler. Like every Lambda process it serves one request at a time.

    Args:
        routes: the function's routes.
        invoke: composes the dependencies of one invocation from Lambda's context.
        observe: begins the observation of a request.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        invoke: Invoke,
        *,
        observe: Callable[[], Observation] = lambda: Observation("request"),
    ) -> None:
        self._routes = {(route.method, route.path): route for route in routes}
        self._invoke = invoke
        self._observe = observe

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        """Serves one event.

        Returns:
            The reply in API Gateway's payload 2.0. It never raises for a request: what goes wrong is a 500 without
            content, and a line in the log.
        """
        with self._observe() as observation:
            request = self._matched(Request.of(event, context))
            if (request.method, request.route) in self._routes:  # whatever else an event names is nobody's text to log
                observation.tell(method=request.method, route=request.route)
            observation.tell(requestId=request.request_id)
            try:
                return self._serve(request, context, observation)
            finally:
                start_is_over()  # also where the first request was refused before anything was made

    def _matched(self, request: Request) -> Request:
        """The request with its route; where the event names none of ours, the path's own segments decide."""
        if (request.method, request.route) in self._routes:
            return request
        segments = request.path.split("/")
        for method, template in self._routes:
            parameters = _match(template.split("/"), segments)
            if method == request.method and parameters is not None:
                return replace(request, route=template, path_parameters=parameters)
        return request

    def _serve(self, request: Request, context: Any, observation: Observation) -> dict[str, Any]:
        cors_origins: tuple[str, ...] = ()
        try:
            route = self._routes.get((request.method, request.route or ""))
            if route is None and request.method != "OPTIONS":
                raise RouteNotFoundError
            invocation = self._invoke(context, observation)
            cors_origins = invocation.environment.cors_origins
            reply = _PREFLIGHT if route is None else _answer(route, request, invocation, observation)
        except Exception as error:
            reply = _refused(error, request, observation)
        return _response(reply, request, cors_origins)


_PREFLIGHT: Final = Reply(
    204,
    None,
    {
        "Access-Control-Allow-Methods": "GET, POST, DELETE",
        "Access-Control-Allow-Headers": ALLOWED_HEADERS,
        "Access-Control-Max-Age": "600",
    },
)
"""To a browser's question whether it may call; API Gateway answers it itself where CORS is configured there."""


def _answer(route: Route, request: Request, invocation: Invocation, observation: Observation) -> Reply:
    environment = invocation.environment
    caller = (
        Caller()
        if route.is_public
        else caller_of(
            request.authorizer,
            tenant_claim=environment.tenant_claim,
            roles_claim=environment.roles_claim,
            allow_anonymous=environment.core.allow_anonymous,
        )
    )
    reply = route.answer(Incoming(request, caller, invocation, observation))
    if isinstance(reply.body, dict):
        observation.tell(**{name: reply.body.get(name) for name in ("conversationId", "turn", "runId")})
        if isinstance(status := reply.body.get("status"), str) and request.method != "GET":
            observation.outcome(status)
    return reply


def _refused(error: Exception, request: Request, observation: Observation) -> Reply:
    refusal = as_refusal(error)
    reply = error_reply(error, request.request_id)
    observation.tell(turn=refusal.facts().get("turn"))
    observation.refused(error, refusal.code or "", is_fault=reply.status >= 500)
    return reply


def _response(reply: Reply, request: Request, cors_origins: Sequence[str]) -> dict[str, Any]:
    """A reply as API Gateway takes it (payload 2.0)."""
    headers = {**reply.headers}
    origin = request.headers.get("origin", "")
    if origin and ("*" in cors_origins or origin in cors_origins):
        headers["Access-Control-Allow-Origin"] = "*" if "*" in cors_origins else origin
        headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
        headers["Vary"] = "Origin"
    if reply.body is not None:
        headers["Cache-Control"] = "no-store"
        headers["Content-Type"] = "application/json"
    return {
        "statusCode": reply.status,
        "headers": headers,
        "cookies": [],
        "body": "" if reply.body is None else to_json(reply.body),
        "isBase64Encoded": False,
    }


def _match(template: list[str], segments: list[str]) -> dict[str, str] | None:
    """The template's variables when the path is one of its paths, else None."""
    if len(template) != len(segments):
        return None
    found: dict[str, str] = {}
    for part, segment in zip(template, segments, strict=True):
        if part.startswith("{"):
            if not segment:
                return None
            found[part[1:-1]] = segment
        elif part != segment:
            return None
    return found
