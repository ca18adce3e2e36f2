"""EventBridge's side: schedules that fire, and events that find their rule's function."""

from __future__ import annotations

import datetime
import json
import threading
import uuid
from typing import TYPE_CHECKING, Any

from local.settings import ACCOUNT, REGION

if TYPE_CHECKING:
    from local.asynchronous import AsyncInvocations
    from local.deploy import Rule


class EventBus:
    """Delivers events and schedules to functions, asynchronously as EventBridge does."""

    def __init__(self, rules: list[Rule], invocations: AsyncInvocations, schedule_s: float | None) -> None:
        self._rules = rules
        self._invocations = invocations
        self._schedule_s = schedule_s
        self._closed = threading.Event()

    def start(self) -> None:
        """Starts the clock of every schedule."""
        for rule in self._rules:
            period_s = rule.period_s if self._schedule_s is None else self._schedule_s
            if rule.period_s and period_s:
                arguments = (rule, period_s)
                threading.Thread(target=self._tick, args=arguments, name=f"schedule-{rule.name}", daemon=True).start()

    def close(self) -> None:
        """Fires nothing more."""
        self._closed.set()

    def put_events(self, request: dict[str, Any]) -> None:
        """Takes what a `PutEvents` call sent."""
        for entry in request.get("Entries", []):
            bus = str(entry.get("EventBusName", "default")).rpartition("/")[2]
            detail = json.loads(entry.get("Detail") or "{}")
            self.publish(entry.get("Source", ""), entry.get("DetailType", ""), detail, entry.get("Resources", []), bus)

    def execution_changed(self, execution: Any) -> None:
        """Publishes a Step Functions execution's new status."""
        ended = execution.stop_date
        detail = {
            "executionArn": execution.exec_arn,
            "stateMachineArn": execution.state_machine.arn,
            "name": execution.name,
            "status": str(execution.status),
            "startDate": int(execution.start_date.timestamp() * 1000),
            "stopDate": int(ended.timestamp() * 1000) if ended else None,
            "input": execution.execution_input,
            "output": json.dumps(execution.output) if str(execution.status) == "SUCCEEDED" else None,
            "error": execution.error,
            "cause": execution.cause,
        }
        kind = "Step Functions Execution Status Change"
        self.publish("aws.states", kind, detail, [execution.exec_arn], "default")

    def publish(self, source: str, kind: str, detail: Any, resources: list[str], bus: str) -> None:
        """Hands an event to every function whose rule on this bus matches it."""
        from moto.events.models import EventPattern

        event = _envelope(source, kind, detail, resources)
        for rule in self._rules:
            if rule.pattern is None or rule.bus != bus or self._closed.is_set():
                continue
            if EventPattern.load(json.dumps(rule.pattern)).matches_event(event):  # type: ignore[arg-type]
                self._invoke(rule, event)

    def fire(self, name: str) -> bool:
        """Fires a schedule now, by its rule's or its function's name; False where there is none."""
        found = [
            rule for rule in self._rules if rule.period_s and name in (rule.name, rule.function.rpartition(":")[2])
        ]
        for rule in found:
            self._fire(rule)
        return bool(found)

    def _tick(self, rule: Rule, period_s: float) -> None:
        while not self._closed.wait(period_s):
            self._fire(rule)

    def _fire(self, rule: Rule) -> None:
        arn = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{rule.name}"
        self._invoke(rule, _envelope("aws.events", "Scheduled Event", {}, [arn]))

    def _invoke(self, rule: Rule, event: dict[str, Any]) -> None:
        payload = rule.input if rule.input is not None else json.dumps(event)
        self._invocations.submit(rule.function, payload.encode())


def _envelope(source: str, kind: str, detail: Any, resources: list[str]) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": kind,
        "source": source,
        "account": ACCOUNT,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": resources,
        "detail": detail,
    }
