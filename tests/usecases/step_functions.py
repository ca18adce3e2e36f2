"""Step Functions as AWS documents it, in process, with ``PausedRun`` played by hand.

The client's calls refuse what AWS refuses: a name in use with another input or of a closed execution, a token that is
used, late or unknown, an input that is too large. (The definition itself is executed by moto in tests/statemachines and
tests/e2e; here it is played fast enough to be killed at every point.)
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tests.usecases.workshop import Crash
from turnkeep.ledger.store import AllOf, Applied, Equals, Get, Missing, Update

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.clock import ManualClock
    from turnkeep.ledger.store import ItemStore

MACHINE = "arn:aws:states:eu-central-1:123456789012:stateMachine:paused-run"
RETRIED = frozenset({"LeaseHeldError", "StoreUnavailableError", "Runtime.ExitError"})
DELAYS_S = (2, 4, 8, 16, 32, *([60] * 15))
"""Of the definition's retries; together longer than the longest lease."""
YEAR_S = 31_536_000
HANDED_OVER_MS = 31_449_600_000
IDS = ("pk", "sk", "conversationId", "tenant", "turn")


@dataclass
class Execution:
    """One execution, and where it stands."""

    name: str
    input: str
    started_ms: int
    card: dict[str, Any]
    status: str = "RUNNING"
    state: str = "AwaitAnswer"
    states: list[str] = field(default_factory=list)
    output: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    until_ms: int = 0
    retries: int = 0
    retry_at_ms: int | None = None

    @property
    def waits(self) -> bool:
        return self.status != "RUNNING" or self.token is not None or self.retry_at_ms is not None


def refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "as AWS says it"}}, operation)


class StepFunctions:
    """The service: a client's methods for turnkeep's gate, and ``play`` for whoever makes time pass.

    Attributes:
        resume: ResumeFunction.
        tokens: every token that was ever given out, for tests that look where it must not be.
        unreachable: the service does not answer.
    """

    def __init__(self, store: ItemStore, clock: ManualClock) -> None:
        self._store, self._clock = store, clock
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.executions: dict[str, Execution] = {}
        self.ended: list[Execution] = []
        self.tokens: dict[str, Execution] = {}
        self.resume: Callable[[dict[str, Any]], dict[str, Any]] = lambda payload: {}
        self.unreachable = False

    # --- the client -----------------------------------------------------------------------------------------

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> dict[str, Any]:
        self._reach("StartExecution")
        assert stateMachineArn == MACHINE
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,80}", name):
            raise refusal("InvalidName", "StartExecution")
        if len(input.encode()) > 262_144:
            raise refusal("InvalidExecutionInput", "StartExecution")
        with self._lock:
            found = self.executions.get(name)
            if found is not None and not (found.status == "RUNNING" and found.input == input):
                raise refusal("ExecutionAlreadyExists", "StartExecution")
            if found is None:
                self.executions[name] = Execution(name, input, self._clock.now_ms(), json.loads(input))
        return {"executionArn": self._arn(name)}

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:
        self._reach("DescribeExecution")
        return {"status": self._find(executionArn, "DescribeExecution").status}

    def stop_execution(self, *, executionArn: str, error: str, cause: str) -> dict[str, Any]:
        self._reach("StopExecution")
        with self._lock:
            found = self._find(executionArn, "StopExecution")
            if found.status == "RUNNING":
                self._end(found, "ABORTED")
        return {}

    def send_task_success(self, *, taskToken: str, output: str) -> dict[str, Any]:
        self._reach("SendTaskSuccess")
        with self._lock:
            found = self.tokens.get(taskToken)
            if found is None:
                raise refusal("InvalidToken", "SendTaskSuccess")
            if found.status != "RUNNING" or found.token != taskToken:
                raise refusal("TaskTimedOut", "SendTaskSuccess")
            found.token, found.state = None, "Resume"
        return {}

    def _reach(self, operation: str) -> None:
        if self.unreachable:
            raise refusal("ThrottlingException", operation)

    def _arn(self, name: str) -> str:
        return f"{MACHINE.replace(':stateMachine:', ':execution:')}:{name}"

    def _find(self, arn: str, operation: str) -> Execution:
        found = self.executions.get(arn.rpartition(":")[2])
        if found is None:
            raise refusal("ExecutionDoesNotExist", operation)
        return found

    # --- the service at work --------------------------------------------------------------------------------

    @property
    def running(self) -> list[Execution]:
        return [one for one in self.executions.values() if one.status == "RUNNING"]

    def stop(self, execution: Execution) -> None:
        """Somebody stops it in the console."""
        self.stop_execution(executionArn=self._arn(execution.name), error="by hand", cause="")

    def play(self) -> None:
        """Everything that can happen now happens."""
        moved = True
        while moved:
            moved = False
            for execution in list(self.running):
                self._wake(execution)
                while not execution.waits:
                    moved = True
                    self._step(execution)

    def settle(self) -> None:
        """Plays, and lets as much time pass as retries wait for."""
        while True:
            self.play()
            due = [one.retry_at_ms for one in self.running if one.retry_at_ms is not None]
            if not due:
                return
            self._clock.advance_ms(max(0, min(due) - self._clock.now_ms()))

    def _wake(self, execution: Execution) -> None:
        now_ms = self._clock.now_ms()
        if execution.token is not None and now_ms >= execution.until_ms:
            execution.token, execution.state = None, "ExpireAsk"
        if execution.retry_at_ms is not None and now_ms >= execution.retry_at_ms:
            execution.retry_at_ms = None

    def _step(self, execution: Execution) -> None:
        if not execution.retries:
            execution.states.append(execution.state)
        step: Callable[[Execution], None] = getattr(self, f"_{execution.state}")
        step(execution)

    def _AwaitAnswer(self, execution: Execution) -> None:
        card, now_ms = execution.card, self._clock.now_ms()
        token = f"task-token-{next(self._numbers)}-{'x' * 40}"
        open_ask = AllOf((Equals("askId", card["askId"]), Equals("status", "awaiting"), Missing("decision")))
        stored = {"taskToken": token, "dueAt": card["expiresAtMs"] + 300_000}
        (result,) = self._store.write([Update((card["pk"], card["sk"]), set=stored, condition=open_ask)])
        if not isinstance(result, Applied):
            execution.state = "CheckAsk"
            return
        wait_s = max(1, min(YEAR_S, -((now_ms - card["expiresAtMs"]) // 1000) + 1))
        execution.token, execution.until_ms = token, now_ms + wait_s * 1000
        self.tokens[token] = execution

    def _CheckAsk(self, execution: Execution) -> None:
        card = execution.card
        (page,) = self._store.read([Get((card["pk"], card["sk"]))])
        item = page.items[0] if page.items else {}
        card["status"] = item.get("status") if item.get("askId") == card["askId"] else "gone"
        execution.state = "Decided"

    def _Decided(self, execution: Execution) -> None:
        execution.state = "Resume" if execution.card["status"] in ("answered", "running") else "Done"

    def _ExpireAsk(self, execution: Execution) -> None:
        told = self._call(execution, "expire")
        if told is not None:
            execution.card["status"], execution.state = told["status"], "Decided"

    def _Resume(self, execution: Execution) -> None:
        told = self._call(execution, "resume", otherwise="MarkFailed")
        if told is not None:
            execution.card = {name: execution.card[name] for name in IDS if name in execution.card} | told
            execution.state = "Outcome"

    def _MarkFailed(self, execution: Execution) -> None:
        told = self._call(execution, "failed")
        if told is not None:
            execution.card |= told
            execution.state = "Outcome"

    def _call(self, execution: Execution, action: str, otherwise: str | None = None) -> dict[str, Any] | None:
        """Invokes the function; None where it is retried, or where its failure moved the execution on."""
        names = (*IDS, "askId")
        payload = {"action": action} | {name: execution.card[name] for name in names if name in execution.card}
        try:
            told = json.loads(json.dumps(self.resume(payload)))
        except (Exception, Crash) as error:
            name = "Runtime.ExitError" if isinstance(error, Crash) else type(error).__name__
            if name in RETRIED and execution.retries < len(DELAYS_S):
                execution.retry_at_ms = self._clock.now_ms() + DELAYS_S[execution.retries] * 1000
                execution.retries += 1
                return None
            execution.retries = 0
            execution.card["error"] = name
            if otherwise is None:
                self._end(execution, "FAILED")
            else:
                execution.state = otherwise
            return None
        execution.retries = 0
        return dict(told)

    def _Outcome(self, execution: Execution) -> None:
        card = execution.card
        if card["status"] == "awaiting":
            later = card["expiresAtMs"] > execution.started_ms + HANDED_OVER_MS
            execution.state = "HandedOver" if later else "AwaitAnswer"
        else:
            execution.state = "ResumeFailed" if card["status"] == "failed" and "error" in card else "Done"

    def _Done(self, execution: Execution) -> None:
        execution.output = {name: execution.card[name] for name in ("conversationId", "turn", "status")}
        self._end(execution, "SUCCEEDED")

    _HandedOver = _Done

    def _ResumeFailed(self, execution: Execution) -> None:
        self._end(execution, "FAILED")

    def _end(self, execution: Execution, status: str) -> None:
        execution.status, execution.token, execution.retry_at_ms = status, None, None
        if status != "SUCCEEDED":
            self.ended.append(execution)
