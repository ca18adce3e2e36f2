"""Whatever a release has stored, today's code reads as that release did, and goes on from it."""

from __future__ import annotations

from typing import Any

import pytest

import refund_desk
from tests.history.record import STORIES, SUPERVISOR, YES, expectation, tell
from tests.history.stored import CHECKSUMS, HERE, History, checksums, from_json, histories, to_json
from tests.usecases.workshop import ALICE, KEY, Workshop, key_of
from turnkeep.errors import AwaitingDecisionError, ConcurrentRunError, SessionNotFoundError
from turnkeep.ledger.keys import CONVERSATION
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Put
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.erase import LONGEST_LEASE_MS, erase_as_operator
from turnkeep.usecases.reconcile import reconcile
from turnkeep.usecases.resume_turn import resume_turn
from turnkeep.usecases.work_queue import work_queue

HISTORIES = histories()
each = pytest.mark.parametrize("history", HISTORIES, ids=lambda one: f"{one.path.parent.name}/{one.path.stem}")


def opened(history: History) -> Workshop:
    """A deployment of today that finds the history in its table."""
    shop = Workshop(refund_desk.build, store=history.table()).with_settings(allow_anonymous=True)
    shop.hand.wall_ms = history.now_ms
    shop.random_id = lambda size: f"today-{shop.clock.now_ms()}-{len(shop.probes)}"
    return shop


def named(name: str) -> list[Any]:
    return [pytest.param(one, id=one.path.parent.name) for one in HISTORIES if one.path.stem == name]


# --- read as it was -----------------------------------------------------------------------------------------


@each
def test_it_is_read_as_its_release_read_it(history: History) -> None:
    assert expectation(history.table(), history.now_ms) == history.expect


@each
def test_an_attribute_that_nobody_knows_is_in_nobodys_way(history: History) -> None:
    table = history.table()
    table.write([Put({**item, "laterAttribute": "x", "laterNumber": 7}) for item in history.items])
    assert expectation(table, history.now_ms) == history.expect


def test_every_kind_of_item_and_every_status_is_among_them() -> None:
    for release in sorted({one.path.parent for one in HISTORIES}):
        items = [item for one in HISTORIES if one.path.parent == release for item in one.items]
        kinds = {str(item["sk"]).split("#")[0] for item in items}
        assert {CONVERSATION, "TURN", "SEG", "REQUEST", "ONCE", "ANSWER"} <= kinds
        statuses = {item["status"] for item in items if str(item["sk"]).startswith("TURN#")}
        assert statuses >= {status.value for status in Status} - {Status.REFUSED.value}
        assert {item["format"] for item in items} >= {
            "conversation-v1", "flowchart-v1", "skipped-v1", "segment-v1", "request-v1", "once-v1", "answer-v1",
        }  # fmt: skip
        assert {item["kind"] for item in items if "kind" in item} >= {"messages", "checkpoint", "envelope"}
        assert any(item.get("parts", 1) > 1 for item in items if str(item["sk"]).startswith("SEG#")), "one in parts"
        assert any(isinstance(value, bytes) for item in items for value in item.values()), "some of it deflated"


def test_they_have_not_changed() -> None:
    folders = sorted(path for path in HERE.iterdir() if (path / CHECKSUMS).exists())
    assert folders
    for folder in folders:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
        assert {line.split("  ")[1]: line.split("  ")[0] for line in lines} == checksums(folder)


@each
def test_an_item_survives_its_file(history: History) -> None:
    for item in history.items:
        assert from_json(to_json(item)) == item


@pytest.mark.parametrize("name", STORIES)
def test_every_story_is_told_by_todays_code_too(name: str) -> None:
    """Else nobody would notice that the next recording lacks one."""
    shop = tell(STORIES[name])
    assert expectation(shop.memory, shop.clock.now_ms())
    assert any(one.path.stem == name for one in HISTORIES), "record it: see README.md"


# --- and gone on from ---------------------------------------------------------------------------------------

OPEN = {"awaiting", "answered", "large-decision", "imported-pause", "queued", "died", "erasing"}


@each
def test_a_conversation_that_has_ended_its_turns_continues(history: History) -> None:
    if history.path.stem in OPEN:
        return  # each has a test of its own below
    shop = opened(history)
    highest = max([turn for turn, *_ in history.expect["turns"]], default=0)
    done = shop.take("thanks", caller=Caller(history.expect["owner"]))
    assert (done.turn, done.status) == (highest + 1, Status.COMPLETE)
    for item in history.items:
        if str(item["sk"]) != CONVERSATION:
            assert item in shop.items(), "what has ended is never written again"


@pytest.mark.parametrize("history", named("awaiting"))
def test_an_ask_that_waited_is_answered_and_gone_on_from(history: History) -> None:
    shop = opened(history)
    with pytest.raises(AwaitingDecisionError):
        shop.take("hello?")
    ask = shop.turn(1).ask
    assert ask is not None
    until = FixedDeadline.after(shop.clock, 30_000)
    answer_ask(shop.deps(), SUPERVISOR, KEY, ask_id=ask.ask_id, decision=YES, deadline=until)
    resumed = resume_turn(shop.deps(), KEY, 1, ask.ask_id, deadline=until).record
    assert resumed is not None
    assert (resumed.status, resumed.output) == (Status.COMPLETE, "Order B-200 is refunded: 250.00.")


@pytest.mark.parametrize("history", [*named("answered"), *named("large-decision")])
def test_an_answer_that_was_recorded_is_taken_up(history: History) -> None:
    shop = opened(history)
    decision = shop.turn(1).decision
    assert decision is not None
    with pytest.raises(ConcurrentRunError):
        shop.take("hello?")
    until = FixedDeadline.after(shop.clock, 30_000)
    resumed = resume_turn(shop.deps(), KEY, 1, decision.ask_id, deadline=until).record
    assert resumed is not None
    assert (resumed.status, resumed.output) == (Status.COMPLETE, "Order B-200 is refunded: 250.00.")


@pytest.mark.parametrize("history", named("queued"))
def test_a_queued_turn_is_run(history: History) -> None:
    shop = opened(history)
    done = work_queue(shop.deps(), KEY, deadline=FixedDeadline.after(shop.clock, 60_000))
    assert done is not None
    assert (done.turn, done.status) == (2, Status.COMPLETE)


@pytest.mark.parametrize("history", named("died"))
def test_a_turn_whose_process_is_gone_is_closed_by_the_next_message(history: History) -> None:
    shop = opened(history)
    shop.pass_ms(60_000)
    assert shop.take("thanks").turn == 2
    assert shop.turn(1).status is Status.FAILED


@pytest.mark.parametrize("history", named("tool-calls"))
def test_a_request_that_comes_again_gets_the_turn_that_it_became(history: History) -> None:
    shop = opened(history)
    again = shop.take("Where is order A-100?", idempotency=key_of("k"))
    assert (again.turn, again.status) == (1, Status.COMPLETE)
    assert shop.items() == sorted(history.items, key=lambda item: (item["pk"], item["sk"]))


@pytest.mark.parametrize("history", named("erasing"))
def test_an_erasure_that_was_under_way_is_carried_out(history: History) -> None:
    shop = opened(history)
    with pytest.raises(SessionNotFoundError):
        shop.take("hello?")
    shop.pass_ms(LONGEST_LEASE_MS)
    reconcile(shop.deps(), deadline=FixedDeadline.after(shop.clock, 60_000))
    assert shop.items() == []


@each
def test_it_can_be_erased(history: History) -> None:
    shop = opened(history)
    erase_as_operator(shop.deps(), KEY, deadline=FixedDeadline.after(shop.clock, 60_000))
    assert [item["sk"] for item in shop.items()] == [CONVERSATION]
    with pytest.raises(SessionNotFoundError):
        shop.take("hello?", caller=ALICE)
