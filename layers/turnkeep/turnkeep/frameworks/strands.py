"""Hosts an agent that is written with Strands Agents, unchanged.

    def build(turn: TurnInfo) -> StrandsAgent:
        return StrandsAgent(strands.Agent(model=..., tools=[...], callback_handler=None), agent_id="desk")

turnkeep gives the Strands agent its conversation, listens to its hooks, and takes what it adds: each round of tool
results is a commit, the durability mode is waited for before tools run, the claim and the deadline are looked at before
every model call and every tool call. An interrupt becomes an ask, and its response is the decision, days later, in a
fresh process.

What differs from running it alone: tools run one after the other, so that what ran before a question is exact; its
``session_manager`` has to be None, because the ledger keeps the conversation; ``agent.state`` lives for one turn, its
pauses included. And Strands' own rule stays: a tool that interrupts runs again from its beginning when the response is
there, so it interrupts first and acts then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strands.hooks import (
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    BeforeToolsEvent,
    MessageAddedEvent,
)
from strands.tools.executors import SequentialToolExecutor
from strands.types._snapshot import Snapshot
from strands.types.exceptions import (
    ContextWindowOverflowException,
    EventLoopException,
    MaxTokensReachedException,
    ModelThrottledException,
)

from turnkeep.agent.history import calls_of, has_result
from turnkeep.agent.port import Answered, Asked, DurabilityMode, Outcome, TurnContext
from turnkeep.agent.provider import ContextWindowExceededError, ModelError, ModelThrottledError
from turnkeep.agent.results import plain_json
from turnkeep.agent.tools import checked_audience
from turnkeep.agent.trace import Trace
from turnkeep.agent.window import Window
from turnkeep.clock import Clock, SystemClock
from turnkeep.decisions import check_answer
from turnkeep.errors import AgentContractError
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
from turnkeep.frameworks.strands_messages import KEPT, decoded, encoded, from_strands, names_in, to_strands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import strands
    from strands.agent.agent_result import AgentResult

    from turnkeep.memory.keeping import MemoryWriter
    from turnkeep.messages import Message

ENGINE: Final = "turnkeep-strands-1"
"""Names the checkpoints that are written here."""

INVOCATION_STATE_KEY: Final = "turnkeep"
"""Under this key of Strands' invocation state a tool finds its ``HostedTurn``."""


class StrandsAgent:
    """A Strands agent for one turn.

    Attributes:
        agent_id: its name for turnkeep, or None; a conversation that one name recorded is not continued under another.
        agent_version: for the records, or None.
        durability: the mode for this conversation, or None for the stack's.
        memory: writers of what answered turns leave behind.
    """

    def __init__(
        self,
        agent: strands.Agent,
        *,
        agent_id: str | None = None,
        agent_version: str | None = None,
        durability: DurabilityMode | None = None,
        window: Window | None = None,
        audience: str | Callable[[str, Any], str] = "owner",
        expires_in_s: int | None = None,
        memory: Sequence[MemoryWriter] = (),
        clock: Clock | None = None,
    ) -> None:
        """Takes an agent over, for one turn.

        Args:
            agent: made for this turn, without messages of its own.
            agent_id: see ``StrandsAgent``.
            agent_version: see ``StrandsAgent``.
            durability: see ``StrandsAgent``.
            window: how much of earlier turns the model is shown.
            audience: who answers its interrupts: ``owner``, ``role:NAME``, or a function of an interrupt's name and
                reason.
            expires_in_s: seconds that an ask stays open; None takes the stack's.
            memory: see ``StrandsAgent``.
            clock: the machine's, unless a test moves its own.

        Raises:
            ValueError: the agent has a session manager, or messages already.
        """
        if getattr(agent, "_session_manager", None) is not None:
            raise ValueError("The ledger keeps the conversation: make the Strands agent without a session_manager.")
        if agent.messages:
            raise ValueError("The ledger gives the agent its messages: make the Strands agent without any.")
        agent.tool_executor = SequentialToolExecutor()
        self.agent_id, self.agent_version, self.durability = agent_id, agent_version, durability
        self.memory = tuple(memory)
        self.agent, self.window, self.clock = agent, window or Window(), clock or SystemClock()
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
        """Goes on behind an interrupt, its response the decision.

        Raises:
            UnknownStoredFormatError, MalformedStoredItemError: the checkpoint is not one that can be resumed here.
            ConversationMismatchError: another agent asked.
            ModelError: the model gave no usable answer.
        """
        conversation_id = context.info.conversation_id
        needs: dict[str, type] = {"snapshot": dict, "responses": dict, "asks": list}
        shared = shared_state(
            checkpoint, engine=ENGINE, needs=needs, agent_id=self.agent_id, conversation_id=conversation_id
        )
        pause_data = checkpoint.get("pauseData")
        check_answer(pause_data, decision)
        asks, responses = list(shared["asks"]), dict(shared["responses"])
        if not asks or not isinstance(pause_data, dict):
            raise malformed("checkpoint.sharedState.asks", conversation_id)
        trace = Trace(context.info.turn, shared["evidence"])
        run = _Run(self, context, trace, dict(shared["usage"]), rerun=False)
        snapshot = decoded(shared["snapshot"])
        responses[asks[0]["id"]] = decision
        if has_result(context.messages, pause_data.get("toolCallId")):
            # An earlier resume came further and died: what it did is not done again.
            if not run.finish_pending(snapshot["data"]):
                self.agent.load_snapshot(Snapshot.from_dict(snapshot))
                return run.go(None)
        elif asks[1:]:
            return run.ask(asks[1:], responses, snapshot)
        self.agent.load_snapshot(Snapshot.from_dict(snapshot))
        said = [{"interruptResponse": {"interruptId": one, "response": value}} for one, value in responses.items()]
        return run.go(said)


class _Run:
    """One process's run of one turn."""

    def __init__(
        self, host: StrandsAgent, context: TurnContext, trace: Trace, usage: dict[str, int], *, rerun: bool
    ) -> None:
        self._host, self._agent, self._context = host, host.agent, context
        self._trace, self._usage, self._rerun = trace, usage, rerun
        self._fences = Fences(context)
        self._messages: list[Message] = list(context.messages)
        self._names = {call["id"]: call["name"] for message in self._messages for call in calls_of(message)}
        self._durations_ms: dict[str, int] = {}
        self._began_ms = 0
        self._stop_reason = "end_turn"
        self._load()
        self._listen()

    def _load(self) -> None:
        context, agent = self._context, self._agent
        kept = self._host.window.cut(context.history, [size for _, size in context.history_turns])
        system, history = shown_history(kept)
        prompt = agent.system_prompt
        self._trace.system("system", prompt)
        if system:
            agent.system_prompt = "\n\n".join([*([prompt] if prompt else []), *system])
        described = {"id": self._host.agent_id, "version": self._host.agent_version}
        if any(described.values()):
            self._trace.note("agent", {name: value for name, value in described.items() if value})
        describe_window(self._trace, context, kept)
        shown = [*to_strands(history), *to_strands(self._turns_whole_messages())]
        agent.messages = _alternating(shown)  # type: ignore[assignment]

    def _turns_whole_messages(self) -> list[Message]:
        """The turn's messages without the results of a round that is not over: Strands adds those as one message."""
        end = len(self._messages)
        while end and self._messages[end - 1]["role"] == "tool":
            end -= 1
        calls = calls_of(self._messages[end - 1]) if end else []
        return self._messages[:end] if len(self._messages) - end < len(calls) else self._messages

    def _listen(self) -> None:
        add = self._agent.add_hook
        add(self._before_model, BeforeModelCallEvent)
        add(self._before_tools, BeforeToolsEvent)
        add(self._before_tool, BeforeToolCallEvent)
        add(self._after_tool, AfterToolCallEvent)
        add(self._added, MessageAddedEvent)

    # --- running --------------------------------------------------------------------------------------------

    def go(self, prompt: Any) -> Outcome:
        """Runs the Strands agent until it answers or interrupts."""
        last = self._messages[-1]
        if prompt is None and last["role"] == "assistant" and not calls_of(last):
            return self._answered()  # an earlier attempt had its answer and died before that was committed
        turn = HostedTurn(self._context.info, self._context.time_left_ms, self._messages)
        try:
            result = self._agent(prompt, invocation_state={INVOCATION_STATE_KEY: turn})
        except Exception as error:
            self._fences.settle()
            raise _named(error) from error
        self._fences.settle()
        if result.stop_reason == "interrupt":
            asks = [{"id": one.id, "name": one.name, "reason": one.reason} for one in result.interrupts or ()]
            snapshot = self._agent.take_snapshot(include=["state", "interrupt_state", "conversation_manager_state"])
            self._take_finished(snapshot.data)
            return self.ask(asks, {}, snapshot.to_dict())
        return self._ended(result)

    def _ended(self, result: AgentResult) -> Answered:
        if result.stop_reason not in ("end_turn", "stop_sequence"):
            self._trace.note("stopped", {"reason": result.stop_reason})
        if result.structured_output is not None and not self._ends_in_words():
            self._messages.append({"role": "assistant", "content": result.structured_output.model_dump_json()})
        return self._answered()

    def _ends_in_words(self) -> list[str]:
        last = self._messages[-1]
        return [last["content"]] if last["role"] == "assistant" and last["content"] else []

    def _answered(self) -> Answered:
        words = self._ends_in_words()
        if words:
            self._trace.ends_with(len(self._messages) - 1)
        return Answered(
            output="".join(words),
            messages=list(self._messages),
            iteration=iterations_in(self._messages) + 1,
            usage=dict(self._usage),
            evidence=self._trace.to_json(),
        )

    # --- asking ---------------------------------------------------------------------------------------------

    def ask(self, asks: list[dict[str, Any]], responses: dict[str, Any], snapshot: dict[str, Any]) -> Asked:
        """Pauses on the first of the interrupts that have no response yet; Strands goes on when all have one."""
        if not asks:
            raise AgentContractError("an interrupted Strands agent names what interrupted it")
        first = plain_json(asks[0], at="interrupt")
        call = self._call_of(first["id"])
        reason = first["reason"]
        question = reason if isinstance(reason, str) else reason.get("question") if isinstance(reason, dict) else None
        pause_data: dict[str, Any] = {
            **({"toolCallId": call["id"], "toolName": call["name"]} if call else {}),
            "question": question if isinstance(question, str) and question else str(first["name"]),
            "interrupt": {"name": first["name"], "reason": reason},
        }
        audience = self._host.audience
        who = audience if isinstance(audience, str) else audience(str(first["name"]), reason)
        shared = {"snapshot": encoded(snapshot), "responses": responses, "asks": asks}
        checkpoint = checkpoint_of(
            ENGINE,
            plain_json(shared, at="checkpoint"),
            pause_data=pause_data,
            agent_id=self._host.agent_id,
            trace=self._trace,
            usage=dict(self._usage),
            paused_at_ms=self._host.clock.now_ms(),
        )
        iteration = iterations_in(self._messages)
        self._fences.commit(list(self._messages), iteration)
        return Asked(
            pause_data=pause_data,
            checkpoint=checkpoint,
            messages=list(self._messages),
            iteration=iteration,
            audience=checked_audience(who, self._host.expires_in_s),
            expires_in_s=self._host.expires_in_s,
            usage=dict(self._usage),
            evidence=self._trace.to_json(),
        )

    def _call_of(self, interrupt_id: str) -> dict[str, Any] | None:
        """The call that an interrupt is about: its id is in the interrupt's; else the first without a result."""
        open_calls = self._open_calls()
        return next((call for call in open_calls if call["id"] in interrupt_id), open_calls[0] if open_calls else None)

    def _open_calls(self) -> list[dict[str, Any]]:
        end = len(self._messages)
        while end and self._messages[end - 1]["role"] == "tool":
            end -= 1
        return calls_of(self._messages[end - 1])[len(self._messages) - end :] if end else []

    def finish_pending(self, snapshot: dict[str, Any]) -> bool:
        """Tells Strands which of the round's results are durable; False where the round is over."""
        if not self._open_calls():
            snapshot.pop("interrupt_state", None)
            return False
        end = len(self._messages)
        while self._messages[end - 1]["role"] == "tool":
            end -= 1
        blocks = [block for message in to_strands(self._messages[end:]) for block in message["content"]]
        pending = snapshot["interrupt_state"]["pending_tool_execution"]
        pending["completed_tool_results"] = [block["toolResult"] for block in blocks if "toolResult" in block]
        return True

    def _take_finished(self, snapshot: dict[str, Any]) -> None:
        """Takes the results of calls that ran before the one that interrupted: they have happened."""
        pending = (snapshot.get("interrupt_state") or {}).get("pending_tool_execution") or {}
        done = {result["toolUseId"]: result for result in pending.get("completed_tool_results") or []}
        for call in self._open_calls():
            if call["id"] not in done:
                break
            self._take_results([done[call["id"]]])

    # --- what Strands tells ---------------------------------------------------------------------------------

    def _before_model(self, event: BeforeModelCallEvent) -> None:
        self._fences.check()
        self._began_ms = self._host.clock.monotonic_ms()

    def _before_tools(self, event: BeforeToolsEvent) -> None:
        self._fences.barrier()

    def _before_tool(self, event: BeforeToolCallEvent[Any]) -> None:
        self._fences.check()

    def _after_tool(self, event: AfterToolCallEvent[Any]) -> None:
        self._durations_ms[event.tool_use["toolUseId"]] = round(1000 * (event.duration or 0))

    def _added(self, event: MessageAddedEvent[Any]) -> None:
        message: Any = event.message
        self._fences.settle()
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        if message["role"] == "assistant":
            self._take_reply(message)
        elif results:
            self._take_round(message, results)
        else:
            self._messages.extend(from_strands(message))

    def _take_reply(self, message: dict[str, Any]) -> None:
        self._names |= names_in(message)
        said = from_strands({"role": "assistant", "content": message["content"]})
        is_something = any(one.get(key) for one in said for key in ("content", "toolCalls", "thinkingBlocks", KEPT))
        usage = (message.get("metadata") or {}).get("usage") or {}
        counted = {name: count for name in ("inputTokens", "outputTokens") if (count := usage.get(name))}
        for name, count in counted.items():
            self._usage[name] = self._usage.get(name, 0) + count
        calls = any(calls_of(one) for one in said)
        self._trace.model_call(
            iteration=iterations_in(self._messages) + 1,
            usage=counted,
            stop_reason="tool_use" if calls else "end_turn",
            duration_ms=max(0, self._host.clock.monotonic_ms() - self._began_ms),
            index=len(self._messages) if is_something else None,
        )
        if is_something:
            self._messages.extend(said)

    def _take_round(self, message: dict[str, Any], results: list[dict[str, Any]]) -> None:
        """A round of tool results is over; those that are there already were taken at a pause."""
        by_id = {result["toolUseId"]: result for result in results}
        self._take_results([by_id[call["id"]] for call in self._open_calls() if call["id"] in by_id])
        beside = [block for block in message["content"] if "toolResult" not in block]
        if beside:
            self._messages.extend(from_strands({"role": "user", "content": beside}))
        self._fences.commit(list(self._messages), iterations_in(self._messages) + 1)

    def _take_results(self, results: list[dict[str, Any]]) -> None:
        args = {call["id"]: call["args"] for message in self._messages for call in calls_of(message)}
        for result in results:
            (taken,) = from_strands({"role": "user", "content": [{"toolResult": result}]}, self._names)
            self._messages.append(taken)
            call_id = taken["toolCallId"]
            self._trace.tool_call(
                iteration=iterations_in(self._messages),
                name=self._names.get(call_id, ""),
                args=args.get(call_id, {}),
                content=taken["content"],
                index=len(self._messages) - 1,
                duration_ms=self._durations_ms.get(call_id, 0),
                is_error=bool(taken.get("isError")),
                rerun="possible" if self._rerun else None,
            )


def _alternating(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of one role as one message: most APIs want the roles to alternate."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**joined[-1], "content": [*joined[-1]["content"], *message["content"]]}
        elif message["content"]:
            joined.append(message)
    return joined


def _named(error: Exception) -> Exception:
    """What a Strands run raised, as turnkeep names it."""
    cause: Exception = error
    while isinstance(cause, EventLoopException):
        cause = cause.original_exception
    if isinstance(cause, ModelThrottledException):
        return ModelThrottledError()
    if isinstance(cause, ContextWindowOverflowException):
        return ContextWindowExceededError()
    if isinstance(cause, MaxTokensReachedException):
        return ModelError("The model's reply was cut at its token limit.")
    return cause
