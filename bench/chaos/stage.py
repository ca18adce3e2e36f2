"""What the scenes play on: the local stack with an agent that acts on a world outside, seen from a conversation."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.scenes import Conversation, wait_for
from tests.e2e.stages import redeliver_soon, stack_with
from turnkeep.adapters.dynamo import DynamoItemStore
from turnkeep.clock import SystemClock
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger

if TYPE_CHECKING:
    from local.demo import Reply
    from local.stack import LocalStack, SetFault

LAYER: Final = Path(__file__).parent / "layer"
MODES: Final = ("exit", "async", "sync")
WORK: Final = "step:1 pay:1 then step:2 pay:2 then step:3 pay:3"
ANSWER: Final = "stepped 1; paid 1; stepped 2; paid 2; stepped 3; paid 3"
GO_ON: Final = "On we go."
PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class Row:
    """One line of the page: what came of a thing that was done.

    Attributes:
        mode: of durability.
        saw: what the caller saw.
        healed: what put it right.
        came: how the turn ended.
        acted: how often the tool acted.
        lost: what was said and is not there; empty where nothing is.
        broken: promises that did not hold; empty where all did.
        did: what was killed, lost or moved.
    """

    mode: str
    saw: str
    healed: str
    came: str
    acted: str
    lost: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    did: str = ""

    def breaks(self, promise: str) -> Row:
        """The same, with one more promise that did not hold."""
        return replace(self, broken=(*self.broken, promise))


class Thread(Conversation):
    """A conversation with a world of its own, in which its processes can be made to die.

    Args:
        stage: where it plays.
        mode: of durability.
    """

    def __init__(self, stage: Stage, mode: str = "exit") -> None:
        super().__init__(stage.stack, mode)
        self.mode = mode
        self.first = ""
        self._world = stage.world

    def say(self, message: str, **headers: str) -> Reply:
        """A message; the first one is remembered, to be looked for in the end."""
        self.first = self.first or message
        return super().say(message, **headers)

    # --- fates ----------------------------------------------------------------------------------------------

    def doom(self, point: str) -> None:
        """Whoever comes to a point of the agent's first, dies there."""
        part = self._world / f"{self.id}.part"
        part.write_text(point, "utf-8")
        part.rename(part.with_suffix(".fate"))  # whole, or not there

    def is_doomed(self) -> bool:
        """Whether nobody came there yet."""
        return (self._world / f"{self.id}.fate").exists()

    def slay(self, held: SetFault) -> None:
        """Kills the process that met a fault."""
        held.wait_until_met()
        faults = self.stack.control("GET", "faults")["faults"]
        (met,) = [fault["met_by"] for fault in faults if fault["id"] == held.id]
        if not self.stack.lambdas.signal(met[-1], "KILL"):
            raise RuntimeError("the process that was to be killed had ended")

    # --- the world ------------------------------------------------------------------------------------------

    def acts(self) -> list[dict[str, Any]]:
        """What was done to the world, in order."""
        book = self._world / f"{self.id}.book"
        return [json.loads(line) for line in book.read_text("utf-8").splitlines()] if book.exists() else []

    def acted(self) -> str:
        """How often its tools acted, in words."""
        return " · ".join(f"{name} {sum(self.times(name).values())} ×" for name in ("step", "pay"))

    def times(self, name: str) -> Counter[str]:
        """How often each of a tool's calls acted."""
        return Counter(act["n"] for act in self.acts() if act["name"] == name)

    # --- the ledger -----------------------------------------------------------------------------------------

    def kept(self, number: int = 1) -> int:
        """How many of a turn's messages are durable."""
        ledger = Ledger(DynamoItemStore(self._dynamo, self._outputs["TableName"]), SystemClock())
        turns = [one for one in ledger.hydrate(ConversationKey(self.id)).turns() if one.turn == number]
        return len(ledger.messages_of(turns)[number]) if turns else 0

    def expire(self, number: int) -> None:
        """DynamoDB's TTL deletes a turn and what belongs to it."""
        low = f"#{number:016d}"
        query = self._dynamo.query(
            TableName=self._outputs["TableName"],
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": self._key(number)["pk"]},
        )
        for item in query["Items"]:
            if low in item["sk"]["S"]:
                key = {"pk": item["pk"], "sk": item["sk"]}
                self._dynamo.delete_item(TableName=self._outputs["TableName"], Key=key)

    def transcript(self) -> list[str]:
        """What people are shown."""
        shown = self.owner.call("GET", f"/conversations/{self.id}/transcript?limit=100").body.get("messages", [])
        return [str(message["content"]) for message in shown]

    def lost(self, *said: str) -> tuple[str, ...]:
        """Those of the messages that nobody finds any more."""
        there = self.transcript()
        return tuple(message for message in said if message not in there)

    def decide_doubts(self, turn: dict[str, Any], number: int = 1) -> tuple[dict[str, Any], int]:
        """The owner is asked about a call in doubt, looks into the world's book, and decides by that.

        Returns:
            The turn as it ended, and how often they were asked.
        """
        asked = 0
        while turn.get("status") == "awaiting":
            ask = turn["awaiting"]
            asked += 1
            acted = self.times("pay")[ask["ask"]["detail"]["args"]["n"]] > 0
            self.answer(ask["askId"], {"approved": not acted, "by": "alice"}, who=self.owner)
            turn = wait_for(lambda old=ask["askId"]: self._moved_on(number, old), "the answer is taken up", PATIENCE_S)
        return turn, asked

    def _moved_on(self, number: int, old_ask: str) -> dict[str, Any] | None:
        turn = self.turn(number)
        still = turn.get("status") in ("answered", "running") or turn.get("awaiting", {}).get("askId") == old_ask
        return None if still else turn


@dataclass
class Stage:
    """The stack, and the world that its agent acts on."""

    stack: LocalStack
    world: Path

    @classmethod
    def set_up(cls, folder: Path) -> Stage:
        """A stage whose stack is not started yet."""
        world = folder / "world"
        world.mkdir()
        stack = stack_with(LAYER, "acting_desk:build", folder, env_overrides={"CHAOS_WORLD": str(world)})
        return cls(stack, world)

    def __enter__(self) -> Stage:
        self.stack.start()
        redeliver_soon(self.stack)
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.stop()


Scene = Callable[[Stage, str], Row]
"""Plays in one mode of durability and tells what came of it; its docstring says what it does."""


def said(reply: Reply) -> str:
    """What a caller saw, in a word or two."""
    if reply.status < 400:
        return f"{reply.status} `{reply.body.get('status')}`" if reply.body.get("status") else str(reply.status)
    code = reply.body.get("error", {}).get("code") if isinstance(reply.body.get("error"), dict) else None
    return f"{reply.status} `{code}`" if code else str(reply.status)


def soon(call: Callable[[], Any]) -> Callable[[], Any]:
    """Begins a call beside this one; what is returned waits for its end."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)

    def result() -> Any:
        try:
            return future.result(120)
        finally:
            pool.shutdown(wait=False)

    return result


def until(look: Callable[[], bool], what: str) -> None:
    """Waits until something is so."""
    wait_for(lambda: look() or None, what, PATIENCE_S)


def settle() -> None:
    """A moment in which whatever still goes on shows itself."""
    time.sleep(0.5)
