"""A question is open: its processes are killed, its calls lost, its execution stopped, at every step to its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.chaos.stage import GO_ON, MODES, Row, Scene, Stage, Thread, said, settle, soon, until
from tests.e2e.scenes import YES

if TYPE_CHECKING:
    from local.demo import Reply

ASKS = "refund:1"
TWICE = "refund:1 then step:1"
"""An approved call, and another iteration behind it."""

RETRY = "the machine's retry"
UNKNOWN = "nobody: whether the call acted is not on record, so it never runs again"


def ask(thread: Thread, message: str = ASKS) -> str:
    """A message that leads to a question; the question's id."""
    reply = thread.say(message, idempotency_key="one")
    return str(reply.body["awaiting"]["askId"])


def close(thread: Thread, saw: str, healed: str, *, wants: int = 1, status: str = "complete") -> Row:
    """The row of a thread whose turn ends: how it ended, how often the approved call acted, and that all goes on."""
    until(lambda: thread.item().get("status", {}).get("S") == status, f"{thread.id} is {status}")
    acted = thread.times("refund")["1"]
    broken = [] if acted == wants else [f"the approved call acted {acted} times, not {wants}"]
    more = thread.say("what now?", idempotency_key="more")
    if more.body.get("output") != GO_ON:
        broken.append("the conversation does not go on")
    until(lambda: "RUNNING" not in [one["status"] for one in thread.executions()], f"the executions of {thread.id} end")
    lost = thread.lost(thread.first, "what now?")
    return Row(thread.mode, saw, healed, f"`{status}`", f"{acted} ×", lost, tuple(broken))


def the_process_died_before_the_start(stage: Stage, mode: str) -> Row:
    """SIGKILL behind the commit of the question, before its execution starts."""
    thread = Thread(stage, mode)
    held = thread.held("hold_answer", "TurnFunction", operation="UpdateItem", contains=["awaiting", "TURN#"])
    reply = soon(lambda: thread.say(ASKS, idempotency_key="one"))
    thread.slay(held)
    saw = said(reply())
    held.remove()
    thread.reconcile()
    thread.token()
    thread.answer(thread.item()["askId"]["S"])
    return close(thread, saw, "reconcile")


def the_start_was_refused(stage: Stage, mode: str) -> Row:
    """StartExecution throttled, every try."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "states", "operation": "StartExecution", "contains": [thread.id]}
    with stage.stack.faults.during("throttle", times=None, **facts):
        reply = thread.say(ASKS, idempotency_key="one")
    thread.owner.call("GET", f"/conversations/{thread.id}")
    thread.token()
    thread.answer(reply.body["awaiting"]["askId"])
    return close(thread, said(reply), "whoever looks at the conversation next")


def the_start_was_not_heard_of(stage: Stage, mode: str) -> Row:
    """StartExecution applied, its answer lost."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "states", "operation": "StartExecution", "contains": [thread.id]}
    with stage.stack.faults.during("lost", times=1, **facts):
        reply = thread.say(ASKS, idempotency_key="one")
    thread.token()
    thread.answer(reply.body["awaiting"]["askId"])
    row = close(thread, said(reply), "the client's retry: the same execution")
    return row if len(thread.executions()) == 1 else row.breaks("two executions")


def the_token_could_not_be_left(stage: Stage, mode: str) -> Row:
    """The machine's write of its token throttled twice."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "dynamodb", "operation": "UpdateItem", "contains": ["taskToken", thread.id]}
    with stage.stack.faults.during("throttle", times=2, function="-", **facts):
        ask_id = ask(thread)
        thread.token()
    thread.answer(ask_id)
    return close(thread, "202 `awaiting`", RETRY)


def the_answer_was_quicker_than_the_token(stage: Stage, mode: str) -> Row:
    """The answer came before the machine had left its token."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "dynamodb", "operation": "UpdateItem", "contains": ["taskToken", thread.id]}
    held = stage.stack.faults.add("hold", function="-", **facts)
    ask_id = ask(thread)
    held.wait_until_met()
    reply = thread.answer(ask_id)
    held.remove()
    return close(thread, said(reply), "the machine, which looks how the turn stands")


def _answer_killed(stage: Stage, mode: str, kind: str) -> tuple[Thread, str, Reply]:
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    thread.token()
    held = thread.held(kind, "AnswerFunction", operation="UpdateItem", contains=["answered", "TURN#"])
    reply = soon(lambda: thread.answer(ask_id))
    thread.slay(held)
    saw = said(reply())
    held.remove()
    return thread, saw, thread.answer(ask_id)


def the_answer_died_unrecorded(stage: Stage, mode: str) -> Row:
    """SIGKILL before the answer is recorded."""
    thread, saw, again = _answer_killed(stage, mode, "hold_cut")
    return close(thread, saw, f"the same answer again: {said(again)}")


def the_answer_died_recorded(stage: Stage, mode: str) -> Row:
    """SIGKILL behind the record of the answer, before the machine is told."""
    thread, saw, again = _answer_killed(stage, mode, "hold_answer")
    return close(thread, saw, f"the same answer again: {said(again)}, which tells it")


def the_signal_was_lost(stage: Stage, mode: str) -> Row:
    """SendTaskSuccess refused, every try."""
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    facts: dict[str, Any] = {"service": "states", "operation": "SendTaskSuccess", "contains": [thread.token()]}
    with stage.stack.faults.during("error", times=None, **facts):
        reply = thread.answer(ask_id)
    thread.reconcile()
    return close(thread, said(reply), "reconcile")


def reconcile_died_too(stage: Stage, mode: str) -> Row:
    """StartExecution cut, every try; then SIGKILL of reconcile at its own."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "states", "operation": "StartExecution", "contains": [thread.id]}
    with stage.stack.faults.during("cut", times=None, **facts):
        reply = thread.say(ASKS, idempotency_key="one")
    held = thread.held("hold_cut", "ReconcileFunction", service="states", operation="StartExecution")
    thread.reconcile()
    thread.slay(held)
    held.remove()
    thread.reconcile()
    thread.token()
    thread.answer(reply.body["awaiting"]["askId"])
    return close(thread, said(reply), "reconcile, a minute later")


def the_execution_was_stopped(stage: Stage, mode: str) -> Row:
    """The execution stopped by hand while it waits."""
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    first = thread.token()
    thread.stop_execution()
    thread.token(other_than=first)
    reply = thread.answer(ask_id)
    return close(thread, said(reply), "reconcile, told by EventBridge: another one")


def the_resume_died(point: str, did: str, acts: int, goes_on: tuple[str, ...] = ()) -> Scene:
    """A scene whose resume dies at a point of the agent's.

    Args:
        point: where.
        did: the same in words.
        acts: how often the approved call acts in the end.
        goes_on: the modes in which its result was durable.
    """

    def play(stage: Stage, mode: str) -> Row:
        thread = Thread(stage, mode)
        ask_id = ask(thread, TWICE)
        thread.token()
        thread.doom(point)
        reply = thread.answer(ask_id)
        until(lambda: not thread.is_doomed(), "the resume dies")
        thread.pass_time(1, "leaseUntil")
        if mode in goes_on:
            return close(thread, said(reply), RETRY, wants=acts)
        return close(thread, said(reply), UNKNOWN, wants=acts, status="failed")

    play.__doc__ = f"{did}."
    return play


def the_resume_died_at_a_write(did: str, healed: str, kind: str, *contains: str) -> Scene:
    """A scene whose resume dies while it waits for a write of its turn, or for that write's answer."""

    def play(stage: Stage, mode: str) -> Row:
        thread = Thread(stage, mode)
        ask_id = ask(thread)
        thread.token()
        held = thread.held(kind, "ResumeFunction", operation="UpdateItem", contains=["TURN#", *contains])
        reply = thread.answer(ask_id)
        thread.slay(held)
        held.remove()
        return close(thread, said(reply), healed)

    play.__doc__ = f"{did}."
    return play


def lambda_had_no_room(stage: Stage, mode: str) -> Row:
    """The resume's invocation throttled twice."""
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    thread.token()
    facts: dict[str, Any] = {"service": "lambda", "operation": "Invoke", "contains": [thread.id]}
    with stage.stack.faults.during("throttle", times=2, function="-", **facts) as fault:
        reply = thread.answer(ask_id)
        fault.wait_until_met(2)
        return close(thread, said(reply), RETRY)


def two_answered_at_once(stage: Stage, mode: str) -> Row:
    """Two supervisors answer at once, a yes and a no."""
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    thread.token()
    held = thread.held("hold", "AnswerFunction", operation="UpdateItem", contains=["answered", "TURN#"])
    first = soon(lambda: thread.answer(ask_id, {"approved": False, "by": "slow"}))
    held.wait_until_met()
    second = thread.answer(ask_id, YES)
    held.remove()
    saw = f"{said(second)}; the slower one {said(first())}"
    return close(thread, saw, "one conditional write: the first counts")


def nobody_answered(stage: Stage, mode: str) -> Row:
    """Nobody answered in time, and the execution was stopped."""
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    thread.token()
    thread.stop_execution()
    thread.pass_time(1, "expiresAt", "dueAt")
    stage.stack.fire("ReconcileFunction")
    until(lambda: thread.item()["status"]["S"] == "expired", "the ask is closed")
    late = thread.answer(ask_id)
    return close(thread, f"too late: {said(late)}", "reconcile", wants=0, status="expired")


def erased_meanwhile(stage: Stage, mode: str) -> Row:
    """The conversation erased while its question is open."""
    thread = Thread(stage, mode)
    ask_id = ask(thread)
    thread.token()
    reply = thread.owner.call("DELETE", f"/conversations/{thread.id}")
    late = thread.answer(ask_id)
    settle()
    statuses = thread.ended()
    broken = () if statuses == ["ABORTED"] and not thread.acts() else (f"executions {statuses}",)
    saw = f"{said(reply)}; an answer: {said(late)}"
    return Row(mode, saw, "the erasure stops the execution", "gone", f"{len(thread.acts())} ×", (), broken)


ONCE = ("exit",)
IN_THE_TOOL = "SIGKILL of the resume in the approved tool"
SCENES: tuple[tuple[Scene, tuple[str, ...]], ...] = (
    (the_process_died_before_the_start, ONCE),
    (the_start_was_refused, ONCE),
    (the_start_was_not_heard_of, ONCE),
    (reconcile_died_too, ONCE),
    (the_token_could_not_be_left, ONCE),
    (the_answer_was_quicker_than_the_token, ONCE),
    (the_answer_died_unrecorded, ONCE),
    (the_answer_died_recorded, ONCE),
    (the_signal_was_lost, ONCE),
    (two_answered_at_once, ONCE),
    (the_execution_was_stopped, ONCE),
    (nobody_answered, ONCE),
    (erased_meanwhile, ONCE),
    (lambda_had_no_room, ONCE),
    (the_resume_died_at_a_write("SIGKILL of the resume before its claim", RETRY, "hold_cut"), ONCE),
    (the_resume_died("before refund 1", f"{IN_THE_TOOL}, before it acts", 0), MODES),
    (the_resume_died("after refund 1", f"{IN_THE_TOOL}, after it acted", 1), MODES),
    (the_resume_died("model 2", "SIGKILL of the resume in the model's next call", 1, ("async", "sync")), MODES),
    (
        the_resume_died_at_a_write(
            "SIGKILL of the resume behind its commit", f"{RETRY}: nothing runs", "hold_answer", "complete"
        ),
        ONCE,
    ),
)
