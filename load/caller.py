"""One person at the API, as docs/http-api.md tells clients to behave. Runs inside Locust, on its HTTP client."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from load.journal import ACCEPTED

if TYPE_CHECKING:
    from locust.contrib.fasthttp import FastHttpSession

MOST_PAUSE_S = 4.0


@dataclass(frozen=True)
class Got:
    """A reply as it arrived; status 0 where the connection broke."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)
    retry_after_s: float = 0.0
    took_ms: int = 0

    @property
    def code(self) -> str:
        """The refusal's name, or ""."""
        error = self.body.get("error")
        return str(error.get("code", "")) if isinstance(error, dict) and self.status not in ACCEPTED else ""

    @property
    def is_accepted(self) -> bool:
        """The API took it."""
        return self.status in ACCEPTED

    @property
    def may_be_sent_again(self) -> bool:
        """Nobody knows yet what became of the request, or it was told to come again."""
        return self.status == 0 or self.status >= 500 or self.status == 429

    def pause_s(self, tries: int) -> float:
        """How long to wait before the next try: what the API asks for, within reason."""
        return min(MOST_PAUSE_S, max(self.retry_after_s, 0.4 * tries))


class Caller:
    """Somebody with a token."""

    def __init__(self, session: FastHttpSession, token: str) -> None:
        self._session, self._token = session, token

    def get(self, path: str, name: str) -> Got:
        """Reads."""
        return self._ask("GET", path, name, None, {})

    def post(self, path: str, name: str, body: dict[str, Any], *, key: str, prefer: str = "") -> Got:
        """Sends a body under an Idempotency-Key."""
        headers = {"content-type": "application/json", "idempotency-key": key}
        return self._ask("POST", path, name, body, headers | ({"prefer": prefer} if prefer else {}))

    def _ask(self, method: str, path: str, name: str, body: Any, headers: dict[str, str]) -> Got:
        sent = {"authorization": f"Bearer {self._token}"} | headers
        data = None if body is None else json.dumps(body)
        began_s = time.monotonic()
        with self._session.request(method, path, name=name, data=data, headers=sent, catch_response=True) as reply:
            took_ms = int((time.monotonic() - began_s) * 1000)
            reply.success()  # what is right and what is wrong is for the audit to say
            try:
                found = json.loads(reply.text or "{}")
            except ValueError:
                found = {}
            after = str((reply.headers or {}).get("retry-after") or "0")
            return Got(
                reply.status_code or 0,
                found if isinstance(found, dict) else {},
                float(after) if after.isdigit() else 0.0,
                took_ms,
            )
