"""The door: from an event to a reply, through Powertools' HTTP resolver.

API Gateway has matched the route before it calls us, on the decoded path, and says which one. The resolver is given
that template as the path: matching the decoded text again, against an alphabet of its own, would lose ids that API.md
allows and let others mean something else. Ids come from the event's path parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools.event_handler.api_gateway import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError

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
        self._app = APIGatewayHttpResolver(debug=False)
        for route in routes:
            self._app.route(route.path, method=route.method)(self._handler(route))
        self._app.exception_handler(NotFoundError)(self._not_found)
        self._app.exception_handler(Exception)(self._failed)

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
            self._app.context.update(request=request, observation=observation, lambda_context=context)
            try:
                return self._app.resolve(_routing_event(request), context)
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

    def _handler(self, route: Route) -> Callable[[], Response[str]]:
        def serve() -> Response[str]:
            request: Request = self._app.context["request"]
            observation: Observation = self._app.context["observation"]
            invocation = self._invoke(self._app.context["lambda_context"], observation)
            self._app.context["cors_origins"] = invocation.environment.cors_origins
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
            return self._respond(reply)

        serve.__name__ = serve.__qualname__ = (
            "serve_" + route.method.lower() + "".join(letter if letter.isalnum() else "_" for letter in route.path)
        )
        return serve

    def _not_found(self, error: NotFoundError) -> Response[str]:
        request: Request = self._app.context["request"]
        if request.method == "OPTIONS":
            return self._preflight(request)
        return self._failed(RouteNotFoundError())

    def _preflight(self, request: Request) -> Response[str]:
        """A browser's question whether it may call; API Gateway answers it itself where CORS is configured there."""
        observation: Observation = self._app.context["observation"]
        environment = self._invoke(self._app.context["lambda_context"], observation).environment
        self._app.context["cors_origins"] = environment.cors_origins
        headers = {
            "Access-Control-Allow-Methods": "GET, POST, DELETE",
            "Access-Control-Allow-Headers": ALLOWED_HEADERS,
            "Access-Control-Max-Age": "600",
        }
        return self._respond(Reply(204, None, headers))

    def _failed(self, error: Exception) -> Response[str]:
        request: Request = self._app.context["request"]
        observation: Observation = self._app.context["observation"]
        refusal = as_refusal(error)
        reply = error_reply(error, request.request_id)
        observation.tell(turn=refusal.facts().get("turn"))
        observation.refused(error, refusal.code or "", is_fault=reply.status >= 500)
        return self._respond(reply)

    def _respond(self, reply: Reply) -> Response[str]:
        request: Request = self._app.context["request"]
        headers: dict[str, str | list[str]] = {**reply.headers}
        origins = self._app.context.get("cors_origins", ())
        origin = request.headers.get("origin", "")
        if origin and ("*" in origins or origin in origins):
            headers["Access-Control-Allow-Origin"] = "*" if "*" in origins else origin
            headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
            headers["Vary"] = "Origin"
        if reply.body is None:
            return Response(status_code=reply.status, body="", headers=headers)
        headers["Cache-Control"] = "no-store"
        return Response(
            status_code=reply.status, content_type="application/json", body=to_json(reply.body), headers=headers
        )


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


def _routing_event(request: Request) -> dict[str, Any]:
    """What the resolver needs to find the route: the template as the path, and nothing of the caller's text."""
    path = request.route if request.route is not None else "/no-route"
    return {
        "version": "2.0",
        "routeKey": f"{request.method} {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {},
        "requestContext": {"stage": "$default", "http": {"method": request.method or "NONE", "path": path}},
        "isBase64Encoded": False,
    }
