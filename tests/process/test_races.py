"""Invariant 1 by real processes: thirty-two of them, fresh ones each round, contend for the next turn; one wins.

Each process is forked for one round, reads the conversation over connections of its own, waits until all have read, and
claims. The winner commits. In the end the ledger has to be what one process after the other would have left: turn after
turn, each with its winner's message, and nothing of anybody who lost.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.contract.dynamo_server import DynamoServer
from tests.contract.tables import new_table
from turnkeep.adapters.dynamo import DynamoItemStore
from turnkeep.clock import SystemClock
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.records import Status, TurnRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.process, pytest.mark.exhaustive, pytest.mark.timeout(900)]

PROCESSES, ROUNDS = 32, int(os.environ.get("TURNKEEP_RACE_ROUNDS", "10"))
"""A round is 130 calls to one moto, about two seconds; ``TURNKEEP_RACE_ROUNDS=200`` takes some minutes."""

KEY = ConversationKey("raced-for")
WON, LOST = b"w", b"l"


@dataclass(frozen=True)
class Round:
    """One round's pipes: who has read says so on ``ready``, ``go`` ends when all may claim, ``told`` says who won."""

    number: int
    ready: tuple[int, int]
    go: tuple[int, int]
    told: tuple[int, int]

    @classmethod
    def begin(cls, number: int) -> Round:
        return cls(number, os.pipe(), os.pipe(), os.pipe())

    def close(self) -> None:
        for end in (*self.ready, self.go[0], *self.told):
            os.close(end)


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    """A ledger whose client has made no connection yet: a forked process makes its own."""
    with DynamoServer() as server:
        table = new_table(server.client())
        yield Ledger(DynamoItemStore(server.client(), table), SystemClock())


def contend(ledger: Ledger, race: Round, me: int) -> bytes:
    """What one process does: reads, waits until all have read, claims, and commits where it won."""
    found = ledger.hydrate(KEY, history=False)
    run_id = f"run-{race.number}-{me}"
    record = TurnRecord(
        key=KEY,
        turn=found.highest + 1,
        status=Status.RUNNING,
        epoch=found.epoch or "epoch-1",
        run_id=run_id,
        lease_until_ms=ledger.clock.now_ms() + 600_000,
        principal="ada",
        previous=found.highest,
        started_at_ms=ledger.clock.now_ms(),
        base_count=2 * found.highest,
        user={"role": "user", "content": f"round {race.number}, process {me}"},
    )
    os.write(race.ready[1], b"r")
    os.read(race.go[0], 1)
    claimed = ledger.claim(record, stored=found.highest)
    if not isinstance(claimed, TurnRecord):
        return LOST
    answer = {"role": "assistant", "content": f"answered by {run_id}"}
    after = replace(
        claimed,
        status=Status.COMPLETE,
        lease_until_ms=0,
        messages=(answer,),
        shown_count=2,
        saved_at_ms=ledger.clock.now_ms(),
    )
    ledger.commit(claimed, after, found.conversation())
    return WON


def start(ledger: Ledger, race: Round, me: int) -> int:
    """Forks a process that contends once and ends, whatever happens in it."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(race.go[1])  # or this very process would keep everybody from being let go
        os.write(race.told[1], contend(ledger, race, me))
        code = 0
    finally:
        os._exit(code)


def read_exactly(end: int, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = os.read(end, count - len(found))
        assert more, "the processes ended without a word"
        found += more
    return found


def run_round(ledger: Ledger, number: int) -> bytes:
    """One round; what every process said of it."""
    race = Round.begin(number)
    pids = [start(ledger, race, me) for me in range(PROCESSES)]
    try:
        read_exactly(race.ready[0], PROCESSES)
        os.close(race.go[1])
        return read_exactly(race.told[0], PROCESSES)
    finally:
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        race.close()
        assert codes == [0] * PROCESSES


def test_one_of_thirty_two_processes_wins_every_round(ledger: Ledger) -> None:
    for number in range(1, ROUNDS + 1):
        said = run_round(ledger, number)
        assert said.count(WON) == 1, f"round {number}: {said!r}"
        assert said.count(LOST) == PROCESSES - 1

    pid = os.fork()  # the parent's own client stays without a connection, so that a later test may fork again
    if pid == 0:
        code = 1
        try:
            expect_serial_order(ledger)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def expect_serial_order(ledger: Ledger) -> None:
    """The ledger is what one process after the other would have left."""
    found = ledger.hydrate(KEY)
    turns = found.turns()
    assert [turn.turn for turn in turns] == list(range(1, ROUNDS + 1))
    for number, turn in enumerate(turns, 1):
        assert turn.status is Status.COMPLETE
        assert turn.previous == number - 1
        assert turn.user is not None
        assert turn.user["content"].startswith(f"round {number}, ")
        assert turn.messages[-1]["content"] == f"answered by {turn.run_id}"
        assert turn.user["content"].endswith(f"process {turn.run_id.rsplit('-', 1)[1]}")
    shown = found.conversation()
    assert shown is not None
    assert (shown.turn, shown.owner, shown.message_count) == (ROUNDS, "ada", 2 * ROUNDS)
