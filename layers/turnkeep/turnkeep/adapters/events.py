"""The event sink on EventBridge: what happened to which turn, by ids only, for whoever subscribes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from turnkeep.adapters.aws_faults import AWS_ERRORS, code_of

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

    from turnkeep.ledger.records import TurnRecord

SOURCE: Final = "turnkeep"

Note = Callable[[str, dict[str, Any]], None]


def _unnoticed(name: str, facts: dict[str, Any]) -> None:
    return None


class EventBridgeSink:
    """Tells one event bus.

    Args:
        client: makes, or returns, the client; asked only when there is something to tell.
        bus: the bus's name or ARN.
        note: told of an event that was not taken. The ledger is the truth; an event is a hint to read it.
    """

    def __init__(self, client: Callable[[], EventBridgeClient], bus: str, *, note: Note = _unnoticed) -> None:
        self._client = client
        self._bus = bus
        self._note = note

    def tell(self, kind: str, record: TurnRecord) -> None:
        """Puts one event; never raises into a turn."""
        entry = {"Source": SOURCE, "DetailType": kind, "Detail": detail(record), "EventBusName": self._bus}
        try:
            answer = self._client().put_events(Entries=[entry])  # type: ignore[list-item]
        except AWS_ERRORS as error:
            self._note("event_failed", {"turn": record.turn, "cause": code_of(error)})
            return
        if answer.get("FailedEntryCount", 0):
            self._note("event_failed", {"turn": record.turn, "cause": "FailedEntry"})


def detail(record: TurnRecord) -> str:
    """An event's detail: ``{"conversationId", "tenant"?, "turn", "status", "askId"?, "audience"?, "expiresAt"?}``."""
    found: dict[str, Any] = {
        "conversationId": record.key.conversation_id,
        "turn": record.turn,
        "status": record.status.value,
    }
    if record.key.tenant is not None:
        found["tenant"] = record.key.tenant
    if record.ask is not None:
        found |= {
            "askId": record.ask.ask_id,
            "audience": record.ask.audience,
            "expiresAt": record.ask.expires_at_ms,
        }
    return json.dumps(found)
