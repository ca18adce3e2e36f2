"""What `make load` measures and reads: stretches of time, rows, logs and journals, and the page that tells of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.audit import Finding, Verdict
from load.faults import died_in, faults_of, out_of_time
from load.journal import Journal, Reply, read_journal, read_lines
from load.latency import Row, percentile, rows_of
from load.layer.spans import covered
from load.plan import Plan, read_plan
from load.report import Outcome, as_page, as_text
from load.stack import load_template
from local.settings import ROOT


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair)))))
def test_what_goes_side_by_side_counts_once(spans: list[tuple[int, int]]) -> None:
    assert covered(spans) == len({moment for begin, end in spans for moment in range(begin, end)})


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 100))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[int], share: int) -> None:
    found = percentile([float(value) for value in values], share)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= share * len(values)
    assert sum(value < found for value in values) * 100 < share * len(values)


# --- rows ---------------------------------------------------------------------------------------------------


def metered(invocation: str, own_us: int, **more: int) -> dict[str, Any]:
    line = {"invocation": invocation, "own_us": own_us, "first_us": 1_000, "cpu_us": 2_000, "aws_us": 9_000}
    return line | more


def logged(invocation: str, message: str = "request", code: str = "", **notes: int) -> dict[str, Any]:
    line = {"message": message, "notes": notes} | ({"code": code} if code else {})
    return {"request_id": invocation, "function": "TurnFunction", "line": json.dumps(line)}


def called(invocation: str, at_ms: int, duration_ms: int) -> dict[str, Any]:
    return {"request_id": invocation, "at_ms": at_ms, "duration_ms": duration_ms}


def test_a_row_joins_the_meter_the_log_and_the_calls() -> None:
    meter = [metered("i-1", 10_000), metered("i-2", 30_000), metered("i-3", 20_000)]
    log = [logged("i-1", claimed=1), logged("i-2", claimed=1), logged("i-3", "resume", resumed=1)]
    # Two calls side by side, then one more.
    calls = [called("i-1", 105, 5), called("i-1", 107, 5), called("i-1", 120, 3), called("", 500, 400)]
    turn, resumed = rows_of(meter, log, calls)
    assert turn == Row("a turn, its caller waiting", 2, (10.0, 30.0, 30.0), 1.0, 2.0, 9.0, 0.0)
    assert (resumed.name, resumed.count, resumed.own_ms[0]) == ("a paused turn that goes on", 1, 20.0)
    (alone,) = rows_of(meter[:1], log[:1], calls)
    assert alone.moto_ms == 10.0


def test_a_turn_that_only_queues_is_no_turn_that_somebody_waited_for() -> None:
    rows = rows_of([metered("i-1", 1), metered("i-2", 1)], [logged("i-1", claimed=1, queued=1)], [])
    assert [(row.name, row.count) for row in rows] == [("a turn that is queued", 1)]


@pytest.mark.parametrize(
    "entry",
    [
        logged("i-1", claimed=1, takeover=1),
        logged("i-1", claimed=1, segment=2),
        logged("i-1", code="ERR_CONCURRENT_RUN", claimed=1),
        logged("i-1"),
        logged("i-2", claimed=1),  # killed before its meter wrote
        {"request_id": "i-1", "function": "TurnFunction", "line": '{"errorType": "Runtime.ExitError"}'},
        {"request_id": "i-1", "function": "TurnFunction", "line": 'what a tool printed, "message" and "notes" in it'},
    ],
)
def test_what_had_other_work_to_do_is_not_measured(entry: dict[str, Any]) -> None:
    assert rows_of([metered("i-1", 1)], [entry], []) == []


# --- logs and journals --------------------------------------------------------------------------------------


def log_entry(line: Any) -> dict[str, Any]:
    return {
        "function": "TurnFunction",
        "request_id": "i-1",
        "line": line if isinstance(line, str) else json.dumps(line),
    }


def test_deaths_that_we_made_and_errors_that_somebody_comes_again_for_are_no_faults() -> None:
    killed = {"errorType": "Runtime.ExitError", "errorMessage": "Error: Runtime exited with error: signal: killed"}
    lease = {"level": "ERROR", "message": "resume", "error": [{"class": "turnkeep.errors.LeaseHeldError"}]}
    words = "[ERROR] not a line of ours"
    out = {"errorType": "Sandbox.Timedout", "errorMessage": "Task timed out after 10.00 seconds"}
    log = [log_entry(line) for line in (killed, lease, words, out, {"level": "INFO", "message": "request"})]
    assert faults_of(log) == []
    assert out_of_time(log) == 1


def test_other_deaths_and_errors_are() -> None:
    died = {"errorType": "Runtime.ExitError", "errorMessage": "Runtime exited with error: exit status 1"}
    fault = {"level": "ERROR", "message": "request", "code": "ERR_INTERNAL", "error": [{"class": "builtins.KeyError"}]}
    found = faults_of([log_entry(line) for line in (died, fault, fault)])
    assert [finding.what for finding in found] == [
        "TurnFunction: KeyError ERR_INTERNAL (2 times)",
        "TurnFunction: Runtime.ExitError (1 times)",
    ]
    assert {finding.kind for finding in found} == {"fault"}


def test_where_somebody_died_is_told_by_what_they_asked_for() -> None:
    killed = {"errorType": "Runtime.ExitError", "errorMessage": "signal: killed"}
    late = {"message": "resume", "conversation": "c-3", "notes": {"resumed": 1, "out_of_time": 1}}
    log = [log_entry(killed), {"function": "ResumeFunction", "request_id": "i-3", "line": json.dumps(late)}]
    calls = [
        {"request_id": "i-1", "items": [["_/_/c-1", "CONVERSATION"], ["_/_/c-1", "TURN#1"]]},
        {"request_id": "i-2", "items": [["_/_/c-2", "CONVERSATION"]]},
        {"request_id": "i-1", "items": []},
    ]
    assert died_in(log, calls) == {"c-1", "c-3"}


def test_a_journal_that_was_cut_off_tells_what_was_known(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("sent", token="m-1", conversation="", kind="created", person="p", acts=True)
    journal.write("twice", token="m-1")
    journal.write("reply", token="m-1", status=500)
    told = {"turn": 1, "turn_status": "complete", "output": "done m-1", "took_ms": 12, "number": 2}
    journal.write("reply", token="m-1", status=200, conversation="c-1", **told)
    facts = {"token": "m-1", "conversation": "c-1", "ask": "ask-1", "key": "a-1", "gate": "question"}
    journal.write("answer", approved=None, status=202, code="", **facts)
    with path.open("ab") as file:
        file.write(b'{"event": "ended", "token": "m-')
    (message,), (answer,) = read_journal(read_lines(path))
    assert (message.conversation, message.twice, message.is_accepted, message.fate) == ("c-1", True, True, "")
    assert message.replies == [Reply(500), Reply(200, "", 1, "complete", "done m-1", 12, 2)]
    assert (answer.is_accepted, answer.gate) == (True, "question")
    assert read_lines(tmp_path / "none.jsonl") == []


# --- the template, the plan, the report ---------------------------------------------------------------------


def test_the_template_that_is_driven_is_the_one_that_ships_but_for_three_lines() -> None:
    ships = (ROOT / "template.yaml").read_text(encoding="utf-8")
    driven = load_template(ships).replace(f"{ROOT}/", "")
    changed = [(old, new) for old, new in zip(ships.split("\n"), driven.split("\n"), strict=True) if old != new]
    assert [(old.strip(), new.strip()) for old, new in changed] == [
        ("Handler: app.handler", "Handler: metered.handler"),
        ("Timeout: 29", "Timeout: 10"),
        ("ContentUri: layers/agent", "ContentUri: load/layer"),
    ]
    with pytest.raises(ValueError, match="0 lines like 'Timeout: 29'"):
        load_template(ships.replace("Timeout: 29", "Timeout: 28"))


def test_a_plan_comes_from_the_environment_that_make_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOAD_S": "30", "LOAD_USERS": "4", "LOAD_KILLS": "0.2", "LOAD_PAGE": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOAD_SEED", raising=False)
    assert read_plan([]) == Plan(load_s=30, people=4, kill_share=0.2)
    assert read_plan(["--people", "2", "--page", "it.md"]) == Plan(30, 2, 0.2, 1, Path("it.md"))
    with pytest.raises(SystemExit):
        read_plan(["--kills", "2"])


def outcome(*findings: Finding, answered: int = 40, troubles: tuple[str, ...] = ()) -> Outcome:
    verdict = Verdict(findings=list(findings), sent=50, answered=answered, conversations=7)
    verdict.refused["ERR_CONCURRENT_RUN"] = 3
    row = Row("a turn, its caller waiting", 20, (50.0, 60.0, 70.0), 30.0, 40.0, 25.0, 12.0)
    killed = Counter({"TurnFunction": 5})
    return Outcome(Plan(), verdict, killed, 0, 3, 1, [row], [100, 200], 12.0, list(troubles))


def test_a_report_says_first_what_a_person_wants_to_know() -> None:
    text = as_text(outcome())
    assert text.endswith("lost 0, doubled 0, stuck 0, faults 0: holds")
    assert "turns answered            40" in text
    assert "ERR_CONCURRENT_RUN 3" in text
    assert "TurnFunction 5" in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize(
    "broken",
    [
        outcome(Finding("lost", "gone", "m-1", "c-1", 2)),
        outcome(answered=0),
        outcome(troubles=("Locust ended with 1: it could not",)),
    ],
)
def test_a_run_that_does_not_hold_says_so(broken: Outcome) -> None:
    assert not broken.holds
    assert "DOES NOT HOLD" in as_text(broken)


def test_what_was_found_is_named_and_many_findings_are_cut() -> None:
    text = as_text(outcome(*(Finding("doubled", f"it acted {times} times", "m-1") for times in range(2, 32))))
    assert "lost 0, doubled 30, stuck 0, faults 0: DOES NOT HOLD\n  doubled: it acted 2 times · m-1" in text
    assert text.endswith("and 10 more")


def test_the_page_has_what_the_terminal_has() -> None:
    page = as_page(outcome())
    assert "`make load LOAD_S=60 LOAD_USERS=5 LOAD_KILLS=0.15 LOAD_PAGE=docs/load.md`" in page
    assert "**Lost 0, doubled 0, stuck 0, faults 0.**" in page
    assert "| refused, by name | ERR_CONCURRENT_RUN 3 |" in page
    assert "| a turn, its caller waiting | 20 | 50 | 60 | 70 | 30 | 40 | 25 | 12 |" in page
    assert "{" not in page
