"""Segments on the ledger: split, overlapping, torn, foreign, missing, late; whole or refused, and never a mixture."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.ledger_bench import DAY_S, LEASE_MS, Bench, Lagging, LedgerBench, Through, answered, noise, said
from turnkeep.errors import MalformedStoredItemError, UnknownStoredFormatError
from turnkeep.ledger.keys import segment_sk
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.store import Check, Result, Write


class Dying(Through):
    """Of the segments that are written only some land, and then the process is gone."""

    def __init__(self, store: Any, *landing: int) -> None:
        super().__init__(store)
        self._landing = landing

    def write(self, writes: Sequence[Write]) -> list[Result]:
        super().write([one for at, one in enumerate(writes) if at in self._landing])
        raise ConnectionError("the process died")

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        raise AssertionError("segments are not written in transactions")


class LedgerSegments(LedgerBench):
    def durable(self, bench: Bench, turn: int = 1) -> list[str]:
        return [message["content"] for message in bench.ledger.messages_of([bench.turn(turn)])[turn]]

    def test_what_a_run_writes_is_durable_in_order(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        index = bench.ledger.write_segments(record, 1, "messages", 1, [answered("a"), answered("b")])
        assert index == 2
        assert self.durable(bench) == ["u", "a", "b"]
        assert bench.ledger.write_segments(record, index, "messages", 3, [answered("c")]) == 3
        assert self.durable(bench) == ["u", "a", "b", "c"]
        bench.commit(record, replace(bench.complete(record, "end"), segments=2))
        assert self.durable(bench) == ["u", "a", "b", "c", "end"]

    def test_a_retried_batch_that_landed_is_recognised(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        for _ in range(3):
            assert bench.ledger.write_segments(record, 1, "messages", 1, [answered("a")]) == 2
        assert self.durable(bench) == ["u", "a"]

    def test_one_that_differs_is_written_anew_behind_it_and_replaces_it(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        bench.ledger.write_segments(record, 1, "messages", 1, [answered("a")])
        assert bench.ledger.write_segments(record, 1, "messages", 1, [answered("a"), answered("b")]) == 3
        assert self.durable(bench) == ["u", "a", "b"]
        assert bench.ledger.write_segments(record, 1, "messages", 1, [answered("x")]) == 4
        assert self.durable(bench) == ["u", "x"]

    def test_a_large_batch_is_split_and_read_back_whole(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        index = bench.ledger.write_segments(record, 1, "messages", 1, [answered(noise(400_000))])
        assert index > 3
        assert self.durable(bench) == ["u", noise(400_000)]
        assert bench.ledger.write_segments(record, index, "messages", 2, [answered("after")]) == index + 1
        assert self.durable(bench) == ["u", noise(400_000), "after"]

    @pytest.mark.parametrize("landed", [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1), (3,)])
    def test_a_batch_that_landed_in_part_is_as_if_it_had_never_been(
        self, bench: Bench, landed: tuple[int, ...]
    ) -> None:
        record = bench.claim(text="u")
        index = bench.ledger.write_segments(record, 1, "messages", 1, [answered("a")])
        with pytest.raises(ConnectionError):
            dying = bench.seen_by(Dying(bench.store, *landed))
            dying.write_segments(record, index, "messages", 2, [answered(noise(400_000))])
        assert self.durable(bench) == ["u", "a"]
        again = bench.ledger.write_segments(record, index, "messages", 2, [answered("short")])
        assert self.durable(bench) == ["u", "a", "short"]
        again = bench.ledger.write_segments(record, again, "messages", 3, [answered(noise(300_000))])
        assert self.durable(bench) == ["u", "a", "short", noise(300_000)]
        bench.commit(record, replace(bench.complete(record, "end"), segments=again - 1))
        assert self.durable(bench) == ["u", "a", "short", noise(300_000), "end"]

    def test_a_takeover_adopts_what_it_read_and_nothing_that_comes_late(self, bench: Bench) -> None:
        dead = bench.claim(text="u")
        bench.ledger.write_segments(dead, 1, "messages", 1, [answered("a")])
        bench.ledger.write_segments(dead, 2, "messages", 2, [answered("b")])
        bench.clock.advance_ms(LEASE_MS)
        taken = bench.ledger.take_over(bench.turn(1), bench.next_attempt(dead, segments=2), None)
        assert taken is not None
        bench.ledger.write_segments(dead, 3, "messages", 3, [answered("late")])
        assert self.durable(bench) == ["u", "a", "b"]
        bench.ledger.write_segments(taken, 1, "messages", 3, [answered("c")])
        assert self.durable(bench) == ["u", "a", "b", "c"]
        third = bench.ledger.take_over(bench.turn(1), bench.next_attempt(taken, segments=1), bench.shown())
        assert third is not None
        bench.commit(third, bench.complete(third, "end"))
        assert self.durable(bench) == ["u", "a", "b", "c", "end"]

    def test_a_takeover_that_adopted_less_shows_less(self, bench: Bench) -> None:
        dead = bench.claim(text="u")
        for at, text in enumerate("abc"):
            bench.ledger.write_segments(dead, at + 1, "messages", at + 1, [answered(text)])
        bench.clock.advance_ms(LEASE_MS)
        assert bench.ledger.take_over(bench.turn(1), bench.next_attempt(dead, segments=1), None) is not None
        assert self.durable(bench) == ["u", "a"]

    # --- left over ----------------------------------------------------------------------------------------------

    def test_segments_of_an_earlier_life_are_nobodys(self, bench: Bench) -> None:
        old = bench.claim(text="old")
        bench.ledger.write_segments(old, 1, "messages", 1, [answered("of the old life")])
        bench.ledger.write_segments(old, 2, "messages", 2, [answered("of the old life too")])
        bench.expire("TURN#0000000000000001")
        new = bench.claim(text="new")
        assert new.turn == 1
        assert self.durable(bench) == ["new"]
        assert bench.ledger.write_segments(new, 1, "messages", 1, [answered("of the new life")]) == 2
        assert self.durable(bench) == ["new", "of the new life"]

    def test_expired_segments_of_an_earlier_use_of_the_number_are_nobodys(self, bench: Bench) -> None:
        bench.take("one")
        until_s = bench.clock.wall_ms // 1000 + DAY_S
        old = bench.claim(text="old", delete_after_s=until_s)
        bench.ledger.write_segments(old, 1, "messages", 1, [answered("x"), answered("y")])
        bench.ledger.write_segments(old, 2, "messages", 3, [answered("z")])
        bench.clock.advance_ms(DAY_S * 1000)
        new = bench.claim(text="new", delete_after_s=until_s + DAY_S)
        assert (new.turn, new.epoch) == (2, old.epoch), "the same life uses the number again"
        assert self.durable(bench, 2) == ["new"]
        bench.ledger.write_segments(new, 1, "messages", 1, [answered("a")])
        assert self.durable(bench, 2) == ["new", "a"]
        bench.commit(new, replace(bench.complete(new, "end"), segments=1))
        assert self.durable(bench, 2) == ["new", "a", "end"]

    def test_a_turn_that_outlives_its_claim_takes_its_segments_with_it(self, bench: Bench) -> None:
        until_s = bench.clock.wall_ms // 1000 + 60
        record = bench.claim(text="u", delete_after_s=until_s)
        index = bench.ledger.write_segments(record, 1, "messages", 1, [answered("a")])
        longer = replace(record, segments=index - 1, delete_after_s=until_s + DAY_S)
        bench.ledger.keep_segments(longer, until_s + DAY_S)
        bench.commit(record, replace(bench.complete(record, "end"), segments=1, delete_after_s=until_s + DAY_S))
        kept = {item.get("deleteAfter_s") for sk, item in bench.everything().items()}
        assert kept == {until_s + DAY_S}
        bench.clock.advance_ms(120_000)
        assert self.durable(bench) == ["u", "a", "end"]

    def test_an_erased_turns_segments_are_not_brought_back_by_a_longer_life(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        bench.ledger.write_segments(record, 1, "messages", 1, [answered("a")])
        for sk in bench.everything():
            bench.remove(sk)
        bench.ledger.keep_segments(replace(record, segments=1), 99)
        assert bench.everything() == {}

    # --- reading ------------------------------------------------------------------------------------------------

    def test_all_turns_segments_are_read_in_one_round_trip(self, bench: Bench) -> None:
        for at in range(5):
            record = bench.claim(text=f"u{at}")
            segments = at % 3
            for index in range(segments):
                bench.ledger.write_segments(record, index + 1, "messages", index + 1, [answered(f"s{at}-{index}")])
            bench.commit(record, replace(bench.complete(record, f"e{at}"), segments=segments))
        store = Through(bench.store)
        ledger = bench.seen_by(store)
        found = ledger.messages_of(bench.look().turns())
        assert store.round_trips == 1
        texts = [[message["content"] for message in found[turn]] for turn in sorted(found)]
        assert texts == [
            ["u0", "e0"],
            ["u1", "s1-0", "e1"],
            ["u2", "s2-0", "s2-1", "e2"],
            ["u3", "e3"],
            ["u4", "s4-0", "e4"],
        ]

    def test_where_nothing_lies_in_segments_nothing_is_read(self, bench: Bench) -> None:
        bench.take("one")
        bench.take("two")
        store = Through(bench.store)
        found = bench.seen_by(store).messages_of(bench.look().turns())
        assert store.round_trips == 0
        assert [message["content"] for message in found[2]] == ["two", "re: two"]

    @pytest.mark.parametrize("missing", [0, 1, 2])
    def test_a_replica_that_misses_a_segment_is_found_out(self, bench: Bench, missing: int) -> None:
        record = self.three(bench)
        lagging = bench.seen_by(Lagging(bench.store, lambda items: items[:missing] + items[missing + 1 :]))
        found = lagging.messages_of([record])[1]
        assert [message["content"] for message in found] == ["u", "a", "b", "c", "end"]

    @pytest.mark.parametrize("missing", [1, 2, 3])
    def test_a_segment_that_is_gone_is_refused_by_name(self, bench: Bench, missing: int) -> None:
        record = self.three(bench)
        bench.remove(segment_sk(1, 1, missing))
        with pytest.raises(MalformedStoredItemError) as refused:
            bench.ledger.messages_of([record])
        assert refused.value.conversation_id == bench.key.conversation_id

    @pytest.mark.parametrize(
        "damage",
        [
            {"format": "segment-v2"},
            {"data": b"\x01broken"},
            {"data": "[1]"},
            {"data": '[{"role":"assistant","content":"other"}]'},
            {"data": 5},
            {"hash": "other"},
            {"parts": 0},
            {"parts": "1"},
            {"from": 3},
            {"kind": 4},
        ],
        ids=str,
    )
    def test_a_segment_that_cannot_be_read_is_refused_by_name(self, bench: Bench, damage: dict[str, Any]) -> None:
        record = self.three(bench)
        bench.change(segment_sk(1, 1, 2), **damage)
        with pytest.raises((MalformedStoredItemError, UnknownStoredFormatError)):
            bench.ledger.messages_of([record])

    def test_a_part_of_another_life_does_not_complete_a_batch(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        index = bench.ledger.write_segments(record, 1, "messages", 1, [answered(noise(300_000))])
        done = bench.commit(record, replace(bench.complete(record), segments=index - 1))
        bench.change(segment_sk(1, 1, 2), epoch="another")
        with pytest.raises(MalformedStoredItemError):
            bench.ledger.messages_of([done])

    def test_messages_and_checkpoints_of_a_prefix_never_mix_iterations(self, bench: Bench) -> None:
        """Whatever segment a run dies behind, a reader sees whole batches of it: a prefix of what it agreed on."""
        batches = [[answered("a1"), answered("a2")], [answered("b")], [answered("c1"), answered("c2")]]
        for survived in range(4):
            record = bench.claim(text=f"u{survived}")
            start = 1
            for at, batch in enumerate(batches[:survived]):
                bench.ledger.write_segments(record, at + 1, "messages", start, batch)
                start += len(batch)
            expected = [f"u{survived}", *[m["content"] for batch in batches[:survived] for m in batch]]
            assert self.durable(bench, survived + 1) == expected
            bench.clock.advance_ms(LEASE_MS)
            assert bench.close_dead(bench.turn(survived + 1), segments=survived) is not None
            assert self.durable(bench, survived + 1) == expected

    def three(self, bench: Bench) -> TurnRecord:
        record = bench.claim(text="u")
        for at, text in enumerate("abc"):
            bench.ledger.write_segments(record, at + 1, "messages", at + 1, [answered(text)])
        return bench.commit(record, replace(bench.complete(record, "end"), segments=3))

    def test_a_skipped_number_has_no_messages(self, bench: Bench) -> None:
        bench.claim(bench.running(4))
        skipped = bench.look().turns()[0]
        assert skipped.status is Status.SKIPPED
        assert bench.ledger.messages_of([skipped]) == {1: []}

    def test_a_user_message_that_a_pause_moved_is_read_first(self, bench: Bench) -> None:
        record = bench.claim(text="long")
        bench.ledger.write_segments(record, 1, "messages", 0, [said("long"), answered("a")])
        bench.commit(record, replace(bench.complete(record, "end"), user=None, segments=1))
        assert "user" not in bench.item("TURN#0000000000000001")
        assert self.durable(bench) == ["long", "a", "end"]

    def test_a_turn_without_any_message_is_refused_by_name(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        bench.ledger.write_segments(record, 1, "checkpoint", 0, {"a": 1})
        done = bench.commit(record, replace(bench.complete(record), user=None, messages=(), segments=1))
        with pytest.raises(MalformedStoredItemError):
            bench.ledger.messages_of([done])

    def test_segments_are_put_once_and_never_changed(self, bench: Bench) -> None:
        record = bench.claim(text="u")
        bench.ledger.write_segments(record, 1, "messages", 1, [answered("a")])
        before = bench.item(segment_sk(1, 1, 1))
        bench.ledger.write_segments(record, 1, "messages", 1, [answered("other")])
        assert bench.item(segment_sk(1, 1, 1)) == before
        bench.store.write([Put(before)])
