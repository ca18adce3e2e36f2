"""The session store on turns (CONTRACT.md 10 and 17.10): one writer's envelope or another's, and the first signer's."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.usecases.envelopes import FIXTURES, ODD, envelope, envelopes, fixture, paused_envelope, said, user
from tests.usecases.stores import Died, Dying, Losing, Paused
from tests.usecases.workshop import ALICE, BOB, KEY, Workshop, ids, noise, saying
from turnkeep.clock import ManualClock
from turnkeep.envelope import envelope_owner, envelope_transcript
from turnkeep.errors import (
    ConversationExistsError,
    EnvelopeError,
    InvalidRequestError,
    LostClaimError,
    SessionNotFoundError,
    SessionOwnershipConflictError,
    StoreUnavailableError,
    UnknownStoredFormatError,
    UnreadableError,
)
from turnkeep.json_values import same_json
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.ledger import Ledger
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.store import Update
from turnkeep.retention import BackendRetention, session_retention
from turnkeep.sessions import SessionPage, SessionStore
from turnkeep.usecases.create_conversation import create_conversation
from turnkeep.usecases.deps import FixedDeadline, Settings
from turnkeep.usecases.reconcile import reconcile


def sessions(store: Any = None, **more: Any) -> SessionStore:
    return SessionStore(Ledger(store or MemoryItemStore(), ManualClock()), random_id=ids(), **more)


def talk(*texts: str, by: str | None = "alice", saved_at: int = 1_700_000_000_000, **keys: Any) -> dict[str, Any]:
    """An envelope in which somebody said these texts, each answered."""
    history = [message for text in texts for message in (user(text), said(f"re: {text}"))]
    return envelope(*history, principal=by, saved_at=saved_at, **keys)


def epochs(memory: MemoryItemStore) -> set[Any]:
    return {item["epoch"] for item in memory.items()}


# --- last write wins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_every_envelope_of_the_reference_comes_back_the_same(name: str) -> None:
    store, value = sessions(), fixture(name)
    store.persist("s", value)
    assert same_json(store.hydrate("s"), value)
    assert store.owner_of("s") == envelope_owner(value)


@pytest.mark.parametrize("name", ODD)
def test_odd_ones_come_back_the_same(name: str) -> None:
    store = sessions()
    store.persist("s", talk("before"))
    store.persist("s", ODD[name])
    assert same_json(store.hydrate("s"), ODD[name])


@given(values=st.lists(st.tuples(st.sampled_from(["s", "t"]), envelopes() | st.just(talk("a"))), max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_sequence_of_writes_leaves_each_sessions_last_and_its_first_owner(
    values: list[tuple[str, dict[str, Any]]],
) -> None:
    store = sessions()
    expected: dict[str, tuple[dict[str, Any], str | None]] = {}
    for session_id, value in values:
        signer = envelope_owner(value)
        owner = expected[session_id][1] if session_id in expected else None
        if owner is not None and signer is not None and owner != signer:
            with pytest.raises(SessionOwnershipConflictError):
                store.persist(session_id, value)
            continue
        store.persist(session_id, value)
        expected[session_id] = (value, owner or signer)
    for session_id in ("s", "t"):
        value_then, owner_then = expected.get(session_id, (None, None))
        assert same_json(store.hydrate(session_id), value_then)
        assert store.owner_of(session_id) == owner_then


def test_what_extends_the_stored_history_adds_turns_and_touches_none() -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    store.persist("c-1", talk("one"))
    before = {item["sk"]: item for item in memory.items() if item["sk"] != "CONVERSATION"}
    value = talk("one", "two", "three", saved_at=1_700_000_000_009)
    store.persist("c-1", value)
    after = {item["sk"]: item for item in memory.items()}
    assert {sk: after[sk] for sk in before} == before
    assert [sk for sk in after if str(sk).startswith("TURN#")] == [f"TURN#{turn:016d}" for turn in (1, 2, 3)]
    assert len(epochs(memory)) == 1
    assert same_json(store.hydrate("c-1"), value)


@pytest.mark.parametrize(
    "value",
    [
        talk("two"),
        talk("one", saved_at=1_700_000_000_001),
        envelope(user("one")),
        envelope(user("one"), said("re: one"), said("and more")),
        paused_envelope(user("one")),
    ],
    ids=["another history", "the same at another time", "a shorter one", "more of the same turn", "a pause"],
)
def test_any_other_begins_a_new_life_and_drops_the_old_one(value: dict[str, Any]) -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    store.persist("c-1", talk("one"))
    old = epochs(memory)
    store.persist("c-1", value)
    assert same_json(store.hydrate("c-1"), value)
    assert not epochs(memory) & old


def test_a_number_is_never_given_out_twice() -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    store.persist("c-1", talk("one", "two"))
    store.persist("c-1", talk("other"))
    assert [item["sk"] for item in memory.items() if str(item["sk"]).startswith("TURN#")] == ["TURN#0000000000000003"]
    shop = Workshop(saying("fine"), store=memory)
    assert shop.take("next").turn == 4


def test_storing_again_what_is_there_changes_nothing() -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    for value in (talk("one"), fixture("d-paused-checkin.json")):
        store.persist(value["format"], value)
        before = memory.items()
        store.persist(value["format"], value)
        assert memory.items() == before


@pytest.mark.parametrize("count", [91, 400])
def test_a_long_history_is_one_transaction_all_the_same(count: int) -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    value = talk(*[f"q{number}" for number in range(count)])
    store.persist("c-1", value)
    assert same_json(store.hydrate("c-1"), value)
    assert sum(str(item["sk"]).startswith("TURN#") for item in memory.items()) == 90
    longer = talk(*[f"q{number}" for number in range(2 * count)])
    store.persist("c-1", longer)
    assert same_json(store.hydrate("c-1"), longer)
    assert len(epochs(memory)) == 1


def test_a_large_one_is_kept_in_parts() -> None:
    store = sessions()
    value = envelope(user(noise(180_000)), said(noise(180_000, 2)), folded=[noise(180_000, 3)])
    store.persist("c-1", value)
    assert same_json(store.hydrate("c-1"), value)


# --- ownership ----------------------------------------------------------------------------------------------


def test_the_first_signer_owns_and_a_leaner_turn_is_stored() -> None:
    store = sessions()
    store.persist("s", talk("one", by=None))
    assert store.owner_of("s") is None
    store.persist("s", talk("two", by="ada"))
    store.persist("s", talk("three", by=None))
    assert store.owner_of("s") == "ada"
    assert same_json(store.hydrate("s"), talk("three", by=None))
    with pytest.raises(SessionOwnershipConflictError) as refused:
        store.persist("s", talk("four", by="bo"))
    assert refused.value.conversation_id == "s"
    assert not {"ada", "bo", "four"} & set(str(refused.value).split())
    assert same_json(store.hydrate("s"), talk("three", by=None))
    assert [row["sessionId"] for row in store.list_by_user("ada").sessions] == ["s"]
    assert store.list_by_user("bo").sessions == []


def test_an_owner_is_never_taken_from_beside_the_conversation() -> None:
    store = sessions()
    planted = {**talk("one", by="ada"), "owner": "mallory", "userId": "mallory"}
    store.persist("s", planted)
    assert store.owner_of("s") == "ada"
    assert store.list_by_user("mallory").sessions == []
    assert same_json(store.hydrate("s"), planted)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_writer_who_slept_since_it_read_is_refused_when_somebody_else_signed(nth: int) -> None:
    memory = MemoryItemStore()
    others = SessionStore(Ledger(memory, ManualClock()), random_id=lambda size: f"other-{nth}")
    slow = sessions(Paused(memory, nth, lambda: others.persist("s", talk("hers", by="ada"))))
    try:
        slow.persist("s", talk("his", by="bo"))
    except SessionOwnershipConflictError:
        owner = "ada"
    else:
        owner = "bo"
        assert others.owner_of("s") == "bo", "he was first, and she was refused"
    assert others.owner_of("s") == owner
    assert same_json(others.hydrate("s"), talk("hers" if owner == "ada" else "his", by=owner))
    rows = [row["sessionId"] for name in ("ada", "bo") for row in others.list_by_user(name).sessions]
    assert rows == ["s"]


def test_many_first_writers_at_once_leave_one_owner_with_one_conversation() -> None:
    for round_number in range(10):
        memory = MemoryItemStore()
        outcomes: dict[str, str] = {}
        barrier = threading.Barrier(6)

        def write(name: str, memory: MemoryItemStore, outcomes: dict[str, str], barrier: threading.Barrier) -> None:
            store = SessionStore(Ledger(memory, ManualClock()))
            barrier.wait()
            try:
                store.persist("s", talk(f"by {name}", by=name))
                outcomes[name] = "stored"
            except SessionOwnershipConflictError:
                outcomes[name] = "refused"

        threads = [
            threading.Thread(target=write, args=(f"p{number}", memory, outcomes, barrier)) for number in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [name for name, outcome in outcomes.items() if outcome == "stored"]
        assert len(outcomes) == 6
        assert len(winners) == 1, f"round {round_number}"
        store = SessionStore(Ledger(memory, ManualClock()))
        assert store.owner_of("s") == winners[0]
        assert same_json(store.hydrate("s"), talk(f"by {winners[0]}", by=winners[0]))


@pytest.mark.parametrize("nth", [2, 3])
def test_a_writer_who_slept_learns_of_an_empty_conversation_that_somebody_made(nth: int) -> None:
    memory = MemoryItemStore()

    def bob_creates() -> None:
        shop = Workshop(store=memory, random_id=lambda size: "bobs")
        deadline = FixedDeadline.after(shop.clock, 20_000)
        create_conversation(shop.deps(), BOB, conversation_id="c-1", deadline=deadline)

    with pytest.raises(SessionOwnershipConflictError):
        sessions(Paused(memory, nth, bob_creates)).persist("c-1", talk("one"))
    assert [item["sk"] for item in memory.items()] == ["CONVERSATION"]
    assert sessions(memory).owner_of("c-1") == "bob"


def test_a_writer_who_slept_through_an_erasure_brings_nothing_back() -> None:
    memory = MemoryItemStore()
    sessions(memory).persist("c-1", talk("one"))
    slow = SessionStore(
        Ledger(Paused(memory, 5, lambda: sessions(memory).forget("c-1")), ManualClock()), random_id=lambda size: "slow"
    )
    with pytest.raises(ConversationExistsError):
        slow.persist("c-1", talk("one", "two"))
    assert [item["sk"] for item in memory.items()] == ["CONVERSATION"]
    assert sessions(memory).hydrate("c-1") is None


def test_turns_are_added_to_the_life_that_was_read_and_to_no_later_one() -> None:
    memory = MemoryItemStore()
    sessions(memory).persist("c-1", talk("one"))

    def another_life() -> None:
        memory.delete([(str(item["pk"]), str(item["sk"])) for item in memory.items()])
        SessionStore(Ledger(memory, ManualClock()), random_id=lambda size: "later").persist("c-1", talk("anew"))

    slow = SessionStore(Ledger(Paused(memory, 5, another_life), ManualClock()), random_id=lambda size: "slow")
    slow.persist("c-1", talk("one", "two"))
    assert same_json(sessions(memory).hydrate("c-1"), talk("one", "two"))
    assert len(epochs(memory)) == 1, "nothing of the life in between is left"


def test_a_number_that_somebody_claimed_in_between_is_not_given_out_again() -> None:
    shop = Workshop(saying("Hello."))
    store = SessionStore(Ledger(shop.memory, shop.clock), random_id=lambda size: "before")
    store.persist("c-1", talk("one"))
    slow = SessionStore(
        Ledger(Paused(shop.memory, 5, lambda: shop.take_and_die("claimed", "mine")), shop.clock),
        random_id=lambda size: "slow",
    )
    slow.persist("c-1", talk("one", "two"))
    numbers = [int(str(item["sk"]).split("#")[1]) for item in shop.items("TURN#")]
    assert min(numbers) > 2, "turn 2 was claimed, and its process may still be at work"
    assert same_json(store.hydrate("c-1"), talk("one", "two"))


# --- beside turnkeep's own doors ----------------------------------------------------------------------------


def test_a_conversation_of_our_doors_is_handed_out_and_taken_back() -> None:
    shop = Workshop(saying("Hello."))
    shop.take("one")
    store = SessionStore(Ledger(shop.store, shop.clock))
    value = store.hydrate("c-1")
    assert value is not None
    value["data"]["history"] += [user("two"), said("elsewhere")]
    store.persist("c-1", value)
    assert shop.take("three").turn == 3
    again = store.hydrate("c-1")
    assert again is not None
    assert [one["content"] for one in again["data"]["history"]] == [
        "one", "Hello.", "two", "elsewhere", "three", "Hello.",
    ]  # fmt: skip
    assert shop.turn(1).evidence != {}, "turns that were there keep what they say of themselves"


def test_a_run_whose_conversation_was_replaced_writes_nothing_that_is_seen() -> None:
    shop = Workshop(saying("Hello."))
    store = SessionStore(Ledger(shop.store, shop.clock))

    def replace(point: str) -> None:
        if point == "ran":
            store.persist("c-1", talk("replaced"))

    shop.probe = replace
    with pytest.raises((LostClaimError, SessionNotFoundError)):
        shop.take("one")
    assert same_json(store.hydrate("c-1"), talk("replaced"))


def test_a_persisted_ask_gets_its_execution_from_reconcile() -> None:
    shop = Workshop()
    store = SessionStore(Ledger(shop.store, shop.clock))
    store.persist("c-1", paused_envelope(user("a")))
    reconcile(shop.deps(), deadline=FixedDeadline.after(shop.clock, 60_000))
    assert len(shop.gate.started) == 1


# --- what cannot be read, what is no envelope, what is being erased ------------------------------------------


def test_what_is_no_envelope_is_not_stored() -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    for value in (None, "x", 1, [], {}, {"format": "conversation-v1", "data": {}}):
        with pytest.raises(EnvelopeError):
            store.persist("s", value)
    assert memory.items() == []


def test_what_cannot_be_read_is_neither_absent_nor_overwritten() -> None:
    memory = MemoryItemStore()
    store = sessions(memory)
    store.persist("c-1", talk("one"))
    memory.write([Update((KEY.pk, "TURN#0000000000000001"), set={"format": "conversation-v9"})])
    before = memory.items()
    with pytest.raises(UnknownStoredFormatError):
        store.hydrate("c-1")
    with pytest.raises(UnreadableError):
        store.persist("c-1", talk("two"))
    assert memory.items() == before


def test_a_session_that_is_being_erased_takes_nothing_until_it_is_gone() -> None:
    shop = Workshop()
    store = SessionStore(Ledger(shop.store, shop.clock))
    store.persist("c-1", talk("one"))
    store.forget("c-1")
    store.forget("c-1")
    assert store.hydrate("c-1") is None
    assert store.owner_of("c-1") is None
    assert store.list_by_user("alice") == SessionPage()
    with pytest.raises(ConversationExistsError):
        store.persist("c-1", talk("two", by="bob"))
    shop.pass_ms(16 * 60_000)
    reconcile(shop.deps(), deadline=FixedDeadline.after(shop.clock, 60_000))
    assert shop.items() == []
    store.persist("c-1", talk("two", by="bob"))
    assert store.owner_of("c-1") == "bob"
    store.forget("never written")


@pytest.mark.parametrize("landed", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("value", [talk("one", "two"), talk("other"), fixture("c-paused-askhuman.json")])
def test_a_writer_who_dies_at_any_call_leaves_the_old_envelope_or_the_new_one(
    value: dict[str, Any], landed: bool
) -> None:
    value = {**value}
    old = talk("one", by=envelope_owner(value))
    for nth in range(1, 12):
        memory = MemoryItemStore()
        sessions(memory).persist("s", old)
        dying = SessionStore(
            Ledger(Dying(memory, nth, landed=landed), ManualClock()), random_id=lambda size: "x" * size
        )
        try:
            dying.persist("s", value)
        except Died:
            found = sessions(memory).hydrate("s")
            assert same_json(found, old) or same_json(found, value)
            continue
        assert nth > 4
        return
    raise AssertionError("a persist takes fewer calls than this")


@pytest.mark.parametrize("landed", [False, True], ids=["nothing landed", "it landed"])
def test_a_writer_who_loses_the_store_at_any_call_may_write_again(landed: bool) -> None:
    for nth in range(1, 5):
        memory = MemoryItemStore()
        sessions(memory).persist("s", talk("one"))
        losing = SessionStore(Ledger(Losing(memory, nth, landed=landed), ManualClock()), random_id=lambda size: "y" * 9)
        with pytest.raises(StoreUnavailableError):
            losing.persist("s", talk("other"))
        losing.persist("s", talk("other"))
        assert same_json(sessions(memory).hydrate("s"), talk("other"))


# --- listing, waking, retention -----------------------------------------------------------------------------


def test_listing_is_newest_first_by_the_envelope_and_shows_no_content() -> None:
    store = sessions()
    for name, saved_at in (("b", 2), ("a", 1), ("c", 3)):
        store.persist(name, talk("secret", saved_at=saved_at))
    page = store.list_by_user("alice")
    assert page.cursor is None
    assert page.sessions == [
        {"sessionId": name, "savedAt": saved_at, "format": "conversation-v1", "messageCount": 2}
        for name, saved_at in (("c", 3), ("b", 2), ("a", 1))
    ]


def test_pages_show_every_row_once_with_a_cursor_on_all_but_the_last() -> None:
    store = sessions()
    for number in range(7):
        store.persist(f"s{number}", talk("x", saved_at=5))
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while True:
        page = store.list_by_user("alice", cursor=cursor, limit=2.9)
        seen += [row["sessionId"] for row in page.sessions]
        pages += 1
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.sessions) == 2
    assert (sorted(seen), pages) == ([f"s{number}" for number in range(7)], 4)
    assert len(store.list_by_user("alice", limit=-5).sessions) == 1


def test_a_cursor_is_its_owners_and_one_that_was_not_made_here_is_refused() -> None:
    store = sessions()
    for name in ("a", "b"):
        store.persist(name, talk("x"))
    cursor = store.list_by_user("alice", limit=1).cursor
    assert cursor is not None
    for user_id, one in (("bob", cursor), ("alice", "not-mine"), ("alice", "-3"), ("alice", ""), ("", cursor)):
        with pytest.raises(InvalidRequestError):
            store.list_by_user(user_id, cursor=one)
    assert store.list_by_user("") == SessionPage()


def test_message_count_is_what_a_transcript_would_carry() -> None:
    store = sessions()
    value = fixture("b-tool-calls.json")
    store.persist("s", value)
    (row,) = store.list_by_user(envelope_owner(value) or "").sessions
    assert row["messageCount"] == len(envelope_transcript(value))


def test_odd_ids_are_sessions_of_their_own_and_empty_or_endless_ones_are_refused() -> None:
    store = sessions()
    names = ["a/b", "a%2Fb", "..", "./..", " ", "A", "a", "caf\u00e9", "cafe\u0301", "\0", "_", "%5F"]
    names += ["x" * 1_000, "x" * 1_001, "session-a", "\U0001f469\u200d\U0001f33e"]
    for name in names:
        store.persist(name, talk(f"of {name}"))
    for name in names:
        assert same_json(store.hydrate(name), talk(f"of {name}"))
    listed = [row["sessionId"] for row in store.list_by_user("alice", limit=100).sessions]
    assert sorted(listed) == sorted(names)
    for bad in ("", "y" * 2_049, "\ud800"):
        with pytest.raises(InvalidRequestError):
            store.persist(bad, talk("x"))


def test_tenants_do_not_meet() -> None:
    memory = MemoryItemStore()
    acme, other = sessions(memory, tenant="acme"), sessions(memory, tenant="other")
    acme.persist("s", talk("acme's"))
    assert other.hydrate("s") is None
    other.persist("s", talk("theirs", by="bob"))
    assert acme.owner_of("s") == "alice"
    assert acme.list_by_user("bob").sessions == []


def test_waking_comes_from_the_host_and_its_failure_is_the_requests() -> None:
    told: list[tuple[str, str]] = []
    sessions(wake=lambda *what: told.append(what)).on_wake("s", "invoke")
    assert told == [("s", "invoke")]

    def fails(session_id: str, reason: str) -> None:
        raise RuntimeError("not now")

    with pytest.raises(RuntimeError):
        sessions(wake=fails).on_wake("s", "resume")
    sessions().on_wake("s", "transcript")


@pytest.mark.parametrize("days", [0, 30])
def test_the_backend_deletes_and_says_whether_it_really_does(days: int) -> None:
    memory = MemoryItemStore()
    store = sessions(memory, settings=Settings(retention_days=days))
    answer = session_retention(store, "the nightly job")
    assert isinstance(answer, BackendRetention)
    assert (answer.deleted_by, answer.active, answer.expires_on) == ("the-backend", days > 0, "deleteAfter_s")
    assert len(answer.enable_with) > 30
    store.persist("s", talk("one"))
    assert all(("deleteAfter_s" in item) is (days > 0) for item in memory.items()), "as it says"


def test_what_has_expired_is_absent_and_its_id_anybodys() -> None:
    memory, clock = MemoryItemStore(), ManualClock()
    store = SessionStore(Ledger(memory, clock), settings=Settings(retention_days=1))
    store.persist("s", talk("one"))
    clock.advance_ms(86_400_000)
    assert memory.items(), "DynamoDB is late to delete it"
    assert store.hydrate("s") is None
    assert store.owner_of("s") is None
    assert store.list_by_user("alice").sessions == []
    store.persist("s", talk("two", by="bob"))
    assert store.owner_of("s") == "bob"
    assert same_json(store.hydrate("s"), talk("two", by="bob"))
    assert ALICE.principal not in str(memory.items()[0].get("owner"))


def test_sessions_are_the_conversations_of_the_same_id() -> None:
    memory = MemoryItemStore()
    sessions(memory, tenant="acme").persist("c-1", talk("one"))
    assert {item["pk"] for item in memory.items()} == {ConversationKey("c-1", "acme").pk}
