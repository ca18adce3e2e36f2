"""One conversation on the local stack: its people over HTTP, its records, its executions, and time made short.

Time passes by hand where that is honest: a due time or a lease is set into the past, as if so many seconds had gone by.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from local.demo import Reply, request

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.stack import LocalStack

T = TypeVar("T")
PATIENCE_S = 15.0
YES = {"approved": True, "by": "sam"}


class Door(Protocol):
    """Where a person sends requests to, such as a stack."""

    @property
    def api_url(self) -> str: ...


@dataclass
class Person:
    """Somebody with a token (or without one), and every reply that they ever got."""

    stack: Door
    token: str | None
    heard: list[str] = field(default_factory=list)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> Reply:
        """One request; a header's name is written with underscores."""
        sent = {"content-type": "application/json"}
        if self.token is not None:
            sent["authorization"] = f"Bearer {self.token}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        reply = request(f"{self.stack.api_url}{path}", method, body, sent)
        self.heard.append(json.dumps(reply.body))
        return reply


class Conversation:
    """A conversation of its own, so that tests do not meet."""

    def __init__(self, stack: LocalStack, name: str) -> None:
        self.stack = stack
        self.id = f"{name}-{uuid.uuid4().hex[:8]}"
        self.owner = Person(stack, stack.token("alice"))
        self.supervisor = Person(stack, stack.token("sam", roles=["supervisor"]))
        self.tokens: set[str] = set()
        self._outputs = stack.deployment()["outputs"]
        self._dynamo = stack.client("dynamodb")
        self._steps = stack.client("stepfunctions")
        self._logged = len(stack.logs())

    # --- over HTTP ------------------------------------------------------------------------------------------

    def say(self, message: str, **headers: str) -> Reply:
        return self.owner.call("POST", f"/conversations/{self.id}/turns", {"message": message}, **headers)

    def answer(self, ask_id: str, decision: Any = YES, *, who: Person | None = None, **headers: str) -> Reply:
        body = {"askId": ask_id, "decision": decision}
        return (who or self.supervisor).call("POST", f"/conversations/{self.id}/answers", body, **headers)

    def turn(self, number: int = 1) -> dict[str, Any]:
        return self.owner.call("GET", f"/conversations/{self.id}/turns/{number}").body

    def until(self, status: str, number: int = 1, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The turn over HTTP, once it stands so; waited for at the table, as every request costs a process."""

        def stands() -> bool | None:
            return self.item(number).get("status", {}).get("S") == status or None

        wait_for(stands, f"turn {number} of {self.id} is {status}", within_s)
        turn = self.turn(number)
        assert turn.get("status") == status, turn
        return turn

    # --- behind it ------------------------------------------------------------------------------------------

    def item(self, number: int = 1) -> dict[str, Any]:
        """The turn's record."""
        found = self._dynamo.get_item(TableName=self._outputs["TableName"], Key=self._key(number), ConsistentRead=True)
        item: dict[str, Any] = found.get("Item", {})
        return item

    def token(self, number: int = 1, *, other_than: str = "") -> str:
        """The task token of the execution that waits, once it is there."""

        def look() -> str | None:
            found = str(self.item(number).get("taskToken", {}).get("S", ""))
            return found if found not in ("", other_than) else None

        token = wait_for(look, f"{self.id} has its token")
        self.tokens.add(token)
        return token

    def pass_time(self, number: int = 1, *names: str) -> None:
        """What the record says is due (or leased) until some time is over."""
        for name in names or ("dueAt",):
            self._dynamo.update_item(
                TableName=self._outputs["TableName"],
                Key=self._key(number),
                UpdateExpression="SET #n = :past",
                ConditionExpression="attribute_exists(#n)",
                ExpressionAttributeNames={"#n": name},
                ExpressionAttributeValues={":past": {"N": "1"}},
            )

    def reconcile(self, number: int = 1) -> None:
        """A minute passes and the schedule fires."""
        self.pass_time(number)
        assert self.stack.fire("ReconcileFunction")

    def executions(self) -> list[dict[str, Any]]:
        """This conversation's executions, oldest first, each as it is described."""
        pages = self._steps.get_paginator("list_executions").paginate(stateMachineArn=self._outputs["PausedRunArn"])
        names = [one["executionArn"] for page in pages for one in page["executions"] if self.id[:24] in one["name"]]
        found = [self._steps.describe_execution(executionArn=arn) for arn in names]
        return sorted(found, key=lambda one: (one["startDate"], one["name"]))

    def ended(self) -> list[str]:
        """The executions' statuses, once none runs any more."""

        def look() -> list[str] | None:
            statuses = [one["status"] for one in self.executions()]
            return None if "RUNNING" in statuses else statuses

        return wait_for(look, f"no execution of {self.id} runs")

    def history(self) -> str:
        """Everything that Step Functions shows of this conversation's executions."""
        shown = []
        for one in self.executions():
            pages = self._steps.get_paginator("get_execution_history").paginate(executionArn=one["executionArn"])
            shown += [one, *(event for page in pages for event in page["events"])]
        return json.dumps(shown, default=str)

    def stop_execution(self) -> None:
        """Somebody stops it in the console."""
        (running,) = [one for one in self.executions() if one["status"] == "RUNNING"]
        self._steps.stop_execution(executionArn=running["executionArn"])

    def held(self, kind: str, function: str, **facts: Any) -> Any:
        """A fault that keeps a function of this conversation at a call."""
        facts["contains"] = [self.id, *facts.get("contains", [])]
        return self.stack.faults.add(kind, function=function, **facts)

    def kill(self, function: str) -> None:
        """Kills the one process of a function that is at work."""
        (running,) = self.stack.lambdas.running(function)
        assert self.stack.lambdas.signal(running["request_id"], "KILL")

    def logged(self) -> str:
        """What functions wrote since this conversation began."""
        return "\n".join(self.stack.logs()[self._logged :])

    def _key(self, number: int) -> dict[str, Any]:
        return {"pk": {"S": f"_/_/{self.id}"}, "sk": {"S": f"TURN#{number:016d}"}}


def wait_for(look: Callable[[], T | None], what: str, within_s: float = PATIENCE_S) -> T:
    """What ``look`` finds, once it finds something."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        found = look()
        if found is not None:
            return found
        time.sleep(0.03)
    raise AssertionError(f"not within {within_s} s: {what}")
