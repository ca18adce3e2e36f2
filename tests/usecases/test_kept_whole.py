"""What is stored is read back whole: writes that landed in part, checkpoints nobody committed, things that expire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.usecases.workshop import Crash, Mortal, Workshop, answer, called, doing, key_of, noise
from turnkeep.agent.port import Answered, Asked, TurnContext
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Unavailable

ONE = key_of("one")


class InPart(MemoryItemStore):
    """Lets only some of a batch's parts land, as often as said: a plan of which, a write each."""

    def __init__(self, plans: list[set[int]]) -> None:
        super().__init__()
        self.plans = plans

    def write(self, writes: Any) -> Any:
        is_batch = all(str(getattr(one, "item", {}).get("sk", "")).startswith("SEG#") for one in writes)
        if not is_batch or not self.plans:
            return super().write(writes)
        lands = self.plans.pop(0)
        return [
            super(InPart, self).write([one])[0] if index in lands else Unavailable(StoreUnavailableError())
            for index, one in enumerate(writes)
        ]


@settings(max_examples=30, deadline=None)
@given(
    plans=st.lists(st.sets(st.integers(0, 3)), max_size=4),
    sizes=st.lists(st.sampled_from([5, 210_000]), min_size=1, max_size=3),
)
def test_however_writes_land_in_part_the_turn_is_read_back_whole(plans: list[set[int]], sizes: list[int]) -> None:
    """Every progress write may fail with any of its parts landed; the next one, or the commit, makes up for it."""
    texts = [noise(size, seed) for seed, size in enumerate(sizes)]
    store = InPart([])
    shop = Workshop(store=store)

    def work(context: TurnContext) -> Answered:
        messages = list(context.messages)
        for index, text in enumerate(texts):
            messages += called("look", {"n": index}, results=[text])
            if index < len(plans):
                store.plans = [plans[index]]
            context.commit(list(messages), 1)
            settle(context)
            store.plans = []
        return Answered("done", [*messages, {"role": "assistant", "content": "done"}], 1)

    try:
        done = shop.take(factory=doing(work, durability="sync"), idempotency=ONE)
    except StoreUnavailableError:
        # The last of them failed: no answer, and the same request goes on from all that was agreed.
        done = shop.take(factory=doing(lambda context: answer(context, "done")), idempotency=ONE)
    assert done.output == "done"
    contents = [message["content"] for message in shop.said(1)]
    assert contents == ["hello", *(part for text in texts for part in ("", text)), "done"]
    assert shop.take("next").turn == 2


def settle(context: TurnContext) -> None:
    """Waits for the commit's write; one that failed is the next one's business."""
    try:
        context.barrier()
    except Exception as error:
        assert type(error).__name__ == "DurabilityError"


@settings(max_examples=25, deadline=None)
@given(lands=st.sets(st.integers(0, 3)), size=st.sampled_from([5, 210_000, 400_000]))
def test_a_death_behind_a_write_that_landed_in_part_leaves_a_prefix(lands: set[int], size: int) -> None:
    text = noise(size)
    store = InPart([])
    shop = Workshop(store=store)

    def work(context: TurnContext) -> Answered:
        messages = [*context.messages, *called("look", {"n": 1}, results=["first"])]
        context.commit(list(messages), 1)
        context.barrier()
        store.plans = [lands]
        messages += called("look", {"n": 2}, results=[text])
        context.commit(list(messages), 2)
        settle(context)
        process.live("here")
        raise AssertionError("the process died")

    process = Mortal(store, lambda point: point == "here")
    with pytest.raises(Crash):
        shop.take(factory=doing(work, durability="sync"), idempotency=ONE, store=process)
    contents = [message["content"] for message in shop.said(1)]
    assert contents in (["hello", "", "first"], ["hello", "", "first", "", text])
    shop.pass_ms(60_000)
    done = shop.take(idempotency=ONE, factory=doing(lambda context: answer(context, "done")))
    assert [message["content"] for message in shop.said(1)] == [*contents, "done"]
    assert (done.status, done.attempt) == (Status.COMPLETE, 2)


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_an_answered_turn_needs_its_segments_no_more(durability: Any) -> None:
    def work(context: TurnContext) -> Answered:
        looked = called("look", {"n": 1}, {"n": 2})
        context.commit([*context.messages, *looked], 2)
        return answer(context, "done", *looked)

    shop = Workshop(doing(work, durability=durability))
    shop.take("hello")
    segments = shop.items("SEG#")
    assert len(segments) == 1
    assert (shop.turn(1).segments, shop.turn(1).output) == (0, "done")
    said = shop.said(1)
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "tool", "assistant"]
    shop.memory.delete([(str(item["pk"]), str(item["sk"])) for item in segments])
    assert shop.said(1) == said
    before = shop.memory.round_trips
    assert shop.take("again", factory=doing(lambda context: answer(context, str(len(context.history))))).output == "5"
    assert shop.memory.round_trips - before == 3


# --- checkpoints --------------------------------------------------------------------------------------------


def asks(context: TurnContext, question: str) -> Asked:
    pause_data = {"toolCallId": f"{question}-1", "toolName": question, "question": question}
    messages = [*context.messages, *called(question, {"n": 1}, results=[])]
    return Asked(pause_data, {"pauseData": pause_data}, messages, iteration=1)


def test_a_checkpoint_that_was_never_committed_is_not_the_one_that_counts() -> None:
    """An attempt that died between a new ask's checkpoint and its commit leaves the older ask's in force."""
    shop = Workshop(doing(lambda context: asks(context, "first")))
    paused = shop.take("hello")
    ledger = Ledger(shop.store, shop.clock)
    ledger.write_segments(paused, paused.segments + 1, "checkpoint", 0, {"pauseData": {"question": "never asked"}})
    dead = replace(paused, status=Status.RUNNING)
    _, checkpoint = ledger.checkpoint_of(dead)
    assert checkpoint is not None
    assert checkpoint["pauseData"]["question"] == "first"


def test_a_checkpoint_of_several_parts_is_named_by_its_last() -> None:
    detail = noise(400_000)

    def work(context: TurnContext) -> Asked:
        asked = asks(context, "first")
        return Asked(asked.pause_data, {**asked.checkpoint, "detail": detail}, asked.messages, 1)

    shop = Workshop(doing(work))
    paused = shop.take("hello")
    _, checkpoint = Ledger(shop.store, shop.clock).checkpoint_of(shop.turn(1))
    assert checkpoint is not None
    assert checkpoint["detail"] == detail
    assert paused.checkpoint_segment == (1, paused.segments)


# --- retention ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["exit", "sync"])
def test_a_paused_turn_outlives_retention_with_all_that_belongs_to_it(durability: Any) -> None:
    """An awaiting turn lives at least to its ask's expiry and a day, its messages and its checkpoint too."""

    def work(context: TurnContext) -> Asked:
        messages = [*context.messages, *called("look", {"n": 1})]
        context.commit(messages, 1)
        pause_data = {"toolCallId": "pay-1", "toolName": "pay", "question": "Pay?"}
        return Asked(pause_data, {"pauseData": pause_data}, [*messages, *called("pay", {}, results=[])], 2)

    shop = Workshop(doing(work, durability=durability)).with_settings(retention_days=1, ask_expires_s=7 * 86_400)
    began_s = shop.clock.now_ms() // 1000
    shop.take("hello")
    until = {int(item["deleteAfter_s"]) for item in shop.items() if str(item["sk"]).split("#")[0] != "REQUEST"}
    assert until == {began_s + 8 * 86_400}
    shop.pass_ms(6 * 86_400_000)
    messages, checkpoint = Ledger(shop.store, shop.clock).checkpoint_of(shop.turn(1))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert checkpoint is not None


def test_without_retention_nothing_expires() -> None:
    shop = Workshop(doing(lambda context: asks(context, "first")))
    shop.take("hello")
    assert [item for item in shop.items() if "deleteAfter_s" in item] == []


def test_an_expired_conversation_is_a_new_one() -> None:
    shop = Workshop().with_settings(retention_days=1)
    shop.take("hello", idempotency=ONE)
    shop.pass_ms(86_400_000)
    assert len(shop.items("TURN#")) == 1
    again = shop.take("hello", idempotency=ONE)
    assert (again.turn, again.attempt) == (1, 1)
    assert [message["content"] for message in shop.said(1)] == ["hello", "Hello."]
    assert shop.items("CONVERSATION")[0]["messageCount"] == 2
