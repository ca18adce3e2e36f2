"""Runs a turn that this process has claimed, behind the history that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnkeep.usecases.attempt import Attempt, Begin
from turnkeep.usecases.state import History, State, history_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.records import TurnRecord
    from turnkeep.messages import Message
    from turnkeep.usecases.deps import Deadline, Deps


def run_claimed(
    deps: Deps,
    record: TurnRecord,
    state: State,
    deadline: Deadline,
    *,
    messages: Sequence[Message],
    history: History | None = None,
) -> TurnRecord:
    """Runs a claimed turn behind the history that counts.

    Args:
        deps: the ports.
        record: the turn as this process holds it.
        state: the conversation as it was read before the claim.
        deadline: when this process is killed.
        messages: the turn's durable messages, the user message first.
        history: what comes before; None reads it.

    Raises:
        UnreadableError: the history cannot be read; the lease is handed back.
        RunFailedError, TurnOutOfTimeError, ConversationMismatchError, LostClaimError, RetryableError: see
            ``Attempt.run``.
    """
    if history is None:
        try:
            history = history_before(deps, state, record.turn)
        except Exception:
            deps.ledger.hand_back(record)
            raise
    begin = Begin(
        record=record,
        conversation=state.conversation,
        history=history.messages,
        history_turns=history.turns,
        left_out=history.left_out,
        messages=messages,
    )
    return Attempt(deps, begin, deadline).run()


def history_before(deps: Deps, state: State, turn: int) -> History:
    """What a turn runs behind: the ended turns before it, inside the agent's window.

    Raises:
        UnreadableError: one of them cannot be read.
    """
    return history_of(deps.ledger, state.before(turn), whole=state.whole, last_turns=deps.last_turns())
