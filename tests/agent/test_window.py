"""Windows cut whole turns, oldest first, and say what they cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.support import Watching, by_step, turn
from turnkeep.agent import Agent, TurnInfo, Window, agent_factory
from turnkeep.agent.window import estimated_tokens, last_turns_of

HISTORY: list[dict[str, Any]] = [
    message
    for number in range(5)
    for message in (
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": f"answer {number}"},
    )
]


@pytest.mark.parametrize(("last", "turns"), [(None, 5), (0, 0), (2, 2), (5, 5), (9, 5)])
def test_last_turns_keeps_the_newest(last: int | None, turns: int) -> None:
    kept = Window(last_turns=last).cut(HISTORY)
    assert kept.messages == HISTORY[len(HISTORY) - 2 * turns :]
    assert (kept.turns, kept.left_out_turns, kept.left_out_messages) == (turns, 5 - turns, 10 - 2 * turns)


def test_a_budget_keeps_as_many_whole_turns_as_fit() -> None:
    one_turn = estimated_tokens(HISTORY[:2])
    assert Window(token_budget=2 * one_turn).cut(HISTORY).messages == HISTORY[-4:]
    assert Window(token_budget=2 * one_turn - 1).cut(HISTORY).messages == HISTORY[-2:]
    assert Window(token_budget=0).cut(HISTORY).messages == []


def test_turns_are_what_the_ledger_says_they_are() -> None:
    """A dead turn of one message, and a turn that two user messages belong to, are one turn each."""
    sizes = [1, 3, 6]
    kept = Window(last_turns=2).cut(HISTORY, sizes)
    assert (kept.messages, kept.left_out_turns, kept.left_out_messages) == (HISTORY[1:], 1, 1)


@given(st.lists(st.integers(1, 4), max_size=6), st.none() | st.integers(0, 7), st.none() | st.integers(0, 300))
def test_a_window_keeps_a_suffix_of_whole_turns_inside_its_bounds(
    sizes: list[int], last: int | None, budget: int | None
) -> None:
    history = [{"role": "user", "content": "x" * number} for number in range(sum(sizes))]
    kept = Window(last, budget).cut(history, sizes)
    assert kept.messages == history[len(history) - len(kept.messages) :]
    assert len(kept.messages) == sum(sizes[len(sizes) - kept.turns :])
    assert kept.turns + kept.left_out_turns == len(sizes)
    assert kept.left_out_messages == len(history) - len(kept.messages)
    assert last is None or kept.turns <= last
    assert budget is None or sum(estimated_tokens([m]) for m in kept.messages) - len(kept.messages) < max(budget, 1)


def test_the_turn_that_runs_is_always_whole() -> None:
    provider = Watching(lambda scene: "ok")
    Agent(provider=provider, window=Window(last_turns=1, token_budget=100)).run(
        turn("now " * 500, history=HISTORY).context
    )
    assert [m["content"][:10] for m in provider.requests[0].messages] == ["question 4", "answer 4", "now now no"]


def test_bounds_below_zero_are_refused() -> None:
    for bounds in ({"last_turns": -1}, {"token_budget": -1}, {"last_turns": True}):
        with pytest.raises(ValueError, match="0 or more"):
            Window(**bounds)
    with pytest.raises(ValueError, match="0 or more"):
        agent_factory(last_turns=-1)


def test_a_marked_factory_says_how_much_to_read() -> None:
    @agent_factory(last_turns=20)
    def build(info: TurnInfo) -> Agent:
        return Agent(provider=by_step("ok"))

    def plain(info: TurnInfo) -> Agent:
        return Agent(provider=by_step("ok"))

    assert (last_turns_of(build), last_turns_of(plain)) == (20, None)
    assert getattr(build, "turnkeep_last_turns", None) == 20
