"""Claims: one winner, whatever counters they bring; gaps; requests; what a loser learns; expired numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.contract.item_store_contract import at_once
from tests.contract.ledger_bench import DAY_S, LEASE_MS, Bench, LedgerBench, Twice, Unheard, answered, lost, noise, said
from turnkeep.errors import StoreUnavailableError, UnstorableValueError
from turnkeep.ledger.keys import request_sk, turn_sk
from turnkeep.ledger.ledger import Contended
from turnkeep.ledger.records import Status, TurnRecord

if TYPE_CHECKING:
    from turnkeep.ledger.ledger import Ledger


class LedgerClaims(LedgerBench):
    # --- one winner ---------------------------------------------------------------------------------------------

    def test_a_claim_is_durable_with_the_message_and_its_principal(self, bench: Bench) -> None:
        record = bench.claim(text="what I said")
        stored = bench.turn(1)
        assert stored == record
        assert (stored.user, stored.principal, stored.status) == (said("what I said"), "ann", Status.RUNNING)
        assert bench.shown() is None, "nothing is shown before a commit"

    def test_the_second_claim_of_a_number_loses_and_sees_who_won(self, bench: Bench) -> None:
        first, second = bench.running(text="first"), bench.running(text="second", principal="bo")
        won = bench.ledger.claim(first, stored=0)
        assert won == first
        assert lost(bench.ledger.claim(second, stored=0)) == first
        assert bench.turn(1) == first

    def test_an_own_claim_that_was_sent_twice_is_a_win(self, bench: Bench) -> None:
        ledger = bench.seen_by(Twice(bench.store))
        near, far = bench.running(), bench.running(9)
        assert ledger.claim(near, stored=0) == near
        assert ledger.claim(replace(far, turn=9, previous=1), stored=1) == replace(far, previous=2)
        assert bench.turn(9).run_id == far.run_id
        assert bench.turn(2).status is Status.SKIPPED

    def test_a_queued_claim_that_the_worker_began_meanwhile_is_still_its_claimers(self, bench: Bench) -> None:
        queued = bench.claim(status=Status.QUEUED, lease_until_ms=0)
        begun = bench.ledger.begin_queued(queued, replace(bench.next_attempt(queued), attempt=1, adopted=()))
        assert begun is not None
        assert bench.ledger.claim(queued, stored=0) == queued, "its first try landed and was begun"
        assert bench.turn(1).run_id == begun.run_id
        assert isinstance(bench.ledger.claim(bench.running(1), stored=0), Contended)

    @pytest.mark.parametrize("floors", [(1, 7), (7, 1), (7, 7), (7, 9)])
    def test_two_callers_with_other_floors_contend_for_one_number(self, bench: Bench, floors: tuple[int, int]) -> None:
        one, other = (bench.running(floor, f"floor {floor}") for floor in floors)
        won = bench.ledger.claim(one, stored=0)
        assert isinstance(won, TurnRecord)
        winner = lost(bench.ledger.claim(other, stored=0))
        assert winner is not None
        assert winner.run_id == one.run_id
        running = [turn for turn in bench.look().turns() if turn.status is Status.RUNNING]
        assert [turn.run_id for turn in running] == [one.run_id]

    def test_of_many_at_once_with_all_kinds_of_floors_one_runs(self, bench: Bench) -> None:
        records = [bench.running(floor) for floor in (1, 7, 1, 3, 7, 2, 1, 4)]
        answers = at_once(len(records), lambda at: bench.ledger.claim(records[at], stored=0))
        winners = [answer for answer in answers if isinstance(answer, TurnRecord)]
        assert len(winners) == 1
        told = {answer.winner.run_id for answer in answers if isinstance(answer, Contended) and answer.winner}
        assert told <= {winners[0].run_id}
        assert [turn.run_id for turn in bench.look().turns() if turn.is_open] == [winners[0].run_id]

    def test_a_gap_leaves_a_skipped_record_that_the_chain_goes_through(self, bench: Bench) -> None:
        bench.take("one")
        far = bench.claim(bench.running(7, "seven"))
        bench.commit(far, bench.complete(far, "re: seven"))
        turns = bench.look().turns()
        assert [(turn.turn, turn.status.value, turn.previous) for turn in turns] == [
            (1, "complete", 0),
            (2, "skipped", 1),
            (7, "complete", 2),
        ]
        assert bench.look().highest == 7
        assert bench.history() == ["one", "re: one", "seven", "re: seven"]
        assert bench.take("eight").turn == 8

    def test_a_claim_of_a_live_number_is_refused_whatever_its_status(self, bench: Bench) -> None:
        record = bench.claim()
        for status in Status:
            if status is not Status.SKIPPED:
                bench.put_turn(replace(record, status=status))
                assert lost(bench.ledger.claim(bench.running(1), stored=0)) == replace(record, status=status)

    def test_a_winner_that_cannot_be_read_is_a_winner_all_the_same(self, bench: Bench) -> None:
        rival = bench.running(1)
        bench.claim()
        bench.change(turn_sk(1), format="conversation-v9")
        assert lost(bench.ledger.claim(rival, stored=0)) is None

    def test_what_json_cannot_keep_is_refused_before_anything_is_written(self, bench: Bench) -> None:
        for bad in ("\ud800", "a\udfff"):
            with pytest.raises(UnstorableValueError):
                bench.ledger.claim(bench.running(1, bad), stored=0)
        assert bench.everything() == {}

    def test_a_claim_that_lands_unheard_is_found_by_the_same_record(self, bench: Bench) -> None:
        record = bench.running()
        deaf = bench.seen_by(Unheard(bench.store, lambda sk: sk.startswith("TURN#")))
        with pytest.raises(StoreUnavailableError):
            deaf.claim(record, stored=0)
        assert bench.turn(1) == record
        assert bench.ledger.claim(record, stored=0) == record

    # --- expired numbers ----------------------------------------------------------------------------------------

    def test_an_expired_turn_neither_holds_the_numbering_open_nor_blocks_its_number(self, bench: Bench) -> None:
        old = bench.take("old")
        bench.expire(turn_sk(1))
        bench.expire("CONVERSATION")
        assert (bench.look().exists, bench.look().highest, bench.look().owner) == (False, 0, None)
        new = bench.take("new", principal="bo")
        assert (new.turn, new.epoch != old.epoch) == (1, True)
        assert bench.history() == ["new", "re: new"]
        shown = bench.shown()
        assert shown is not None
        assert (shown.owner, shown.epoch, shown.turn, shown.message_count) == ("bo", new.epoch, 1, 2)

    def test_a_number_is_taken_from_an_expired_turn_by_one_of_many(self, bench: Bench) -> None:
        bench.take("old")
        bench.expire(turn_sk(1))
        bench.expire("CONVERSATION")
        records = [bench.running(1, f"{at}") for at in range(4)]
        answers = at_once(4, lambda at: bench.ledger.claim(records[at], stored=0))
        assert sum(isinstance(answer, TurnRecord) for answer in answers) == 1

    def test_it_expires_to_the_second_by_the_clock_of_whoever_looks(self, bench: Bench) -> None:
        now_s = bench.clock.wall_ms // 1000
        bench.claim(delete_after_s=now_s + 60)
        rival = bench.running(1)
        assert isinstance(self.with_clock(bench, 59_999).claim(rival, stored=0), Contended)
        assert self.with_clock(bench, 60_000).claim(rival, stored=0) == rival

    @staticmethod
    def with_clock(bench: Bench, ahead_ms: int) -> Ledger:
        return bench.seen_by(bench.store, ahead_ms=ahead_ms)

    # --- requests -----------------------------------------------------------------------------------------------

    def test_a_request_is_recorded_beside_its_claim(self, bench: Bench) -> None:
        record = bench.running(request="a" * 64, digest="b" * 64)
        request = bench.request(record, "a" * 64, "b" * 64)
        assert bench.ledger.claim(record, stored=0, request=request) == record
        found = bench.look(request="a" * 64)
        assert found.request() == request
        assert found.turns()[0].request == "a" * 64
        assert found.turns()[0].digest == "b" * 64
        assert bench.look(request="c" * 64).request() is None

    def test_a_key_that_is_no_hash_is_kept_as_it_is(self, bench: Bench) -> None:
        record = bench.running(request="short", digest="ABC" * 30)
        bench.ledger.claim(record, stored=0, request=bench.request(record, "short", "ABC" * 30))
        assert bench.turn(1) == record
        assert bench.look(request="short").request() == bench.request(record, "short", "ABC" * 30)

    def test_a_request_behind_a_gap_is_recorded_too(self, bench: Bench) -> None:
        record = bench.running(5)
        assert isinstance(bench.ledger.claim(record, stored=0, request=bench.request(record)), TurnRecord)
        found = bench.look(request="k" * 64).request()
        assert found is not None
        assert found.turn == 5

    def test_an_expired_request_is_recorded_anew(self, bench: Bench) -> None:
        first = bench.running()
        bench.ledger.claim(first, stored=0, request=bench.request(first))
        bench.commit(first)
        bench.expire(request_sk("k" * 64))
        assert bench.look(request="k" * 64).request() is None
        second = bench.running()
        bench.ledger.claim(second, stored=1, request=bench.request(second))
        found = bench.look(request="k" * 64).request()
        assert found is not None
        assert found.turn == 2

    def test_a_request_record_that_a_lost_claim_left_is_pointed_at_the_won_turn(self, bench: Bench) -> None:
        bench.claim(text="of somebody else")
        lost_record = bench.running(1)
        bench.ledger.claim(lost_record, stored=0, request=bench.request(lost_record))
        left = bench.look(request="k" * 64).request()
        assert left is not None
        assert left.turn == 1, "the request's record landed, its claim did not"
        bench.commit(bench.turn(1))
        won = bench.running()
        bench.ledger.claim(won, stored=1, request=bench.request(won), stale_turn=None)
        found = bench.look(request="k" * 64).request()
        assert found is not None
        assert found.turn == 2

    def test_a_request_of_an_earlier_life_does_not_count(self, bench: Bench) -> None:
        first = bench.running()
        bench.ledger.claim(first, stored=0, request=bench.request(first))
        bench.commit(first)
        for sk in (turn_sk(1), "CONVERSATION"):
            bench.expire(sk)
        second = bench.running()
        assert second.epoch != first.epoch
        bench.ledger.claim(second, stored=0, request=bench.request(second))
        found = bench.look(request="k" * 64).request()
        assert found is not None
        assert found.epoch == second.epoch

    def test_a_turn_whose_request_was_not_recorded_is_told_as_unavailable_and_found_again(self, bench: Bench) -> None:
        record = bench.running(request="k" * 64)
        deaf = bench.seen_by(Unheard(bench.store, lambda sk: sk.startswith("REQUEST#"), lands=False))
        with pytest.raises(StoreUnavailableError):
            deaf.claim(record, stored=0, request=bench.request(record))
        assert bench.turn(1).request == "k" * 64
        assert bench.ledger.claim(record, stored=0, request=bench.request(record)) == record
        assert bench.look(request="k" * 64).request() is not None

    # --- large messages -----------------------------------------------------------------------------------------

    def test_a_message_that_no_item_holds_is_kept_whole(self, bench: Bench) -> None:
        text = noise(250_000)
        won = bench.claim(text=text)
        assert won.user is None
        assert bench.history() == [text], "durable from the claim on"
        bench.commit(won, bench.complete(won, "long"))
        assert bench.history() == [text, "long"]

    def test_a_large_message_of_a_loser_leaves_nothing_behind(self, bench: Bench) -> None:
        record = bench.running(text=noise(250_000), delete_after_s=bench.clock.wall_ms // 1000 + DAY_S)
        bench.claim(text="short")
        assert isinstance(bench.ledger.claim(record, stored=0), Contended)
        assert [sk for sk in bench.everything() if sk.startswith("SEG#")] == []

    def test_a_takeover_of_a_large_message_goes_on_with_it(self, bench: Bench) -> None:
        dead = bench.claim(text=noise(250_000))
        bench.clock.advance_ms(LEASE_MS)
        taken = bench.ledger.take_over(dead, bench.next_attempt(dead), None)
        assert taken is not None
        assert bench.ledger.messages_of([taken])[1] == [said(noise(250_000))]
        bench.commit(taken, replace(bench.complete(taken), messages=(answered("done"),)))
        assert bench.history() == [noise(250_000), "done"]
