"""A door with everything around it replaced by something real and small: a table in memory, a clock that stands still.

Use cases are handed in by each test; nothing of ours is patched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from turnkeep.clock import ManualClock
from turnkeep.entry.http.door import Door, Route
from turnkeep.entry.observability import Observation
from turnkeep.entry.settings import Environment
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Ask, Status, TurnRecord
from turnkeep.usecases.deps import Deps, FixedDeadline, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnkeep.agent.port import HostedAgent, TurnInfo

NOW_MS = 1_800_000_000_000
REQUEST_ID = "req-1"


def no_agent(info: TurnInfo) -> HostedAgent:
    raise AssertionError("no agent runs behind a fake use case")


class Quiet:
    """The ports that nothing here calls."""

    def start(self, record: TurnRecord) -> None: ...

    def signal(self, token: str) -> bool:
        return False

    def stop(self, record: TurnRecord, cause: str) -> None: ...

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None: ...

    def tell(self, kind: str, record: TurnRecord) -> None: ...


@dataclass
class Lines:
    """Where the door's log lines and metrics go."""

    lines: list[tuple[str, dict[str, Any], bool]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    durations: list[dict[str, int]] = field(default_factory=list)

    def line(self, message: str, facts: Mapping[str, Any], *, is_fault: bool) -> None:
        self.lines.append((message, dict(facts), is_fault))
        self.durations.append({})

    def metrics(self, counts: Mapping[str, int], durations_ms: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.durations[-1] |= durations_ms

    @property
    def text(self) -> str:
        return json.dumps(self.lines)


@dataclass
class FakeInvocation:
    environment: Environment
    deps: Deps
    deadline: FixedDeadline


@dataclass
class House:
    """A door's surroundings.

    Attributes:
        lines: what was logged.
        clock: stands at ``NOW_MS``.
    """

    environment: Environment = field(
        default_factory=lambda: Environment(table="Ledger", tenant_claim="tenant", roles_claim="roles")
    )
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall_ms=NOW_MS))
    lines: Lines = field(default_factory=Lines)

    def with_settings(self, **changes: Any) -> House:
        core = replace(self.environment.core, **changes)
        self.environment = replace(self.environment, core=core)
        return self

    def deps(self, settings: Settings) -> Deps:
        quiet = Quiet()
        return Deps(
            ledger=Ledger(MemoryItemStore(), self.clock),
            clock=self.clock,
            factory=no_agent,
            gate=quiet,
            doorbell=quiet,
            events=quiet,
            settings=settings,
            random_id=lambda size: "r" * (size * 4 // 3),
        )

    def invoke(self, context: Any, observation: Observation) -> Any:
        return FakeInvocation(
            self.environment, self.deps(self.environment.core), FixedDeadline.after(self.clock, 29_000)
        )

    def door(self, routes: Sequence[Route]) -> Door:
        return Door(routes, self.invoke, observe=lambda: Observation("request", sink=self.lines, clock=self.clock))


# --- events -------------------------------------------------------------------------------------------------


def jwt(sub: str = "ann", **claims: str) -> dict[str, Any]:
    return {"jwt": {"claims": {"sub": sub, "iss": "https://issuer.example", **claims}, "scopes": None}}


def event(
    route_key: str,
    *,
    path_parameters: dict[str, str] | None = None,
    body: Any = None,
    raw_body: str | None = None,
    headers: dict[str, str] | None = None,
    query: dict[str, str] | None = None,
    authorizer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """An HTTP API's event, payload 2.0, for a route and its path parameters as the gateway hands them over."""
    method, _, template = route_key.partition(" ")
    path = template
    for name, value in (path_parameters or {}).items():
        path = path.replace("{" + name + "}", value)
    found: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", **(headers or {})},
        "requestContext": {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "requestId": REQUEST_ID,
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    if path_parameters:
        found["pathParameters"] = path_parameters
    if query:
        found["queryStringParameters"] = query
    if authorizer is not None:
        found["requestContext"]["authorizer"] = authorizer
    if raw_body is not None or body is not None:
        found["body"] = raw_body if raw_body is not None else json.dumps(body)
    return found


@dataclass(frozen=True)
class Answer:
    """A reply, parsed."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> str | None:
        return self.body.get("error", {}).get("code") if isinstance(self.body, dict) else None


def serve(door: Door, request: dict[str, Any], context: Any = None) -> Answer:
    reply = door(request, context)
    assert reply["isBase64Encoded"] is False
    body = json.loads(reply["body"]) if reply["body"] else None
    return Answer(reply["statusCode"], body, {name.lower(): value for name, value in reply["headers"].items()})


# --- records ------------------------------------------------------------------------------------------------


def record(status: Status = Status.COMPLETE, **changes: Any) -> TurnRecord:
    """A turn of ann's conversation ``c1``."""
    base = TurnRecord(
        key=ConversationKey("c1", "acme"),
        turn=3,
        status=status,
        epoch="e1",
        run_id="run-1-x",
        principal="ann",
        started_at_ms=NOW_MS - 5_000,
        saved_at_ms=NOW_MS - 1_000,
        user={"role": "user", "content": "hello"},
        usage={"inputTokens": 3, "outputTokens": 2},
    )
    return replace(base, **changes)


def completed(output: str = "Done.", **changes: Any) -> TurnRecord:
    return record(Status.COMPLETE, messages=({"role": "assistant", "content": output},), **changes)


CHECK_IN = {
    "toolCallId": "call-1",
    "toolName": "refund",
    "checkIn": {
        "tool": "refund",
        "args": {"order": "B-200"},
        "evidence": {
            "willDo": "Refund an order — with order=B-200",
            "read": [
                {"channel": "system", "summary": "SECRET-PROMPT"},
                {"channel": "task", "summary": "Refund order B-200, please"},
            ],
            "drivers": [
                {"id": "task-1", "channel": "task", "text": "Refund order B-200, please", "score": 0.5},
                {"id": "system-1", "channel": "system", "text": "SECRET-PROMPT", "score": 0.25},
                {"id": "result-1", "channel": "result", "text": "SECRET-RESULT", "score": 0.125},
            ],
            "trail": {"iteration": 1, "toolCalls": [{"name": "look_up", "ok": True}], "summary": "1 tool ran"},
        },
    },
}


def asking(audience: str = "owner", pause_data: Any = None, **changes: Any) -> TurnRecord:
    ask = Ask(
        ask_id="ask-3-abc",
        audience=audience,
        pause_data=CHECK_IN if pause_data is None else pause_data,
        asked_at_ms=NOW_MS - 1_000,
        expires_at_ms=NOW_MS + 600_000,
    )
    return record(Status.AWAITING, format="flowchart-v1", ask=ask, task_token="TOKEN-SECRET", **changes)
