"""The functions' output, line by line: a ring in memory, and a file where one is wanted."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 20_000


class LogRing:
    """The latest lines that functions wrote. Safe under threads."""

    def __init__(self, file: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._lines: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._number = 0
        self._file = file.open("a", encoding="utf-8", buffering=1) if file else None

    def add(self, function: str, request_id: str, line: str) -> None:
        """Appends one line."""
        with self._lock:
            self._number += 1
            entry = {
                "number": self._number,
                "at_ms": time.time_ns() // 1_000_000,
                "function": function,
                "request_id": request_id,
                "line": line,
            }
            self._lines.append(entry)
            if self._file:
                self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def snapshot(self, function: str | None = None, request_id: str | None = None, since: int = 0) -> dict[str, Any]:
        """The lines after number `since`, of one function or invocation or of all."""
        with self._lock:
            lines = [
                entry
                for entry in self._lines
                if entry["number"] > since
                and function in (None, entry["function"])
                and request_id in (None, entry["request_id"])
            ]
            return {"lines": lines, "last": self._number}

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            if self._file:
                self._file.close()
                self._file = None
