"""The audit of `make load`: a run that is as it should be holds, and each thing that must not be is seen and named."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from load.audit import Verdict, audit
from load.journal import GIVEN_UP, Answer, Message, Reply
from load.stored import Stored, Turn


@dataclass
class Run:
    """A small run: one message that was answered, and whatever a test does to it."""

    message: Message = field(default_factory=lambda: answered("m-1"))
    others: list[Message] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=lambda: [Turn("c-1", 1, "m-1", "complete", "done m-1")])
    said: Counter[str] = field(default_factory=lambda: Counter({"m-1": 1}))
    acted: Counter[str] = field(default_factory=lambda: Counter({"m-1": 1}))
    unread: dict[str, str] = field(default_factory=dict)

    died_in: set[str] = field(default_factory=lambda: {"c-1"})

    def verdict(self) -> Verdict:
        stored = Stored(tuple(self.turns), self.said, self.acted, self.unread)
        return audit([self.message, *self.others], self.answers, stored, self.died_in)

    def found(self) -> list[tuple[str, str]]:
        return [(finding.kind, finding.what) for finding in self.verdict().findings]


def answered(token: str, turn: int = 1, **more: Any) -> Message:
    reply = Reply(200, turn=turn, turn_status="complete", output=f"done {token}")
    return Message(token, "c-1", "plain", replies=[reply], fate="complete", **more)


def refused(token: str, code: str = "ERR_CONCURRENT_RUN", status: int = 409) -> Message:
    return Message(token, "c-1", "rival", replies=[Reply(status, code)], fate=f"refused:{code}")


def answer(key: str, *, status: int = 200, code: str = "", approved: bool = True, gate: str = "check_in") -> Answer:
    return Answer("m-1", "c-1", "ask-1", key, gate, approved, status, code)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_run_as_it_should_be_holds(run: Run) -> None:
    run.others = [refused("m-2")]
    verdict = run.verdict()
    assert (verdict.findings, verdict.holds) == ([], True)
    assert (verdict.sent, verdict.answered, verdict.conversations, dict(verdict.refused)) == (
        2, 1, 1, {"ERR_CONCURRENT_RUN": 1},
    )  # fmt: skip


# --- lost ---------------------------------------------------------------------------------------------------


def test_a_message_that_was_taken_and_is_in_no_turn_is_lost(run: Run) -> None:
    run.turns, run.said, run.acted = [], Counter(), Counter()
    assert run.found() == [("lost", "it was taken as turn 1, and no turn holds it")]


@pytest.mark.parametrize("status", ["queued", "awaiting", "answered"])
def test_so_is_one_that_was_only_promised(run: Run, status: str) -> None:
    run.message.replies, run.message.fate = [Reply(202, turn=1, turn_status=status)], ""
    run.turns, run.said, run.acted = [], Counter(), Counter()
    assert ("lost", "it was taken as turn 1, and no turn holds it") in run.found()


def test_a_turn_that_the_transcript_does_not_have_is_lost(run: Run) -> None:
    run.said.clear()
    assert run.found() == [("lost", "its turn (complete) is there, and the transcript does not have it")]


def test_an_answer_that_is_kept_otherwise_than_it_was_read_is_lost(run: Run) -> None:
    run.message.replies = [replace(run.message.replies[0], output="done m-0")]
    assert run.found() == [("lost", "the answer that its sender read is not the one that is kept")]


def test_an_answer_to_somebody_else_is_lost(run: Run) -> None:
    run.message.replies = [Reply(202, turn=1, turn_status="queued")]
    run.turns = [replace(run.turns[0], output="done m-2")]
    assert run.found() == [("lost", "it is complete with another answer than its own")]


def test_a_turn_under_another_number_than_was_told_is_lost(run: Run) -> None:
    run.turns = [replace(run.turns[0], number=2), Turn("c-1", 1, "m-0", "complete", "done m-0")]
    run.others = [answered("m-0", acts=False)]
    run.said["m-0"] = 1
    assert run.found() == [("lost", "it was taken as turn 1, and is turn 2")]


def test_a_complete_turn_that_never_acted_is_lost(run: Run) -> None:
    run.acted.clear()
    assert run.found() == [("lost", "it is complete and never acted")]
    run.message.acts = False
    assert run.found() == []


def test_a_turn_that_failed_need_not_have_acted(run: Run) -> None:
    run.acted.clear()
    run.message.replies, run.message.fate = [Reply(202, turn=1, turn_status="queued")], "failed"
    run.turns = [Turn("c-1", 1, "m-1", "failed", None, "ERR_RUN_FAILED")]
    verdict = run.verdict()
    assert verdict.holds
    assert dict(verdict.failed) == {"failed ERR_RUN_FAILED": 1}
    run.died_in.clear()
    assert run.found() == [("fault", "its turn is failed, and no process died there")]


def test_a_missing_number_a_hidden_turn_and_an_unreadable_conversation_are_lost(run: Run) -> None:
    run.others = [answered("m-3", turn=3)]
    run.turns += [Turn("c-1", 3, "m-3", "complete", "done m-3")]
    run.said["m-3"] = run.acted["m-3"] = 1
    assert run.found() == [("lost", "turns are missing: [2]")]
    run.turns[1] = replace(run.turns[1], number=2, status="hidden")
    assert ("lost", "a turn that readers are not shown") in run.found()
    assert ("lost", "it cannot be read: ERR_MALFORMED_ENVELOPE") in replace(
        run, unread={"c-1": "ERR_MALFORMED_ENVELOPE"}
    ).found()


# --- doubled ------------------------------------------------------------------------------------------------


def test_a_message_that_acted_twice_is_doubled(run: Run) -> None:
    run.acted["m-1"] = 2
    assert run.found() == [("doubled", "it acted 2 times")]


def test_also_where_its_turn_failed(run: Run) -> None:
    run.acted["m-1"] = 2
    run.message.replies, run.message.fate = [Reply(202, turn=1, turn_status="queued")], "failed"
    run.turns = [Turn("c-1", 1, "m-1", "failed", None, "ERR_RUN_FAILED")]
    assert run.found() == [("doubled", "it acted 2 times")]


def test_a_request_that_became_two_turns_is_doubled(run: Run) -> None:
    run.turns.append(replace(run.turns[0], number=2))
    run.message.replies.append(replace(run.message.replies[0], turn=2))
    run.said["m-1"] = 2
    assert run.found() == [
        ("doubled", "it became the turns 1, 2"),
        ("doubled", "it stands 2 times in the transcript"),
        ("doubled", "its sender was told the turns [1, 2]"),
    ]


def test_two_answers_to_one_request_are_doubled(run: Run) -> None:
    run.message.replies.append(replace(run.message.replies[0], output="done again m-1"))
    assert run.found() == [("doubled", "its sender read two answers")]


def test_what_was_refused_and_is_there_is_doubled(run: Run) -> None:
    run.others = [refused("m-2")]
    run.turns.append(Turn("c-1", 2, "m-2", "complete", "done m-2"))
    run.said["m-2"] = run.acted["m-2"] = 1
    assert run.found() == [("doubled", "it was refused (ERR_CONCURRENT_RUN) and is there")]


def test_a_turn_that_nobody_sent_is_doubled(run: Run) -> None:
    run.turns.append(Turn("c-1", 2, "m-9", "complete", "done m-9"))
    assert run.found() == [("doubled", "a turn that nobody sent")]


def test_two_people_whose_decisions_both_count_are_doubled(run: Run) -> None:
    run.answers = [answer("a-1"), answer("a-2", approved=True)]
    assert run.found() == [("doubled", "two decisions of one ask were taken")]
    run.answers = [answer("a-1"), answer("a-1"), answer("a-2", status=409, code="ERR_ALREADY_ANSWERED")]
    verdict = run.verdict()
    assert verdict.holds  # the same request twice is one decision
    assert (verdict.asked, verdict.contested) == (1, 1)


def test_an_act_that_was_declined_is_doubled_and_one_that_was_declined_in_doubt_is_not(run: Run) -> None:
    run.answers = [answer("a-1", approved=False)]
    assert run.found() == [("doubled", "it was declined and acted")]
    run.acted.clear()
    assert run.found() == []
    run.acted["m-1"] = 1
    run.answers = [answer("a-1"), replace(answer("a-2", approved=False, gate="in_doubt"), ask="ask-2")]
    assert run.found() == []


# --- stuck, and faults --------------------------------------------------------------------------------------


def test_a_sender_who_never_learned_is_stuck(run: Run) -> None:
    run.message.replies, run.message.fate = [Reply(500), Reply(0), Reply(409, "ERR_CONCURRENT_RUN")], ""
    run.turns, run.said, run.acted = [], Counter(), Counter()
    assert run.found() == [("stuck", "its sender never got an answer")]


@pytest.mark.parametrize("status", ["queued", "running", "answered", "awaiting"])
def test_a_turn_that_has_not_ended_is_stuck(run: Run, status: str) -> None:
    run.message.replies, run.message.fate = [Reply(202, turn=1, turn_status="queued")], ""
    run.turns = [Turn("c-1", 1, "m-1", status)]
    assert run.found() == [("stuck", f"its turn is {status}")]


@pytest.mark.parametrize("times", [0, 1])
def test_whoever_gave_up_need_not_be_there_but_never_twice(run: Run, times: int) -> None:
    run.message.replies, run.message.fate = [Reply(500)], GIVEN_UP
    run.turns = [Turn("c-1", 1, "m-1", "failed", None, "ERR_RUN_FAILED")][:times]
    run.said, run.acted = Counter({"m-1": times}), Counter({"m-1": times})
    assert run.verdict().given_up == 1
    assert run.found() == []
    run.turns = [Turn("c-1", number, "m-1", "failed") for number in (1, 2)]
    assert ("doubled", "it became the turns 1, 2") in run.found()


@pytest.mark.parametrize(
    ("reply", "name"),
    [
        (Reply(500, "ERR_INTERNAL"), "ERR_INTERNAL"),
        (Reply(500, "ERR_MALFORMED_ENVELOPE"), "ERR_MALFORMED_ENVELOPE"),
        (Reply(404, "ERR_SESSION_NOT_FOUND"), "ERR_SESSION_NOT_FOUND"),
        (Reply(401), "HTTP 401"),
        (Reply(204), "HTTP 204"),
    ],
)
def test_a_refusal_that_nothing_may_cause_is_a_fault(run: Run, reply: Reply, name: str) -> None:
    run.message.replies.insert(0, reply)
    assert run.found() == [("fault", f"it was refused: {name}")]


@pytest.mark.parametrize("reply", [Reply(500), Reply(503), Reply(0), Reply(504, "ERR_TURN_OUT_OF_TIME")])
def test_deaths_and_overload_are_none(run: Run, reply: Reply) -> None:
    run.message.replies.insert(0, reply)
    verdict = run.verdict()
    assert verdict.holds
    assert dict(verdict.told_again) == {reply.name: 1}


def test_an_answer_that_is_refused_for_another_reason_is_a_fault(run: Run) -> None:
    run.answers = [answer("a-1"), answer("a-2", status=403, code="ERR_NOT_YOURS_TO_ANSWER")]
    assert run.found() == [("fault", "an answer was refused: ERR_NOT_YOURS_TO_ANSWER")]


def test_a_finding_says_where_and_never_what_was_said(run: Run) -> None:
    run.acted["m-1"] = 2
    (finding,) = run.verdict().findings
    assert str(finding) == "doubled: it acted 2 times · m-1 · c-1 turn 1"
