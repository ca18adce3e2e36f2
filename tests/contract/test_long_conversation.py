"""A conversation of 20,000 turns: read with a window it costs what a short one costs, and nothing of it is missing."""

from __future__ import annotations

import pytest

from turnkeep.clock import ManualClock
from turnkeep.ledger.items import turn_item
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import Put

KEY, TURNS = ConversationKey("long"), 20_000


@pytest.fixture(scope="module")
def long() -> tuple[Ledger, MemoryItemStore]:
    store = MemoryItemStore()
    puts = [
        Put(
            turn_item(
                TurnRecord(
                    key=KEY,
                    turn=turn,
                    status=Status.COMPLETE,
                    epoch="epoch-1",
                    run_id=f"run-{turn}",
                    principal="ada",
                    previous=turn - 1,
                    started_at_ms=turn,
                    base_count=2 * (turn - 1),
                    shown_count=2,
                    user={"role": "user", "content": f"message {turn}"},
                    messages=({"role": "assistant", "content": f"answer {turn}"},),
                )
            )
        )
        for turn in range(1, TURNS + 1)
    ]
    store.write(puts)
    return Ledger(store, ManualClock()), store


@pytest.mark.parametrize("window", [1, 20, 200])
def test_a_window_reads_its_turns_in_one_round_trip(long: tuple[Ledger, MemoryItemStore], window: int) -> None:
    ledger, store = long
    before = store.round_trips
    found = ledger.hydrate(KEY, last_turns=window)
    turns = found.turns()
    assert store.round_trips - before == 1
    assert found.highest == TURNS
    assert not found.whole
    assert [turn.turn for turn in turns][-window:] == list(range(TURNS - window + 1, TURNS + 1))
    assert len(turns) <= window + 2


def test_all_of_it_is_read_in_order(long: tuple[Ledger, MemoryItemStore]) -> None:
    ledger, _ = long
    found = ledger.hydrate(KEY)
    turns = found.turns()
    assert found.whole
    assert [turn.turn for turn in turns] == list(range(1, TURNS + 1))
    assert turns[12_345].messages[-1]["content"] == "answer 12346"
