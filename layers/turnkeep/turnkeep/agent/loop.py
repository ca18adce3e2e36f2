"""turnkeep's own agent: a small tool loop over a provider.

One iteration: ask the model; if it answers, done; if it calls tools, run them in call order, append the assistant
message together with its results, commit, and ask again. A call that needs a person ends the run as ``Asked``; the
resume gives that call its result, runs the calls behind it, and the loop goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.agent.calls import Asks, CallRunner, Done, Ready
from turnkeep.agent.history import calls_of, for_provider, split_system, tool_message
from turnkeep.agent.port import Answered, Asked, DurabilityMode, Outcome, TurnContext
from turnkeep.agent.provider import ModelRequest, Provider
from turnkeep.agent.replies import final_message, usable_reply
from turnkeep.agent.results import value_text
from turnkeep.agent.run_state import PausedCall, RunState, from_checkpoint, to_checkpoint
from turnkeep.agent.window import Window, window_note
from turnkeep.clock import Clock, SystemClock
from turnkeep.decisions import check_answer, gate_of
from turnkeep.errors import ConversationMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.agent.middleware import Middleware
    from turnkeep.agent.port import Recall
    from turnkeep.agent.tools import Tool
    from turnkeep.memory.keeping import MemoryWriter
    from turnkeep.messages import Message

MAX_ITERATIONS = 12
"""Model calls in one turn, unless the agent says otherwise."""

MAX_ENTRIES_NAMED = 50
"""Memory entries that the evidence names; the newest where there are more."""

MAX_RESULT_BYTES = 262_144
"""Of one tool result, unless the agent says otherwise; a larger one becomes an error that names both sizes."""


class Agent:
    """An agent for one turn: make it in your factory, once per turn.

    Attributes:
        agent_id: its name, or None; a conversation that one name recorded is not continued under another.
        agent_version: for the records, or None.
        durability: the mode for this conversation, or None for the stack's.
        memory: writers of what answered turns leave behind.
    """

    def __init__(
        self,
        *,
        provider: Provider,
        system: str | None = None,
        tools: Sequence[Tool] = (),
        middleware: Sequence[Middleware] = (),
        agent_id: str | None = None,
        agent_version: str | None = None,
        durability: DurabilityMode | None = None,
        max_iterations: int = MAX_ITERATIONS,
        window: Window | None = None,
        max_tokens: int | None = None,
        max_result_bytes: int = MAX_RESULT_BYTES,
        system_name: str = "system",
        memory: Sequence[MemoryWriter] = (),
        recall: Recall | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Puts an agent together.

        Args:
            provider: answers for the model.
            system: the system prompt.
            tools: functions decorated with ``@tool``, each name once.
            middleware: rules that may put a call before a person, in the order in which they are asked.
            agent_id: see ``Agent``.
            agent_version: see ``Agent``.
            durability: see ``Agent``.
            max_iterations: model calls in one turn. A turn that needs more ends with an answer that says so: its tool
                results are kept, and the next message goes on from them.
            window: how much of earlier turns the model is shown; None for everything that was read.
            max_tokens: at most so many tokens in one of the model's replies; None leaves it to the provider.
            max_result_bytes: of one tool result.
            system_name: names the system prompt in the evidence.
            memory: what is kept of answered turns: ``Beats()``, ``Snapshots()`` of ``turnkeep.memory.keeping``.
            recall: what the model is shown of it, such as ``Story()``; where it fails the turn goes on without.
            clock: the machine's, unless a test moves its own.

        Raises:
            ValueError: two tools have one name, or the bound on iterations is under 1.
        """
        names = [one.name for one in tools]
        if len(set(names)) < len(names):
            raise ValueError("Two tools of an agent have the same name.")
        if max_iterations < 1:
            raise ValueError("max_iterations is at least 1.")
        self.agent_id, self.agent_version, self.durability = agent_id, agent_version, durability
        self._provider, self._system, self._system_name = provider, system, system_name
        self._tools = {one.name: one for one in tools}
        self._max_iterations, self._max_tokens = max_iterations, max_tokens
        self._window = window or Window()
        self.memory, self._recall = tuple(memory), recall
        self._clock = clock or SystemClock()
        self._runner = CallRunner(
            self._tools, tuple(middleware), system=system, clock=self._clock, max_result_bytes=max_result_bytes
        )

    def run(self, context: TurnContext) -> Outcome:
        """Runs the turn's message, or goes on behind what an earlier attempt made durable.

        Raises:
            ModelError: the model gave no usable answer.
        """
        state = RunState.fresh(context)
        self._describe(state)
        return self._go_on(state)

    def resume(self, context: TurnContext, checkpoint: dict[str, Any], decision: Any) -> Outcome:
        """Goes on behind a pause. No earlier tool runs again, and the decided one at most once.

        ``context.messages`` are the turn's messages as they stand, its open calls not closed. Where they already hold
        the decided call's result (an earlier resume came that far and died), the run goes on behind it.

        Raises:
            UnknownStoredFormatError: another engine wrote the checkpoint.
            MalformedStoredItemError: the checkpoint, or the messages, lack what a resume needs.
            ConversationMismatchError: another agent asked.
            DecisionRequiredError: the pause wants a decision, and this is none. Nothing ran.
            StaleDecisionError: the decision is about something else than was shown. Nothing ran.
            ModelError: the model gave no usable answer.
        """
        state, paused = from_checkpoint(context, checkpoint)
        self._refuse_foreign(checkpoint["sharedState"].get("agent"))
        check_answer(checkpoint.get("pauseData"), decision)
        self._describe(state)
        if len(state.messages) - 1 - paused.assistant_index == paused.call_index:
            asked_again = self._decide(state, paused, checkpoint.get("pauseData"), decision)
            if asked_again is not None:
                return asked_again
        return self._go_on(state)

    def _go_on(self, state: RunState) -> Outcome:
        """The loop: open calls first, then the model, until an answer, an ask or the bound."""
        last = state.messages[-1]
        if last["role"] == "assistant" and not calls_of(last):
            # An earlier attempt had its answer and died before that was committed.
            return self._answered(state, last["content"])
        while True:
            if state.open_calls:
                asked = self._finish_calls(state)
                if asked is not None:
                    return asked
            if state.iteration > self._max_iterations:
                return self._out_of_iterations(state)
            message, stop_reason = self._converse(state)
            if not message.get("toolCalls"):
                if message["content"]:
                    state.messages.append(final_message(message))
                return self._answered(state, message["content"])
            state.messages.append(message)
            if stop_reason == "max_tokens":
                self._refuse_cut_calls(state)

    def _converse(self, state: RunState) -> tuple[Message, str]:
        context = state.context
        context.check()
        kept = self._window.cut(context.history, [size for _, size in context.history_turns])
        extra_system, messages = split_system(for_provider(kept.messages, state.messages))
        request = ModelRequest(
            messages=messages,
            system="\n\n".join(part for part in (self._system, state.recalled, *extra_system) if part) or None,
            tools=[one.spec for one in self._tools.values()],
            time_left_ms=context.time_left_ms(),
            max_tokens=self._max_tokens,
        )
        started_ms = self._clock.monotonic_ms()
        reply = self._provider.converse(request)
        duration_ms = self._clock.monotonic_ms() - started_ms
        message = usable_reply(reply.message)
        state.count(reply.usage)
        becomes_one = bool(message["content"] or message.get("toolCalls"))
        state.trace.model_call(
            iteration=state.iteration,
            usage=reply.usage,
            stop_reason=reply.stop_reason,
            duration_ms=duration_ms,
            index=len(state.messages) if becomes_one else None,
        )
        return message, reply.stop_reason

    def _finish_calls(self, state: RunState) -> Asked | None:
        """Runs the open calls of the last assistant message in call order and commits; an ask where one has to wait."""
        assistant_index = state.assistant_index
        state.context.barrier()
        while state.open_calls:
            first = len(state.messages) - 1 - assistant_index
            asked = self._run_group(state, assistant_index, first, self._group_size(state.open_calls))
            if asked is not None:
                return asked
        state.context.commit(list(state.messages), state.iteration + 1)
        state.iteration += 1
        return None

    def _group_size(self, open_calls: list[dict[str, Any]]) -> int:
        """How many of the open calls run together: neighbours that all say they may, else one."""
        size = 0
        while size < len(open_calls) and self._runner.is_parallel(open_calls[size]):
            size += 1
        return max(1, size)

    def _run_group(self, state: RunState, assistant_index: int, first: int, size: int) -> Asked | None:
        """Runs a group of calls; those in front of one that has to wait run, it and those behind it do not."""
        prepared: list[Ready | Done] = []
        waiting: Asks | None = None
        for call_index in range(first, first + size):
            state.context.check()
            one = self._runner.prepare(state, assistant_index, call_index)
            if isinstance(one, Asks):
                waiting = one
                break
            prepared.append(one)
        ready = [one for one in prepared if isinstance(one, Ready)]
        ran = iter(self._runner.run_all(ready, state) if ready else [])
        for call_index, one in enumerate(prepared, first):
            outcome = next(ran) if isinstance(one, Ready) else one
            if isinstance(outcome, Asks):
                return self._pause(state, assistant_index, call_index, outcome)
            self._take(state, assistant_index, call_index, outcome)
        return None if waiting is None else self._pause(state, assistant_index, first + len(prepared), waiting)

    def _take(self, state: RunState, assistant_index: int, call_index: int, done: Done) -> None:
        """Appends a call's result."""
        call = calls_of(state.messages[assistant_index])[call_index]
        state.messages.append(tool_message(call, done.content, is_error=done.is_error))
        state.trace.tool_call(
            iteration=state.iteration,
            name=call["name"],
            args=call["args"],
            content=done.content,
            index=len(state.messages) - 1,
            duration_ms=done.duration_ms,
            is_error=done.is_error,
            rerun=done.rerun,
            notes=done.notes,
        )

    def _pause(self, state: RunState, assistant_index: int, call_index: int, asks: Asks) -> Asked:
        call = calls_of(state.messages[assistant_index])[call_index]
        pause_data = {"toolCallId": call["id"], "toolName": call["name"], **asks.pause_data}
        paused = PausedCall(assistant_index, call_index, call["args"], (*asks.gates_passed, asks.gate))
        checkpoint = to_checkpoint(
            state, paused, pause_data=pause_data, agent=self._named(), paused_at_ms=self._clock.now_ms()
        )
        state.context.commit(list(state.messages), state.iteration)
        return Asked(
            pause_data=pause_data,
            checkpoint=checkpoint,
            messages=list(state.messages),
            iteration=state.iteration,
            audience=asks.audience,
            expires_in_s=asks.expires_in_s,
            usage=dict(state.usage),
            evidence=state.trace.to_json(),
        )

    def _decide(self, state: RunState, paused: PausedCall, pause_data: Any, decision: Any) -> Asked | None:
        """Gives the paused call its result; an ask where another gate, or the tool itself, asks again."""
        context, index, call_index = state.context, paused.assistant_index, paused.call_index
        context.barrier()
        context.check()
        if gate_of(pause_data) is None:
            content = value_text(decision, at="decision")
            self._runner.remember_answer(state, index, call_index, content)
            self._take(state, index, call_index, Done(content, notes={"answered": True}))
        elif decision["approved"] is False:
            note = decision.get("note")
            said = f": {note}" if isinstance(note, str) and note else ""
            self._take(state, index, call_index, Done(f"declined by human{said}", notes={"approved": False}))
        else:
            one = self._runner.prepare(state, index, call_index, gates_passed=paused.gates_passed, decision=decision)
            outcome = self._runner.run_all([one], state)[0] if isinstance(one, Ready) else one
            if isinstance(outcome, Asks):
                return self._pause(state, index, call_index, outcome)
            noted = Done(
                outcome.content,
                outcome.is_error,
                outcome.duration_ms,
                outcome.rerun,
                {**outcome.notes, "approved": True},
            )
            self._take(state, index, call_index, noted)
        # Where neighbours are still open the iteration stays, but what the decided call did is agreed before they run.
        if not state.open_calls:
            state.iteration += 1
        context.commit(list(state.messages), state.iteration)
        return None

    def _refuse_cut_calls(self, state: RunState) -> None:
        """Calls of a reply that was cut at its token limit are not run: what they lack, nobody knows."""
        assistant_index = state.assistant_index
        for call_index in range(len(state.open_calls)):
            cut = "error: not run: your reply was cut at its token limit; call again with less"
            self._take(state, assistant_index, call_index, Done(cut, is_error=True))
        state.context.commit(list(state.messages), state.iteration + 1)
        state.iteration += 1

    def _out_of_iterations(self, state: RunState) -> Answered:
        text = (
            f"I stopped after {self._max_iterations} steps without reaching an answer. What I found so far is kept: "
            "send another message and I go on from there."
        )
        state.trace.note("stopped", {"reason": "max-iterations", "maxIterations": self._max_iterations})
        state.messages.append({"role": "assistant", "content": text})
        return self._answered(state, text)

    def _answered(self, state: RunState, output: str) -> Answered:
        if output:
            state.trace.ends_with(len(state.messages) - 1)
        return Answered(
            output=output,
            messages=list(state.messages),
            iteration=state.iteration,
            usage=dict(state.usage),
            evidence=state.trace.to_json(),
        )

    def _describe(self, state: RunState) -> None:
        """What the evidence says of the whole turn: the system prompt, the agent, the window."""
        context = state.context
        state.trace.system(self._system_name, self._system)
        if named := self._named():
            state.trace.note("agent", named)
        kept = self._window.cut(context.history, [size for _, size in context.history_turns])
        window = window_note(context, kept)
        window |= self._remind(state, window["leftOut"])
        state.trace.note("window", window)

    def _remind(self, state: RunState, left_out: dict[str, int]) -> dict[str, Any]:
        """Asks memory; what the evidence says of it."""
        if self._recall is None or state.context.memory is None:
            return {}
        try:
            found = self._recall(state.context.memory(), str(state.messages[0]["content"]))
        except Exception as error:  # memory is a help: a turn goes on without it, and says so
            return {"recallFailed": type(error).__name__}
        state.recalled = found.text
        if found.left_out:
            left_out["entries"] = found.left_out
        return {"entries": list(found.entries)[-MAX_ENTRIES_NAMED:]} if found.entries else {}

    def _named(self) -> dict[str, str]:
        named = {"id": self.agent_id, "version": self.agent_version}
        return {name: value for name, value in named.items() if value is not None}

    def _refuse_foreign(self, stored: Any) -> None:
        stored_id = stored.get("id") if isinstance(stored, dict) else None
        if stored_id is not None and self.agent_id is not None and stored_id != self.agent_id:
            raise ConversationMismatchError(stored_agent_id=stored_id, agent_id=self.agent_id)
