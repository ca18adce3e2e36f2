"""What the tests of a ledger stand on: one conversation, records as a use case makes them, stores that lag or fail."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from turnkeep.clock import ManualClock
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.items import turn_item
from turnkeep.ledger.keys import CONVERSATION, ConversationKey, turn_sk
from turnkeep.ledger.ledger import Contended, Ledger
from turnkeep.ledger.parsing import conversation_record, turn_record
from turnkeep.ledger.records import FLOWCHART_V1, Ask, ConversationRecord, RequestRecord, Status, TurnRecord
from turnkeep.ledger.store import Delete, Get, Item, ItemStore, Put, Query, Unavailable, Update
from turnkeep.messages import shown_count
from turnkeep.usecases.closing import closed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.ledger.hydrate import Hydrated
    from turnkeep.ledger.store import Check, Page, Read, Result, Write

NOW_MS = 1_700_000_000_000
LEASE_MS = 40_000
DAY_S = 86_400


def noise(characters: int) -> str:
    """Text of three bytes a character that hardly gets smaller."""
    return _noise()[:characters]


@cache
def _noise() -> str:
    rand = random.Random(1)
    return "".join(chr(rand.randrange(0x4E00, 0x9FFF)) for _ in range(400_000))


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answered(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class Bench:
    """One conversation on a ledger, at a time that stands still."""

    def __init__(self, store: ItemStore) -> None:
        self.store = store
        self.clock = ManualClock(wall_ms=NOW_MS)
        self.ledger = Ledger(store, self.clock)
        self.key = ConversationKey(f"c-{uuid.uuid4().hex}", "acme")

    def seen_by(self, store: ItemStore, *, ahead_ms: int = 0) -> Ledger:
        """The same conversation through another store, or by a clock that is ahead."""
        return Ledger(store, ManualClock(wall_ms=self.clock.wall_ms + ahead_ms))

    # --- moves, as the use cases make them ----------------------------------------------------------------------

    def look(self, **facts: Any) -> Hydrated:
        return self.ledger.hydrate(self.key, **facts)

    def running(self, turn: int | None = None, text: str = "hello", **facts: Any) -> TurnRecord:
        """A turn as somebody who reads the conversation now would claim it."""
        found = self.look(history=False)
        turns = found.turns()
        last = turns[-1] if turns else None
        record = TurnRecord(
            key=self.key,
            turn=found.highest + 1 if turn is None else turn,
            status=Status.RUNNING,
            epoch=found.epoch or uuid.uuid4().hex[:16],
            run_id=f"run-{self.clock.wall_ms}-{uuid.uuid4().hex[:16]}",
            lease_until_ms=self.clock.wall_ms + LEASE_MS,
            principal="ann",
            previous=last.turn if last is not None else 0,
            started_at_ms=self.clock.wall_ms,
            base_count=0 if last is None else last.base_count + last.shown_count,
            user=said(text),
        )
        return replace(record, **facts)

    def claim(self, record: TurnRecord | None = None, **facts: Any) -> TurnRecord:
        """Claims a turn, and says so where somebody else has it."""
        record = record or self.running(**facts)
        won = self.ledger.claim(record, stored=self.look(history=False).highest)
        assert isinstance(won, TurnRecord), won
        return won

    def complete(self, record: TurnRecord, text: str = "hi", **facts: Any) -> TurnRecord:
        """The record as a run that answered leaves it."""
        messages = (answered(text),)
        after = replace(
            record,
            status=Status.COMPLETE,
            lease_until_ms=0,
            saved_at_ms=self.clock.wall_ms,
            messages=messages,
            shown_count=shown_count([said("-"), *messages]),
            usage={"inputTokens": 3},
            evidence={"why": text},
            agent_id="desk",
        )
        return replace(after, **facts)

    def commit(self, record: TurnRecord, after: TurnRecord | None = None) -> TurnRecord:
        return self.ledger.commit(record, after or self.complete(record), self.shown())

    def take(self, text: str = "hello", **facts: Any) -> TurnRecord:
        """A whole turn."""
        record = self.claim(text=text, **facts)
        return self.commit(record, self.complete(record, f"re: {text}"))

    def ask(self, record: TurnRecord, ask_id: str = "ask-1-x", *, expires_in_ms: int = 60_000) -> TurnRecord:
        """Commits the record as one that waits for a person, its messages and its checkpoint in segments."""
        call = {"role": "assistant", "content": "", "toolCalls": [{"id": "c1", "name": "pay", "args": {}}]}
        index = self.ledger.write_segments(record, 1, "messages", 1, [call])
        index = self.ledger.write_segments(record, index, "checkpoint", 0, {"pauseData": {"question": "Pay?"}})
        now_ms = self.clock.wall_ms
        after = replace(
            record,
            status=Status.AWAITING,
            format=FLOWCHART_V1,
            lease_until_ms=0,
            saved_at_ms=now_ms,
            segments=index - 1,
            checkpoint_segment=(record.attempt, index - 1),
            ask=Ask(ask_id, "owner", {"question": "Pay?"}, now_ms, now_ms + expires_in_ms),
            due_at_ms=now_ms + 60_000,
            shown_count=1,
        )
        return self.commit(record, after)

    def next_attempt(self, record: TurnRecord, segments: int = 0) -> TurnRecord:
        """The record as whoever takes it over holds it."""
        return replace(
            record,
            status=Status.RUNNING,
            attempt=record.attempt + 1,
            run_id=f"run-{self.clock.wall_ms}-{uuid.uuid4().hex[:16]}",
            lease_until_ms=self.clock.wall_ms + LEASE_MS,
            adopted=(*record.adopted, (record.attempt, segments)),
            segments=0,
        )

    def close_dead(self, dead: TurnRecord, ledger: Ledger | None = None, segments: int = 0) -> TurnRecord | None:
        ledger = ledger or self.ledger
        messages = ledger.messages_of([dead])[dead.turn]
        after = closed(
            dead, Status.FAILED, now_ms=self.clock.wall_ms, durable=messages, own_segments=segments, error={"code": "E"}
        )
        return ledger.close(dead, after, self.shown())

    def request(self, record: TurnRecord, hashed: str = "k" * 64, digest: str = "d" * 64) -> RequestRecord:
        return RequestRecord(hashed, record.turn, record.epoch, digest, self.clock.wall_ms // 1000 + DAY_S)

    # --- what lies there ----------------------------------------------------------------------------------------

    def turn(self, number: int) -> TurnRecord:
        return turn_record(self.item(turn_sk(number)), self.key)

    def shown(self) -> ConversationRecord | None:
        (page,) = self.store.read([Get((self.key.pk, CONVERSATION))])
        return conversation_record(page.items[0], self.key) if page.items else None

    def item(self, sk: str) -> Item:
        (page,) = self.store.read([Get((self.key.pk, sk))])
        assert page.items, sk
        return page.items[0]

    def everything(self) -> dict[str, Item]:
        (page,) = self.store.read([Query(self.key.pk, " ", "~")])
        return {str(item["sk"]): item for item in page.items}

    def history(self, **facts: Any) -> list[Any]:
        """What a reader sees: the texts of all turns that are there, in order."""
        records = [record for record in self.look(**facts).turns() if record.status is not Status.SKIPPED]
        found = self.ledger.messages_of(records)
        return [message["content"] for record in records for message in found[record.turn]]

    # --- tampering ----------------------------------------------------------------------------------------------

    def put(self, *items: Item) -> None:
        self.store.write([Put(item) for item in items])

    def put_turn(self, record: TurnRecord, **attributes: Any) -> None:
        """Puts a turn's record as it is, without asking anybody."""
        self.put({**turn_item(record), **attributes})

    def change(self, sk: str, **attributes: Any) -> None:
        self.store.write([Update((self.key.pk, sk), set=attributes)])

    def remove(self, sk: str, *names: str) -> None:
        if names:
            self.store.write([Update((self.key.pk, sk), remove=names)])
        else:
            self.store.write([Delete((self.key.pk, sk))])

    def expire(self, sk: str) -> None:
        """It may be deleted by now, and is still there."""
        self.change(sk, deleteAfter_s=self.clock.wall_ms // 1000)


class LedgerBench:
    """One store a test."""

    def make_store(self) -> ItemStore:
        raise NotImplementedError

    @pytest.fixture
    def bench(self) -> Bench:
        return Bench(self.make_store())


def lost(answer: TurnRecord | Contended) -> TurnRecord | None:
    """Who won, of a claim that lost."""
    assert isinstance(answer, Contended), answer
    return answer.winner


class Through:
    """A store in front of another one. Every call passes; subclasses change what they want."""

    def __init__(self, store: ItemStore) -> None:
        self.inner = store
        self.reads: list[Read] = []
        self.round_trips = 0

    def read(self, reads: Sequence[Read]) -> list[Page]:
        self.reads += reads
        self.round_trips += 1
        return self.inner.read(reads)

    def write(self, writes: Sequence[Write]) -> list[Result]:
        self.round_trips += 1
        return self.inner.write(writes)

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        self.round_trips += 1
        return self.inner.transact(writes)

    def delete(self, keys: Sequence[tuple[str, str]]) -> None:
        self.round_trips += 1
        self.inner.delete(keys)


class Lagging(Through):
    """Eventual queries see what ``replica`` makes of the truth."""

    def __init__(self, store: ItemStore, replica: Callable[[list[Item]], list[Item]]) -> None:
        super().__init__(store)
        self._replica = replica

    def read(self, reads: Sequence[Read]) -> list[Page]:
        pages = super().read(reads)
        return [
            replace(page, items=self._replica(page.items)) if isinstance(one, Query) and not one.consistent else page
            for one, page in zip(reads, pages, strict=True)
        ]


class Twice(Through):
    """Every write is sent twice, as by an SDK that never heard of its first try: the second answer is the one told."""

    def write(self, writes: Sequence[Write]) -> list[Result]:
        self.inner.write(writes)
        return super().write(writes)

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        self.inner.transact(writes)
        return super().transact(writes)


class Unheard(Through):
    """Writes whose key matches take place, or not, and nobody hears of it."""

    def __init__(self, store: ItemStore, matches: Callable[[str], bool], *, lands: bool = True) -> None:
        super().__init__(store)
        self._matches, self._lands = matches, lands

    def write(self, writes: Sequence[Write]) -> list[Result]:
        results: list[Result] = []
        for one in writes:
            sk = str(one.item["sk"]) if isinstance(one, Put) else one.key[1]
            unheard = self._matches(sk)
            if not unheard or self._lands:
                (result,) = super().write([one])
            results.append(Unavailable(StoreUnavailableError()) if unheard else result)
        return results
