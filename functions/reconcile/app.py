"""The reconcile function: does what is due and was not done."""

from typing import Any

from turnkeep.entry.attention import attend
from turnkeep.entry.observability import Observation
from turnkeep.entry.wiring import invocation


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serves one invocation."""
    with Observation("reconcile") as observation:
        return attend(event, invocation(context, observation), observation)
