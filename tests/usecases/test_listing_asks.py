"""The open asks that somebody may answer: whole for their audience, in pages that end by number and by size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.workshop import ALICE, Workshop, doing, noise
from turnkeep.agent.port import Asked
from turnkeep.decisions import question_of
from turnkeep.ledger.keys import ConversationKey
from turnkeep.usecases.deps import Caller
from turnkeep.usecases.listing import ASKS_AT_ONCE, list_asks

if TYPE_CHECKING:
    from turnkeep.agent.port import Outcome, TurnContext
    from turnkeep.ledger.records import TurnRecord

SUE = Caller("sue", roles=frozenset({"supervisor"}))


def asks(detail: str) -> Workshop:
    def work(context: TurnContext) -> Outcome:
        pause_data = {"toolCallId": "call-1", "toolName": "ask", "question": "Which?", "detail": detail}
        call = {"role": "assistant", "content": "", "toolCalls": [{"id": "call-1", "name": "ask", "args": {}}]}
        return Asked(pause_data, {"at": 1}, [*context.messages, call], iteration=1, audience="role:supervisor")

    return Workshop(doing(work))


def asked(shop: Workshop, count: int) -> None:
    for number in range(count):
        shop.pass_ms(1_000)
        shop.take(key=ConversationKey(f"c-{number}"), caller=ALICE)


def pages(shop: Workshop, *, limit: int = 50, max_bytes: int = 4_000_000) -> list[list[TurnRecord]]:
    found: list[list[TurnRecord]] = []
    after: Any = None
    while True:
        page, after = list_asks(shop.deps(), SUE, after=after, limit=limit, max_bytes=max_bytes)
        found.append(page)
        if after is None:
            return found


def ids(found: list[list[TurnRecord]]) -> list[str]:
    return [record.key.conversation_id for page in found for record in page]


def test_a_large_ask_is_shown_whole_to_those_who_answer_it() -> None:
    detail = noise(20_000)
    shop = asks(detail)
    asked(shop, 2)
    assert [shop.turn(1, ConversationKey(f"c-{n}")).ask.whole for n in (0, 1)] == [False, False]  # type: ignore[union-attr]
    deps = shop.deps()
    before = shop.memory.round_trips
    records, following = list_asks(deps, SUE, after=None, limit=50, max_bytes=4_000_000)
    assert [record.ask.pause_data["detail"] for record in records if record.ask] == [detail, detail]
    assert following is None
    assert shop.memory.round_trips - before == 3  # the index, the records, the checkpoints of all of them


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_lose_none_and_show_none_twice(limit: int) -> None:
    shop = asks("small")
    asked(shop, 7)
    found = pages(shop, limit=limit)
    assert ids(found) == [f"c-{number}" for number in range(7)]
    assert {len(page) for page in found[:-1]} <= {limit}
    assert found[-1]


def test_more_asks_than_are_read_at_a_time() -> None:
    shop = asks("small")
    asked(shop, 2 * ASKS_AT_ONCE + 3)
    assert [len(page) for page in pages(shop)] == [2 * ASKS_AT_ONCE + 3]


def test_a_page_ends_by_its_size() -> None:
    shop = asks("x" * 40_000)
    asked(shop, 5)
    found = pages(shop, max_bytes=200_000)
    assert [len(page) for page in found] == [2, 2, 1]
    assert ids(found) == [f"c-{number}" for number in range(5)]
    assert [len(page) for page in pages(shop, max_bytes=10)] == [1] * 5


def test_an_ask_whose_checkpoint_cannot_be_read_asks_all_the_same() -> None:
    shop = asks(noise(20_000))
    asked(shop, 2)
    for item in shop.items("SEG#"):
        if str(item["pk"]).endswith("c-0"):
            shop.memory.delete([(str(item["pk"]), str(item["sk"]))])
    (page,) = pages(shop)
    found = [record.ask for record in page if record.ask]
    assert [ask.whole for ask in found] == [False, True]
    assert {question_of(ask.pending) for ask in found} == {"Which?"}


def test_what_was_answered_or_expired_is_on_no_page() -> None:
    shop = asks("small")
    asked(shop, 2)
    first = shop.turn(1, ConversationKey("c-0"))
    assert first.ask is not None
    shop.pass_ms(first.ask.expires_at_ms - shop.clock.now_ms())
    assert ids(pages(shop)) == ["c-1"]


def test_a_role_holder_is_not_asked_in_their_own_conversation() -> None:
    shop = asks("small")
    shop.take(key=ConversationKey("mine"), caller=SUE)
    shop.take(key=ConversationKey("theirs"), caller=ALICE)
    assert ids(pages(shop)) == ["theirs"]
    nobody = replace(SUE, roles=frozenset())
    assert list_asks(shop.deps(), nobody, after=None, limit=5, max_bytes=1)[0] == []
