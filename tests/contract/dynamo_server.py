"""DynamoDB on a port of its own, in a process of its own: the local stack's endpoint with nothing deployed behind it.

Starts in a second or two, counts calls and injects faults as the stack does, and ends with whoever started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from local.settings import CREDENTIALS, ROOT
from local.stack import Calls, Faults
from turnkeep.adapters.dynamo import client_config

if TYPE_CHECKING:
    from types import TracebackType


class DynamoServer:
    """Starts, drives and stops the server. A context manager; safe under threads."""

    def __init__(self) -> None:
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self.faults = Faults(self)  # type: ignore[arg-type]  # of a stack they use its `control` only
        self.calls = Calls(self)  # type: ignore[arg-type]

    def __enter__(self) -> DynamoServer:
        command = [sys.executable, "-m", "tests.contract.dynamo_server"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the server ended; its standard error says why"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()  # which it takes as the end
        process.wait(10)
        process.stdout.close()

    def client(self, config: Any = None) -> Any:
        """A DynamoDB client on the server, with the adapter's own configuration unless another one is given."""
        session = boto3.session.Session(**CREDENTIALS)
        return session.client("dynamodb", endpoint_url=self.url, config=config or client_config())

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the endpoint's own paths."""
        request = urllib.request.Request(
            f"{self.url}/_local/{path}", method=method, data=None if body is None else json.dumps(body).encode()
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())


def impatient(timeout_s: float) -> Any:
    """A client's configuration that gives an answer up after so long."""
    base: Config = client_config()
    changed: Config = base.merge(Config(read_timeout=timeout_s))
    return changed


def _environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "layers" / "turnkeep")]
    return {**os.environ, "PYTHONPATH": ":".join(paths)}


def main() -> None:
    """The server's own process."""
    from local.aws import AwsEndpoint
    from local.control import Control
    from local.web import WebServer

    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
        "AWS_DEFAULT_REGION": CREDENTIALS["region_name"],
    }
    nothing_deployed: Any = SimpleNamespace(caller=lambda trace_id: None, clear_overrides=lambda: None)
    server: Any = SimpleNamespace(lambdas=nothing_deployed)
    endpoint = AwsEndpoint(nothing_deployed, Control(server).answer)
    server.aws = endpoint
    endpoint.load()
    from local import tables

    tables.install()
    web = WebServer("127.0.0.1", 0, endpoint.answer)
    web.start("aws")
    print(f"http://127.0.0.1:{web.port}", flush=True)
    sys.stdin.read()  # ends with whoever started this
    web.server_close()
    os._exit(0)  # held calls must not keep the process


if __name__ == "__main__":
    main()
