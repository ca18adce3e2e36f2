"""Memory behind an answered turn: kept as asked for, under the turn's number, and never at the answer's cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tests.usecases.workshop import ALICE, KEY, NOBODY, Crash, Mortal, Workshop, called, doing, scripted
from turnkeep.agent.port import Answered, Asked, Recalled
from turnkeep.agent.scripted import call
from turnkeep.agent.tools import tool
from turnkeep.clock import SystemClock
from turnkeep.errors import RunFailedError, StoreUnavailableError
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.records import Status
from turnkeep.ledger.store import Put, Unavailable
from turnkeep.memory.entries import new_entry
from turnkeep.memory.in_ledger import LedgerMemory
from turnkeep.memory.keeping import AnsweredTurn, Beats, LikeTurns, Snapshots, Story
from turnkeep.memory.ledger_messages import LedgerMessages
from turnkeep.memory.writers import Keeping
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.resume_turn import resume_turn

ALICES = {"principal": "alice", "conversationId": "c-1"}


def kept(shop: Workshop, identity: dict[str, str] | None = None) -> dict[str, Any]:
    memory = LedgerMemory(shop.store, shop.clock)
    return {entry["id"]: entry for entry in memory.list(identity or ALICES).entries}


def embed(text: str) -> list[float]:
    """Two texts are alike by their first letters."""
    return [1.0, 0.1] if text.lower().startswith("w") else [0.1, 1.0]


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    return f"rain in {city}"


def talk(scene: Any) -> Any:
    if scene.text.startswith("Weather") and not scene.results:
        return call("weather", city="Ulm")
    return "It rains." if scene.results else f"You said: {scene.text}"


REMEMBERS = {"memory": [Beats(), Snapshots(embed=embed, embedder_id="letters")]}


# --- what is kept -------------------------------------------------------------------------------------------


def test_an_answered_turn_leaves_its_beats_and_its_snapshot_under_its_own_number() -> None:
    shop = Workshop(scripted(talk, weather, **REMEMBERS))
    shop.take("Hello, I am Alice")
    shop.take("Weather?", host_turn=7)
    entries = kept(shop)
    assert set(entries) == {"beat-1-0", "beat-1-1", "snap-1", "beat-7-0", "beat-7-1", "beat-7-2", "snap-7"}
    assert {entry["source"]["turn"] for entry_id, entry in entries.items() if "-7" in entry_id} == {7}
    assert entries["snap-7"]["source"] == {"turn": 7, "identity": ALICES}
    assert entries["beat-1-0"]["value"] == {
        "summary": "User said: Hello, I am Alice",
        "importance": 0.9,
        "category": "identity",
        "refs": ["msg-1-0"],
    }
    snapshot = entries["snap-7"]["value"]
    assert (snapshot["query"], snapshot["finalContent"], snapshot["iterations"]) == ("Weather?", "It rains.", 2)
    assert snapshot["toolCalls"] == [
        {"name": "weather", "args": {"city": "Ulm"}, "resultPreview": "rain in Ulm", "errored": False}
    ]
    assert snapshot["tokenUsage"]["output"] == (shop.turn(7).usage or {})["outputTokens"] > 0
    assert entries["snap-7"]["embeddingModel"] == "letters"


def test_every_reference_of_a_beat_is_a_message_of_the_ledger() -> None:
    shop = Workshop(scripted(talk, weather, **REMEMBERS))
    shop.take("Weather?")
    view = LedgerMessages(shop.deps().ledger)
    beats = [entry["value"] for entry_id, entry in kept(shop).items() if entry_id.startswith("beat-")]
    assert len(beats) == 3
    for beat in beats:
        for ref in beat["refs"]:
            message = view.get(ALICES, ref)
            assert message is not None
            assert message["value"]["content"] in beat["summary"]


def test_an_agent_that_asks_for_nothing_leaves_nothing() -> None:
    shop = Workshop()
    shop.take()
    assert shop.memory.round_trips == 3
    assert kept(shop) == {}


def test_a_conversation_that_nobody_owns_has_a_memory_without_a_principal() -> None:
    shop = Workshop(scripted(talk, **REMEMBERS)).with_settings(allow_anonymous=True)
    shop.take("hi", caller=NOBODY)
    assert "snap-1" in kept(shop, {"conversationId": "c-1"})
    assert kept(shop) == {}


def test_a_turn_that_failed_leaves_nothing() -> None:
    class Dies:
        agent_id = agent_version = durability = None
        memory = (Beats(),)

        def run(self, context: Any) -> Any:
            raise ValueError

        def resume(self, context: Any, checkpoint: Any, decision: Any) -> Any:
            raise ValueError

    shop = Workshop(lambda info: Dies())
    with pytest.raises(RunFailedError):
        shop.take()
    assert kept(shop) == {}


def test_a_paused_turn_leaves_nothing_until_it_has_its_answer_whoever_gives_it() -> None:
    class Asks:
        agent_id = agent_version = durability = None
        memory = (Beats(), Snapshots())

        def run(self, context: Any) -> Any:
            said = [*context.messages, *called("ask", {}, results=[])]
            pause_data = {"toolCallId": "ask-1", "toolName": "ask", "question": "Sure?"}
            return Asked(pause_data, {"at": 1}, said, iteration=1, audience="role:boss")

        def resume(self, context: Any, checkpoint: Any, decision: Any) -> Any:
            result = {"role": "tool", "content": "yes", "toolCallId": "ask-1", "toolName": "ask"}
            final = {"role": "assistant", "content": "Done."}
            return Answered("Done.", [*context.messages, result, final], iteration=2)

    shop = Workshop(lambda info: Asks())
    paused = shop.take("Pay it")
    assert paused.ask is not None
    assert kept(shop) == {}
    boss = Caller("bo", None, frozenset({"boss"}))
    deadline = FixedDeadline.after(shop.clock, 29_000)
    answer_ask(shop.deps(), boss, KEY, ask_id=paused.ask.ask_id, decision="yes", deadline=deadline)
    resume_turn(shop.deps(), KEY, 1, paused.ask.ask_id, deadline=deadline)
    entries = kept(shop)
    assert entries["snap-1"]["value"]["finalContent"] == "Done."
    assert entries["snap-1"]["source"]["identity"] == ALICES


def test_memory_does_not_outlive_what_the_conversation_keeps() -> None:
    writers = [Beats(), Snapshots(keeping=Keeping(ttl_ms=1_000))]
    shop = Workshop(scripted(talk, memory=writers)).with_settings(retention_days=2)
    shop.take("hi")
    ends = (shop.turn(1).delete_after_s or 0) * 1000
    assert {entry_id: entry["ttl"] for entry_id, entry in kept(shop).items()} == {
        "beat-1-0": ends,
        "beat-1-1": ends,
        "snap-1": shop.clock.now_ms() + 1_000,
    }
    shop.pass_ms(3 * 86_400_000)
    assert kept(shop) == {}


# --- what fails ---------------------------------------------------------------------------------------------


@dataclass
class Raises:
    error: BaseException

    def entries(self, turn: AnsweredTurn, *, now_ms: int) -> list[dict[str, Any]]:
        raise self.error


@dataclass
class Makes:
    made: Any

    def entries(self, turn: AnsweredTurn, *, now_ms: int) -> Any:
        return self.made


@pytest.mark.parametrize(
    "broken",
    [
        Raises(ValueError("what somebody said")),
        Raises(SystemExit()),
        Raises(StoreUnavailableError()),
        Beats(extract=lambda turn, messages: 1 / 0),  # type: ignore[arg-type, return-value]
        Snapshots(embed=lambda text: [float("nan")]),
        Snapshots(embed=lambda text: {}["key"]),
        Makes(None),
        Makes([{"id": "half an entry"}]),
        Makes([1]),
    ],
    ids=["value error", "exit", "store", "division", "nan", "key error", "nothing", "half an entry", "a number"],
)
def test_a_writer_that_fails_costs_its_entries_and_is_noted(broken: Any) -> None:
    shop = Workshop(scripted(talk, memory=[broken, Beats()]))
    record = shop.take("hi")
    assert (record.status, record.output) == (Status.COMPLETE, "You said: hi")
    assert set(kept(shop)) == {"beat-1-0", "beat-1-1"}
    assert shop.notes.count("memory_failed") == 1
    assert shop.turn(1).status is Status.COMPLETE
    assert shop.take("next").turn == 2


def test_a_note_says_which_writer_and_why_and_nothing_that_was_said() -> None:
    shop = Workshop(scripted(talk, memory=[Raises(ValueError("what somebody said"))]))
    noted: list[Any] = []
    deps = shop.deps()
    object.__setattr__(deps, "note", lambda name, facts: noted.append((name, facts)))
    from turnkeep.usecases.take_turn import take_turn

    take_turn(deps, ALICE, KEY, message="hi", deadline=FixedDeadline.after(shop.clock, 29_000))
    ((_, facts),) = [one for one in noted if one[0] == "memory_failed"]
    assert facts["writer"] == "Raises"
    assert facts["cause"] == "ValueError"
    assert "somebody" not in repr(facts)


def test_a_writer_that_does_not_return_is_left_behind_and_stores_nothing_later() -> None:
    go_on = threading.Event()

    @dataclass
    class Hangs:
        def entries(self, turn: AnsweredTurn, *, now_ms: int) -> Any:
            go_on.wait(20)
            return [new_entry("snap-1", "late", turn=1, identity=ALICES, now_ms=now_ms)]

    shop = Workshop(scripted(talk, memory=[Hangs(), Beats()]), clock=SystemClock())
    record = shop.take("hi", time_ms=2_000)
    assert record.status is Status.COMPLETE
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "turnkeep-memory":
            thread.join(5)
    assert kept(shop) == {}
    assert shop.notes.count("memory_failed") == 2  # the second one had no time left


def test_a_store_that_does_not_take_memory_does_not_take_the_answer_away() -> None:
    class NoMemory(MemoryItemStore):
        def write(self, writes: Any) -> Any:
            if any(isinstance(one, Put) and str(one.item["sk"]).startswith(("BEAT#", "SNAP#")) for one in writes):
                return [Unavailable(StoreUnavailableError()) for _ in writes]
            return super().write(writes)

    shop = Workshop(scripted(talk, **REMEMBERS), store=NoMemory())
    assert shop.take("hi").output == "You said: hi"
    assert shop.notes.count("memory_failed") == 2
    assert kept(shop) == {}


def test_a_process_that_dies_behind_its_commit_leaves_an_answered_turn() -> None:
    shop = Workshop(scripted(talk, **REMEMBERS))
    shop.take_and_die("committed", "hi")
    assert shop.turn(1).status is Status.COMPLETE
    assert kept(shop) == {}
    assert shop.take("next").turn == 2


# --- what does not move -------------------------------------------------------------------------------------


def test_memory_writes_its_own_items_and_does_not_touch_the_turn() -> None:
    """An after-turn job never makes the next message stale: a message that comes meanwhile is the next turn."""
    told: list[Any] = []
    shop = Workshop()

    @dataclass
    class Meanwhile:
        def entries(self, turn: AnsweredTurn, *, now_ms: int) -> Any:
            told.append({str(item["sk"]): item for item in shop.items()})
            told.append(shop.take("meanwhile", factory=scripted(talk)).turn)
            return [new_entry("snap-1", "kept", turn=1, identity=ALICES, now_ms=now_ms)]

    shop.factory = scripted(talk, memory=[Meanwhile()])
    record = shop.take("hi")
    assert (record.turn, told[1]) == (1, 2)
    assert next(item for item in shop.items("TURN#") if item["sk"] == f"TURN#{1:016d}") == told[0][f"TURN#{1:016d}"]
    assert set(kept(shop)) == {"snap-1"}
    assert shop.take("again", factory=scripted(talk)).turn == 3


def test_a_repeat_of_the_request_writes_no_memory_and_runs_no_writer() -> None:
    from tests.usecases.workshop import key_of

    ran: list[int] = []

    @dataclass
    class Counts:
        def entries(self, turn: AnsweredTurn, *, now_ms: int) -> Any:
            ran.append(turn.scope.turn)
            return []

    shop = Workshop(scripted(talk, memory=[Counts()]))
    for _ in range(2):
        assert shop.take("hi", idempotency=key_of("k")).turn == 1
    assert ran == [1]


def test_a_memory_write_that_a_dead_process_never_finished_reaches_nothing() -> None:
    shop = Workshop(scripted(talk, **REMEMBERS))
    process = Mortal(shop.store, lambda point: point == "remembered")
    shop.probe = process.live
    with pytest.raises(Crash):
        shop.take("hi", store=process)
    shop.probe = None
    assert shop.turn(1).status is Status.COMPLETE
    assert set(kept(shop)) == {"beat-1-0", "beat-1-1"}


# --- what is shown ------------------------------------------------------------------------------------------


def test_a_story_of_earlier_turns_is_shown_and_named_in_the_evidence() -> None:
    seen: list[str | None] = []

    class Watches:
        def converse(self, request: Any) -> Any:
            from turnkeep.agent.scripted import ScriptedProvider

            seen.append(request.system)
            return ScriptedProvider(talk).converse(request)

    from turnkeep.agent.loop import Agent
    from turnkeep.agent.window import Window

    def build(info: Any) -> Agent:
        return Agent(
            provider=Watches(), system="Be kind.", memory=[Beats()], recall=Story(count=3), window=Window(last_turns=0)
        )

    shop = Workshop(build)
    shop.take("My name is Alice")
    shop.take("Two")
    record = shop.take("Three")
    assert seen[0] == "Be kind."
    assert seen[2] is not None
    assert seen[2].startswith("Be kind.\n\nWhat earlier turns of this conversation were about:\n")
    assert "User said: Two (msg-2-0)" in seen[2]
    assert record.evidence is not None
    assert record.evidence["window"] == {
        "turns": 0,
        "messages": 0,
        "entries": ["beat-1-1", "beat-2-0", "beat-2-1"],
        "leftOut": {"turns": 2, "messages": 4, "beforeTurn": 3},
    }


def test_turns_with_a_like_question_are_shown() -> None:
    writers = [Snapshots(embed=embed, embedder_id="letters")]
    recall = LikeTurns(embed, embedder_id="letters")
    shop = Workshop(scripted(talk, weather, memory=writers, recall=recall))
    shop.take("Weather?")
    shop.take("Hello")
    record = shop.take("Will it rain?")
    assert record.evidence is not None
    assert record.evidence["window"]["entries"] == ["snap-1"]


@pytest.mark.parametrize("error", [ValueError(), StoreUnavailableError()])
def test_a_turn_goes_on_without_a_memory_that_fails_and_says_so(error: Exception) -> None:
    def recall(memory: Any, question: str) -> Recalled:
        raise error

    shop = Workshop(scripted(talk, recall=recall))
    record = shop.take("hi")
    assert record.status is Status.COMPLETE
    assert record.evidence is not None
    assert record.evidence["window"]["recallFailed"] == type(error).__name__


def test_an_agent_of_another_kind_may_use_the_memory_of_its_turn() -> None:
    def run(context: Any) -> Answered:
        memory = context.memory()
        memory.store.put(memory.identity, new_entry("note", "x", turn=1, identity=memory.identity, now_ms=1))
        return Answered("ok", [*context.messages, {"role": "assistant", "content": "ok"}], iteration=1)

    shop = Workshop(doing(run))
    shop.take("hi")
    assert set(kept(shop)) == {"note"}
