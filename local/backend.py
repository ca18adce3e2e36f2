"""moto behind locks: one call at a time a service, and what moto does not know of its services' promises."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from local.interpreter import load_moto
from local.refusals import refuse
from local.settings import REGION
from local.tables import TRANSACTION_LIMIT_BYTES, transaction_size_bytes
from local.web import Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

TOKEN_LIFE_S = 600.0
STATES_LIMIT_BYTES = 262_144
_STATES_LIMITS = {"StartExecution": "input", "SendTaskSuccess": "output"}
_SCOPE = re.compile(r"(Credential=[^/]+/\d+/)([^/]+)(/)([^/]+)(/aws4_request)")
# How soon a long poll notices a message.
_POLL_S = 0.02


class Backend:
    """moto's application. Every method is safe under threads.

    moto's services are not: a cancelled DynamoDB transaction puts a copy of its tables back and takes other writes
    with it, SQS loses messages that come while others go, and one name starts two executions. So each of these answers
    one call at a time.
    """

    def __init__(self) -> None:
        self._locks = {service: threading.RLock() for service in ("dynamodb", "sqs", "states")}
        self._tokens: dict[str, tuple[float, bytes, Response]] = {}
        self._moto: Any = None

    def load(self) -> None:
        """Imports moto (seconds, once a process)."""
        self._moto = load_moto()

    def ask(self, service: str, operation: str, request: Request) -> Response:
        """Applies one call."""
        lock = self._locks.get(service)
        if lock is None:
            return self._ask_moto(request)
        if operation == "ReceiveMessage":
            return self._receive(lock, request)
        if operation in _STATES_LIMITS and (refusal := _too_long(operation, request)):
            return refusal
        with lock:
            if operation == "TransactWriteItems":
                return self._transact(request)
            return self._ask_moto(request)

    def _receive(self, lock: threading.RLock, request: Request) -> Response:
        """A long poll that holds the lock only while it looks."""
        members = json.loads(request.body)
        until_s = time.monotonic() + float(members.pop("WaitTimeSeconds", 0))
        look = request.with_body(json.dumps(members | {"WaitTimeSeconds": 0}).encode())
        while True:
            with lock:
                response = self._ask_moto(look)
            if response.status != 200 or b'"Messages"' in response.body or time.monotonic() >= until_s:
                return response
            time.sleep(_POLL_S)

    def _transact(self, request: Request) -> Response:
        """DynamoDB applies a `ClientRequestToken` once in ten minutes; moto applies it every time."""
        members = json.loads(request.body)
        token = members.pop("ClientRequestToken", None)
        if transaction_size_bytes(members.get("TransactItems", [])) > TRANSACTION_LIMIT_BYTES:
            text = "Transaction request size exceeds the limit of 4 MB"
            return refuse("dynamodb", 400, "ValidationException", text, {})
        if not token:
            return self._ask_moto(request)
        now_s = time.monotonic()
        self._tokens = {key: kept for key, kept in self._tokens.items() if kept[0] > now_s}
        digest = hashlib.sha256(json.dumps(members, sort_keys=True).encode()).digest()
        if token in self._tokens:
            _, first, response = self._tokens[token]
            if first == digest:
                return response
            return refuse("dynamodb", 400, "IdempotentParameterMismatchException", "Other parameters, same token.", {})
        response = self._ask_moto(request)
        if response.status == 200:
            self._tokens[token] = (now_s + TOKEN_LIFE_S, digest, response)
        return response

    def _ask_moto(self, request: Request) -> Response:
        head: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[..., Any]:
            head[:] = [int(status.split(maxsplit=1)[0]), headers]
            return lambda data: None

        parts = self._moto(_environ(request), start_response)
        try:
            body = b"".join(parts)
        finally:
            if hasattr(parts, "close"):
                parts.close()
        return Response(head[0], body, head[1])


def _too_long(operation: str, request: Request) -> Response | None:
    """Step Functions takes 256 KiB of input or output; moto takes any amount."""
    member = _STATES_LIMITS[operation]
    if len(str(json.loads(request.body).get(member, "")).encode()) <= STATES_LIMIT_BYTES:
        return None
    text = (
        f"1 validation error detected: Value at '{member}' failed to satisfy constraint: "
        f"Member must have length less than or equal to {STATES_LIMIT_BYTES}"
    )
    return refuse("states", 400, "ValidationException", text, {})


def _environ(request: Request) -> dict[str, Any]:
    body = request.body
    environ: dict[str, Any] = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(request.path, "latin-1"),
        "QUERY_STRING": request.query,
        "REQUEST_URI": request.target,
        "RAW_URI": request.target,
        "REMOTE_ADDR": request.client,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    for name, value in request.headers:
        key = name.upper().replace("-", "_")
        if key == "CONTENT_ENCODING" and value == "gzip":
            body = gzip.decompress(body)
        elif key == "AUTHORIZATION":
            # One region here: what a caller's own settings say of it must not hide the stack's resources.
            environ["HTTP_AUTHORIZATION"] = _SCOPE.sub(rf"\g<1>{REGION}\g<3>\g<4>\g<5>", value)
        elif key == "CONTENT_TYPE":
            environ[key] = value
        elif key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING"):
            environ[f"HTTP_{key}"] = f"{environ[f'HTTP_{key}']},{value}" if f"HTTP_{key}" in environ else value
    environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = io.BytesIO(body)
    return environ
