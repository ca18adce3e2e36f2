"""``python -m local``: starts the local stack and stays until Ctrl-C."""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

# Without compiled modules every start takes three times as long; they go beside their sources in the checkout's .venv.
sys.dont_write_bytecode = False

from local.command_line import give_up, port, stop_with_parent  # noqa: E402
from local.server import Server  # noqa: E402
from local.settings import Settings  # noqa: E402
from local.web import PortTaken  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Runs the stack. Exit code 2: it could not start, and one line says why."""
    options = _options(arguments)
    gives_up = functools.partial(give_up, "local stack", supervised=options.supervised)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if options.supervised:
        settings = Settings.from_json(sys.stdin.readline())
        threading.Thread(target=stop_with_parent, args=(stop,), daemon=True).start()
    else:
        settings = _settings(options)
    try:
        server = Server(settings)
    except PortTaken as taken:
        which = "AWS_PORT" if taken.port == settings.aws_port else "PORT"
        return gives_up(f"port {taken.port} is taken; choose another one with {which}=…")
    page = None
    try:
        if not options.supervised:
            from local.console.page import Page

            page = Page(
                server.api_url,
                server.aws_url,
                state_dir=Path(settings.state_dir),
                host=settings.host,
                port=options.console_port,
            )
        if not stop.is_set():
            server.start()
    except PortTaken as taken:
        server.stop()
        return gives_up(f"port {taken.port} is taken; choose another one with CONSOLE_PORT=…")
    except (FileNotFoundError, ValueError, RuntimeError) as error:
        server.stop()
        return gives_up(str(error))
    if options.supervised:
        print(json.dumps({"api_url": server.api_url, "aws_url": server.aws_url}), flush=True)
    elif page is not None and not stop.is_set():
        from local import terminal

        page.start()
        terminal.greet(server, page.url, time.monotonic() - server.started_s)
    while not stop.wait(3600):
        pass
    server.stop()
    # Threads of moto's interpreter may still wait for an answer that will not come.
    sys.stdout.flush()
    os._exit(0)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    parser.add_argument("--port", default=os.environ.get("PORT") or "3000", type=port, help="the API's port (PORT)")
    parser.add_argument(
        "--aws-port",
        default=os.environ.get("AWS_PORT") or "5000",
        type=port,
        help="the endpoint's port (AWS_PORT)",
    )
    parser.add_argument(
        "--console-port",
        default=os.environ.get("CONSOLE_PORT") or "3001",
        type=port,
        help="the page's port (CONSOLE_PORT)",
    )
    parser.add_argument("--template", default=Settings().template, help="the SAM template")
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="NAME=VALUE", help="a template parameter; repeatable"
    )
    parser.add_argument("--log-file", default=None, help="where the functions' output is appended")
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace) -> Settings:
    parameters = dict(each.split("=", 1) for each in options.parameter)
    return Settings(
        template=options.template,
        port=options.port,
        aws_port=options.aws_port,
        parameters=parameters,
        log_file=options.log_file,
    )


if __name__ == "__main__":
    sys.exit(main())
