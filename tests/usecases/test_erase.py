"""Erasure: all of it goes, whoever is still writing and whoever dies over it, and nothing of it comes back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import refund_desk
from tests.usecases.stores import Died, Dying, Losing, Paused
from tests.usecases.workshop import ALICE, BOB, KEY, Crash, Gate, Workshop, answer, called, doing, key_of, noise, saying
from turnkeep.errors import (
    ConcurrentRunError,
    LostClaimError,
    NoPendingAskError,
    RunFailedError,
    SessionNotFoundError,
    StoreUnavailableError,
    TurnkeepError,
)
from turnkeep.ledger.codec import pack
from turnkeep.ledger.keys import CONVERSATION, ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Delete, Put, Update
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.erase import LONGEST_LEASE_MS, Erased, erase_as_operator, erase_conversation, go_on_erasing
from turnkeep.usecases.listing import list_asks, list_conversations
from turnkeep.usecases.read import read_conversation, read_transcript, read_turn
from turnkeep.usecases.reconcile import reconcile
from turnkeep.usecases.resume_turn import expire_ask, fail_resume, resume_turn
from turnkeep.usecases.withdraw import withdraw_turn
from turnkeep.usecases.work_queue import work_queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import TurnContext
    from turnkeep.ledger.records import TurnRecord

OTHER = ConversationKey("c-2")
SUPERVISOR = Caller("sue", None, frozenset({"supervisor"}))


@dataclass
class Watched(Gate):
    """Step Functions, which remembers what it was told to stop."""

    stopped: list[tuple[str, int]] = field(default_factory=list)

    def stop(self, record: TurnRecord, cause: str) -> None:
        assert record.ask is not None
        self.stopped.append((record.ask.ask_id, record.start_number))


def watched(*arguments: Any, **more: Any) -> tuple[Workshop, Watched]:
    gate = Watched()
    return Workshop(*arguments, gate=gate, **more), gate


def soon(shop: Workshop, time_ms: int = 60_000) -> FixedDeadline:
    return FixedDeadline.after(shop.clock, time_ms)


def erase(shop: Workshop, *, store: Any = None, time_ms: int = 60_000) -> Erased:
    return erase_conversation(shop.deps(store=store), ALICE, KEY, deadline=soon(shop, time_ms))


def second_pass(shop: Workshop) -> None:
    shop.pass_ms(LONGEST_LEASE_MS)
    reconcile(shop.deps(), deadline=soon(shop))


def full() -> tuple[Workshop, Watched]:
    """A conversation with one of everything: a long turn, a request, an open ask, turns queued behind it."""
    shop, gate = watched(refund_desk.build)
    shop.take("Where is order A-100?", idempotency=key_of("k"))
    shop.take("hello", factory=doing(lambda context: answer(context, noise(150_000))))
    shop.take("Refund order A-100, please")
    for turn in (4, 5, 6):
        shop.take(f"later {turn}", respond_async=True)
    shop.memory.write([Update((KEY.pk, "TURN#0000000000000004"), set={"status": "complete"})])
    shop.take("again", key=OTHER)
    return shop, gate


def asking(shop: Workshop) -> str:
    """Takes a turn that asks; its ask's id."""
    ask = shop.take("Refund order B-200, please", factory=refund_desk.build).ask
    assert ask is not None
    return ask.ask_id


def left(shop: Workshop, key: ConversationKey = KEY) -> list[str]:
    return [str(item["sk"]) for item in shop.items() if item["pk"] == key.pk]


# --- all of it ----------------------------------------------------------------------------------------------


def test_everything_goes_but_the_mark_and_then_the_mark_too() -> None:
    shop, _ = full()
    kinds = {sk.split("#")[0] for sk in left(shop)}
    assert {CONVERSATION, "TURN", "SEG", "REQUEST", "ONCE"} <= kinds
    count, others = len(left(shop)), left(shop, OTHER)
    assert erase(shop) == Erased(items=count - 1, stopped=0, done=True)
    assert left(shop) == [CONVERSATION]
    (mark,) = shop.items(CONVERSATION)[:1]
    assert {"owner", "erasing", "epoch"} <= set(mark)
    assert "ownerKey" not in mark
    second_pass(shop)
    assert left(shop) == []
    assert left(shop, OTHER) == others


def test_items_of_every_kind_go_those_of_later_releases_too() -> None:
    shop, _ = watched()
    shop.take("one")
    kinds = ["SNAP#1", "BEAT#1#0", "MEMORY#x", "ANSWER#1#m#0", "!odd", "zz#later", "CONVERSATIO", "CONVERSATION#more"]
    shop.memory.write([Put({"pk": KEY.pk, "sk": sk, "epoch": "e"}) for sk in kinds])
    erase(shop)
    assert left(shop) == [CONVERSATION]


def test_nobody_sees_it_any_more() -> None:
    shop, _ = watched(refund_desk.build)
    ask_id = asking(shop)
    erase(shop)
    deps, deadline = shop.deps(), soon(shop)
    doors: list[Callable[[], Any]] = [
        lambda: read_conversation(deps, ALICE, KEY),
        lambda: read_turn(deps, ALICE, KEY, 1),
        lambda: read_transcript(deps, ALICE, KEY, after=None, limit=5, max_bytes=100),
        lambda: shop.take("two"),
        lambda: shop.take("two", respond_async=True),
        lambda: shop.take("two", caller=BOB),
        lambda: answer_ask(deps, SUPERVISOR, KEY, ask_id=ask_id, decision=1, deadline=deadline),
        lambda: withdraw_turn(deps, ALICE, KEY, 1, deadline=deadline),
        lambda: create_conversation(deps, ALICE, conversation_id="c-1", deadline=deadline),
        lambda: erase_conversation(deps, ALICE, KEY, deadline=deadline),
    ]
    for door in doors:
        with pytest.raises(SessionNotFoundError):
            door()
    assert list_conversations(deps, ALICE, after=None, limit=5)[0] == []
    assert list_asks(deps, SUPERVISOR, after=None, limit=5, max_bytes=10**6)[0] == []
    assert left(shop) == [CONVERSATION]


def test_a_stranger_erases_nothing() -> None:
    shop, _ = watched()
    shop.take("one")
    before = shop.items()
    for key in (KEY, ConversationKey("missing")):
        with pytest.raises(SessionNotFoundError):
            erase_conversation(shop.deps(), BOB, key, deadline=soon(shop))
    assert shop.items() == before


def test_what_is_erased_is_what_was_judged() -> None:
    """Alice's conversation goes and Bob begins one under its id, between what her request read and what it marks."""
    shop, _ = watched(saying("Hello."))
    shop.take("one")

    def bobs() -> None:
        shop.memory.write([Delete((KEY.pk, sk)) for sk in left(shop)])
        shop.take("mine", caller=BOB)

    with pytest.raises(SessionNotFoundError):
        erase(shop, store=Paused(shop.memory, 2, bobs))
    assert read_conversation(shop.deps(), BOB, KEY).record.owner == "bob"


def test_a_conversation_that_a_crash_left_without_a_summary_goes_too() -> None:
    shop, _ = watched()
    shop.take_and_die("claimed", "one")
    assert CONVERSATION not in left(shop)
    erase(shop)
    second_pass(shop)
    assert left(shop) == []


# --- by an operator -----------------------------------------------------------------------------------------


def test_an_operator_erases_what_nobody_can_read() -> None:
    shop, gate = watched(refund_desk.build)
    ask_id = asking(shop)
    shop.memory.write([Update((KEY.pk, "TURN#0000000000000001"), set={"format": "conversation-v9", "user": b"\x00"})])
    shop.memory.write([Update((KEY.pk, CONVERSATION), set={"savedAt": "[object Object]"}, remove=("format",))])
    erased = erase_as_operator(shop.deps(), KEY, deadline=soon(shop))
    assert (erased.done, gate.stopped) == (True, [(ask_id, 1)])
    second_pass(shop)
    assert left(shop) == []


def test_an_operator_erases_twice_and_what_has_expired() -> None:
    shop, _ = watched(saying("Hello."))
    shop.with_settings(retention_days=1).take("one")
    shop.pass_ms(2 * 86_400_000)
    erase_as_operator(shop.deps(), KEY, deadline=soon(shop))
    assert erase_as_operator(shop.deps(), KEY, deadline=soon(shop)) == Erased(0, 0, done=True)
    second_pass(shop)
    assert left(shop) == []
    with pytest.raises(SessionNotFoundError):
        erase_as_operator(shop.deps(), KEY, deadline=soon(shop))


# --- executions ---------------------------------------------------------------------------------------------


def test_the_execution_of_an_ask_is_stopped_however_many_turns_lie_behind_it() -> None:
    shop, gate = watched(refund_desk.build)
    shop.take("hello")
    ask_id = asking(shop)
    for number in range(3, 8):
        item = {**shop.items("TURN#0000000000000001")[0], "sk": f"TURN#{number:016d}", "status": "queued"}
        shop.memory.write([Put(item)])
    assert erase(shop).stopped == 1
    assert gate.stopped == [(ask_id, 1)]


def test_the_execution_of_an_answer_that_nobody_took_up_is_stopped_under_its_number() -> None:
    shop, gate = watched(refund_desk.build)
    ask_id = asking(shop)
    decision = {"approved": True, "by": "sue"}
    answer_ask(shop.deps(), SUPERVISOR, KEY, ask_id=ask_id, decision=decision, deadline=soon(shop))
    shop.memory.write([Update((KEY.pk, "TURN#0000000000000001"), set={"starts": 3})])
    erase(shop)
    assert gate.stopped == [(ask_id, 3)]


def test_an_ask_that_is_raised_while_it_is_erased_is_stopped_too() -> None:
    """The erasure reads a turn that runs, and right before it deletes it, that turn asks."""
    shop, gate = watched(refund_desk.build)
    erasing = Workshop(refund_desk.build, clock=shop.clock, store=shop.store, gate=gate)

    def erase_now(point: str) -> None:
        if point == "ran":
            shop.probe = None
            # hydrate, mark, read a step, delete: the commit lands in front of the fourth call
            erase(erasing, store=Paused(shop.memory, 4, resume.commit))

    class resume:
        @staticmethod
        def commit() -> None:
            record = shop.turn(1)
            ask = {"askId": "ask-1-late", "audience": "owner", "ask": pack({}), "askedAt": 1, "expiresAt": 2}
            change = Update((KEY.pk, "TURN#0000000000000001"), set={"status": "awaiting", **ask})
            shop.memory.write([change])
            assert record.status is Status.RUNNING

    shop.probe = erase_now
    with pytest.raises((LostClaimError, SessionNotFoundError)):
        shop.take("Refund order B-200, please")
    assert ("ask-1-late", 1) in gate.stopped
    second_pass(shop)
    assert left(shop) == []


# --- late writers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["claimed", "agreed", "ran", "committed"])
@pytest.mark.parametrize("mode", ["exit", "async", "sync"])
def test_a_run_that_goes_on_behind_the_mark_leaves_nothing(point: str, mode: Any) -> None:
    def work(context: TurnContext) -> Any:
        exchange = called("look", {"n": 1})
        context.commit([*context.messages, *exchange], 2)
        context.barrier()
        return answer(context, "done", *exchange)

    shop, _ = watched(doing(work, durability=mode))
    shop.take("before", factory=saying("Hello."))
    erased: list[Erased] = []

    def erase_at(now: str) -> None:
        if now == point and not erased:
            erased.append(erase(Workshop(clock=shop.clock, store=shop.store)))

    shop.probe = erase_at
    try:
        done = shop.take("during")
    except (LostClaimError, SessionNotFoundError, StoreUnavailableError, RunFailedError):
        done = None
    assert len(erased) == 1
    assert (done is not None) is (point == "committed"), "no answer leaves for a turn that is gone"
    with pytest.raises(SessionNotFoundError):
        read_conversation(shop.deps(), ALICE, KEY)
    second_pass(shop)
    assert left(shop) == []


def test_a_claim_that_races_the_mark_is_seen_by_nobody_and_goes_with_the_second_pass() -> None:
    shop, _ = watched(saying("Hello."))
    shop.take("before")
    racer = Paused(shop.memory, 2, lambda: erase(Workshop(clock=shop.clock, store=shop.store)))
    with pytest.raises((SessionNotFoundError, LostClaimError)):
        shop.take("racing", store=racer)
    assert len(left(shop)) > 1, "its claim landed behind the erasure's first pass"
    with pytest.raises(SessionNotFoundError):
        shop.take("again")
    with pytest.raises(SessionNotFoundError):
        read_transcript(shop.deps(), ALICE, KEY, after=None, limit=5, max_bytes=100)
    second_pass(shop)
    assert left(shop) == []


@pytest.mark.parametrize("door", ["answer", "resume", "expire", "fail", "withdraw", "work", "reconcile"])
@pytest.mark.parametrize("nth", [2, 3, 4, 5])
def test_whatever_read_in_front_of_the_mark_and_writes_behind_it_brings_nothing_back(door: str, nth: int) -> None:
    shop, _ = watched(refund_desk.build)
    ask_id = asking(shop)
    decision = {"approved": True, "by": "sue"}
    if door in ("resume", "fail"):
        answer_ask(shop.deps(), SUPERVISOR, KEY, ask_id=ask_id, decision=decision, deadline=soon(shop))
    if door in ("expire", "reconcile"):
        shop.pass_ms(8 * 86_400_000)
    store = Paused(shop.memory, nth, lambda: erase(Workshop(clock=shop.clock, store=shop.store)))
    deps = shop.deps(store=store)
    doors: dict[str, Callable[[], Any]] = {
        "answer": lambda: answer_ask(deps, SUPERVISOR, KEY, ask_id=ask_id, decision=decision, deadline=soon(shop)),
        "resume": lambda: resume_turn(deps, KEY, 1, ask_id, deadline=soon(shop)),
        "expire": lambda: expire_ask(deps, KEY, 1, ask_id),
        "fail": lambda: fail_resume(deps, KEY, 1, ask_id),
        "withdraw": lambda: withdraw_turn(deps, ALICE, KEY, 1, deadline=soon(shop)),
        "work": lambda: work_queue(deps, KEY, deadline=soon(shop)),
        "reconcile": lambda: reconcile(deps, deadline=soon(shop)),
    }
    with suppress(TurnkeepError):  # each refuses in its own words, or finds nothing to do
        doors[door]()
    if not any(item for item in shop.items() if "erasing" in item):
        return  # it took fewer calls than that, and nothing raced
    second_pass(shop)
    assert left(shop) == []


# --- processes that die over it -----------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("by", ["its owner", "an operator"])
def test_an_erasure_that_dies_at_any_call_is_carried_out_by_reconcile(by: str, landed: bool) -> None:
    nth = 0
    while True:
        nth += 1
        shop, gate = watched(refund_desk.build)
        shop.take("hello")
        ask_id = asking(shop)
        deps = shop.deps(store=Dying(shop.memory, nth, landed=landed))
        try:
            if by == "its owner":
                erase_conversation(deps, ALICE, KEY, deadline=soon(shop))
            else:
                erase_as_operator(deps, KEY, deadline=soon(shop))
        except Died:
            if "erasing" not in shop.items(CONVERSATION)[0]:
                assert read_conversation(shop.deps(), ALICE, KEY), "nothing was begun"
                continue
        else:
            break
        for _ in range(3):
            shop.pass_ms(LONGEST_LEASE_MS)
            reconcile(shop.deps(), deadline=soon(shop))
        assert left(shop) == [], f"it died at call {nth}"
        assert (ask_id, 1) in gate.stopped
    assert nth > 5


@pytest.mark.parametrize("landed", [False, True], ids=["before it", "behind it"])
def test_a_reconcile_that_dies_at_any_call_of_a_second_pass_is_followed_by_another(landed: bool) -> None:
    nth = 0
    while True:
        nth += 1
        shop, _ = watched(saying("Hello."))
        shop.take("one")
        erase(shop)
        shop.memory.write([Put({"pk": KEY.pk, "sk": "SEG#late", "epoch": "e"})])
        shop.pass_ms(LONGEST_LEASE_MS)
        try:
            go_on_erasing(shop.deps(store=Dying(shop.memory, nth, landed=landed)), KEY, deadline=soon(shop))
        except Died:
            reconcile(shop.deps(), deadline=soon(shop))
            assert left(shop) == [], f"it died at call {nth}"
            continue
        break
    assert nth > 3


@pytest.mark.parametrize("landed", [False, True], ids=["nothing landed", "it landed"])
def test_an_erasure_that_loses_the_store_goes_on_by_itself(landed: bool) -> None:
    for nth in range(1, 6):
        shop, _ = watched(saying("Hello."))
        shop.take("one")
        with pytest.raises(StoreUnavailableError):
            erase(shop, store=Losing(shop.memory, nth, landed=landed))
        if "erasing" not in shop.items(CONVERSATION)[0]:
            erase(shop)
        for _ in range(3):
            shop.pass_ms(LONGEST_LEASE_MS)
            reconcile(shop.deps(), deadline=soon(shop))
        assert left(shop) == []


def test_what_the_time_does_not_suffice_for_is_done_in_steps() -> None:
    shop, _ = watched(saying("Hello."))
    shop.take("one")
    shop.memory.write([Put({"pk": KEY.pk, "sk": f"SEG#{number:05d}", "epoch": "e"}) for number in range(950)])
    steps: list[int] = []

    def slow(point: str) -> None:
        if point == "erased some":
            steps.append(len(left(shop)))
            shop.pass_ms(10_000)

    shop.probe = slow
    first = erase(shop, time_ms=25_000)
    assert not first.done
    assert 0 < first.items < 951
    shop.pass_ms(60_000)
    reconcile(shop.deps(), deadline=soon(shop, 25_000))
    assert 1 < len(left(shop)) < 651, "a reconcile has an end too"
    for _ in range(4):
        shop.pass_ms(60_000)
        reconcile(shop.deps(), deadline=soon(shop, 60_000))
    assert left(shop) == [CONVERSATION]
    assert all(before - after <= 100 for before, after in pairwise(steps))
    second_pass(shop)
    assert left(shop) == []


def test_the_mark_stays_until_nobody_can_be_alive() -> None:
    shop, _ = watched(saying("Hello."))
    shop.take("one")
    erase(shop)
    for _ in range(15):
        shop.pass_ms(60_000)
        reconcile(shop.deps(), deadline=soon(shop))
        assert left(shop) == [CONVERSATION]
    shop.pass_ms(10_000)
    reconcile(shop.deps(), deadline=soon(shop))
    assert left(shop) == []


# --- the id, used again -------------------------------------------------------------------------------------


def test_an_id_that_is_used_again_begins_anew_and_is_anybodys() -> None:
    shop, _ = watched(saying("Hello."))
    key = key_of("k")
    shop.take("one", idempotency=key)
    shop.take("two")
    old = shop.turn(1).epoch
    erase(shop)
    second_pass(shop)
    done = shop.take("mine", caller=BOB, idempotency=key)
    assert (done.turn, done.principal) == (1, "bob")
    assert shop.turn(1).epoch != old
    assert read_transcript(shop.deps(), BOB, KEY, after=None, limit=9, max_bytes=999)[0][0]["content"] == "mine"
    with pytest.raises(SessionNotFoundError):
        read_conversation(shop.deps(), ALICE, KEY)


def test_a_run_of_the_erased_life_writes_nothing_into_the_new_one() -> None:
    shop, _ = watched()
    once: list[str] = []

    def erase_and_begin_anew(point: str) -> None:
        if point == "ran" and not once:
            once.append(point)
            other = Workshop(saying("new"), clock=shop.clock, store=shop.store, random_id=lambda size: f"n{size}")
            erase(other)
            # By force: no second pass waits for a process that lives so long.
            shop.memory.write([Delete((KEY.pk, CONVERSATION))])
            other.take("anew", caller=BOB)

    shop.probe = erase_and_begin_anew
    with pytest.raises((LostClaimError, SessionNotFoundError, ConcurrentRunError)):
        shop.take("old")
    shown, _ = read_transcript(shop.deps(), BOB, KEY, after=None, limit=9, max_bytes=999)
    assert [one["content"] for one in shown] == ["anew", "new"]
    assert read_conversation(shop.deps(), BOB, KEY).record.owner == "bob"


def test_an_answer_to_an_erased_ask_is_not_taken_by_the_new_life() -> None:
    shop, _ = watched(refund_desk.build)
    ask_id = asking(shop)
    erase(shop)
    second_pass(shop)
    new_ask = asking(shop)
    assert new_ask != ask_id
    with pytest.raises((SessionNotFoundError, NoPendingAskError)):
        answer_ask(
            shop.deps(), SUPERVISOR, KEY, ask_id=ask_id, decision={"approved": True, "by": ""}, deadline=soon(shop)
        )


def test_a_crash_of_the_erasing_process_is_no_excuse_to_see_it() -> None:
    shop, _ = watched(saying("Hello."))
    shop.take("one")

    def crash(point: str) -> None:
        if point == "marked":
            raise Crash

    shop.probe = crash
    with pytest.raises(Crash):
        erase(shop)
    shop.probe = None
    with pytest.raises(SessionNotFoundError):
        read_transcript(shop.deps(), ALICE, KEY, after=None, limit=5, max_bytes=100)
