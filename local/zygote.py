"""The warmed parent of every invocation: a process with one thread that imports once and forks on demand.

It imports what functions import (boto3, pydantic, Powertools), never a function's own modules nor a layer's, so
each child starts as a fresh process would, less half a second of imports.

For each byte on its control socket come three descriptors: the invocation's socket, its output and its status pipe.
The zygote writes `pid N` and later `exit N` or `signal N` to the last. When the control socket closes, however the
stack ended, it kills every child and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import selectors
import signal
import socket
import sys
from typing import Any, NoReturn

from local import invocation

_PR_SET_PDEATHSIG = 1
WARM_MODULES = (
    "asyncio",
    "boto3",
    "boto3.dynamodb.conditions",
    "boto3.dynamodb.types",
    "concurrent.futures",
    "decimal",
    "email.mime.multipart",
    "pydantic",
    "aws_lambda_powertools",
    "aws_lambda_powertools.logging",
    "aws_lambda_powertools.metrics",
    "uuid",
    "zoneinfo",
)
WARM_CLIENTS = ("dynamodb", "stepfunctions", "sqs", "events", "lambda")


def main() -> NoReturn:
    """Warms up, says so, and forks until the control socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the stack decides.
    _warm()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(BrokenPipeError):  # the stack has given up meanwhile
        control.sendall(b"R")
        Zygote(control).serve()
    os._exit(0)


def _warm() -> None:
    for name in WARM_MODULES:
        with contextlib.suppress(ImportError):  # what is not installed, no function imports either
            __import__(name)
    import boto3
    import botocore.loaders

    # A service's model is parsed once here instead of in every child.
    read, models = botocore.loaders.JSONFileLoader.load_file, {}

    def load_file(loader: botocore.loaders.JSONFileLoader, file_path: str) -> Any:
        if file_path not in models:
            models[file_path] = read(loader, file_path)
        return models[file_path]

    botocore.loaders.JSONFileLoader.load_file = load_file  # type: ignore[method-assign,assignment]
    session = boto3.session.Session(aws_access_key_id="warm", aws_secret_access_key="warm", region_name="us-east-1")
    for name in WARM_CLIENTS:
        session.client(name)  # type: ignore[call-overload]


class Zygote:
    """Forks children and reports their ends."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}
        self._pid = os.getpid()
        self._prctl = getattr(ctypes.CDLL(None), "prctl", None)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self) -> None:
        """Runs until the control socket closes."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        selector.register(self._wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self._control:
                    if not self._fork_one():
                        self._kill_all()
                        return
                else:
                    self._reap()

    def _fork_one(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        except ConnectionError:
            return False
        if not data:
            return False
        conversation, output, status = descriptors
        pid = os.fork()
        if pid == 0:
            self._become_child(conversation, output, status)
        os.close(conversation)
        os.close(output)
        self._children[pid] = status
        _tell(status, f"pid {pid}\n")
        return True

    def _become_child(self, conversation: int, output: int, status: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()  # a group of its own: killed with whatever it starts
            self._die_with_zygote()
            self._control.close()
            for descriptor in [self._wake_read, self._wake_write, status, *self._children.values()]:
                os.close(descriptor)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for descriptor in (null, output):
                os.close(descriptor)
            invocation.run(socket.socket(fileno=conversation))
        except SystemExit as leaving:
            code = leaving.code
            os._exit(code if isinstance(code, int) else int(code is not None))
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)

    def _die_with_zygote(self) -> None:
        """Where the system can (Linux), a child ends with its parent even when that one is killed."""
        if self._prctl is not None:
            self._prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != self._pid:
                os._exit(1)  # it ended in the meantime

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            status = self._children.pop(pid, None)
            if status is not None:
                code = os.waitstatus_to_exitcode(wait_status)
                _tell(status, f"exit {code}\n" if code >= 0 else f"signal {-code}\n")
                os.close(status)

    def _kill_all(self) -> None:
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # one that has no group of its own yet


def _tell(status: int, line: str) -> None:
    # The stack closes its end as soon as it has the answer.
    with contextlib.suppress(BrokenPipeError):
        os.write(status, line.encode())


if __name__ == "__main__":
    main()
