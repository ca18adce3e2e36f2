"""One message's whole life as its sender lives it: sent, sent again until it is answered, its asks decided, its end.

Runs inside Locust. Everything that was sent and told goes into the journal; nothing here judges it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gevent

from load.journal import GIVEN_UP, Journal, read_lines

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from load.caller import Caller, Got

PATIENCE_S = 110.0
"""How long a sender follows one message; behind that it is stuck, and the audit says so."""

GOES_ON = frozenset({"queued", "running", "answered"})
ASKS = "awaiting"


@dataclass
class Said:
    """A message on its way.

    Attributes:
        text: the token, then what the agent shall do.
        key: its Idempotency-Key; every try and every copy has the same.
        conversation: empty until the API has told it.
        creates: it is sent to where conversations are made, however often.
        rival: another message may be in its way: a first refusal is final.
        gives_up: its sender does not come again when the process dies, and says something else.
    """

    token: str
    text: str
    key: str
    conversation: str
    kind: str
    prefer: str = ""
    creates: bool = False
    rival: bool = False
    gives_up: bool = False
    tries: int = 0


class Talk:
    """What one person does with messages."""

    def __init__(
        self, journal: Journal, me: Caller, name: str, supervisors: list[Caller], book: Path, chance: random.Random
    ) -> None:
        self._journal, self._me, self._name, self._supervisors = journal, me, name, supervisors
        self._book, self._chance = book, chance

    def new(self, words: str, conversation: str, kind: str, **more: Any) -> Said:
        """A message of its own name; noted before it is sent."""
        token = f"m-{self._chance.getrandbits(64):016x}"
        said = Said(token, f"{token} {words}".strip(), f"k-{token}", conversation, kind, **more)
        acts = "act" in words or "pay" in words
        self._journal.write(
            "sent", token=token, conversation=conversation, kind=kind, person=self._name, acts=acts
        )  # fmt: skip
        return said

    def live(self, said: Said) -> str:
        """Sends it until somebody knows what became of it, and follows its turn to the end. Returns how it ended."""
        until_s = time.monotonic() + PATIENCE_S
        fate = ""
        while time.monotonic() < until_s and not fate:
            got = self.send(said)
            if got.is_accepted:
                fate = self._follow(said, got, until_s)
            elif said.gives_up and got.may_be_sent_again:
                fate = GIVEN_UP
            elif not self._comes_again(said, got):
                fate = f"refused:{got.code or got.status}"
            else:
                gevent.sleep(got.pause_s(said.tries))
        if fate:
            self._journal.write("ended", token=said.token, fate=fate)
        return fate

    def live_twice(self, said: Said) -> str:
        """The same request twice at the same time; both copies are followed to an answer."""
        self._journal.write("twice", token=said.token)
        copies = [gevent.spawn(self.live, said) for _ in range(2)]
        gevent.joinall(copies)
        return next((str(copy.value) for copy in copies if copy.value), "")

    def send(self, said: Said) -> Got:
        """One try; noted with what it was told."""
        said.tries += 1
        number = said.tries
        path = "/conversations" if said.creates else f"/conversations/{said.conversation}/turns"
        got = self._me.post(path, "a message", {"message": said.text}, key=said.key, prefer=said.prefer)
        told = {"conversation": got.body.get("conversationId", "")} if got.is_accepted else {}
        self._journal.write(
            "reply", token=said.token, status=got.status, code=got.code, turn=_turn(got), number=number,
            turn_status=_status(got), output=got.body.get("output"), took_ms=got.took_ms, **told,
        )  # fmt: skip
        if told and not said.conversation:
            said.conversation = str(told["conversation"])
        return got

    # --- one turn ---------------------------------------------------------------------------------------------

    def _comes_again(self, said: Said, got: Got) -> bool:
        """Whether its sender has to ask once more. A 409 on a repeat may be about its own first try."""
        if got.may_be_sent_again:
            return True
        return got.code == "ERR_CONCURRENT_RUN" and not (said.rival and said.tries == 1)

    def _follow(self, said: Said, got: Got, until_s: float) -> str:
        """Looks at the turn until it has ended, and answers what it asks."""
        turn, looks = _turn(got), 0
        while time.monotonic() < until_s:
            status = _status(got)
            if status == ASKS:
                self.decide(said, got.body["awaiting"])
            elif status not in GOES_ON:
                return status
            looks += 1
            gevent.sleep(min(2.0, 0.2 * looks))
            path = f"/conversations/{said.conversation}/turns/{turn}"
            looked = self._me.get(path, "a turn")
            if looked.is_accepted:
                got = looked
        return ""

    # --- asks -------------------------------------------------------------------------------------------------

    def decide(self, said: Said, ask: dict[str, Any]) -> None:
        """Answers an ask once, twice by the same request, or as two people of two minds, all at the same time."""
        gate = _gate(ask)
        who = [self._me]
        if ask["audience"] != "owner":
            who = self._supervisors
            gate = self._gate_shown_to(who[0], ask["askId"])
        if not gate:
            return  # it has been answered meanwhile
        if gate == "in_doubt":
            # Whoever decides looks where it acts: the process that was in doubt is dead, so the book does not change.
            acted = any(line["token"] == said.token for line in read_lines(self._book))
            self._answer(said, ask["askId"], who[0], gate, approved=not acted)
            return
        yes = self._chance.random() < 0.8
        way = self._chance.choice(("once", "twice", "two minds"))
        answers = [(who[0], yes, "1")]
        if way == "twice":
            answers.append((who[0], yes, "1"))
        elif way == "two minds":
            answers.append((who[-1], not yes, "2"))
        gevent.joinall(
            [
                gevent.spawn(self._answer, said, ask["askId"], caller, gate, approved=approved, number=number)
                for caller, approved, number in answers
            ]
        )

    def _gate_shown_to(self, supervisor: Caller, ask_id: str) -> str:
        """What a role is asked: only its holders are shown that."""
        got = supervisor.get("/asks?limit=100", "the open asks")
        return next((_gate(ask) for ask in got.body.get("asks", []) if ask["askId"] == ask_id), "")

    def _answer(self, said: Said, ask_id: str, who: Caller, gate: str, *, approved: bool, number: str = "1") -> None:
        key = f"a-{ask_id}-{number}"
        decision: Any = "this" if gate == "question" else {"approved": approved, "by": f"person {number}"}
        until_s = time.monotonic() + PATIENCE_S
        tries = 0
        while time.monotonic() < until_s:
            tries += 1
            path = f"/conversations/{said.conversation}/answers"
            got = who.post(path, "an answer", {"askId": ask_id, "decision": decision}, key=key)
            self._journal.write(
                "answer", token=said.token, conversation=said.conversation, ask=ask_id, key=key, gate=gate,
                approved=None if gate == "question" else approved, status=got.status, code=got.code,
            )  # fmt: skip
            if not got.may_be_sent_again:
                return
            gevent.sleep(got.pause_s(tries))


def _turn(got: Got) -> int:
    turn = got.body.get("turn")
    return turn if isinstance(turn, int) else 0


def _status(got: Got) -> str:
    return str(got.body.get("status", ""))


def _gate(ask: dict[str, Any]) -> str:
    if "checkIn" in ask:
        return "check_in"
    return "in_doubt" if "ask" in ask else "question"
