"""The people whom Locust plays. ``load/__main__.py`` starts Locust with this file, in an environment of its own."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import gevent
from locust import FastHttpUser, between, events, task

from load.caller import Caller
from load.journal import GIVEN_UP, Journal
from load.talk import Talk

RUN = json.loads(Path(os.environ["LOAD_RUN"]).read_text(encoding="utf-8"))
MODES = ("exit", "exit", "async", "sync")
ENDS_WELL = ("complete", "refused:ERR_CONCURRENT_RUN", GIVEN_UP)

_journal = Journal(Path(RUN["journal"]))
_numbers = itertools.count()


@events.init.add_listener
def _end_with_whoever_started_it(**_: object) -> None:
    """However that one ends, a kill included: nobody would read the journal."""

    def watch(parent: int) -> None:
        while os.getppid() == parent:
            gevent.sleep(0.5)
        os._exit(1)

    gevent.spawn(watch, os.getppid())


class Person(FastHttpUser):
    """Somebody who talks to the desk, one message after the other, now and then without patience."""

    host = RUN["api_url"]
    wait_time = between(0.1, 0.9)
    connection_timeout = 20.0
    network_timeout = 60.0
    concurrency = 20

    def on_start(self) -> None:
        """Gets a name, a token and a first conversation."""
        number = next(_numbers)
        name, token = RUN["people"][number % len(RUN["people"])]
        self.chance = random.Random(f"{RUN['seed']}-{number}")
        supervisors = [Caller(self.client, each) for each in RUN["supervisors"]]
        self.talk = Talk(_journal, Caller(self.client, token), name, supervisors, Path(RUN["book"]), self.chance)
        self._begin()

    def _begin(self) -> None:
        self.mode = self.chance.choice(MODES)
        self.conversation = f"load-{self.mode}-{self.chance.getrandbits(48):012x}"
        self.left = self.chance.randint(2, 12)

    def _ended(self, *fates: str) -> None:
        """After some turns, and after any that did not end as it should, in another conversation."""
        self.left -= 1
        if self.left <= 0 or any(fate not in ENDS_WELL for fate in fates):
            self._begin()

    @task(40)
    def plain(self) -> None:
        """A message and its answer; some senders give up where a process dies, and go on with other words."""
        gives_up = self.chance.random() < 0.3
        self._ended(self.talk.live(self.talk.new("look act", self.conversation, "plain", gives_up=gives_up)))

    @task(16)
    def twice(self) -> None:
        """A double submit."""
        prefer = self.chance.choice(("", "wait=5"))
        self._ended(self.talk.live_twice(self.talk.new("look act", self.conversation, "twice", prefer=prefer)))

    @task(8)
    def rivals(self) -> None:
        """Two tabs, two messages, at the same time: whoever comes second is refused, or comes after the first."""
        said = [self.talk.new("look act", self.conversation, "rival", rival=True) for _ in range(2)]
        lives = [gevent.spawn(self.talk.live, each) for each in said]
        gevent.joinall(lives)
        self._ended(*(str(life.value) for life in lives))

    @task(16)
    def asked(self) -> None:
        """A turn that asks somebody; now and then its sender says something else first, which is refused."""
        words = self.chance.choice(("look pay", "pay", "which act"))
        said = self.talk.new(words, self.conversation, "asked")
        if self.chance.random() < 0.3:
            got = self.talk.send(said)
            if got.body.get("status") == "awaiting":
                self.talk.live(self.talk.new("act", self.conversation, "impatient"))
        self._ended(self.talk.live(said))

    @task(10)
    def queued(self) -> None:
        """A turn that is queued; half of them sent twice."""
        said = self.talk.new("look act", self.conversation, "queued", prefer="respond-async")
        self._ended(self.talk.live_twice(said) if self.chance.random() < 0.5 else self.talk.live(said))

    @task(6)
    def created(self) -> None:
        """A conversation that the API names, with its first message, sent twice."""
        self.talk.live_twice(self.talk.new("act", "", "created", creates=True))

    @task(4)
    def reused(self) -> None:
        """A key of an answered message with other words: refused, and nothing of it is kept."""
        said = self.talk.new("look act", self.conversation, "plain")
        fate = self.talk.live(said)
        if fate == "complete":
            other = self.talk.new("act", self.conversation, "reused")
            other.key = said.key
            self.talk.live(other)
        self._ended(fate)
