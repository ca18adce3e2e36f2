"""Envelopes in and out: nothing of one is lost, and what came in is a conversation like any other."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from tests.usecases.envelopes import (
    FIXTURES,
    ODD,
    PAUSED_FIXTURES,
    envelope,
    envelopes,
    fixture,
    paused_envelope,
    said,
    sound_cases,
    user,
)
from tests.usecases.workshop import ALICE, BOB, Workshop, answer, doing, noise, saying
from turnkeep.envelope import envelope_owner, envelope_transcript
from turnkeep.errors import (
    AwaitingDecisionError,
    ConversationExistsError,
    ConversationMismatchError,
    EnvelopeError,
    ForeignPauseError,
    InvalidRequestError,
    NoPendingAskError,
    SessionNotFoundError,
    StaleDecisionError,
    UnstorableValueError,
)
from turnkeep.ids import turn_of_ask
from turnkeep.json_values import same_json
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.import_conversation import Imported, import_conversation
from turnkeep.usecases.listing import list_asks, list_conversations
from turnkeep.usecases.operator import answer_as_operator
from turnkeep.usecases.read import read_conversation, read_transcript, read_turns
from turnkeep.usecases.resume_turn import expire_ask
from turnkeep.usecases.withdraw import withdraw_turn

if TYPE_CHECKING:
    from turnkeep.agent.port import TurnContext

KEY = ConversationKey("c-1")


def take_in(shop: Workshop, value: Any, conversation_id: str | None = "c-1") -> Imported:
    return import_conversation(shop.deps(), value, conversation_id=conversation_id)


def take_out(shop: Workshop, key: ConversationKey = KEY) -> dict[str, Any]:
    return export_conversation(shop.deps(), key)


def soon(shop: Workshop) -> FixedDeadline:
    return FixedDeadline.after(shop.clock, 30_000)


# --- the same comes out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_every_envelope_of_the_reference_is_taken_in_owned_listed_transcribed_and_comes_out_the_same(name: str) -> None:
    shop, value = Workshop(), fixture(name)
    done = take_in(shop, value)
    key = done.conversation.key
    assert same_json(take_out(shop, key), value)
    owner, transcript = envelope_owner(value), envelope_transcript(value)
    assert done.conversation.message_count == len(transcript)
    caller = Caller(owner, key.tenant)
    deps = shop.with_settings(allow_anonymous=True).deps()
    shown, following = read_transcript(deps, caller, key, after=None, limit=500, max_bytes=10**6)
    assert (shown, following) == (transcript, None)
    summary = read_conversation(deps, caller, key).record
    assert (summary.format, summary.saved_at_ms) == (value["format"], value["savedAt"])
    if owner is not None:
        rows, _ = list_conversations(deps, caller, after=None, limit=10)
        assert [(row.key, row.message_count, row.format) for row in rows] == [(key, len(transcript), value["format"])]


@pytest.mark.parametrize("name", ODD)
def test_what_no_turn_has_a_place_for_comes_out_again(name: str) -> None:
    shop = Workshop()
    take_in(shop, ODD[name])
    assert same_json(take_out(shop), ODD[name])


@pytest.mark.parametrize(("case", "value"), sound_cases())
def test_every_sound_golden_envelope_comes_out_the_same(case: str, value: dict[str, Any]) -> None:
    shop = Workshop()
    done = take_in(shop, value)
    assert same_json(take_out(shop, done.conversation.key), value), case


@given(value=envelopes())
@settings(max_examples=150, deadline=None)
def test_any_sound_envelope_comes_out_the_same(value: dict[str, Any]) -> None:
    shop = Workshop()
    done = take_in(shop, value)
    assert same_json(take_out(shop, done.conversation.key), value)


def test_what_is_too_large_for_an_item_comes_out_the_same() -> None:
    large = envelope(
        user(noise(200_000)),
        said("", toolCalls=[{"id": "1", "name": "read", "args": {"text": noise(200_000, 2)}}]),
        {"role": "tool", "content": noise(400_000, 3), "toolCallId": "1"},
        said(noise(5_000, 4)),
        user("and then?"),
        said("nothing"),
        folded=[{"messages": [user(noise(300_000, 5))]}],
    )
    pause = paused_envelope(
        user(noise(200_000, 6)),
        checkpoint={**fixture(PAUSED_FIXTURES[0])["data"]["checkpoint"], "more": noise(300_000, 7)},
    )
    for value in (large, pause):
        shop = Workshop()
        take_in(shop, value)
        assert same_json(take_out(shop), value)


def test_a_long_conversation_keeps_its_turns_one_for_each_user_message() -> None:
    shop = Workshop()
    value = envelope(*[one for number in range(300) for one in (user(f"q{number}"), said(f"a{number}"))])
    done = take_in(shop, value)
    assert (done.turns, done.conversation.turn, done.conversation.message_count) == (300, 300, 600)
    assert same_json(take_out(shop), value)
    records, following = read_turns(shop.deps(), ALICE, KEY, after=298, limit=10)
    assert ([record.turn for record in records], following) == ([299, 300], None)
    assert [record.output for record in records] == ["a298", "a299"]


def test_an_envelope_that_was_taken_in_twice_is_there_once() -> None:
    shop, value = Workshop(), fixture(FIXTURES[0])
    take_in(shop, value)
    before = shop.items()
    assert take_in(shop, value).unchanged
    assert shop.items() == before


# --- what is refused ----------------------------------------------------------------------------------------


def test_nothing_is_taken_in_where_something_else_is() -> None:
    shop = Workshop()
    shop.take("mine")
    before = shop.items()
    with pytest.raises(ConversationExistsError) as refused:
        take_in(shop, envelope(user("a"), said("A")))
    assert refused.value.conversation_id == "c-1"
    assert shop.items() == before


def test_one_and_true_are_not_the_same_envelope() -> None:
    shop = Workshop()
    take_in(shop, envelope(user("a", odd=1), said("A")))
    with pytest.raises(ConversationExistsError):
        take_in(shop, envelope(user("a", odd=True), said("A")))


def test_what_is_no_envelope_is_refused_and_nothing_is_written() -> None:
    bad = [None, "[object Object]", 7, [], {}, {"format": "conversation-v2"}, envelope(user("a")) | {"data": {}}]
    for value in bad:
        shop = Workshop()
        with pytest.raises(EnvelopeError):
            take_in(shop, value)
        assert shop.items() == []


def test_what_the_ledger_cannot_keep_exactly_is_refused_and_nothing_is_written() -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    for odd in ("\ud800", float("nan"), deep):
        shop = Workshop()
        with pytest.raises(UnstorableValueError):
            take_in(shop, envelope(user("a"), said("A"), odd=odd))
        assert shop.items() == []


def test_an_envelope_that_names_no_conversation_needs_an_id() -> None:
    shop = Workshop()
    with pytest.raises(InvalidRequestError):
        take_in(shop, envelope(user("a"), principal=None), None)
    with pytest.raises(InvalidRequestError):
        take_in(shop, envelope(user("a")), "x" * 3_000)
    assert shop.items() == []


def test_the_envelope_names_its_conversation_and_tenant() -> None:
    shop = Workshop()
    take_in(shop, fixture("a2-direct-full-identity.json"), None)
    (item,) = shop.items("CONVERSATION")
    named = fixture("a2-direct-full-identity.json")["data"]["identity"]
    key = ConversationKey.from_pk(str(item["pk"]))
    assert (key.conversation_id, key.tenant) == (named["conversationId"], named["tenant"])
    take_in(shop, paused_envelope(pending={"sessionId": "of-the-ask"}, principal=None), None)
    assert export_conversation(shop.deps(), ConversationKey("of-the-ask"))


def test_an_audience_that_nobody_knows_does_not_become_the_owner() -> None:
    shop = Workshop()
    with pytest.raises(InvalidRequestError):
        take_in(shop, paused_envelope(turnkeep={"audience": "everybody"}))
    assert shop.items() == []


def test_nothing_stored_is_nothing_to_take_out() -> None:
    with pytest.raises(SessionNotFoundError):
        take_out(Workshop())


# --- what came in goes on -----------------------------------------------------------------------------------


def test_an_imported_conversation_continues() -> None:
    seen: list[Any] = []

    def work(context: TurnContext) -> Any:
        seen.append(([*context.history], list(context.history_turns)))
        return answer(context, "fine")

    shop = Workshop(doing(work))
    value = envelope(
        {"role": "system", "content": "Be kind."},
        user("a"),
        said("", toolCalls=[{"id": "1", "name": "t", "args": {}}]),
        user("b"),
        said("B"),
        folded=[{"k": 1}],
        skillCursor="s-1",
        failurePoint={"iteration": 1, "phase": "tool"},
        odd=[1],
    ) | {"trace": "t"}
    take_in(shop, value)
    done = shop.take("c")
    assert (done.turn, done.status) == (3, Status.COMPLETE)
    (history, turns), *_ = seen
    assert [(one["role"], one["content"]) for one in history if one["role"] != "tool"] == [
        ("system", "Be kind."),
        ("user", "a"),
        ("assistant", ""),
        ("user", "b"),
        ("assistant", "B"),
    ]
    assert [one["toolCallId"] for one in history if one["role"] == "tool"] == ["1"], "a provider gets every result"
    assert [turn for turn, _ in turns] == [1, 2]
    out = take_out(shop)
    assert out["data"]["history"] == [*value["data"]["history"], user("c"), said("fine")]
    assert {name: out["data"][name] for name in ("folded", "skillCursor", "odd")} == {
        "folded": [{"k": 1}],
        "skillCursor": "s-1",
        "odd": [1],
    }
    assert (out["trace"], out["savedAt"], out["data"]["runId"]) == ("t", done.saved_at_ms, done.run_id)
    assert "failurePoint" not in out["data"]
    assert out["data"]["originalInput"] == {"message": "c"}


def test_a_conversation_that_another_agent_recorded_is_not_continued_by_this_one() -> None:
    shop = Workshop(saying("hi", agent_id="desk"))
    take_in(shop, envelope(user("a"), said("A"), agent={"id": "shop"}))
    with pytest.raises(ConversationMismatchError):
        shop.take("b")


def test_it_is_its_owners_and_nobody_elses() -> None:
    shop = Workshop()
    take_in(shop, envelope(user("a"), said("A")))
    for call in (lambda: shop.take("b", caller=BOB), lambda: read_conversation(shop.deps(), BOB, KEY)):
        with pytest.raises(SessionNotFoundError):
            call()
    take_in(shop, envelope(user("a"), said("A"), principal=None), "nobody")
    with pytest.raises(SessionNotFoundError):
        shop.take("b", key=ConversationKey("nobody"))


def test_retention_is_stamped_from_the_import_on() -> None:
    shop = Workshop().with_settings(retention_days=2)
    take_in(shop, envelope(user("a"), said("A"), saved_at=1))
    two_days_on = shop.clock.now_ms() // 1000 + 2 * 86_400
    assert {item["sk"]: item["deleteAfter_s"] for item in shop.items()} == {
        item["sk"]: two_days_on for item in shop.items()
    }


# --- a paused run of another engine -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAUSED_FIXTURES)
def test_an_imported_pause_shows_its_ask_keeps_its_checkpoint_and_is_not_answered_here(name: str) -> None:
    shop, value = Workshop(), fixture(name)
    done = take_in(shop, value)
    assert done.ask is not None
    assert done.ask.ask is not None
    owner = Caller(envelope_owner(value))
    ask_id = done.ask.ask.ask_id
    assert turn_of_ask(ask_id) == done.ask.turn == done.turns
    assert done.ask.ask.pause_data == value["data"]["pending"]["pauseData"]
    _, checkpoint = shop.deps().ledger.checkpoint_of(done.ask)
    assert checkpoint == value["data"]["checkpoint"]
    open_turn = read_conversation(shop.deps(), owner, KEY).open_turn
    assert open_turn is not None
    assert open_turn.ask == done.ask.ask
    assert [record.turn for record in list_asks(shop.deps(), owner, after=None, limit=5, max_bytes=10**6)[0]] == [
        done.ask.turn
    ]
    with pytest.raises(AwaitingDecisionError):
        shop.take("hello?", caller=owner)
    before = shop.items()
    decision = {"approved": True, "by": "me", "at": 1}
    for refuse in (
        lambda: answer_ask(shop.deps(), owner, KEY, ask_id=ask_id, decision=decision, deadline=soon(shop)),
        lambda: answer_as_operator(shop.deps(), KEY, ask_id=ask_id, decision=decision, operator="op"),
    ):
        with pytest.raises(ForeignPauseError) as refused:
            refuse()
        assert (refused.value.code, refused.value.conversation_id) == ("ERR_UNKNOWN_FORMAT", "c-1")
    assert shop.items() == before
    assert same_json(take_out(shop), value)


def test_a_pauses_record_stays_small_whatever_it_asks() -> None:
    for value in [ODD["a large ask"], *(fixture(name) for name in PAUSED_FIXTURES)]:
        shop = Workshop()
        done = take_in(shop, value)
        (record,) = [item for item in shop.items("TURN#") if item["status"] == "awaiting"]
        assert sum(len(str(part)) for part in record.values()) < 4_096
        assert done.ask is not None


def test_an_imported_ask_waits_in_an_execution() -> None:
    shop = Workshop()
    done = take_in(shop, fixture(PAUSED_FIXTURES[0]))
    assert done.ask is not None
    assert done.ask.ask is not None
    assert shop.gate.started == [done.ask.ask.ask_id]
    (record,) = [item for item in shop.items("TURN#") if item["status"] == "awaiting"]
    assert record["dueAt"] > shop.clock.now_ms(), "reconcile looks whether it is there"


@pytest.mark.parametrize("how", ["withdrawn", "expired", "expired by a message"])
def test_the_conversation_goes_on_when_its_ask_is_closed(how: str) -> None:
    seen: list[list[Any]] = []

    def work(context: TurnContext) -> Any:
        seen.append([*context.history])
        return answer(context, "fine")

    shop = Workshop(doing(work))
    value = fixture("c2-paused-second-of-three-calls.json")
    owner = Caller(envelope_owner(value))
    done = take_in(shop, value)
    assert done.ask is not None
    assert done.ask.ask is not None
    if how == "withdrawn":
        withdraw_turn(shop.deps(), owner, KEY, done.ask.turn, deadline=soon(shop))
    else:
        shop.pass_ms(done.ask.ask.expires_at_ms - shop.clock.now_ms())
        if how == "expired":
            expire_ask(shop.deps(), KEY, done.ask.turn, done.ask.ask.ask_id)
    closed = shop.take("never mind", caller=owner)
    assert (closed.turn, closed.status) == (done.turns + 1, Status.COMPLETE)
    calls = [call["id"] for one in seen[0] for call in one.get("toolCalls") or []]
    results = [one["toolCallId"] for one in seen[0] if one["role"] == "tool"]
    assert calls == results, "a provider accepts it"
    assert bool(calls) is (how != "withdrawn")
    assert take_out(shop)["format"] == "conversation-v1"
    with pytest.raises((NoPendingAskError, StaleDecisionError)):
        answer_as_operator(shop.deps(), KEY, ask_id="ask-9-x", decision=1, operator="op")


def test_an_answered_mark_comes_along_and_its_conversation_goes_on() -> None:
    shop = Workshop()
    value = fixture(PAUSED_FIXTURES[0])
    mark = {"decision": "yes", "answeredBy": "ada", "atMs": 1, "runId": "r", "error": {"code": "E", "message": "m"}}
    marked = {**value, "data": {**value["data"], "answered": mark}}
    done = take_in(shop, marked)
    assert (done.ask, done.conversation.status) == (None, "failed")
    assert shop.turn(1).answered_mark == mark
    owner = Caller(envelope_owner(value))
    assert shop.take("go on", caller=owner).status is Status.COMPLETE


# --- our own, taken elsewhere -------------------------------------------------------------------------------


def test_the_summary_of_a_key_is_not_its_content() -> None:
    shop = Workshop()
    take_in(shop, envelope(user("secret words"), said("more secret words")))
    (summary,) = shop.items("CONVERSATION")
    assert "secret" not in json.dumps({name: str(value) for name, value in summary.items()})


def test_a_native_conversation_comes_out_in_the_references_shape() -> None:
    shop = Workshop(saying("Hello.", agent_id="desk"))
    last = [shop.take("one", key=replace(KEY, tenant="acme")), shop.take("two", key=replace(KEY, tenant="acme"))][-1]
    out = take_out(shop, replace(KEY, tenant="acme"))
    assert out == {
        "format": "conversation-v1",
        "data": {
            "version": 1,
            "runId": last.run_id,
            "history": [user("one"), said("Hello."), user("two"), said("Hello.")],
            "lastCompletedIteration": 1,
            "originalInput": {"message": "two"},
            "checkpointedAt": last.saved_at_ms,
            "identity": {"tenant": "acme", "principal": "alice", "conversationId": "c-1"},
            "agent": {"id": "desk"},
        },
        "savedAt": last.saved_at_ms,
    }
