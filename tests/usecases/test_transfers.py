"""Conversations that move: a pause of ours goes on elsewhere, and an import can die anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import refund_desk
from tests.usecases.envelopes import envelope, fixture, paused_envelope, said, user
from tests.usecases.stores import Died, Dying, Losing
from tests.usecases.workshop import ALICE, Gate, Workshop, doing, noise, saying
from turnkeep.envelope import conversation_of, read_paused_run
from turnkeep.errors import (
    ConversationExistsError,
    NotYoursToAnswerError,
    SessionNotFoundError,
    StoreUnavailableError,
    WrongEnvelopeReaderError,
)
from turnkeep.json_values import same_json
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Status
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.import_conversation import import_conversation
from turnkeep.usecases.reconcile import reconcile
from turnkeep.usecases.resume_turn import fail_resume, resume_turn
from turnkeep.usecases.withdraw import withdraw_turn

if TYPE_CHECKING:
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import Deps

KEY = ConversationKey("c-1")
SUPERVISOR = Caller("sue", None, frozenset({"supervisor"}))
YES = {"approved": True, "by": "sue", "at": 1}


def soon(deps: Deps) -> FixedDeadline:
    return FixedDeadline.after(deps.clock, 30_000)


def desk() -> Workshop:
    """A refund desk that was asked for more than it may pay."""
    shop = Workshop(refund_desk.build)
    shop.take("Where is order A-100?")
    shop.take("Refund order B-200, please")
    return shop


def open_ask(shop: Workshop, turn: int = 2) -> str:
    ask = shop.turn(turn).ask
    assert ask is not None
    return ask.ask_id


# --- a pause of ours ----------------------------------------------------------------------------------------


def test_a_pause_of_ours_is_a_paused_run_with_its_ask_and_for_whom() -> None:
    shop = desk()
    out = export_conversation(shop.deps(), KEY)
    paused = read_paused_run(out)
    ask = shop.turn(2).ask
    assert ask is not None
    assert paused["pending"]["sessionId"] == "c-1"
    assert paused["pending"]["checkIn"] == ask.pause_data["checkIn"]
    assert paused["turnkeep"] == {
        "audience": "role:supervisor",
        "askedAt": ask.asked_at_ms,
        "expiresAt": ask.expires_at_ms,
    }
    assert paused["conversation"]["history"][-1]["toolCalls"][0]["name"] == "refund", "as of the pause"
    assert ask.ask_id not in str(out), "an answer to it is an answer here"


def test_a_pause_of_ours_is_answered_where_it_was_taken_to_and_by_whom_it_was_for() -> None:
    there = Workshop(refund_desk.build)
    done = import_conversation(there.deps(), export_conversation(desk().deps(), KEY))
    assert done.ask is not None
    deps, ask_id = there.deps(), open_ask(there)
    with pytest.raises(NotYoursToAnswerError):
        answer_ask(deps, ALICE, KEY, ask_id=ask_id, decision=YES, deadline=soon(deps))
    answer_ask(deps, SUPERVISOR, KEY, ask_id=ask_id, decision=YES, deadline=soon(deps))
    resumed = resume_turn(deps, KEY, 2, ask_id, deadline=soon(deps)).record
    assert resumed is not None
    assert (resumed.status, resumed.output) == (Status.COMPLETE, "Order B-200 is refunded: 250.00.")
    out = export_conversation(deps, KEY)
    assert [one["content"] for one in conversation_of(out)["history"]][-2:] == ["Order B-200 is refunded: 250.00."] * 2


def test_an_ask_that_moves_expires_when_it_would_have() -> None:
    shop = desk()
    value = export_conversation(shop.deps(), KEY)
    there = Workshop(refund_desk.build)
    there.pass_ms(86_400_000)
    import_conversation(there.deps(), value)
    old, new = shop.turn(2).ask, there.turn(2).ask
    assert old is not None
    assert new is not None
    assert new.expires_at_ms == old.expires_at_ms
    late = Workshop(refund_desk.build)
    late.pass_ms(30 * 86_400_000)
    import_conversation(late.deps(), value)
    fresh = late.turn(2).ask
    assert fresh is not None
    assert fresh.expires_at_ms == late.clock.now_ms() + late.settings.ask_expires_s * 1000


def test_a_decision_that_is_recorded_is_not_taken_elsewhere_a_second_time() -> None:
    shop = desk()
    deps, ask_id = shop.deps(), open_ask(shop)
    answer_ask(deps, SUPERVISOR, KEY, ask_id=ask_id, decision=YES, deadline=soon(deps))
    out = export_conversation(deps, KEY)
    mark = read_paused_run(out)["answered"]
    assert (mark["decision"], mark["answeredBy"], mark["error"]["code"]) == (YES, "sue", "ERR_CONCURRENT_RUN")
    conversation_of(out)  # and its conversation can go on where it was taken to
    there = Workshop(refund_desk.build)
    done = import_conversation(there.deps(), out)
    assert (done.ask, there.turn(2).status) == (None, Status.FAILED)


def test_a_resume_that_failed_is_taken_out_with_its_mark_and_its_checkpoint() -> None:
    shop = desk()
    deps, ask_id = shop.deps(), open_ask(shop)
    before = read_paused_run(export_conversation(deps, KEY))
    answer_ask(deps, SUPERVISOR, KEY, ask_id=ask_id, decision=YES, deadline=soon(deps))
    fail_resume(deps, KEY, 2, ask_id)
    failed = shop.turn(2)
    assert failed.status is Status.FAILED
    paused = read_paused_run(export_conversation(deps, KEY))
    assert paused["checkpoint"] == before["checkpoint"]
    assert paused["pending"] == before["pending"]
    assert paused["answered"] == failed.answered_mark
    shop.take("What now?")
    assert export_conversation(deps, KEY)["format"] == "conversation-v1"


def test_a_decision_of_any_size_comes_along_whole() -> None:
    shop = desk()
    deps, ask_id = shop.deps(), open_ask(shop)
    large = {**YES, "note": noise(60_000)}
    answer_ask(deps, SUPERVISOR, KEY, ask_id=ask_id, decision=large, deadline=soon(deps))
    assert read_paused_run(export_conversation(deps, KEY))["answered"]["decision"] == large
    fail_resume(deps, KEY, 2, ask_id)
    assert read_paused_run(export_conversation(deps, KEY))["answered"]["decision"] == large


def test_a_withdrawn_ask_leaves_a_conversation() -> None:
    shop = desk()
    withdraw_turn(shop.deps(), ALICE, KEY, 2, deadline=soon(shop.deps()))
    history = conversation_of(export_conversation(shop.deps(), KEY))["history"]
    assert [one["content"] for one in history if one["role"] == "user"] == ["Where is order A-100?"]


# --- turns that are open otherwise --------------------------------------------------------------------------


def test_a_running_turn_gives_what_is_durable() -> None:
    shop = Workshop(saying("Hello."))
    shop.take("one")
    shop.take_and_die("claimed", "two")
    data = conversation_of(export_conversation(shop.deps(), KEY))
    assert data["history"] == [user("one"), said("Hello."), user("two")]
    assert (data["originalInput"], data["runId"]) == ({"message": "two"}, shop.turn(2).run_id)


def test_a_queued_turn_gives_nothing_yet() -> None:
    shop = Workshop(saying("Hello."))
    shop.take("one")
    shop.take("two", respond_async=True)
    assert conversation_of(export_conversation(shop.deps(), KEY))["history"] == [user("one"), said("Hello.")]


def test_a_failed_turn_is_a_crash_checkpoint() -> None:
    def fails(context: Any) -> Any:
        raise ValueError("no")

    shop = Workshop(doing(fails))
    with pytest.raises(Exception, match="failed"):
        shop.take("one")
    data = conversation_of(export_conversation(shop.deps(), KEY))
    assert data["history"] == [user("one")]
    assert data["failurePoint"]["phase"] == "unknown"


def test_an_open_pause_is_no_conversation_to_go_on_from() -> None:
    with pytest.raises(WrongEnvelopeReaderError):
        conversation_of(export_conversation(desk().deps(), KEY))


# --- an import that dies, or meets somebody -----------------------------------------------------------------


@dataclass
class Watched(Gate):
    stopped: list[int] = field(default_factory=list)

    def stop(self, record: TurnRecord, cause: str) -> None:
        self.stopped.append(record.turn)


VALUES = {
    "a conversation": envelope(user("a"), said("A"), user("b"), said("B" * 9_000)),
    "a pause": paused_envelope(user("a"), said("A"), user("b")),
}


def _calls(value: dict[str, Any]) -> int:
    shop = Workshop()
    import_conversation(shop.deps(), value)
    return shop.memory.round_trips


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("landed", [False, True], ids=["before it", "behind it"])
def test_an_import_that_dies_at_any_call_leaves_all_of_it_or_nothing_in_the_end(name: str, landed: bool) -> None:
    value = VALUES[name]
    for nth in range(1, _calls(value) + 1):
        shop = Workshop(gate=Watched())
        store = Dying(shop.memory, nth, landed=landed)
        with pytest.raises(Died):
            import_conversation(shop.deps(store=store), value)
        found = shop.deps().ledger.hydrate(KEY)
        if found.exists:
            assert same_json(export_conversation(shop.deps(), KEY), value)
            continue
        with pytest.raises(SessionNotFoundError):
            export_conversation(shop.deps(), KEY)
        for _ in range(3):
            shop.pass_ms(16 * 60_000)
            reconcile(shop.deps(), deadline=FixedDeadline.after(shop.clock, 60_000))
        assert shop.items() == []
        import_conversation(shop.deps(), value)
        assert same_json(export_conversation(shop.deps(), KEY), value)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("landed", [False, True], ids=["nothing landed", "it landed"])
def test_an_import_that_loses_the_store_at_any_call_may_be_tried_again_at_once(name: str, landed: bool) -> None:
    value = VALUES[name]
    for nth in range(1, _calls(value) + 1):
        shop = Workshop()
        with pytest.raises(StoreUnavailableError):
            import_conversation(shop.deps(store=Losing(shop.memory, nth, landed=landed)), value)
        import_conversation(shop.deps(), value)
        assert same_json(export_conversation(shop.deps(), KEY), value), f"call {nth}"


def test_nobody_sees_or_claims_a_conversation_that_is_being_imported() -> None:
    shop = Workshop()
    seen: list[str] = []

    def look(point: str) -> None:
        if point in ("import marked", "imported some"):
            before, shop.probe = shop.probe, None
            for refused in (
                lambda: export_conversation(shop.deps(), KEY),
                lambda: shop.take("mine", caller=Caller("bob")),
                lambda: shop.take("mine", caller=ALICE),
            ):
                with pytest.raises(SessionNotFoundError):
                    refused()
            with pytest.raises(ConversationExistsError) as exists:
                import_conversation(shop.deps(), VALUES["a conversation"])
            assert exists.value.is_going
            shop.probe = before
            seen.append(point)

    shop.probe = look
    import_conversation(shop.deps(), VALUES["a pause"])
    assert seen == ["import marked", "imported some"]
    assert same_json(export_conversation(shop.deps(), KEY), VALUES["a pause"])


def test_a_claim_that_was_first_keeps_its_conversation() -> None:
    shop = Workshop(saying("Hello."))

    def claim_first(point: str) -> None:
        if point == "import marked":
            shop.probe = None
            # A process that read before the mark, and claims behind it.
            early = Workshop(saying("Hello."), random_id=lambda size: "early")
            early.take("mine")
            for item in early.items("TURN#"):
                shop.memory.write([_put(item)])

    shop.probe = claim_first
    with pytest.raises(ConversationExistsError):
        import_conversation(shop.deps(), VALUES["a conversation"])
    assert [item["sk"] for item in shop.items()] == [item["sk"] for item in shop.items("TURN#")]
    assert shop.turn(1).user == user("mine")


def test_an_erasure_of_what_is_being_imported_wins() -> None:
    from turnkeep.usecases.erase import erase_as_operator

    shop = Workshop()

    def erase(point: str) -> None:
        if point == "imported some":
            shop.probe = None
            erase_as_operator(shop.deps(), KEY, deadline=FixedDeadline.after(shop.clock, 60_000))

    shop.probe = erase
    with pytest.raises(ConversationExistsError):
        import_conversation(shop.deps(), VALUES["a conversation"])
    with pytest.raises(SessionNotFoundError):
        export_conversation(shop.deps(), KEY)


def test_an_import_longer_than_a_lease_keeps_its_mark_fresh() -> None:
    shop = Workshop()
    value = envelope(*[one for number in range(120) for one in (user(f"q{number}"), said(f"a{number}"))])

    def slow(point: str) -> None:
        if point == "imported some":
            shop.pass_ms(10 * 60_000)
            reconcile(shop.deps(), deadline=FixedDeadline.after(shop.clock, 60_000))

    shop.probe = slow
    import_conversation(shop.deps(), value)
    assert same_json(export_conversation(shop.deps(), KEY), value)


def test_a_golden_pause_survives_a_second_move() -> None:
    value = fixture("d-paused-checkin.json")
    first, second = Workshop(), Workshop()
    import_conversation(first.deps(), value, conversation_id="c-1")
    moved = export_conversation(first.deps(), KEY)
    import_conversation(second.deps(), moved, conversation_id="c-1")
    assert same_json(export_conversation(second.deps(), KEY), value)


def _put(item: Any) -> Any:
    from turnkeep.ledger.store import Put

    return Put(item)
