"""The resume function: what the PausedRun state machine asks for."""

import gc

gc.disable()  # nothing is garbage while a process starts; entry.wiring.start_is_over switches it on again

from typing import Any

from turnkeep.entry.machine import take_step
from turnkeep.entry.observability import Observation
from turnkeep.entry.wiring import invocation


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one invocation."""
    with Observation("resume") as observation:
        return take_step(event, invocation(context, observation), observation)
