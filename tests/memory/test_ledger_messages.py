"""The ledger's messages as entries: what references name, in order, the owner's only, and nothing stored twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.usecases.workshop import BOB, NOBODY, Workshop, answer, called, doing, noise
from turnkeep.errors import InvalidRequestError, RunFailedError
from turnkeep.ledger.ledger import Ledger
from turnkeep.memory.in_memory import InMemoryMemoryStore
from turnkeep.memory.ledger_messages import LedgerMessages
from turnkeep.turns import resolve_turn_number

ALICES = {"principal": "alice", "conversationId": "c-1"}


def view(shop: Workshop) -> LedgerMessages:
    return LedgerMessages(Ledger(shop.store, shop.clock))


def ids(view: LedgerMessages, **options: Any) -> list[str]:
    return [entry["id"] for entry in view.list(ALICES, **options).entries]


@pytest.fixture
def shop() -> Workshop:
    """Three turns: the second one with a tool call, the third one failed behind one."""
    shop = Workshop()
    shop.take("one")
    shop.take("two", factory=doing(lambda context: answer(context, "ok", *called("look", {"n": 1}))))

    def dies(context: Any) -> Any:
        context.commit([*context.messages, *called("look", {"n": 2})], 2)
        raise ValueError

    with pytest.raises(RunFailedError):
        shop.take("three", factory=doing(dies))
    return shop


def test_every_stored_message_has_its_reference_newest_first(shop: Workshop) -> None:
    assert ids(view(shop)) == [
        *("msg-3-2", "msg-3-1", "msg-3-0", "msg-2-3", "msg-2-2", "msg-2-1", "msg-2-0", "msg-1-1", "msg-1-0"),
    ]
    for turn in (1, 2, 3):
        for index, message in enumerate(shop.said(turn)):
            found = view(shop).get(ALICES, f"msg-{turn}-{index}")
            assert found is not None
            assert found["value"] == message
            assert found["source"] == {"turn": turn, "identity": ALICES}
            assert found["createdAt"] == shop.turn(turn).saved_at_ms


@pytest.mark.parametrize("entry_id", ["msg-1-2", "msg-4-0", "msg-01-0", "beat-1-0", "snap-1", "", "x"])
def test_what_is_no_stored_message_is_none(shop: Workshop, entry_id: str) -> None:
    assert view(shop).get(ALICES, entry_id) is None


@pytest.mark.parametrize(
    "stranger",
    [
        {"principal": "bob", "conversationId": "c-1"},
        {"conversationId": "c-1"},
        {"principal": "alice", "conversationId": "c-2"},
        {"principal": "alice", "conversationId": "c-1", "tenant": "acme"},
        {"principal": "alice"},
    ],
)
def test_to_another_identity_there_is_nothing(shop: Workshop, stranger: dict[str, str]) -> None:
    assert view(shop).get(stranger, "msg-1-0") is None
    assert view(shop).list(stranger).entries == []
    assert view(shop).highest_turn(stranger) == 0


def test_a_conversation_that_nobody_owns_is_nobodys(shop: Workshop) -> None:
    other = Workshop().with_settings(allow_anonymous=True)
    other.take("hello", caller=NOBODY)
    assert view(other).get({"conversationId": "c-1"}, "msg-1-0") is not None
    assert view(other).get(ALICES, "msg-1-0") is None


def test_pages_are_all_messages_each_once(shop: Workshop) -> None:
    everything = ids(view(shop))
    for limit in (1, 2, 4, 9, 10):
        listed: list[str] = []
        cursor = None
        while True:
            page = view(shop).list(ALICES, limit=limit, cursor=cursor)
            assert len(page.entries) <= limit
            listed += [entry["id"] for entry in page.entries]
            cursor = page.cursor
            if cursor is None:
                break
        assert listed == everything


def test_a_foreign_cursor_is_refused(shop: Workshop) -> None:
    mine = view(shop).list(ALICES, limit=1).cursor
    assert mine is not None
    with pytest.raises(InvalidRequestError):
        view(shop).list({"principal": BOB.principal, "conversationId": "c-1"}, cursor=mine)
    with pytest.raises(InvalidRequestError):
        view(shop).list(ALICES, cursor="x")


def test_a_long_conversation_is_read_no_further_than_the_page() -> None:
    shop = Workshop()
    for number in range(60):
        shop.take(f"message {number}")
    before = shop.memory.round_trips
    assert ids(view(shop), limit=3) == ["msg-60-1", "msg-60-0", "msg-59-1"]
    assert shop.memory.round_trips - before == 2
    assert len(ids(view(shop), limit=1000)) == 120


def test_messages_in_segments_are_entries_too_and_nothing_is_stored_by_looking() -> None:
    shop = Workshop(doing(lambda context: answer(context, noise(120_000))))
    shop.take("much")
    before = shop.items()
    found = view(shop).get(ALICES, "msg-1-1")
    assert found is not None
    assert found["value"]["content"] == noise(120_000)
    assert shop.items() == before


def test_an_entry_goes_when_its_turn_goes() -> None:
    shop = Workshop().with_settings(retention_days=1)
    shop.take("one")
    (newest, _) = view(shop).list(ALICES).entries
    assert newest["ttl"] == (shop.turn(1).delete_after_s or 0) * 1000
    shop.pass_ms(2 * 86_400_000)
    assert view(shop).list(ALICES).entries == []
    assert view(shop).get(ALICES, "msg-1-0") is None


def test_an_open_turn_has_no_entries_yet(shop: Workshop) -> None:
    shop.take_and_die(message="four")
    assert view(shop).get(ALICES, "msg-4-0") is None
    assert ids(view(shop))[0] == "msg-3-2"


def test_the_view_tells_the_next_turns_number_without_being_scanned(shop: Workshop) -> None:
    beside = InMemoryMemoryStore(shop.clock)
    assert resolve_turn_number([view(shop), beside], ALICES) == 4
