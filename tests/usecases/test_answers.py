"""Who may answer which ask, in which order an answer is judged, and what a repeat hears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.desk import NO, SAM, YES, Desk
from tests.usecases.workshop import ALICE, BOB, KEY, NOBODY, Crash, doing, key_of, noise
from turnkeep.agent.port import Asked
from turnkeep.errors import (
    AlreadyAnsweredError,
    AskExpiredError,
    DecisionRequiredError,
    IdempotencyMismatchError,
    IdentityNotVerifiedError,
    MessageTooLargeError,
    NoPendingAskError,
    NotYoursToAnswerError,
    SessionNotFoundError,
    StaleDecisionError,
    UnreadableError,
    UnstorableValueError,
)
from turnkeep.json_values import ABSENT
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Put, Update
from turnkeep.usecases.deps import Caller

if TYPE_CHECKING:
    from turnkeep.agent.port import AgentFactory, Outcome, TurnContext
    from turnkeep.ledger.records import TurnRecord

ALICE_TOO = Caller("alice", roles=frozenset({"supervisor"}))
"""The owner, who holds the role as well."""
TIM = Caller("tim", roles=frozenset({"clerk"}))
ELSEWHERE = Caller("sam", tenant="acme", roles=frozenset({"supervisor"}))


def open_stack() -> Desk:
    """A stack that takes anonymous callers, as the local one does."""
    desk = Desk()
    desk.shop.with_settings(allow_anonymous=True)
    return desk


def ask_of(record: TurnRecord) -> str:
    assert record.ask is not None
    return record.ask.ask_id


def pausing(pause_data: dict[str, Any], *, audience: str = "owner", **more: Any) -> AgentFactory:
    """An agent of somebody else's that pauses with these facts."""

    def work(context: TurnContext) -> Outcome:
        call = {"role": "assistant", "content": "", "toolCalls": [{"id": "call-1", "name": "ask", "args": {}}]}
        facts = {"toolCallId": "call-1", "toolName": "ask"} | pause_data
        checkpoint = {"sharedState": {}, "pausedStageId": "s", "subflowPath": [], "pauseData": facts}
        return Asked(facts, checkpoint, [*context.messages, call], iteration=1, audience=audience, **more)

    return doing(work)


# --- 401, 404, 403, 400 -------------------------------------------------------------------------------------

OWNER, ROLE = "ask", "pay"  # the words that make the desk ask its owner, and a supervisor
TAKEN = None


@pytest.mark.parametrize(
    ("asks", "asker", "caller", "refusal"),
    [
        pytest.param(OWNER, ALICE, ALICE, TAKEN, id="the owner answers what is for the owner"),
        pytest.param(OWNER, ALICE, ALICE_TOO, TAKEN, id="with a role or without"),
        pytest.param(OWNER, ALICE, SAM, SessionNotFoundError, id="a role-holder does not"),
        pytest.param(OWNER, ALICE, BOB, SessionNotFoundError, id="a stranger does not"),
        pytest.param(OWNER, ALICE, NOBODY, SessionNotFoundError, id="nor does an anonymous caller"),
        pytest.param(ROLE, ALICE, SAM, TAKEN, id="a role-holder answers what is for the role"),
        pytest.param(ROLE, ALICE, ALICE, NotYoursToAnswerError, id="its owner does not"),
        pytest.param(ROLE, ALICE, ALICE_TOO, NotYoursToAnswerError, id="even when they hold the role"),
        pytest.param(ROLE, ALICE, TIM, SessionNotFoundError, id="another role is a stranger"),
        pytest.param(ROLE, ALICE, BOB, SessionNotFoundError, id="no role is a stranger"),
        pytest.param(ROLE, ALICE, NOBODY, SessionNotFoundError, id="and so is nobody"),
        pytest.param(ROLE, ALICE, ELSEWHERE, SessionNotFoundError, id="the role of another tenant is none"),
        pytest.param(OWNER, NOBODY, NOBODY, TAKEN, id="nobody answers in what nobody owns"),
        pytest.param(ROLE, NOBODY, NOBODY, TAKEN, id="either kind"),
        pytest.param(ROLE, NOBODY, SAM, TAKEN, id="and so may a role-holder"),
        pytest.param(OWNER, NOBODY, SAM, SessionNotFoundError, id="but not what is for the owner there is none of"),
        pytest.param(OWNER, NOBODY, ALICE, SessionNotFoundError, id="nobody's is not the first comer's"),
    ],
)
def test_who_may_answer(asks: str, asker: Caller, caller: Caller, refusal: type[Exception] | None) -> None:
    desk = open_stack()
    asked = desk.say(asks, caller=asker)
    key = ConversationKey(KEY.conversation_id, caller.tenant)
    if refusal is TAKEN:
        answered = desk.answer(asked, caller=caller, key=key)
        assert answered.record.status is Status.ANSWERED
        assert answered.may_read is (caller.principal == asker.principal)
        return
    with pytest.raises(refusal):
        desk.answer(asked, caller=caller, key=key)
    assert desk.turn().status is Status.AWAITING
    assert desk.turn().decision is None


def test_nobody_answers_where_callers_are_verified() -> None:
    with pytest.raises(IdentityNotVerifiedError):
        Desk().answer("ask-1-x", caller=NOBODY)


@pytest.mark.parametrize("caller", [SAM, BOB, ELSEWHERE], ids=["role-holder", "stranger", "other tenant"])
def test_what_is_not_there_costs_the_same_as_what_is_not_yours(caller: Caller) -> None:
    """No reply and no number of store calls tells a stranger that a conversation exists."""
    desk = Desk()
    asked = desk.say("ask")
    costs = []
    for key in (KEY, ConversationKey("not-there")):
        before = desk.shop.memory.round_trips
        with pytest.raises(SessionNotFoundError) as refused:
            desk.answer(asked, caller=caller, key=ConversationKey(key.conversation_id, caller.tenant))
        costs.append((desk.shop.memory.round_trips - before, str(refused.value)))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("value", [ABSENT, "yes", True, None, 0, [], {}, {"approved": "yes", "by": "sam"}], ids=repr)
def test_a_gate_takes_a_decision(value: Any) -> None:
    desk = Desk()
    asked = desk.say("pay")
    with pytest.raises(DecisionRequiredError) as refused:
        desk.answer(asked, value)
    if value is not ABSENT:
        assert refused.value.facts()["gate"] == "checkIn"
        assert refused.value.facts()["tool"] == "pay"
        assert "yes" not in str(refused.value)
    assert desk.turn().status is Status.AWAITING


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, "the blue one", {"approved": True, "by": ""}], ids=repr)
def test_a_plain_ask_takes_any_value(value: Any) -> None:
    desk = Desk()
    desk.answer(desk.say("ask"), value, caller=ALICE)
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert desk.turn().decision is not None
    assert desk.turn().decision.value == value  # type: ignore[union-attr]


def test_a_plain_ask_takes_no_absence() -> None:
    desk = Desk()
    with pytest.raises(DecisionRequiredError):
        desk.answer(desk.say("ask"), ABSENT, caller=ALICE)


@pytest.mark.parametrize(
    ("caller", "value", "refusal"),
    [
        (BOB, "no decision", SessionNotFoundError),
        (ALICE, "no decision", NotYoursToAnswerError),
        (SAM, "no decision", DecisionRequiredError),
        (BOB, noise(200_000), SessionNotFoundError),
        (ALICE, noise(200_000), NotYoursToAnswerError),
        (SAM, noise(200_000), MessageTooLargeError),
    ],
)
@pytest.mark.parametrize("state", ["open", "decided", "expired"])
def test_404_comes_before_403_and_403_before_400(
    state: str, caller: Caller, value: Any, refusal: type[Exception]
) -> None:
    """Whatever the ask's state: who may not know of it does not learn it."""
    desk = Desk()
    asked = desk.say("pay")
    if state == "decided":
        desk.answer(asked)
    if state == "expired":
        desk.shop.pass_ms(8 * 86_400_000)
    with pytest.raises(refusal):
        desk.answer(asked, value, caller=caller)


def test_a_decision_over_the_limit_is_refused_with_it() -> None:
    desk = Desk()
    asked = desk.say("ask")
    with pytest.raises(MessageTooLargeError) as refused:
        desk.answer(asked, "x" * 262_143, caller=ALICE)
    assert refused.value.facts() == {"limitBytes": 262_144, "sizeBytes": 262_145}
    desk.answer(asked, "x" * 262_142, caller=ALICE)


def test_what_json_cannot_keep_is_refused() -> None:
    desk = Desk()
    with pytest.raises(UnstorableValueError):
        desk.answer(desk.say("ask"), float("nan"), caller=ALICE)


# --- the ask's own state ------------------------------------------------------------------------------------


def test_the_second_answer_learns_when_the_first_came() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)
    desk.shop.pass_ms(1_000)
    for value in (YES, NO):
        with pytest.raises(AlreadyAnsweredError) as refused:
            desk.answer(asked, value)
        assert refused.value.facts() == {"answeredAt": 1_700_000_000_000}
    desk.steps.settle()
    with pytest.raises(AlreadyAnsweredError) as refused:
        desk.answer(asked, NO)
    assert refused.value.facts() == {"answeredAt": 1_700_000_000_000}
    assert desk.paid == ["B-200"]


def test_an_answer_while_it_resumes_is_too_late() -> None:
    desk = Desk()
    asked = desk.say("pay")
    refusals = []

    def meanwhile(point: str) -> bool:
        if point == "resume claimed":
            desk.dies = lambda point: False
            with pytest.raises(AlreadyAnsweredError) as refused:
                desk.answer(asked, NO)
            refusals.append(refused.value)
        return False

    desk.answer(asked)
    desk.dies = meanwhile
    desk.steps.settle()
    assert len(refusals) == 1
    assert desk.turn().status is Status.COMPLETE


def test_an_answer_after_the_expiry_is_refused_whoever_closed_it() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    expires = asked.ask.expires_at_ms  # type: ignore[union-attr]
    desk.shop.pass_ms(expires - desk.shop.clock.now_ms())
    with pytest.raises(AskExpiredError) as refused:
        desk.answer(asked)
    assert refused.value.facts() == {"expiredAt": expires}
    desk.shop.pass_ms(2_000)
    desk.steps.settle()
    assert desk.turn().status is Status.EXPIRED
    with pytest.raises(AskExpiredError):
        desk.answer(asked)
    assert desk.say("thanks").status is Status.COMPLETE


def test_a_withdrawn_ask_is_closed() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.withdraw(1)
    with pytest.raises(AskExpiredError) as refused:
        desk.answer(asked)
    assert refused.value.facts() == {"expiredAt": desk.shop.clock.now_ms()}


def test_an_answer_to_an_older_ask_of_the_turn() -> None:
    desk = Desk()
    first = desk.say("pay then ask then pay")
    desk.answer(first)
    desk.steps.settle()
    second = desk.turn()
    assert ask_of(second) != ask_of(first)
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(first)  # whom it was for learns so
    with pytest.raises(NotYoursToAnswerError):
        desk.answer(first, caller=ALICE)
    with pytest.raises(SessionNotFoundError):
        desk.answer(second)  # the new one is the owner's, and none of a supervisor's business
    assert desk.turn().status is Status.AWAITING


def test_an_answer_to_an_ask_of_an_earlier_turn() -> None:
    desk = Desk()
    first = desk.say("ask")
    desk.answer(first, "the blue one", caller=ALICE)
    desk.steps.settle()
    desk.say("ask")
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(first, "the red one", caller=ALICE)


def test_another_ask_is_the_open_one() -> None:
    desk = Desk()
    open_ask = ask_of(desk.say("ask"))
    for unknown in ("ask-1-neverwas", "ask-7-neverwas", "no ask's id", ""):
        with pytest.raises(StaleDecisionError) as refused:
            desk.answer(unknown, "x", caller=ALICE)
        assert refused.value.facts() == {"askId": open_ask}
        with pytest.raises(SessionNotFoundError):
            desk.answer(unknown)


def test_the_open_ask_is_found_behind_queued_turns() -> None:
    desk = Desk()
    desk.say("hello")
    first = desk.say("ask")
    for number in range(3):
        # Claimed while the turn in front of them ran, before it asked.
        (item,) = desk.shop.items("TURN#0000000000000001")
        queued = item | {"sk": f"TURN#{number + 3:016d}", "status": "queued", "previous": number + 2}
        desk.shop.memory.write([Put(queued)])
    with pytest.raises(StaleDecisionError) as refused:
        desk.answer("ask-9-neverwas", "x", caller=ALICE)
    assert refused.value.facts() == {"askId": ask_of(first)}


def test_nothing_asks() -> None:
    desk = Desk()
    desk.say("hello")
    with pytest.raises(NoPendingAskError):
        desk.answer("ask-1-neverwas", "x", caller=ALICE)


# --- what the answer chose from -----------------------------------------------------------------------------

SHOWN = {"question": "Which?", "component": {"componentId": "table", "propsRef": "art_1"}}


def chose(ref: str) -> dict[str, Any]:
    return {"value": {"kind": "row", "value": 1, "from": ref}}


def test_an_answer_about_something_that_was_not_shown() -> None:
    desk = Desk()
    asked = desk.say("x", factory=pausing(SHOWN))
    with pytest.raises(StaleDecisionError) as refused:
        desk.answer(asked, chose("art_2"), caller=ALICE)
    assert refused.value.facts() == {"askId": ask_of(asked)}
    desk.answer(asked, chose("art_1"), caller=ALICE)
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(asked, chose("art_2"), caller=ALICE)  # by now that is no longer the question


def test_it_is_judged_also_where_the_ask_is_too_large_for_its_record() -> None:
    desk = Desk()
    asked = desk.say("x", factory=pausing(SHOWN | {"rows": noise(100_000)}))
    assert asked.ask is not None
    assert not asked.ask.whole
    with pytest.raises(StaleDecisionError):
        desk.answer(asked, chose("art_2"), caller=ALICE)
    assert desk.answer(asked, chose("art_1"), caller=ALICE).record.status is Status.ANSWERED


# --- repeats ------------------------------------------------------------------------------------------------


def test_a_repeat_with_its_key_gets_the_first_reply_whatever_became_of_the_turn() -> None:
    desk = Desk()
    asked = desk.say("pay then ask")
    key = key_of("k-1", {"yes": 1})
    first = desk.answer(asked, idempotency=key)
    assert desk.answer(asked, idempotency=key).record.status is first.record.status is Status.ANSWERED
    desk.steps.settle()
    assert desk.turn().status is Status.AWAITING
    assert desk.answer(asked, idempotency=key).record.status is Status.ANSWERED
    desk.answer(desk.turn(), "blue", caller=ALICE)
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert desk.answer(asked, idempotency=key).record.status is Status.ANSWERED
    assert desk.paid.count("B-200") == 1


def test_another_body_under_the_key_is_a_mismatch_for_good() -> None:
    desk = Desk()
    asked = desk.say("pay then ask")
    desk.answer(asked, idempotency=key_of("k-1", "yes"))
    with pytest.raises(IdempotencyMismatchError):
        desk.answer(asked, NO, idempotency=key_of("k-1", "no"))
    desk.steps.settle()
    with pytest.raises(IdempotencyMismatchError):
        desk.answer(asked, NO, idempotency=key_of("k-1", "no"))


def test_a_key_that_answered_one_ask_answers_no_other_of_the_turn() -> None:
    desk = Desk()
    first = desk.say("pay then pay")
    desk.answer(first, idempotency=key_of("k-1", "first"))
    desk.steps.settle()
    with pytest.raises(IdempotencyMismatchError):
        desk.answer(desk.turn(), idempotency=key_of("k-1", "second"))
    assert desk.turn().status is Status.AWAITING


def test_two_people_with_one_key_are_two_requests() -> None:
    desk = Desk()
    asked = desk.say("pay")
    other = Caller("sue", roles=frozenset({"supervisor"}))
    desk.answer(asked, idempotency=key_of(ask_of(asked)))
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(asked, caller=other, idempotency=key_of(ask_of(asked)))
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(asked, NO, caller=other, idempotency=key_of(ask_of(asked), "no"))


def test_the_record_names_the_verified_caller_whatever_the_decision_says() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked, {"approved": True, "by": "the president"})
    assert desk.turn().decision is not None
    assert desk.turn().decision.answered_by == "sam"  # type: ignore[union-attr]


@pytest.mark.parametrize("repeats", ["with its key", "without one", "by somebody else"])
def test_an_answer_that_nobody_was_told_of_is_told_by_the_next_one_at_once(repeats: str) -> None:
    """The process died between the record and the signal: no time passes and nobody reconciles."""
    desk = Desk()
    asked, key = desk.say("pay"), key_of("k-1") if repeats == "with its key" else None
    desk.steps.play()
    desk.dies = lambda here: here == "before send_task_success"
    with pytest.raises(Crash):
        desk.answer(asked, idempotency=key)
    desk.dies = lambda here: False
    desk.steps.play()
    assert desk.turn().status is Status.ANSWERED
    if repeats == "with its key":
        desk.answer(asked, idempotency=key)
    else:
        other = SAM if repeats == "without one" else Caller("sue", roles=frozenset({"supervisor"}))
        with pytest.raises(AlreadyAnsweredError):
            desk.answer(asked, NO, caller=other)
    desk.steps.play()
    assert desk.turn().status is Status.COMPLETE
    assert desk.paid == ["B-200"]


def test_a_resume_that_died_is_looked_at_when_the_answer_comes_again() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked, NO)
    desk.dies = lambda here: here == "resume claimed"
    desk.steps.play()
    desk.dies = lambda here: False
    desk.steps.stop(desk.steps.running[0])
    desk.steps.ended.clear()
    desk.shop.pass_ms(311_000)
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(asked, NO)
    desk.steps.play()
    assert desk.turn().status is Status.COMPLETE


# --- waiting ------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_the_resume_and_shows_how_the_turn_stands() -> None:
    desk = Desk()
    asked = desk.say("ask")
    desk.steps.play()
    sleep, looks = desk.shop.hand.sleep_ms, []

    def sleep_and_work(duration_ms: float) -> None:
        looks.append(duration_ms)
        sleep(duration_ms)
        if len(looks) == 3:
            desk.steps.settle()

    desk.shop.hand.sleep_ms = sleep_and_work  # type: ignore[method-assign]
    waited = desk.answer(asked, "blue", caller=ALICE, wait_ms=20_000)
    assert waited.record.status is Status.COMPLETE
    assert waited.record.output == "blue"
    assert len(looks) == 3


def test_a_wait_runs_out() -> None:
    desk = Desk()
    asked = desk.say("pay")
    began = desk.shop.clock.monotonic_ms()
    assert desk.answer(asked, wait_ms=2_000).record.status is Status.ANSWERED
    assert 2_000 <= desk.shop.clock.monotonic_ms() - began < 2_500


def test_a_wait_never_outlasts_the_process() -> None:
    desk = Desk()
    asked = desk.say("pay")
    began = desk.shop.clock.monotonic_ms()
    desk.answer(asked, wait_ms=60_000)
    assert desk.shop.clock.monotonic_ms() - began <= 28_300


def test_a_repeat_with_a_wait_is_told_how_the_turn_stands() -> None:
    desk = Desk()
    asked = desk.say("ask")
    key = key_of("k-1")
    desk.answer(asked, "blue", caller=ALICE, idempotency=key)
    desk.steps.settle()
    again = desk.answer(asked, "blue", caller=ALICE, idempotency=key, wait_ms=5_000)
    assert (again.record.status, again.record.output) == (Status.COMPLETE, "blue")


def test_a_wait_ends_where_the_turn_asks_again() -> None:
    desk = Desk()
    asked = desk.say("pay then ask")
    key = key_of("k-1")
    desk.answer(asked, idempotency=key)
    desk.steps.settle()
    waited = desk.answer(asked, idempotency=key, wait_ms=5_000)
    assert waited.record.status is Status.AWAITING
    assert not waited.may_read


# --- what cannot be read ------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_named_to_its_owner_only() -> None:
    desk = Desk()
    asked = desk.say("pay")
    newer = Update((KEY.pk, "TURN#0000000000000001"), set={"format": "flowchart-v2"})
    desk.shop.memory.write([newer])
    with pytest.raises(UnreadableError):
        desk.answer(asked, caller=ALICE)
    for caller in (SAM, BOB):
        with pytest.raises(SessionNotFoundError):
            desk.answer(asked, caller=caller)


def test_an_ask_whose_checkpoint_cannot_be_read_is_not_there_for_a_role_holder() -> None:
    desk = Desk()
    asked = desk.say("x", factory=pausing({"rows": noise(100_000)}, audience="role:supervisor"))
    for item in desk.shop.items("SEG#"):
        if item["kind"] == "checkpoint":
            desk.shop.memory.write([Update((str(item["pk"]), str(item["sk"])), set={"data": b"cut"})])
    with pytest.raises(SessionNotFoundError):
        desk.answer(asked)
