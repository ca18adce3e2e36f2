"""Kills some of what runs: a share of the invocations gets a SIGKILL between two of its calls to AWS.

Which two is drawn from as many as its function makes, so that deaths are spread over what a turn does and not over the
time in which a process starts. Whoever is through before its time is lucky.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from load.latency import percentile
from local.stack import StackFailed

if TYPE_CHECKING:
    from local.stack import LocalStack

LOOK_S = 0.04
LATER_S = 0.6
"""How long behind a call: between two of them the agent is at work."""
COLLECT_EVERY = 50
"""Looks between two collections of the calls, where nobody is about to die: the stack keeps the latest 20,000."""
FIRST_GUESS_CALLS = 10.0

SPARED = frozenset({"ReadFunction"})
"""Has nothing to lose, and half of all invocations."""


class Killer:
    """A thread that kills, from `start` to `stop`, and collects the calls that were made of AWS until `close`.

    Attributes:
        killed: the invocations that a signal reached, and whose they were.
        calls: every call that the endpoint saw.
    """

    def __init__(self, stack: LocalStack, share: float, seed: int) -> None:
        self._stack, self._share, self._chance = stack, share, random.Random(seed)
        self._over, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="killer", daemon=True)
        self._known: dict[str, str] = {}
        self._made: Counter[str] = Counter()
        self._doomed: dict[str, float] = {}
        self._due_s: dict[str, float] = {}
        self.killed: dict[str, str] = {}
        self.calls: list[dict[str, Any]] = []

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Kills nothing more."""
        self._over.set()

    def close(self) -> None:
        """Collects the last calls and ends."""
        self._over.set()
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        looks = 0
        try:
            while not self._closed.wait(LOOK_S):
                looks += 1
                if not self._over.is_set() and self._share > 0:
                    self._choose()
                if self._doomed or looks % COLLECT_EVERY == 0:
                    self._collect()
                self._execute()
            self._collect()
        except StackFailed:
            return  # whoever started the stack hears of that, too

    def _choose(self) -> None:
        for each in self._stack.lambdas.running():
            request_id, function = each["request_id"], each["function"]
            if request_id not in self._known:
                self._known[request_id] = function
                if function not in SPARED and self._chance.random() < self._share:
                    self._doomed[request_id] = self._chance.triangular(0, self._most_calls(function))

    def _most_calls(self, function: str) -> float:
        """How many calls nine in ten of a function's invocations do not exceed: what runs a turn makes most of them."""
        made = [float(count) for request_id, count in self._made.items() if self._known.get(request_id) == function]
        return max(FIRST_GUESS_CALLS, percentile(made, 90))

    def _collect(self) -> None:
        new = self._stack.calls.list(since=self.calls[-1]["number"] if self.calls else 0)
        self.calls += new
        self._made.update(call["request_id"] for call in new if call["request_id"])

    def _execute(self) -> None:
        if self._over.is_set():
            self._doomed.clear()
            self._due_s.clear()
        for request_id, at_call in list(self._doomed.items()):
            if self._made[request_id] >= int(at_call):
                del self._doomed[request_id]
                self._due_s[request_id] = time.monotonic() + self._chance.uniform(0, LATER_S)
        for request_id, due_s in list(self._due_s.items()):
            if due_s <= time.monotonic():
                del self._due_s[request_id]
                if self._stack.lambdas.signal(request_id, "KILL"):
                    self.killed[request_id] = self._known[request_id]
