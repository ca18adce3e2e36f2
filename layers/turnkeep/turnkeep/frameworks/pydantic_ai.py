"""Hosts an agent that is written with Pydantic AI, unchanged.

    agent = pydantic_ai.Agent("bedrock:...", instructions="...")

    def build(turn: TurnInfo) -> PydanticAgent:
        return PydanticAgent(agent, agent_id="desk")

turnkeep walks the agent's graph node by node: a model response's tools start when the durability mode allows it, their
results are a commit, the claim and the deadline are looked at before every model call and every tool call. Deferred
tool calls become asks: one that needs approval is a check-in, answered with a decision; an external one is a question,
whose answer is its result. They are asked one after the other, and when all are answered the run goes on, in a fresh
process.

What differs from running it alone: tools run one after the other. And Pydantic AI's own rule stays: calls in the same
response that need nobody run before the question is asked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.capabilities import AbstractCapability, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse

from turnkeep.agent.checkin import will_do_text
from turnkeep.agent.history import calls_of, has_result
from turnkeep.agent.port import Answered, Asked, DurabilityMode, Outcome, TurnContext
from turnkeep.agent.provider import ModelRefusedError, ModelThrottledError, ModelUnavailableError
from turnkeep.agent.results import compact_json, plain_json
from turnkeep.agent.tools import checked_audience
from turnkeep.agent.trace import Trace
from turnkeep.agent.window import Window
from turnkeep.clock import Clock, SystemClock
from turnkeep.decisions import check_answer
from turnkeep.frameworks.pausing import (
    Fences,
    HostedTurn,
    checkpoint_of,
    describe_window,
    iterations_in,
    malformed,
    shared_state,
    shown_history,
)
from turnkeep.frameworks.pydantic_ai_messages import from_pydantic_ai, part_from_pydantic_ai, to_pydantic_ai

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic_ai.messages import ModelMessage

    from turnkeep.memory.keeping import MemoryWriter
    from turnkeep.messages import Message

ENGINE: Final = "turnkeep-pydantic-ai-1"
"""Names the checkpoints that are written here."""

_THROTTLED, _PASSING = 429, (408, 500, 502, 503, 504, 529)


class PydanticAgent:
    """A Pydantic AI agent for one turn; the ``pydantic_ai.Agent`` itself keeps nothing and may be shared.

    Attributes:
        agent_id: its name for turnkeep, or None; a conversation that one name recorded is not continued under another.
        agent_version: for the records, or None.
        durability: the mode for this conversation, or None for the stack's.
        memory: writers of what answered turns leave behind.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        deps: Callable[[HostedTurn], Any] | None = None,
        agent_id: str | None = None,
        agent_version: str | None = None,
        durability: DurabilityMode | None = None,
        window: Window | None = None,
        audience: str | Callable[[str, dict[str, Any]], str] = "owner",
        expires_in_s: int | None = None,
        memory: Sequence[MemoryWriter] = (),
        clock: Clock | None = None,
    ) -> None:
        """Hosts an agent for one turn.

        Args:
            agent: the Pydantic AI agent.
            deps: makes the run's dependencies, given what a tool may know of its turn.
            agent_id: see ``PydanticAgent``.
            agent_version: see ``PydanticAgent``.
            durability: see ``PydanticAgent``.
            window: how much of earlier turns the model is shown.
            audience: who answers deferred calls: ``owner``, ``role:NAME``, or a function of the tool's name and the
                deferral's metadata.
            expires_in_s: seconds that an ask stays open; None takes the stack's.
            memory: see ``PydanticAgent``.
            clock: the machine's, unless a test moves its own.
        """
        self.agent_id, self.agent_version, self.durability = agent_id, agent_version, durability
        self.memory = tuple(memory)
        self.agent, self.deps, self.window, self.clock = agent, deps, window or Window(), clock or SystemClock()
        self.audience, self.expires_in_s = audience, expires_in_s

    def run(self, context: TurnContext) -> Outcome:
        """Runs the turn's message, or goes on behind what an earlier attempt made durable.

        Raises:
            ModelError: the model gave no usable answer.
        """
        trace = Trace(context.info.turn)
        trace.adopted(1, len(context.messages))
        return _Run(self, context, trace, {}, rerun=context.info.attempt > 1).go(None)

    def resume(self, context: TurnContext, checkpoint: dict[str, Any], decision: Any) -> Outcome:
        """Goes on behind a deferred call, with its decision or its result.

        Raises:
            UnknownStoredFormatError, MalformedStoredItemError: the checkpoint is not one that can be resumed here.
            ConversationMismatchError: another agent asked.
            DecisionRequiredError: an approval wants a decision, and this is none. Nothing ran.
            ModelError: the model gave no usable answer.
        """
        conversation_id = context.info.conversation_id
        needs: dict[str, type] = {"asks": list, "answers": dict}
        shared = shared_state(
            checkpoint, engine=ENGINE, needs=needs, agent_id=self.agent_id, conversation_id=conversation_id
        )
        pause_data = checkpoint.get("pauseData")
        check_answer(pause_data, decision)
        asks, answers = list(shared["asks"]), dict(shared["answers"])
        if not asks:
            raise malformed("checkpoint.sharedState.asks", conversation_id)
        trace = Trace(context.info.turn, shared["evidence"])
        run = _Run(self, context, trace, dict(shared["usage"]), rerun=False)
        answers[asks[0]["id"]] = {"kind": asks[0]["kind"], "value": decision}
        if not has_result(context.messages, asks[0]["id"]) and asks[1:]:
            return run.ask(asks[1:], answers)
        open_ids = {call["id"] for call in run.open_calls()}
        left = {call_id: answer for call_id, answer in answers.items() if call_id in open_ids}
        return run.go(left or None)


class _Run:
    """One process's run of one turn."""

    def __init__(
        self, host: PydanticAgent, context: TurnContext, trace: Trace, usage: dict[str, int], *, rerun: bool
    ) -> None:
        self._host, self._context = host, context
        self._trace, self._usage, self._rerun = trace, usage, rerun
        self.fences = Fences(context)
        self.clock = host.clock
        self.durations_ms: dict[str, int] = {}
        self._messages: list[Message] = list(context.messages)
        kept = host.window.cut(context.history, [size for _, size in context.history_turns])
        self._system, history = shown_history(kept)
        self._history: list[ModelMessage] = to_pydantic_ai(history)
        described = {"id": host.agent_id, "version": host.agent_version}
        if any(described.values()):
            trace.note("agent", {name: value for name, value in described.items() if value})
        describe_window(trace, context, kept)

    def open_calls(self) -> list[dict[str, Any]]:
        """The last assistant message's calls that have no result yet."""
        end = len(self._messages)
        while end and self._messages[end - 1]["role"] == "tool":
            end -= 1
        if not end:
            return []
        answered = {message.get("toolCallId") for message in self._messages[end:]}
        return [call for call in calls_of(self._messages[end - 1]) if call["id"] not in answered]

    # --- running --------------------------------------------------------------------------------------------

    def go(self, answers: dict[str, Any] | None) -> Outcome:
        """Walks the agent's graph until it answers or defers."""
        last = self._messages[-1]
        if answers is None and last["role"] == "assistant" and not calls_of(last):
            return self._answered()  # an earlier attempt had its answer and died before that was committed
        try:
            output = asyncio.run(self._walk(answers))
        except Exception as error:
            self.fences.settle()
            raise _named(error) from error
        self.fences.settle()
        if isinstance(output, DeferredToolRequests):
            asks = self._asks_of(output)
            return self.ask(asks, {})
        if not self._ends_in_words():
            self._messages.append({"role": "assistant", "content": _as_text(output)})
        return self._answered()

    async def _walk(self, answers: dict[str, Any] | None) -> Any:
        host = self._host
        turn = HostedTurn(self._context.info, self._context.time_left_ms, self._messages)
        options: dict[str, Any] = {
            "message_history": [*self._history, *to_pydantic_ai(self._messages)],
            "deferred_tool_results": None if answers is None else _results(answers),
            "deps": None if host.deps is None else host.deps(turn),
            "capabilities": [ReinjectSystemPrompt(), _Watch(self)],
        }
        if (output_type := _with_deferral(host.agent)) is not None:
            options["output_type"] = output_type
        if self._system:
            options["instructions"] = "\n\n".join(self._system)
        with host.agent.parallel_tool_call_execution_mode("sequential"):
            async with host.agent.iter(None, **options) as run:
                node: Any = run.next_node
                began_ms = 0
                is_first = answers is None
                while not Agent.is_end_node(node):
                    if Agent.is_model_request_node(node):
                        self._take_request(node.request, is_known=is_first)
                        is_first = False
                        self.fences.check()
                        began_ms = self.clock.monotonic_ms()
                    elif Agent.is_call_tools_node(node):
                        if not self.open_calls():
                            self._take_response(node.model_response, self.clock.monotonic_ms() - began_ms)
                        if self.open_calls():
                            self.fences.barrier()
                    node = await run.next(node)
                for message in run.new_messages()[-1:]:
                    # The results of a round that ended the run: those beside a deferred call, and an output tool's.
                    if not isinstance(message, ModelResponse):
                        self._take_request(message, is_known=False)
                return node.data.output

    # --- what the graph says --------------------------------------------------------------------------------

    def _take_response(self, response: ModelResponse, duration_ms: int) -> None:
        (said,) = from_pydantic_ai(response)
        usage = {"inputTokens": response.usage.input_tokens, "outputTokens": response.usage.output_tokens}
        counted = {name: count for name, count in usage.items() if count}
        for name, count in counted.items():
            self._usage[name] = self._usage.get(name, 0) + count
        is_something = any(said.get(key) for key in said if key != "role")
        self._trace.model_call(
            iteration=iterations_in(self._messages) + 1,
            usage=counted,
            stop_reason="tool_use" if calls_of(said) else "end_turn",
            duration_ms=max(0, duration_ms),
            index=len(self._messages) if is_something else None,
        )
        if is_something:
            self._messages.append(said)

    def _take_request(self, request: Any, *, is_known: bool) -> None:
        """Takes a round's results in the order of their calls, and what else was said to the model beside them.

        Args:
            request: what goes to the model.
            is_known: it is made of what the turn's messages hold already.
        """
        said = [one for part in request.parts for one in part_from_pydantic_ai(part)]
        order = [call["id"] for call in self.open_calls()]
        results = [one for one in said if one["role"] == "tool" and one["toolCallId"] in order]
        args = {call["id"]: call["args"] for message in self._messages for call in calls_of(message)}
        for one in sorted(results, key=lambda message: order.index(message["toolCallId"])):
            self._messages.append(one)
            call_id = one["toolCallId"]
            self._trace.tool_call(
                iteration=iterations_in(self._messages),
                name=one["toolName"],
                args=args.get(call_id, {}),
                content=one["content"],
                index=len(self._messages) - 1,
                duration_ms=self.durations_ms.get(call_id, 0),
                is_error=bool(one.get("isError")),
                rerun="possible" if self._rerun else None,
            )
        beside = [] if is_known else [one for one in said if one["role"] != "tool"]
        self._messages.extend(beside)
        if (results or beside) and not self.open_calls():
            self.fences.commit(list(self._messages), iterations_in(self._messages) + 1)

    # --- ends -----------------------------------------------------------------------------------------------

    def _ends_in_words(self) -> bool:
        last = self._messages[-1]
        return last["role"] == "assistant" and bool(last["content"]) and not calls_of(last)

    def _answered(self) -> Answered:
        output = self._messages[-1]["content"] if self._ends_in_words() else ""
        if output:
            self._trace.ends_with(len(self._messages) - 1)
        return Answered(
            output=output,
            messages=list(self._messages),
            iteration=iterations_in(self._messages) + 1,
            usage=dict(self._usage),
            evidence=self._trace.to_json(),
        )

    def _asks_of(self, requests: DeferredToolRequests) -> list[dict[str, Any]]:
        kinds = {call.tool_call_id: "approval" for call in requests.approvals}
        kinds |= {call.tool_call_id: "call" for call in requests.calls}
        return [
            {
                "id": call["id"],
                "tool": call["name"],
                "args": call["args"],
                "kind": kinds[call["id"]],
                "metadata": plain_json(requests.metadata.get(call["id"]) or {}, at="metadata"),
            }
            for call in self.open_calls()
            if call["id"] in kinds
        ]

    def ask(self, asks: list[dict[str, Any]], answers: dict[str, Any]) -> Asked:
        """Pauses on the first of the deferred calls that nobody answered yet."""
        host, first = self._host, asks[0]
        metadata = first["metadata"]
        who = host.audience if isinstance(host.audience, str) else host.audience(first["tool"], metadata)
        pause_data: dict[str, Any] = {"toolCallId": first["id"], "toolName": first["tool"]}
        if first["kind"] == "approval":
            will_do = metadata.get("question") or will_do_text(first["tool"], first["args"])
            request = {"tool": first["tool"], "args": first["args"], "evidence": {"willDo": str(will_do)}}
            pause_data["checkIn"] = request
        else:
            question = metadata.get("question") or will_do_text(f"{first['tool']} wants an answer", first["args"])
            pause_data |= {"question": str(question), "args": first["args"]}
        if metadata:
            pause_data["metadata"] = metadata
        checkpoint = checkpoint_of(
            ENGINE,
            {"asks": asks, "answers": plain_json(answers, at="answers")},
            pause_data=pause_data,
            agent_id=host.agent_id,
            trace=self._trace,
            usage=dict(self._usage),
            paused_at_ms=self.clock.now_ms(),
        )
        iteration = iterations_in(self._messages)
        self.fences.commit(list(self._messages), iteration)
        return Asked(
            pause_data=pause_data,
            checkpoint=checkpoint,
            messages=list(self._messages),
            iteration=iteration,
            audience=checked_audience(who, host.expires_in_s),
            expires_in_s=host.expires_in_s,
            usage=dict(self._usage),
            evidence=self._trace.to_json(),
        )


class _Watch(AbstractCapability[Any]):
    """Looks at the claim and the deadline before every tool, and times it."""

    def __init__(self, run: _Run) -> None:
        self._run = run

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """Runs a tool, if this attempt may still do that."""
        del ctx, tool_def
        self._run.fences.check()
        began_ms = self._run.clock.monotonic_ms()
        try:
            return await handler(args)
        finally:
            self._run.durations_ms[call.tool_call_id] = self._run.clock.monotonic_ms() - began_ms


def _with_deferral(agent: Agent[Any, Any]) -> list[Any] | None:
    """The agent's own output types and deferral, which becomes an ask; None where they stay as they are.

    Pydantic AI takes no other output types where an agent has output validators: such an agent names
    ``DeferredToolRequests`` itself if its tools defer, and is told so by Pydantic AI if it does not.
    """
    own = agent.output_type
    types = list(own) if isinstance(own, list | tuple) else [own]
    fixed = DeferredToolRequests in types or bool(getattr(agent, "_output_validators", ()))
    return None if fixed else [*types, DeferredToolRequests]


def _results(answers: dict[str, Any]) -> DeferredToolResults:
    """Decisions and answers as Pydantic AI takes them; a tool finds its decision in ``ctx.tool_call_metadata``."""
    found = DeferredToolResults()
    for call_id, answer in answers.items():
        value = answer["value"]
        if answer["kind"] != "approval":
            found.calls[call_id] = value
            continue
        note = value.get("note")
        said = f": {note}" if isinstance(note, str) and note else ""
        found.approvals[call_id] = True if value["approved"] else ToolDenied(f"declined by human{said}")
        found.metadata[call_id] = {"decision": value}
    return found


def _as_text(output: Any) -> str:
    plain = plain_json(output, at="output")
    return plain if isinstance(plain, str) else compact_json(plain)


def _named(error: Exception) -> Exception:
    """What a model's service answered, as turnkeep names it."""
    if not isinstance(error, ModelHTTPError):
        return error
    if error.status_code == _THROTTLED:
        return ModelThrottledError()
    return ModelUnavailableError() if error.status_code in _PASSING else ModelRefusedError(f"HTTP {error.status_code}")
