"""The answer function: POST /conversations/{id}/answers, DELETE /conversations/{id}/turns/{n}."""

import gc

gc.disable()  # nothing is garbage while a process starts; entry.wiring.start_is_over switches it on again

from typing import Any

from turnkeep.entry.http.answer_routes import answer_routes
from turnkeep.entry.http.door import Door
from turnkeep.entry.snapshot import before_snapshot
from turnkeep.entry.wiring import invocation
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.withdraw import withdraw_turn

door = Door(answer_routes(answer_ask=answer_ask, withdraw_turn=withdraw_turn), invocation)
before_snapshot()


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one request of API Gateway (HTTP API, payload 2.0)."""
    return door(event, context)
