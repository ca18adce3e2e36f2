"""A message becomes a turn: three round trips, one winner, numbers that only go forward, nobody else's business."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.workshop import ALICE, BOB, NOBODY, Workshop, answer, doing, noise, saying, scripted
from turnkeep.agent.port import Answered, TurnContext
from turnkeep.agent.scripted import ScriptedReply, call
from turnkeep.agent.tools import tool
from turnkeep.clock import SystemClock
from turnkeep.errors import (
    ConcurrentRunError,
    IdentityNotVerifiedError,
    InvalidRequestError,
    LostClaimError,
    MalformedStoredItemError,
    MessageTooLargeError,
    SessionNotFoundError,
    StoreUnavailableError,
    UnstorableValueError,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Put, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_NUMBERS = [True, False, "7", [7], None, {"turn": 7}, float("nan"), float("inf"), float("-inf")]


# --- the usual case -----------------------------------------------------------------------------------------


def test_a_turn_takes_three_round_trips_and_stores_what_was_said() -> None:
    shop = Workshop()
    done = shop.take("hello")
    assert (done.turn, done.status, done.output) == (1, Status.COMPLETE, "Hello.")
    assert shop.memory.round_trips == 3
    assert shop.said(1) == [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello."}]
    assert shop.events.told == [("turn.ended", 1)]
    assert shop.probes == ["claimed", "ran", "committed"]


def test_every_later_turn_takes_three_as_well_and_sees_what_came_before() -> None:
    seen: list[list[str]] = []

    def work(context: TurnContext) -> Answered:
        seen.append([message["content"] for message in context.history])
        return answer(context, f"answer {context.info.turn}")

    shop = Workshop(doing(work))
    for number in range(1, 6):
        before = shop.memory.round_trips
        assert shop.take(f"message {number}").turn == number
        assert shop.memory.round_trips - before == 3
    assert seen[4] == [text for turn in range(1, 5) for text in (f"message {turn}", f"answer {turn}")]


def test_progress_costs_nothing_under_exit() -> None:
    @tool
    def look(n: int) -> str:
        """Looks."""
        return str(n)

    steps: Iterator[ScriptedReply] = iter([call("look", n=1), call("look", n=2), "done"])
    shop = Workshop(scripted(lambda scene: next(steps), look))
    assert shop.take().output == "done"
    assert shop.memory.round_trips == 3
    assert shop.items("SEG#") == []


def test_conversation_shows_what_a_listing_needs() -> None:
    shop = Workshop(saying("one", "two", agent_id="desk", agent_version="7"))
    shop.take()
    shop.take()
    (shown,) = shop.items("CONVERSATION")
    wanted = {"owner": "alice", "turn": 2, "status": "complete", "messageCount": 4, "agentId": "desk"}
    assert wanted.items() <= shown.items()
    assert shown["agentVersion"] == "7"


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", NOT_NUMBERS)
def test_what_is_no_number_is_no_floor(floor: Any) -> None:
    assert Workshop().take(host_turn=floor).turn == 1


@pytest.mark.parametrize(("floor", "turn"), [(1, 1), (0, 1), (-3, 1), (7, 7), (7.9, 7), (1_000_000, 1_000_000)])
def test_a_hosts_counter_is_a_floor(floor: Any, turn: int) -> None:
    shop = Workshop()
    assert shop.take(host_turn=floor).turn == turn
    assert shop.take(host_turn=1).turn == turn + 1


def test_a_gap_leaves_one_skipped_number_that_nobody_gets_again() -> None:
    shop = Workshop()
    shop.take(host_turn=7)
    assert [str(item["sk"])[-2:] for item in shop.items("TURN#")] == ["01", "07"]
    assert shop.turn(1).status is Status.SKIPPED
    assert [shop.take(host_turn=1).turn, shop.take(host_turn=3).turn] == [8, 9]
    assert [shop.turn(number).previous for number in (1, 7, 8, 9)] == [0, 1, 7, 8]


def test_a_floor_beyond_its_reach_is_refused_and_stores_nothing() -> None:
    shop = Workshop()
    shop.take()
    with pytest.raises(InvalidRequestError) as refused:
        shop.take(host_turn=1_000_002)
    assert refused.value.fields == ["turn"]
    assert len(shop.items("TURN#")) == 1
    assert shop.take(host_turn=1_000_001).turn == 1_000_001


# --- who ----------------------------------------------------------------------------------------------------


def test_somebody_elses_conversation_does_not_exist() -> None:
    shop = Workshop()
    shop.take()
    stored = shop.items()
    with pytest.raises(SessionNotFoundError):
        shop.take("let me in", caller=BOB)
    assert shop.items() == stored


def test_nobody_is_refused_unless_the_stack_takes_them() -> None:
    shop = Workshop()
    with pytest.raises(IdentityNotVerifiedError):
        shop.take(caller=NOBODY)
    assert shop.memory.round_trips == 0
    shop.with_settings(allow_anonymous=True)
    assert shop.take(caller=NOBODY).turn == 1
    assert shop.take(caller=NOBODY).turn == 2
    with pytest.raises(SessionNotFoundError):
        shop.take(caller=ALICE)
    assert shop.take(caller=ALICE, key=ConversationKey("c-2")).turn == 1
    with pytest.raises(SessionNotFoundError):
        shop.take(caller=NOBODY, key=ConversationKey("c-2"))


def test_two_people_in_one_process_share_nothing() -> None:
    contexts: list[TurnContext] = []

    def work(context: TurnContext) -> Answered:
        contexts.append(context)
        said = context.messages[0]["content"]
        context.messages.append({"role": "assistant", "content": "mine to change"})
        return Answered(f"you said {said}", [context.messages[0], _assistant(f"you said {said}")], 1)

    shop = Workshop(doing(work))
    for number in range(3):
        for who in (ALICE, BOB):
            key = ConversationKey(f"of-{who.principal}")
            assert (
                shop.take(f"{who.principal} {number}", caller=who, key=key).output
                == f"you said {who.principal} {number}"
            )
    for context in contexts:
        other = "bob" if context.info.principal == "alice" else "alice"
        assert other not in repr([context.history, context.messages, context.info])
    for name in ("alice", "bob"):
        stored = [item for item in shop.items() if item["pk"] == ConversationKey(f"of-{name}").pk]
        assert stored
        assert all(item.get("principal", name) == name and item.get("owner", name) == name for item in stored)


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


# --- what may be said ---------------------------------------------------------------------------------------


def test_a_message_over_the_limit_is_refused_by_its_size_before_anything() -> None:
    shop = Workshop().with_settings(max_message_bytes=10)
    assert shop.take("ä" * 5).turn == 1
    before = shop.memory.round_trips
    with pytest.raises(MessageTooLargeError) as refused:
        shop.take("ä" * 5 + "a")
    assert (refused.value.limit_bytes, refused.value.size_bytes) == (10, 11)
    assert shop.memory.round_trips == before


@pytest.mark.parametrize("size", [250_000, 1_300_000])
def test_a_message_that_one_item_cannot_hold_is_split_and_read_back_whole(size: int) -> None:
    shop = Workshop().with_settings(max_message_bytes=4_194_304)
    text = noise(size)
    assert shop.take(text).turn == 1
    assert shop.said(1)[0]["content"] == text
    assert shop.take("and then?").turn == 2


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_text_that_is_no_unicode_is_refused(text: str) -> None:
    shop = Workshop()
    with pytest.raises(UnstorableValueError) as refused:
        shop.take(text)
    assert refused.value.path == "message"
    assert shop.items() == []


@pytest.mark.parametrize("text", ["", "\x00", "𝄞 \u2028", "Ä" * 1000])
def test_any_other_text_comes_back_as_it_was(text: str) -> None:
    shop = Workshop(saying("ok"))
    shop.take(text)
    assert shop.said(1)[0] == {"role": "user", "content": text}


# --- at most one turn at a time -----------------------------------------------------------------------------


def running_in_between(shop: Workshop, **request: Any) -> list[Any]:
    """What a second message meets that arrives while the first one runs."""
    met: list[Any] = []

    def work(context: TurnContext) -> Answered:
        if not met:
            try:
                met.append(shop.take("second", factory=saying("second answer"), **request))
            except Exception as error:
                met.append(error)
        return answer(context, "first answer")

    shop.take("first", factory=doing(work))
    return met


def test_reject_refuses_a_second_message_while_one_runs_and_stores_nothing_of_it() -> None:
    shop = Workshop()
    (met,) = running_in_between(shop)
    assert isinstance(met, ConcurrentRunError)
    assert met.facts() == {"turn": 1}
    assert [item["sk"] for item in shop.items("TURN#")] == ["TURN#0000000000000001"]
    assert shop.take("third").turn == 2


def test_enqueue_waits_for_the_turn_before_and_sees_what_it_said() -> None:
    clock = SystemClock()
    shop = Workshop(clock=clock).with_settings(on_concurrent="enqueue")
    begun, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def first(context: TurnContext) -> Answered:
        begun.set()
        assert go_on.wait(20)
        return answer(context, "first answer")

    def second(context: TurnContext) -> Answered:
        seen.extend(message["content"] for message in context.history)
        return answer(context, "second answer")

    thread = threading.Thread(target=lambda: shop.take("first", factory=doing(first)))
    thread.start()
    assert begun.wait(20)
    waiting = threading.Timer(0.3, go_on.set)
    waiting.start()
    done = shop.take("second", factory=doing(second))
    thread.join(20)
    assert (done.turn, done.output) == (2, "second answer")
    assert seen == ["first", "first answer"]


def test_enqueue_gives_up_inside_its_own_time() -> None:
    shop = Workshop().with_settings(on_concurrent="enqueue")
    began_ms = shop.clock.now_ms()
    (met,) = running_in_between(shop, time_ms=9_000)
    assert isinstance(met, ConcurrentRunError)
    assert 5_000 < shop.clock.now_ms() - began_ms < 9_000


class Racing(MemoryItemStore):
    """Lets somebody else in right before the first write of a turn's record."""

    def __init__(self, meanwhile: Any) -> None:
        super().__init__(self._before_call)
        self._meanwhile = meanwhile

    def _before_call(self, operation: str, what: Any) -> None:
        puts = [one for one in what if isinstance(one, Put) and str(one.item["sk"]).startswith("TURN#")]
        if puts and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()


def test_the_loser_of_a_claim_learns_of_the_winner_and_leaves_nothing() -> None:
    shop = Workshop()
    store = Racing(lambda: shop.take("winner", factory=saying("won")))
    shop.store = store
    with pytest.raises(ConcurrentRunError) as lost:
        shop.take("loser")
    assert lost.value.turn == 1
    assert [message["content"] for message in shop.said(1)] == ["winner", "won"]
    assert len(shop.items("TURN#")) == 1
    assert "conflict" in shop.notes


def test_the_loser_against_another_person_hears_of_no_conversation() -> None:
    shop = Workshop()
    shop.store = Racing(lambda: shop.take("winner", caller=BOB))
    with pytest.raises(SessionNotFoundError):
        shop.take("loser")


@pytest.mark.parametrize(("mine", "theirs"), [(1, 7), (7, 1), (7, 7), (3, 9)])
def test_floors_do_not_let_two_run_at_once(mine: int, theirs: int) -> None:
    shop = Workshop()
    shop.store = Racing(lambda: shop.take_and_die("claimed", "winner", host_turn=theirs))
    with pytest.raises(ConcurrentRunError) as lost:
        shop.take("loser", host_turn=mine)
    assert lost.value.turn == theirs
    ran = [item for item in shop.items("TURN#") if item["status"] != "skipped"]
    assert [item["status"] for item in ran] == ["running"]


def test_enqueue_takes_the_next_number_when_it_lost_the_first() -> None:
    shop = Workshop().with_settings(on_concurrent="enqueue")
    shop.store = Racing(lambda: shop.take("winner"))
    assert shop.take("loser").turn == 2


# --- queued turns -------------------------------------------------------------------------------------------


def test_respond_async_claims_a_queued_turn_and_rings() -> None:
    shop = Workshop(doing(lambda context: pytest.fail("the worker runs it")))
    shop.last_turns = lambda: pytest.fail("nobody asks the agent's module")
    queued = shop.take("later", respond_async=True)
    assert (queued.turn, queued.status) == (1, Status.QUEUED)
    assert shop.bell.rung == [1]
    assert shop.memory.round_trips == 2
    assert [shop.take("more", respond_async=True).turn for _ in range(3)] == [2, 3, 4]
    shop.last_turns = lambda: None
    with pytest.raises(ConcurrentRunError) as refused:
        shop.take("now")
    assert refused.value.turn == 1


# --- unreadable, unavailable --------------------------------------------------------------------------------


def test_what_cannot_be_read_is_refused_before_the_claim() -> None:
    shop = Workshop(saying(noise(150_000), "more"))
    shop.take()
    (segment,) = shop.items("SEG#")
    spoiled = {**segment, "data": b"nothing that decompresses"}
    shop.memory.write([Put(spoiled)])
    stored = shop.items()
    with pytest.raises(MalformedStoredItemError):
        shop.take("again")
    assert shop.items() == stored


class Losing(MemoryItemStore):
    """Applies the n-th write and loses its answer: nobody hears whether it landed."""

    def __init__(self, at: int, *, applies: bool) -> None:
        super().__init__()
        self._at, self._applies, self._writes = at, applies, 0

    def write(self, writes: Any) -> Any:
        self._writes += 1
        if self._writes != self._at:
            return super().write(writes)
        if self._applies:
            super().write(writes)
        return [Unavailable(StoreUnavailableError()) for _ in writes]


@pytest.mark.parametrize("applies", [True, False])
def test_a_claim_that_nobody_hears_of_leaves_no_lease_to_wait_out(applies: bool) -> None:
    shop = Workshop(store=Losing(1, applies=applies))
    with pytest.raises(StoreUnavailableError):
        shop.take("hello")
    # The very next message need not wait for anything.
    assert shop.take("again").turn == (2 if applies else 1)
    if applies:
        assert shop.turn(1).status is Status.FAILED
        assert shop.said(1) == [{"role": "user", "content": "hello"}]


def test_a_commit_that_landed_is_an_answer_even_if_nobody_said_so() -> None:
    shop = Workshop(store=Losing(2, applies=True))
    assert shop.take().output == "Hello."
    assert shop.turn(1).status is Status.COMPLETE


def test_a_commit_that_did_not_land_is_no_answer_and_leaves_no_lease() -> None:
    shop = Workshop(store=Losing(2, applies=False))
    with pytest.raises(StoreUnavailableError):
        shop.take()
    assert (shop.turn(1).status, shop.turn(1).lease_until_ms) == (Status.RUNNING, 0)
    assert shop.take("again").turn == 2


class ConversationLost(MemoryItemStore):
    """Never answers for CONVERSATION."""

    lost = True

    def write(self, writes: Any) -> Any:
        places = [one.item["sk"] if isinstance(one, Put) else one.key[1] for one in writes]
        kept = [not (self.lost and place == "CONVERSATION") for place in places]
        answers = iter(super().write([one for one, keep in zip(writes, kept, strict=True) if keep]))
        return [next(answers) if keep else Unavailable(StoreUnavailableError()) for keep in kept]


def test_a_turn_that_landed_is_an_answer_and_the_listing_is_healed_later() -> None:
    store = ConversationLost()
    shop = Workshop(store=store)
    assert shop.take().output == "Hello."
    assert shop.items("CONVERSATION") == []
    with pytest.raises(SessionNotFoundError):
        shop.take(caller=BOB)
    store.lost = False
    assert shop.take().turn == 2
    (shown,) = shop.items("CONVERSATION")
    assert (shown["owner"], shown["turn"], shown["messageCount"]) == ("alice", 2, 4)


def test_a_lost_claim_is_told_and_its_answer_dropped() -> None:
    shop = Workshop()

    def work(context: TurnContext) -> Answered:
        # To a machine whose clock is an hour ahead, this process looks dead.
        other = shop.elsewhere(ahead_ms=3_600_000)
        assert other.take("meanwhile", factory=saying("theirs")).turn == 2
        return answer(context, "mine, too late")

    with pytest.raises(LostClaimError):
        shop.take("first", factory=doing(work))
    assert "too late" not in repr(shop.items())
