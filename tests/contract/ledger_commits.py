"""Commits, takeovers, closings: one winner, a fence in front of every zombie, and what CONVERSATION shows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.contract.item_store_contract import at_once
from tests.contract.ledger_bench import LEASE_MS, Bench, LedgerBench, Twice, Unheard
from turnkeep.errors import (
    LostClaimError,
    SessionNotFoundError,
    SessionOwnershipConflictError,
    StoreUnavailableError,
    UnstorableValueError,
)
from turnkeep.ledger.keys import turn_sk
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.usecases.closing import closed


class LedgerCommits(LedgerBench):
    # --- commits ------------------------------------------------------------------------------------------------

    def test_a_commit_is_what_a_reader_sees_and_a_listing_shows(self, bench: Bench) -> None:
        record = bench.claim(text="hello")
        bench.clock.advance_ms(1_500)
        after = bench.commit(record)
        assert bench.turn(1) == after
        shown = bench.shown()
        assert shown == ConversationRecord(
            key=bench.key,
            epoch=record.epoch,
            owner="ann",
            created_at_ms=record.started_at_ms,
            saved_at_ms=after.saved_at_ms,
            turn=1,
            attempt=1,
            status="complete",
            message_count=2,
            agent_id="desk",
        )

    def test_every_turn_moves_what_is_shown_and_keeps_owner_and_creation(self, bench: Bench) -> None:
        first = bench.take("one")
        bench.clock.advance_ms(5_000)
        second = bench.take("two", principal=None)
        shown = bench.shown()
        assert shown is not None
        assert (shown.turn, shown.message_count, shown.saved_at_ms) == (2, 4, second.saved_at_ms)
        assert (shown.owner, shown.created_at_ms) == ("ann", first.started_at_ms)

    def test_an_unowned_conversation_is_owned_by_its_first_signer(self, bench: Bench) -> None:
        bench.take("one", principal=None)
        assert (bench.shown() or ConversationRecord(bench.key, "")).owner is None
        bench.take("two", principal="bo")
        assert (bench.shown() or ConversationRecord(bench.key, "")).owner == "bo"

    def test_what_is_no_longer_so_is_no_longer_shown(self, bench: Bench) -> None:
        record = bench.claim(delete_after_s=bench.clock.wall_ms // 1000 + 500)
        bench.commit(record, bench.complete(record, agent_version="1"))
        assert bench.item("CONVERSATION")["deleteAfter_s"] == record.delete_after_s
        second = bench.claim(delete_after_s=None)
        bench.commit(second, bench.complete(second, agent_id=None))
        left = bench.item("CONVERSATION")
        assert {"deleteAfter_s", "agentId", "agentVersion"} & set(left) == set()

    def test_a_commit_that_was_sent_twice_is_one_commit(self, bench: Bench) -> None:
        for at in range(3):
            record = bench.claim()
            twice = bench.seen_by(Twice(bench.store))
            after = twice.commit(record, bench.complete(record), bench.shown())
            assert bench.turn(at + 1) == after
            assert (bench.shown() or ConversationRecord(bench.key, "")).turn == at + 1

    def test_a_commit_whose_conversation_did_not_answer_has_landed_and_is_healed(self, bench: Bench) -> None:
        bench.take("one")
        record = bench.claim(text="two")
        deaf = bench.seen_by(Unheard(bench.store, lambda sk: sk == "CONVERSATION", lands=False))
        after = deaf.commit(record, bench.complete(record), bench.shown())
        assert bench.turn(2) == after
        stale = bench.shown()
        assert stale is not None
        assert stale.turn == 1
        healed = bench.ledger.heal(after, stale)
        assert bench.shown() == healed
        assert (healed.turn, healed.message_count, healed.owner) == (2, 4, "ann")

    def test_a_commit_that_lands_unheard_is_its_own_when_it_is_sent_again(self, bench: Bench) -> None:
        record = bench.claim()
        deaf = bench.seen_by(Unheard(bench.store, lambda sk: sk.startswith("TURN#")))
        after = bench.complete(record)
        with pytest.raises(StoreUnavailableError):
            deaf.commit(record, after, None)
        assert bench.turn(1) == after
        assert bench.ledger.commit(record, after, None) == after

    def test_what_json_cannot_keep_is_refused_before_anything_is_written(self, bench: Bench) -> None:
        record = bench.claim()
        before = bench.everything()
        for bad in (float("nan"), {1: 2}, b"bytes", "\ud800"):
            with pytest.raises(UnstorableValueError):
                bench.ledger.commit(record, bench.complete(record, evidence={"x": bad}), None)
        assert bench.everything() == before

    def test_no_move_happens_that_the_table_does_not_know(self, bench: Bench) -> None:
        record = bench.claim()
        with pytest.raises(ValueError, match="does not move"):
            bench.ledger.commit(record, replace(record, status=Status.CANCELLED), None)
        done = bench.commit(record)
        with pytest.raises(ValueError, match="does not move"):
            bench.ledger.close(done, replace(done, status=Status.FAILED), None)
        assert bench.turn(1) == done

    def test_a_commit_does_not_bring_an_erased_turn_back(self, bench: Bench) -> None:
        bench.take("one")
        record = bench.claim(text="two")
        shown = bench.shown()
        for sk in bench.everything():
            bench.remove(sk)
        with pytest.raises(LostClaimError):
            bench.ledger.commit(record, bench.complete(record), shown)
        assert bench.everything() == {}

    def test_a_commit_into_an_erasure_is_told_that_there_is_nothing(self, bench: Bench) -> None:
        bench.take("one")
        record = bench.claim(text="two")
        shown = bench.shown()
        bench.change("CONVERSATION", erasing=1)
        with pytest.raises(SessionNotFoundError):
            bench.ledger.commit(record, bench.complete(record), shown)
        assert bench.item("CONVERSATION")["turn"] == 1
        assert (bench.look().exists, bench.look().erasing) == (False, True)

    def test_an_erasure_holds_beyond_its_own_expiry(self, bench: Bench) -> None:
        bench.take("one")
        bench.change("CONVERSATION", erasing=1)
        bench.expire("CONVERSATION")
        assert bench.look().erasing

    @pytest.mark.parametrize("known", [True, False])
    def test_no_later_write_moves_an_owner(self, bench: Bench, known: bool) -> None:
        record = bench.claim(principal="bo")
        seen = ConversationRecord(bench.key, record.epoch) if known else None
        bench.put({"pk": bench.key.pk, "sk": "CONVERSATION", "format": "conversation-v1", "epoch": record.epoch,
                   "owner": "ann", "ownerKey": "k", "savedAt": 1, "turn": 0, "attempt": 0})  # fmt: skip
        with pytest.raises(SessionOwnershipConflictError) as refused:
            bench.ledger.commit(record, bench.complete(record), seen)
        assert {"ann", "bo"} & set(re.findall(r"\w+", str(refused.value))) == set()
        assert bench.item("CONVERSATION")["owner"] == "ann"

    def test_a_conversation_of_another_life_is_not_touched(self, bench: Bench) -> None:
        record = bench.claim()
        bench.put({"pk": bench.key.pk, "sk": "CONVERSATION", "format": "conversation-v1", "epoch": "other",
                   "savedAt": 1, "turn": 0, "attempt": 0})  # fmt: skip
        before = bench.item("CONVERSATION")
        with pytest.raises(SessionNotFoundError):
            bench.ledger.commit(record, bench.complete(record), None)
        assert bench.item("CONVERSATION") == before

    def test_a_life_that_has_expired_leaves_nothing_to_the_next_one(self, bench: Bench) -> None:
        bench.take("one")
        bench.change("CONVERSATION", agentVersion="9", erasingNot=1)
        for sk in (turn_sk(1), "CONVERSATION"):
            bench.expire(sk)
        record = bench.claim(principal=None)
        bench.ledger.commit(record, bench.complete(record), None)
        left = bench.item("CONVERSATION")
        assert {"owner", "ownerKey", "agentVersion", "erasingNot", "deleteAfter_s"} & set(left) == set()
        assert (left["epoch"], left["turn"]) == (record.epoch, 1)

    # --- zombies ------------------------------------------------------------------------------------------------

    def test_a_lost_claim_changes_nothing(self, bench: Bench) -> None:
        bench.take("one")
        zombie, shown = bench.claim(text="two"), bench.shown()
        bench.ledger.write_segments(zombie, 1, "messages", 1, [{"role": "assistant", "content": "durable"}])
        bench.clock.advance_ms(LEASE_MS)
        assert bench.close_dead(bench.turn(2), segments=1) is not None
        before, history = bench.everything(), bench.history()
        assert history == ["one", "re: one", "two", "durable"]
        for status in (Status.COMPLETE, Status.FAILED, Status.REFUSED):
            for known in (shown, None):
                with pytest.raises(LostClaimError):
                    bench.ledger.commit(zombie, bench.complete(zombie, "late", status=status), known)
        bench.ledger.hand_back(zombie)
        assert bench.everything() == before
        bench.ledger.write_segments(zombie, 2, "messages", 2, [{"role": "assistant", "content": "late"}])
        assert bench.history() == history

    def test_a_zombie_is_fenced_off_what_its_successor_shows(self, bench: Bench) -> None:
        zombie, nothing_shown = bench.claim(text="one"), bench.shown()
        bench.clock.advance_ms(LEASE_MS)
        taken = bench.ledger.take_over(bench.turn(1), bench.next_attempt(zombie), None)
        assert taken is not None
        with pytest.raises(LostClaimError):
            bench.ledger.commit(zombie, bench.complete(zombie, "late"), nothing_shown)
        shown = bench.shown()
        assert shown is not None
        assert (shown.turn, shown.attempt, shown.status) == (1, 2, "running")
        done = bench.commit(taken, bench.complete(taken, "whole"))
        with pytest.raises(LostClaimError):
            bench.ledger.commit(zombie, bench.complete(zombie, "later"), nothing_shown)
        assert bench.turn(1) == done
        assert (bench.shown() or shown).attempt == 2

    def test_a_zombie_of_an_earlier_turn_is_fenced_off_a_later_one(self, bench: Bench) -> None:
        zombie, seen = bench.claim(text="one"), bench.shown()
        bench.clock.advance_ms(LEASE_MS)
        assert bench.close_dead(bench.turn(1)) is not None
        bench.take("two")
        before = bench.everything()
        with pytest.raises(LostClaimError):
            bench.ledger.commit(zombie, bench.complete(zombie, "late"), seen)
        assert bench.everything() == before

    def test_a_zombie_of_an_earlier_life_is_fenced_off_the_next_one(self, bench: Bench) -> None:
        zombie, seen = bench.claim(text="one", delete_after_s=bench.clock.wall_ms // 1000 + 10), bench.shown()
        bench.clock.advance_ms(LEASE_MS)
        bench.take("another life", principal="bo")
        before = bench.everything()
        with pytest.raises(LostClaimError):
            bench.ledger.commit(zombie, bench.complete(zombie, "late"), seen)
        assert bench.everything() == before

    def test_a_close_that_came_first_does_not_pass_for_the_runs_own_failure(self, bench: Bench) -> None:
        zombie = bench.claim()
        bench.clock.advance_ms(LEASE_MS)
        bench.close_dead(bench.turn(1))
        own = closed(zombie, Status.FAILED, now_ms=bench.clock.wall_ms, durable=[], error={"code": "MINE"})
        own = replace(own, attempt=zombie.attempt, adopted=zombie.adopted)
        with pytest.raises(LostClaimError):
            bench.ledger.commit(zombie, own, None)
        assert bench.turn(1).error == {"code": "E"}

    # --- takeovers and closings ---------------------------------------------------------------------------------

    def test_of_many_who_take_a_dead_turn_over_or_close_it_one_does(self, bench: Bench) -> None:
        bench.take("one")
        bench.claim(text="two")
        bench.clock.advance_ms(LEASE_MS)
        dead, shown = bench.turn(2), bench.shown()

        def attempt(at: int) -> TurnRecord | None:
            if at % 2:
                return bench.ledger.take_over(dead, bench.next_attempt(dead), shown)
            return bench.close_dead(dead)

        done = [one for one in at_once(6, attempt) if one is not None]
        assert len(done) == 1
        assert bench.turn(2) == done[0]

    def test_a_takeover_or_close_that_was_sent_twice_is_one(self, bench: Bench) -> None:
        twice = bench.seen_by(Twice(bench.store))
        dead = bench.claim(text="one")
        bench.clock.advance_ms(LEASE_MS)
        taken = twice.take_over(dead, bench.next_attempt(dead), None)
        assert taken is not None
        bench.clock.advance_ms(LEASE_MS)
        done = bench.close_dead(taken, twice)
        assert done is not None
        assert bench.turn(1) == done
        queued = bench.claim(status=Status.QUEUED)
        gone = twice.close(queued, closed(queued, Status.CANCELLED, now_ms=bench.clock.wall_ms), bench.shown())
        assert gone is not None

    def test_a_turn_that_moved_since_it_was_read_is_not_taken(self, bench: Bench) -> None:
        seen = bench.claim()
        done = bench.commit(seen)
        assert bench.ledger.take_over(seen, bench.next_attempt(seen), bench.shown()) is None
        assert bench.close_dead(seen) is None
        assert bench.turn(1) == done

    def test_a_close_goes_through_whatever_conversation_shows(self, bench: Bench) -> None:
        bench.take("one")
        record, shown = bench.claim(text="two"), bench.shown()
        bench.change("CONVERSATION", turn=9)
        assert shown is not None
        assert (
            bench.ledger.close(record, closed(record, Status.FAILED, now_ms=1, error={"code": "E"}), shown) is not None
        )
        assert bench.turn(2).status is Status.FAILED
        assert bench.item("CONVERSATION")["turn"] == 9

    def test_a_close_heals_a_conversation_that_its_ttl_took(self, bench: Bench) -> None:
        bench.take("one")
        record, shown = bench.claim(text="two"), bench.shown()
        bench.expire("CONVERSATION")
        after = closed(record, Status.FAILED, now_ms=bench.clock.wall_ms, durable=[], error={"code": "E"})
        assert bench.ledger.close(record, after, shown) is not None
        assert bench.item("CONVERSATION")["turn"] in (1, 2)
        bench.remove("CONVERSATION")
        healed = bench.ledger.heal(bench.turn(2), None)
        assert bench.shown() == healed
        assert (healed.turn, healed.owner) == (2, "ann")

    def test_a_queued_turn_that_never_ran_shows_nothing(self, bench: Bench) -> None:
        bench.take("one")
        queued, shown = bench.claim(status=Status.QUEUED), bench.shown()
        assert bench.ledger.close(queued, closed(queued, Status.CANCELLED, now_ms=9), shown) is not None
        assert bench.shown() == shown

    def test_a_lease_that_was_handed_back_may_be_taken_at_once(self, bench: Bench) -> None:
        record = bench.claim()
        assert not bench.turn(1).is_dead(bench.clock.wall_ms)
        bench.ledger.hand_back(record)
        assert bench.turn(1).is_dead(bench.clock.wall_ms)
        assert bench.ledger.take_over(bench.turn(1), bench.next_attempt(record), None) is not None
        bench.ledger.hand_back(record)
        assert not bench.turn(1).is_dead(bench.clock.wall_ms), "it is somebody else's by now"

    # --- creating -----------------------------------------------------------------------------------------------

    def test_an_empty_conversation_is_created_once(self, bench: Bench) -> None:
        record = ConversationRecord(bench.key, "e1", owner="ann", created_at_ms=5, saved_at_ms=5)
        twice = bench.seen_by(Twice(bench.store))
        assert twice.create(record) == record
        assert bench.shown() == record
        assert bench.ledger.create(replace(record, epoch="e2")) is None
        assert (bench.look().exists, bench.look().owner, bench.look().epoch) == (True, "ann", "e1")
        assert bench.take("one", epoch="e1").turn == 1
        assert (bench.shown() or record).created_at_ms == 5

    def test_of_many_who_create_one_does(self, bench: Bench) -> None:
        records = [ConversationRecord(bench.key, f"e{at}", owner=f"p{at}") for at in range(5)]
        done = at_once(5, lambda at: bench.ledger.create(records[at]))
        assert [bench.shown()] == [one for one in done if one is not None]

    def test_an_empty_conversation_takes_the_place_of_an_expired_one_but_not_of_an_erasure(self, bench: Bench) -> None:
        bench.take("one")
        bench.expire("CONVERSATION")
        record = ConversationRecord(bench.key, "e2", saved_at_ms=5)
        bench.change("CONVERSATION", erasing=1)
        assert bench.ledger.create(record) is None
        bench.remove("CONVERSATION", "erasing")
        assert bench.ledger.create(record) == record
        assert bench.shown() == record
