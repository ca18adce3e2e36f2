"""Routes of the answer function: answer an ask, withdraw a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from turnkeep.entry.http.bodies import Reply, status_reply, turn_body, turn_reply
from turnkeep.entry.http.door import Incoming, Route
from turnkeep.entry.http.paths import parse_path_turn
from turnkeep.entry.http.posts import key_of, read_post, with_applied

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import Caller, Deadline, Deps, Idempotency


class Answered(Protocol):
    """What ``answer_ask`` returns: the turn as it stands, and whether this caller may read it."""

    @property
    def record(self) -> TurnRecord:
        """The turn."""
        ...

    @property
    def may_read(self) -> bool:
        """False for a role-holder, who learns the status only."""
        ...


class AnswerAsk(Protocol):
    """The use case ``answer_ask``."""

    def __call__(
        self,
        deps: Deps,
        caller: Caller,
        key: ConversationKey,
        *,
        ask_id: str,
        decision: Any,
        idempotency: Idempotency | None = None,
        wait_ms: int | None = None,
        deadline: Deadline,
    ) -> Answered:
        """Records a decision. ``decision`` is ``json_values.ABSENT`` where the answer has none."""
        ...


class WithdrawTurn(Protocol):
    """The use case ``withdraw_turn``."""

    def __call__(
        self, deps: Deps, caller: Caller, key: ConversationKey, turn: int, *, deadline: Deadline
    ) -> TurnRecord:
        """Withdraws an open ask, or cancels a queued turn."""
        ...


def answer_routes(*, answer_ask: AnswerAsk, withdraw_turn: WithdrawTurn) -> list[Route]:
    """The routes, serving the given use cases."""

    def post_answer(incoming: Incoming) -> Reply:
        from turnkeep.entry.http.models import read_answer

        key = key_of(incoming)
        posted = read_post(incoming.request)
        limit_bytes = incoming.environment.core.max_message_bytes
        ask_id, decision = read_answer(posted.body, max_decision_bytes=limit_bytes)
        posted.refuse_lone_surrogates()
        answered = answer_ask(
            incoming.deps,
            incoming.caller,
            key,
            ask_id=ask_id,
            decision=decision,
            idempotency=posted.idempotency,
            wait_ms=posted.preferences.wait_ms,
            deadline=incoming.deadline,
        )
        record = answered.record
        reply = turn_reply(record, incoming.caller) if answered.may_read else status_reply(record)
        return with_applied(reply, posted.preferences)

    def delete_turn(incoming: Incoming) -> Reply:
        key = key_of(incoming)
        turn = parse_path_turn(incoming.request.path_parameters.get("n", ""))
        record = withdraw_turn(incoming.deps, incoming.caller, key, turn, deadline=incoming.deadline)
        return Reply(200, turn_body(record, incoming.caller, now_ms=incoming.deps.clock.now_ms()))

    return [
        Route("POST", "/conversations/{id}/answers", post_answer),
        Route("DELETE", "/conversations/{id}/turns/{n}", delete_turn),
    ]
