"""Evidence of a turn: what led to its answer, kept with its record, resolvable, the owner's only.

And what a deploy does to a paused run: a refusal by name, and a conversation that goes on.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.workshop import ALICE, BOB, KEY, NOBODY, Workshop, noise, scripted
from turnkeep.agent import CheckIn, ToolContext, call, tool
from turnkeep.agent.window import Window
from turnkeep.errors import ConversationMismatchError, SessionNotFoundError, TurnNotFoundError
from turnkeep.ledger.memory import size_bytes
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.memory.ledger_messages import LedgerMessages
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.operator import turn_as_operator
from turnkeep.usecases.read import read_evidence
from turnkeep.usecases.resume_turn import Resumed, resume_turn

if TYPE_CHECKING:
    from turnkeep.agent.port import AgentFactory

YES = {"approved": True, "by": "sue"}
ALICES = {"principal": "alice", "conversationId": "c-1"}


@tool
def look(order: str) -> str:
    """Looks an order up.

    Args:
        order: its number.
    """
    return f"{order} is a chair, " + "x" * 300


@tool(check_in=CheckIn())
def pay(order: str) -> str:
    """Pays an order back."""
    return f"paid {order}"


def talk(scene: Any) -> Any:
    done = {result.name for result in scene.results}
    if scene.text.startswith("Refund") and "look" not in done:
        return call("look", order="B-200")
    if scene.text.startswith("Refund") and "pay" not in done:
        return call("pay", order="B-200")
    return "; ".join(result.content[:40] for result in scene.results) or "Hello."


def desk(*tools: Any, version: str = "1", agent_id: str | None = "desk", **more: Any) -> AgentFactory:
    return scripted(talk, *(tools or (look, pay)), agent_id=agent_id, agent_version=version, system="Be kind.", **more)


def evidence(shop: Workshop, turn: int = 1, caller: Caller = ALICE) -> dict[str, Any]:
    return read_evidence(shop.deps(), caller, KEY, turn)


def decide(shop: Workshop, paused: TurnRecord, decision: Any = YES, factory: AgentFactory | None = None) -> Resumed:
    assert paused.ask is not None
    deadline = FixedDeadline.after(shop.clock, 29_000)
    answer_ask(shop.deps(factory), ALICE, KEY, ask_id=paused.ask.ask_id, decision=decision, deadline=deadline)
    return resume_turn(shop.deps(factory), KEY, paused.turn, paused.ask.ask_id, deadline=deadline)


def references(value: Any) -> list[str]:
    """Every reference in it, wherever it nests."""
    if isinstance(value, dict):
        return [one for inner in value.values() for one in references(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in references(inner)]
    return [value] if isinstance(value, str) and value.startswith("msg-") else []


# --- what it says -------------------------------------------------------------------------------------------


def test_it_says_all_that_led_to_an_answer_the_part_before_a_pause_included() -> None:
    shop = Workshop(desk(window=Window(last_turns=1)))
    shop.take("one")
    shop.take("two")
    paused = shop.take("Refund it")
    decide(shop, paused)
    shown = evidence(shop, 3)
    assert (shown["conversationId"], shown["turn"], shown["status"]) == ("c-1", 3, "complete")
    assert shown["agent"] == {"id": "desk", "version": "1"}
    assert shown["runId"] == shop.turn(3).run_id != paused.run_id
    said = shown["evidence"]
    digest = hashlib.sha256(b"Be kind.").hexdigest()
    assert said["system"] == {"name": "system", "sha256": digest, "characters": 8}
    assert said["window"] == {
        "turns": 1,
        "messages": 2,
        "firstTurn": 2,
        "lastTurn": 2,
        "leftOut": {"turns": 1, "messages": 2, "beforeTurn": 2},
    }
    assert [one["message"] for one in said["modelCalls"]] == ["msg-3-1", "msg-3-3", "msg-3-5"]
    assert [one["stopReason"] for one in said["modelCalls"]] == ["tool_use", "tool_use", "end_turn"]
    assert all(one["usage"]["outputTokens"] > 0 for one in said["modelCalls"])
    looked, paid = said["toolCalls"]
    assert (looked["name"], looked["args"], looked["message"]) == ("look", {"order": "B-200"}, "msg-3-2")
    assert len(looked["result"]) == 200
    assert (paid["result"], paid["approved"], paid["message"]) == ("paid B-200", True, "msg-3-4")
    assert all("durationMs" in one for one in (looked, paid, *said["modelCalls"]))
    assert (said["question"], said["answer"]) == ("msg-3-0", "msg-3-5")


def test_every_reference_names_a_message_and_the_one_that_is_meant() -> None:
    shop = Workshop(desk())
    decide(shop, shop.take("Refund it"))
    said = evidence(shop)["evidence"]
    view = LedgerMessages(shop.deps().ledger)
    found = {name: view.get(ALICES, name) for name in references(said)}
    assert len(found) == 6
    messages = {name: entry["value"] for name, entry in found.items() if entry is not None}
    assert len(messages) == 6
    assert messages[said["question"]] == {"role": "user", "content": "Refund it"}
    assert messages[said["answer"]]["content"] == shop.turn(1).output
    for one in said["toolCalls"]:
        assert messages[one["message"]]["toolName"] == one["name"]
        assert messages[one["message"]]["content"].startswith(one["result"][:150])
    for one in said["modelCalls"]:
        assert messages[one["message"]]["role"] == "assistant"


def test_a_paused_turn_shows_what_led_to_its_ask_and_its_record_stays_small() -> None:
    @tool
    def much(n: int) -> str:
        """Finds much."""
        return noise(190, seed=n)

    def script(scene: Any) -> Any:
        if len(scene.results) < 20:
            return call("much", n=len(scene.results) + 1)
        return call("pay", order="B-200") if len(scene.results) == 20 else "Done."

    shop = Workshop(scripted(script, much, pay, agent_id="desk", system="Be kind.", max_iterations=40))
    paused = shop.take("go")
    (item,) = shop.items("TURN#")
    assert size_bytes(item) < 4_096
    shown = evidence(shop)
    assert shown["status"] == "awaiting"
    listed = shown["evidence"]["toolCalls"]
    assert [one["result"] for one in listed] == [noise(190, seed=n) for n in range(1, len(listed) + 1)]
    assert len(listed) > 10
    assert turn_as_operator(shop.deps(), KEY, 1).evidence == shown["evidence"]
    decide(shop, paused)
    after = evidence(shop)["evidence"]
    assert after["toolCalls"][: len(listed)] == listed
    assert "wholeIn" not in after


def test_an_ask_that_expired_keeps_what_fits_its_record() -> None:
    from turnkeep.usecases.resume_turn import expire_ask

    shop = Workshop(desk())
    paused = shop.take("Refund it")
    assert paused.ask is not None
    shop.pass_ms(8 * 86_400_000)
    expire_ask(shop.deps(), KEY, 1, paused.ask.ask_id)
    shown = evidence(shop)
    assert shown["status"] == "expired"
    assert shown["evidence"]["system"]["name"] == "system"


# --- whose it is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", [BOB, NOBODY])
def test_it_is_the_owners_only_in_the_words_of_a_conversation_that_is_not_there(caller: Caller) -> None:
    shop = Workshop(desk()).with_settings(allow_anonymous=True)
    shop.take("one")
    with pytest.raises(SessionNotFoundError) as theirs:
        evidence(shop, caller=caller)
    with pytest.raises(SessionNotFoundError) as missing:
        read_evidence(Workshop().with_settings(allow_anonymous=True).deps(), caller, KEY, 1)
    assert str(theirs.value) == str(missing.value)


def test_whoever_may_answer_an_ask_does_not_see_what_led_to_it() -> None:
    @tool
    def ask_boss(context: ToolContext) -> str:
        """Asks."""
        context.ask("Well?", audience="role:boss")

    shop = Workshop(scripted(lambda scene: call("ask_boss"), ask_boss))
    shop.take("go")
    with pytest.raises(SessionNotFoundError):
        evidence(shop, caller=Caller("bo", None, frozenset({"boss"})))


def test_a_turn_that_is_not_there_is_named() -> None:
    shop = Workshop(desk())
    shop.take("one")
    with pytest.raises(TurnNotFoundError):
        evidence(shop, 2)


# --- what a deploy does to a paused run ---------------------------------------------------------------------


def test_a_tool_that_is_gone_is_refused_to_the_model_and_the_conversation_goes_on() -> None:
    shop = Workshop(desk())
    paused = shop.take("Refund it")
    resumed = decide(shop, paused, factory=desk(look, version="2"))
    assert resumed.record is not None
    assert resumed.record.status is Status.COMPLETE
    assert "the tool pay is gone since this was asked. The approval was not used." in shop.said(1)[4]["content"]
    shown = evidence(shop)
    assert shown["agent"]["version"] == "2"
    assert shown["evidence"]["toolCalls"][1]["refused"] == "no-such-tool"
    assert shop.take("thanks", factory=desk(look, version="2")).output == "Hello."


def test_arguments_that_no_longer_fit_are_refused_to_the_model_and_the_conversation_goes_on() -> None:
    ran: list[str] = []

    @tool(name="pay", check_in=CheckIn())
    def pay_by_cents(order: str, cents: int) -> str:
        """Pays."""
        ran.append(order)
        return "paid"

    shop = Workshop(desk())
    paused = shop.take("Refund it")
    decide(shop, paused, factory=desk(look, pay_by_cents))
    told = shop.said(1)[4]["content"]
    assert told.startswith("error: not run: the arguments do not fit the tool: cents:")
    assert told.endswith("The approval was not used.")
    assert ran == []
    assert evidence(shop)["evidence"]["toolCalls"][1]["refused"] == "arguments"
    assert shop.take("thanks", factory=desk(look, pay_by_cents)).status is Status.COMPLETE


def test_another_agent_does_not_resume_and_the_one_that_asked_goes_on_with_the_conversation() -> None:
    ran: list[str] = []

    @tool(name="pay")
    def other_pay(order: str) -> str:
        """Pays."""
        ran.append(order)
        return "paid"

    shop = Workshop(desk())
    paused = shop.take("Refund it")
    resumed = decide(shop, paused, factory=desk(look, other_pay, agent_id="other"))
    assert resumed.record is not None
    record = shop.turn(1)
    assert (record.status, ran) == (Status.FAILED, [])
    assert record.error is not None
    assert record.error["code"] == "ERR_CONVERSATION_MISMATCH"
    assert record.answered_mark is None  # nothing ran, so the decision was not used (17.1)
    with pytest.raises(ConversationMismatchError):
        shop.take("hello", factory=desk(agent_id="other"))
    after = shop.take("hello", factory=desk())
    assert after.status is Status.COMPLETE
    assert [message["role"] for message in shop.said(1)] == ["user", "assistant", "tool", "assistant", "tool"]


def test_an_agent_that_stopped_naming_itself_may_go_on() -> None:
    shop = Workshop(desk())
    paused = shop.take("Refund it")
    resumed = decide(shop, paused, factory=desk(agent_id=None))
    assert resumed.record is not None
    assert resumed.record.status is Status.COMPLETE
    assert evidence(shop)["agent"]["id"] == "desk"
