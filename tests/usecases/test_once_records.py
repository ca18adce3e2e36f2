"""Calls that act once: the ledger remembers what they did, whatever its size, and says where nobody can know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.workshop import ALICE, BOB, Crash, Mortal, Workshop, answer, doing, key_of, noise, scripted
from turnkeep.agent.scripted import call
from turnkeep.agent.tools import InDoubt, Tool, tool
from turnkeep.errors import CallInDoubtError, LostClaimError, MalformedStoredItemError, TurnOutOfTimeError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import size_bytes
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import Put
from turnkeep.usecases.once import LedgerOnce

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import TurnContext

ONE = key_of("one")
CALL = "c" * 64


def fine() -> None:
    """Nothing keeps the attempt from calling."""


def claimed(shop: Workshop) -> TurnRecord:
    shop.take_and_die("claimed")
    return shop.turn(1)


def once(shop: Workshop, record: TurnRecord, check: Any = fine) -> LedgerOnce:
    return LedgerOnce(shop.deps(), record, check=check)


# --- the record ---------------------------------------------------------------------------------------------


def test_a_call_begins_once_and_its_result_is_remembered() -> None:
    shop = Workshop()
    memory = once(shop, claimed(shop))
    assert memory.begin(CALL) is None
    memory.finish(CALL, '{"content":"paid"}')
    assert memory.begin(CALL) == '{"content":"paid"}'


def test_a_begin_that_was_sent_twice_is_one() -> None:
    shop = Workshop()
    memory = once(shop, claimed(shop))
    assert [memory.begin(CALL), memory.begin(CALL)] == [None, None]


def test_another_attempt_finds_a_begun_call_in_doubt() -> None:
    shop = Workshop()
    record = claimed(shop)
    once(shop, record).begin(CALL)
    later = once(shop, replace(record, run_id="run-of-another-attempt", attempt=2))
    with pytest.raises(CallInDoubtError):
        later.begin(CALL)
    later.finish(CALL, '"second"')
    once(shop, record).finish(CALL, '"first, too late"')
    assert later.begin(CALL) == '"second"'


@pytest.mark.parametrize("size", [10, 100_000, 175_000, 400_000, 2_000_000])
def test_a_result_of_any_size_is_remembered_whole(size: int) -> None:
    shop = Workshop()
    memory, text = once(shop, claimed(shop)), noise(size)
    memory.begin(CALL)
    memory.finish(CALL, text)
    assert memory.begin(CALL) == text
    assert max(size_bytes(item) for item in shop.items()) < 400_000


def test_a_large_result_of_which_a_part_is_gone_is_refused_by_name() -> None:
    shop = Workshop()
    memory = once(shop, claimed(shop))
    memory.begin(CALL)
    memory.finish(CALL, noise(400_000))
    part = shop.items("ONCE#")[-1]
    shop.memory.delete([(str(part["pk"]), str(part["sk"]))])
    with pytest.raises(MalformedStoredItemError):
        memory.begin(CALL)


def test_a_result_that_cannot_be_read_is_refused_by_name() -> None:
    shop = Workshop()
    memory = once(shop, claimed(shop))
    memory.begin(CALL)
    (record,) = shop.items("ONCE#")
    shop.memory.write([Put({**record, "result": b"spoiled"})])
    with pytest.raises(MalformedStoredItemError):
        memory.begin(CALL)


@pytest.mark.parametrize("error", [LostClaimError(turn=1), TurnOutOfTimeError(turn=1)])
def test_a_process_that_slept_while_the_store_answered_has_begun_nothing(error: Exception) -> None:
    shop = Workshop()
    record = claimed(shop)

    def stopped() -> None:
        raise error

    with pytest.raises(type(error)):
        once(shop, record, stopped).begin(CALL)
    assert shop.items("ONCE#") == []


def test_records_live_as_long_as_their_turn() -> None:
    shop = Workshop().with_settings(retention_days=3)
    memory = once(shop, claimed(shop))
    memory.begin(CALL)
    memory.finish(CALL, noise(400_000))
    assert {item["deleteAfter_s"] for item in shop.items("ONCE#")} == {shop.turn(1).delete_after_s}


# --- in a turn ----------------------------------------------------------------------------------------------


class Till:
    """A till that a tool acts on, and the process in which it does."""

    def __init__(self, in_doubt: InDoubt = "ask") -> None:
        self.paid: list[int] = []
        self.live: Callable[[str], None] = lambda point: None

        @tool(once=True, in_doubt=in_doubt)
        def pay(amount: int) -> str:
            """Pays.

            Args:
                amount: how much.
            """
            self.live("before it acts")
            self.paid.append(amount)
            self.live("after it acted")
            return f"paid {amount}"

        self.pay: Tool = pay

    def factory(self) -> Any:
        return scripted(lambda scene: scene.results[-1].content if scene.results else call("pay", amount=5), self.pay)

    def die(self, shop: Workshop, at: str) -> None:
        """The process of a request dies inside the tool; its lease passes."""
        process = Mortal(shop.store, lambda point: point == at)
        self.live = process.live
        with pytest.raises(Crash):
            shop.take("pay 5", idempotency=ONE, store=process, factory=self.factory())
        self.live = lambda point: None
        shop.pass_ms(60_000)


@pytest.mark.parametrize("dies", ["before it acts", "after it acted"])
def test_a_death_inside_the_call_asks_a_person_where_nobody_can_know(dies: str) -> None:
    shop, till = Workshop(), Till("ask")
    till.die(shop, dies)
    again = shop.take("pay 5", idempotency=ONE, factory=till.factory())
    assert again.status is Status.AWAITING
    assert again.ask is not None
    assert "nobody knows whether it acted" in again.ask.pause_data["ask"]["question"]
    assert till.paid == ([5] if dies == "after it acted" else [])


@pytest.mark.parametrize("dies", ["before it acts", "after it acted"])
def test_a_death_inside_the_call_runs_it_again_where_that_is_said(dies: str) -> None:
    shop, till = Workshop(), Till("run_again")
    till.die(shop, dies)
    again = shop.take("pay 5", idempotency=ONE, factory=till.factory())
    assert (again.status, again.output) == (Status.COMPLETE, "paid 5")
    assert till.paid == ([5, 5] if dies == "after it acted" else [5])


def test_a_finished_call_is_not_run_again_and_its_result_is_told() -> None:
    shop, till = Workshop(), Till()
    shop.take_and_die("agreed", "pay 5", idempotency=ONE, factory=till.factory())
    shop.pass_ms(60_000)
    again = shop.take("pay 5", idempotency=ONE, factory=till.factory())
    assert (again.output, till.paid) == ("paid 5", [5])


def test_a_huge_result_is_told_again_whole() -> None:
    ran: list[int] = []
    text = noise(300_000)

    @tool(once=True)
    def fetch() -> str:
        """Fetches a lot."""
        ran.append(1)
        return text

    factory = scripted(
        lambda scene: str(len(scene.results[-1].content)) if scene.results else call("fetch"),
        fetch,
        max_result_bytes=5_000_000,
    )
    shop = Workshop()
    shop.take_and_die("agreed", idempotency=ONE, factory=factory)
    shop.pass_ms(60_000)
    assert shop.take(idempotency=ONE, factory=factory).output == str(len(text))
    assert ran == [1]


def test_two_people_and_two_lives_of_an_id_never_meet_in_a_key() -> None:
    shop, till = Workshop(), Till()
    for who in (ALICE, BOB):
        shop.take("pay 5", caller=who, key=ConversationKey(f"of-{who.principal}"), factory=till.factory())
    assert till.paid == [5, 5]
    pk = ConversationKey("of-alice").pk
    left = [item for item in shop.items() if item["pk"] == pk and not str(item["sk"]).startswith("ONCE#")]
    shop.memory.delete([(str(item["pk"]), str(item["sk"])) for item in left])
    shop.take("pay 5", caller=ALICE, key=ConversationKey("of-alice"), factory=till.factory())
    assert till.paid == [5, 5, 5]


def test_a_foreign_agent_may_use_the_memory_too() -> None:
    acted: list[int] = []

    def work(context: TurnContext) -> Any:
        assert context.once is not None
        remembered = context.once.begin(CALL)
        if remembered is None:
            acted.append(1)
            context.once.finish(CALL, '"acted"')
            remembered = '"acted"'
        return answer(context, remembered)

    shop = Workshop(doing(work))
    shop.take_and_die("ran", idempotency=ONE)
    shop.pass_ms(60_000)
    assert shop.take(idempotency=ONE).output == '"acted"'
    assert acted == [1]
