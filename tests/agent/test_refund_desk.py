"""The example that ships: what it says, does and asks, by the message's text alone."""

from __future__ import annotations

from typing import Any

import pytest

import refund_desk
from tests.agent.support import INFO, DictOnce, Recorded, answered, asked, stored, turn
from turnkeep.decisions import approved, declined, question_of


def say(text: str, history: list[dict[str, Any]] | None = None) -> Recorded:
    return turn(text, history=history, once=DictOnce())


def reply(text: str, history: list[dict[str, Any]] | None = None) -> str:
    return answered(refund_desk.build(INFO).run(say(text, history).context)).output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Where is order A-100?", "Order A-100 is a desk lamp for 20.00; it was delivered on Monday."),
        ("where is a-100", "Order A-100 is a desk lamp for 20.00; it was delivered on Monday."),
        ("Status of B200, please", "Order B-200 is an office chair for 250.00; it is on its way and arrives tomorrow."),
        ("Where is order Z-999?", "There is no order Z-999."),
        ("Refund order A-100, please", "Order A-100 is refunded: 20.00."),
        ("i want my money back for a-100", "Order A-100 is refunded: 20.00."),
        ("Please refund Z-999", "There is no order Z-999, so nothing was refunded."),
        ("I want a refund", "Which order shall I refund? Its number looks like A-100."),
        ("Where is my order?", "Which order do you mean? Its number looks like A-100."),
        ("Thanks a lot!", "You are welcome. Come back whenever you need me."),
        ("Hello", refund_desk.GREETING),
        ("", f"I did not understand that. {refund_desk.HELP}"),
        ("Sing me a song", f"I did not understand that. {refund_desk.HELP}"),
    ],
)
def test_it_answers(text: str, said: str) -> None:
    assert reply(text) == said


def test_two_orders_in_one_message_are_looked_up_in_the_order_of_the_message() -> None:
    said = reply("Where are B-200 and A-100 and b-200?")
    assert said.index("office chair") < said.index("desk lamp")
    assert said.count("office chair") == 1


def test_a_large_refund_asks_a_supervisor_and_pays_when_approved() -> None:
    paused = asked(refund_desk.build(INFO).run(say("Refund order B-200, please").context))
    assert paused.audience == "role:supervisor"
    assert question_of(paused.pause_data) == "Pays an order's price back to the customer. — with order_id=B-200"
    context = turn(messages=stored(paused.messages), once=DictOnce()).context
    outcome = answered(refund_desk.build(INFO).resume(context, stored(paused.checkpoint), approved("sue", now_ms=1)))
    assert outcome.output == "Order B-200 is refunded: 250.00."


@pytest.mark.parametrize(("note", "said"), [("over the limit", " They say: over the limit"), (None, "")])
def test_a_declined_refund_is_told_with_its_reason(note: str | None, said: str) -> None:
    paused = asked(refund_desk.build(INFO).run(say("Refund B-200").context))
    context = turn(messages=stored(paused.messages), once=DictOnce()).context
    outcome = refund_desk.build(INFO).resume(context, stored(paused.checkpoint), declined("sue", note, now_ms=1))
    assert answered(outcome).output == f"I am sorry, a supervisor declined the refund of order B-200.{said}"


def test_a_small_and_a_large_refund_in_one_message() -> None:
    paused = asked(refund_desk.build(INFO).run(say("Refund A-100 and B-200").context))
    assert [m["content"] for m in paused.messages if m["role"] == "tool"] == ["Order A-100 is refunded: 20.00."]
    assert paused.pause_data["checkIn"]["args"] == {"order_id": "B-200"}


def test_an_order_is_refunded_once_in_a_conversation() -> None:
    first = answered(refund_desk.build(INFO).run(say("Refund A-100").context))
    assert reply("Refund A-100 again", first.messages) == (
        "Already done: A-100 was refunded earlier in this conversation."
    )
    paused = asked(refund_desk.build(INFO).run(say("Refund A-100 and B-200", first.messages).context))
    assert [one["name"] for one in paused.messages[1]["toolCalls"]] == ["refund"]
    declined_before: list[dict[str, Any]] = [
        {"role": "user", "content": "Refund A-100"},
        {
            "role": "assistant",
            "content": "",
            "toolCalls": [{"id": "x", "name": "refund", "args": {"order_id": "A-100"}}],
        },
        {"role": "tool", "content": "declined by human", "toolCallId": "x"},
    ]
    assert reply("Refund A-100", declined_before) == "Order A-100 is refunded: 20.00."


def test_after_a_turn_that_died_the_new_message_is_the_one_that_counts() -> None:
    died = [{"role": "user", "content": "Refund order B-200, please"}]
    assert reply("Hello", died) == refund_desk.GREETING


def test_each_turn_has_an_agent_of_its_own() -> None:
    assert refund_desk.build(INFO) is not refund_desk.build(INFO)
    assert refund_desk.build(INFO).agent_id == "refund-desk"
