"""Starts and follows workers: the test's side of the zygote."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parents[2]
SIDE_BY_SIDE = 3
TIMEOUT_S = 60.0


@dataclass
class Worker:
    """A process that was started.

    Attributes:
        events: ``pid``, ``stopped``, ``signal``, ``exit``, as they come.
    """

    id: int
    result: Path
    pid: int = 0
    events: queue.Queue[dict[str, Any]] = field(default_factory=queue.Queue)

    def wait(self) -> tuple[str, int]:
        """How it ended, or that it stopped: ``("exit", 0)``, ``("signal", 9)``, ``("stopped", 19)``."""
        event = self.events.get(timeout=TIMEOUT_S)
        return next((name, event[name]) for name in ("exit", "signal", "stopped") if name in event)

    def report(self) -> dict[str, Any]:
        """What it left; fails where it crashed by itself."""
        found: dict[str, Any] = json.loads(self.result.read_text("utf-8"))
        assert "crashed" not in found, found["crashed"]
        return found

    def wake(self) -> None:
        """Lets a stopped process go on."""
        os.kill(self.pid, signal.SIGCONT)


class Forge:
    """The zygote, started with the first worker's test and stopped with the last one's."""

    def __init__(self, endpoint: str, directory: Path) -> None:
        self._directory = directory
        self._ids = itertools.count(1)
        self._workers: dict[int, Worker] = {}
        self._lock = threading.Lock()
        paths = [str(ROOT), str(ROOT / "layers" / "turnkeep"), str(ROOT / "layers" / "agent")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.zygote", endpoint],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline()) == {"ready": True}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._lock:
                worker = self._workers[event["id"]]
            if "pid" in event:
                worker.pid = event["pid"]
            else:
                worker.events.put(event)

    def start(self, **job: Any) -> Worker:
        """Forks a worker for a job (``worker.run`` says what is in it)."""
        assert self._process.stdin is not None
        with self._lock:
            number = next(self._ids)
            worker = Worker(number, self._directory / f"report-{number}.json")
            self._workers[number] = worker
            line = job | {"id": number, "result": str(worker.result)}
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        return worker

    def run(self, **job: Any) -> dict[str, Any]:
        """Runs a worker to its end and hands its report over."""
        worker = self.start(**job)
        ended = worker.wait()
        report = worker.report()
        assert ended == ("exit", 0)
        return report

    def world(self, name: str) -> Path:
        """A book for a world of its own."""
        return self._directory / f"{name}.book"

    def stop(self) -> None:
        """Ends the zygote and everything it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def side_by_side(work: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
    """The work on each thing, some at a time; in the order of the things."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(work, things))
