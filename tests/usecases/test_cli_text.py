"""What the command prints of times, ids and evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.entry.doors import NOW_MS, asking, completed
from turnkeep.cli.text import iso, named, one_line, paused_rows, span, why_text
from turnkeep.ids import parse_path_id
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import Decision, PastAsk
from turnkeep.usecases.operator import PausedTurn


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0 s"), (-5, "0 s"), (59_999, "59 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_061_000, "1 d 1 h")],
)
def test_a_span_is_said_in_its_two_largest_units(duration_ms: int, text: str) -> None:
    assert span(duration_ms) == text


def test_a_time_is_said_in_utc_and_an_impossible_one_as_it_is() -> None:
    assert iso(1_700_000_000_000) == "2023-11-14T22:13:20Z"
    assert iso(10**18) == f"{10**18} ms"


@pytest.mark.parametrize("conversation_id", ["plain", "a b", "ü", "~x", "-x", " x", "a\nb", "\x1b[2J", "\0"])
def test_an_id_is_printed_so_that_it_can_be_typed(conversation_id: str) -> None:
    shown = named(conversation_id)
    assert shown.isprintable()
    assert not shown.startswith(("-", " "))
    assert (parse_path_id(shown) if shown.startswith("~") else shown) == conversation_id


def test_what_somebody_asked_cannot_move_the_cursor() -> None:
    row = PausedTurn(ConversationKey("c", "acme"), 2, "ask-2-x", "owner", "Go?\x1b[2J\nYes", NOW_MS, NOW_MS + 60_000)
    header, line = paused_rows([row], NOW_MS + 5_000)
    assert len(header) == len(line)
    assert line == ("c (acme)", "2", "ask-2-x", "owner", "5 s", "in 55 s", "Go? [2J Yes")
    assert one_line("a\tb") == "a b"


def test_an_ask_that_cannot_be_read_has_a_line_too() -> None:
    row = PausedTurn(ConversationKey("c"), 2, "", "", None, 0, 0, unreadable="ERR_UNKNOWN_FORMAT")
    assert paused_rows([row], NOW_MS)[1] == ("c", "2", "?", "?", "?", "?", "unreadable: ERR_UNKNOWN_FORMAT")


def test_why_says_what_was_called_decided_and_used() -> None:
    record = completed(
        "Done.",
        agent_id="desk",
        agent_version="2",
        evidence={
            "toolCalls": [{"name": "pay", "args": {"cents": 5}, "result": "paid\n5", "durationMs": 3}],
            "modelCalls": [{"iteration": 1, "stopReason": "end_turn"}],
            "window": {"turns": 1},
        },
        decision=Decision("ask-3-a", {"approved": True, "by": "x"}, "operator:bo", NOW_MS, "m"),
        past_asks=(PastAsk("ask-3-a", "answered", NOW_MS),),
        error={"code": "E", "message": "m"},
    )
    text = "\n".join(why_text(record))
    for part in (
        "Turn 3: complete, run run-1-x, attempt 1",
        "Agent: desk 2",
        "1. iteration 1: stopReason end_turn",
        '1. pay({"cents": 5}): result paid 5; durationMs 3',
        'window: {"turns": 1}',
        'by operator:bo: {"approved": true, "by": "x"}',
        "Asked before: ask-3-a, answered",
        "3 inputTokens, 2 outputTokens",
        "Error: E: m",
    ):
        assert part in text
    assert "Done." not in text, "what was said is not evidence"


def test_why_of_odd_evidence_is_text_all_the_same() -> None:
    odd = replace(completed(), evidence={"toolCalls": ["x", 7, {"name": None}], "modelCalls": "none", "k": "v" * 999})
    lines = why_text(odd)
    assert all(line.isprintable() for line in lines)
    assert max(len(line) for line in lines) < 300
    assert "Asks role:supervisor since" in "\n".join(why_text(asking("role:supervisor")))
