"""Where the console reads: the stack's clients, its ledger through the library, and its control paths."""

from __future__ import annotations

import json
import secrets
import sys
import threading
import urllib.error
import urllib.request
from functools import cached_property
from typing import TYPE_CHECKING, Any

from local.deploy import internal_client
from local.settings import ROOT

if TYPE_CHECKING:
    from turnkeep.usecases.deps import Deps

TIMEOUT_S = 30


class StackGone(Exception):
    """The stack does not answer; the text says where it was looked for."""


class ControlRefused(Exception):
    """A control path said no; the text says why."""


class Source:
    """The stack at two addresses. Safe under threads; its calls are neither counted nor troubled by faults."""

    def __init__(self, api_url: str, aws_url: str) -> None:
        self.api_url, self.aws_url = api_url, aws_url
        self._lock = threading.RLock()
        self._clients: dict[str, Any] = {}
        self._deployment: dict[str, Any] | None = None

    def client(self, service: str) -> Any:
        """A boto3 client of the stack."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = internal_client(service, self.aws_url)
            return self._clients[service]

    def deployment(self) -> dict[str, Any]:
        """What is deployed; it does not change while the stack runs."""
        with self._lock:
            if self._deployment is None:
                self._deployment = self.control("GET", "deployment")
            return self._deployment

    @property
    def table(self) -> str:
        """The ledger's name."""
        return str(self.deployment()["outputs"]["TableName"])

    @property
    def machine_arn(self) -> str:
        """The state machine's ARN."""
        return str(self.deployment()["outputs"]["PausedRunArn"])

    @cached_property
    def deps(self) -> Deps:
        """The library's ports on the stack's ledger, as far as reading needs them."""
        layer = str(ROOT / "layers" / "turnkeep")
        if layer not in sys.path:
            sys.path.append(layer)
        from turnkeep.adapters.dynamo import DynamoItemStore
        from turnkeep.clock import SystemClock
        from turnkeep.ledger.ledger import Ledger
        from turnkeep.usecases.deps import Deps, Settings

        clock = SystemClock()
        reader: Any = _OnlyReads()
        store = DynamoItemStore(self.client("dynamodb"), self.table, left_ms=lambda: 10_000, clock=clock)
        return Deps(
            ledger=Ledger(store, clock),
            clock=clock,
            factory=reader,
            gate=reader,
            doorbell=reader,
            events=reader,
            settings=Settings(),
            random_id=secrets.token_urlsafe,
        )

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the stack's control paths.

        Raises:
            ControlRefused: it said no.
            StackGone: it does not answer.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.aws_url}/_local/{path}", method=method, data=data)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as refusal:
            raise ControlRefused(refusal.read().decode("utf-8", "replace")) from refusal
        except OSError as error:
            raise StackGone(f"the stack does not answer at {self.aws_url} ({error})") from error


class _OnlyReads:
    """Ports that reading has no use for."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"the console only reads here, and was asked to {name}")
