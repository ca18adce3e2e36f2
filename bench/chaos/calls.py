"""Calls of a turn are dropped, answered into the void, throttled and refused, and messages come at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bench.chaos.stage import ANSWER, MODES, WORK, Row, Scene, Stage, Thread, said, until

if TYPE_CHECKING:
    from local.demo import Reply

SUBMITS = 10


def facts_of(thread: Thread, operation: str, *contains: str, **more: Any) -> dict[str, Any]:
    """A fault that meets calls of this conversation's turn."""
    return {"service": "dynamodb", "operation": operation, "contains": [thread.id, *contains], **more}


def close(thread: Thread, saw: str, healed: str) -> Row:
    """The row of a thread whose turn is answered."""
    turn = thread.turn()
    broken = []
    if turn.get("output") != ANSWER:
        broken.append("the turn is not answered")
    if set(thread.times("pay").values()) != {1}:
        broken.append("what acts once did not act once")
    return Row(thread.mode, saw, healed, f"`{turn.get('status')}`", thread.acted(), thread.lost(WORK), tuple(broken))


def while_it(kind: str, did: str, healed: str, operation: str, *contains: str, **more: Any) -> Scene:
    """A scene whose one request meets a fault that it outlives."""

    def play(stage: Stage, mode: str) -> Row:
        thread = Thread(stage, mode)
        with stage.stack.faults.during(kind, **facts_of(thread, operation, *contains, **more)) as fault:
            reply = thread.say(WORK, idempotency_key="one")
            if not fault.met:
                raise RuntimeError(f"nobody met it: {did}")
        return close(thread, said(reply), healed)

    play.__doc__ = f"{did}."
    return play


def the_table_was_away(stage: Stage, mode: str) -> Row:
    """DynamoDB answers 500 to everything, from before the claim on."""
    thread = Thread(stage, mode)
    facts = facts_of(thread, "Query", function="TurnFunction") | {"operation": None}
    with stage.stack.faults.during("error", times=None, **facts):
        reply = thread.say(WORK, idempotency_key="one")
    stored = thread.item()
    again = thread.say(WORK, idempotency_key="one")
    row = close(thread, said(reply), f"the same request again: {said(again)}")
    return row.breaks("something was stored") if stored else row


def the_commit_was_refused(stage: Stage, mode: str) -> Row:
    """DynamoDB answers 500 to every write of the turn's record behind its claim."""
    thread = Thread(stage, mode)
    with stage.stack.faults.during(
        "error", times=None, **facts_of(thread, "UpdateItem", "TURN#", function="TurnFunction")
    ):
        reply = thread.say(WORK, idempotency_key="one")
    thread.pass_time(1, "leaseUntil")
    again = thread.say(WORK, idempotency_key="one", prefer="wait=20")
    thread.decide_doubts(again.body)
    return close(thread, said(reply), f"the same request again: {said(again)}")


def nobody_hears_events(stage: Stage, mode: str) -> Row:
    """PutEvents refused, every try."""
    thread = Thread(stage, mode)
    facts: dict[str, Any] = {"service": "events", "operation": "PutEvents"}
    with stage.stack.faults.during("error", times=None, function="TurnFunction", **facts):
        reply = thread.say(WORK, idempotency_key="one")
    return close(thread, said(reply), "nothing to put right: an event is a hint")


def many_at_once(stage: Stage, mode: str) -> Row:
    """Ten copies of one request at once, with one Idempotency-Key."""
    thread = Thread(stage, mode)

    def send(_: int) -> Reply:
        return thread.say(WORK, idempotency_key="one", prefer="wait=20")

    with ThreadPoolExecutor(SUBMITS) as pool:
        replies = list(pool.map(send, range(SUBMITS)))
    kinds = sorted({said(reply) for reply in replies})
    row = close(thread, f"{SUBMITS} × {', '.join(kinds)}", "the claim: one runs, the others are told")
    alike = {str(reply.body) for reply in replies}
    return row if len(alike) == 1 else row.breaks(f"{len(alike)} different replies")


def without_a_key(stage: Stage, mode: str) -> Row:
    """Ten messages at once, without a key."""
    thread = Thread(stage, mode)
    with ThreadPoolExecutor(SUBMITS) as pool:
        replies = list(pool.map(lambda _: thread.say(WORK), range(SUBMITS)))
    won = sum(1 for reply in replies if reply.status < 300)
    refused = sorted({said(reply) for reply in replies if reply.status >= 300})
    row = close(thread, f"{won} × 200 `complete`; {SUBMITS - won} × {', '.join(refused)}", "the claim: one wins")
    return row if won == 1 else row.breaks(f"{won} ran")


def erased_in_part(stage: Stage, mode: str) -> Row:
    """BatchWriteItem leaves one item of each batch undone, four times, while the conversation is erased."""
    thread = Thread(stage, mode)
    thread.say(WORK, idempotency_key="one")
    facts: dict[str, Any] = {"service": "dynamodb", "operation": "BatchWriteItem", "contains": [thread.id]}
    with stage.stack.faults.during("partial", times=4, leave=1, **facts) as fault:
        reply = thread.owner.call("DELETE", f"/conversations/{thread.id}")
        met = fault.met
    until(lambda: thread.owner.call("GET", f"/conversations/{thread.id}").status == 404, "it is gone")
    left = () if met and not thread.item() else ("something is left",)
    return Row(mode, said(reply), "the erasure writes them again", "gone", "", (), left)


ONCE = ("exit",)
RETRY = "the client's retry"
OWN_MARK = f"{RETRY}, which knows its own mark"
SCENES: tuple[tuple[Scene, tuple[str, ...]], ...] = (
    (while_it("cut", "The claim's call dropped on its way", RETRY, "PutItem", "TURN#"), ONCE),
    (while_it("lost", "The claim written, its answer lost", OWN_MARK, "PutItem", "TURN#"), ONCE),
    (while_it("lost", "An iteration's record written, its answer lost", RETRY, "PutItem", "SEG#"), ("sync",)),
    (while_it("lost", "The commit written, its answer lost", OWN_MARK, "UpdateItem", "TURN#", "complete"), ONCE),
    (while_it("throttle", "The first three updates throttled", RETRY, "UpdateItem", times=3), ONCE),
    (while_it("slow", "Every write of an iteration's record takes a second", "nothing: `sync` waits for it",
              "PutItem", "SEG#", times=None, delay_ms=1_000), ("async", "sync")),
    (the_table_was_away, ONCE),
    (the_commit_was_refused, MODES),
    (nobody_hears_events, ONCE),
    (many_at_once, ONCE),
    (without_a_key, ONCE),
    (erased_in_part, ONCE),
)  # fmt: skip
