"""The read function: every GET of the API."""

import gc

gc.disable()  # nothing is garbage while a process starts; entry.wiring.start_is_over switches it on again

from typing import Any

from turnkeep.entry.http.door import Door
from turnkeep.entry.http.read_routes import read_routes
from turnkeep.entry.snapshot import before_snapshot
from turnkeep.entry.wiring import invocation
from turnkeep.usecases.listing import list_asks, list_conversations
from turnkeep.usecases.read import (
    read_conversation,
    read_evidence,
    read_transcript,
    read_turn,
    read_turns,
)

door = Door(
    read_routes(
        read_conversation=read_conversation,
        read_turn=read_turn,
        read_turns=read_turns,
        read_transcript=read_transcript,
        read_evidence=read_evidence,
        list_conversations=list_conversations,
        list_asks=list_asks,
    ),
    invocation,
)
before_snapshot()


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one request of API Gateway (HTTP API, payload 2.0)."""
    return door(event, context)
