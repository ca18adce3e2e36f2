"""What a run's commits tell, and the conversation checkpoint they make (CONTRACT.md 12.2, 12.3)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from turnkeep.errors import UnstorableValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnkeep.clock import Clock
    from turnkeep.durability import DurableWriter


@dataclass(frozen=True)
class Progress:
    """A conversation checkpoint as of one commit (CONTRACT.md 12.3), frozen as JSON text.

    Attributes:
        session_id: where it belongs: the session as of the commit, whatever it is when the write starts.
        conversation_text: the checkpoint; text, because that is the cheapest copy nobody can change.
    """

    session_id: str
    conversation_text: str

    def conversation(self) -> dict[str, Any]:
        """The checkpoint as a fresh value, in the shape of CONTRACT.md 12.3."""
        return cast("dict[str, Any]", json.loads(self.conversation_text))


class CommitObserver:
    """Turns a run's commits into progress writes: one for each commit that set ``history`` to a list.

    ``session_id`` and ``run_id`` may be set at any time and are read at each commit. Without a session a commit is
    remembered, not written.
    """

    def __init__(
        self,
        writer: DurableWriter[Progress],
        *,
        clock: Clock,
        session_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self._writer = writer
        self._clock = clock
        self._user_message = ""
        self._iteration: int | float = 0

    def observe(self, mutations: Sequence[Mapping[str, Any]]) -> None:
        """Takes one commit: its mutations ``{"key", "value"}`` in order, all read before anything is written.

        Values of another kind than a key takes are ignored: ``history`` a list, ``userMessage`` a string,
        ``iteration`` a finite number and no boolean.

        Raises:
            UnstorableValueError: the history holds something that is not JSON; nothing was written.
            DurabilityError: the writer is closed.
        """
        history: list[Any] | None = None
        for mutation in mutations:
            match mutation.get("key"), mutation.get("value"):
                case "history", list() as value:
                    history = value
                case "userMessage", str() as value:
                    self._user_message = value
                case "iteration", int() | float() as value if not isinstance(value, bool) and math.isfinite(value):
                    self._iteration = value
        if history is not None and self.session_id is not None and self._writer.writes:
            self._writer.commit(Progress(self.session_id, self._checkpoint_text(history)))

    def clear(self) -> None:
        """Forgets user message and iteration; what is in flight, waits or has failed stays the writer's."""
        self._user_message, self._iteration = "", 0

    def _checkpoint_text(self, history: list[Any]) -> str:
        checkpoint = {
            "version": 1,
            "runId": "unknown" if self.run_id is None else self.run_id,
            "history": history,
            "lastCompletedIteration": self._iteration,
            "originalInput": {"message": self._user_message},
            "checkpointedAt": self._clock.now_ms(),
        }
        try:
            return json.dumps(checkpoint, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            # Without the cause: its text may quote the value.
            raise UnstorableValueError(path="history", reason=f"not JSON ({type(error).__name__})") from None
