"""Who may start another turn.

Invariants: off, it costs nothing. No hour ever holds more turns of one caller than the policy allows, however many ask
at once. What is refused, or is a repeat, or finds another turn in its way, is not counted.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.usecases.workshop import ALICE, BOB, NOBODY, Crash, Workshop, doing, key_of, saying
from turnkeep.agent.port import Asked
from turnkeep.clock import ManualClock, SystemClock
from turnkeep.errors import (
    AdmissionRefusedError,
    AwaitingDecisionError,
    ConcurrentRunError,
    SessionNotFoundError,
    UnknownStoredFormatError,
)
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.usecases.admission import Refusal, TurnsPerHour
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.take_turn import take_turn

if TYPE_CHECKING:
    from turnkeep.agent.port import Outcome, TurnContext
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.admission import Admission, RecentSpend
    from turnkeep.usecases.deps import Deps

HOUR_MS, MINUTE_MS = 3_600_000, 60_000


def send(
    shop: Workshop,
    policy: Admission | None,
    caller: Caller = ALICE,
    conversation: str = "c-1",
    *,
    deps: Deps | None = None,
    **request: Any,
) -> TurnRecord:
    using = replace(deps or shop.deps(), admission=policy)
    key = ConversationKey(conversation, caller.tenant)
    deadline = FixedDeadline.after(shop.clock, 29_000)
    return take_turn(using, caller, key, message="hello", deadline=deadline, **request)


def admitted(shop: Workshop) -> int:
    """How many turns are counted, of whomever."""
    spent = [str(item["minutes"]) for item in shop.items("SPEND")]
    return sum(int(part.split(":")[1]) for text in spent for part in text.split())


@dataclass
class Remembers:
    """A policy that admits and remembers what it was asked."""

    asked: list[tuple[str | None, ConversationKey, RecentSpend]] = field(default_factory=list)

    def decide(self, principal: str | None, conversation: ConversationKey, spend: RecentSpend) -> Refusal | None:
        self.asked.append((principal, conversation, spend))
        return None


# --- the policy ---------------------------------------------------------------------------------------------


def test_off_it_costs_nothing() -> None:
    shop = Workshop()
    send(shop, None)
    before = shop.memory.round_trips
    send(shop, None)
    off = shop.memory.round_trips - before
    assert not [item for item in shop.items() if str(item["pk"]).startswith("admission#")]
    before = shop.memory.round_trips
    send(shop, TurnsPerHour(9))
    assert shop.memory.round_trips - before == off + 2


def test_a_turn_over_the_limit_is_refused_until_the_hour_has_passed() -> None:
    shop, policy = Workshop(), TurnsPerHour(2)
    send(shop, policy)
    shop.pass_ms(10 * MINUTE_MS)
    send(shop, policy)
    before = shop.items()
    with pytest.raises(AdmissionRefusedError) as refusal:
        send(shop, policy)
    assert shop.items() == before
    assert 50 * 60 <= refusal.value.retry_after_s <= 51 * 60
    shop.pass_ms(refusal.value.retry_after_s * 1000)
    assert send(shop, policy).status is Status.COMPLETE
    with pytest.raises(AdmissionRefusedError):
        send(shop, policy)


def test_a_limit_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TurnsPerHour(0)


@settings(max_examples=60, deadline=None)
@given(
    limit=st.integers(1, 4),
    start_ms=st.integers(0, HOUR_MS),
    steps=st.lists(st.one_of(st.integers(0, 3 * MINUTE_MS), st.integers(0, HOUR_MS)), min_size=1, max_size=25),
)
def test_no_hour_holds_more_than_the_limit(limit: int, start_ms: int, steps: list[int]) -> None:
    shop, policy = Workshop(clock=ManualClock(wall_ms=1_700_000_000_000 + start_ms)), TurnsPerHour(limit)
    began: list[int] = []
    for step in steps:
        shop.pass_ms(step)
        try:
            send(shop, policy)
        except AdmissionRefusedError as refusal:
            # Whoever waits as long as they were told is let in, when nobody else was in the meantime.
            shop.pass_ms(refusal.retry_after_s * 1000)
            send(shop, policy)
        began.append(shop.clock.now_ms())
    for first in began:
        assert len([at for at in began if first <= at <= first + HOUR_MS]) <= limit


def test_a_policy_of_ones_own_is_told_who_and_for_what_and_how_much() -> None:
    shop, policy = Workshop(), Remembers()
    send(shop, policy, Caller("ann", "acme"), "c-1")
    shop.pass_ms(MINUTE_MS)
    send(shop, policy, Caller("ann", "acme"), "c-2")
    send(shop, policy, Caller("ann", "acme"), "c-2")
    assert [(principal, key) for principal, key, _ in policy.asked] == [
        ("ann", ConversationKey("c-1", "acme")),
        ("ann", ConversationKey("c-2", "acme")),
        ("ann", ConversationKey("c-2", "acme")),
    ]
    assert [spend.turns for _, _, spend in policy.asked] == [0, 1, 2]
    last = policy.asked[-1][2]
    assert sum(count for _, count in last.leaving) == 2
    assert HOUR_MS - MINUTE_MS < last.leaving[0][0] <= HOUR_MS < last.leaving[1][0] <= HOUR_MS + MINUTE_MS
    assert last.window_ms == HOUR_MS


# --- whose count --------------------------------------------------------------------------------------------


def test_everybody_counts_apart_and_all_who_are_anonymous_together() -> None:
    shop, policy = Workshop().with_settings(allow_anonymous=True), TurnsPerHour(1)
    callers = [ALICE, BOB, Caller("alice", "acme"), Caller("alice", "other"), NOBODY]
    for number, caller in enumerate(callers):
        send(shop, policy, caller, f"c-{number}")
    for number, caller in enumerate(callers):
        with pytest.raises(AdmissionRefusedError):
            send(shop, policy, caller, f"d-{number}")


def test_a_count_names_nobody_and_expires() -> None:
    shop = Workshop()
    send(shop, TurnsPerHour(5), Caller("alice", "acme"), idempotency=key_of("k"))
    counts = [item for item in shop.items() if str(item["pk"]).startswith("admission#")]
    assert {str(item["sk"]).split("#")[0] for item in counts} == {"SPEND", "ADMITTED"}
    assert "alice" not in repr(counts)
    assert "acme" not in repr(counts)
    now_s = shop.clock.now_ms() // 1000
    assert all(now_s < int(item["deleteAfter_s"]) <= now_s + 3_700 for item in counts)


# --- what is not counted ------------------------------------------------------------------------------------


def test_a_repeat_is_not_counted_and_never_refused() -> None:
    shop, policy = Workshop(), TurnsPerHour(1)
    first = send(shop, policy, idempotency=key_of("k"))
    assert send(shop, policy, idempotency=key_of("k")) == first
    assert admitted(shop) == 1
    with pytest.raises(AdmissionRefusedError):
        send(shop, policy, idempotency=key_of("another"))


def test_a_request_whose_process_died_before_its_claim_is_counted_once() -> None:
    shop, policy = Workshop(), TurnsPerHour(1)

    def die(point: str) -> None:
        if point == "admitted":
            raise Crash

    shop.probe = die
    with pytest.raises(Crash):
        send(shop, policy, idempotency=key_of("k"))
    shop.probe = None
    assert send(shop, policy, idempotency=key_of("k")).status is Status.COMPLETE
    assert admitted(shop) == 1
    with pytest.raises(AdmissionRefusedError):
        send(shop, policy, conversation="c-2", idempotency=key_of("k"))


def test_what_meets_another_turn_is_not_counted() -> None:
    shop, policy = Workshop(), TurnsPerHour(5)
    shop.take_and_die()
    with pytest.raises(ConcurrentRunError):
        send(shop, policy)
    assert admitted(shop) == 0


def test_what_meets_an_open_ask_is_not_counted() -> None:
    def ask(context: TurnContext) -> Outcome:
        call = {"role": "assistant", "content": "", "toolCalls": [{"id": "c", "name": "ask", "args": {}}]}
        return Asked({"toolCallId": "c", "toolName": "ask"}, {}, [*context.messages, call], iteration=1)

    shop, policy = Workshop(doing(ask)), TurnsPerHour(1)
    send(shop, policy)
    with pytest.raises(AdmissionRefusedError):
        send(shop, policy)
    shop.pass_ms(2 * HOUR_MS)
    with pytest.raises(AwaitingDecisionError):
        send(shop, policy)
    assert admitted(shop) == 1


def test_a_stranger_is_not_found_whatever_they_have_left() -> None:
    shop, policy = Workshop(), TurnsPerHour(1)
    send(shop, policy, ALICE)
    send(shop, policy, BOB, "bobs")
    with pytest.raises(SessionNotFoundError):
        send(shop, policy, BOB)
    assert admitted(shop) == 2


def test_a_queued_turn_counts_when_it_is_queued() -> None:
    shop, policy = Workshop(), TurnsPerHour(1)
    assert send(shop, policy, respond_async=True).status is Status.QUEUED
    with pytest.raises(AdmissionRefusedError):
        send(shop, policy, respond_async=True)


def test_a_count_of_another_release_is_refused_by_name_and_stays() -> None:
    shop, policy = Workshop(), TurnsPerHour(1)
    send(shop, policy)
    (spend,) = shop.items("SPEND")
    from turnkeep.ledger.store import Put

    newer = {**spend, "format": "spend-v2"}
    shop.memory.write([Put(newer)])
    with pytest.raises(UnknownStoredFormatError) as refusal:
        send(shop, policy)
    assert (refusal.value.found, refusal.value.known) == ("spend-v2", ["spend-v1"])
    assert shop.items("SPEND") == [newer]


# --- many at once -------------------------------------------------------------------------------------------


def at_once(count: int, call: Any) -> list[Any]:
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait()
        try:
            return call(number)
        except (AdmissionRefusedError, ConcurrentRunError) as refusal:
            return refusal

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.parametrize("with_keys", [False, True])
def test_of_many_at_once_as_many_as_allowed_get_in(with_keys: bool) -> None:
    shop, policy = Workshop(saying("Hello."), clock=SystemClock()), TurnsPerHour(3)

    def call(number: int) -> Any:
        key = key_of(f"k-{number}") if with_keys else None
        return send(shop, policy, conversation=f"c-{number}", idempotency=key)

    found = at_once(12, call)
    assert sum(isinstance(one, AdmissionRefusedError) for one in found) == 9
    assert admitted(shop) == 3


@pytest.mark.parametrize("round_number", range(10))
def test_copies_of_one_request_are_counted_once_and_none_is_refused(round_number: int) -> None:
    shop, policy = Workshop(saying("Hello."), clock=SystemClock()), TurnsPerHour(1)
    found = at_once(6, lambda number: send(shop, policy, idempotency=key_of("k"), wait_ms=5_000))
    assert {one.turn for one in found} == {1}
    assert {one.status for one in found} == {Status.COMPLETE}
    assert admitted(shop) == 1
