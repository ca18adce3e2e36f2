"""A small HTTP/1.1 server: one thread a connection, the request as it was sent, and connections that can be dropped."""

from __future__ import annotations

import socket
import socketserver
import struct
import sys
import threading
import traceback
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import Message


class PortTaken(Exception):
    """Something else listens on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(f"port {port} is taken")
        self.port = port


class DropConnection(Exception):
    """Raised by a handler: the caller gets no answer."""


@dataclass(frozen=True)
class Request:
    """One request. `target` is the request line's, undecoded; `headers` are in order, duplicates kept."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    client: str
    too_large: bool = False

    def header(self, name: str, default: str = "") -> str:
        """A header's first value."""
        return next((value for key, value in self.headers if key.lower() == name), default)

    def with_body(self, body: bytes) -> Request:
        """The same request with another body."""
        return replace(self, body=body)

    @property
    def path(self) -> str:
        """The target without its query, undecoded."""
        return self.target.split("?", 1)[0]

    @property
    def query(self) -> str:
        """The query, undecoded, without its question mark."""
        return self.target.partition("?")[2]


@dataclass
class Response:
    """One answer."""

    status: int
    body: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one segment
    server: WebServer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def _answer(self) -> None:
        try:
            body, too_large = self._read_body(self.headers)
        except ValueError:
            self.send_error(400, explain="the body's length or its chunks cannot be read")
            self.wfile.flush()
            self.close_connection = True
            return
        request = Request(
            method=self.command,
            target=self.path,
            headers=tuple(self.headers.items()),
            body=body,
            client=self.client_address[0],
            too_large=too_large,
        )
        try:
            response = self.server.answer(request)
        except DropConnection:
            self._drop()
            return
        except Exception:
            traceback.print_exc(file=sys.stderr)
            response = Response(500, b'{"message":"The local stack failed; its output says why."}')
        bodiless = response.status in (204, 304) or response.status < 200
        self.send_response(response.status)
        for name, value in response.headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        if not bodiless:
            self.send_header("Content-Length", str(len(response.body)))
        if too_large:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        if not bodiless and self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()

    def handle_expect_100(self) -> bool:
        going_on = super().handle_expect_100()
        self.wfile.flush()  # the caller waits for it before it sends the body
        return going_on

    def _read_body(self, headers: Message) -> tuple[bytes, bool]:
        limit = self.server.body_limit_bytes
        if "chunked" in headers.get("Transfer-Encoding", "").lower():
            parts, size = [], 0
            while True:
                length = int(self.rfile.readline(1024).split(b";")[0] or b"0", 16)
                if not length:
                    break
                part = self._read_whole(length)
                size += length
                if size <= limit:
                    parts.append(part)
                self.rfile.readline(8)
            while self.rfile.readline(65_537).strip():
                pass  # trailers
            return b"".join(parts), size > limit
        length = int(headers.get("Content-Length") or 0)
        if length <= limit:
            return self._read_whole(length), False
        while length > 0:  # taken and dropped, so that the caller lives to see the answer
            length -= len(self.rfile.read(min(length, 1 << 20))) or length
        return b"", True

    def _read_whole(self, length: int) -> bytes:
        """So many bytes. A caller that died on the way has asked for nothing.

        Raises:
            ConnectionError: there are fewer.
        """
        part = self.rfile.read(length)
        if len(part) < length:
            raise ConnectionResetError("the caller went away before its request was whole")
        return part

    def _drop(self) -> None:
        self.close_connection = True
        # With a linger of zero the caller sees a reset, as behind a connection that broke.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            return  # the connection is gone, which is what was wanted or the caller's doing

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the stack logs what functions say."""

    def version_string(self) -> str:
        return "turnkeep-local"


class WebServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens from its making on; `start` begins to answer."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self, host: str, port: int, answer: Callable[[Request], Response], body_limit_bytes: int = 1 << 30
    ) -> None:
        self.answer = answer
        self.body_limit_bytes = body_limit_bytes
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise PortTaken(port) from error

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self.server_address[1])

    def start(self, name: str) -> None:
        """Answers from a thread of its own."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, name=name, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection's failure is that caller's; anything else is the stack's own fault and is shown."""
        if not isinstance(sys.exc_info()[1], OSError):
            traceback.print_exc(file=sys.stderr)
