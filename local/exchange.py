"""One invocation's pipes: the request goes in, output, answer and end come out, until its deadline."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from typing import TYPE_CHECKING

from local.invocation import FAILURE, FRAME, READY, RESULT

if TYPE_CHECKING:
    import socket

    from local.function import Running
    from local.logs import LogRing

INIT_LIMIT_S = 10.0


class Exchange:
    """The stack's side of a child's pipes: sends the request, follows output, answer and end until its deadline."""

    def __init__(self, connection: socket.socket, output: int, status: int, running: Running, logs: LogRing) -> None:
        self._connection, self._output, self._status = connection, output, status
        self._running, self._logs = running, logs
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._line = bytearray()
        self._told = bytearray()
        self._deadline_s = time.monotonic() + INIT_LIMIT_S + running.function.timeout_s
        self.outcome: tuple[bytes, bytes] | None = None
        self.status: tuple[str, int] | None = None
        self.timed_out = False
        connection.setblocking(False)
        os.set_blocking(output, False)

    def send(self, request: bytes) -> None:
        """Queues the request; it is sent while following, since a stopped child does not read."""
        self._unsent = memoryview(request)

    def follow(self, timeout_s: float) -> None:
        """Returns when the child has answered, has ended, or is out of time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._status, selectors.EVENT_READ)
            while self.outcome is None and self.status is None:
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0:
                    self.timed_out = True
                    break
                for key, events in selector.select(left_s):
                    if key.fd == self._status:
                        self._read_status(selector)
                    elif key.fd == self._output:
                        self._read_output(selector)
                    else:
                        self._converse(selector, events, timeout_s)
            if self.outcome is None:
                self._converse(selector, selectors.EVENT_READ, timeout_s)
            self._read_output(selector)
        if self._line:
            self._log(bytes(self._line))

    def _converse(self, selector: selectors.BaseSelector, events: int, timeout_s: float) -> None:
        try:
            if events & selectors.EVENT_WRITE and self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
            if not self._unsent and self._connection in selector.get_map():
                selector.modify(self._connection, selectors.EVENT_READ)
            if events & selectors.EVENT_READ:
                while part := self._connection.recv(1 << 20):
                    self._received += part
                selector.unregister(self._connection)
        except BlockingIOError:
            pass
        except (ConnectionError, KeyError):
            with contextlib.suppress(KeyError):
                selector.unregister(self._connection)
        self._take_frames(timeout_s)

    def _take_frames(self, timeout_s: float) -> None:
        while len(self._received) >= FRAME.size:
            kind, length = FRAME.unpack_from(self._received)
            if len(self._received) < FRAME.size + length:
                return
            payload = bytes(self._received[FRAME.size : FRAME.size + length])
            del self._received[: FRAME.size + length]
            if kind == READY:
                self._deadline_s = time.monotonic() + timeout_s
                self._running.in_handler = True
            elif kind in (RESULT, FAILURE):
                self.outcome = (kind, payload)

    def _read_status(self, selector: selectors.BaseSelector) -> None:
        part = os.read(self._status, 4096)
        self._told += part
        *lines, rest = bytes(self._told).split(b"\n")
        self._told = bytearray(rest)
        for line in lines:
            word, number = line.split()
            if word == b"pid":
                self._running.pid = int(number)
            else:
                self.status = (word.decode(), int(number))
        if not part and self.status is None:
            self.status = ("signal", int(signal.SIGKILL))  # the zygote itself is gone

    def _read_output(self, selector: selectors.BaseSelector) -> None:
        try:
            while part := os.read(self._output, 1 << 16):
                self._running.tail += part
                del self._running.tail[:-4096]
                self._line += part
                *lines, rest = bytes(self._line).split(b"\n")
                self._line = bytearray(rest)
                for line in lines:
                    self._log(line)
            selector.unregister(self._output)
        except (BlockingIOError, KeyError):
            pass

    def _log(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self._logs.add(self._running.function.logical_id, self._running.request_id, text)
