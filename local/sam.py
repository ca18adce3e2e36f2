"""``python -m local.sam``: the local stack with `sam local` in front: every invocation in a container of its own.

HTTP → `sam local start-api` → a container → moto here → the state machine here → `sam local start-lambda` → another.
`sam build` comes first; `make sam-local` does both.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from local.command_line import give_up, port, stop_with_parent
from local.containers import HOST, Containers, Sam, docker_gateway
from local.logs import LogRing
from local.server import Server
from local.settings import ROOT, Settings
from local.web import PortTaken

FIRST_ANSWER_LIMIT_S = 300
BUILT = ROOT / ".aws-sam" / "build" / "template.yaml"


def main(arguments: list[str] | None = None) -> int:
    """Runs until Ctrl-C, or with ``--supervised`` until standard input ends. Exit code 2: one line says why."""
    options = _options(arguments)
    gives_up = functools.partial(give_up, "sam local", supervised=options.supervised)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts it in the background ignores the first
        signal.signal(number, signal.default_int_handler)
    settings = Settings(port=options.gateway_port, aws_port=options.aws_port)
    if options.supervised:
        settings = Settings.from_json(sys.stdin.readline())
        threading.Thread(target=stop_with_parent, args=(stop,), daemon=True).start()
    output = options.log_file.open("ab") if options.log_file else sys.stderr.buffer
    try:
        local = SamLocal(options, settings, output)
    except PortTaken as taken:
        return gives_up(f"port {taken.port} is taken; choose another (PORT, AWS_PORT, LAMBDA_PORT, GATEWAY_PORT)")
    except RuntimeError as error:
        return gives_up(str(error))
    try:
        local.start()
        _greet(local, options)
        while not stop.wait(3600):
            pass
    except (FileNotFoundError, ValueError, RuntimeError) as error:
        local.stop()
        return gives_up(str(error))
    except KeyboardInterrupt:
        pass  # as it should end, while it starts or later
    local.stop()
    sys.stdout.flush()
    # Threads of moto's interpreter may still wait for an answer that will not come.
    os._exit(0)


class SamLocal:
    """The stack and sam's two services, started and stopped together.

    Raises:
        RuntimeError: No Docker answers, sam is not installed here, or nothing is built.
        local.web.PortTaken: A port is in use.
    """

    def __init__(self, options: argparse.Namespace, settings: Settings, output: IO[bytes]) -> None:
        for path, what in ((options.sam, "sam is not installed"), (BUILT, "nothing is built")):
            if not path.exists():
                raise RuntimeError(f"{what}: there is no {path.name} in {path.parent}; `make sam-local` sees to it")
        gateway = docker_gateway()
        self.config = options.state_dir / "samconfig.toml"
        self._api_port = options.port or _free_port()
        lambda_port = options.lambda_port or _free_port()
        for wanted in (self._api_port, lambda_port):
            _must_be_free(wanted)
        self.api_url, self.lambda_url = f"http://{HOST}:{self._api_port}", f"http://{HOST}:{lambda_port}"
        lambdas = Containers(LogRing(None), Sam(options.sam, self.config, output), self.config, lambda_port)
        self._api = Sam(options.sam, self.config, output)
        self.server = Server(settings, lambdas)
        self.server.open_to_containers(gateway)

    def start(self) -> None:
        """Deploys, starts sam, and returns when a request has come back from a container.

        Raises:
            FileNotFoundError, ValueError, RuntimeError: A part did not start; the words say which and why.
        """
        self.server.start()
        self._api.start("start-api", self._api_port)
        _first_answer(self.api_url, self.server.functions_aws_url)

    def stop(self) -> None:
        """Stops all of it."""
        self._api.stop()
        self.server.stop()


def _first_answer(api_url: str, functions_aws_url: str) -> None:
    """Asks for a conversation that is not there: only a container that reaches the table can tell."""
    try:
        with urllib.request.urlopen(f"{api_url}/conversations/none", timeout=FIRST_ANSWER_LIMIT_S) as answer:
            status, said = answer.status, ""
    except urllib.error.HTTPError as refusal:
        if refusal.code == 404:
            return
        status, said = refusal.code, refusal.read().decode("utf-8", "replace")
    except OSError as error:
        status, said = 0, str(error)
    raise RuntimeError(
        f"the first request was answered {status}, not 404: {said}\n"
        f"The containers' output is above. They must reach {functions_aws_url}: is a firewall between Docker's bridge "
        "and this machine?"
    )


def _greet(local: SamLocal, options: argparse.Namespace) -> None:
    server = local.server
    if options.supervised:
        said = {"api_url": local.api_url, "gateway_url": server.api_url, "aws_url": server.aws_url}
        print(json.dumps(said), flush=True)
        return
    sam = _shown(options.sam)
    print(f"""
turnkeep runs in containers (up in {time.monotonic() - server.started_s:.0f} s)

  API             {local.api_url}   sam local start-api; it checks no token, so everybody is anonymous
  with tokens     {server.api_url}   the same containers behind the authorizer (make token USER=sam ROLES=supervisor)
  Lambda          {local.lambda_url}   sam local start-lambda, where the state machine and the queue call
  AWS endpoint    {server.aws_url}   moto

Try:

  curl -sS {local.api_url}/conversations/demo/turns -H 'content-type: application/json' \\
    -d '{{"message": "Where is order A-100?"}}'

  {sam} local invoke TurnFunction -e events/turn-message.json --config-file {_shown(local.config)}

Ctrl-C stops all of it.
""")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local.sam", description="The local stack behind sam local.")
    environment = os.environ
    parser.add_argument("--port", default=environment.get("PORT") or "3000", type=port, help="the API's port (PORT)")
    parser.add_argument(
        "--aws-port", default=environment.get("AWS_PORT") or "5000", type=port, help="the endpoint's port (AWS_PORT)"
    )
    parser.add_argument(
        "--lambda-port",
        default=environment.get("LAMBDA_PORT") or "3002",
        type=port,
        help="the port of sam's Lambda (LAMBDA_PORT)",
    )
    parser.add_argument(
        "--gateway-port",
        default=environment.get("GATEWAY_PORT") or "3003",
        type=port,
        help="the port of the API with tokens (GATEWAY_PORT)",
    )
    parser.add_argument("--sam", type=Path, default=ROOT / ".venv-sam" / "bin" / "sam", help="the sam command")
    parser.add_argument("--state-dir", type=Path, default=ROOT / ".turnkeep" / "sam-local", help="where sam's files go")
    parser.add_argument("--log-file", type=Path, help="where sam and the containers write, instead of here")
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _must_be_free(wanted: int) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, wanted))
        except OSError as error:
            raise PortTaken(wanted) from error


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


if __name__ == "__main__":
    sys.exit(main())
