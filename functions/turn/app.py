"""The turn function: POST /conversations, POST /conversations/{id}/turns, DELETE /conversations/{id}."""

import gc

gc.disable()  # nothing is garbage while a process starts; entry.wiring.start_is_over switches it on again

from typing import Any

from turnkeep.entry.http.door import Door
from turnkeep.entry.http.turn_routes import turn_routes
from turnkeep.entry.snapshot import before_snapshot
from turnkeep.entry.wiring import invocation
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.take_turn import take_turn

door = Door(
    turn_routes(take_turn=take_turn, create_conversation=create_conversation, erase_conversation=erase_conversation),
    invocation,
)
before_snapshot(runs_turns=True)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one request of API Gateway (HTTP API, payload 2.0)."""
    return door(event, context)
