"""Records what this release stores: ``python -m tests.history.record 0.1.0``. Files that are there are never touched.

The clock is moved by hand and ids are counted, so that a history looks the same but for how long its tools ran.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import refund_desk
from tests.history.stored import HERE, shortened, write, write_checksums
from tests.usecases.envelopes import fixture
from tests.usecases.workshop import ALICE, KEY, Workshop, answer, called, doing, key_of, noise, saying
from turnkeep.errors import TurnkeepError
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.import_conversation import import_conversation
from turnkeep.usecases.read import read_transcript
from turnkeep.usecases.resume_turn import expire_ask, fail_resume, resume_turn
from turnkeep.usecases.withdraw import withdraw_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import TurnContext
    from turnkeep.ledger.memory import MemoryItemStore

SUPERVISOR = Caller("sue", None, frozenset({"supervisor"}))
YES = {"approved": True, "by": "sue", "at": 1}
NO = {"approved": False, "by": "sue", "at": 1, "note": "not today"}


@dataclass(frozen=True)
class Story:
    """How a history came to be."""

    about: str
    tell: Callable[[Workshop], Any]


def _soon(shop: Workshop) -> FixedDeadline:
    return FixedDeadline.after(shop.clock, 30_000)


def _ask(shop: Workshop) -> str:
    ask = shop.take("Refund order B-200, please").ask
    assert ask is not None
    return ask.ask_id


def _answer(shop: Workshop, decision: Any) -> str:
    ask_id = _ask(shop)
    answer_ask(shop.deps(), SUPERVISOR, KEY, ask_id=ask_id, decision=decision, deadline=_soon(shop))
    return ask_id


def _resumed(shop: Workshop, decision: Any) -> None:
    resume_turn(shop.deps(), KEY, 1, _answer(shop, decision), deadline=_soon(shop))


def _failed_resume(shop: Workshop) -> None:
    fail_resume(shop.deps(), KEY, 1, _answer(shop, YES))


def _expired(shop: Workshop) -> None:
    ask_id = _ask(shop)
    shop.pass_ms(8 * 86_400_000)
    expire_ask(shop.deps(), KEY, 1, ask_id)


def _withdrawn(shop: Workshop) -> None:
    shop.take("hello")
    _ask(shop)
    withdraw_turn(shop.deps(), ALICE, KEY, 2, deadline=_soon(shop))


def _failed(shop: Workshop) -> None:
    def work(context: TurnContext) -> Any:
        context.commit([*context.messages, *called("look", {"n": 1})], 2)
        raise ValueError("no")

    with contextlib.suppress(TurnkeepError):
        shop.take("Look twice", factory=doing(work, durability="sync"))


def _large(shop: Workshop) -> None:
    def work(context: TurnContext) -> Any:
        exchange = called("read", {"book": 1}, results=[noise(185_000, 2)])
        context.commit([*context.messages, *exchange], 2)
        return answer(context, noise(12_000, 3), *exchange)

    shop.take("Read it to me", factory=doing(work, durability="async"))
    shop.take("thanks", factory=saying("You are welcome."))


def _taken_over(shop: Workshop) -> None:
    def work(context: TurnContext) -> Any:
        if context.info.attempt == 1:
            context.commit([*context.messages, *called("look", {"n": 1})], 2)
        return answer(context, "seen")

    shop.take_and_die("ran", "Look once", factory=doing(work, durability="sync"), idempotency=key_of("k"))
    shop.pass_ms(60_000)
    shop.take("Look once", factory=doing(work, durability="sync"), idempotency=key_of("k"))


def _skipped(shop: Workshop) -> None:
    shop.take("one", factory=saying("Hello."))
    shop.take("seven", host_turn=7, factory=saying("Hello again."))


def _queued(shop: Workshop) -> None:
    shop.take("one", factory=saying("Hello."))
    shop.take("two", respond_async=True)


def _created(shop: Workshop) -> None:
    create_conversation(shop.deps(), ALICE, conversation_id="c-1", idempotency=key_of("k"), deadline=_soon(shop))


def _imported(shop: Workshop, name: str) -> None:
    value = fixture(name)
    data = value["data"]
    inside = data.get("conversation", data)
    inside["identity"] = {"conversationId": "c-1", "principal": "alice"}
    import_conversation(shop.deps(), value)


def _erasing(shop: Workshop) -> None:
    shop.take("one", factory=saying("Hello."))
    erase_conversation(shop.deps(), ALICE, KEY, deadline=_soon(shop))


STORIES: dict[str, Story] = {
    "tool-calls": Story(
        "two turns, the first with a tool call and an Idempotency-Key",
        lambda shop: (shop.take("Where is order A-100?", idempotency=key_of("k")), shop.take("thanks")),
    ),
    "acted-once": Story("a call that acts once, remembered", lambda shop: shop.take("Refund order A-100, please")),
    "awaiting": Story("a turn that waits for a supervisor", _ask),
    "answered": Story("an answer that no resume has taken up", lambda shop: _answer(shop, YES)),
    "resumed": Story("a pause that was approved and gone on from", lambda shop: _resumed(shop, YES)),
    "declined": Story("a pause that was declined and gone on from", lambda shop: _resumed(shop, NO)),
    "resume-failed": Story("an answer whose resume failed: the mark", _failed_resume),
    "large-decision": Story(
        "an answer too large for its turn's record", lambda shop: _answer(shop, {**YES, "note": noise(6_000)})
    ),
    "expired": Story("an ask that nobody answered", _expired),
    "withdrawn": Story("an ask that was withdrawn", _withdrawn),
    "failed": Story("a turn that failed behind a tool call that was durable", _failed),
    "large": Story("a turn in segments, one of them in parts", _large),
    "taken-over": Story("a turn whose second attempt adopted what the first left", _taken_over),
    "died": Story("a turn whose process is gone", lambda shop: shop.take_and_die("claimed", "hello")),
    "skipped": Story("a number that a host's floor left out", _skipped),
    "queued": Story("a turn that waits for the worker", _queued),
    "created": Story("an empty conversation", _created),
    "anonymous": Story("nobody's conversation", lambda shop: shop.take("hello", caller=Caller())),
    "retained": Story(
        "a turn that expires", lambda shop: shop.with_settings(retention_days=30).take("Where is order A-100?")
    ),
    "imported": Story("an envelope of the reference", lambda shop: _imported(shop, "b-tool-calls.json")),
    "imported-pause": Story("a paused run of the reference", lambda shop: _imported(shop, "d-paused-checkin.json")),
    "erasing": Story("a conversation that is being erased", _erasing),
}


def tell(story: Story) -> Workshop:
    """A deployment in which the story has happened."""
    shop = Workshop(refund_desk.build).with_settings(allow_anonymous=True)
    story.tell(shop)
    return shop


def expectation(store: MemoryItemStore, now_ms: int) -> dict[str, Any]:
    """What this release reads of a table: owner, turns, transcript, and the envelope that it makes of it."""
    shop = Workshop(store=store).with_settings(allow_anonymous=True)
    shop.hand.wall_ms = now_ms
    found = shop.deps().ledger.hydrate(KEY)
    if not found.exists:
        return {"absent": True}
    caller = Caller(found.owner)
    transcript, _ = read_transcript(shop.deps(), caller, KEY, after=None, limit=100, max_bytes=10**7)
    summary = found.conversation()
    facts = {
        "owner": found.owner,
        "turns": [[turn.turn, turn.status.value, turn.attempt] for turn in found.turns()],
        "messageCount": None if summary is None else summary.message_count,
        "transcript": transcript,
        "envelope": export_conversation(shop.deps(), KEY),
    }
    short: dict[str, Any] = shortened(facts)
    return short


def main(release: str) -> None:
    """Writes the histories of a release that are not there yet."""
    for name, story in STORIES.items():
        shop = tell(story)
        now_ms = shop.clock.now_ms()
        with contextlib.suppress(FileExistsError):
            expect = expectation(shop.memory, now_ms)
            write(HERE / release / f"{name}.json", story.about, now_ms, shop.items(), expect)
    write_checksums(HERE / release)


if __name__ == "__main__":
    main(sys.argv[1])
