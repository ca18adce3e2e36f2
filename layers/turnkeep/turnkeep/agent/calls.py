"""One tool call, from the model's words to a result that the model reads.

Whatever can go wrong with a call (no such tool, arguments that do not fit, a tool that raises, a result that cannot be
kept) becomes a result that says so: the conversation stays whole and the model can do something about it. What ends a
run instead is turnkeep's own: a lost claim, the deadline, a store that is not there.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from turnkeep.agent.checkin import check_in_request
from turnkeep.agent.history import calls_of
from turnkeep.agent.idempotency import idempotency_key, occurrence_of
from turnkeep.agent.middleware import Middleware, MiddlewareAsk, names_of
from turnkeep.agent.results import compact_json, plain_json, result_text
from turnkeep.agent.tools import (
    AskRaised,
    Tool,
    ToolArgumentsError,
    ToolCall,
    ToolContext,
    checked_audience,
    checked_component,
)
from turnkeep.agent.trace import cut
from turnkeep.errors import (
    CallInDoubtError,
    LostClaimError,
    RetryableError,
    TurnOutOfTimeError,
    UnstorableValueError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.agent.run_state import RunState
    from turnkeep.clock import Clock

MAX_ERROR_CHARACTERS = 2_000
"""Of the text that tells a model what went wrong."""

CHECK_IN_GATE = "check-in"
IN_DOUBT_GATE = "in-doubt"
ASK_GATE = "ask"
_MIDDLEWARE_GATE = "middleware:"

_ENDS_THE_RUN = (LostClaimError, TurnOutOfTimeError, RetryableError)


@dataclass(frozen=True)
class Done:
    """A call has its result.

    Attributes:
        content: what the model reads.
        is_error: whether it tells of a failure.
        duration_ms: how long the tool ran; 0 where it did not.
        rerun: see ``Trace.tool_call``.
        notes: further facts for the evidence.
    """

    content: str
    is_error: bool = False
    duration_ms: int = 0
    rerun: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Asks:
    """A call waits for a person.

    Attributes:
        gate: what asks.
        pause_data: the ask's own part of the pause data.
        gates_passed: gates that were passed before.
        audience: who answers.
        expires_in_s: seconds that the ask stays open; None takes the stack's.
    """

    gate: str
    pause_data: dict[str, Any]
    gates_passed: tuple[str, ...]
    audience: str
    expires_in_s: int | None


@dataclass(frozen=True)
class Ready:
    """A valid call: one that passed its gates may run.

    Attributes:
        tool: the tool.
        call: as the model made it.
        arguments: its validated arguments.
        context: what the tool may know.
        gates_passed: gates that a person opened.
        rerun: see ``Trace.tool_call``.
    """

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]
    context: ToolContext
    gates_passed: tuple[str, ...]
    rerun: str | None = None


class CallRunner:
    """Runs the calls of one agent's tools."""

    def __init__(
        self,
        tools: dict[str, Tool],
        middleware: tuple[Middleware, ...],
        *,
        system: str | None,
        clock: Clock,
        max_result_bytes: int,
    ) -> None:
        """Keeps what every call of the agent shares."""
        self._tools, self._system, self._clock, self._max_result_bytes = tools, system, clock, max_result_bytes
        self._middleware = tuple(zip(names_of(middleware), middleware, strict=True))

    def is_parallel(self, call: dict[str, Any]) -> bool:
        """Whether this call may run beside its neighbours."""
        tool = self._tools.get(call["name"])
        return tool is not None and tool.parallel

    def prepare(
        self,
        state: RunState,
        assistant_index: int,
        call_index: int,
        *,
        gates_passed: Sequence[str] = (),
        decision: dict[str, Any] | None = None,
    ) -> Ready | Done | Asks:
        """Takes a call through validation and its gates; begins it where it must act once.

        Args:
            state: the run.
            assistant_index: where the assistant message with the call is.
            call_index: which of its calls it is.
            gates_passed: gates that a person's decision opened before.
            decision: the approval that the call comes back with.
        """
        raw = calls_of(state.messages[assistant_index])[call_index]
        call = ToolCall(raw["id"], raw["name"], raw["args"])
        tool = self._tools.get(call.name)
        if tool is None:
            text = self._no_such_tool(call.name, approved=decision is not None)
            return Done(text, is_error=True, notes={"refused": "no-such-tool"})
        try:
            arguments = tool.validate(call.args)
        except ToolArgumentsError as error:
            used = " The approval was not used." if decision is not None else ""
            text = _error_text(f"not run: the arguments do not fit the tool: {error}.{used}")
            return Done(text, is_error=True, notes={"refused": "arguments"})
        context = ToolContext(
            info=state.context.info,
            idempotency_key=idempotency_key(
                state.context.info, call.name, call.args, occurrence_of(state.messages, assistant_index, call_index)
            ),
            decision=decision,
            _time_left_ms=state.context.time_left_ms,
            _may_ask=not tool.parallel,
        )
        valid = Ready(tool, call, arguments, context, tuple(gates_passed), "possible" if state.rerun_possible else None)
        return self._closed_middleware(valid) or self._closed_check_in(valid, state) or self._begin(valid, state)

    def run_all(self, ready: Sequence[Ready], state: RunState) -> list[Done | Asks]:
        """Runs calls that are ready: one here, several beside each other; results in the order given."""
        if len(ready) == 1:
            return [self._run(ready[0], state)]
        with ThreadPoolExecutor(max_workers=len(ready)) as pool:
            futures = [pool.submit(copy_context().run, self._run, one, state) for one in ready]
            return [future.result() for future in futures]

    def remember_answer(self, state: RunState, assistant_index: int, call_index: int, content: str) -> None:
        """Closes the memory of a ``once`` call that asked and was answered: the answer is its result."""
        call = calls_of(state.messages[assistant_index])[call_index]
        tool = self._tools.get(call["name"])
        if tool is None or not tool.once or state.context.once is None:
            return
        occurrence = occurrence_of(state.messages, assistant_index, call_index)
        key = idempotency_key(state.context.info, call["name"], call["args"], occurrence)
        state.context.once.finish(key, _remembered_text(content, is_error=False))

    def _closed_middleware(self, valid: Ready) -> Asks | Done | None:
        """The first rule that puts the call before a person; None where all let it pass."""
        for name, middleware in self._middleware:
            if f"{_MIDDLEWARE_GATE}{name}" in valid.gates_passed:
                continue
            try:
                wanted = middleware(valid.call, valid.context)
                if wanted is not None:
                    return _middleware_asks(name, wanted, valid.gates_passed)
            except _ENDS_THE_RUN:
                raise
            except AskRaised:
                return _rule_failed(f"the rule {name} failed: it returns a MiddlewareAsk instead of calling ask")
            except Exception as error:  # a rule that fails keeps the tool from running, and says so
                return _rule_failed(f"the rule {name} failed: {_named(error)}")
        return None

    def _closed_check_in(self, valid: Ready, state: RunState) -> Asks | Done | None:
        """The tool's own check-in, where this call needs one."""
        check_in = valid.tool.check_in
        if check_in is None or CHECK_IN_GATE in valid.gates_passed:
            return None
        try:
            needed = check_in.when is None or check_in.when(valid.arguments)
        except Exception as error:
            return _rule_failed(f"the tool's check-in rule failed: {_named(error)}")
        if not needed:
            return None
        request = check_in_request(
            valid.tool, valid.call.args, messages=state.messages, system=self._system, iteration=state.iteration
        )
        return Asks(CHECK_IN_GATE, {"checkIn": request}, valid.gates_passed, check_in.audience, check_in.expires_in_s)

    def _begin(self, valid: Ready, state: RunState) -> Ready | Done | Asks:
        """Marks a ``once`` call as begun, or finds what became of it before."""
        if not valid.tool.once or state.context.once is None:
            return valid
        try:
            remembered = state.context.once.begin(valid.context.idempotency_key)
        except CallInDoubtError:
            if valid.tool.in_doubt == "ask" and IN_DOUBT_GATE not in valid.gates_passed:
                return _in_doubt_asks(valid)
            return replace(valid, rerun="in-doubt")
        if remembered is None:
            return replace(valid, rerun=None)  # the memory would know of an earlier run, so this is the first
        found = json.loads(remembered)
        return Done(found["content"], is_error=bool(found.get("isError")), rerun="remembered")

    def _run(self, ready: Ready, state: RunState) -> Done | Asks:
        started_ms = self._clock.monotonic_ms()
        try:
            content, is_error = self._kept(ready.tool.invoke(ready.arguments, ready.context))
        except AskRaised as asked:
            return Asks(ASK_GATE, asked.payload, ready.gates_passed, asked.audience, asked.expires_in_s)
        except _ENDS_THE_RUN:
            raise
        except Exception as error:  # a tool may raise anything; the model is told, the run goes on
            content, is_error = f"the tool failed: {_named(error)}", True
        content = _error_text(content) if is_error else content
        if ready.tool.once and state.context.once is not None:
            state.context.once.finish(ready.context.idempotency_key, _remembered_text(content, is_error=is_error))
        return Done(content, is_error, self._clock.monotonic_ms() - started_ms, ready.rerun)

    def _kept(self, value: Any) -> tuple[str, bool]:
        """A tool's value as text, or what keeps it from being kept; and whether that is an error."""
        try:
            content = result_text(value)
        except UnstorableValueError as error:
            return f"the tool ran, but its result cannot be kept: {error.path}: {error.reason}", True
        size, limit = len(content.encode("utf-8")), self._max_result_bytes
        if size > limit:
            return (
                f"the tool ran, but its result of {size} bytes is over the limit of {limit} bytes; ask for less",
                True,
            )
        return content, False

    def _no_such_tool(self, name: str, *, approved: bool) -> str:
        if approved:
            return _error_text(f"not run: the tool {name} is gone since this was asked. The approval was not used.")
        there = ", ".join(sorted(self._tools)) or "none"
        return _error_text(f"not run: there is no tool {name}; there are: {there}.")


def _rule_failed(text: str) -> Done:
    return Done(_error_text(f"not run: {text}"), is_error=True, notes={"refused": "rule-failed"})


def _middleware_asks(name: str, wanted: MiddlewareAsk, passed: tuple[str, ...]) -> Asks:
    ask: dict[str, Any] = {"question": plain_json(wanted.question, at="question")}
    if wanted.detail is not None:
        ask["detail"] = plain_json(wanted.detail, at="detail")
    if wanted.component is not None:
        ask["component"] = checked_component(wanted.component, name)
    ask["middleware"] = name
    audience = checked_audience(wanted.audience, wanted.expires_in_s)
    return Asks(f"{_MIDDLEWARE_GATE}{name}", {"ask": ask}, passed, audience, wanted.expires_in_s)


def _in_doubt_asks(valid: Ready) -> Asks:
    """A middleware's ask by its shape: it takes a decision. Whoever decides on the tool decides on its doubt, too."""
    tool = valid.tool
    ask = {
        "question": f"{tool.name} was begun by a process that died inside it, so nobody knows whether it acted. "
        "Look where it acts, then approve to run it again, or decline.",
        "detail": {"tool": tool.name, "args": valid.call.args},
        "middleware": IN_DOUBT_GATE,
    }
    audience = tool.check_in.audience if tool.check_in is not None else "owner"
    return Asks(IN_DOUBT_GATE, {"ask": ask}, valid.gates_passed, audience, None)


def _remembered_text(content: str, *, is_error: bool) -> str:
    return compact_json({"content": content, "isError": True} if is_error else {"content": content})


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _error_text(text: str) -> str:
    """Bounded, and text that can be stored."""
    return cut(f"error: {text}".encode("utf-8", "replace").decode("utf-8"), MAX_ERROR_CHARACTERS)
