"""Pages: every row once, in one order, however many there are; what has expired is on none of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import refund_desk
from tests.usecases.envelopes import envelope, said, user
from tests.usecases.rows import row
from tests.usecases.workshop import ALICE, BOB, KEY, Workshop, answer, doing, noise, saying
from turnkeep.errors import SessionNotFoundError, SessionOpNeedsIdentityError, TurnkeepError, TurnNotFoundError
from turnkeep.ledger.keys import CONVERSATION, ConversationKey
from turnkeep.ledger.store import Delete, Item, Put, Update
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.import_conversation import import_conversation
from turnkeep.usecases.listing import list_asks, list_conversations
from turnkeep.usecases.operator import list_paused
from turnkeep.usecases.read import read_conversation, read_evidence, read_transcript, read_turn, read_turns
from turnkeep.usecases.reconcile import reconcile
from turnkeep.usecases.withdraw import withdraw_turn

DAY_MS = 86_400_000
SUPERVISOR = Caller("sue", None, frozenset({"supervisor"}))


def listed(shop: Workshop, caller: Caller = ALICE, limit: int = 100) -> list[list[str]]:
    """The ids on all pages of a caller's listing."""
    pages: list[list[str]] = []
    after: Item | None = None
    while True:
        records, after = list_conversations(shop.deps(), caller, after=after, limit=limit)
        pages.append([record.key.conversation_id for record in records])
        if after is None:
            return pages


# --- a person's conversations -------------------------------------------------------------------------------


def test_ten_thousand_conversations_page_through_once_each_newest_first() -> None:
    shop = Workshop()
    # A tenth of them share their time with nine others.
    shop.memory.write([Put(row(f"c{number:05d}", 1_000 + number // 10)) for number in range(10_000)])
    shop.memory.write([Put(row(f"other{number}", 5_000, owner="bob")) for number in range(50)])
    pages = listed(shop)
    assert [len(page) for page in pages] == [100] * 100, "no empty page at the end"
    ids = [one for page in pages for one in page]
    assert len(set(ids)) == len(ids) == 10_000
    assert [int(one[1:]) // 10 for one in ids] == sorted((number // 10 for number in range(10_000)), reverse=True)
    again = [one for page in listed(shop, limit=77) for one in page]
    assert again == ids, "ties have one order, whatever the pages' size"


def test_what_comes_or_moves_while_somebody_pages_doubles_and_hides_nothing_else() -> None:
    shop = Workshop()
    shop.memory.write([Put(row(f"c{number}", number)) for number in range(10)])
    first, after = list_conversations(shop.deps(), ALICE, after=None, limit=4)
    shop.memory.write([Put(row("new", 99)), Put(row("c2", 98)), Delete((ConversationKey("c6").pk, CONVERSATION))])
    rest, _ = list_conversations(shop.deps(), ALICE, after=after, limit=100)
    assert [record.key.conversation_id for record in first] == ["c9", "c8", "c7", "c6"]
    assert [record.key.conversation_id for record in rest] == ["c5", "c4", "c3", "c1", "c0"]


def test_a_listing_is_the_callers_own_in_their_tenant() -> None:
    shop = Workshop()
    shop.memory.write([Put(row("a", 1)), Put(row("b", 2, owner="bob")), Put(row("c", 3, tenant="acme"))])
    assert listed(shop) == [["a"]]
    assert listed(shop, Caller("alice", "acme")) == [["c"]]
    assert listed(shop, Caller("Alice")) == [[]]
    with pytest.raises(SessionOpNeedsIdentityError):
        listed(shop, Caller())


def test_a_listing_leaves_out_what_cannot_be_read_and_goes_on() -> None:
    shop = Workshop()
    shop.memory.write([Put(row(f"c{number}", number)) for number in range(6)])
    broken: list[dict[str, Any]] = [{"format": "conversation-v9"}, {"messageCount": "many"}, {"deleteAfter_s": 1}]
    for number, damage in enumerate(broken, 1):
        shop.memory.write([Update((ConversationKey(f"c{number}").pk, CONVERSATION), set=damage)])
    assert [one for page in listed(shop, limit=2) for one in page] == ["c5", "c4", "c0"]


# --- a long conversation ------------------------------------------------------------------------------------


def transcript(shop: Workshop, limit: int, max_bytes: int = 10**6) -> tuple[list[dict[str, Any]], list[int]]:
    """All pages of a transcript, joined, and the size of each."""
    messages: list[dict[str, Any]] = []
    sizes: list[int] = []
    after: tuple[int, int] | None = None
    while True:
        page, after = read_transcript(shop.deps(), ALICE, KEY, after=after, limit=limit, max_bytes=max_bytes)
        messages += page
        sizes.append(len(page))
        if after is None:
            return messages, sizes


def test_a_long_transcript_pages_through_once_in_stored_order() -> None:
    shop = Workshop()
    history = [one for number in range(700) for one in (user(f"q{number}"), said(f"a{number}"))]
    import_conversation(shop.deps(), envelope(*history), conversation_id="c-1")
    for limit in (1_000, 99, 7):
        messages, sizes = transcript(shop, limit)
        assert messages == history
        assert all(size == limit for size in sizes[:-1])


def test_a_transcript_shows_texts_only_of_turns_of_every_kind_in_segments_or_not() -> None:
    def long(context: Any) -> Any:
        exchange = [
            {"role": "assistant", "content": "", "toolCalls": [{"id": "1", "name": "t", "args": {}}]},
            {"role": "tool", "content": noise(150_000), "toolCallId": "1"},
        ]
        return answer(context, noise(100_000, 2), *exchange)

    def fails(context: Any) -> Any:
        raise ValueError("no")

    shop = Workshop(saying("Hello."))
    shop.take("one")
    shop.take("two", factory=doing(long))
    with pytest.raises(TurnkeepError):
        shop.take("three", factory=doing(fails))
    shop.take("four", host_turn=9)
    shop.take_and_die("claimed", "five")
    expected = [
        user("one"), said("Hello."), user("two"), said(noise(100_000, 2)), user("three"), user("four"), said("Hello."),
        user("five"),
    ]  # fmt: skip
    for limit in (1, 2, 100):
        assert transcript(shop, limit)[0] == expected
    assert transcript(shop, 100, max_bytes=400)[1] == [3, 1, 4], "a page ends at its size; one message always fits"
    records, following = read_turns(shop.deps(), ALICE, KEY, after=None, limit=100)
    assert following is None
    assert [record.turn for record in records] == [1, 2, 3, 9, 10], "a skipped number is no turn"
    assert records[1].output == noise(100_000, 2), "its output lies in a segment"


def test_turns_page_through_once() -> None:
    shop = Workshop()
    history = [one for number in range(123) for one in (user(f"q{number}"), said(f"a{number}"))]
    import_conversation(shop.deps(), envelope(*history), conversation_id="c-1")
    seen: list[int] = []
    after: int | None = None
    while True:
        records, after = read_turns(shop.deps(), ALICE, KEY, after=after, limit=50)
        seen += [record.turn for record in records]
        if after is None:
            break
    assert seen == list(range(1, 124))


# --- what has expired ---------------------------------------------------------------------------------------


def test_what_has_expired_is_absent_at_every_door_whatever_dynamodb_still_holds() -> None:
    shop = Workshop(refund_desk.build).with_settings(retention_days=1, ask_expires_s=60)
    ask = shop.take("Refund order B-200, please").ask
    assert ask is not None
    shop.pass_ms(3 * DAY_MS)
    items = shop.items()
    deps, until = shop.deps(), FixedDeadline.after(shop.clock, 60_000)
    doors: list[Any] = [
        lambda: read_conversation(deps, ALICE, KEY),
        lambda: read_turn(deps, ALICE, KEY, 1),
        lambda: read_turns(deps, ALICE, KEY, after=None, limit=9),
        lambda: read_transcript(deps, ALICE, KEY, after=None, limit=9, max_bytes=99),
        lambda: read_evidence(deps, ALICE, KEY, 1),
        lambda: answer_ask(deps, SUPERVISOR, KEY, ask_id=ask.ask_id, decision=1, deadline=until),
        lambda: withdraw_turn(deps, ALICE, KEY, 1, deadline=until),
        lambda: erase_conversation(deps, ALICE, KEY, deadline=until),
        lambda: export_conversation(deps, KEY),
    ]
    for door in doors:
        with pytest.raises(SessionNotFoundError):
            door()
    assert list_conversations(deps, ALICE, after=None, limit=9) == ([], None)
    assert list_asks(deps, SUPERVISOR, after=None, limit=9, max_bytes=10**6) == ([], None)
    assert list_paused(deps) == []
    reconcile(deps, deadline=until)
    assert shop.items() == items, "it is DynamoDB's to delete"
    done = shop.take("mine", caller=BOB, factory=saying("Hello."))
    assert (done.turn, done.principal) == (1, "bob"), "its numbers and its id are free"
    assert read_transcript(deps, BOB, KEY, after=None, limit=9, max_bytes=999)[0] == [user("mine"), said("Hello.")]


def test_turns_that_have_expired_fill_no_page_and_hide_no_later_one() -> None:
    shop = Workshop(saying("Hello."))
    history = [one for number in range(230) for one in (user(f"q{number}"), said(f"a{number}"))]
    import_conversation(shop.deps(), envelope(*history), conversation_id="c-1")
    now_s = shop.clock.now_ms() // 1000
    for number in range(1, 229):
        shop.memory.write([Update((KEY.pk, f"TURN#{number:016d}"), set={"deleteAfter_s": now_s})])
    assert transcript(shop, 10)[0] == history[-4:]
    records, following = read_turns(shop.deps(), ALICE, KEY, after=None, limit=20)
    assert [record.turn for record in records] == [229, 230]
    assert following is None
    with pytest.raises(TurnNotFoundError):
        read_turn(shop.deps(), ALICE, KEY, 5)
    seen: list[Any] = []

    def work(context: Any) -> Any:
        seen.extend(context.history)
        return answer(context, "fine")

    assert shop.take("next", factory=doing(work)).turn == 231
    assert seen == history[-4:]
    assert export_conversation(shop.deps(), KEY)["data"]["history"] == [*history[-4:], user("next"), said("fine")]


def test_a_conversation_lives_as_long_as_its_newest_turn() -> None:
    shop = Workshop(saying("Hello.")).with_settings(retention_days=2)
    shop.take("one")
    shop.pass_ms(DAY_MS)
    shop.take("two")
    shop.pass_ms(int(1.5 * DAY_MS))
    assert transcript(shop, 9)[0] == [user("two"), said("Hello.")]
    assert listed(shop) == [["c-1"]]
    assert shop.take("three").turn == 3
    shop.settings = replace(shop.settings, retention_days=0)
    assert read_conversation(shop.deps(), ALICE, KEY).record.turn == 3
