"""What every item store promises, as tests (``turnkeep.ledger.store``; docs/extending.md).

A third implementation subclasses ``ItemStoreContract`` and gives it a store:

    class TestMyStore(ItemStoreContract):
        def make_store(self) -> ItemStore: ...

The store may hold other tests' items: every test uses partitions of its own.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from turnkeep.ledger.store import (
    HELD,
    INDEX_ATTRIBUTES,
    Applied,
    AtMost,
    Check,
    Condition,
    Delete,
    Differs,
    Equals,
    Get,
    IndexQuery,
    Item,
    ItemStore,
    LessThan,
    Missing,
    Page,
    Present,
    Put,
    Query,
    Refused,
    Result,
    Update,
    Write,
    all_of,
    any_of,
    position_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

ODD_TEXTS = ["", " ", "\u0000", "é", "e\u0301", "😀", "\u200b", 'a"b\\c', "%2F", "x" * 5_000, "\ufeff", "\ud7ff\ue000"]


class ItemStoreContract:
    """One store a test; ``put``, ``get`` and the rest are one operation each."""

    def make_store(self) -> ItemStore:
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> ItemStore:
        return self.make_store()

    @pytest.fixture(autouse=True)
    def _partition(self) -> None:
        self.pk = f"p-{uuid.uuid4().hex}"

    # --- putting and getting ------------------------------------------------------------------------------------

    def test_nothing_is_there_before_something_is_put(self, store: ItemStore) -> None:
        assert get(store, self.pk, "a") is None
        assert store.read([Query(self.pk, " ", "~")])[0] == Page([], more=False)

    @pytest.mark.parametrize(
        "value",
        [*ODD_TEXTS, 0, 1, -1, 2**53 + 1, -(2**63), 10**37, b"", b"\x00\xff", bytes(range(256)) * 20],
        ids=lambda value: f"{type(value).__name__}-{str(value)[:12]!r}",
    )
    def test_a_value_comes_out_as_it_went_in(self, store: ItemStore, value: str | int | bytes) -> None:
        item: Item = {"pk": self.pk, "sk": "a", "value": value}
        put(store, item)
        found = get(store, self.pk, "a")
        assert found == item
        assert type(found["value"]) is type(value)

    def test_a_put_replaces_the_whole_item(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "a", "old": 1})
        put(store, {"pk": self.pk, "sk": "a", "new": 2})
        assert get(store, self.pk, "a") == {"pk": self.pk, "sk": "a", "new": 2}

    def test_what_is_handed_in_or_out_is_a_copy(self, store: ItemStore) -> None:
        item: Item = {"pk": self.pk, "sk": "a", "n": 1}
        put(store, item)
        item["n"] = 2
        found = get(store, self.pk, "a")
        assert found is not None
        assert found["n"] == 1
        found["n"] = 3
        again = get(store, self.pk, "a")
        assert again is not None
        assert again["n"] == 1

    def test_reads_come_back_in_the_order_in_which_they_were_asked(self, store: ItemStore) -> None:
        for sk in "abc":
            put(store, {"pk": self.pk, "sk": sk})
        pages = store.read([Get((self.pk, sk)) for sk in "cxab"])
        assert [[item["sk"] for item in page.items] for page in pages] == [["c"], [], ["a"], ["b"]]

    # --- conditions ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("condition", "holds_of_item", "holds_of_nothing"),
        [
            (Missing("pk"), False, True),
            (Missing("other"), True, True),
            (Missing("text"), False, True),
            (Present("pk"), True, False),
            (Present("other"), False, False),
            (Equals("text", "a"), True, False),
            (Equals("text", "b"), False, False),
            (Equals("number", 5), True, False),
            (Equals("number", "5"), False, False),
            (Equals("text", 5), False, False),
            (Equals("bytes", b"\x01"), True, False),
            (Equals("other", ""), False, False),
            (Equals("empty", ""), True, False),
            (Differs("text", "b"), True, False),
            (Differs("text", "a"), False, False),
            (Differs("text", 5), True, False),
            (Differs("other", "b"), False, False),
            (AtMost("number", 5), True, False),
            (AtMost("number", 4), False, False),
            (AtMost("other", 5), False, False),
            (LessThan("number", 6), True, False),
            (LessThan("number", 5), False, False),
            (LessThan("other", 5), False, False),
            (all_of(Present("pk"), Equals("number", 5)), True, False),
            (all_of(Present("pk"), Equals("number", 6)), False, False),
            (any_of(Equals("number", 6), Equals("text", "a")), True, False),
            (any_of(Equals("number", 6), Missing("pk")), False, True),
            (all_of(any_of(Missing("other"), Equals("other", 1)), any_of(Present("pk"), Equals("x", 1))), True, False),
            (
                any_of(all_of(Missing("other"), Equals("number", 6)), all_of(Equals("text", "a"), Present("pk"))),
                True,
                False,
            ),
            (all_of(all_of(all_of(Equals("number", 5)))), True, False),
            (any_of(any_of(Missing("pk")), Differs("number", 6)), True, True),
            (all_of(any_of(Differs("other", 1), Differs("number", 5)), Present("pk")), False, False),
            (all_of(Missing("status"), Missing("owner"), Missing("format"), Missing("user")), True, True),
        ],
    )
    def test_a_condition_holds_where_it_says(
        self, store: ItemStore, condition: Condition, holds_of_item: bool, holds_of_nothing: bool
    ) -> None:
        item: Item = {"pk": self.pk, "sk": "there", "text": "a", "number": 5, "bytes": b"\x01", "empty": ""}
        put(store, item)
        there, away = ("there", holds_of_item), ("away", holds_of_nothing)
        for sk, expected in (there, away):
            old = dict(item) if sk == "there" else None
            tried = write(store, Put({"pk": self.pk, "sk": sk, "mark": 1}, condition))
            assert tried == (Applied() if expected else Refused(old)), sk
            write(store, Put(item) if sk == "there" else Delete((self.pk, sk)))
            tried = write(store, Update((self.pk, sk), set={"mark": 1}, condition=condition))
            assert tried == (Applied() if expected else Refused(old)), sk
            write(store, Put(item) if sk == "there" else Delete((self.pk, sk)))
            checked = store.transact([Check((self.pk, sk), condition), Put({"pk": self.pk, "sk": "beside"})])
            assert checked == ([Applied(), Applied()] if expected else [Refused(old), Refused(HELD)]), sk
            tried = write(store, Delete((self.pk, sk), condition))
            assert tried == (Applied() if expected else Refused(old)), sk

    def test_the_loser_of_a_condition_sees_the_winner(self, store: ItemStore) -> None:
        first: Item = {"pk": self.pk, "sk": "a", "by": "first", "blob": b"\x00"}
        assert write(store, Put(first, Missing("pk"))) == Applied()
        assert write(store, Put({"pk": self.pk, "sk": "a", "by": "second"}, Missing("pk"))) == Refused(first)
        assert get(store, self.pk, "a") == first

    def test_an_equal_number_is_equal_however_it_came(self, store: ItemStore) -> None:
        write(store, Update((self.pk, "a"), add={"n": 2}))
        write(store, Update((self.pk, "a"), add={"n": 3}))
        assert write(store, Update((self.pk, "a"), set={"seen": 1}, condition=Equals("n", 5))) == Applied()

    # --- updates ------------------------------------------------------------------------------------------------

    def test_an_update_changes_what_it_names_and_leaves_the_rest(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "a", "keep": "k", "change": 1, "drop": "d", "owner": "o"})
        change = Update(
            (self.pk, "a"),
            set={"change": 2, "status": "new"},
            remove=("drop", "never there"),
            set_if_absent={"owner": "other", "fresh": b"f"},
            add={"count": 5, "minus": -2},
            wants_item=True,
        )
        expected: Item = {"pk": self.pk, "sk": "a", "keep": "k", "change": 2, "status": "new", "owner": "o"}
        expected |= {"fresh": b"f", "count": 5, "minus": -2}
        assert write(store, change) == Applied(expected)
        assert get(store, self.pk, "a") == expected

    def test_an_update_makes_the_item_where_nothing_forbids_it(self, store: ItemStore) -> None:
        assert write(store, Update((self.pk, "a"), set={"n": 1})) == Applied()
        assert get(store, self.pk, "a") == {"pk": self.pk, "sk": "a", "n": 1}
        assert write(store, Update((self.pk, "b"), set={"n": 1}, condition=Present("pk"))) == Refused(None)
        assert get(store, self.pk, "b") is None

    def test_an_update_brings_the_item_back_only_where_it_was_asked_for(self, store: ItemStore) -> None:
        assert write(store, Update((self.pk, "a"), set={"n": 1})) == Applied(None)
        assert write(store, Update((self.pk, "a"), remove=("n",), wants_item=True)) == Applied(
            {"pk": self.pk, "sk": "a"}
        )

    def test_set_remove_and_add_take_every_name(self, store: ItemStore) -> None:
        names = ["status", "owner", "format", "user", "data", "hash", "from", "a-b", "a.b", "1st", "_", "ß", "size"]
        put(store, {"pk": self.pk, "sk": "a", **{f"old {name}": 1 for name in names}})
        change = Update(
            (self.pk, "a"),
            set={name: name for name in names},
            remove=tuple(f"old {name}" for name in names),
            add={f"n {name}": 1 for name in names},
            condition=all_of(*(Present(f"old {name}") for name in names)),
        )
        assert write(store, change) == Applied()
        found = get(store, self.pk, "a")
        assert found == {
            "pk": self.pk,
            "sk": "a",
            **{name: name for name in names},
            **{f"n {name}": 1 for name in names},
        }

    # --- side by side -------------------------------------------------------------------------------------------

    def test_writes_side_by_side_have_outcomes_of_their_own(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "a", "n": 1})
        results = store.write(
            [
                Put({"pk": self.pk, "sk": "a", "n": 2}, Missing("pk")),
                Put({"pk": self.pk, "sk": "b"}),
                Update((self.pk, "c"), set={"n": 3}, wants_item=True),
                Delete((self.pk, "d"), Present("pk")),
            ]
        )
        there: Item = {"pk": self.pk, "sk": "a", "n": 1}
        made: Item = {"pk": self.pk, "sk": "c", "n": 3}
        assert results == [Refused(there), Applied(), Applied(made), Refused(None)]

    def test_many_writes_and_reads_at_once_all_take_place(self, store: ItemStore) -> None:
        results = store.write([Put({"pk": self.pk, "sk": f"{at:03d}", "n": at}) for at in range(60)])
        assert results == [Applied()] * 60
        pages = store.read([Get((self.pk, f"{at:03d}")) for at in range(60)])
        assert [page.items[0]["n"] for page in pages] == list(range(60))

    # --- transactions -------------------------------------------------------------------------------------------

    def test_a_transaction_applies_all_of_its_writes(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "old"})
        put(store, {"pk": self.pk, "sk": "watched", "n": 1})
        results = store.transact(
            [
                Put({"pk": self.pk, "sk": "a"}, Missing("pk")),
                Update((self.pk, "b"), set={"n": 1}),
                Delete((self.pk, "old"), Present("pk")),
                Check((self.pk, "watched"), Equals("n", 1)),
            ]
        )
        assert results == [Applied()] * 4
        assert everything(store, self.pk) == {"a": {}, "b": {"n": 1}, "watched": {"n": 1}}

    @pytest.mark.parametrize("at", [0, 1, 2, 3])
    def test_one_failed_condition_refuses_the_whole_transaction(self, store: ItemStore, at: int) -> None:
        put(store, {"pk": self.pk, "sk": "d", "n": 1})
        writes: list[Write | Check] = [
            Put({"pk": self.pk, "sk": "a"}, Missing("pk")),
            Update((self.pk, "b"), set={"n": 1}, condition=Missing("pk")),
            Delete((self.pk, "c"), Missing("pk")),
            Check((self.pk, "d"), Equals("n", 1)),
        ]
        key = (self.pk, "abcd"[at])
        put(store, {"pk": key[0], "sk": key[1], "taken": 1})
        before = everything(store, self.pk)
        results = store.transact(writes)
        taken: Item = {"pk": key[0], "sk": key[1], "taken": 1}
        assert results == [Refused(taken) if place == at else Refused(HELD) for place in range(4)]
        assert everything(store, self.pk) == before

    def test_a_refused_transaction_names_every_failed_condition(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "a", "n": 1})
        results = store.transact(
            [
                Put({"pk": self.pk, "sk": "a"}, Missing("pk")),
                Put({"pk": self.pk, "sk": "b"}, Missing("pk")),
                Update((self.pk, "c"), set={"n": 1}, condition=Present("pk")),
            ]
        )
        assert results == [Refused({"pk": self.pk, "sk": "a", "n": 1}), Refused(HELD), Refused(None)]

    # --- queries ------------------------------------------------------------------------------------------------

    def test_a_query_takes_its_range_in_the_order_of_the_sort_key(self, store: ItemStore) -> None:
        for sk in ["A#10", "A#2", "B#1", "A", "A#", "A$", "a#1"]:
            put(store, {"pk": self.pk, "sk": sk})
        put(store, {"pk": f"{self.pk}x", "sk": "A#3"})
        read = Query(self.pk, "A#", "A$")
        assert sks(store, read) == ["A#", "A#10", "A#2", "A$"]
        assert sks(store, Query(self.pk, "A#", "A$", forward=False)) == ["A$", "A#2", "A#10", "A#"]
        assert sks(store, Query(self.pk, "A#10", "A#10")) == ["A#10"]
        assert sks(store, Query(self.pk, "C", "D")) == []
        assert sks(store, Query(self.pk, "A#", "A$", consistent=False)) == ["A#", "A#10", "A#2", "A$"]

    @pytest.mark.parametrize("forward", [True, False])
    @pytest.mark.parametrize("limit", [1, 2, 5])
    def test_a_query_pages_through_by_its_limit(self, store: ItemStore, forward: bool, limit: int) -> None:
        for at in range(5):
            put(store, {"pk": self.pk, "sk": f"{at}"})
        page = store.read([Query(self.pk, "0", "9", limit=limit, forward=forward)])[0]
        expected = ["0", "1", "2", "3", "4"] if forward else ["4", "3", "2", "1", "0"]
        assert [item["sk"] for item in page.items] == expected[:limit]
        if limit < 5:
            assert page.more

    def test_more_is_false_where_a_query_came_to_its_end(self, store: ItemStore) -> None:
        for at in range(3):
            put(store, {"pk": self.pk, "sk": f"{at}"})
        assert not store.read([Query(self.pk, "0", "9", limit=4)])[0].more
        assert not store.read([Query(self.pk, "0", "9")])[0].more

    def test_a_query_without_a_limit_follows_pages_of_a_megabyte(self, store: ItemStore) -> None:
        for at in range(7):
            put(store, {"pk": self.pk, "sk": f"{at}", "blob": bytes(300_000)})
        assert sks(store, Query(self.pk, "0", "9")) == list("0123456")
        page = store.read([Query(self.pk, "0", "9", limit=6, forward=False)])[0]
        assert [item["sk"] for item in page.items] == list("654321")
        assert page.more

    def test_a_query_brings_only_the_attributes_it_names(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "a", "n": 1, "status": "s", "blob": bytes(100)})
        put(store, {"pk": self.pk, "sk": "b", "blob": bytes(100)})
        read = Query(self.pk, "a", "b", attributes=("sk", "n", "status"))
        assert store.read([read])[0].items == [{"sk": "a", "n": 1, "status": "s"}, {"sk": "b"}]

    # --- indexes ------------------------------------------------------------------------------------------------

    def test_an_index_holds_only_items_with_both_of_its_keys(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "both", "ownerKey": self.pk, "savedAt": 1})
        put(store, {"pk": self.pk, "sk": "hash", "ownerKey": self.pk})
        put(store, {"pk": self.pk, "sk": "range", "savedAt": 1})
        put(store, {"pk": self.pk, "sk": "foreign", "ownerKey": f"{self.pk}x", "savedAt": 1})
        assert self.listed(store, limit=10) == ["both"]
        write(store, Update((self.pk, "both"), remove=("ownerKey",)))
        assert self.listed(store, limit=10) == []

    def test_an_index_is_in_the_order_of_its_range_key(self, store: ItemStore) -> None:
        for sk, saved_at in (("a", 30), ("b", 4), ("c", 1_000), ("d", 200)):
            put(store, {"pk": self.pk, "sk": sk, "ownerKey": self.pk, "savedAt": saved_at})
        assert self.listed(store, limit=10) == ["b", "a", "d", "c"]
        assert self.listed(store, limit=10, forward=False) == ["c", "d", "a", "b"]
        assert self.listed(store, limit=10, upto=200) == ["b", "a", "d"]
        assert self.listed(store, limit=10, upto=199) == ["b", "a"]
        assert self.listed(store, limit=10, upto=0) == []
        write(store, Update((self.pk, "b"), set={"savedAt": 201}))
        assert self.listed(store, limit=10) == ["a", "d", "b", "c"]

    @pytest.mark.parametrize("forward", [True, False])
    @pytest.mark.parametrize("limit", [1, 2, 3, 7])
    def test_an_index_pages_through_ties_by_position(self, store: ItemStore, forward: bool, limit: int) -> None:
        for at in range(7):
            put(store, {"pk": f"{self.pk}-{at % 3}", "sk": f"{at}", "ownerKey": self.pk, "savedAt": 5 if at < 6 else 6})
        seen: list[str] = []
        after: Item | None = None
        for _ in range(8):
            query = IndexQuery("byOwner", self.pk, limit=limit, forward=forward, after=after)
            page = store.read([query])[0]
            seen += [str(item["sk"]) for item in page.items]
            assert page.more == (len(seen) < 7), "of an index, more is exact"
            if not page.more:
                break
            after = position_of("byOwner", page.items[-1])
        assert sorted(seen) == list("0123456")
        assert seen[-1 if forward else 0] == "6"

    def test_an_index_goes_on_behind_an_item_that_has_left_it(self, store: ItemStore) -> None:
        for at in range(4):
            put(store, {"pk": self.pk, "sk": f"{at}", "ownerKey": self.pk, "savedAt": at})
        first = store.read([IndexQuery("byOwner", self.pk, limit=2)])[0]
        after = position_of("byOwner", first.items[-1])
        write(store, Delete((self.pk, "1")))
        second = store.read([IndexQuery("byOwner", self.pk, limit=5, after=after)])[0]
        assert [item["sk"] for item in second.items] == ["2", "3"]

    @pytest.mark.parametrize("index", sorted(INDEX_ATTRIBUTES))
    def test_an_index_keeps_its_own_attributes_only(self, store: ItemStore, index: str) -> None:
        keys: dict[str, Any] = {"ownerKey": self.pk, "savedAt": 1, "audienceKey": self.pk, "askedAt": 2}
        keys |= {"due": self.pk, "dueAt": 3}
        shown: dict[str, Any] = {name: f"v {name}" for name in INDEX_ATTRIBUTES[index]}
        put(store, {"pk": self.pk, "sk": "a", **keys, **shown, "user": "secret", "body": b"secret"})
        page = store.read([IndexQuery(index, self.pk, limit=5)])[0]
        position = position_of(index, {"pk": self.pk, "sk": "a", **keys})
        assert page.items == [{**shown, **position}]

    def listed(self, store: ItemStore, **query: Any) -> list[str]:
        return [str(item["sk"]) for item in store.read([IndexQuery("byOwner", self.pk, **query)])[0].items]

    # --- deleting -----------------------------------------------------------------------------------------------

    def test_delete_takes_many_items_and_is_quiet_about_missing_ones(self, store: ItemStore) -> None:
        for at in range(60):
            put(store, {"pk": self.pk, "sk": f"{at:02d}"})
        store.delete([(self.pk, f"{at:02d}") for at in range(55)] + [(self.pk, "never")])
        assert sorted(everything(store, self.pk)) == ["55", "56", "57", "58", "59"]
        store.delete([(self.pk, f"{at:02d}") for at in range(60)])
        store.delete([])
        assert everything(store, self.pk) == {}

    # --- many at once -------------------------------------------------------------------------------------------

    def test_of_many_who_create_one_item_one_wins_and_the_others_see_it(self, store: ItemStore) -> None:
        def attempt(at: int) -> Result:
            return write(store, Put({"pk": self.pk, "sk": "a", "by": at}, Missing("pk")))

        results = at_once(8, attempt)
        winner = get(store, self.pk, "a")
        assert winner is not None
        assert [result for result in results if isinstance(result, Applied)] == [Applied()]
        assert [result for result in results if isinstance(result, Refused)] == [Refused(winner)] * 7

    def test_of_many_compare_and_sets_each_round_has_one_winner(self, store: ItemStore) -> None:
        put(store, {"pk": self.pk, "sk": "a", "n": 0})

        def climb(_: int) -> int:
            won = 0
            for at in range(6):
                move = Update((self.pk, "a"), set={"n": at + 1}, condition=Equals("n", at))
                won += isinstance(write(store, move), Applied)
            return won

        assert sum(at_once(6, climb)) <= 6
        found = get(store, self.pk, "a")
        assert found is not None
        assert found["n"] == 6

    def test_of_many_transactions_over_two_items_one_wins(self, store: ItemStore) -> None:
        def attempt(at: int) -> bool:
            pair: list[Write | Check] = [
                Put({"pk": self.pk, "sk": "a", "by": at}, Missing("pk")),
                Put({"pk": self.pk, "sk": "b", "by": at}, Missing("pk")),
            ]
            if at % 2:
                pair.reverse()
            return store.transact(pair) == [Applied(), Applied()]

        assert sum(at_once(6, attempt)) == 1
        items = everything(store, self.pk)
        assert items["a"] == items["b"]


# --- one operation at a time ------------------------------------------------------------------------------------


def write(store: ItemStore, one: Write) -> Result:
    (result,) = store.write([one])
    return result


def put(store: ItemStore, item: Item) -> None:
    assert write(store, Put(item)) == Applied()


def get(store: ItemStore, pk: str, sk: str) -> Item | None:
    (page,) = store.read([Get((pk, sk))])
    assert not page.more
    return page.items[0] if page.items else None


def sks(store: ItemStore, read: Query) -> list[str]:
    return [str(item["sk"]) for item in store.read([read])[0].items]


def everything(store: ItemStore, pk: str) -> dict[str, Item]:
    items = store.read([Query(pk, " ", "~")])[0].items
    return {str(item["sk"]): {name: v for name, v in item.items() if name not in ("pk", "sk")} for item in items}


def at_once(count: int, call: Callable[[int], T]) -> list[T]:
    found: dict[int, T] = {}
    start = threading.Barrier(count)

    def run(at: int) -> None:
        start.wait()
        found[at] = call(at)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[at] for at in range(count)]
