"""The resume: a fresh process goes on behind the decision, once, with what was kept at the pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.desk import NO, SAM, YES, Desk, refund_desk
from tests.usecases.workshop import ALICE, KEY, doing, noise, scripted
from turnkeep.agent import ToolContext, call, tool
from turnkeep.agent.port import Answered
from turnkeep.agent.provider import ModelThrottledError
from turnkeep.errors import AlreadyAnsweredError, ConversationMismatchError, LeaseHeldError, StoreUnavailableError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import size_bytes
from turnkeep.ledger.records import Status
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.resume_turn import expire_ask, fail_resume, resume_turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnkeep.agent.port import AgentFactory, HostedAgent, TurnInfo
    from turnkeep.ledger.records import TurnRecord

DAY_MS = 86_400_000


def results(desk: Desk, turn: int = 1) -> list[str]:
    """What the turn's calls came to, in order."""
    return [message["content"] for message in desk.shop.said(turn) if message["role"] == "tool"]


def resumed(desk: Desk, asked: TurnRecord, decision: Any = YES, **more: Any) -> TurnRecord:
    """Answers and lets the machine run."""
    desk.steps.play()
    desk.answer(asked, decision, **more)
    desk.steps.settle()
    return desk.turn(asked.turn)


def die_once(desk: Desk, point: str, skip: int = 0) -> list[str]:
    """One process dies when it comes to a point (behind so many others); tells the points passed until then."""
    passed: list[str] = []
    left = [skip]

    def dies(here: str) -> bool:
        passed.append(here)
        if here != point:
            return False
        left[0] -= 1
        if left[0] >= 0:
            return False
        desk.dies = lambda point: False
        return True

    desk.dies = dies
    return passed


# --- what a decision does -----------------------------------------------------------------------------------


def test_an_approved_call_runs_with_the_arguments_kept_at_the_pause() -> None:
    desk = Desk()
    turn = resumed(desk, desk.say("pay:A-100"))
    assert (turn.status, turn.output) == (Status.COMPLETE, "paid A-100")
    assert desk.paid == ["A-100"]
    assert [one.states for one in desk.steps.executions.values()] == [["AwaitAnswer", "Resume", "Outcome", "Done"]]


def test_a_declined_call_does_not_run() -> None:
    desk = Desk()
    turn = resumed(desk, desk.say("pay"), NO)
    assert (turn.status, turn.output) == (Status.COMPLETE, "declined by human: too late")
    assert desk.paid == []


@pytest.mark.parametrize(
    ("value", "content"),
    [("blue", "blue"), (None, "null"), (False, "false"), ({"a": [1, 0.1]}, '{"a":[1,0.1]}'), ("", "")],
)
def test_a_plain_asks_value_is_the_calls_result(value: Any, content: str) -> None:
    desk = Desk()
    resumed(desk, desk.say("ask"), value, caller=ALICE)
    assert results(desk) == [content]
    assert desk.paid == ["asked B-200"], "what the tool did before it asked, it did once"


def test_the_calls_beside_it_run_once_each_in_their_order() -> None:
    """CONTRACT.md 17.5: those in front ran before the pause, those behind run after it, then the model is asked."""
    desk = Desk()
    asked = desk.say("look:1 pay:2 look:3 look:4")
    assert desk.paid == ["looked at 1"]
    turn = resumed(desk, asked)
    assert turn.status is Status.COMPLETE
    assert desk.paid == ["looked at 1", "2", "looked at 3", "looked at 4"]
    assert results(desk) == ["1 is a chair", "paid 2", "3 is a chair", "4 is a chair"]


def test_what_was_said_stays_whole_over_the_pause() -> None:
    desk = Desk()
    desk.say("look:0")
    resumed(desk, desk.say("look:1 pay:2"))
    assert [message["role"] for message in desk.shop.said(2)] == ["user", "assistant", "tool", "tool", "assistant"]
    thanks = desk.say("thanks")
    assert (thanks.turn, thanks.status) == (3, Status.COMPLETE)


def test_a_resume_is_its_owners_whoever_answered() -> None:
    infos: list[TurnInfo] = []
    desk = Desk()
    inner = desk.factory

    def noted(info: TurnInfo) -> HostedAgent:
        infos.append(info)
        return inner(info)

    desk.factory = noted
    turn = resumed(desk, desk.say("pay"))
    assert [info.principal for info in infos] == ["alice", "alice"]
    assert [info.attempt for info in infos] == [1, 2]
    assert infos[0].run_id != infos[1].run_id
    assert turn.decision is not None
    assert turn.decision.answered_by == "sam"


def test_the_payload_names_the_turn_and_the_decision_is_read_from_the_record() -> None:
    desk = Desk()
    payloads: list[dict[str, Any]] = []
    inner = desk.steps.resume

    def noted(payload: dict[str, Any]) -> dict[str, Any]:
        payloads.append(payload)
        return inner(payload)

    desk.steps.resume = noted
    asked = desk.say("pay", key=ConversationKey("c-1", "acme"))
    desk.steps.play()
    desk.answer(asked, key=ConversationKey("c-1", "acme"))
    desk.steps.settle()
    assert [set(payload) for payload in payloads] == [
        {"action", "pk", "sk", "conversationId", "tenant", "turn", "askId"}
    ]
    assert desk.paid == ["B-200"]


# --- asks again ---------------------------------------------------------------------------------------------


def test_a_turn_asks_again_in_the_same_execution() -> None:
    desk = Desk()
    first = desk.say("pay:1 then ask:2 then pay:3")
    second = resumed(desk, first)
    assert second.status is Status.AWAITING
    assert second.turn == 1
    assert second.execution_ask == first.ask.ask_id  # type: ignore[union-attr]
    assert second.decision is None
    third = resumed(desk, second, "blue", caller=ALICE)
    assert third.status is Status.AWAITING
    done = resumed(desk, third)
    assert (done.status, done.output) == (Status.COMPLETE, "paid 1; blue; paid 3")
    assert desk.paid == ["1", "asked 2", "3"]

    (execution,) = desk.steps.executions.values()
    assert execution.status == "SUCCEEDED"
    assert execution.states == [*["AwaitAnswer", "Resume", "Outcome"] * 3, "Done"]
    assert len(desk.steps.tokens) == 3
    assert [one.ended for one in done.past_asks] == ["answered"] * 3
    assert [kind for kind in desk.events.kinds() if kind != "turn.ended"] == ["ask.opened", "ask.closed"] * 3


def test_a_neighbour_may_ask_too() -> None:
    desk = Desk()
    second = resumed(desk, desk.say("pay:1 pay:2 look:3"))
    assert second.status is Status.AWAITING
    assert desk.paid == ["1"]
    done = resumed(desk, second, NO)
    assert done.status is Status.COMPLETE
    assert results(desk) == ["paid 1", "declined by human: too late", "3 is a chair"]


def test_an_ask_that_outlives_an_executions_year_gets_one_of_its_own() -> None:
    @tool
    def ask(context: ToolContext) -> str:
        """Asks."""
        context.ask("Still?", expires_in_s=364 * 86_400)

    def script(scene: Any) -> Any:
        return call("ask") if len(scene.results) < 2 else "done"

    desk = Desk()
    desk.factory = scripted(script, ask)
    first = desk.say("x")
    desk.steps.play()
    desk.shop.pass_ms(2 * DAY_MS)
    second = resumed(desk, first, "a", caller=ALICE)
    assert second.execution_ask is None
    states = [one.states[-1] for one in desk.steps.executions.values()]
    assert states == ["HandedOver", "AwaitAnswer"]
    done = resumed(desk, second, "b", caller=ALICE)
    assert done.status is Status.COMPLETE
    assert desk.steps.running == []


# --- the step comes twice -----------------------------------------------------------------------------------


def step(desk: Desk, asked: TurnRecord, act: Callable[..., Any] = resume_turn) -> Any:
    assert asked.ask is not None
    more = {"deadline": FixedDeadline.after(desk.shop.clock, 300_000)} if act is resume_turn else {}
    return act(desk.process(), KEY, asked.turn, asked.ask.ask_id, **more)


def test_a_resume_whose_answer_was_lost_runs_nothing_twice() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)
    assert step(desk, asked).record.status is Status.COMPLETE
    again = step(desk, asked)
    assert (again.record.status, again.asks_again) == (Status.COMPLETE, False)
    assert desk.paid == ["B-200"]


@pytest.mark.parametrize("meanwhile", ["nothing", "answered"])
def test_one_that_asked_again_tells_so_again(meanwhile: str) -> None:
    """Also where the new ask has its answer by then: its machine is the only one that waits for it."""
    desk = Desk()
    asked = desk.say("pay then pay")
    desk.steps.play()
    desk.answer(asked)
    inner, lost = desk.steps.resume, []

    def lose_the_first(payload: dict[str, Any]) -> dict[str, Any]:
        told = inner(payload)
        if not lost:
            lost.append(told)
            if meanwhile == "answered":
                desk.answer(desk.turn())
            raise StoreUnavailableError  # to the machine the call failed, whatever it did
        return told

    desk.steps.resume = lose_the_first
    desk.steps.settle()
    if meanwhile == "nothing":
        assert desk.turn().status is Status.AWAITING
        desk.answer(desk.turn())
        desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert desk.paid == ["B-200", "B-200"]
    (execution,) = desk.steps.executions.values()
    assert execution.status == "SUCCEEDED"


def test_two_resumes_at_once_are_one() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)

    def meanwhile(point: str) -> bool:
        if point == "resume claimed":
            desk.dies = lambda point: False
            with pytest.raises(LeaseHeldError):
                step(desk, asked)
        return False

    desk.dies = meanwhile
    assert step(desk, asked).record.status is Status.COMPLETE
    assert desk.paid == ["B-200"]


def test_steps_for_what_is_not_so_change_nothing() -> None:
    desk = Desk()
    asked = desk.say("pay")
    assert step(desk, asked).asks_again, "signalled without a decision: it waits on"
    assert step(desk, asked, fail_resume).record.status is Status.AWAITING
    desk.answer(asked)
    assert step(desk, asked, expire_ask).record.status is Status.ANSWERED
    desk.steps.settle()
    for act in (resume_turn, expire_ask, fail_resume):
        assert step(desk, asked, act).record.status is Status.COMPLETE
    assert (
        resume_turn(desk.process(), KEY, 9, "ask-9-x", deadline=FixedDeadline.after(desk.shop.clock, 1)).record is None
    )


def test_an_expiry_that_comes_early_waits_on_in_another_execution() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    assert step(desk, asked, expire_ask).record.status is Status.AWAITING
    assert desk.turn().start_number == 2
    desk.steps.stop(desk.steps.running[0])
    desk.steps.play()
    assert resumed(desk, desk.turn()).status is Status.COMPLETE


def test_nobody_answers() -> None:
    desk = Desk()
    desk.say("look pay")
    desk.steps.play()
    desk.shop.pass_ms(7 * DAY_MS + 2_000)
    desk.steps.settle()
    turn = desk.turn()
    assert turn.status is Status.EXPIRED
    assert desk.events.kinds() == ["ask.opened", "ask.closed", "turn.ended"]
    assert desk.events.told[1][1]["askId"] == desk.events.told[0][1]["askId"]
    (execution,) = desk.steps.executions.values()
    assert execution.states == ["AwaitAnswer", "ExpireAsk", "Decided", "Done"]
    assert desk.say("thanks").status is Status.COMPLETE
    assert desk.paid == ["looked at B-200"]


# --- what fails behind the answer ---------------------------------------------------------------------------


def raising(info: TurnInfo) -> HostedAgent:
    raise KeyError("what was said")


def test_a_resume_that_fails_leaves_the_mark_and_the_conversation_goes_on() -> None:
    desk = Desk()
    asked, well = desk.say("look pay"), desk.factory
    desk.factory = raising
    turn = resumed(desk, asked)
    assert turn.status is Status.FAILED
    assert turn.answered_mark is not None
    assert turn.answered_mark["decision"] == YES
    assert turn.answered_mark["answeredBy"] == "sam"
    assert turn.answered_mark["error"]["code"] == "ERR_RUN_FAILED"
    assert "what was said" not in str(turn.answered_mark)

    desk.factory = well
    with pytest.raises(AlreadyAnsweredError):
        desk.answer(asked)
    desk.heal()
    assert step(desk, asked).record.status is Status.FAILED
    assert desk.say("thanks").status is Status.COMPLETE
    assert desk.paid == ["looked at B-200"], "the decision is never used again"
    assert len(desk.steps.executions) == 1


def test_a_resume_that_died_ends_its_turn_and_says_that_nobody_knows() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    desk.answer(asked)
    die_once(desk, "resume claimed")
    desk.steps.settle()
    turn = desk.turn()
    assert turn.status is Status.FAILED
    assert turn.answered_mark is not None
    assert "outcome unknown" in results(desk)[0]
    assert desk.paid == []
    assert desk.say("thanks").status is Status.COMPLETE
    desk.heal()
    assert desk.paid == []


def test_a_resume_that_died_behind_the_durable_result_goes_on() -> None:
    desk = Desk()
    desk.factory = refund_desk(desk.paid, durability="sync")
    asked = desk.say("pay:1 look:2 then look:3")
    desk.steps.play()
    desk.answer(asked)
    die_once(desk, "agreed", skip=1)  # with the second agreement the first one is durable, by sync
    desk.steps.settle()
    turn = desk.turn()
    assert turn.status is Status.COMPLETE
    assert results(desk) == ["paid 1", "2 is a chair", "3 is a chair"]
    assert desk.paid.count("1") == 1


def test_a_declined_resume_that_died_goes_on() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    desk.answer(asked, NO)
    die_once(desk, "resume claimed")
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert results(desk) == ["declined by human: too late"]
    assert desk.paid == []


def test_a_resume_out_of_time_goes_on_in_the_next_process() -> None:
    """The decided call's result was agreed on before the time was up, and is made durable on the way out."""
    desk = Desk()
    asked, late = desk.say("pay then look"), []

    def slow(context: Any) -> None:
        if not late:
            late.append(1)
            desk.shop.pass_ms(300_000)

    @tool
    def look(at: str) -> str:
        """Takes long.

        Args:
            at: an order.
        """
        slow(at)
        return "seen"

    inner = desk.factory

    def build(info: TurnInfo) -> HostedAgent:
        agent = inner(info)
        agent._tools["look"] = look  # type: ignore[attr-defined]
        return agent

    desk.factory = build
    turn = resumed(desk, asked)
    assert turn.status is Status.COMPLETE
    assert desk.paid == ["B-200"]
    assert turn.attempt == 3


def test_a_model_that_throttles_is_asked_again_by_the_next_process() -> None:
    desk = Desk()
    asked, throttled = desk.say("pay then look"), []
    inner = desk.factory

    def build(info: TurnInfo) -> HostedAgent:
        agent = inner(info)
        if not throttled:
            provider = agent._provider  # type: ignore[attr-defined]

            def converse(request: Any) -> Any:
                if not throttled:
                    throttled.append(1)
                    raise ModelThrottledError
                return provider.converse(request)

            agent._provider = type("Once", (), {"converse": staticmethod(converse)})()  # type: ignore[attr-defined]
        return agent

    desk.factory = build
    turn = resumed(desk, asked)
    assert throttled == [1]
    assert turn.status is Status.COMPLETE
    assert desk.paid == ["B-200", "looked at B-200"]


def test_what_the_machine_gives_up_on_is_closed_with_the_mark() -> None:
    """The function itself fails before it reads anything: a broken deployment, a missing permission."""
    desk = Desk()
    asked = desk.say("pay")
    desk.steps.play()
    desk.answer(asked)
    inner = desk.steps.resume

    def broken(payload: dict[str, Any]) -> dict[str, Any]:
        if payload["action"] == "resume":
            raise ImportError
        return inner(payload)

    desk.steps.resume = broken
    desk.steps.settle()
    turn = desk.turn()
    assert turn.status is Status.FAILED
    assert turn.answered_mark is not None
    assert turn.answered_mark["error"]["message"].endswith("could not begin.")
    assert results(desk) == ["not run: the turn failed before this call had a result"]
    (execution,) = desk.steps.executions.values()
    assert execution.states[-3:] == ["MarkFailed", "Outcome", "ResumeFailed"]
    assert desk.say("thanks").status is Status.COMPLETE


def test_an_erased_conversation_is_gone_for_its_machine() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked)

    def meanwhile(point: str) -> bool:
        if point == "resume claimed":
            desk.dies = lambda point: False
            erase_conversation(desk.process(), ALICE, KEY, deadline=FixedDeadline.after(desk.shop.clock, 29_000))
        return False

    desk.dies = meanwhile
    desk.steps.settle()
    assert desk.steps.running == []
    assert desk.shop.items("TURN#") == []


# --- deploys in between -------------------------------------------------------------------------------------


def test_a_deploy_that_removed_the_tool_is_told_to_the_model() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.factory = scripted(lambda scene: scene.results[0].content if scene.results else "hello", agent_id="desk")
    turn = resumed(desk, asked)
    assert turn.status is Status.COMPLETE
    assert "gone since this was asked. The approval was not used." in turn.output
    assert desk.say("thanks").status is Status.COMPLETE


def test_arguments_that_no_longer_fit_are_told_to_the_model() -> None:
    desk = Desk()
    asked = desk.say("pay")

    @tool
    def pay(amount: int) -> str:
        """Pays an amount.

        Args:
            amount: in cents.
        """
        desk.paid.append(str(amount))
        return "paid"

    desk.factory = scripted(lambda scene: scene.results[0].content if scene.results else "hello", pay, agent_id="desk")
    turn = resumed(desk, asked)
    assert "The approval was not used." in turn.output
    assert desk.paid == []


def test_an_agent_of_another_name_does_not_use_the_decision() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.factory = doing(lambda context: Answered("", list(context.messages), 1), agent_id="somebody-else")
    turn = resumed(desk, asked)
    assert turn.status is Status.FAILED
    assert turn.error is not None
    assert turn.error["code"] == "ERR_CONVERSATION_MISMATCH"
    assert turn.answered_mark is None, "a refusal before anything ran leaves no mark"
    with pytest.raises(ConversationMismatchError):
        desk.say("hello")
    desk.factory = refund_desk(desk.paid)
    assert desk.say("thanks").status is Status.COMPLETE
    assert desk.paid == []


# --- large things -------------------------------------------------------------------------------------------


def asking_much(detail: str, decided: list[Any]) -> AgentFactory:
    @tool
    def ask(context: ToolContext) -> str:
        """Asks with much to look at."""
        context.ask("Which?", rows=detail)

    def script(scene: Any) -> Any:
        if not scene.results:
            return call("ask")
        decided.append(scene.results[0].content)
        return "done"

    return scripted(script, ask)


def test_a_pause_with_much_to_show_and_a_large_answer() -> None:
    """300 KB of pause data, an answer of 250 KB, behind a message of 250 KB: no item, input or payload minds."""
    desk = Desk()
    decided: list[Any] = []
    detail, value, message = noise(100_000, 1), noise(83_000, 2), noise(83_000, 3)
    desk.factory = asking_much(detail, decided)
    asked = desk.say(message)
    assert asked.ask is not None
    assert size_bytes(desk.shop.items("TURN#")[0]) < 4_000
    desk.steps.play()
    desk.answer(asked, value, caller=ALICE)
    turn = desk.turn()
    assert turn.decision is not None
    assert turn.decision.parts == 1
    assert size_bytes(desk.shop.items("TURN#")[0]) < 5_000
    desk.steps.settle()
    assert desk.turn().status is Status.COMPLETE
    assert decided == [value]
    assert max(len(one.input) for one in desk.steps.executions.values()) < 4_000


def test_a_large_answer_is_marked_by_its_verdict_where_the_resume_fails() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.factory = raising
    turn = resumed(desk, asked, YES | {"note": noise(80_000)})
    assert turn.status is Status.FAILED
    assert turn.answered_mark is not None
    assert turn.answered_mark["decision"] == YES
    desk.factory = refund_desk(desk.paid)
    assert desk.say("thanks").status is Status.COMPLETE


@pytest.mark.parametrize("verdict", [True, False])
def test_a_large_verdict_reaches_the_agent_whole(verdict: bool) -> None:
    desk = Desk()
    note = noise(40_000)
    turn = resumed(desk, desk.say("pay"), {"approved": verdict, "by": "sam", "note": note})
    assert turn.status is Status.COMPLETE
    assert results(desk) == ["paid B-200" if verdict else f"declined by human: {note}"]


def test_a_lost_part_of_a_large_answer_is_refused_by_name_and_nothing_runs() -> None:
    desk = Desk()
    asked = desk.say("pay")
    desk.answer(asked, YES | {"note": noise(40_000)}, caller=SAM)
    desk.shop.memory.delete([(str(item["pk"]), str(item["sk"])) for item in desk.shop.items("ANSWER#")])
    desk.steps.settle()
    assert desk.paid == []
    assert desk.turn().status is Status.FAILED
    assert desk.say("thanks").status is Status.COMPLETE
