"""A factory's ``last_turns``: what is read and shown stays flat, and is still enough to decide on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.workshop import ALICE, KEY, Workshop, answer, doing, key_of, noise, saying
from turnkeep.agent.port import Asked
from turnkeep.agent.window import agent_factory, last_turns_of
from turnkeep.errors import AwaitingDecisionError, ConcurrentRunError
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Page, Put, Read
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.withdraw import withdraw_turn
from turnkeep.usecases.work_queue import work_queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.agent.port import Answered, TurnContext

ONE = key_of("one")


class Counting(MemoryItemStore):
    """Counts the items that reads bring back."""

    items_read = 0

    def read(self, reads: Sequence[Read]) -> list[Page]:
        pages = super().read(reads)
        self.items_read += sum(len(page.items) for page in pages)
        return pages


def watching(seen: list[TurnContext]) -> Any:
    def work(context: TurnContext) -> Answered:
        seen.append(context)
        return answer(context, f"answer {context.info.turn}")

    return doing(work)


def windowed(last_turns: int | None, seen: list[TurnContext] | None = None) -> Workshop:
    factory = agent_factory(last_turns=last_turns)(watching([] if seen is None else seen))
    shop = Workshop(factory, store=Counting())
    shop.last_turns = lambda: last_turns_of(factory)
    return shop


@pytest.mark.parametrize("window", [0, 1, 2, 3, 7, None])
def test_a_run_is_shown_exactly_the_last_turns_and_told_what_is_left_out(window: int | None) -> None:
    seen: list[TurnContext] = []
    shop = windowed(window, seen)
    for number in range(1, 7):
        shop.take(f"message {number}")
    shown = [turn for turn, _ in seen[-1].history_turns]
    first = 1 if window is None else max(1, 6 - window)
    assert shown == list(range(first, 6))
    assert [message["content"] for message in seen[-1].history] == [
        text for turn in shown for text in (f"message {turn}", f"answer {turn}")
    ]
    left_out = {} if first == 1 else {"turns": first - 1, "messages": 2 * (first - 1)}
    assert seen[-1].left_out == left_out


@pytest.mark.parametrize("window", [0, 2, 5])
def test_what_is_read_is_as_much_at_turn_three_hundred_as_at_turn_twenty(window: int) -> None:
    shop = windowed(window)
    store = shop.store
    assert isinstance(store, Counting)
    costs = []
    for number in range(1, 301):
        before, round_trips = store.items_read, store.round_trips
        shop.take(f"message {number}")
        assert store.round_trips - round_trips == 3
        costs.append(store.items_read - before)
    assert set(costs[19:]) == {costs[19]}
    assert costs[-1] <= window + 1 + 2 + 1  # the window and one, the tail once more, CONVERSATION


def test_a_large_turn_outside_of_the_window_is_not_read() -> None:
    shop = windowed(1)
    shop.take("large", factory=saying(noise(300_000)))
    shop.take("small")
    shop.take("small")
    before = shop.memory.round_trips
    shop.take("small")
    assert shop.memory.round_trips - before == 3


def test_the_window_of_a_taken_over_turn_lies_before_it() -> None:
    seen: list[TurnContext] = []
    shop = windowed(2, seen)
    for number in range(1, 5):
        shop.take(f"message {number}")
    shop.take_and_die("claimed", "message 5", idempotency=ONE)
    shop.pass_ms(60_000)
    assert shop.take("message 5", idempotency=ONE).attempt == 2
    assert [turn for turn, _ in seen[-1].history_turns] == [3, 4]


def test_turns_that_leave_nothing_take_no_room_in_the_window() -> None:
    seen: list[TurnContext] = []
    shop = windowed(2, seen)
    shop.take("message 1")
    shop.take("message 2")
    for number in range(3):
        with pytest.raises(Exception, match="another agent"):
            name_mismatch(shop, number)
    shop.take("last", host_turn=20)
    assert [turn for turn, _ in seen[-1].history_turns] == [1, 2]


def name_mismatch(shop: Workshop, number: int) -> None:
    """A turn that is refused: CONVERSATION was recorded by an agent of another name."""
    (conversation,) = shop.items("CONVERSATION")
    shop.memory.write([Put({**conversation, "agentId": "desk"})])
    shop.take(f"refused {number}", factory=saying("x", agent_id="other"))


@pytest.mark.parametrize("window", [0, 1, 2])
def test_an_open_turn_is_seen_behind_any_number_of_closed_ones(window: int) -> None:
    """Queued turns that were cancelled or refused say nothing of the turns before them."""
    shop = windowed(window)
    shop.take("message 1")
    shop.take("message 2")
    shop.take_and_die("claimed", "runs")
    for number in range(4, 12):
        shop.take(f"queued {number}", respond_async=True)
    for number in range(4, 12):
        cancel(shop, number)
    with pytest.raises(ConcurrentRunError) as refused:
        shop.take("now")
    assert refused.value.turn == 3


def cancel(shop: Workshop, number: int) -> None:

    withdraw_turn(shop.deps(), ALICE, KEY, number, deadline=FixedDeadline.after(shop.clock, 29_000))


@pytest.mark.parametrize("window", [0, 1, 3])
def test_the_worker_finds_the_lowest_queued_turn_whatever_the_window(window: int) -> None:
    seen: list[TurnContext] = []
    shop = windowed(window, seen)
    shop.take("message 1")
    shop.take("message 2")
    for number in range(3, 10):
        shop.take(f"message {number}", respond_async=True)
    for _ in range(7):
        done = work_queue(shop.deps(), KEY, deadline=FixedDeadline.after(shop.clock, 900_000))
        assert done is not None and done.status is Status.COMPLETE
    assert [context.info.turn for context in seen] == list(range(1, 10))
    for context in seen:
        wanted = list(range(max(1, context.info.turn - window), context.info.turn))
        assert [turn for turn, _ in context.history_turns] == wanted


def test_a_paused_turn_behind_the_window_still_refuses_messages() -> None:
    def asks(context: TurnContext) -> Asked:
        return Asked({"question": "Go on?"}, {"pauseData": {"question": "Go on?"}}, list(context.messages), 1)

    shop = windowed(1)
    shop.take("message 1")
    shop.take("asks", respond_async=True)
    for number in range(3, 6):
        shop.take(f"queued {number}", respond_async=True)
    for _ in range(4):
        work_queue(shop.deps(doing(asks)), KEY, deadline=FixedDeadline.after(shop.clock, 900_000))
    assert [shop.turn(number).status for number in range(2, 6)] == [Status.AWAITING] + [Status.REFUSED] * 3
    with pytest.raises(AwaitingDecisionError) as refused:
        shop.take("now")
    assert refused.value.turn == 2


def test_hydrate_itself_reads_no_more_than_it_is_asked_for() -> None:
    shop = windowed(None)
    for number in range(1, 11):
        shop.take(f"message {number}")
    found = Ledger(shop.store, shop.clock).hydrate(KEY, last_turns=4)
    assert (list(found.turn_items), found.whole) == ([7, 8, 9, 10], False)
