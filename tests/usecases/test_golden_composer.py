"""The reference's request path: the order of what it did, and its refusals (CONTRACT.md 11).

Compared are reads before runs, runs before final writes, final writes before replies, what a run is shown, what is
stored, and the code of every refusal. What turnkeep has no counterpart of, or decides otherwise on purpose, is left out
by name in ``LEFT_OUT``; single expectations that section 17 changes are in ``CHANGED``.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.usecases.workshop import Doing, Workshop
from turnkeep.agent.port import Answered, Asked, TurnContext
from turnkeep.clock import SystemClock
from turnkeep.errors import StoreUnavailableError, TurnkeepError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.store import Put, Unavailable, Update
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.deps import Caller, FixedDeadline
from turnkeep.usecases.import_conversation import import_conversation
from turnkeep.usecases.read import read_transcript
from turnkeep.usecases.resume_turn import resume_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.records import TurnRecord
    from turnkeep.ledger.store import Page, Read, Result, Write

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "cases" / "composer.json").read_text("utf-8"))["cases"]

NO_SESSION = "every turn has a conversation"
GATEWAY = "the gateway verifies, before any function runs"
READING = "listings and transcripts are use cases of their own, with tests of their own"
LEFT_OUT = {
    "comp-03": "there is no wake",
    "comp-04": NO_SESSION,
    "comp-06": NO_SESSION,
    "comp-07": "the tenant is the token's, never the stored conversation's",
    "comp-08": "tokens are not streamed",
    "comp-12": "every reply can say awaiting",
    "comp-13": NO_SESSION,
    "comp-24": "an answer to a conversation that does not exist is the not-found (API.md)",
    "comp-25": NO_SESSION,
    "comp-26": "superseded by the answered mark (17.1)",
    "comp-30": "there is no wake",
    "comp-42": GATEWAY,
    "comp-44": GATEWAY,
    "comp-46": "a foreign caller is stopped before the run, by the not-found (17.9)",
    "comp-47": "an anonymous caller opens only what nobody owns (API.md)",
    "comp-48": READING,
    "comp-49": READING,
    "comp-51": READING,
    "comp-52": "every reply can carry a listing",
    "comp-56": NO_SESSION,
    "comp-62": "admission allows or refuses; how turns queue is the stack's or the request's choice",
    "comp-65": NO_SESSION,
    "comp-69": "its only write of progress is the message's, which the claim makes (17.15)",
    "comp-72": "its only write of progress is the message's, which the claim makes (17.15)",
    "comp-74": NO_SESSION,
    "comp-75": "unintended in the reference (17.4)",
}
CHANGED: dict[tuple[str, str], dict[str, Any]] = {
    # What a person said is durable from the claim on (17.15), so the next turn continues it (17.14).
    ("comp-32", "b"): {"continuesMessages": 1},
    ("comp-59", "b"): {"continuesMessages": 1},
    # A tool's result without its call never reaches a provider (17.14).
    ("comp-60", "a"): {"continuesMessages": 2},
    # What was just said is durable, and so it is read (17.15).
    ("comp-60", "b"): {"said": [{"role": "user", "content": "1"}]},
    # The ask has its answer, and a second one is told so (API.md).
    ("comp-15", "b"): {"code": "ERR_ALREADY_ANSWERED"},
}
CODES = {"disk gone": "ERR_STORE_UNAVAILABLE", "disk full": "ERR_STORE_UNAVAILABLE"}
KINDS = {"unknown-format": "ERR_UNKNOWN_FORMAT", "store-refused-progress": "ERR_STORE_UNAVAILABLE"}
CASES = [case for case in GOLDEN if case["id"] not in LEFT_OUT]
FINAL = ("complete", "awaiting")
Line = tuple[Any, ...]


class Table(MemoryItemStore):
    """A table that logs reads and final writes, and fails or holds the writes that a case names."""

    def __init__(self, house: House, faults: dict[str, Any]) -> None:
        super().__init__()
        self.house, self.faults, self.progress = house, faults, 0

    def read(self, reads: Sequence[Read]) -> list[Page]:
        name = threading.current_thread().name
        if name in self.house.fresh:
            self.house.fresh.discard(name)
            self.house.log("hydrate")
            if "hydrate" in self.faults:
                raise StoreUnavailableError
        return super().read(reads)

    def write(self, writes: Sequence[Write]) -> list[Result]:
        for one in writes:
            if isinstance(one, Put) and str(one.item["sk"]).startswith("SEG#") and one.item["kind"] == "messages":
                self.progress += 1
            elif isinstance(one, Update) and one.key[1].startswith("TURN#") and one.set.get("status") in FINAL:
                self.house.log("persist", one.set["status"])
            else:
                continue
            if self._fault():
                return [Unavailable(StoreUnavailableError()) for _ in writes]
        return super().write(writes)

    def _fault(self) -> bool:
        """Whether this write fails; a gate holds it first. A case names each of its writes once."""
        fault = self.faults.get("persist", {})
        number = next(iter(fault), None)
        if number is None or (self.house.mode == "sync" and self.progress < int(number) - 1):
            return False
        if "gate" in fault[number]:
            gate = fault.pop(number)["gate"]
            assert self.house.gate(gate).wait(20)
            return False
        return True


class House:
    """One case's deployment, and the log of what it did."""

    def __init__(self, case: dict[str, Any]) -> None:
        options = case["options"]
        self.case, self.lines, self.fresh = case, list[Line](), set[str]()
        self.script = [step for script in options.get("poolScripts", [case["agentScript"]]) for step in script]
        self.mode = options.get("durability", "exit")
        self.verifies = "verifier" in options
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        table = Table(self, json.loads(json.dumps(options.get("faults", {}))))
        self.shop = Workshop(clock=SystemClock(), store=table).with_settings(
            durability=self.mode,
            on_concurrent=options.get("onConcurrentInvoke", "reject"),
            allow_anonymous=not self.verifies or bool(options.get("allowAnonymous")),
        )
        for session, envelope in options.get("initial", {}).items():
            self._furnish(session, envelope)
        for session in options.get("rawStored", {}):
            self._take(ConversationKey(session), Caller(), "a", lambda context: self._answer(context, "b"))
            for item in table.items():
                table._items[(str(item["pk"]), str(item["sk"]))]["format"] = "conversation-v9"

    def log(self, *line: Any) -> None:
        with self._lock:
            self.lines.append(line)

    def gate(self, name: str) -> threading.Event:
        return self._gates.setdefault(name, threading.Event())

    def _furnish(self, session: str, envelope: dict[str, Any]) -> None:
        if envelope["format"] == "conversation-v1":
            import_conversation(self.shop.deps(), envelope, conversation_id=session)
            return
        # A pause that our own engine could not resume: the same one, made here.
        paused = envelope["data"]
        owner = paused["conversation"].get("identity", {}).get("principal")
        pause_data, checkpoint = paused["checkpoint"]["pauseData"], paused["checkpoint"]
        settings, self.shop.settings = self.shop.settings, Workshop().with_settings(allow_anonymous=True).settings
        asks = lambda context: Asked(pause_data, checkpoint, list(context.messages), 1)  # noqa: E731
        message = paused["conversation"]["originalInput"]["message"]
        self._take(ConversationKey(session), Caller(owner), message, asks)
        self.shop.settings, self.lines = settings, []

    def _take(self, key: ConversationKey, caller: Caller, message: str, work: Any) -> TurnRecord:
        return self.shop.take(message, caller=caller, key=key, factory=lambda info: Doing(work))

    # --- the agent ------------------------------------------------------------------------------------------

    def _answer(self, context: TurnContext, text: str, between: Sequence[Any] = ()) -> Answered:
        return Answered(text, [*context.messages, *between, {"role": "assistant", "content": text}], 1)

    def work(self, context: TurnContext) -> Any:
        """Does what the script says next."""
        with self._lock:
            step = self.script.pop(0)
        messages: list[dict[str, Any]] = []
        for one in step.get("commits", []):
            if "toolsBarrier" in one:
                context.barrier()
                self.log("tools-run", one["toolsBarrier"])
                continue
            if one["append"]:
                messages += _with_calls(one["append"], len(messages))
            context.commit([*context.messages, *messages], one["iteration"])
        if "gate" in step:
            assert self.gate(step["gate"]).wait(20)
        if "throws" in step:
            raise RuntimeError(step["throws"])
        if "pause" in step:
            return Asked(step["pause"], {"pauseData": step["pause"]}, [*context.messages, *messages], 1)
        return self._answer(context, step["answer"], messages)

    def agent(self) -> Doing:
        house = self

        class Logged(Doing):
            def run(self, context: TurnContext) -> Any:
                house.log("run", context.messages[0]["content"], len(context.history) or None, context.info.principal)
                return house.work(context)

            def resume(self, context: TurnContext, checkpoint: dict[str, Any], decision: Any) -> Any:
                house.log("resume", checkpoint.get("sharedState", {}).get("marker"), decision)
                return house.work(context)

        return Logged(self.work)

    # --- requests -------------------------------------------------------------------------------------------

    def deliver(self, name: str, request: dict[str, Any]) -> None:
        """One request, on its thread."""
        try:
            self.log("reply", name, *self._serve(request))
        except TurnkeepError as error:
            self.log("reply", name, "fail", error.code, _shown(getattr(error, "awaiting", None)))

    def _serve(self, request: dict[str, Any]) -> Line:
        key, caller = ConversationKey(_session(request)), self._caller(request)
        deadline = FixedDeadline.after(self.shop.clock, 29_000)
        if "session" in request:
            found, _ = read_transcript(self.shop.deps(), caller, key, after=None, limit=100, max_bytes=10**6)
            return "sessions", found
        if "decision" in request:
            deps = self.shop.deps(lambda info: self.agent())
            turns = [item for item in self.shop.items("TURN#") if item["pk"] == key.pk]
            ask_id = next((str(item["askId"]) for item in turns if "askId" in item), "ask-1-none")
            past = self.shop.turn(1, key).past_asks
            ask_id = past[-1].ask_id if past and ask_id == "ask-1-none" else ask_id
            answer_ask(deps, caller, key, ask_id=ask_id, decision=request["decision"], deadline=deadline)
            self.fresh.discard(threading.current_thread().name)
            done = resume_turn(deps, key, 1, ask_id, deadline=deadline).record
            assert done is not None
        else:
            done = self.shop.take(request["input"], caller=caller, key=key, factory=lambda info: self.agent())
        if done.ask is not None:
            return "awaiting", _shown(done.ask.pending)
        return "complete", done.output

    def _caller(self, request: dict[str, Any]) -> Caller:
        bearer = request.get("headers", {}).get("authorization", "").removeprefix("Bearer ")
        return Caller(bearer or None) if self.verifies else Caller(request.get("userId"))


def _with_calls(appended: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """The script's messages, its tool's result joined to a call: a provider takes no other."""
    calling, result = appended
    call = {"id": f"c{at}", "name": "tool", "args": {}}
    return [{**calling, "toolCalls": [call]}, {**result, "toolCallId": call["id"], "toolName": "tool"}]


def _session(request: dict[str, Any]) -> str:
    return str(request.get("sessionId") or request["session"]["sessionId"])


def _shown(ask: Any) -> Any:
    """What of a question both sides show: not the ids that each makes up."""
    if ask is None:
        return None
    return {name: ask[name] for name in ("tool", "question", "component") if name in ask}


def expected(case: dict[str, Any], step: dict[str, Any]) -> list[Line]:
    """The reference's lines in our words; writes of progress are other writes here, and counted elsewhere (17.15)."""
    lines: list[Line] = []
    for line in step["log"]:
        match line:
            case ["hydrate", *_]:
                lines.append(("hydrate",))
            case ["run", run]:
                name = step.get("deliver", "b")
                continued = CHANGED.get((case["id"], name), {}).get("continuesMessages", run["continuesMessages"])
                lines.append(("run", run["message"], continued, (run["identity"] or {}).get("principal")))
            case ["resume", resumed]:
                lines.append(("resume", resumed["checkpointMarker"], resumed["decision"]))
            case ["tools-run", name]:
                lines.append(("tools-run", name))
            case ["persist", stored]:
                lines.append(("persist", "awaiting" if stored["format"] == "flowchart-v1" else "complete"))
            case ["reply", name, "fail", error]:
                lines = _without_progress(lines, has_final="kind" not in error and "disk" in str(error))
                lines.append(("reply", name, "fail", _code(case["id"], name, error), _shown(error.get("pending"))))
            case ["reply", name, "awaiting", pending]:
                lines = [*_without_progress(lines), ("reply", name, "awaiting", _shown(pending))]
            case ["reply", name, "sessions", found]:
                more = CHANGED.get((case["id"], name), {}).get("said", [])
                lines.append(("reply", name, "sessions", [*found["messages"], *more]))
            case ["reply", name, "complete", output]:
                lines = [*_without_progress(lines), ("reply", name, "complete", output)]
    ended = any(line[0] == "reply" for line in lines)
    return (
        lines
        if ended or case["options"].get("durability", "exit") == "exit"
        else _without_progress(lines, has_final=False)
    )


def _without_progress(lines: list[Line], *, has_final: bool = True) -> list[Line]:
    """Of the writes since the last reply only the last one, which is the final one if there was one."""
    since = max((at for at, line in enumerate(lines) if line[0] == "reply"), default=-1) + 1
    writes = [at for at, line in enumerate(lines) if line[0] == "persist" and at >= since]
    dropped = set(writes[:-1] if has_final else writes)
    return [line for at, line in enumerate(lines) if at not in dropped]


def _code(case_id: str, name: str, error: dict[str, Any]) -> str:
    code = error.get("code") or KINDS.get(error.get("kind", "")) or CODES.get(error.get("messageContains", ""))
    return str(CHANGED.get((case_id, name), {}).get("code", code or "ERR_RUN_FAILED"))


@pytest.mark.parametrize("case", CASES, ids=[f"{case['id']} {case['name']}" for case in CASES])
def test_the_request_path_of_the_reference(case: dict[str, Any]) -> None:
    house = House(case)
    threads = []
    for step in case["steps"]:
        house.lines = []
        wanted = expected(case, step)
        if "deliver" in step:
            house.fresh.add(step["deliver"])
            thread = threading.Thread(
                target=house.deliver, args=(step["deliver"], step["request"]), name=step["deliver"]
            )
            threads.append(thread)
            thread.start()
        else:
            house.gate(step["release"]).set()
        # The reference's lanes refuse, and let wait, without a look; the ledger is looked at to know.
        looks = ("hydrate",) in wanted and "enqueue" not in case["options"].values()
        seen = list if looks else without_looks
        until = time.monotonic() + 20
        while len(seen(house.lines)) < len(seen(wanted)) and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(0.03)
        assert seen(house.lines) == seen(wanted)
    for thread in threads:
        thread.join(20)
    assert house.script == []


def without_looks(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line[0] != "hydrate"]


def test_what_is_left_out_is_known() -> None:
    assert set(LEFT_OUT) <= {case["id"] for case in GOLDEN}
    assert len(CASES) == 33
