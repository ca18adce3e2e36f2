"""The AWS endpoint: moto behind a door that counts calls, injects faults and runs Lambda invocations itself."""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from local.asynchronous import AsyncInvocations
from local.backend import Backend
from local.calls import CallLog
from local.faults import Fault, FaultBook, refusal_of, split_batch
from local.interpreter import MACHINE_AGENT
from local.lambdas import Lambdas, TooManyInvocations, log_result
from local.permissions import conditions_of, permissions_of
from local.refusals import aws_json, refuse
from local.touched import reads_strongly, touched_by
from local.web import DropConnection, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

# The stack's own pollers say this of themselves; they are neither counted nor troubled.
OWN_HEADER = "x-turnkeep-local"
_INVOKE = re.compile(r"/2015-03-31/functions/([^/]+)/invocations/?")
_SCOPE = re.compile(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request")
_REFUSING = frozenset({"throttle", "error", "cancelled", "in_progress"})


class AwsEndpoint:
    """Answers every request to the endpoint; `answer` is the web server's handler."""

    def __init__(self, lambdas: Lambdas, control: Callable[[Request], Response]) -> None:
        self.calls = CallLog()
        self.faults = FaultBook()
        self.after: dict[tuple[str, str], Callable[[dict[str, Any]], None]] = {}
        self._lambdas = lambdas
        self._control = control
        self._backend = Backend()
        self.asynchronous = AsyncInvocations(lambdas)

    def load(self) -> None:
        """Imports moto (seconds, once a process)."""
        self._backend.load()

    def answer(self, request: Request) -> Response:
        """Serves one request."""
        if request.path.startswith("/_local/"):
            return self._control(request)
        service, operation = name_call(request)
        if request.header(OWN_HEADER):
            return self._apply(service, operation, request)
        return self._counted(service, operation, request)

    def _counted(self, service: str, operation: str, request: Request) -> Response:
        began = time.monotonic()
        caller = self._lambdas.caller(request.header("x-amzn-trace-id"))
        names = (caller.function.logical_id, caller.function.name) if caller else ()
        machine = not caller and MACHINE_AGENT in request.header("user-agent")
        fault = self.faults.meet(service, operation, request.body, names)
        if fault and caller:
            fault.met_by.append(caller.request_id)
        response: Response | None = None
        try:
            response = (
                self._met(fault, service, operation, request) if fault else self._apply(service, operation, request)
            )
            return response
        finally:
            self.calls.add(
                at_ms=time.time_ns() // 1_000_000,
                service=service,
                operation=operation,
                function=caller.function.logical_id if caller else "",
                request_id=caller.request_id if caller else "",
                status=response.status if response else 0,
                error=_error_code(response) if response and response.status >= 300 else "",
                fault=fault.kind if fault else "",
                duration_ms=int((time.monotonic() - began) * 1000),
                sent_bytes=len(request.body),
                received_bytes=len(response.body) if response else 0,
                machine=machine,
                permissions=permissions_of(service, operation, request) if caller or machine else [],
                conditions=conditions_of(service, operation, request.body) if machine else {},
                items=touched_by(service, operation, request.body),
                consistent=reads_strongly(service, request.body),
            )

    def _met(self, fault: Fault, service: str, operation: str, request: Request) -> Response:
        if fault.kind in _REFUSING:
            return refuse(service, *refusal_of(fault, service))
        match fault.kind:
            case "cut":
                raise DropConnection
            case "slow":
                time.sleep(fault.delay_ms / 1000)
            case "hold":
                self.faults.wait_for_release(fault)
            case "hold_cut":
                self.faults.wait_for_release(fault)
                raise DropConnection
            case "partial":
                return self._partly(fault, service, operation, request)
        response = self._apply(service, operation, request)
        match fault.kind:
            case "lost":
                raise DropConnection
            case "slow_answer":
                time.sleep(fault.delay_ms / 1000)
            case "hold_answer":
                self.faults.wait_for_release(fault)
        return response

    def _partly(self, fault: Fault, service: str, operation: str, request: Request) -> Response:
        rest, taken = split_batch(operation, request.body, fault.leave)
        reading = operation == "BatchGetItem"
        if rest:
            response = self._apply(service, operation, request.with_body(rest))
            if response.status != 200:
                return response
            members = json.loads(response.body)
        else:
            members = {"Responses": {}} if reading else {}
        members["UnprocessedKeys" if reading else "UnprocessedItems"] = taken
        return aws_json(200, members)

    def _apply(self, service: str, operation: str, request: Request) -> Response:
        if service == "lambda" and operation == "Invoke":
            return self._invoke(request)
        response = self._backend.ask(service, operation, request)
        after = self.after.get((service, operation))
        if after and response.status == 200:
            after(json.loads(request.body))
        return response

    def _invoke(self, request: Request) -> Response:
        match = _INVOKE.fullmatch(unquote(request.path))
        function = self._lambdas.find(match[1]) if match else None
        if function is None:
            name = match[1] if match else request.path
            return refuse("lambda", 404, "ResourceNotFoundException", f"Function not found: {name}", {})
        event = request.body or b"{}"
        kind = request.header("x-amz-invocation-type", "RequestResponse")
        if kind == "DryRun":
            return Response(204)
        if len(event) > (1_048_576 if kind == "Event" else 6_291_456):
            text = f"{len(event)} byte payload is too large"
            return refuse("lambda", 413, "RequestTooLargeException", text, {})
        request_id = str(uuid.uuid4())
        if kind == "Event":
            self.asynchronous.submit(function.name, event, request_id)
            return Response(202, b"", [("x-amzn-RequestId", request_id)])
        try:
            outcome = self._lambdas.invoke(function, event, request_id)
        except TooManyInvocations:
            extra = {"Reason": "ReservedFunctionConcurrentInvocationLimitExceeded", "Type": "User"}
            return refuse("lambda", 429, "TooManyRequestsException", "Rate Exceeded.", extra)
        headers = [
            ("Content-Type", "application/json"),
            ("x-amzn-RequestId", request_id),
            ("X-Amz-Executed-Version", "$LATEST"),
        ]
        if outcome.error:
            headers.append(("X-Amz-Function-Error", "Unhandled"))
        if request.header("x-amz-log-type") == "Tail":
            headers.append(("X-Amz-Log-Result", log_result(outcome)))
        return Response(200, outcome.payload, headers)


def name_call(request: Request) -> tuple[str, str]:
    """The service and the operation that a request asks for, as their API references spell them."""
    scope = _SCOPE.search(request.header("authorization"))
    service = scope[1] if scope else ""
    if _INVOKE.fullmatch(unquote(request.path)):
        return "lambda", "Invoke"
    target = request.header("x-amz-target")
    if target:
        return service or target.split("_")[0].lower(), target.rpartition(".")[2]
    if request.header("content-type").startswith("application/x-www-form-urlencoded"):
        action = parse_qs(request.body.decode("utf-8", "replace")).get("Action")
        if action:
            return service, action[0]
    operation = re.search(r"/operation/(\w+)$", request.path)
    return service, operation[1] if operation else f"{request.method} {request.path}"


def _error_code(response: Response) -> str:
    header = next((value for name, value in response.headers if name.lower() == "x-amzn-errortype"), "")
    if header:
        return header.split(":")[0]
    found = re.search(rb'"__type":\s*"([^"]+)"|<Code>([^<]+)</Code>', response.body)
    return (found[1] or found[2]).decode().rpartition("#")[2] if found else ""
