"""The page as a person uses it: in Chromium, against a real stack."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from local.console.page import Page as Console
from local.stack import LocalStack

pytestmark = [pytest.mark.browser, pytest.mark.process]

LOOK_UP = "Where is order A-100?"
REFUND = "Refund order B-200, please"
FOUND = "Order A-100 is a desk lamp for 20.00; it was delivered on Monday."
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def fresh(name: str) -> str:
    return f"{name}-{secrets.token_hex(3)}"


def begin(page: Any, name: str, message: str, button: str = "#send") -> None:
    page.click("#new")
    page.fill("#new-id", name)
    say(page, message, button)
    page.wait_for_selector(f"h2:text-is({json.dumps(name)})")


def say(page: Any, message: str, button: str = "#send") -> None:
    page.fill("#message", message)
    page.click(button)
    page.wait_for_selector("#send:enabled")


def turn(page: Any, number: int) -> Any:
    return page.locator(f'.turn[data-turn="{number}"]')


def become(page: Any, label: str) -> None:
    page.select_option("#me", label=label)


def test_a_pause_is_answered_from_the_page_and_the_drawing_follows(open_page: Any) -> None:
    page = open_page()
    name = fresh("pause")
    begin(page, name, LOOK_UP)
    first = turn(page, 1)
    first.locator(".badge", has_text="complete").wait_for()
    header = first.locator("header").inner_text()
    assert "Turn 1" in header
    assert "attempt 1" in header
    assert re.search(r"\d+ (ms|s)\b", header)
    assert "6 store calls" in header
    assert first.locator(".bubble.from-assistant .text").last.inner_text() == FOUND

    say(page, REFUND)
    turn(page, 2).locator(".ask").wait_for()
    # The owner's own word does not count for an ask that is for a role; what the API says is shown as it says it.
    form = turn(page, 2).locator("form.answer-form")
    form.locator("select").select_option(label="carla")
    form.get_by_role("button", name="Approve").click()
    form.locator(".reply.bad").wait_for()
    assert "403 ERR_NOT_YOURS_TO_ANSWER" in form.locator(".reply.bad").inner_text()
    say(page, "And another thing")
    assert "409 ERR_AWAITING_DECISION" in page.locator("#told .reply").inner_text()

    page.click("nav [data-view=paused]")
    waiting = page.locator(f'.waiting[data-conversation="{name}"]')
    waiting.wait_for()
    assert "order_id=B-200" in waiting.inner_text()
    assert "role:supervisor" in waiting.inner_text()
    assert "expires in 7 days" in waiting.inner_text()
    waiting.locator("a.pick").click()
    active = page.locator(".state.active")
    active.wait_for()
    assert active.get_attribute("data-state") == "AwaitAnswer"
    page.get_by_role("img", name=re.compile("active state is AwaitAnswer")).wait_for()
    assert f'"conversationId": "{name}"' in page.locator(".detail pre").first.inner_text()
    assert page.locator(".events li").count() >= 5

    waiting.locator("form select").select_option(label="sam (supervisor)")
    waiting.locator("form input").fill("a regular customer")
    waiting.get_by_role("button", name="Approve").click()
    # By itself: nobody loads anything anew.
    page.locator(".detail .is-succeeded").wait_for()
    assert page.locator(".state.active").count() == 0
    visited = page.locator(".state.visited").evaluate_all("all => all.map(each => each.dataset.state).sort()")
    assert visited == ["AwaitAnswer", "Done", "Outcome", "Resume"]
    ways = "all => all.map(each => `${each.dataset.from} ${each.dataset.to}`).sort()"
    assert page.locator(".transition.taken").evaluate_all(ways) == [
        "AwaitAnswer Resume",
        "Outcome Done",
        "Resume Outcome",
    ]
    waiting.wait_for(state="detached")


def test_why_an_answer_came_about_with_a_link_to_each_message(open_page: Any) -> None:
    page = open_page()
    name = fresh("why")
    begin(page, name, REFUND)
    form = turn(page, 1).locator("form.answer-form")
    form.locator("input").fill("a regular customer")
    form.get_by_role("button", name="Approve").click()
    turn(page, 1).locator(".is-complete").wait_for()
    turn(page, 1).locator("header a").click()
    trail = page.locator(".trail")
    trail.locator(".step.answer", has_text="Order B-200 is refunded: 250.00.").wait_for()
    assert "approved by a person" in trail.inner_text()
    assert '"note": "a regular customer"' in trail.inner_text()
    trail.locator(".step.tool a.ref").click()
    page.locator("#msg-1-2:focus").wait_for()
    assert "Order B-200 is refunded" in page.locator("#msg-1-2").inner_text()


def test_ten_submits_of_one_turn_have_one_winner(open_page: Any) -> None:
    page = open_page()
    begin(page, fresh("ten"), LOOK_UP)
    say(page, LOOK_UP, "#contest")
    page.locator(".contest").wait_for()
    assert page.locator(".lanes .won").all_inner_texts() == [page.locator(".lanes .won").inner_text()]
    assert "won turn 2" in page.locator(".lanes .won").inner_text()
    lost = page.locator(".lanes .lost").all_inner_texts()
    assert len(lost) == 9
    assert all("409 ERR_CONCURRENT_RUN" in each for each in lost)
    turn(page, 2).locator(".is-complete").wait_for()
    assert page.locator(".turn").count() == 2


def test_a_killed_process_loses_nothing(open_page: Any) -> None:
    page = open_page()
    begin(page, fresh("kill"), LOOK_UP)
    say(page, "Where is order B-200?", "#kill")
    told = page.locator(".killed")
    told.wait_for()
    assert re.search(r"Process \d+ was killed in the middle of turn 2", told.inner_text())
    assert "500 Internal Server Error" in told.inner_text()
    turn(page, 2).locator(".is-running").wait_for()
    assert turn(page, 2).locator(".from-user .text").inner_text() == "Where is order B-200?"

    page.click("#new-message")
    told.locator(".reply", has_text="ERR_CONCURRENT_RUN").wait_for()
    page.click("#lease-over")
    turn(page, 2).locator(".is-stalled").wait_for()
    page.click("#same-again")
    told.locator(".reply.good", has_text="200 complete").wait_for()
    turn(page, 2).locator(".is-complete").wait_for()
    assert "attempt 2" in turn(page, 2).locator("header").inner_text()
    assert page.locator(".turn").count() == 2


def test_the_ledger_shows_its_items_what_they_cost_and_what_they_make(open_page: Any, tmp_path: Path) -> None:
    page = open_page()
    name = fresh("ledger")
    begin(page, name, LOOK_UP)
    for _ in range(3):
        say(page, LOOK_UP)
    page.click("nav [data-view=ledger]")
    page.wait_for_selector(".plot")
    keys = page.locator(".item summary code").all_inner_texts()
    assert keys == ["CONVERSATION", *(f"TURN#{number:016d}" for number in (1, 2, 3, 4))]
    second = page.locator(".item", has=page.locator(f"code:text-is('{keys[2]}')"))
    second.locator("summary").click()
    assert FOUND in second.locator("dl").inner_text()
    page.check("input[value=raw]")
    second.locator("dd", has_text='{"S":"complete"}').wait_for()
    assert FOUND not in second.locator("dl").inner_text()  # deflated

    heights = page.locator(".plot .bar").evaluate_all("all => all.map(each => each.getAttribute('height'))")
    assert len(heights) == 4
    assert len(set(heights)) == 1  # flat
    page.locator(".envelope summary").click()
    shown = json.loads(page.locator(".envelope pre").inner_text())
    assert shown["format"] == "conversation-v1"
    with page.expect_download() as download:
        page.click("#export")
    saved = tmp_path / "export.json"
    download.value.save_as(saved)
    assert json.loads(saved.read_text()) == shown
    assert len(shown["data"]["history"]) == 16


def test_by_keyboard_alone(open_page: Any) -> None:
    page = open_page()
    page.wait_for_selector("#message")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "message"
    page.keyboard.type(REFUND)
    page.keyboard.press("Control+Enter")
    page.locator(".ask").wait_for()
    page.wait_for_selector("#send:enabled")
    # Backwards from the message to the ask's first button.
    for _ in range(12):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Decline":
            break
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "Approve"
    page.keyboard.press("Space")
    page.locator(".turn .is-complete").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("2")
    page.wait_for_selector(".state.visited")
    page.keyboard.press("3")
    page.wait_for_selector(".plot")
    page.keyboard.press("4")
    page.wait_for_selector(".step.answer")


def test_two_people_at_once_see_each_other_s_turns_and_are_kept_apart(open_page: Any) -> None:
    carla, dan = open_page(), open_page()
    name = fresh("two")
    begin(carla, name, LOOK_UP)
    become(dan, "dan")
    dan.locator(".list a.pick", has_text=name).click()
    turn(dan, 1).wait_for()
    say(dan, "Let me in")
    assert "404 ERR_SESSION_NOT_FOUND" in dan.locator("#told .reply").inner_text()
    dan.fill("#message", "half a sentence")
    say(carla, REFUND)
    form = turn(dan, 2).locator("form.answer-form")  # came by itself
    form.locator("input").fill("not before Friday")
    dan.wait_for_timeout(1_500)  # a round of drawing
    assert dan.input_value("#message") == "half a sentence"
    assert form.locator("input").input_value() == "not before Friday"
    form.get_by_role("button", name="Decline").click()
    turn(carla, 2).locator(".is-complete").wait_for()
    last = turn(carla, 2).locator(".from-assistant .text").last.inner_text()
    assert last.endswith("They say: not before Friday")


def test_hostile_text_is_text(open_page: Any) -> None:
    page = open_page()
    name = fresh("x") + HOSTILE
    begin(page, name, f"Refund order B-200 {HOSTILE}")
    turn(page, 1).locator(".ask").wait_for()
    assert turn(page, 1).locator(".from-user .text").inner_text() == f"Refund order B-200 {HOSTILE}"
    for view in ("paused", "ledger", "why"):
        page.click(f"nav [data-view={view}]")
        page.locator("a.pick .id", has_text=name).first.wait_for()
    page.locator("blockquote", has_text=HOSTILE).first.wait_for()
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0  # and no dialog: see open_page


def test_a_phone_and_the_dark(open_page: Any) -> None:
    page = open_page(color_scheme="dark")
    begin(page, fresh("phone"), REFUND)
    page.set_viewport_size({"width": 360, "height": 740})
    for view in ("chat", "paused", "ledger", "why"):
        page.click(f"nav [data-view={view}]")
        page.wait_for_selector({"chat": ".ask", "paused": ".state.active", "ledger": ".plot", "why": ".step"}[view])
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(each => each < 60)")
        assert dark, view


def test_it_says_what_failed_when_the_stack_is_gone(browser: Any, tmp_path: Path) -> None:
    toy = Path(__file__).parent.parent / "local" / "toy" / "template.yaml"
    with LocalStack(template=toy, state_dir=tmp_path) as stack:
        console = Console(stack.api_url, stack.aws_url, state_dir=tmp_path)
        console.start()
    page = browser.new_page()
    page.goto(console.url)
    page.locator("#gone", has_text="The local stack is gone").wait_for()
    assert stack.aws_url in page.inner_text("#gone")
    assert "make run" in page.inner_text("#gone")
    console.stop()
    page.context.set_offline(True)  # the connections that stand would be served on
    page.locator("#gone", has_text="This page's server does not answer").wait_for()
    page.close()
