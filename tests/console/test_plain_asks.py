"""An ask that is no gate: a question with a component, answered in words by the conversation's owner or by anybody."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from local.console.page import Page as Console
from local.settings import ROOT
from local.stack import LocalStack
from tests.console.conftest import pages_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.browser, pytest.mark.process]

AGENT = '''
from turnkeep.agent import Agent, ScriptedProvider, ToolContext, call, tool


@tool
def choose_colour(context: ToolContext) -> str:
    """Asks which colour it shall be."""
    context.ask("Which colour?", component={"componentId": "colour-picker", "props": {"colours": ["red", "blue"]}})


def build(turn):
    answer = lambda scene: f"It will be {scene.results[0].content}." if scene.results else [call("choose_colour")]
    return Agent(agent_id="painter", agent_version="1", tools=[choose_colour], provider=ScriptedProvider(answer))
'''


@pytest.fixture
def open_painter(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Pages of a stack whose agent asks in plain words: the checkout's template with another agent layer."""
    for name in ("functions", "statemachines"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "layers" / "agent").mkdir(parents=True)
    (tmp_path / "layers" / "turnkeep").symlink_to(ROOT / "layers" / "turnkeep")
    (tmp_path / "layers" / "agent" / "painter.py").write_text(AGENT)
    template = shutil.copy(ROOT / "template.yaml", tmp_path / "template.yaml")
    state_dir = tmp_path / "state"
    parameters = {"AgentFactory": "painter:build"}
    with LocalStack(template=tmp_path / template, state_dir=state_dir, parameters=parameters) as stack:
        console = Console(stack.api_url, stack.aws_url, state_dir=state_dir)
        console.start()
        with pages_of(browser, console) as open_one:
            yield open_one
        console.stop()


@pytest.mark.parametrize("person", ["carla", "anonymous"])
def test_a_question_is_answered_in_words(open_painter: Any, person: str) -> None:
    page = open_painter()
    assert "Say something below" in page.locator(".turns .empty").inner_text()
    page.select_option("#me", label=person)
    page.fill("#message", "Paint it")
    page.click("#send")
    ask = page.locator(".ask")
    ask.wait_for()
    assert "Which colour?" in ask.inner_text()
    assert "colour-picker" in ask.inner_text()
    assert '"blue"' in ask.inner_text()
    assert ask.locator("select").evaluate("each => each.selectedOptions[0].textContent") == person
    assert ask.get_by_role("button", name="Approve").count() == 0
    ask.get_by_role("button", name="Answer").click()
    assert ask.locator("input:invalid").count() == 1  # nothing is sent without words
    ask.locator("input").fill("blue <b>")
    page.keyboard.press("Enter")
    page.locator(".turn .is-complete").wait_for()
    assert page.locator(".from-assistant .text").last.inner_text() == "It will be blue <b>."
