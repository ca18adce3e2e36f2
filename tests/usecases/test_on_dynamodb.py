"""What the other tests show on the table in memory holds on DynamoDB too, as moto plays it."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

import refund_desk
from tests.usecases.doors import DOORS, check_one_owner, race
from tests.usecases.dynamo import REGION, OneAtATime, client_config, item_store, make_table
from tests.usecases.envelopes import FIXTURES, ODD, envelope, fixture, said, user
from tests.usecases.rows import row
from tests.usecases.workshop import ALICE, BOB, KEY, Workshop, noise, saying
from turnkeep.clock import SystemClock
from turnkeep.envelope import envelope_owner
from turnkeep.errors import ForeignPauseError, SessionNotFoundError, SessionOwnershipConflictError
from turnkeep.json_values import same_json
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.store import Put, Query
from turnkeep.sessions import SessionStore
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.erase import LONGEST_LEASE_MS, erase_as_operator, erase_conversation
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.import_conversation import import_conversation
from turnkeep.usecases.listing import list_conversations
from turnkeep.usecases.operator import answer_as_operator, list_paused
from turnkeep.usecases.read import read_transcript
from turnkeep.usecases.reconcile import reconcile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnkeep.ledger.store import Item

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with mock_aws():
        yield OneAtATime(
            boto3.client(
                "dynamodb",
                region_name=REGION,
                aws_access_key_id="a",
                aws_secret_access_key="b",
                config=client_config(),
            )
        )


@pytest.fixture
def table(client: Any) -> Iterator[Any]:
    name = f"Ledger-{next(_numbers)}"
    make_table(client, name)
    yield item_store(client, name)
    client.delete_table(TableName=name)


def items(table: Any, key: ConversationKey = KEY) -> list[Item]:
    (page,) = table.read([Query(key.pk, "!", "~")])
    found: list[Item] = page.items
    return found


def test_envelopes_come_in_and_go_out_the_same(table: Any) -> None:
    shop = Workshop(store=table)
    values = {name: fixture(name) for name in FIXTURES[::3]} | ODD
    values["large"] = envelope(user(noise(20_000)), said(noise(180_000, 2)), folded=[noise(20_000, 3)])
    values["long"] = envelope(*[one for number in range(120) for one in (user(f"q{number}"), said("a"))])
    for name, value in values.items():
        done = import_conversation(shop.deps(), value, conversation_id=name)
        assert same_json(export_conversation(shop.deps(), done.conversation.key), value), name


def test_sessions_come_back_the_same_and_are_replaced_and_extended(table: Any) -> None:
    store = SessionStore(Ledger(table, SystemClock()))
    for name, value in {name: fixture(name) for name in FIXTURES[:6]}.items():
        owner = envelope_owner(value)
        store.persist(name, envelope(user("before"), said("this"), principal=owner))
        store.persist(name, value)
        assert same_json(store.hydrate(name), value)
    longer = envelope(*[one for number in range(200) for one in (user(f"q{number}"), said("a"))])
    store.persist("long", envelope(user("q0"), said("a")))
    store.persist("long", longer)
    assert same_json(store.hydrate("long"), longer)


def test_first_writers_of_a_session_leave_one_owner_with_one_conversation(table: Any) -> None:
    for round_number in range(3):
        outcomes: dict[str, bool] = {}
        barrier = threading.Barrier(4)
        session_id = f"s{round_number}"

        def write(name: str, outcomes: dict[str, bool], barrier: threading.Barrier, session_id: str) -> None:
            store = SessionStore(Ledger(table, SystemClock()))
            barrier.wait()
            try:
                store.persist(session_id, envelope(user(name), principal=name))
                outcomes[name] = True
            except SessionOwnershipConflictError:
                outcomes[name] = False

        threads = [
            threading.Thread(target=write, args=(f"p{number}", outcomes, barrier, session_id)) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [name for name, stored in outcomes.items() if stored]
        assert len(outcomes) == 4
        store = SessionStore(Ledger(table, SystemClock()))
        assert store.owner_of(session_id) == winner
        assert same_json(store.hydrate(session_id), envelope(user(winner), principal=winner))


@pytest.mark.parametrize("name", ["message", "create"])
def test_the_first_of_many_signers_owns(table: Any, name: str) -> None:
    for number in range(3):
        key = ConversationKey(f"{name}-{number}")
        stores = [table] * 4
        outcomes = race(lambda deps, who, until, key=key: DOORS[name](deps, who, key, "", until), stores)
        check_one_owner(table, outcomes, key)


def test_an_ask_is_listed_answered_and_refused_by_an_operator(table: Any) -> None:
    shop = Workshop(refund_desk.build, store=table, clock=SystemClock())
    shop.take("Refund order B-200, please")
    import_conversation(shop.deps(), fixture("d-paused-checkin.json"), conversation_id="foreign")
    rows = {row.key.conversation_id: row for row in list_paused(shop.deps())}
    assert set(rows) == {"c-1", "foreign"}
    assert rows["foreign"].question == "Order invented seed packets — with packets=3"
    decision = {"approved": True, "by": "op"}
    record = answer_as_operator(shop.deps(), KEY, ask_id=rows["c-1"].ask_id, decision=decision, operator="ops")
    assert record.decision is not None
    assert (record.decision.answered_by, record.decision.value) == ("operator:ops", decision)
    with pytest.raises(ForeignPauseError):
        answer_as_operator(
            shop.deps(), rows["foreign"].key, ask_id=rows["foreign"].ask_id, decision=decision, operator="ops"
        )
    assert {one.key.conversation_id for one in list_paused(shop.deps())} == {"foreign"}


def test_erasure_takes_all_of_it_in_two_passes(table: Any) -> None:
    shop = Workshop(saying("Hello."), store=table)
    shop.take("one")
    shop.take("two", factory=saying(noise(150_000)))
    with pytest.raises(SessionNotFoundError):
        erase_conversation(shop.deps(), BOB, KEY, deadline=FixedDeadline.after(shop.clock, 60_000))
    erased = erase_conversation(shop.deps(), ALICE, KEY, deadline=FixedDeadline.after(shop.clock, 60_000))
    assert erased.done
    assert [item["sk"] for item in items(table)] == ["CONVERSATION"]
    assert list_conversations(shop.deps(), ALICE, after=None, limit=9) == ([], None)
    with pytest.raises(SessionNotFoundError):
        shop.take("three")
    shop.pass_ms(LONGEST_LEASE_MS)
    reconcile(shop.deps(), deadline=FixedDeadline.after(shop.clock, 60_000))
    assert items(table) == []
    with pytest.raises(SessionNotFoundError):
        erase_as_operator(shop.deps(), KEY, deadline=FixedDeadline.after(shop.clock, 60_000))
    assert shop.take("anew", caller=BOB).turn == 1


def test_three_hundred_conversations_page_through_once_each(table: Any) -> None:
    table.write([Put(row(f"c{number}", 1_000 + number // 7)) for number in range(300)])
    shop = Workshop(store=table)
    seen: list[tuple[int, str]] = []
    after: Item | None = None
    while True:
        records, after = list_conversations(shop.deps(), ALICE, after=after, limit=23)
        seen += [(record.saved_at_ms, record.key.conversation_id) for record in records]
        if after is None:
            break
        assert len(records) == 23
    assert len(seen) == len(set(seen)) == 300
    assert [saved_at for saved_at, _ in seen] == sorted((saved_at for saved_at, _ in seen), reverse=True)


def test_a_transcript_pages_through_once(table: Any) -> None:
    shop = Workshop(store=table)
    history = [one for number in range(130) for one in (user(f"q{number}"), said(f"a{number}"))]
    import_conversation(shop.deps(), envelope(*history), conversation_id="c-1")
    seen: list[Any] = []
    after: tuple[int, int] | None = None
    while True:
        page, after = read_transcript(shop.deps(), ALICE, KEY, after=after, limit=31, max_bytes=10**6)
        seen += page
        if after is None:
            break
    assert seen == history
