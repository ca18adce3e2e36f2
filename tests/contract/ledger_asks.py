"""Asks on the ledger: a decision is used once and only for its ask; due times and start numbers move once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.item_store_contract import at_once
from tests.contract.ledger_bench import LEASE_MS, Bench, LedgerBench, Twice, Unheard
from turnkeep.errors import StoreUnavailableError, UnstorableValueError
from turnkeep.ledger.keys import turn_sk
from turnkeep.ledger.records import Ask, Decision, Status, TurnRecord
from turnkeep.ledger.store import IndexQuery
from turnkeep.usecases.closing import closed


def decision(ask_id: str = "ask-1-x", value: object = True, mark: str = "m1") -> Decision:
    return Decision(ask_id, value, "bo", 5, mark)


class LedgerAsks(LedgerBench):
    def test_a_pausing_turn_is_awaiting_with_its_checkpoint(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim(text="pay"))
        assert bench.turn(1) == awaiting
        messages, checkpoint = bench.ledger.checkpoint_of(bench.turn(1))
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert checkpoint == {"pauseData": {"question": "Pay?"}}
        shown = bench.shown()
        assert shown is not None
        assert (shown.status, shown.format, shown.message_count) == ("awaiting", "flowchart-v1", 1)

    def test_a_decision_is_recorded_with_who_when_and_the_token(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        bench.change(turn_sk(1), taskToken="token")  # AwaitAnswer stores it after the record was read
        decided = bench.ledger.decide(awaiting, decision(value={"approved": True, "by": "x"}), due_at_ms=77)
        assert decided is not None
        assert (decided.status, decided.task_token, decided.due_at_ms) == (Status.ANSWERED, "token", 77)
        assert decided.decision == decision(value={"approved": True, "by": "x"})
        assert bench.turn(1) == decided

    @pytest.mark.parametrize("value", [None, False, 0, "", [], {}, "no", 10**30, -0.0, {"a": [None, "\u0000"]}])
    def test_every_json_value_is_a_decision(self, bench: Bench, value: object) -> None:
        decided = bench.ledger.decide(bench.ask(bench.claim()), decision(value=value), due_at_ms=1)
        assert decided is not None
        assert decided.decision is not None
        assert repr(decided.decision.value) == repr(value)
        assert repr((bench.turn(1).decision or decision()).value) == repr(value)

    def test_of_many_decisions_one_is_recorded(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        answers = at_once(6, lambda at: bench.ledger.decide(awaiting, decision(value=at, mark=f"m{at}"), due_at_ms=1))
        taken = [answer for answer in answers if answer is not None]
        assert len(taken) == 1
        assert bench.turn(1) == taken[0]

    def test_an_own_decision_that_was_sent_twice_is_taken(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        decided = bench.seen_by(Twice(bench.store)).decide(awaiting, decision(), due_at_ms=1)
        assert decided is not None
        assert decided.decision == decision()
        assert bench.ledger.decide(awaiting, decision(mark="another"), due_at_ms=1) is None

    def test_a_decision_is_for_exactly_the_ask_that_it_names(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim(), "ask-1-new")
        old = replace(awaiting, ask=replace(awaiting.ask or _no_ask(), ask_id="ask-1-old"))
        assert bench.ledger.decide(old, decision("ask-1-old"), due_at_ms=1) is None
        assert bench.turn(1) == awaiting

    def test_an_ask_that_was_closed_takes_no_decision(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        after = closed(awaiting, Status.EXPIRED, now_ms=9, durable=bench.ledger.messages_of([awaiting])[1])
        assert bench.ledger.close(awaiting, after, bench.shown()) is not None
        assert bench.ledger.decide(awaiting, decision(), due_at_ms=1) is None
        assert bench.turn(1).status is Status.EXPIRED

    def test_a_decision_and_an_expiry_at_once_leave_one_of_them(self, bench: Bench) -> None:
        awaiting, shown = bench.ask(bench.claim()), bench.shown()

        def attempt(at: int) -> TurnRecord | None:
            if at:
                return bench.ledger.decide(awaiting, decision(), due_at_ms=1)
            return bench.ledger.close(awaiting, closed(awaiting, Status.EXPIRED, now_ms=9), shown)

        done = [one for one in at_once(2, attempt) if one is not None]
        assert len(done) == 1
        assert bench.turn(1).status is done[0].status

    def test_what_json_cannot_keep_is_refused_before_anything_is_written(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        with pytest.raises(UnstorableValueError):
            bench.ledger.decide(awaiting, decision(value=float("inf")), due_at_ms=1)
        assert bench.turn(1) == awaiting

    # --- resuming -----------------------------------------------------------------------------------------------

    def test_an_answered_turn_is_resumed_by_one(self, bench: Bench) -> None:
        decided = bench.ledger.decide(bench.ask(bench.claim()), decision(), due_at_ms=1)
        assert decided is not None
        runs = [bench.next_attempt(decided, decided.segments) for _ in range(4)]
        begun = [one for one in at_once(4, lambda at: bench.ledger.begin_queued(decided, runs[at])) if one]
        assert len(begun) == 1
        assert bench.turn(1) == begun[0]
        messages, checkpoint = bench.ledger.checkpoint_of(bench.turn(1))
        assert (len(messages), checkpoint) == (2, {"pauseData": {"question": "Pay?"}})

    def test_a_resume_that_was_sent_twice_begins_once(self, bench: Bench) -> None:
        decided = bench.ledger.decide(bench.ask(bench.claim()), decision(), due_at_ms=1)
        assert decided is not None
        begun = bench.seen_by(Twice(bench.store)).begin_queued(decided, bench.next_attempt(decided, decided.segments))
        assert begun is not None
        assert bench.turn(1) == begun

    def test_a_pause_that_landed_unheard_is_its_own_whatever_came_of_it(self, bench: Bench) -> None:
        record, shown = bench.claim(), bench.shown()
        awaiting = bench.ask(record)
        assert bench.ledger.commit(record, awaiting, shown) == awaiting, "nobody answered yet"
        decided = bench.ledger.decide(awaiting, decision(), due_at_ms=1)
        assert bench.ledger.commit(record, awaiting, shown) == awaiting, "it was answered meanwhile"
        assert decided is not None
        begun = bench.ledger.begin_queued(decided, bench.next_attempt(decided, decided.segments))
        assert begun is not None
        assert bench.ledger.commit(record, awaiting, shown) == awaiting, "it is resumed by now"
        done = bench.commit(begun)
        assert bench.turn(1) == done, "and none of this has moved it"

    def test_a_checkpoint_that_never_became_agreed_is_nobodys(self, bench: Bench) -> None:
        decided = bench.ledger.decide(bench.ask(bench.claim()), decision(), due_at_ms=1)
        assert decided is not None
        begun = bench.ledger.begin_queued(decided, bench.next_attempt(decided, decided.segments))
        assert begun is not None
        bench.ledger.write_segments(begun, 1, "checkpoint", 0, {"pauseData": {"question": "Another?"}})
        _, checkpoint = bench.ledger.checkpoint_of(bench.turn(1))
        assert checkpoint == {"pauseData": {"question": "Pay?"}}, "the resume died before it asked"

    # --- attention ----------------------------------------------------------------------------------------------

    def test_an_open_ask_is_in_the_index_of_its_audience_until_it_is_answered(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        key = str(bench.item(turn_sk(1))["audienceKey"])
        query = IndexQuery("byAudience", key, limit=5)
        pks = [item["pk"] for item in bench.store.read([query])[0].items]
        assert pks.count(bench.key.pk) == 1
        bench.ledger.decide(awaiting, decision(), due_at_ms=1)
        assert bench.key.pk not in [item["pk"] for item in bench.store.read([query])[0].items]

    def test_of_many_who_postpone_one_does_what_was_due(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        moved = [one for one in at_once(5, lambda at: bench.ledger.postpone(awaiting, 90_000 + at)) if one]
        assert len(moved) == 1
        assert bench.turn(1).due_at_ms == moved[0].due_at_ms
        assert bench.ledger.postpone(awaiting, 99_000) is None

    def test_a_start_number_moves_once(self, bench: Bench) -> None:
        awaiting = replace(bench.ask(bench.claim()), task_token="used")
        bench.change(turn_sk(1), taskToken="used")
        moved = [one for one in at_once(5, lambda at: bench.ledger.set_start(awaiting, 2, 50)) if one]
        assert len(moved) == 1
        assert (bench.turn(1).start_number, bench.turn(1).task_token, bench.turn(1).due_at_ms) == (2, None, 50)
        again = bench.seen_by(Twice(bench.store)).set_start(moved[0], 3, 60)
        assert again is not None
        assert bench.turn(1).start_number == 3

    def test_a_decision_that_landed_unheard_is_found_by_its_mark(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        with pytest.raises(StoreUnavailableError):
            bench.seen_by(Unheard(bench.store, lambda sk: True)).decide(awaiting, decision(), due_at_ms=1)
        assert bench.ledger.decide(awaiting, decision(mark="m1"), due_at_ms=1) is not None
        assert bench.ledger.decide(awaiting, decision(mark="m2"), due_at_ms=1) is None

    def test_an_awaiting_turn_is_not_dead_and_a_resumed_one_may_die(self, bench: Bench) -> None:
        awaiting = bench.ask(bench.claim())
        bench.clock.advance_ms(10 * LEASE_MS)
        assert not bench.turn(1).is_dead(bench.clock.wall_ms)
        decided = bench.ledger.decide(awaiting, decision(), due_at_ms=1)
        assert decided is not None
        begun = bench.ledger.begin_queued(decided, bench.next_attempt(decided, decided.segments))
        assert begun is not None
        bench.clock.advance_ms(LEASE_MS)
        assert bench.turn(1).is_dead(bench.clock.wall_ms)


def _no_ask() -> Ask:
    raise AssertionError("the turn asks")
