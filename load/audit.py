"""Judges a run: what people sent and were told, against what is stored and what was done. Pure, so that it is tested.

Four kinds of findings, and none of them may be there:

- ``lost``: the API took a message, or its sender sent it until it was answered, and it is not there exactly as told;
  an answer that somebody read is another one now; a turn is complete and did not do what it was to do.
- ``doubled``: a message stands twice, one request became two turns or got two answers, two decisions of one ask were
  taken, or something was done twice. Also what was refused and is there all the same.
- ``stuck``: a message whose sender never learned what became of it, or a turn that has not ended.
- ``fault``: a refusal that nothing in this run may cause, or a turn that failed where nobody died.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from load.journal import GIVEN_UP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from load.journal import Answer, Message, Reply
    from load.stored import Stored, Turn

Kind = Literal["lost", "doubled", "stuck", "fault"]
KINDS: tuple[Kind, ...] = ("lost", "doubled", "stuck", "fault")

ENDED = frozenset({"complete", "failed", "refused", "expired", "cancelled"})

UNWANTED_ENDS = ENDED - {"complete"}

EXPECTED_REFUSALS = frozenset({"ERR_CONCURRENT_RUN", "ERR_AWAITING_DECISION", "ERR_IDEMPOTENCY_MISMATCH"})
"""What a message may be refused for in this run: a rival, an open ask, a key that was used with other words."""

PASSING = frozenset({"ERR_TURN_OUT_OF_TIME", "ERR_STORE_UNAVAILABLE"})
"""What a machine with too much to do may cause: the sender comes again."""

EXPECTED_OF_ANSWERS = PASSING | frozenset(
    {"ERR_ALREADY_ANSWERED", "ERR_ASK_EXPIRED", "ERR_NO_PENDING_ASK", "ERR_STALE_DECISION", "ERR_IDEMPOTENCY_MISMATCH"}
)
"""What an answer may hear that came second, or whose turn had died meanwhile."""

OWN_WORDS_OF_THE_GATEWAY = frozenset({0, 500, 503})
"""A reply without a code may have these: a broken connection, a function that died or was out of time."""


@dataclass(frozen=True)
class Finding:
    """Something that must not be. It names ids only, never what somebody said."""

    kind: Kind
    what: str
    token: str = ""
    conversation: str = ""
    turn: int = 0

    def __str__(self) -> str:
        where = f" · {self.conversation}" + (f" turn {self.turn}" if self.turn else "") if self.conversation else ""
        return f"{self.kind}: {self.what}{f' · {self.token}' if self.token else ''}{where}"


@dataclass
class Verdict:
    """The findings, and what was counted on the way.

    Attributes:
        refused: final refusals of messages, by code.
        contested: asks that got more than one answer, at once by the same request or by two people.
        failed: turns that ended as `failed`, `refused` or `expired`, by status and code.
        given_up: messages whose process died and whose sender did not come again.
        told_again: replies that made a sender come again, by status and code.
    """

    findings: list[Finding] = field(default_factory=list)
    sent: int = 0
    answered: int = 0
    asked: int = 0
    declined: int = 0
    queued: int = 0
    sent_twice: int = 0
    contested: int = 0
    given_up: int = 0
    in_doubt: int = 0
    conversations: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    told_again: Counter[str] = field(default_factory=Counter)

    def count(self, kind: Kind) -> int:
        """How many findings are of a kind."""
        return sum(finding.kind == kind for finding in self.findings)

    @property
    def holds(self) -> bool:
        """Nothing that must not be was found."""
        return not self.findings


def audit(
    messages: Sequence[Message], answers: Sequence[Answer], stored: Stored, died_in: Collection[str] = ()
) -> Verdict:
    """Judges a run that has settled; turns may have failed only in conversations in which a process died."""
    verdict = Verdict(sent=len(messages))
    turns: dict[str, list[Turn]] = defaultdict(list)
    for turn in stored.turns:
        turns[turn.token].append(turn)
    decided = _decided(answers)
    for message in messages:
        found = turns.get(message.token, [])
        verdict.findings += _of_message(message, found, stored)
        if found and message.acts:
            declined = decided.get(message.token) is False
            verdict.findings += _of_acts(message, found[0], stored.acted[message.token], declined=declined)
    verdict.findings += _of_answers(answers)
    verdict.findings += _of_the_rest(messages, stored)
    verdict.findings += _of_failures(stored, died_in)
    _count(verdict, messages, answers, stored, decided)
    return verdict


# --- one message --------------------------------------------------------------------------------------------


def _of_message(message: Message, found: Sequence[Turn], stored: Stored) -> Iterator[Finding]:
    say = _sayer(message)
    if message.conversation in stored.unread:
        return  # told once, of the conversation
    if len(found) > 1:
        yield say("doubled", f"it became the turns {', '.join(str(turn.number) for turn in found)}")
    if (times := stored.said[message.token]) > 1:
        yield say("doubled", f"it stands {times} times in the transcript")
    if message.is_accepted:
        yield from _of_accepted(message, found, stored)
    elif message.fate == GIVEN_UP:
        pass  # it may be there, as far as it came; it waits for the next message, if one comes
    elif message.fate.startswith("refused:"):
        if found or stored.said[message.token]:
            yield say("doubled", f"it was refused ({message.fate.partition(':')[2]}) and is there")
    else:
        yield say("stuck", "its sender never got an answer")
    yield from _faults(message)


def _of_accepted(message: Message, found: Sequence[Turn], stored: Stored) -> Iterator[Finding]:
    say = _sayer(message)
    told = sorted({reply.turn for reply in message.replies if reply.is_accepted})
    if len(told) > 1:
        yield say("doubled", f"its sender was told the turns {told}")
    if not found:
        yield say("lost", f"it was taken as turn {told[0]}, and no turn holds it")
        return
    turn = found[0]
    if turn.number not in told:
        yield say("lost", f"it was taken as turn {told[0]}, and is turn {turn.number}")
    # A turn that was withdrawn leaves no message; nobody withdraws any here.
    if not stored.said[message.token]:
        yield say("lost", f"its turn ({turn.status}) is there, and the transcript does not have it", turn)
    if turn.status not in ENDED:
        yield say("stuck", f"its turn is {turn.status}", turn)
    elif not message.fate:
        yield say("stuck", f"its turn is {turn.status}, and its sender never learned that", turn)
    outputs = {reply.output for reply in message.replies if reply.output is not None}
    if len(outputs) > 1:
        yield say("doubled", "its sender read two answers", turn)
    if outputs and turn.output not in outputs:
        yield say("lost", "the answer that its sender read is not the one that is kept", turn)
    if turn.status == "complete" and turn.output != f"done {message.token}":
        yield say("lost", "it is complete with another answer than its own", turn)


def _of_acts(message: Message, turn: Turn, times: int, *, declined: bool) -> Iterator[Finding]:
    say = _sayer(message)
    if times > 1:
        yield say("doubled", f"it acted {times} times", turn)
    if declined and times:
        yield say("doubled", "it was declined and acted", turn)
    if turn.status == "complete" and not declined and not times:
        yield say("lost", "it is complete and never acted", turn)


def _faults(message: Message) -> Iterator[Finding]:
    """Refusals that nothing in this run may cause: everything but deaths, overload, and what senders did wrong."""
    say = _sayer(message)
    for name in sorted({reply.name for reply in message.replies if _is_fault(reply)}):
        yield say("fault", f"it was refused: {name}")


def _is_fault(reply: Reply) -> bool:
    if 200 <= reply.status < 300:
        return not reply.is_accepted
    if not reply.code:
        return reply.status not in OWN_WORDS_OF_THE_GATEWAY
    return reply.code not in EXPECTED_REFUSALS | PASSING


def _sayer(message: Message) -> Callable[..., Finding]:
    def say(kind: Kind, what: str, turn: Turn | None = None) -> Finding:
        return Finding(kind, what, message.token, message.conversation, turn.number if turn else 0)

    return say


# --- asks, and what nobody sent -----------------------------------------------------------------------------


def _decided(answers: Sequence[Answer]) -> dict[str, bool | None]:
    """What was decided of each message's act, by its check-in; in doubt the act had its say before."""
    return {each.token: each.approved for each in answers if each.is_accepted and each.gate == "check_in"}


def _of_answers(answers: Sequence[Answer]) -> Iterator[Finding]:
    by_ask: dict[str, list[Answer]] = defaultdict(list)
    for each in answers:
        by_ask[each.ask].append(each)
    for tries in by_ask.values():
        first = tries[0]
        if len({each.key for each in tries if each.is_accepted}) > 1:
            yield Finding("doubled", "two decisions of one ask were taken", first.token, first.conversation)
        for each in tries:
            if each.code and each.code not in EXPECTED_OF_ANSWERS:
                yield Finding("fault", f"an answer was refused: {each.code}", each.token, each.conversation)


def _of_the_rest(messages: Sequence[Message], stored: Stored) -> Iterator[Finding]:
    for conversation, why in sorted(stored.unread.items()):
        yield Finding("lost", f"it cannot be read: {why}", conversation=conversation)
    sent = {message.token for message in messages}
    for turn in stored.turns:
        if turn.token not in sent:
            yield Finding("doubled", "a turn that nobody sent", turn.token, turn.conversation, turn.number)
        if turn.status == "hidden":
            yield Finding("lost", "a turn that readers are not shown", turn.token, turn.conversation, turn.number)
    numbers: dict[str, list[int]] = defaultdict(list)
    for turn in stored.turns:
        numbers[turn.conversation].append(turn.number)
    for conversation, there in sorted(numbers.items()):
        gaps = sorted(set(range(1, max(there) + 1)) - set(there))
        if gaps:
            yield Finding("lost", f"turns are missing: {gaps}", conversation=conversation)


def _of_failures(stored: Stored, died_in: Collection[str]) -> Iterator[Finding]:
    for turn in stored.turns:
        if turn.status in UNWANTED_ENDS and turn.conversation not in died_in:
            what = f"its turn is {turn.status}, and no process died there"
            yield Finding("fault", what, turn.token, turn.conversation, turn.number)


# --- counting -----------------------------------------------------------------------------------------------


def _count(
    verdict: Verdict,
    messages: Sequence[Message],
    answers: Sequence[Answer],
    stored: Stored,
    decided: dict[str, bool | None],
) -> None:
    asked = {each.token for each in answers if each.gate != "in_doubt"}
    verdict.conversations = len({turn.conversation for turn in stored.turns})
    verdict.answered = sum(turn.status == "complete" for turn in stored.turns)
    verdict.asked = len(asked)
    verdict.declined = sum(value is False for value in decided.values())
    verdict.queued = sum(any(reply.turn_status == "queued" for reply in each.replies) for each in messages)
    verdict.in_doubt = len({each.ask for each in answers if each.gate == "in_doubt"})
    verdict.given_up = sum(each.fate == GIVEN_UP for each in messages)
    heard = Counter(each.ask for each in answers if each.is_accepted or each.code)
    verdict.contested = sum(count > 1 for count in heard.values())
    for turn in stored.turns:
        if turn.status in UNWANTED_ENDS:
            verdict.failed[f"{turn.status} {turn.error}".strip()] += 1
    for message in messages:
        if message.fate.startswith("refused:"):
            verdict.refused[message.fate.partition(":")[2]] += 1
        if message.twice:
            verdict.sent_twice += 1
        final = message.replies[-1] if message.replies else None
        for reply in message.replies:
            if reply is not final and not reply.is_accepted:
                verdict.told_again[reply.name] += 1
