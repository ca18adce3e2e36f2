"""A turn's process is killed at every kind of place, in every mode; then the same request comes, or a new message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.chaos.stage import GO_ON, MODES, WORK, Stage, Thread, said, soon
from tests.process.forge import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_WHOLE: Final = 11
"""Messages of the whole turn: the user's, three iterations of three, the answer."""


@dataclass(frozen=True)
class Point:
    """A place where the process dies.

    Attributes:
        name: in words.
        fault: what holds the process there, as facts of a fault; empty where the agent kills it by itself.
        at: where the agent does.
        modes: those in which a process comes there.
    """

    name: str
    fault: tuple[tuple[str, Any], ...] = ()
    at: str = ""
    modes: tuple[str, ...] = MODES


def _held(kind: str, operation: str, *contains: str, skip: int = 0) -> tuple[tuple[str, Any], ...]:
    return (("kind", kind), ("operation", operation), ("contains", list(contains)), ("skip", skip))


WRITES_AS_IT_RUNS: Final = ("async", "sync")
POINTS: Final = (
    Point("before the claim is written", _held("hold_cut", "PutItem", "TURN#")),
    Point("behind the claim", _held("hold_answer", "PutItem", "TURN#")),
    Point("in the first call of the model", at="model 1"),
    Point("in the second call of the model", at="model 2"),
    Point("in a tool, before it acts", at="before step 2"),
    Point("in a tool, after it acted", at="after step 2"),
    Point("in a tool that acts once, before it acts", at="before pay 2"),
    Point("in a tool that acts once, after it acted", at="after pay 2"),
    Point("before an iteration's record", _held("hold_cut", "PutItem", "SEG#", skip=1), modes=WRITES_AS_IT_RUNS),
    Point("behind an iteration's record", _held("hold_answer", "PutItem", "SEG#", skip=1), modes=WRITES_AS_IT_RUNS),
    Point("in the last call of the model", at="model 4"),
    Point("before the commit", _held("hold_cut", "UpdateItem", "TURN#", "complete")),
    Point("while the commit was on its way", _held("hold", "UpdateItem", "TURN#", "complete")),
    Point("behind the commit, before the reply", _held("hold_answer", "UpdateItem", "TURN#", "complete")),
)


@dataclass(frozen=True)
class Death:
    """What one death led to.

    Attributes:
        saw: what the dead process's caller saw.
        kept: how many messages of the turn were durable.
        early: what the next one saw who came before the lease had run out; empty where there was no lease.
        then: what the one saw who came behind it.
        asked: how often the owner was asked about a call in doubt.
        again: how many of the tools that may run twice did.
        status: of the turn whose process died, in the end.
        lost: messages that nobody finds any more.
        broken: promises that did not hold.
    """

    point: Point
    mode: str
    saw: str
    kept: int
    early: str
    then: str
    asked: int
    again: int
    status: str
    lost: tuple[str, ...]
    broken: tuple[str, ...]


def die(stage: Stage, point: Point, mode: str) -> tuple[Thread, str]:
    """A request whose process is killed at a point: its conversation, and what its caller saw."""
    thread = Thread(stage, mode)
    if not point.fault:
        thread.doom(point.at)
        return thread, said(thread.say(WORK, idempotency_key="one"))
    facts = dict(point.fault)
    held = thread.held(facts.pop("kind"), "TurnFunction", **facts)
    reply = soon(lambda: thread.say(WORK, idempotency_key="one"))
    thread.slay(held)
    seen = said(reply())
    held.remove()
    return thread, seen


def the_same_request(stage: Stage, point: Point, mode: str) -> Death:
    """It dies, and the request is sent again."""
    thread, saw = die(stage, point, mode)
    kept, before = thread.kept(), thread.times("step")
    early = _comes_too_early(thread)
    reply = thread.say(WORK, idempotency_key="one", prefer="wait=20")
    turn, asked = thread.decide_doubts(reply.body)
    pays, steps = thread.times("pay"), thread.times("step")
    broken = _broken(
        ("the turn is answered", turn.get("status") == "complete"),
        ("what acts once acted once", dict(pays) == {"1": 1, "2": 1, "3": 1}),
        ("every tool acted", set(steps) == {"1", "2", "3"}),
        ("under sync at most the current iteration ran again", mode != "sync" or _again(before, steps) <= 1),
        ("sent once more, it is told and nothing runs", _is_told(thread)),
    )
    return Death(
        point, mode, saw, kept, early, said(reply), asked, _again(before, steps),
        str(turn.get("status")), thread.lost(WORK), broken,
    )  # fmt: skip


def a_new_message(stage: Stage, point: Point, mode: str) -> Death:
    """It dies, and its caller never comes back: somebody says something else."""
    thread, saw = die(stage, point, mode)
    kept, before = thread.kept(), thread.acts()
    early = _comes_too_early(thread, "what now?", "two")
    reply = thread.say("what now?", idempotency_key="two")
    first = thread.turn(1)["status"] if kept else "never was"
    broken = _broken(
        ("the new message is answered", reply.body.get("output") == GO_ON),
        ("nothing acts any more", thread.acts() == before),
        ("what was durable stays", not kept or thread.kept() == kept),
        ("the dead turn is closed", first in ("failed", "complete", "never was")),
    )
    wanted = [WORK, "what now?"] if kept else ["what now?"]
    return Death(point, mode, saw, kept, early, said(reply), 0, 0, first, thread.lost(*wanted), broken)


def _comes_too_early(thread: Thread, message: str = WORK, key: str = "one") -> str:
    """Whoever comes while the dead process might be alive is told so; then its lease runs out."""
    if thread.item().get("status", {}).get("S") != "running":
        return ""
    early = said(thread.say(message, idempotency_key=key))
    thread.pass_time(1, "leaseUntil")
    return early


def _is_told(thread: Thread) -> bool:
    acts = thread.acts()
    reply = thread.say(WORK, idempotency_key="one")
    return reply.body.get("turn") == 1 and reply.body.get("status") == "complete" and thread.acts() == acts


def _again(before: Any, after: Any) -> int:
    """How many calls that had acted acted once more."""
    return sum(1 for n in before if after[n] > before[n])


def _broken(*promises: tuple[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, held in promises if not held)


def play(stage: Stage, points: Sequence[Point] = POINTS) -> tuple[list[Death], list[Death]]:
    """Every point in every mode that comes there: with the same request behind it, and with a new message."""
    cases = [(point, mode) for point in points for mode in point.modes]
    same = side_by_side(lambda case: the_same_request(stage, *case), cases)
    return same, side_by_side(lambda case: a_new_message(stage, *case), cases)
