"""Processes that read, claim, write, crash, sleep and wake late, in any order, against DESIGN.md's invariants.

The oracle knows what every process did and what it was told. After every step it looks at the table:

1. at most one turn of a life runs, and each turn is ended by one run only;
2. a number is never given out twice while its entries live, and numbers only go up;
3. what was told as committed stays there, and so does what a person said, from the claim on;
9. what a reader sees of a turn is a prefix of one run, or an adopted prefix followed by the run that adopted it;
10. a write of a lost claim changes nothing that a reader sees;
11. reading, claiming and committing take the same number of round trips however long the conversation is.

Clocks of the processes differ by minutes. A process that "wakes late" has passed its own checks before it slept, so it
writes whatever has become of its claim.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from turnkeep.clock import ManualClock
from turnkeep.errors import LostClaimError, SessionNotFoundError
from turnkeep.ledger.hydrate import Hydrated, load_segments
from turnkeep.ledger.keys import CONVERSATION, ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import FLOWCHART_V1, Ask, Decision, Status, TurnRecord
from turnkeep.usecases.closing import closed

if TYPE_CHECKING:
    from turnkeep.ledger.store import Item

KEY = ConversationKey("c-1", "acme")
LEASE_MS = 60_000
MINUTE_MS = 60_000
DAY_S = 86_400
NAMES = range(3)
NTH = st.integers(0, 2)
LOOKS = st.booleans()
"""Whether a process reads first, or goes by what it read before."""


@dataclass
class SkewedClock:
    """The true clock as a process sees it."""

    true: ManualClock
    ahead_ms: int

    def now_ms(self) -> int:
        return self.true.wall_ms + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self.true.steady_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.true.sleep_ms(duration_ms)


@dataclass
class Process:
    """One process: what it read, and the turn that it believes to hold."""

    ledger: Ledger
    clock: SkewedClock
    seen: Hydrated | None = None
    held: TurnRecord | None = None
    said: list[str] = field(default_factory=list)
    durable: int = 1
    next_segment: int = 1


class Turns(RuleBasedStateMachine):
    """One conversation and three processes."""

    @initialize(ahead=st.lists(st.sampled_from([-3, -1, 0, 0, 2, 4]), min_size=3, max_size=3))
    def start(self, ahead: list[int]) -> None:
        self.true = ManualClock()
        self.store = MemoryItemStore()
        self.ids = itertools.count(1)
        self.processes = {name: self.fresh(minutes) for name, minutes in zip(NAMES, ahead, strict=True)}
        self.claimed: dict[str, set[int]] = {}
        self.ended_by: dict[tuple[str, int], str] = {}
        self.told: dict[tuple[str, int], list[str]] = {}
        self.spoken: dict[tuple[str, int], str] = {}
        self.decided: set[str] = set()

    def fresh(self, minutes: int) -> Process:
        clock = SkewedClock(self.true, minutes * MINUTE_MS)
        return Process(Ledger(self.store, clock), clock)

    # --- a process's moves --------------------------------------------------------------------------------------

    @precondition(lambda self: self.idle())
    @rule(nth=NTH, window=st.sampled_from([None, 2, 5]))
    def read(self, nth: int, window: int | None) -> None:
        process = self.one_of(self.idle(), nth)
        process.seen = process.ledger.hydrate(KEY, last_turns=window)

    @precondition(lambda self: self.idle() and (not self.opened() or self.old_views()))
    @rule(
        nth=NTH,
        floor=st.sampled_from([0, 0, 0, 3, 9]),
        keeps_days=st.sampled_from([None, 1]),
        looks=LOOKS,
    )
    def claim(self, nth: int, floor: int, keeps_days: int | None, looks: bool) -> None:
        """On what was read, however long ago."""
        process = self.looking(nth, looks)
        if process.seen is None:
            return
        turns = process.seen.turns()
        if any(turn.is_open for turn in turns):
            return
        last = turns[-1] if turns else None
        run_id = f"run-{process.clock.now_ms()}-{next(self.ids)}"
        until_s = None if keeps_days is None else process.clock.now_ms() // 1000 + keeps_days * DAY_S
        if last is not None:
            until_s = None if last.delete_after_s is None else max(until_s or 0, last.delete_after_s)
        stored = process.seen.highest
        record = TurnRecord(
            key=KEY,
            turn=max(stored + 1, floor),
            status=Status.RUNNING,
            epoch=process.seen.epoch or f"life-{next(self.ids)}",
            run_id=run_id,
            lease_until_ms=process.clock.now_ms() + LEASE_MS,
            principal="ann",
            previous=last.turn if last is not None else 0,
            started_at_ms=process.clock.now_ms(),
            base_count=0 if last is None else last.base_count + last.shown_count,
            user={"role": "user", "content": f"{run_id}|0"},
            delete_after_s=until_s,
        )
        alive = self.alive(record.epoch, process)
        trips = self.store.round_trips
        answer = process.ledger.claim(record, stored=stored)
        assert self.store.round_trips - trips == 1, "11: one round trip"
        process.seen = None
        if not isinstance(answer, TurnRecord):
            assert answer.winner is not None
            assert answer.winner.run_id != run_id
            return
        self.hold(process, answer, [f"{run_id}|0"])
        assert all(answer.turn > number for number in alive), "2: given out twice, or backwards"
        self.claimed.setdefault(answer.epoch, set()).add(answer.turn)
        self.ended_by.pop((answer.epoch, answer.turn), None)
        self.told.pop((answer.epoch, answer.turn), None)
        self.spoken[answer.epoch, answer.turn] = f"{run_id}|0"

    @precondition(lambda self: self.holders())
    @rule(nth=NTH, count=st.integers(1, 3))
    def write(self, nth: int, count: int) -> None:
        """Makes messages durable, whatever has become of the claim."""
        process = self.one_of(self.holders(), nth)
        lost, before = self.has_lost(process.held), self.visible()
        process.said += self.more(process, count)
        new = [{"role": "assistant", "content": text} for text in process.said[process.durable :]]
        process.next_segment = process.ledger.write_segments(
            process.held, process.next_segment, "messages", process.durable, new
        )
        process.durable = len(process.said)
        if lost:
            assert self.visible() == before, "10: a lost claim changed what is seen"

    @precondition(lambda self: self.holders())
    @rule(nth=NTH, status=st.sampled_from([Status.COMPLETE, Status.COMPLETE, Status.FAILED]))
    def commit(self, nth: int, status: Status) -> None:
        process = self.one_of(self.holders(), nth)
        process.said += self.more(process, 1)
        rest = tuple({"role": "assistant", "content": text} for text in process.said[process.durable :])
        after = replace(
            process.held,
            status=status,
            lease_until_ms=0,
            saved_at_ms=process.clock.now_ms(),
            messages=rest,
            segments=process.next_segment - 1,
            shown_count=len(process.said),
        )
        self.try_commit(process, after)

    @precondition(lambda self: self.holders())
    @rule(nth=NTH)
    def pause(self, nth: int) -> None:
        process = self.one_of(self.holders(), nth)
        held = process.held
        process.said += self.more(process, 1)
        new = [{"role": "assistant", "content": text} for text in process.said[process.durable :]]
        at = process.ledger.write_segments(held, process.next_segment, "messages", process.durable, new)
        process.next_segment, process.durable = at, len(process.said)
        now_ms = process.clock.now_ms()
        ask = Ask(f"ask-{held.turn}-{next(self.ids)}", "owner", {"question": "?"}, now_ms, now_ms + 10 * MINUTE_MS)
        after = replace(
            held,
            status=Status.AWAITING,
            format=FLOWCHART_V1,
            lease_until_ms=0,
            saved_at_ms=now_ms,
            messages=(),
            segments=at - 1,
            ask=ask,
            decision=None,
            shown_count=len(process.said),
        )
        self.try_commit(process, after)

    def try_commit(self, process: Process, after: TurnRecord) -> None:
        held = process.held
        assert held is not None
        lost, before = self.has_lost(held), self.visible()
        known = process.seen.conversation() if process.seen is not None else self.conversation(process)
        process.held = None
        try:
            process.ledger.commit(held, after, known)
        except LostClaimError:
            assert lost, "the claim was not lost"
            assert self.visible() == before, "10: a lost claim changed what is seen"
            return
        except SessionNotFoundError:
            # The turn landed in a life that another one has followed by now; that one shows nothing of it.
            assert known is None or self.epoch_shown() != held.epoch
            return
        assert not lost, "10: a lost claim committed"
        place = (after.epoch, after.turn)
        if after.status is not Status.AWAITING:
            assert place not in self.ended_by, "1: ended by two runs"
            self.ended_by[place] = after.run_id
            self.told[place] = list(process.said)

    @precondition(lambda self: self.holders())
    @rule(nth=NTH)
    def crash(self, nth: int) -> None:
        """The process is gone; one like it takes its place."""
        name = NAMES[nth]
        self.processes[name] = self.fresh(self.processes[name].clock.ahead_ms // MINUTE_MS)

    # --- what others do with a turn -----------------------------------------------------------------------------

    @precondition(lambda self: self.idle() and self.stands("running"))
    @rule(nth=NTH, takes=st.booleans(), looks=LOOKS)
    def end_dead(self, nth: int, takes: bool, looks: bool) -> None:
        """Takes a turn over whose holder is dead by this process's clock, or closes it."""
        process = self.looking(nth, looks)
        if process.seen is None:
            return
        dead = next((turn for turn in process.seen.turns() if turn.is_dead(process.clock.now_ms())), None)
        if dead is None or dead.decision is not None:
            return
        loaded = load_segments(self.store, [dead], process.clock.now_ms())
        durable, said = loaded.durable_segments[dead.turn], loaded.messages[dead.turn]
        known = process.seen.conversation()
        process.seen = None
        if takes:
            running = self.next_attempt(process, dead, durable)
            taken = process.ledger.take_over(dead, running, known)
            if taken is not None:
                self.hold(process, taken, [message["content"] for message in said])
            return
        after = closed(
            dead, Status.FAILED, now_ms=process.clock.now_ms(), durable=said, own_segments=durable, error={"code": "E"}
        )
        if process.ledger.close(dead, after, known) is not None:
            place = (dead.epoch, dead.turn)
            assert place not in self.ended_by, "1: ended twice"
            self.ended_by[place] = "closed"
            self.told[place] = [message["content"] for message in said]

    @precondition(lambda self: self.idle() and self.stands("awaiting"))
    @rule(nth=NTH, answers=st.booleans(), looks=LOOKS)
    def end_ask(self, nth: int, answers: bool, looks: bool) -> None:
        """Answers an open ask, or expires it."""
        process = self.looking(nth, looks)
        if process.seen is None:
            return
        asked = next((turn for turn in process.seen.turns() if turn.status is Status.AWAITING), None)
        if asked is None or asked.ask is None:
            return
        if answers:
            answer = Decision(asked.ask.ask_id, True, "bo", process.clock.now_ms(), f"m{next(self.ids)}")
            if process.ledger.decide(asked, answer, due_at_ms=process.clock.now_ms()) is not None:
                assert asked.ask.ask_id not in self.decided, "6: two decisions for one ask"
                self.decided.add(asked.ask.ask_id)
            return
        said = load_segments(self.store, [asked], process.clock.now_ms()).messages[asked.turn]
        after = closed(asked, Status.EXPIRED, now_ms=process.clock.now_ms(), durable=said)
        if process.ledger.close(asked, after, process.seen.conversation()) is not None:
            place = (asked.epoch, asked.turn)
            assert place not in self.ended_by, "1: ended twice"
            self.ended_by[place] = "expired"
            self.told[place] = [message["content"] for message in said]

    @precondition(lambda self: self.idle() and self.stands("answered"))
    @rule(nth=NTH, looks=LOOKS)
    def resume(self, nth: int, looks: bool) -> None:
        """Goes on with an answered turn."""
        process = self.looking(nth, looks)
        if process.seen is None:
            return
        decided = next((turn for turn in process.seen.turns() if turn.status is Status.ANSWERED), None)
        if decided is None:
            return
        said = load_segments(self.store, [decided], process.clock.now_ms()).messages[decided.turn]
        running = self.next_attempt(process, decided, decided.segments)
        begun = process.ledger.begin_queued(decided, running)
        process.seen = None
        if begun is not None:
            self.hold(process, begun, [message["content"] for message in said])

    # --- time ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.store.items())
    @rule(minutes=st.sampled_from([1, 1, 2, 2, 5, 5, 5, 24 * 60 + 20]))
    def pass_minutes(self, minutes: int) -> None:
        """A day makes everything expire that may; nobody reads for so long, but what was sent may still arrive."""
        self.true.advance_ms(minutes * MINUTE_MS)
        if minutes > 60:
            for process in self.processes.values():
                process.seen = None

    @precondition(lambda self: self.expired())
    @rule(data=st.data())
    def dynamodb_deletes_something_expired(self, data: st.DataObject) -> None:
        """By nobody's clock but its own, and in no order."""
        item = data.draw(st.sampled_from(self.expired()))
        self.store.delete([(str(item["pk"]), str(item["sk"]))])

    # --- the oracle's looks -------------------------------------------------------------------------------------

    @invariant()
    def at_most_one_turn_of_a_life_runs(self) -> None:
        running: dict[object, int] = {}
        for item in self.store.items():
            if str(item["sk"]).startswith("TURN#") and item.get("status") == "running" and not self.is_over(item):
                running[item["epoch"]] = running.get(item["epoch"], 0) + 1
        assert all(count == 1 for count in running.values()), "1: two turns run"

    @invariant()
    def what_a_reader_sees_is_whole(self) -> None:
        for record, texts in self.visible():
            runs = []
            for at, text in enumerate(texts):
                run, _, position = text.rpartition("|")
                assert int(position) == at, "9: a message out of its place"
                if not runs or runs[-1] != run:
                    assert run not in runs, "9: a mixture of two runs"
                    runs.append(run)
            place = (record.epoch, record.turn)
            assert texts[0] == self.spoken[place], "3: what a person said"
            if place in self.told and not record.is_open:
                assert texts == self.told[place], "3: what was told"

    @invariant()
    def a_look_takes_one_round_trip(self) -> None:
        if any(self.is_over(item, minutes=-10) for item in self.store.items()):
            return  # what has expired and is still there may take more looks
        trips = self.store.round_trips
        self.observer().hydrate(KEY, last_turns=3)
        assert self.store.round_trips - trips <= 2, "11"

    # --- words --------------------------------------------------------------------------------------------------

    def observer(self) -> Ledger:
        return Ledger(self.store, self.true)

    def visible(self) -> list[tuple[TurnRecord, list[str]]]:
        """What somebody with the true clock reads."""
        ledger = self.observer()
        records = [turn for turn in ledger.hydrate(KEY).turns() if turn.status is not Status.SKIPPED]
        found = ledger.messages_of(records)
        return [(record, [message["content"] for message in found[record.turn]]) for record in records]

    def conversation(self, process: Process) -> Any:
        return process.ledger.hydrate(KEY, history=False).conversation()

    def epoch_shown(self) -> object:
        return self.observer().hydrate(KEY, history=False).epoch

    def has_lost(self, held: TurnRecord) -> bool:
        """Whether the turn is no longer this run's, by what lies there."""
        for item in self.store.items():
            if item["sk"] == f"TURN#{held.turn:016d}":
                return (item.get("runId"), item.get("status")) != (held.run_id, "running")
        return True

    def alive(self, epoch: str, process: Process) -> list[int]:
        """The numbers that this life gave out and whose entries still live, by the clock of whoever wants another."""
        now_s = process.clock.now_ms() // 1000
        live = {
            item["sk"]
            for item in self.store.items()
            if item.get("epoch") == epoch and int(item.get("deleteAfter_s", now_s + 1)) > now_s
        }
        return [number for number in self.claimed.get(epoch, set()) if f"TURN#{number:016d}" in live]

    def expired(self) -> list[Item]:
        return [item for item in self.store.items() if self.is_over(item, minutes=-10)]

    def stands(self, status: str) -> bool:
        """Whether some turn has this status."""
        return any(item.get("status") == status for item in self.store.items() if item["sk"] != CONVERSATION)

    def opened(self) -> bool:
        return any(self.stands(status) for status in ("running", "awaiting", "answered"))

    def old_views(self) -> bool:
        """Whether somebody still believes that nothing is open."""
        seen = [process.seen for process in self.idle() if process.seen is not None]
        return any(not any(turn.is_open for turn in each.turns()) for each in seen)

    def holders(self) -> list[Process]:
        return [process for process in self.processes.values() if process.held is not None]

    def idle(self) -> list[Process]:
        return [process for process in self.processes.values() if process.held is None]

    @staticmethod
    def one_of(processes: list[Process], nth: int) -> Process:
        return processes[nth % len(processes)]

    def looking(self, nth: int, looks: bool) -> Process:
        process = self.one_of(self.idle(), nth)
        if looks:
            process.seen = process.ledger.hydrate(KEY)
        return process

    def is_over(self, item: Any, *, minutes: int = 0) -> bool:
        now_s = (self.true.wall_ms + minutes * MINUTE_MS) // 1000
        return int(item.get("deleteAfter_s", now_s + 1)) <= now_s

    def hold(self, process: Process, record: TurnRecord, said: list[str]) -> None:
        process.held, process.said = record, said
        process.durable, process.next_segment = len(said), 1

    def more(self, process: Process, count: int) -> list[str]:
        assert process.held is not None
        start = len(process.said)
        return [f"{process.held.run_id}|{start + at}" for at in range(count)]

    def next_attempt(self, process: Process, record: TurnRecord, segments: int) -> TurnRecord:
        now_ms = process.clock.now_ms()
        return replace(
            record,
            status=Status.RUNNING,
            attempt=record.attempt + 1,
            run_id=f"run-{now_ms}-{next(self.ids)}",
            lease_until_ms=now_ms + LEASE_MS,
            adopted=(*record.adopted, (record.attempt, segments)),
            segments=0,
        )


TestTurns = Turns.TestCase
TestTurns.settings = settings(
    max_examples=250, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
