"""The use cases as doors that somebody knocks at, one at a time or all at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tests.usecases.workshop import KEY, Workshop, key_of, saying
from turnkeep.clock import SystemClock
from turnkeep.errors import SessionNotFoundError
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.read import read_conversation, read_evidence, read_transcript, read_turn, read_turns
from turnkeep.usecases.take_turn import take_turn
from turnkeep.usecases.withdraw import withdraw_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.usecases.deps import Deadline, Deps

    Door = Callable[[Deps, Caller, ConversationKey, str, Deadline], Any]

DECISION = {"approved": True, "by": "me"}

READERS: dict[str, Door] = {
    "read": lambda deps, who, key, ask, until: read_conversation(deps, who, key),
    "turn": lambda deps, who, key, ask, until: read_turn(deps, who, key, 1),
    "a turn that is not there": lambda deps, who, key, ask, until: read_turn(deps, who, key, 77),
    "turns": lambda deps, who, key, ask, until: read_turns(deps, who, key, after=None, limit=10),
    "transcript": lambda deps, who, key, ask, until: read_transcript(deps, who, key, after=None, limit=9, max_bytes=99),
    "evidence": lambda deps, who, key, ask, until: read_evidence(deps, who, key, 1),
    "answer": lambda deps, who, key, ask, until: answer_ask(
        deps, who, key, ask_id=ask, decision=DECISION, deadline=until
    ),
    "withdraw": lambda deps, who, key, ask, until: withdraw_turn(deps, who, key, 1, deadline=until),
    "erase": lambda deps, who, key, ask, until: erase_conversation(deps, who, key, deadline=until),
}
"""Doors at which a missing conversation is not found."""

MAKERS: dict[str, Door] = {
    "message": lambda deps, who, key, ask, until: take_turn(deps, who, key, message="x", deadline=until),
    "a message with a key": lambda deps, who, key, ask, until: take_turn(
        deps, who, key, message="x", idempotency=key_of("theirs"), deadline=until
    ),
    "a message to be queued": lambda deps, who, key, ask, until: take_turn(
        deps, who, key, message="x", respond_async=True, deadline=until
    ),
    "create": lambda deps, who, key, ask, until: create_conversation(
        deps, who, conversation_id=key.conversation_id, deadline=until
    ),
}
"""Doors at which a missing conversation is made."""

DOORS = READERS | MAKERS


def race(door: Callable[[Deps, Caller, Deadline], Any], stores: list[Any]) -> dict[str, BaseException | None]:
    """Several people at one door at once, each from a process of their own; what each was told."""
    barrier = threading.Barrier(len(stores))
    outcomes: dict[str, BaseException | None] = {}

    def come(number: int) -> None:
        shop = Workshop(saying("Hello."), store=stores[number], clock=SystemClock())
        shop.random_id = lambda size: f"p{number}-{size}-{threading.get_ident()}"
        deps = shop.deps()
        barrier.wait()
        try:
            door(deps, Caller(f"p{number}"), FixedDeadline.after(shop.clock, 20_000))
            outcomes[f"p{number}"] = None
        except BaseException as error:
            outcomes[f"p{number}"] = error

    threads = [threading.Thread(target=come, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def check_one_owner(store: Any, outcomes: dict[str, BaseException | None], key: ConversationKey = KEY) -> None:
    winners = [name for name, outcome in outcomes.items() if outcome is None]
    others = [outcome for outcome in outcomes.values() if outcome is not None]
    assert len(winners) == 1
    assert {type(outcome) for outcome in others} == {SessionNotFoundError}
    found = Workshop(store=store).deps().ledger.hydrate(key)
    assert found.owner == winners[0]
    assert {item.get("principal") for item in found.turn_items.values()} <= {winners[0]}
