"""Routes: what each hands to its use case, and what it makes of the outcome. The use cases are this file's own."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.entry.doors import NOW_MS, Answer, House, asking, completed, event, jwt, record, serve
from tests.entry.test_bodies import conversation
from turnkeep.entry.http.answer_routes import answer_routes
from turnkeep.entry.http.read_routes import read_routes
from turnkeep.entry.http.turn_routes import turn_routes
from turnkeep.errors import IdempotencyMismatchError, SessionOpNeedsIdentityError
from turnkeep.ids import conversation_id_of_request
from turnkeep.json_values import ABSENT
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.records import ConversationRecord, Status, TurnRecord
from turnkeep.usecases.deps import Caller

TURNS, ANSWERS = "POST /conversations/{id}/turns", "POST /conversations/{id}/answers"
CREATE = "POST /conversations"
C1 = {"id": "c1"}
ANN = jwt("ann", tenant="acme")


@dataclass(frozen=True)
class View:
    record: ConversationRecord
    open_turn: TurnRecord | None


@dataclass(frozen=True)
class Taken:
    record: TurnRecord
    may_read: bool


@dataclass
class Cases:
    """Use cases that remember what they were asked and give what the test wants."""

    turn: TurnRecord = field(default_factory=completed)
    may_read: bool = True
    page: tuple[Any, Any] = field(default_factory=lambda: ([], None))
    error: Exception | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    def _ask(self, name: str, caller: Caller, **said: Any) -> None:
        self.asked.append({"name": name, "caller": caller, **said})
        if self.error is not None:
            raise self.error

    def take_turn(self, deps: Any, caller: Caller, key: ConversationKey, *, deadline: Any, **said: Any) -> TurnRecord:
        assert deadline.left_ms() == 29_000
        self._ask("take_turn", caller, key=key, **said)
        return replace(self.turn, key=key)

    def create(self, deps: Any, caller: Caller, *, conversation_id: str, deadline: Any, **said: Any) -> Any:
        self._ask("create", caller, conversation_id=conversation_id, **said)
        return conversation(key=ConversationKey(conversation_id, caller.tenant), turn=0, status="", message_count=0)

    def erase(self, deps: Any, caller: Caller, key: ConversationKey, *, deadline: Any) -> object:
        self._ask("erase", caller, key=key)
        return None

    def answer(self, deps: Any, caller: Caller, key: ConversationKey, *, deadline: Any, **said: Any) -> Taken:
        self._ask("answer", caller, key=key, **said)
        return Taken(self.turn, self.may_read)

    def withdraw(self, deps: Any, caller: Caller, key: ConversationKey, turn: int, *, deadline: Any) -> TurnRecord:
        self._ask("withdraw", caller, key=key, turn=turn)
        return replace(self.turn, status=Status.CANCELLED, messages=())

    def read_conversation(self, deps: Any, caller: Caller, key: ConversationKey) -> View:
        self._ask("read_conversation", caller, key=key)
        return View(conversation(), None)

    def read_turn(self, deps: Any, caller: Caller, key: ConversationKey, turn: int) -> TurnRecord:
        self._ask("read_turn", caller, key=key, turn=turn)
        return self.turn

    def read_evidence(self, deps: Any, caller: Caller, key: ConversationKey, turn: int) -> dict[str, Any]:
        self._ask("read_evidence", caller, key=key, turn=turn)
        return {"conversationId": key.conversation_id, "turn": turn, "evidence": {}}

    def pages(self, deps: Any, caller: Caller, key: ConversationKey | None = None, **said: Any) -> Any:
        self._ask("page", caller, key=key, **said)
        return self.page

    def door(self, house: House) -> Any:
        return house.door(
            [
                *turn_routes(take_turn=self.take_turn, create_conversation=self.create, erase_conversation=self.erase),
                *answer_routes(answer_ask=self.answer, withdraw_turn=self.withdraw),
                *read_routes(
                    read_conversation=self.read_conversation,
                    read_turn=self.read_turn,
                    read_turns=self.pages,
                    read_transcript=self.pages,
                    read_evidence=self.read_evidence,
                    list_conversations=self.pages,
                    list_asks=self.pages,
                ),
            ]
        )


def post(cases: Cases, route: str, *, house: House | None = None, **parts: Any) -> Answer:
    parts.setdefault("authorizer", ANN)
    if "{id}" in route:
        parts.setdefault("path_parameters", C1)
    return serve(cases.door(house or House()), event(route, **parts))


# --- POST …/turns -------------------------------------------------------------------------------------------


def test_a_message_becomes_a_turn() -> None:
    cases = Cases()
    answer = post(cases, TURNS, body={"message": "Where is order A-100?"})
    assert (answer.status, answer.body["output"]) == (200, "Done.")
    assert cases.asked == [
        {
            "name": "take_turn",
            "caller": Caller(principal="ann", tenant="acme"),
            "key": ConversationKey("c1", "acme"),
            "message": "Where is order A-100?",
            "host_turn": None,
            "idempotency": None,
            "wait_ms": None,
            "respond_async": False,
        }
    ]


@pytest.mark.parametrize(("said", "host_turn"), [(1, 1), (0, 0), (-5, -5), (3.0, 3), (10**30, 10**30)])
def test_a_hosts_counter_is_handed_on(said: Any, host_turn: int) -> None:
    cases = Cases()
    assert post(cases, TURNS, body={"message": "a", "turn": said}).status == 200
    assert cases.asked[0]["host_turn"] == host_turn
    assert type(cases.asked[0]["host_turn"]) is int


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["message"]),
        ({"message": None}, ["message"]),
        ({"message": 7}, ["message"]),
        ({"message": ["a"]}, ["message"]),
        ({"message": True}, ["message"]),
        ({"message": ""}, ["message"]),
        ({"message": " \n\u2003"}, ["message"]),
        ({"mesage": "a"}, ["message"]),
        ({"message": "a", "turn": True}, ["turn"]),
        ({"message": "a", "turn": "1"}, ["turn"]),
        ({"message": "a", "turn": 1.5}, ["turn"]),
        ({"message": "a", "turn": None}, ["turn"]),
        ({"message": "a", "turn": [1]}, ["turn"]),
        ({"turn": "x"}, ["message", "turn"]),
        ({"message": "\ud800"}, ["message"]),
    ],
)
def test_a_turn_that_does_not_follow_the_contract_runs_nothing(body: Any, fields: list[str]) -> None:
    cases, house = Cases(), House()
    answer = post(cases, TURNS, house=house, body=body)
    assert (answer.status, answer.code, answer.body["error"]["fields"]) == (400, "ERR_INVALID_REQUEST", fields)
    assert cases.asked == []


@pytest.mark.parametrize("raw", [None, "", "hello", "[]", '{"message":"a","message":"b"}', "[" * 100_000, '{"m":NaN}'])
def test_a_body_that_is_no_json_object_runs_nothing(raw: str | None) -> None:
    cases = Cases()
    answer = post(cases, TURNS, raw_body=raw)
    assert (answer.status, answer.code) == (400, "ERR_INVALID_REQUEST")
    assert cases.asked == []


def test_a_body_in_base64_is_read_and_bytes_that_are_no_text_are_refused() -> None:
    cases = Cases()
    request = event(TURNS, path_parameters=C1, authorizer=ANN)
    request |= {"body": base64.b64encode('{"message":"é"}'.encode()).decode(), "isBase64Encoded": True}
    assert serve(cases.door(House()), request).status == 200
    assert cases.asked[0]["message"] == "é"
    request["body"] = base64.b64encode(b'{"message":"\xff"}').decode()
    assert serve(cases.door(House()), request).status == 400
    request["body"] = "no base64!"
    assert serve(cases.door(House()), request).status == 400


def test_the_size_comes_before_anything_else_about_a_message() -> None:
    house = House().with_settings(max_message_bytes=8)
    cases = Cases()
    assert post(cases, TURNS, house=house, body={"message": "8 bytes."}).status == 200
    for body in ({"message": "é" * 4 + "!"}, {"message": "\ud800" * 9, "turn": "x"}):
        answer = post(cases, TURNS, house=house, body=body)
        assert (answer.status, answer.code) == (413, "ERR_MESSAGE_TOO_LARGE")
        assert answer.body["error"]["limitBytes"] == 8
    assert len(cases.asked) == 1


def test_what_a_body_says_of_its_user_means_nothing() -> None:
    cases = Cases()
    body = {"message": "a", "userId": "bob", "principal": "bob", "tenant": "other", "conversationId": "c2"}
    assert post(cases, TURNS, body=body, headers={"x-user": "bob"}).status == 200
    assert cases.asked[0]["caller"] == Caller(principal="ann", tenant="acme")
    assert cases.asked[0]["key"] == ConversationKey("c1", "acme")


def test_preferences_are_handed_on_and_confirmed() -> None:
    cases = Cases(turn=record(Status.QUEUED))
    answer = post(cases, TURNS, body={"message": "a"}, headers={"Prefer": "respond-async, wait=30"})
    assert (cases.asked[0]["respond_async"], cases.asked[0]["wait_ms"]) == (True, 25_000)
    assert answer.headers["preference-applied"] == "respond-async, wait=25"
    assert (answer.status, answer.headers["location"]) == (202, "/conversations/c1/turns/3")
    ended = post(Cases(), TURNS, body={"message": "a"}, headers={"prefer": "respond-async"})
    assert "preference-applied" not in ended.headers


def test_one_request_is_one_however_its_body_is_written() -> None:
    cases = Cases()
    for raw in ('{"message":"a","turn":1}', '{ "turn": 1.0, "message": "\\u0061" }\n', '{"message":"b","turn":1}'):
        post(cases, TURNS, raw_body=raw, headers={"Idempotency-Key": "k-1"})
    first, again, other = (asked["idempotency"] for asked in cases.asked)
    assert first == again
    assert first.hashed == other.hashed
    assert first.digest != other.digest
    assert "k-1" not in repr(first)


def test_a_refusal_of_the_use_case_reaches_the_caller() -> None:
    answer = post(Cases(error=IdempotencyMismatchError()), TURNS, body={"message": "a"})
    assert (answer.status, answer.code) == (422, "ERR_IDEMPOTENCY_MISMATCH")


# --- POST /conversations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [None, "", "  ", "{}", '{"userId": "bob"}'])
def test_a_conversation_starts_empty(raw: str | None) -> None:
    cases = Cases()
    answer = post(cases, CREATE, raw_body=raw)
    created = cases.asked[0]
    assert (answer.status, created["name"], created["caller"].principal) == (201, "create", "ann")
    assert answer.body["conversationId"] == created["conversation_id"]
    assert answer.headers["location"] == f"/conversations/{created['conversation_id']}"


def test_a_conversation_starts_with_its_first_turn() -> None:
    cases = Cases()
    answer = post(cases, CREATE, body={"message": "hello", "turn": 4})
    assert (answer.status, answer.body["output"]) == (200, "Done.")
    assert (cases.asked[0]["name"], cases.asked[0]["host_turn"]) == ("take_turn", 4)
    assert answer.body["conversationId"] == cases.asked[0]["key"].conversation_id


def test_a_key_names_the_conversation_that_it_creates() -> None:
    cases = Cases()
    for who, key in (("ann", "k-1"), ("ann", "k-1"), ("ann", "k-2"), ("bob", "k-1")):
        post(cases, CREATE, body={}, headers={"idempotency-key": key}, authorizer=jwt(who, tenant="acme"))
    first, again, other_key, other_caller = (asked["conversation_id"] for asked in cases.asked)
    assert first == again == conversation_id_of_request("acme", "ann", "k-1")
    assert len({first, other_key, other_caller}) == 3


@pytest.mark.parametrize("body", [{"message": None}, {"message": 7}, {"message": ""}, {"turn": True}])
def test_a_conversation_that_does_not_follow_the_contract_is_not_created(body: Any) -> None:
    cases = Cases()
    assert post(cases, CREATE, body=body).status == 400
    assert cases.asked == []


# --- POST …/answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [None, False, 0, "", "yes", {"approved": True, "by": ""}, [1], 10**1000])
def test_any_json_is_a_decision(decision: Any) -> None:
    cases = Cases(turn=replace(asking(), status=Status.ANSWERED))
    answer = post(cases, ANSWERS, body={"askId": "ask-3-abc", "decision": decision})
    assert (answer.status, answer.body["status"]) == (202, "answered")
    assert answer.headers["location"] == "/conversations/c1/turns/3"
    assert cases.asked[0]["decision"] == decision
    assert cases.asked[0]["ask_id"] == "ask-3-abc"


def test_an_answer_without_a_decision_is_judged_by_the_use_case_in_its_order() -> None:
    cases = Cases()
    post(cases, ANSWERS, body={"askId": "ask-3-abc"})
    assert cases.asked[0]["decision"] is ABSENT


@pytest.mark.parametrize("body", [{}, {"decision": 1}, {"askId": 7, "decision": 1}, {"askId": None, "decision": 1}])
def test_an_answer_names_its_ask(body: Any) -> None:
    cases = Cases()
    answer = post(cases, ANSWERS, body=body)
    assert (answer.status, answer.body["error"]["fields"]) == (400, ["askId"])
    assert cases.asked == []


def test_a_large_decision_is_refused() -> None:
    house = House().with_settings(max_message_bytes=16)
    answer = post(Cases(), ANSWERS, house=house, body={"askId": "a", "decision": {"text": "x" * 16}})
    assert (answer.status, answer.code) == (413, "ERR_MESSAGE_TOO_LARGE")


def test_after_a_wait_the_turn_is_told_as_it_stands() -> None:
    answer = post(Cases(), ANSWERS, body={"askId": "a", "decision": 1}, headers={"prefer": "wait=5"})
    assert (answer.status, answer.body["output"], answer.headers["preference-applied"]) == (200, "Done.", "wait=5")


def test_a_role_holder_never_hears_an_output() -> None:
    answer = post(Cases(may_read=False), ANSWERS, body={"askId": "a", "decision": 1}, headers={"prefer": "wait=5"})
    assert answer.body == {"conversationId": "c1", "turn": 3, "status": "complete"}


# --- the rest -----------------------------------------------------------------------------------------------


def test_withdrawing_and_erasing() -> None:
    cases = Cases()
    answer = post(cases, "DELETE /conversations/{id}/turns/{n}", path_parameters={"id": "c1", "n": "3"})
    assert (answer.status, answer.body["status"], cases.asked[0]["turn"]) == (200, "cancelled", 3)
    answer = post(cases, "DELETE /conversations/{id}")
    assert (answer.status, answer.body["conversationId"], cases.asked[1]["name"]) == (202, "c1", "erase")


def get(cases: Cases, route: str, **parts: Any) -> Answer:
    return post(cases, f"GET {route}", **parts)


def test_reading_one_thing() -> None:
    cases = Cases()
    numbered = {"id": "c1", "n": "3"}
    assert get(cases, "/conversations/{id}").body["messageCount"] == 4
    assert get(cases, "/conversations/{id}/turns/{n}", path_parameters=numbered).body["output"] == "Done."
    assert get(cases, "/conversations/{id}/turns/{n}/evidence", path_parameters=numbered).body["evidence"] == {}
    assert get(cases, "/conversations/{id}/turns/{n}", path_parameters={"id": "c1", "n": "0"}).status == 400


def test_a_page_of_turns_and_the_next_one() -> None:
    cases = Cases(page=([completed(turn=1), record(Status.SKIPPED, turn=2), record(Status.FAILED, turn=5)], 5))
    answer = get(cases, "/conversations/{id}/turns", query={"limit": "3"})
    assert [turn["turn"] for turn in answer.body["turns"]] == [1, 5]
    get(cases, "/conversations/{id}/turns", query={"cursor": answer.body["cursor"]})
    assert [asked["after"] for asked in cases.asked] == [None, 5]
    assert [asked["limit"] for asked in cases.asked] == [3, 50]


def test_a_page_of_turns_ends_by_its_size_and_loses_none() -> None:
    cases = Cases(page=([completed("x" * 1_500_000, turn=turn) for turn in (1, 2, 3, 4)], None))
    answer = get(cases, "/conversations/{id}/turns")
    assert [turn["turn"] for turn in answer.body["turns"]] == [1, 2]
    get(cases, "/conversations/{id}/turns", query={"cursor": answer.body["cursor"]})
    assert cases.asked[1]["after"] == 2


def test_a_transcript_page_by_page() -> None:
    cases = Cases(page=([{"role": "user", "content": "hello"}], (3, 7)))
    answer = get(cases, "/conversations/{id}/transcript")
    assert answer.body["messages"] == [{"role": "user", "content": "hello"}]
    get(cases, "/conversations/{id}/transcript", query={"cursor": answer.body["cursor"]})
    assert cases.asked[1]["after"] == (3, 7)
    assert cases.asked[1]["max_bytes"] == 4_000_000
    cases.page = ([], None)
    assert "cursor" not in get(cases, "/conversations/{id}/transcript").body


def test_a_cursor_of_one_listing_opens_no_other() -> None:
    cases = Cases(page=([], 5))
    cursor = get(cases, "/conversations/{id}/turns").body["cursor"]
    elsewhere = [
        get(cases, "/conversations/{id}/turns", query={"cursor": cursor}, path_parameters={"id": "c2"}),
        get(cases, "/conversations/{id}/turns", query={"cursor": cursor}, authorizer=jwt("bob", tenant="acme")),
        get(cases, "/conversations/{id}/transcript", query={"cursor": cursor}),
        get(cases, "/conversations", query={"cursor": cursor}),
        get(cases, "/asks", query={"cursor": cursor}),
    ]
    assert {(answer.status, answer.code) for answer in elsewhere} == {(400, "ERR_INVALID_REQUEST")}
    assert len(cases.asked) == 1


def test_ones_own_conversations_page_by_page() -> None:
    item = {"ownerKey": "acme/ann/_", "savedAt": NOW_MS, "pk": "acme/_/c1", "sk": "CONVERSATION"}
    cases = Cases(page=([conversation()], item))
    answer = get(cases, "/conversations")
    assert [line["conversationId"] for line in answer.body["conversations"]] == ["c1"]
    get(cases, "/conversations", query={"cursor": answer.body["cursor"]})
    assert cases.asked[1]["after"] == item


def test_open_asks_page_by_page() -> None:
    item = {"audienceKey": "k", "askedAt": NOW_MS, "pk": "acme/_/c1", "sk": "TURN#0000000000000003"}
    cases = Cases(page=([asking("role:supervisor")], item))
    answer = get(cases, "/asks")
    assert answer.body["asks"][0]["checkIn"]["args"] == {"order": "B-200"}
    get(cases, "/asks", query={"cursor": answer.body["cursor"]})
    assert cases.asked[1]["after"] == {"askedAt": NOW_MS, "pk": "acme/_/c1", "sk": "TURN#0000000000000003"}


def test_a_listing_needs_somebody() -> None:
    house = House().with_settings(allow_anonymous=True)
    answer = post(Cases(error=SessionOpNeedsIdentityError()), "GET /conversations", house=house, authorizer={})
    assert (answer.status, answer.code) == (501, "ERR_SESSION_OP_NEEDS_IDENTITY")


# --- what is in the log -------------------------------------------------------------------------------------


def test_one_line_a_request_without_what_anybody_said_or_is() -> None:
    cases, house = Cases(), House()
    headers = {"Idempotency-Key": "KEY-SECRET", "Authorization": "Bearer TOKEN-SECRET", "prefer": "wait=1"}
    post(cases, TURNS, house=house, body={"message": "MESSAGE-SECRET"}, headers=headers)
    ((message, facts, is_fault),) = house.lines.lines
    assert (message, is_fault) == ("request", False)
    assert facts == {
        "request_id": "req-1",
        "method": "POST",
        "route": "/conversations/{id}/turns",
        "conversation": "c1",
        "turn": 3,
        "run": "run-1-x",
        "outcome": "complete",
        "duration_ms": 0,
    }
    assert house.lines.counts == {}  # whoever ends a turn counts it, not whoever tells of it


@pytest.mark.parametrize(
    ("route", "parts"),
    [
        (TURNS, {"body": {"message": 7, "MESSAGE-SECRET": "MESSAGE-SECRET"}}),
        (TURNS, {"raw_body": "MESSAGE-SECRET"}),
        (TURNS, {"raw_body": '{"MESSAGE-SECRET": 1, "MESSAGE-SECRET": 2}'}),
        (TURNS, {"path_parameters": {"id": "MESSAGE SECRET"}, "body": {"message": "MESSAGE-SECRET"}}),
        (TURNS, {"body": {"message": "a"}, "headers": {"idempotency-key": "MESSAGE-SECRET\n"}}),
        ("GET /asks", {"query": {"cursor": "MESSAGE-SECRET"}}),
        ("GET /asks", {"query": {"limit": "MESSAGE-SECRET"}}),
    ],
)
def test_a_refused_request_leaves_nothing_of_itself_in_the_log(route: str, parts: dict[str, Any]) -> None:
    cases, house = Cases(), House()
    answer = post(cases, route, house=house, **parts)
    assert answer.status == 400
    assert "SECRET" not in house.lines.text
    assert "SECRET" not in json.dumps(answer.body)
    assert cases.asked == []
