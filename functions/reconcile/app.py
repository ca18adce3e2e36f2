"""The reconcile function: does what is due and was not done."""

import gc

gc.disable()  # nothing is garbage while a process starts; entry.wiring.start_is_over switches it on again

from typing import Any

from turnkeep.entry.attention import attend
from turnkeep.entry.observability import Observation
from turnkeep.entry.wiring import invocation


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one invocation."""
    with Observation("reconcile") as observation:
        return attend(event, invocation(context, observation), observation)
