"""DynamoDB's TTL takes turns away, in its order and out of it."""

from __future__ import annotations

from bench.chaos.stage import GO_ON, Row, Scene, Stage, Thread, said


def ttl_took(numbers: tuple[int, ...], did: str) -> Scene:
    """A scene in which turns of five disappear."""

    def play(stage: Stage, mode: str) -> Row:
        thread = Thread(stage, mode)
        said_ = [f"message {number}" for number in range(1, 6)]
        for message in said_:
            thread.say(message)
        for number in numbers:
            thread.expire(number)
        read = thread.owner.call("GET", f"/conversations/{thread.id}/transcript?limit=100")
        reply = thread.say("what now?")
        kept = [message for number, message in enumerate(said_, 1) if number not in numbers]
        broken = [] if reply.body.get("output") == GO_ON and reply.body.get("turn") == 6 else ["it does not go on"]
        return Row(
            mode, f"reading: {read.status}, {len(kept)} of 5 turns; the next message: {said(reply)}",
            "nothing to put right", "`complete`", "", thread.lost(*kept, "what now?"), tuple(broken),
        )  # fmt: skip

    play.__doc__ = f"{did}."
    return play


ONCE = ("exit",)
SCENES: tuple[tuple[Scene, tuple[str, ...]], ...] = (
    (ttl_took((1, 2), "TTL deletes the two oldest of five turns"), ONCE),
    (ttl_took((3,), "TTL deletes the middle one of five turns, before the older ones"), ONCE),
)
