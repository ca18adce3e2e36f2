"""Hydration: whole and never a guess, whatever lags, has expired, or is left over from another life."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.ledger_bench import DAY_S, Bench, Lagging, LedgerBench, Through, answered, said
from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError
from turnkeep.ledger.items import turn_item
from turnkeep.ledger.keys import TURN_LOW, turn_sk
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import Query
from turnkeep.usecases.closing import closed

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.ledger.store import Item

SAID, ANSWERED = "xyzzy-said", "xyzzy-answered"
WINDOWS = [None, 1, 2, 3, 5, 50]


class LedgerReading(LedgerBench):
    # --- nothing, one, many -------------------------------------------------------------------------------------

    def test_of_an_unwritten_conversation_nothing_is_there(self, bench: Bench) -> None:
        for facts in ({}, {"last_turns": 3}, {"history": False}, {"request": "k", "turn": 4}):
            found = bench.look(**facts)
            assert (found.exists, found.owner, found.epoch, found.highest) == (False, None, None, 0)
            assert (found.turns(), found.conversation(), found.request(), found.wanted()) == ([], None, None, None)
            assert found.whole

    def test_one_round_trip_reads_everything(self, bench: Bench) -> None:
        records = chain(bench, 12)
        store = Through(bench.store)
        found = bench.seen_by(store).hydrate(bench.key, request="k" * 64, turn=4)
        assert store.round_trips == 1
        assert found.turns() == records
        assert found.wanted() == records[3]
        assert (found.highest, found.whole, found.owner, found.epoch) == (12, True, "ann", records[0].epoch)

    @pytest.mark.parametrize("window", [1, 2, 5, 11, 12, 13])
    def test_a_window_reads_the_newest_turns_in_one_round_trip(self, bench: Bench, window: int) -> None:
        records = chain(bench, 12)
        store = Through(bench.store)
        found = bench.seen_by(store).hydrate(bench.key, last_turns=window)
        kept = max(window, 2)
        assert store.round_trips == 1
        assert found.turns() == records[-kept:]
        assert found.whole == (kept >= 12)
        assert found.highest == 12

    def test_the_older_turns_are_read_eventually_and_the_tail_strongly(self, bench: Bench) -> None:
        chain(bench, 12)
        store = Through(bench.store)
        bench.seen_by(store).hydrate(bench.key)
        queries = [read for read in store.reads if isinstance(read, Query)]
        assert [(query.consistent, query.limit) for query in queries] == [(True, 2), (False, None)]

    def test_every_open_turn_is_seen_however_small_the_window(self, bench: Bench) -> None:
        statuses = [Status.COMPLETE] * 3 + [Status.AWAITING]
        statuses += [Status.QUEUED, Status.CANCELLED, Status.REFUSED, Status.QUEUED] * 3
        chain(bench, len(statuses), *statuses)
        for facts in [*({"last_turns": window} for window in WINDOWS), {"history": False}]:
            found = bench.look(**facts)
            opened = [turn.turn for turn in found.turns() if turn.is_open]
            assert opened == [at + 1 for at, status in enumerate(statuses) if status in OPEN_HERE]

    @pytest.mark.parametrize("status", [Status.FAILED, Status.EXPIRED, Status.COMPLETE])
    def test_a_window_is_one_round_trip_however_all_its_turns_ended(self, bench: Bench, status: Status) -> None:
        chain(bench, 12, *[status] * 12)
        store = Through(bench.store)
        assert len(bench.seen_by(store).hydrate(bench.key, last_turns=3).turns()) == 3
        assert store.round_trips == 1

    def test_a_queued_turn_that_was_closed_says_nothing_of_those_before_it(self, bench: Bench) -> None:
        running = bench.claim(text="at work")
        for status in (Status.CANCELLED, Status.REFUSED, Status.FAILED, Status.CANCELLED):
            queued = bench.claim(status=Status.QUEUED, lease_until_ms=0)
            assert bench.ledger.close(queued, closed(queued, status, now_ms=1, error={"code": "E"}), None) is not None
        found = bench.look(last_turns=2)
        assert [turn.run_id for turn in found.turns() if turn.is_open] == [running.run_id]

    def test_the_highest_turn_costs_one_item_whatever_the_length(self, bench: Bench) -> None:
        chain(bench, 12)
        store = Through(bench.store)
        ledger = bench.seen_by(store)
        assert ledger.highest_turn(bench.key) == 12
        assert [(read.limit, read.consistent) for read in store.reads if isinstance(read, Query)] == [(1, True)]
        bench.expire(turn_sk(12))
        bench.expire(turn_sk(11))
        assert ledger.highest_turn(bench.key) == 10
        for at in range(10):
            bench.expire(turn_sk(at + 1))
        assert ledger.highest_turn(bench.key) == 0

    # --- replicas that lag --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("name", ["nothing", "old half", "holes", "only the newest", "one behind"])
    def test_a_replica_that_misses_items_is_found_out(self, bench: Bench, name: str) -> None:
        records = chain(bench, 9)
        replicas: dict[str, Callable[[list[Item]], list[Item]]] = {
            "nothing": lambda items: [],
            "old half": lambda items: [item for item in items if int(str(item["sk"])[5:]) < 5],
            "holes": lambda items: [item for item in items if int(str(item["sk"])[5:]) % 3],
            "only the newest": lambda items: items[:1],
            "one behind": lambda items: items[1:],
        }
        lagging = bench.seen_by(Lagging(bench.store, replicas[name]))
        for window in WINDOWS:
            kept = records if window is None else records[-max(window, 2) :]
            assert lagging.hydrate(bench.key, last_turns=window).turns() == kept, window

    def test_whatever_two_turns_a_replica_misses_all_are_there(self, bench: Bench) -> None:
        records = chain(bench, 6)
        gone: set[str] = set()
        lagging = bench.seen_by(Lagging(bench.store, lambda items: [one for one in items if one["sk"] not in gone]))
        for missing in combinations(range(1, 7), 2):
            gone.clear()
            gone.update(turn_sk(number) for number in missing)
            assert lagging.hydrate(bench.key).turns() == records, missing

    @pytest.mark.parametrize("status", [Status.RUNNING, Status.QUEUED, Status.AWAITING, Status.ANSWERED])
    def test_a_replica_that_shows_an_ended_turn_open_is_not_believed(self, bench: Bench, status: Status) -> None:
        records = chain(bench, 6)

        def before(items: list[Item]) -> list[Item]:
            return [{**item, "status": status.value} if item["sk"] in OLD else item for item in items]

        OLD = {turn_sk(2), turn_sk(5)}
        assert bench.seen_by(Lagging(bench.store, before)).hydrate(bench.key).turns() == records

    def test_a_replica_that_still_shows_an_expired_turn_of_a_number_in_use_is_not_believed(self, bench: Bench) -> None:
        records = chain(bench, 6)
        past_s = bench.clock.wall_ms // 1000 - 1

        def before(items: list[Item]) -> list[Item]:
            return [
                {**item, "deleteAfter_s": past_s, "epoch": "old"} if item["sk"] == turn_sk(3) else item
                for item in items
            ]

        assert bench.seen_by(Lagging(bench.store, before)).hydrate(bench.key).turns() == records

    def test_a_replica_that_still_shows_another_life_is_not_believed(self, bench: Bench) -> None:
        records = chain(bench, 6)

        def before(items: list[Item]) -> list[Item]:
            return [{**item, "epoch": "old"} if item["sk"] != turn_sk(6) else item for item in items]

        assert bench.seen_by(Lagging(bench.store, before)).hydrate(bench.key).turns() == records

    def test_what_only_a_replica_shows_has_been_deleted(self, bench: Bench) -> None:
        ghosts = [dict(bench.item(turn_sk(record.turn))) for record in chain(bench, 4)]
        for sk in bench.everything():
            bench.remove(sk)
        found = bench.seen_by(Lagging(bench.store, lambda items: ghosts)).hydrate(bench.key)
        assert (found.exists, found.turns(), found.highest) == (False, [], 0)

    # --- expiry -------------------------------------------------------------------------------------------------

    def test_turns_expire_from_the_oldest_on(self, bench: Bench) -> None:
        records = chain(bench, 7)
        for count in range(8):
            if count:
                bench.expire(turn_sk(count))
            kept = records[count:]
            for window in WINDOWS:
                found = bench.look(last_turns=window)
                assert found.turns() == (kept if window is None else kept[-max(window, 2) :]), (count, window)
                assert found.highest == (7 if count < 7 else 0)

    @pytest.mark.parametrize("deleted", [(1, 2), (1, 6), (2, 5), (3, 4), (5, 6)], ids=str)
    def test_dynamodb_deletes_what_has_expired_in_whatever_order(self, bench: Bench, deleted: tuple[int, int]) -> None:
        """Six turns of an earlier life have expired, two of them are deleted already; the next life began at 1."""
        chain(bench, 6)
        for number in range(1, 7):
            bench.expire(turn_sk(number))
        bench.expire("CONVERSATION")
        for number in deleted:
            bench.remove(turn_sk(number))
        first = bench.take("new one")
        assert (first.turn, bench.look().highest) == (1, 1)
        bench.take("new two")
        for facts in ({}, {"last_turns": 1}, {"history": False}):
            found = bench.look(**facts)
            assert [turn.turn for turn in found.turns()] == [1, 2]
            assert found.highest == 2
        assert bench.history() == ["new one", "re: new one", "new two", "re: new two"]

    def test_a_long_life_that_has_expired_costs_the_next_one_few_round_trips(self, bench: Bench) -> None:
        old = replace(chain(bench, 3)[-1], delete_after_s=bench.clock.wall_ms // 1000)
        bench.put(*(turn_item(replace(old, turn=number, previous=number - 1)) for number in range(1, 130)))
        bench.expire("CONVERSATION")
        bench.take("new")
        store = Through(bench.store)
        assert [turn.turn for turn in bench.seen_by(store).hydrate(bench.key, last_turns=2).turns()] == [1]
        assert store.round_trips <= 8, "each look takes twice as much"

    def test_an_unowned_life_after_an_owned_one_is_nobodys(self, bench: Bench) -> None:
        bench.take("one")
        for sk in bench.everything():
            bench.expire(sk)
        bench.take("two", principal=None)
        found = bench.look()
        assert (found.owner, found.exists) == (None, True)

    def test_an_expired_turn_that_is_asked_for_by_number_is_not_there(self, bench: Bench) -> None:
        chain(bench, 3)
        bench.expire(turn_sk(1))
        assert bench.look(turn=1).wanted() is None
        assert bench.ledger.turn(bench.key, 1) is None
        assert bench.ledger.turn(bench.key, 2) is not None

    # --- lives side by side -------------------------------------------------------------------------------------

    def test_a_late_turn_of_an_expired_life_is_not_part_of_the_next_one(self, bench: Bench) -> None:
        """A process whose clock was behind claimed number 6 of a life that had expired for everybody else."""
        old = chain(bench, 5)[-1]
        for number in range(1, 6):
            bench.expire(turn_sk(number))
        bench.expire("CONVERSATION")
        bench.take("new one")
        bench.put_turn(replace(old, turn=6, previous=5, status=Status.RUNNING, user=said("late")))
        for facts in ({}, {"last_turns": 1}, {"history": False}):
            found = bench.look(**facts)
            assert [turn.turn for turn in found.turns()] == [1]
            assert found.highest == 6, "its number is taken all the same"
        assert bench.take("new two").turn == 7
        assert bench.history() == ["new one", "re: new one", "new two", "re: new two"]

    def test_a_turn_of_another_life_is_not_the_one_that_was_asked_for(self, bench: Bench) -> None:
        records = chain(bench, 2)
        bench.put_turn(replace(records[0], epoch="other"))
        assert bench.look(turn=1).wanted() is None

    def test_without_conversation_the_lowest_live_turn_says_whose_it_is(self, bench: Bench) -> None:
        bench.claim(principal=None)
        assert (bench.look().exists, bench.look().owner) == (True, None)
        bench.commit(bench.turn(1))
        bench.claim(principal="ann")
        bench.remove("CONVERSATION")
        found = bench.look()
        assert (found.owner, found.conversation(), found.epoch) == ("ann", None, bench.turn(2).epoch)

    # --- what cannot be read ------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "damage",
        [
            {"format": "conversation-v2"},
            {"format": 7},
            {"user": b"\x01not deflated"},
            {"user": '{"role":'},
            {"user": "[]"},
            {"body": b"\x01\x00"},
            {"body": b"\x02of a newer release"},
            {"body": '{"messages":[1]}'},
            {"body": '{"usage":[]}'},
            {"status": "melted"},
            {"status": 1},
            {"epoch": 1},
            {"previous": "one"},
            {"attempt": "x"},
            {"adopted": "[[1]]"},
            {"segments": "2"},
            {"deleteAfter_s": "tomorrow"},
        ],
        ids=str,
    )
    def test_what_cannot_be_read_is_refused_by_name_and_never_absent(
        self, bench: Bench, damage: dict[str, Any]
    ) -> None:
        chain(bench, 5)
        for number in (1, 3, 5):
            whole = bench.item(turn_sk(number))
            bench.change(turn_sk(number), **damage)
            found = bench.look()
            assert found.exists
            assert found.owner == "ann", "told before anybody judges the rest"
            with pytest.raises((MalformedStoredItemError, UnknownStoredFormatError)) as refused:
                found.turns()
            for secret in (SAID, ANSWERED, "melted"):
                assert secret not in str(refused.value)
            assert refused.value.conversation_id == bench.key.conversation_id
            bench.put(whole)

    @pytest.mark.parametrize("missing", ["format", "epoch", "status", "user"])
    def test_an_item_that_lacks_a_part_is_refused_by_name(self, bench: Bench, missing: str) -> None:
        chain(bench, 3)
        bench.remove(turn_sk(2), missing)
        with pytest.raises(MalformedStoredItemError):
            bench.look().turns()

    def test_an_unreadable_conversation_is_refused_by_name(self, bench: Bench) -> None:
        bench.take("one")
        bench.change("CONVERSATION", format="conversation-v7")
        found = bench.look()
        assert (found.exists, found.owner) == (True, "ann")
        with pytest.raises(UnknownStoredFormatError) as refused:
            found.conversation()
        assert "conversation-v7" in str(refused.value)
        bench.change("CONVERSATION", format="conversation-v1", turn="the third")
        with pytest.raises(MalformedStoredItemError):
            bench.look().conversation()

    def test_an_unknown_attribute_does_no_harm(self, bench: Bench) -> None:
        records = chain(bench, 3)
        for sk in (turn_sk(2), "CONVERSATION"):
            bench.change(sk, ofANewerRelease="x")
        assert bench.look().turns() == records
        assert bench.look().conversation() is not None

    def test_items_of_other_kinds_are_no_turns(self, bench: Bench) -> None:
        records = chain(bench, 2)
        for sk in ("TURN", "TURNS", "SNAP#0000000000000001", "BEAT#1", "ONCE#1", "REQUEST#x"):
            bench.put({"pk": bench.key.pk, "sk": sk, "format": "else"})
        assert turn_sk(1) > TURN_LOW
        assert bench.look().turns() == records

    def test_retention_reaches_conversation_and_turns_alike(self, bench: Bench) -> None:
        until_s = bench.clock.wall_ms // 1000 + DAY_S
        bench.take("one", delete_after_s=until_s)
        assert {item.get("deleteAfter_s") for item in bench.everything().values()} == {until_s}


OPEN_HERE = (Status.AWAITING, Status.QUEUED)


def chain(bench: Bench, count: int, *statuses: Status) -> list[TurnRecord]:
    """So many turns, put as they are, and CONVERSATION that shows the last one."""
    records: list[TurnRecord] = []
    for number in range(1, count + 1):
        status = statuses[number - 1] if statuses else Status.COMPLETE
        record = bench.complete(
            TurnRecord(
                key=bench.key,
                turn=number,
                status=status,
                epoch="life-1",
                run_id=f"run-{number}",
                principal="ann",
                previous=number - 1,
                started_at_ms=number,
                base_count=2 * (number - 1),
                user=said(SAID),
            ),
            messages=(answered(ANSWERED),),
        )
        records.append(replace(record, status=status))
    shown: Item = {"pk": bench.key.pk, "sk": "CONVERSATION", "format": "conversation-v1", "epoch": "life-1"}
    shown |= {"owner": "ann", "savedAt": 1, "turn": count, "attempt": 1}
    never_ran = (Status.CANCELLED, Status.REFUSED)  # as somebody closes a queued turn
    marks: list[Item] = [{"unrun": 1} if record.status in never_ran else {} for record in records]
    bench.put(shown, *(turn_item(record) | mark for record, mark in zip(records, marks, strict=True)))
    return records
