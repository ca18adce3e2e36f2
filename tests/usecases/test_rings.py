"""The doorbell: the queue drops a ring that it heard within minutes, so two claims must never ring alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.usecases.workshop import ALICE, KEY, Workshop, key_of
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.ending import ring
from turnkeep.usecases.take_turn import take_turn

if TYPE_CHECKING:
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import TurnRecord


@dataclass
class Queue:
    """What a FIFO queue is told: rings, and what tells one from another."""

    heard: list[tuple[str, int, str]] = field(default_factory=list)

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        self.heard.append((key.pk, turn, again))


def queue_one(shop: Workshop, queue: Queue, key: str) -> TurnRecord:
    deps = replace(shop.deps(), doorbell=queue)
    deadline = FixedDeadline.after(shop.clock, 29_000)
    return take_turn(deps, ALICE, KEY, message="hello", idempotency=key_of(key), respond_async=True, deadline=deadline)


def test_a_turn_of_the_same_number_in_another_life_rings_anew() -> None:
    shop, queue = Workshop(), Queue()
    queue_one(shop, queue, "k-1")
    shop.memory.delete([(str(item["pk"]), str(item["sk"])) for item in shop.items()])
    queue_one(shop, queue, "k-2")
    first, second = queue.heard
    assert first[:2] == second[:2]
    assert first != second


def test_a_repeat_rings_as_its_first_try_did_and_whoever_wants_to_be_heard_again_says_so() -> None:
    shop, queue = Workshop(), Queue()
    queued = queue_one(shop, queue, "k-1")
    assert queue_one(shop, queue, "k-1").run_id == queued.run_id
    ring(replace(shop.deps(), doorbell=queue), queued, again="once more")
    first, repeated, again = queue.heard
    assert first == repeated != again
