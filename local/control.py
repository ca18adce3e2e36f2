"""`/_local/…` on the AWS endpoint: what tests and the curious ask the stack itself."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import fields
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from local.faults import Fault
from local.http import describe
from local.keys import public_keys
from local.web import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

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
        path = request.path.removeprefix("/_local/").strip("/")
        query = {name: values[-1] for name, values in parse_qs(request.query).items()}
        for method, pattern, act in self._table():
            if method == request.method and (match := re.fullmatch(pattern, path)):
                try:
                    body = json.loads(request.body) if request.body else {}
                    return _json(200, act(*match.groups(), **({"body": body} if method == "POST" else query)))
                except (KeyError, TypeError, ValueError) as error:
                    return _json(400, {"message": f"{type(error).__name__}: {error}"})
        return _json(404, {"message": "no such control path"})

    def _table(self) -> list[tuple[str, str, Callable[..., Any]]]:
        server = self._server
        calls, faults = server.aws.calls, server.aws.faults
        return [
            ("GET", "deployment", self._deployment),
            ("GET", "calls", lambda request_id=None, since=0: calls.snapshot(request_id, int(since))),
            ("DELETE", "calls", calls.reset),
            ("GET", "faults", lambda: {"faults": faults.snapshot()}),
            ("POST", "faults", lambda body: faults.add(_fault(body)).to_dict()),
            ("DELETE", "faults", faults.remove),
            ("DELETE", r"faults/(\d+)", lambda number: faults.remove(int(number))),
            ("POST", r"faults/(\d+)/release", lambda number, body: {"released": faults.release(int(number))}),
            ("GET", "logs", self._logs),
            ("GET", "invocations", self._invocations),
            ("POST", r"invocations/([\w-]+)/signal", self._send_signal),
            ("POST", "environment", self._override),
            ("DELETE", "environment", server.lambdas.clear_overrides),
            ("POST", r"schedules/(.+)", lambda name, body: {"fired": server.events.fire(unquote(name))}),
            ("GET", "jwks.json", lambda: public_keys(server.key)),
        ]

    def _logs(self, function: str | None = None, request_id: str | None = None, since: str = "0") -> dict[str, Any]:
        return self._server.logs.snapshot(function, request_id, int(since))

    def _send_signal(self, request_id: str, body: dict[str, Any]) -> dict[str, Any]:
        number = signal.Signals[f"SIG{body['signal']}"]
        return {"sent": self._server.lambdas.signal(request_id, number)}

    def _override(self, body: dict[str, Any]) -> None:
        variables = {str(name): str(value) for name, value in body["variables"].items()}
        self._server.lambdas.override(body.get("function"), variables, body.get("times"))

    def _deployment(self) -> dict[str, Any]:
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

    def _invocations(self) -> dict[str, Any]:
        running = [
            {
                "request_id": each.request_id,
                "function": each.function.logical_id,
                "pid": each.pid,
                "started_ms": each.started_ms,
                "phase": "handler" if each.in_handler else "init",
            }
            for each in self._server.lambdas.running()
            if each.pid and not each.ended
        ]
        return {"invocations": running}


def _fault(body: dict[str, Any]) -> Fault:
    known = {each.name for each in fields(Fault)} - {"id", "met", "met_by"}
    unknown = sorted(set(body) - known)
    if unknown:
        raise ValueError(f"a fault has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    return Fault(**body)


def _json(status: int, value: Any) -> Response:
    return Response(status, json.dumps(value).encode(), [("Content-Type", "application/json")])
