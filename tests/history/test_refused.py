"""What cannot be read is refused by name, at every kind of item and on every route, and nothing is written over it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.entry.doors import Answer, FakeInvocation, Lines, event, jwt, serve
from tests.history.record import STORIES, tell
from tests.usecases.workshop import KEY, Workshop, saying
from turnkeep.entry.http.answer_routes import answer_routes
from turnkeep.entry.http.door import Door
from turnkeep.entry.http.read_routes import read_routes
from turnkeep.entry.http.turn_routes import turn_routes
from turnkeep.entry.observability import Observation
from turnkeep.entry.settings import Environment
from turnkeep.errors import UnreadableError
from turnkeep.ledger.keys import CONVERSATION
from turnkeep.ledger.store import Item, Put
from turnkeep.usecases.answer_ask import answer_ask
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.deps import FixedDeadline
from turnkeep.usecases.erase import erase_conversation
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.listing import list_asks, list_conversations
from turnkeep.usecases.read import read_conversation, read_evidence, read_transcript, read_turn, read_turns
from turnkeep.usecases.take_turn import take_turn
from turnkeep.usecases.withdraw import withdraw_turn

if TYPE_CHECKING:
    from collections.abc import Callable

ROUTES = [
    *turn_routes(take_turn=take_turn, create_conversation=create_conversation, erase_conversation=erase_conversation),
    *answer_routes(answer_ask=answer_ask, withdraw_turn=withdraw_turn),
    *read_routes(
        read_conversation=read_conversation,
        read_turn=read_turn,
        read_turns=read_turns,
        read_transcript=read_transcript,
        read_evidence=read_evidence,
        list_conversations=list_conversations,
        list_asks=list_asks,
    ),
]

REQUESTS: dict[str, Any] = {
    "POST /conversations/{id}/turns": {"message": "hello?"},
    "POST /conversations/{id}/answers": {"askId": "ask-1-none", "decision": None},
    "DELETE /conversations/{id}/turns/{n}": None,
    "GET /conversations/{id}": None,
    "GET /conversations/{id}/turns": None,
    "GET /conversations/{id}/turns/{n}": None,
    "GET /conversations/{id}/turns/{n}/evidence": None,
    "GET /conversations/{id}/transcript": None,
}
"""Every route of one conversation but its erasure, which reads nothing but whose it is."""


@dataclass(frozen=True)
class Site:
    """The API in front of a table."""

    shop: Workshop

    def ask(self, route: str, *, who: str = "alice", body: Any = None) -> Answer:
        environment = Environment(table="Ledger", core=self.shop.settings)

        def invoke(context: Any, observation: Observation) -> Any:
            deadline = FixedDeadline.after(self.shop.clock, 29_000)
            return FakeInvocation(environment, self.shop.deps(saying("Hello.")), deadline)

        door = Door(ROUTES, invoke, observe=lambda: Observation("request", sink=Lines(), clock=self.shop.clock))
        path = {"id": "c-1", "n": "1"} if "{n}" in route else {"id": "c-1"}
        return serve(door, event(route, path_parameters=path, body=body, authorizer=jwt(who)))


def damaged(story: str, sk: str, damage: Callable[[Item], Item]) -> Workshop:
    """A story's table with one item, whose sort key begins so, replaced."""
    shop = tell(STORIES[story]).with_settings(allow_anonymous=False)
    items = [item for item in shop.items() if str(item["sk"]).startswith(sk)]
    assert items, f"{story} has no {sk}"
    shop.memory.write([Put(damage(item)) for item in items[:1]])
    return shop


def with_(**changes: Any) -> Callable[[Item], Item]:
    return lambda item: {**item, **changes}


def without(*names: str) -> Callable[[Item], Item]:
    return lambda item: {name: value for name, value in item.items() if name not in names}


def cut(name: str) -> Callable[[Item], Item]:
    """Bytes that lost their end, or text that did."""
    return lambda item: {**item, name: item[name][: len(item[name]) // 2]}  # type: ignore[index,arg-type]


NOBODYS: list[Any] = ["[object Object]", "", "{", "7", "[1,2]", "null", "true", 7, b"\x00\x01\x02", b"[object Object]"]
"""Values that no release of turnkeep ever wrote where a turn's parts are."""

TURN_DAMAGE: dict[str, Callable[[Item], Item]] = {
    "a newer format": with_(format="conversation-v2"),
    "no format": without("format"),
    "a format that is a number": with_(format=1),
    "no status": without("status"),
    "a status of a newer release": with_(status="dreaming"),
    "no epoch but its own number": with_(previous="[object Object]"),
    "no message": without("user"),
    "a body that was cut": cut("body"),
    "a message that was cut": cut("user"),
    **{f"a message of {value!r}": with_(user=value) for value in NOBODYS},
    **{f"a body of {value!r}": with_(body=value) for value in NOBODYS},
}


@pytest.mark.parametrize("damage", TURN_DAMAGE)
@pytest.mark.parametrize("route", REQUESTS)
def test_a_turn_that_cannot_be_read(route: str, damage: str) -> None:
    check(damaged("tool-calls", "TURN#0000000000000001", TURN_DAMAGE[damage]), route, damage)


SUMMARY_DAMAGE: dict[str, Callable[[Item], Item]] = {
    "a newer format": with_(format="conversation-v2"),
    "no format": without("format"),
    "no time": without("savedAt"),
    "a time that is text": with_(savedAt="[object Object]"),
    "no turn": without("turn"),
    "no epoch": without("epoch"),
}


@pytest.mark.parametrize("damage", SUMMARY_DAMAGE)
@pytest.mark.parametrize("route", REQUESTS)
def test_a_summary_that_cannot_be_read(route: str, damage: str) -> None:
    shop = damaged("tool-calls", CONVERSATION, SUMMARY_DAMAGE[damage])
    if route.endswith("/answers"):
        # No decision is used up for such a one (tests/usecases/test_ownership_at_doors.py); here nothing asks.
        before = shop.items()
        assert Site(shop).ask(route, body=REQUESTS[route]).code == "ERR_NO_PENDING_ASK"
        assert shop.items() == before
        return
    check(shop, route, damage)


SEGMENT_DAMAGE: dict[str, Callable[[Item], Item]] = {
    "a newer format": with_(format="segment-v2"),
    "no format": without("format"),
    "no data": without("data"),
    "data that was cut": cut("data"),
    "another hash": with_(hash="0" * 32),
    "no place": without("from"),
    **{f"data of {value!r}": with_(data=value) for value in NOBODYS},
}
READ_SEGMENTS = ["POST /conversations/{id}/turns", "GET /conversations/{id}/transcript"]


@pytest.mark.parametrize("damage", SEGMENT_DAMAGE)
@pytest.mark.parametrize("route", READ_SEGMENTS)
def test_a_segment_that_cannot_be_read(route: str, damage: str) -> None:
    check(damaged("large", "SEG#", SEGMENT_DAMAGE[damage]), route, damage)


def test_a_segment_that_is_gone() -> None:
    for route in READ_SEGMENTS:
        shop = tell(STORIES["large"]).with_settings(allow_anonymous=False)
        (first, *_) = [item for item in shop.items() if str(item["sk"]).startswith("SEG#")]
        shop.memory.delete([(str(first["pk"]), str(first["sk"]))])
        check(shop, route, "a segment that is gone")


@pytest.mark.parametrize("damage", [with_(format="request-v2"), without("format"), without("turn"), without("digest")])
def test_a_request_that_cannot_be_read(damage: Callable[[Item], Item]) -> None:
    """Only who brings its key reads it, and is not given a second run for it."""
    shop = damaged("created", "REQUEST#", damage)
    before = shop.items()
    from tests.usecases.workshop import key_of

    with pytest.raises(UnreadableError) as refused:
        shop.take("hello", idempotency=key_of("k"))
    assert refused.value.code in ("ERR_UNKNOWN_FORMAT", "ERR_MALFORMED_ENVELOPE")
    assert shop.items() == before


@pytest.mark.parametrize("value", [*NOBODYS[:3], 7, b"\x00\x01\x02"])
def test_a_remembered_result_that_cannot_be_read_runs_nothing_again(value: Any) -> None:
    import refund_desk

    shop = tell(STORIES["acted-once"])
    (call,) = [item for item in shop.items() if str(item["sk"]).startswith("ONCE#")]
    shop.memory.write([Put({**call, "result": value})])
    # The same turn again, as an attempt that took it over would come to it.
    turn = shop.turn(1)
    from turnkeep.errors import MalformedStoredItemError
    from turnkeep.usecases.once import LedgerOnce

    once = LedgerOnce(shop.deps(refund_desk.build), turn, check=lambda: None)
    key = str(call["sk"]).split("#", 2)[2]
    try:
        remembered = once.begin(key)
    except MalformedStoredItemError:
        return
    assert remembered is not None, "whatever is remembered, the call is not begun again"


@pytest.mark.parametrize("damage", [with_(format="conversation-v2"), with_(ask="[object"), without("expiresAt")])
def test_a_waiting_turn_that_cannot_be_read_is_not_answered(damage: Callable[[Item], Item]) -> None:
    shop = damaged("awaiting", "TURN#", damage)
    ask = tell(STORIES["awaiting"]).turn(1).ask
    assert ask is not None
    before = shop.items()
    site = Site(shop)
    body = {"askId": ask.ask_id, "decision": {"approved": True, "by": "x"}}
    owner = site.ask("POST /conversations/{id}/answers", body=body)
    assert owner.status == 500
    assert owner.body["error"]["conversationId"] == "c-1"
    stranger = site.ask("POST /conversations/{id}/answers", who="bob", body=body)
    assert (stranger.status, stranger.code) == (404, "ERR_SESSION_NOT_FOUND")
    assert shop.items() == before


def check(shop: Workshop, route: str, damage: str) -> None:
    """Its owner is told by name, everybody else that there is none, and nothing changes and nothing begins."""
    site, before = Site(shop), shop.items()
    probes = list(shop.probes)
    owner = site.ask(route, body=REQUESTS[route])
    assert (owner.status, owner.code) in (
        (500, "ERR_UNKNOWN_FORMAT"),
        (500, "ERR_MALFORMED_ENVELOPE"),
    ), f"{damage}: {owner.body}"
    error = owner.body["error"]
    assert error["conversationId"] == "c-1"
    assert isinstance(error["found"], str)
    if "newer format" in damage:
        assert owner.code == "ERR_UNKNOWN_FORMAT"
        assert error["found"].endswith("-v2")
        assert error["known"]
    said = json.dumps(owner.body)
    assert not [word for word in ("A-100", "desk lamp", "alice", "object Object") if word in said]
    for who in ("bob", "Alice"):
        other = site.ask(route, who=who, body=REQUESTS[route])
        assert (other.status, other.code) == (404, "ERR_SESSION_NOT_FOUND")
    assert shop.items() == before, "nothing is written over it"
    assert shop.probes == probes, "nothing began"


def test_an_export_of_what_cannot_be_read_is_refused_too() -> None:
    for story, sk in (("tool-calls", "TURN#"), ("tool-calls", CONVERSATION), ("large", "SEG#")):
        shop = damaged(story, sk, with_(format="later-v9"))
        with pytest.raises(UnreadableError):
            export_conversation(shop.deps(), KEY)


def test_a_listing_shows_what_can_be_read() -> None:
    shop = damaged("tool-calls", CONVERSATION, with_(format="conversation-v2"))
    answer = Site(shop).ask("GET /conversations")
    assert (answer.status, answer.body["conversations"]) == (200, [])
