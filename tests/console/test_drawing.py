"""Where the states lie: the deployed definition, and shapes that it does not have today."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

from local.console.drawing import lay_out
from local.console.machine import Machine, path_of
from local.console.source import Source

if TYPE_CHECKING:
    from local.stack import LocalStack

START = datetime(2026, 1, 1, tzinfo=UTC)


def state(kind: str, **facts: Any) -> dict[str, Any]:
    return {"Type": kind, **facts}


def boxes(drawing: dict[str, Any]) -> dict[str, tuple[float, float, float, float]]:
    return {
        each["name"]: (each["x"], each["y"], each["x"] + each["width"], each["y"] + each["height"])
        for each in drawing["states"]
    }


def check(drawing: dict[str, Any]) -> None:
    """No two boxes overlap, none lies outside, no straight piece of a line crosses a box."""
    found = boxes(drawing)
    for one, other in combinations(found.values(), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for left, top, right, bottom in found.values():
        assert left >= 0
        assert top >= 0
        assert right <= drawing["width"]
        assert bottom <= drawing["height"]
    for way in drawing["transitions"]:
        for x, y in way["points"][1:-1]:
            for left, top, right, bottom in found.values():
                assert not (left < x < right and top < y < bottom)


def test_the_deployed_definition_is_drawn_whole(stack: LocalStack) -> None:
    drawing = Machine(Source(stack.api_url, stack.aws_url)).drawing()
    check(drawing)
    assert drawing["start"] == "AwaitAnswer"
    ways = {(each["source"], each["target"]) for each in drawing["transitions"]}
    assert {("AwaitAnswer", "Resume"), ("AwaitAnswer", "CheckAsk"), ("AwaitAnswer", "ExpireAsk")} <= ways
    assert {("Outcome", "Done"), ("Outcome", "AwaitAnswer"), ("Resume", "MarkFailed")} <= ways
    back = [(each["source"], each["target"]) for each in drawing["transitions"] if each["back"]]
    assert back == [("Outcome", "AwaitAnswer")]
    catches = {each["target"] for each in drawing["transitions"] if each["kinds"] == ["catch"]}
    assert catches == {"CheckAsk", "ExpireAsk", "MarkFailed"}


def test_loops_shortcuts_and_what_nothing_leads_to() -> None:
    definition = {
        "StartAt": "A",
        "States": {
            "A": state("Task", Next="B", Catch=[{"ErrorEquals": ["States.ALL"], "Next": "D"}]),
            "B": state("Choice", Choices=[{"Next": "B"}, {"Next": "A"}, {"Next": "C"}], Default="D"),
            "C": state("Task", Next="D"),
            "D": state("Succeed"),
            "Alone": state("Fail"),
        },
    }
    drawing = lay_out(definition)
    check(drawing)
    assert {(each["source"], each["target"]) for each in drawing["transitions"] if each["back"]} == {
        ("B", "B"),
        ("B", "A"),
    }
    found = boxes(drawing)
    assert found["A"][1] < found["B"][1] < found["C"][1] < found["D"][1]


def event(number: int, kind: str, **details: Any) -> dict[str, Any]:
    return {"id": number, "type": kind, "timestamp": START + timedelta(seconds=number), **details}


def entered(number: int, name: str) -> dict[str, Any]:
    return event(number, "TaskStateEntered", stateEnteredEventDetails={"name": name, "input": '{"n": 1}'})


def exited(number: int, name: str) -> dict[str, Any]:
    return event(number, "TaskStateExited", stateExitedEventDetails={"name": name, "output": "not JSON"})


def test_a_history_tells_the_path_and_where_it_stands() -> None:
    history = [event(1, "ExecutionStarted"), entered(2, "A"), exited(3, "A"), entered(4, "B")]
    running = path_of(history, running=True)
    assert running["active"] == "B"
    assert running["path"] == ["A", "B"]
    assert running["visits"][0]["input"] == {"n": 1}
    assert running["visits"][0]["output"] == "not JSON"
    assert running["visits"][1]["exitedAt"] is None
    assert [line["state"] for line in running["events"]] == [None, "A", "A", "B"]
    assert path_of(history, running=False)["active"] is None  # stopped while it waited
    assert path_of([], running=True) == {"active": None, "path": [], "visits": [], "events": []}
