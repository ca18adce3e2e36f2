"""What a session store promises: the battery of CONTRACT.md 16, case by case, and the reference's recorded traces.

Subclass it and give it a store:

    class TestMyStore(SessionStoreContract):
        def make_store(self) -> Any: ...          # fresh and empty
        def corrupt(self, store, session_id): ... # optional: replace what is stored by something unreadable

A store has ``hydrate`` and ``persist``; ``on_wake``, ``list_by_user``, ``owner_of``, ``retention`` and ``forget`` are
optional, and the cases that need one say so where it is missing. A case that a store fails on purpose is named in
``declared`` with the reason: it is run all the same, and must fail.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from local.settings import ROOT
from tests.contract.item_store_contract import at_once
from turnkeep.errors import InvalidRequestError, SessionOwnershipConflictError, TurnkeepError
from turnkeep.retention import BackendRetention, StoreRetention

if TYPE_CHECKING:
    from collections.abc import Mapping

SAVED_AT_MS = 1_700_000_000_000
TRACES: list[dict[str, Any]] = json.loads((ROOT / "tests/golden/cases/session-store.json").read_text("utf-8"))["cases"]

AWKWARD = [
    "a/b/c", " leading and trailing ", "..", "./..", "caf\u00e9 \U0001f980", "\"quoted\" 'twice'",
    "'; DROP TABLE sessions; --", "nul\u0000inside", "x" * 1000,
]  # fmt: skip

PAIRS = {
    "percent-decoding": ("a%2Fb", "a/b"),
    "an illegal character replaced": ("a:b", "a_b"),
    "another one replaced": ("a*b", "a-b"),
    "underscore and dash": ("a_b", "a-b"),
    "ASCII case": ("Session", "session"),
    "NFC and NFD": ("caf\u00e9", "cafe\u0301"),
    "non-ASCII case": ("\u00c9t\u00e9", "\u00e9t\u00e9"),
    "NFKC": ("\ufb01n", "fin"),
    "zero width": ("a\u200bb", "ab"),
    "tail after 1000 characters": ("x" * 1000 + "a", "x" * 1000 + "b"),
    "head before 1000": ("a" + "x" * 1000, "b" + "x" * 1000),
    "a session- prefix": ("session-1", "1"),
    "truncation from the front": ("prefix-tail", "tail"),
}


def envelope(text: str, principal: str | None = None, *, saved_at: int = SAVED_AT_MS, **beside: Any) -> dict[str, Any]:
    """A conversation of one exchange, signed or not."""
    data: dict[str, Any] = {
        "version": 1,
        "runId": f"run-{text[:20]}",
        "history": [{"role": "user", "content": text}, {"role": "assistant", "content": f"re: {text}"}],
        "lastCompletedIteration": 1,
        "originalInput": {"message": text},
        "checkpointedAt": saved_at,
    }
    if principal is not None:
        data["identity"] = {"principal": principal}
    return {"format": "conversation-v1", "data": data, "savedAt": saved_at, **beside}


def first_text(found: Mapping[str, Any]) -> str:
    """What the stored conversation begins with."""
    data = found["data"]
    history = data["history"] if found["format"] == "conversation-v1" else data["conversation"]["history"]
    text: str = history[0]["content"]
    return text


class SessionStoreContract:
    """One fresh store a case."""

    declared: ClassVar[dict[str, str]] = {}

    def make_store(self) -> Any:
        raise NotImplementedError

    def corrupt(self, store: Any, session_id: str) -> None:
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> Any:
        return self.make_store()

    @pytest.fixture(autouse=True)
    def _declared(self, request: pytest.FixtureRequest) -> None:
        case = request.node.originalname.removeprefix("test_").replace("_", "-")
        if case in self.declared:
            request.applymarker(pytest.mark.xfail(reason=self.declared[case], strict=True))

    @pytest.fixture
    def sid(self) -> str:
        return f"s-{uuid.uuid4().hex}"

    @staticmethod
    def needs(store: Any, *members: str) -> None:
        missing = [member for member in members if not callable(getattr(store, member, None))]
        if missing:
            pytest.skip(f"not applicable: the store has no {', '.join(missing)}")

    # --- the sixteen cases --------------------------------------------------------------------------------------

    def test_absent_session_hydrates_undefined(self, store: Any, sid: str) -> None:
        assert store.hydrate(sid) is None

    def test_persist_hydrate_round_trip(self, store: Any, sid: str) -> None:
        store.persist(sid, envelope("one", "ada"))
        found = store.hydrate(sid)
        assert (found["format"], found["savedAt"], first_text(found)) == ("conversation-v1", SAVED_AT_MS, "one")
        assert found["data"]["identity"]["principal"] == "ada"
        store.persist(sid, envelope("two", "ada", saved_at=SAVED_AT_MS + 1))
        found = store.hydrate(sid)
        assert (found["savedAt"], first_text(found)) == (SAVED_AT_MS + 1, "two")

    def test_unreadable_is_not_absent(self, store: Any, sid: str) -> None:
        store.persist(sid, envelope("one", "ada"))
        self.corrupt(store, sid)
        try:
            found = store.hydrate(sid)
        except TurnkeepError:
            return
        assert found is not None

    def test_forget_removes_the_conversation(self, store: Any, sid: str) -> None:
        self.needs(store, "forget")
        store.persist(sid, envelope("one", "ada"))
        store.forget(sid)
        assert store.hydrate(sid) is None
        if callable(getattr(store, "owner_of", None)):
            assert store.owner_of(sid) is None
        store.forget(sid)

    def test_ownership_is_derived_from_the_envelope(self, store: Any, sid: str) -> None:
        self.needs(store, "owner_of")
        store.persist(sid, envelope("one", "ada", owner="mallory", userId="mallory"))
        assert store.owner_of(sid) == "ada"

    def test_ownership_fills_in_on_a_later_signed_turn(self, store: Any, sid: str) -> None:
        self.needs(store, "owner_of")
        store.persist(sid, envelope("one"))
        assert store.owner_of(sid) is None
        store.persist(sid, envelope("two", "ada"))
        assert store.owner_of(sid) == "ada"

    def test_ownership_survives_a_leaner_turn(self, store: Any, sid: str) -> None:
        self.needs(store, "owner_of")
        store.persist(sid, envelope("one", "ada"))
        store.persist(sid, envelope("two"))
        assert store.owner_of(sid) == "ada"
        assert first_text(store.hydrate(sid)) == "two"
        if callable(getattr(store, "list_by_user", None)):
            assert [row["sessionId"] for row in store.list_by_user("ada").sessions] == [sid]

    def test_ownership_is_not_taken_by_a_different_signer(self, store: Any, sid: str) -> None:
        self.needs(store, "owner_of")
        store.persist(sid, envelope("ada speaks", "ada"))
        with pytest.raises(SessionOwnershipConflictError) as refused:
            store.persist(sid, envelope("zoe speaks", "zoe"))
        words = str(refused.value).replace(sid, "").split()
        assert {"ada", "zoe", "speaks"} & set(words) == set()
        found = store.hydrate(sid)
        assert (store.owner_of(sid), first_text(found)) == ("ada", "ada speaks")
        assert found["data"]["identity"]["principal"] == "ada"

    def test_contested_write_leaves_no_split_brain(self, store: Any, sid: str) -> None:
        self.needs(store, "owner_of")

        def persist(at: int) -> bool:
            try:
                store.persist(sid, envelope(f"text {at}", f"person-{at}"))
            except TurnkeepError:
                return False
            return True

        landed = at_once(2, persist)
        if not any(landed):
            store.persist(f"{sid}-other", envelope("uncontested", "person-0"))  # else this would be no verdict
        assert any(landed)
        owner, found = store.owner_of(sid), store.hydrate(sid)
        at = int(owner.rpartition("-")[2])
        assert landed[at]
        assert found["data"]["identity"]["principal"] == owner
        assert first_text(found) == f"text {at}"
        if callable(getattr(store, "list_by_user", None)):
            listed = [[row["sessionId"] for row in store.list_by_user(f"person-{who}").sessions] for who in (0, 1)]
            assert listed[at] == [sid]
            assert listed[1 - at] == []

    def test_owner_of_is_undefined_for_missing_and_unowned(self, store: Any, sid: str) -> None:
        self.needs(store, "owner_of")
        assert store.owner_of(sid) is None
        store.persist(sid, envelope("one"))
        assert store.owner_of(sid) is None

    def test_list_by_user_pages_with_a_stable_tie_break(self, store: Any, sid: str) -> None:
        self.needs(store, "list_by_user")
        mine = [f"{sid}-{at}" for at in range(5)]
        for each in mine:
            store.persist(each, envelope(each, "ada"))
        store.persist(f"{sid}-other", envelope("other", "bo"))
        seen: list[str] = []
        cursor = None
        for _ in range(50):
            page = store.list_by_user("ada", cursor=cursor, limit=2)
            seen += [row["sessionId"] for row in page.sessions]
            cursor = page.cursor
            assert (cursor is None) == (len(seen) == 5), "a cursor on all pages but the last"
            if cursor is None:
                break
        assert sorted(seen) == mine

    def test_list_by_user_is_newest_first(self, store: Any, sid: str) -> None:
        self.needs(store, "list_by_user")
        for at, (name, saved_at) in enumerate((("a", 3), ("b", 1), ("c", 2))):
            store.persist(f"{sid}-{name}", envelope(f"{at}", "ada", saved_at=SAVED_AT_MS + saved_at))
        assert [row["sessionId"][-1] for row in store.list_by_user("ada").sessions] == ["a", "c", "b"]
        for name, saved_at in (("c", 9), ("b", 7), ("a", 8)):
            store.persist(f"{sid}-{name}", envelope("again", "ada", saved_at=SAVED_AT_MS + saved_at))
        rows = store.list_by_user("ada").sessions
        assert [row["sessionId"][-1] for row in rows] == ["c", "a", "b"]
        assert [row["savedAt"] - SAVED_AT_MS for row in rows] == [9, 8, 7]

    def test_an_id_the_store_hands_back_is_not_a_second_address(self, store: Any) -> None:
        self.needs(store, "list_by_user")
        for at, awkward in enumerate(AWKWARD):
            person = f"person-{at}"
            if not kept(store, awkward, envelope("original", person)):
                continue
            (row,) = store.list_by_user(person).sessions
            assert first_text(store.hydrate(row["sessionId"])) == "original", awkward
            if row["sessionId"] != awkward:
                store.persist(row["sessionId"], envelope("through the other name", person))
                assert first_text(store.hydrate(awkward)) == "original", awkward

    def test_awkward_session_ids_round_trip(self, store: Any) -> None:
        ids = sorted({*AWKWARD, *(one for pair in PAIRS.values() for one in pair)})
        accepted = [one for one in ids if kept(store, one, envelope(f"of {one!r}"))]
        for one in accepted:
            assert first_text(store.hydrate(one)) == f"of {one!r}", one
        for one in set(ids) - set(accepted):
            with pytest.raises(TurnkeepError):
                store.hydrate(one)

    def test_retention_says_who_deletes_and_deletes_only_the_old(self, store: Any, sid: str) -> None:
        self.needs(store, "retention")
        answer = store.retention()
        if isinstance(answer, BackendRetention):
            assert answer.deleted_by == "the-backend"
            assert isinstance(answer.active, bool)
            assert answer.expires_on
            assert len(answer.enable_with) > 30
            return
        assert isinstance(answer, StoreRetention)
        cutoff = SAVED_AT_MS
        for name, offset in (("old", -60_000), ("boundary", 0), ("new", 60_000)):
            store.persist(f"{sid}-{name}", envelope(name, "ada", saved_at=cutoff + offset))
        done = answer.forget_older_than(cutoff)
        assert (done.forgotten, done.more) == (1, False)
        assert store.hydrate(f"{sid}-old") is None
        assert store.owner_of(f"{sid}-old") is None
        assert first_text(store.hydrate(f"{sid}-boundary")) == "boundary"
        assert len(store.list_by_user("ada").sessions) == 2
        again = answer.forget_older_than(cutoff)
        assert (again.forgotten, again.more) == (0, False)
        bounded = answer.forget_older_than(cutoff + 120_000, limit=1)
        assert (bounded.forgotten, bounded.more) == (1, True)

    def test_optional_members_are_feature_detected(self, store: Any) -> None:
        for member in ("on_wake", "list_by_user", "owner_of", "retention", "forget"):
            found = getattr(store, member, None)
            assert found is None or callable(found)
        if callable(getattr(store, "list_by_user", None)):
            assert callable(getattr(store, "owner_of", None))
        if callable(getattr(store, "retention", None)):
            answer = store.retention()
            assert isinstance(answer, BackendRetention | StoreRetention)
            assert isinstance(answer, BackendRetention) or callable(answer.forget_older_than)

    # --- the reference's traces ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["id"])
    def test_the_reference_s_trace(self, store: Any, trace: dict[str, Any]) -> None:
        """The steps of a trace, in order. Where CONTRACT.md 17 decides otherwise, that decides (17.10, 17.17)."""
        sweeps = isinstance(store.retention(), StoreRetention)
        if not sweeps and trace["steps"][-1]["op"] == "forgetOlderThan" and trace["id"] != "sess-01":
            pytest.skip("not applicable: the backend deletes, so there is no sweep to be told")
        before: Any = None
        for step in trace["steps"]:
            if step["op"] in ("retention.deletedBy", "forgetOlderThan") and not sweeps:
                continue
            if after_a_sweep(trace, step) and not sweeps:
                pytest.skip("not applicable from here on: the backend deletes, so there is no sweep to be told")
            before = self.play(store, step, before, trace)

    def play(self, store: Any, step: dict[str, Any], previous: Any, trace: dict[str, Any]) -> Any:
        expected = step["expect"]
        match step["op"]:
            case "persist":
                if "raises" not in expected:
                    store.persist(step["sessionId"], step["envelope"])
                else:
                    with pytest.raises(TurnkeepError) as refused:
                        store.persist(step["sessionId"], step["envelope"])
                    assert type(refused.value).__name__ == expected["raises"]["class"]
                    assert refused.value.code == expected["raises"]["code"]
            case "hydrate":
                found = store.hydrate(step["sessionId"])
                if expected.get("absent"):
                    assert found is None
                else:
                    shown = {"format": found["format"], "savedAt": found["savedAt"], "firstText": first_text(found)}
                    assert shown == expected
            case "ownerOf":
                owner = expected["owner"]
                assert store.owner_of(step["sessionId"]) == (None if isinstance(owner, dict) else owner)
            case "listByUser":
                return self.list_step(store, step, previous, trace)
            case "retention.deletedBy":
                assert store.retention().deleted_by == expected["deletedBy"]
            case "forgetOlderThan":
                done = store.retention().forget_older_than(step["before"], **step.get("options", {}))
                assert (done.forgotten, done.more) == (expected["forgotten"], expected["more"])
            case other:
                raise AssertionError(f"no such step: {other}")
        return previous

    @staticmethod
    def list_step(store: Any, step: dict[str, Any], previous: Any, trace: dict[str, Any]) -> Any:
        options = dict(step.get("options", {}))
        if options.get("cursor") == {"$fromPrevious": True}:
            options["cursor"] = previous
        elif "cursor" in options:
            with pytest.raises(InvalidRequestError):  # 17.6: what was not made here is refused, not restarted
                store.list_by_user(step["user"], **options)
            return previous
        page = store.list_by_user(step["user"], **options)
        rows, expected = page.sessions, step["expect"]["sessions"]
        if "order-of-ties-is-the-store's-choice" in trace.get("flags", []):
            assert len(rows) == len(expected)
            assert {row["savedAt"] for row in rows} == {row["savedAt"] for row in expected}
        else:
            assert rows == expected
        assert (page.cursor is not None) == step["expect"]["hasCursor"]
        return page.cursor


def after_a_sweep(trace: dict[str, Any], step: dict[str, Any]) -> bool:
    """Whether what the step expects stands behind a sweep of the trace."""
    swept = [at for at, each in enumerate(trace["steps"]) if each["op"] == "forgetOlderThan"]
    return bool(swept) and trace["steps"].index(step) > swept[0]


def kept(store: Any, session_id: str, what: dict[str, Any]) -> bool:
    """Persists under an id; False where the store refuses the id itself, which it may."""
    try:
        store.persist(session_id, what)
    except InvalidRequestError:
        return False
    return True
