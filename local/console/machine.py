"""The paused sessions: executions, their histories, and the state machine drawn from the deployed definition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from local.console.drawing import lay_out

if TYPE_CHECKING:
    from local.console.source import Source

ENDED_SHOWN: Final = 30
PAGE: Final = 200


class Machine:
    """Reads the state machine and its executions; every method gives plain JSON values."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._drawing: dict[str, Any] | None = None
        self._inputs: dict[str, dict[str, Any]] = {}

    def drawing(self) -> dict[str, Any]:
        """Where the deployed definition's states and transitions lie on the page."""
        if self._drawing is None:
            described = self._source.client("stepfunctions").describe_state_machine(
                stateMachineArn=self._source.machine_arn
            )
            self._drawing = lay_out(json.loads(described["definition"]))
        return self._drawing

    def executions(self) -> dict[str, Any]:
        """Those that wait, the longest waiting first, and the latest that have ended."""
        waiting = [self._row(each) for each in self._list("RUNNING")]
        ended = [
            self._row(each) for status in ("SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT") for each in self._list(status)
        ]
        waiting.sort(key=lambda row: row["startedAt"])
        ended.sort(key=lambda row: row["startedAt"], reverse=True)
        return {"waiting": waiting, "ended": ended[:ENDED_SHOWN]}

    def execution(self, arn: str) -> dict[str, Any]:
        """One execution: where it stands, the path that it took, its events, each state's input and output."""
        steps = self._source.client("stepfunctions")
        described = steps.describe_execution(executionArn=arn)
        pages = steps.get_paginator("get_execution_history").paginate(
            executionArn=arn, PaginationConfig={"PageSize": PAGE}
        )
        events = [event for page in pages for event in page["events"]]
        return {
            "arn": arn,
            "name": described["name"],
            "status": described["status"],
            "startedAt": _ms(described["startDate"]),
            "stoppedAt": _ms(described["stopDate"]) if "stopDate" in described else None,
            "input": _json(described.get("input")),
            "output": _json(described.get("output")),
            "error": described.get("error"),
            "cause": described.get("cause"),
            **path_of(events, running=described["status"] == "RUNNING"),
        }

    def _list(self, status: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._source.client("stepfunctions").list_executions(
            stateMachineArn=self._source.machine_arn, statusFilter=status, maxResults=PAGE
        )["executions"]
        return found

    def _row(self, execution: dict[str, Any]) -> dict[str, Any]:
        arn = execution["executionArn"]
        if arn not in self._inputs:  # an execution's input never changes
            described = self._source.client("stepfunctions").describe_execution(executionArn=arn)
            self._inputs[arn] = _json(described["input"])
        card = self._inputs[arn]
        facts = ("pk", "conversationId", "tenant", "turn", "askId", "question", "tool", "audience", "expiresAtMs")
        return {
            "arn": arn,
            "name": execution["name"],
            "status": execution["status"],
            "startedAt": _ms(execution["startDate"]),
            **{name: card.get(name) for name in facts},
        }


def path_of(events: list[dict[str, Any]], *, running: bool) -> dict[str, Any]:
    """What a history tells: `active` (a state's name, or None), `path`, `visits` and `events`.

    Args:
        events: as `GetExecutionHistory` gives them, in order.
        running: the execution has not ended.

    Returns:
        `path` lists the states in the order in which they were entered, `visits` each of them with its input and
        output, `events` every event in one line.
    """
    visits: list[dict[str, Any]] = []
    lines = []
    for event in events:
        entered, exited = event.get("stateEnteredEventDetails"), event.get("stateExitedEventDetails")
        if entered:
            came = {"input": _json(entered.get("input")), "output": None, "enteredAt": _ms(event["timestamp"])}
            visits.append({"state": entered["name"], **came, "exitedAt": None})
        if exited and visits:
            visits[-1] |= {"output": _json(exited.get("output")), "exitedAt": _ms(event["timestamp"])}
        lines.append(_line(event, visits[-1]["state"] if visits else None))
    open_visit = visits[-1] if running and visits and visits[-1]["exitedAt"] is None else None
    return {
        "active": open_visit["state"] if open_visit else None,
        "path": [visit["state"] for visit in visits],
        "visits": visits,
        "events": lines,
    }


def _line(event: dict[str, Any], state: str | None) -> dict[str, Any]:
    details: dict[str, Any] = next((value for name, value in event.items() if name.endswith("EventDetails")), {})
    said = details.get("error") or details.get("resource") or ""
    return {
        "id": event["id"],
        "type": event["type"],
        "at": _ms(event["timestamp"]),
        "state": None if event["type"].startswith("Execution") else state,
        "said": said,
    }


def _ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)


def _json(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
