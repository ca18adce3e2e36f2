"""Invocations that nobody waits for: accepted at once, retried as Lambda retries, then handed to a destination."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

from local.lambdas import Lambdas, TooManyInvocations

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.function import Function, Outcome


class AsyncInvocations:
    """Invocations of type `Event`. Every method is safe under threads.

    Attributes:
        retry_delays_s: The waits before the first and the second retry; the last one stands for all later ones.
        send: Puts a text on the queue of an ARN; set once the stack is deployed.
    """

    def __init__(self, lambdas: Lambdas) -> None:
        self._lambdas = lambdas
        self._closed = threading.Event()
        self.retry_delays_s: tuple[float, ...] = (60.0, 120.0)
        self.send: Callable[[str, str], None] = lambda arn, text: None

    def submit(self, name: str, event: bytes, request_id: str | None = None) -> None:
        """Runs a function soon, in a thread of its own."""
        arguments = (name, event, request_id or str(uuid.uuid4()))
        threading.Thread(target=self._run, args=arguments, name=f"async-{name}", daemon=True).start()

    def close(self) -> None:
        """Gives up what waits for a retry."""
        self._closed.set()

    def _run(self, name: str, event: bytes, request_id: str) -> None:
        function = self._lambdas.find(name)
        if function is None:
            return
        outcome = None
        for attempt in range(function.retries + 1):
            if attempt:
                self._closed.wait(self.retry_delays_s[min(attempt, len(self.retry_delays_s)) - 1])
            outcome = self._invoke(function, event, request_id)
            if outcome is None or not outcome.error:
                return
        if outcome is not None and not self._closed.is_set():
            if function.failure_arn:
                self.send(function.failure_arn, json.dumps(_failure_record(function, event, outcome)))
            if function.dead_letter_arn:
                self.send(function.dead_letter_arn, event.decode("utf-8"))

    def _invoke(self, function: Function, event: bytes, request_id: str) -> Outcome | None:
        """One try; a throttled one is tried on until the stack ends."""
        while not self._closed.is_set():
            try:
                return self._lambdas.invoke(function, event, request_id)
            except TooManyInvocations:
                self._closed.wait(0.5)
        return None


def _failure_record(function: Function, event: bytes, outcome: Outcome) -> dict[str, Any]:
    """What a destination on failure gets."""
    return {
        "version": "1.0",
        "timestamp": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "requestContext": {
            "requestId": outcome.request_id,
            "functionArn": f"{function.arn}:$LATEST",
            "condition": "RetriesExhausted",
            "approximateInvokeCount": function.retries + 1,
        },
        "requestPayload": json.loads(event),
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "responsePayload": outcome.value,
    }
