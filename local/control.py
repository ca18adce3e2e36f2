"""`/_local/…` on the AWS endpoint: what tests and the curious ask the stack itself."""

from __future__ import annotations

import json
import signal
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from local.faults import Fault
from local.web import Request, Response

if TYPE_CHECKING:
    from local.server import Server


class Control:
    """Answers the control paths.

    | path | GET | POST | DELETE |
    |---|---|---|---|
    | `deployment` | functions, routes, outputs | | |
    | `calls` | counts and calls (`request_id`, `since`) | | forget them |
    | `faults` | the faults that are set | set one | remove all, or `faults/N` |
    | `faults/N/release` | | let go of what it holds | |
    | `logs` | lines (`function`, `request_id`, `since`) | | |
    | `invocations` | what runs, with pids | | |
    | `invocations/ID/signal` | | `{"signal": "KILL"}` | |
    | `environment` | | `{"function", "variables", "times"}` | take all back |
    | `schedules/NAME` | | fire it now | |
    | `jwks.json` | the issuer's public keys | | |
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def answer(self, request: Request) -> Response:
        """Serves one control request."""
        parts = request.path.removeprefix("/_local/").strip("/").split("/")
        query = {name: values[-1] for name, values in parse_qs(request.query).items()}
        try:
            body = json.loads(request.body) if request.body else {}
            found = self._act(request.method, parts, query, body)
        except (KeyError, TypeError, ValueError) as error:
            return _json(400, {"message": f"{type(error).__name__}: {error}"})
        return _json(404, {"message": "no such control path"}) if found is None else _json(200, found)

    def _act(self, method: str, parts: list[str], query: dict[str, str], body: dict[str, Any]) -> Any:
        server = self._server
        since = int(query.get("since", 0))
        match [method, *parts]:
            case ["GET", "deployment"]:
                return self._deployment()
            case ["GET", "calls"]:
                return server.aws.calls.snapshot(query.get("request_id"), since)
            case ["DELETE", "calls"]:
                server.aws.calls.reset()
                return {}
            case ["GET", "faults"]:
                return {"faults": server.aws.faults.snapshot()}
            case ["POST", "faults"]:
                return server.aws.faults.add(_fault(body)).to_dict()
            case ["DELETE", "faults"]:
                server.aws.faults.remove()
                return {}
            case ["DELETE", "faults", number]:
                server.aws.faults.remove(int(number))
                return {}
            case ["POST", "faults", number, "release"]:
                return {"released": server.aws.faults.release(int(number))}
            case ["GET", "logs"]:
                return server.logs.snapshot(query.get("function"), query.get("request_id"), since)
            case ["GET", "invocations"]:
                return {"invocations": self._invocations()}
            case ["POST", "invocations", request_id, "signal"]:
                number = signal.Signals[f"SIG{body['signal']}"]
                return {"sent": server.lambdas.signal(request_id, number)}
            case ["POST", "environment"]:
                variables = {str(name): str(value) for name, value in body["variables"].items()}
                server.lambdas.override(body.get("function"), variables, body.get("times"))
                return {}
            case ["DELETE", "environment"]:
                server.lambdas.clear_overrides()
                return {}
            case ["POST", "schedules", name]:
                return {"fired": server.events.fire(name)}
            case ["GET", "jwks.json"]:
                from local.keys import public_keys

                return public_keys(server.key)
        return None

    def _deployment(self) -> dict[str, Any]:
        from local.http import describe

        deployment = self._server.deployment
        functions = {
            function.logical_id: {
                "name": function.name,
                "handler": function.handler,
                "environment": function.environment,
                "timeout_s": function.timeout_s,
                "memory_mb": function.memory_mb,
                "paths": list(function.paths),
            }
            for function in deployment.functions
        }
        return {
            "functions": functions,
            "routes": describe(deployment.routes),
            "physical": deployment.physical,
            "outputs": deployment.outputs,
            "parameters": deployment.parameters,
        }

    def _invocations(self) -> list[dict[str, Any]]:
        return [
            {
                "request_id": running.request_id,
                "function": running.function.logical_id,
                "pid": running.pid,
                "started_ms": running.started_ms,
            }
            for running in self._server.lambdas.running()
            if running.pid and not running.ended
        ]


def _fault(body: dict[str, Any]) -> Fault:
    known = {each.name for each in fields(Fault)} - {"id", "met"}
    unknown = sorted(set(body) - known)
    if unknown:
        raise ValueError(f"a fault has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    return Fault(**body)


def _json(status: int, value: Any) -> Response:
    return Response(status, json.dumps(value).encode(), [("Content-Type", "application/json")])
