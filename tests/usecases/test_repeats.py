"""The same request again: run once, attached to while it runs, described when it has ended, taken over when it died."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.usecases.workshop import ALICE, BOB, Workshop, answer, called, doing, key_of, noise, saying, scripted
from turnkeep.agent.port import Answered, Asked, TurnContext
from turnkeep.agent.scripted import call
from turnkeep.agent.tools import CheckIn, tool
from turnkeep.clock import SystemClock
from turnkeep.errors import (
    ConcurrentRunError,
    IdempotencyMismatchError,
    RunFailedError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Put, Unavailable

ONE = key_of("one")
LEASE_MS = 40_000
"""Longer than a process of these tests and its lease."""


@tool(check_in=CheckIn())
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def counting(runs: list[int]) -> Any:
    def work(context: TurnContext) -> Answered:
        runs.append(context.info.turn)
        return answer(context, f"answer {len(runs)}")

    return doing(work)


# --- after it has ended -------------------------------------------------------------------------------------


def test_a_repeat_runs_nothing_and_says_the_same() -> None:
    runs: list[int] = []
    shop = Workshop(counting(runs))
    first = shop.take("hello", idempotency=ONE)
    stored = shop.items()
    again = shop.take("hello", idempotency=ONE)
    assert (again.turn, again.output, again.run_id) == (first.turn, first.output, first.run_id)
    assert runs == [1]
    assert shop.items() == stored


def test_a_key_costs_no_round_trip() -> None:
    shop = Workshop()
    shop.take("hello", idempotency=ONE)
    assert shop.memory.round_trips == 3


@pytest.mark.parametrize("later", [0, 1, 5])
def test_a_repeat_finds_its_turn_behind_others_and_outside_the_window(later: int) -> None:
    runs: list[int] = []
    shop = Workshop(counting(runs))
    shop.last_turns = lambda: 1
    shop.take("hello", idempotency=ONE)
    for _ in range(later):
        shop.take("more")
    again = shop.take("hello", idempotency=ONE)
    assert (again.turn, again.output) == (1, "answer 1")
    assert len(runs) == 1 + later


def test_another_key_is_another_turn_and_no_key_is_always_a_new_one() -> None:
    shop = Workshop()
    turns = [shop.take("a", idempotency=ONE), shop.take("a", idempotency=key_of("two")), shop.take("a"), shop.take("a")]
    assert [turn.turn for turn in turns] == [1, 2, 3, 4]


def test_the_same_key_with_another_body_is_refused_wherever_the_turn_lies() -> None:
    shop = Workshop()
    shop.last_turns = lambda: 1
    shop.take("hello", idempotency=ONE)
    for _ in range(4):
        with pytest.raises(IdempotencyMismatchError):
            shop.take("other", idempotency=key_of("one", "other"))
        shop.take("more")


def test_another_persons_key_is_not_mine() -> None:
    shop = Workshop()
    shop.take("hello", idempotency=ONE, key=ConversationKey("of-alice"))
    theirs = shop.take("hello", caller=BOB, idempotency=ONE, key=ConversationKey("of-bob"))
    assert (theirs.turn, theirs.principal) == (1, "bob")
    with pytest.raises(SessionNotFoundError):
        shop.take("hello", caller=BOB, idempotency=ONE, key=ConversationKey("of-alice"))


def test_the_mismatch_is_told_even_where_another_turn_cannot_be_read() -> None:
    shop = Workshop()
    shop.take("spoiled")
    shop.take("hello", idempotency=ONE)
    (first, _) = shop.items("TURN#")
    shop.memory.write([Put({**first, "format": "conversation-v99"})])
    with pytest.raises(IdempotencyMismatchError):
        shop.take("other", idempotency=key_of("one", "other"))
    assert shop.take("hello", idempotency=ONE).turn == 2


def test_a_key_lives_as_long_as_the_stack_says() -> None:
    shop = Workshop().with_settings(request_key_ttl_s=3_600)
    shop.take("hello", idempotency=ONE)
    shop.pass_ms(3_599_000)
    assert shop.take("hello", idempotency=ONE).turn == 1
    shop.pass_ms(1_000)
    assert shop.take("another body by now", idempotency=key_of("one", "new")).turn == 2
    assert shop.take("another body by now", idempotency=key_of("one", "new")).turn == 2


def test_a_repeat_of_a_long_answer_has_the_whole_of_it() -> None:
    text = noise(150_000)
    shop = Workshop(saying(text))
    assert shop.take("long", idempotency=ONE).output == text
    assert shop.items("SEG#") != []
    assert shop.take("long", idempotency=ONE).output == text


def test_a_repeat_of_a_failed_turn_says_that_it_failed() -> None:
    def work(context: TurnContext) -> Answered:
        raise ValueError("no")

    shop = Workshop(doing(work))
    with pytest.raises(RunFailedError):
        shop.take("hello", idempotency=ONE)
    again = shop.take("hello", idempotency=ONE)
    assert (again.status, again.error and again.error["code"]) == (Status.FAILED, "ERR_RUN_FAILED")


def test_a_repeat_of_a_paused_turn_has_the_whole_ask_and_starts_what_may_not_have_started() -> None:
    detail = noise(3_000)

    def work(context: TurnContext) -> Asked:
        pause_data = {"toolCallId": "pay-1", "toolName": "pay", "question": "Pay?", "detail": detail}
        messages = [*context.messages, *called("pay", {"amount": 1}, results=[])]
        return Asked(pause_data, {"pauseData": pause_data}, messages, iteration=1)

    shop = Workshop(doing(work))
    first = shop.take("pay", idempotency=ONE)
    assert first.ask is not None and not first.ask.whole
    again = shop.take("pay", idempotency=ONE)
    assert again.ask is not None
    assert again.ask.pause_data["detail"] == detail
    assert shop.gate.started == [first.ask.ask_id] * 2


def test_a_repeat_of_a_queued_turn_rings_again() -> None:
    shop = Workshop()
    shop.take("later", respond_async=True, idempotency=ONE)
    assert shop.take("later", respond_async=True, idempotency=ONE).status is Status.QUEUED
    assert shop.bell.rung == [1, 1]
    assert len(shop.items("TURN#")) == 1


# --- while it runs ------------------------------------------------------------------------------------------


def test_a_repeat_while_it_runs_is_told_so_where_it_does_not_wait() -> None:
    shop, met = Workshop(), []

    def work(context: TurnContext) -> Answered:
        with pytest.raises(ConcurrentRunError) as told:
            shop.take("hello", idempotency=ONE)
        met.append(told.value.turn)
        return answer(context, "done")

    shop.take("hello", idempotency=ONE, factory=doing(work))
    assert met == [1]


def test_three_of_one_key_within_a_second_are_one_run() -> None:
    shop = Workshop(clock=SystemClock())
    begun, runs, answers = threading.Event(), [], []

    def work(context: TurnContext) -> Answered:
        runs.append(context.info.run_id)
        begun.set()
        shop.clock.sleep_ms(300)
        return answer(context, "done")

    def send(**more: Any) -> None:
        answers.append(shop.take("hello", factory=doing(work), idempotency=ONE, **more).output)

    threads = [threading.Thread(target=send)]
    threads[0].start()
    assert begun.wait(20)
    threads += [threading.Thread(target=send, kwargs={"wait_ms": 15_000}) for _ in range(2)]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == ["done"] * 3
    assert len(runs) == 1


def test_a_wait_ends_inside_the_callers_own_wish_and_time() -> None:
    shop, waited = Workshop(), []

    def work(context: TurnContext) -> Answered:
        for wait_ms, time_ms in ((2_000, 20_000), (20_000, 8_000)):
            began_ms = shop.clock.monotonic_ms()
            with pytest.raises(ConcurrentRunError):
                shop.take("hello", idempotency=ONE, wait_ms=wait_ms, time_ms=time_ms)
            waited.append(shop.clock.monotonic_ms() - began_ms)
        return answer(context, "done")

    shop.take("hello", idempotency=ONE, factory=doing(work), time_ms=900_000)
    assert 2_000 <= waited[0] < 2_500
    assert 4_500 < waited[1] < 5_500


# --- when it died -------------------------------------------------------------------------------------------


def test_a_repeat_takes_a_dead_attempt_over_and_goes_on_from_what_was_durable() -> None:
    seen: list[Any] = []

    def dies(context: TurnContext) -> Answered:
        context.commit([*context.messages, *called("look", {"n": 1})], 2)
        return answer(context, "never seen", *called("look", {"n": 1}))

    def goes_on(context: TurnContext) -> Answered:
        seen.append((context.info.attempt, [message["role"] for message in context.messages]))
        return answer(context, "done")

    shop = Workshop()
    shop.take_and_die("ran", "hello", idempotency=ONE, factory=doing(dies, durability="sync"))
    with pytest.raises(ConcurrentRunError):
        shop.take("hello", idempotency=ONE)
    shop.pass_ms(LEASE_MS)
    done = shop.take("hello", idempotency=ONE, factory=doing(goes_on))
    assert (done.turn, done.attempt, done.output) == (1, 2, "done")
    assert seen == [(2, ["user", "assistant", "tool"])]
    assert [message["role"] for message in shop.said(1)] == ["user", "assistant", "tool", "assistant"]
    assert "takeover" in shop.notes


def test_two_repeats_take_over_once() -> None:
    runs: list[int] = []
    shop = Workshop(counting(runs))
    shop.take_and_die("claimed", idempotency=ONE)
    shop.pass_ms(LEASE_MS)

    class Between(MemoryItemStore):
        """Lets the other one in between the read and the take-over."""

        done = False

        def transact(self, writes: Any) -> Any:
            if not self.done:
                self.done = True
                assert shop.take("hello", idempotency=ONE).attempt == 2
            return super().transact(writes)

    between = Between()
    between._items = shop.memory._items
    shop.store = between
    done = shop.take("hello", idempotency=ONE)
    assert (done.turn, done.attempt, done.output) == (1, 2, "answer 1")
    assert runs == [1]


def test_a_repeat_waits_the_lease_out_where_it_has_the_time() -> None:
    shop = Workshop()
    shop.take_and_die("claimed", idempotency=ONE, time_ms=5_000)
    done = shop.take("hello", idempotency=ONE, wait_ms=25_000)
    assert (done.turn, done.attempt, done.output) == (1, 2, "Hello.")


# --- records that got lost ----------------------------------------------------------------------------------


class WithoutRequests(MemoryItemStore):
    """Loses puts of REQUEST items, as a throttle would, or as a crash between the two writes of a claim."""

    lost = True

    def write(self, writes: Any) -> Any:
        mine = [isinstance(one, Put) and str(one.item["sk"]).startswith("REQUEST#") and self.lost for one in writes]
        answers = iter(super().write([one for one, gone in zip(writes, mine, strict=True) if not gone]))
        return [Unavailable(StoreUnavailableError()) if gone else next(answers) for gone in mine]


def test_a_turn_that_landed_without_its_request_is_found_and_noted_again() -> None:
    runs: list[int] = []
    store = WithoutRequests()
    shop = Workshop(counting(runs), store=store)
    shop.last_turns = lambda: 1
    with pytest.raises(StoreUnavailableError):
        shop.take("hello", idempotency=ONE)
    assert (len(shop.items("TURN#")), shop.items("REQUEST#")) == (1, [])
    store.lost = False
    done = shop.take("hello", idempotency=ONE)
    assert (done.turn, done.attempt, runs) == (1, 2, [1])
    for _ in range(4):
        shop.take("more")
    assert shop.take("hello", idempotency=ONE).turn == 1


def test_a_request_that_landed_without_its_turn_is_no_obstacle() -> None:
    shop = Workshop()
    shop.take("hello", idempotency=ONE)
    (turn,), (request,) = shop.items("TURN#"), shop.items("REQUEST#")
    shop.memory.delete([(str(turn["pk"]), str(turn["sk"])), (str(turn["pk"]), "CONVERSATION")])
    assert shop.take("somebody was faster").turn == 1
    done = shop.take("hello", idempotency=ONE)
    assert done.turn == 2
    assert shop.items("REQUEST#")[0]["turn"] == 2
    assert shop.take("hello", idempotency=ONE).turn == 2
    assert request["turn"] == 1


def test_a_record_that_a_lost_try_left_points_at_the_turn_that_was_won() -> None:
    shop = Workshop()

    class Misled(MemoryItemStore):
        """Another try of the same request, which lost its claim, records its own number right before ours lands."""

        def write(self, writes: Any) -> Any:
            for one in writes:
                if isinstance(one, Put) and str(one.item["sk"]).startswith("REQUEST#") and not self.misled:
                    self.misled = True
                    super().write([Put({**one.item, "turn": 1})])
            return super().write(writes)

        misled = False

    store = Misled()
    shop.store = store
    store.misled = True
    shop.take("somebody else's")
    store.misled = False
    assert shop.take("hello", idempotency=ONE).turn == 2
    assert shop.items("REQUEST#")[0]["turn"] == 2


def test_a_gap_records_its_request_too() -> None:
    shop = Workshop()
    assert shop.take("hello", host_turn=5, idempotency=ONE).turn == 5
    assert shop.items("REQUEST#")[0]["turn"] == 5
    assert shop.take("hello", host_turn=5, idempotency=ONE).turn == 5


# --- a new message ------------------------------------------------------------------------------------------


def test_a_new_message_closes_a_dead_turn_and_keeps_what_was_durable() -> None:
    def dies(context: TurnContext) -> Answered:
        context.commit([*context.messages, *called("look", {"n": 1})], 2)
        return answer(context, "never seen", *called("look", {"n": 1}))

    def sees(context: TurnContext) -> Answered:
        seen.extend((message["role"], message["content"]) for message in context.history)
        return answer(context, "done")

    seen: list[Any] = []
    shop = Workshop()
    shop.take_and_die("ran", "first", factory=doing(dies, durability="sync"))
    with pytest.raises(ConcurrentRunError):
        shop.take("second")
    shop.pass_ms(LEASE_MS)
    assert shop.take("second", factory=doing(sees)).turn == 2
    assert seen == [("user", "first"), ("assistant", ""), ("tool", "done")]
    assert (shop.turn(1).status, shop.turn(1).error) == (
        Status.FAILED,
        {"code": "ERR_RUN_FAILED", "message": "The run of this turn ended without an answer, and nobody went on."},
    )


def test_a_message_while_an_ask_is_open_is_refused_with_what_its_caller_may_see() -> None:
    from turnkeep.errors import AwaitingDecisionError

    shop = Workshop(scripted(lambda scene: scene.results[-1].content if scene.results else call("pay", amount=5), pay))
    first = shop.take("pay 5")
    assert (first.status, first.output) == (Status.AWAITING, "")
    with pytest.raises(AwaitingDecisionError) as refused:
        shop.take("hurry")
    awaiting = refused.value.awaiting
    assert awaiting is not None and first.ask is not None
    assert (refused.value.turn, awaiting["askId"], "checkIn" in awaiting) == (1, first.ask.ask_id, True)
    assert len(shop.items("TURN#")) == 1


def test_a_message_behind_an_expired_ask_closes_it_and_goes_on() -> None:
    seen: list[Any] = []

    def script(scene: Any) -> Any:
        seen.append([(message["role"], message["content"]) for message in scene.messages])
        return "fine" if "never mind" in scene.text else call("pay", amount=5)

    shop = Workshop(scripted(script, pay)).with_settings(ask_expires_s=60)
    shop.take("pay 5")
    shop.pass_ms(60_000)
    done = shop.take("never mind")
    assert (done.turn, done.output, shop.turn(1).status) == (2, "fine", Status.EXPIRED)
    assert seen[-1] == [
        ("user", "pay 5"),
        ("assistant", ""),
        ("tool", "not run: nobody answered in time"),
        ("user", "never mind"),
    ]
    assert ALICE.principal == shop.turn(1).principal
