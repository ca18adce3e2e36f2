"""Serves the page: its own files, what it reads, what it does."""

from __future__ import annotations

import json
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from local.console.acts import Acts, CannotDo
from local.console.costs import Costs
from local.console.machine import Machine
from local.console.reading import Reading
from local.console.source import ControlRefused, Source, StackGone
from local.web import Request, Response, WebServer

if TYPE_CHECKING:
    from collections.abc import Callable

STATIC: Final = Path(__file__).parent / "static"
KINDS: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
BODY_LIMIT_BYTES: Final = 1 << 20

# Everything comes from here, and nothing that somebody said can become code or send anything elsewhere.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Page:
    """The console of one stack, on a port of its own. `start` begins to serve.

    Args:
        api_url, aws_url: The stack's addresses.
        state_dir: Where the stack keeps its signing key: the page mints tokens.
        host, port: Where to listen; port 0 takes a free one.

    Raises:
        local.web.PortTaken: Something else listens there.
    """

    def __init__(self, api_url: str, aws_url: str, *, state_dir: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        self.source = Source(api_url, aws_url)
        costs = Costs(self.source)
        self.reading = Reading(self.source, costs)
        self.machine = Machine(self.source)
        self.acts = Acts(self.source, self.reading, costs, state_dir)
        self._web = WebServer(host, port, self.answer, BODY_LIMIT_BYTES)
        self.url = f"http://{host}:{self._web.port}"

    def start(self) -> None:
        """Serves from a thread of its own."""
        self._web.start("console")

    def stop(self) -> None:
        """Stops serving."""
        self._web.shutdown()
        self._web.server_close()

    def answer(self, request: Request) -> Response:
        """Serves one request."""
        if not self._is_ours(request):
            return _json(403, {"error": f"This page answers only at its own address, {self.url}."})
        if not request.path.startswith("/api/"):
            return _file(request)
        try:
            return self._answer_api(request, request.path.removeprefix("/api/"))
        except StackGone as gone:
            return _json(503, {"error": f"The local stack is gone: {gone}. Start it again with `make run`."})
        except (CannotDo, ControlRefused) as refused:
            return _json(409, {"error": str(refused)})
        except (KeyError, TypeError, ValueError) as error:
            return _json(400, {"error": f"This cannot be read: {type(error).__name__}: {error}"})
        except Exception as error:
            return self._failed(error)

    def _answer_api(self, request: Request, name: str) -> Response:
        reads, acts = self._table()
        if request.method == "GET" and name in reads:
            query = {key: values[-1] for key, values in parse_qs(request.query, keep_blank_values=True).items()}
            return reads[name](query)
        if request.method == "POST" and name in acts:
            return _json(200, acts[name](json.loads(request.body)))
        return _json(404, {"error": "There is no such page."})

    def _failed(self, error: Exception) -> Response:
        """What the library or the endpoint refused, by name; anything else is the console's own fault and is shown."""
        from botocore.exceptions import BotoCoreError, ClientError

        code = getattr(error, "code", None)
        if isinstance(code, str):
            return _json(409, {"error": f"{code}: {error}"})
        if isinstance(error, BotoCoreError):
            return _json(503, {"error": f"The local stack is gone: {error}. Start it again with `make run`."})
        if not isinstance(error, ClientError):
            traceback.print_exc(file=sys.stderr)
        return _json(500, {"error": f"{type(error).__name__}: {error}"})

    def _is_ours(self, request: Request) -> bool:
        """No other site's page, and no other name that leads here, acts with the tokens that this one mints."""
        port = self._web.port
        if request.header("host") not in {f"127.0.0.1:{port}", f"localhost:{port}"}:
            return False
        if request.method == "POST":
            return request.header("content-type") == "application/json" and request.header("origin", self.url) in {
                f"http://127.0.0.1:{port}",
                f"http://localhost:{port}",
            }
        return request.method in ("GET", "HEAD")

    def _table(self) -> tuple[dict[str, Callable[[dict[str, str]], Response]], dict[str, Callable[[Any], Any]]]:
        reading, machine, acts = self.reading, self.machine, self.acts
        reads: dict[str, Callable[[dict[str, str]], Response]] = {
            "where": lambda query: _json(200, self._where()),
            "conversations": lambda query: _json(200, {"conversations": reading.conversations()}),
            "conversation": lambda query: _json(200, reading.conversation(query["pk"])),
            "items": lambda query: _json(200, reading.items(query["pk"])),
            "envelope": lambda query: _json(200, {"envelope": reading.envelope(query["pk"])}),
            "export": lambda query: self._export(query["pk"]),
            "evidence": lambda query: _json(200, reading.evidence(query["pk"], int(query["turn"]))),
            "drawing": lambda query: _json(200, machine.drawing()),
            "executions": lambda query: _json(200, machine.executions()),
            "execution": lambda query: _json(200, machine.execution(query["arn"])),
        }
        return reads, {
            "send": acts.send,
            "answer": acts.answer,
            "withdraw": acts.withdraw,
            "contest": acts.contest,
            "kill": acts.kill,
            "lease": acts.let_lease_run_out,
        }

    def _where(self) -> dict[str, Any]:
        functions = self.source.deployment()["functions"]
        agent = functions.get("TurnFunction", {}).get("environment", {}).get("TURNKEEP_AGENT_FACTORY", "")
        return {"api": self.source.api_url, "aws": self.source.aws_url, "table": self.source.table, "agent": agent}

    def _export(self, pk: str) -> Response:
        envelope = self.reading.envelope(pk)
        if envelope is None:
            return _json(404, {"error": "Nothing is stored of this conversation."})
        text = json.dumps(envelope, ensure_ascii=False, indent=1) + "\n"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", pk).strip("-.") or "conversation"
        disposition = ("Content-Disposition", f'attachment; filename="{name}.json"')
        return Response(200, text.encode(), [("Content-Type", "application/json"), disposition, *_guards()])


def _file(request: Request) -> Response:
    name = request.path.lstrip("/") or "index.html"
    # Only files that lie in the folder itself: a name with a slash in it is none of them.
    path = STATIC / name
    if request.method not in ("GET", "HEAD") or "/" in name or path.suffix not in KINDS or not path.is_file():
        return _json(404, {"error": "There is no such page."})
    kind = ("Content-Type", f"{KINDS[path.suffix]}; charset=utf-8")
    return Response(200, path.read_bytes(), [kind, *_guards()])


def _json(status: int, value: Any) -> Response:
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return Response(status, body, [("Content-Type", "application/json; charset=utf-8"), *_guards()])


def _guards() -> list[tuple[str, str]]:
    return [
        ("Content-Security-Policy", POLICY),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
    ]
