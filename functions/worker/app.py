"""The worker function: runs queued turns when the queue rings."""

import gc

gc.disable()  # nothing is garbage while a process starts; entry.wiring.start_is_over switches it on again

from typing import Any

from turnkeep.entry.observability import Observation
from turnkeep.entry.queue import take_messages
from turnkeep.entry.wiring import invocation


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one invocation."""
    with Observation("worker") as observation:
        return take_messages(event, invocation(context, observation), observation)
