"""A warmed process with one thread that forks a worker for every line of JSON it is sent, and tells what became of it.

``{"id", "result": path, …job}`` in; out ``{"id", "pid"}``, then ``{"id", "stopped": n}``, ``{"id", "signal": n}`` or
``{"id", "exit": n}``. A worker leaves its report at ``result``. When standard input closes, everything it started dies.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from tests.process import worker


def main() -> NoReturn:
    client = worker.client_of(sys.argv[1])
    gc.collect()
    gc.freeze()
    wake_read, wake_write = os.pipe()
    for descriptor in (wake_read, wake_write):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    children: dict[int, int] = {}
    pending = b""
    _tell({"ready": True})
    while True:
        for key, _ in selector.select():
            if key.fd == 0:
                data = os.read(0, 1 << 16)
                if not data:
                    _kill(children)
                    os._exit(0)
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    _fork(json.loads(line), children, client)
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(children)


def _fork(job: dict[str, Any], children: dict[int, int], client: Any) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(0)
            report = worker.run(job, client)
            Path(job["result"]).write_text(json.dumps(report), "utf-8")
        except BaseException:
            Path(job["result"]).write_text(json.dumps({"crashed": traceback.format_exc()}), "utf-8")
            os._exit(1)
        os._exit(0)
    children[pid] = job["id"]
    _tell({"id": job["id"], "pid": pid})


def _reap(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            _tell({"id": children[pid], "stopped": os.WSTOPSIG(status)})
            continue
        number = children.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        _tell({"id": number, "exit": code} if code >= 0 else {"id": number, "signal": -code})


def _kill(children: dict[int, int]) -> None:
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _tell(line: dict[str, Any]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
