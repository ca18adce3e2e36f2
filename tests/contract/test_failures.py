"""What goes wrong between a process and DynamoDB, at the level of HTTP: nothing is lost, nothing is doubled.

The faults are the local endpoint's (``local.faults``), in AWS's own shapes; nothing of ours is replaced. What may be
said when the time runs out is in ``turnkeep.ledger.ledger``: a 503 means that nobody knows, and sending the same
request again finds out. So every test that ends with one sends it again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.dynamo_server import DynamoServer, impatient
from tests.contract.ledger_bench import LEASE_MS, Bench, answered
from tests.contract.tables import new_table
from turnkeep.adapters.dynamo import DynamoItemStore
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.ledger import Contended, Ledger
from turnkeep.ledger.records import Status, TurnRecord
from turnkeep.ledger.store import HELD, Applied, Equals, Missing, Put, Refused, Update

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.stack import SetFault

MOVES = ("claim", "claim over a gap", "commit", "take over", "close", "segments", "hand back", "create")
"""Every kind of write that a turn makes of itself."""


@pytest.fixture(scope="module")
def table(dynamo_server: DynamoServer) -> str:
    return new_table(dynamo_server.client())


@pytest.fixture
def bench(dynamo_server: DynamoServer, table: str) -> Bench:
    return Bench(DynamoItemStore(dynamo_server.client(), table, left_ms=lambda: 4_000))


def short_of_time(server: DynamoServer, table: str, bench: Bench, left_ms: int = 150) -> Ledger:
    """The ledger of a process that has no time left for many tries."""
    return bench.seen_by(DynamoItemStore(server.client(), table, left_ms=lambda: left_ms))


def move_of(name: str, bench: Bench, ledger: Ledger) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Prepares a move: what makes it, and what is there when it has been made."""
    if name == "create":
        from turnkeep.ledger.records import ConversationRecord

        record = ConversationRecord(bench.key, "e1", owner="ann", saved_at_ms=5)
        return lambda: ledger.create(record) is not None, lambda: bench.shown() == record
    bench.take("before")
    if name == "claim":
        one = bench.running(text="mine")
        return lambda: isinstance(ledger.claim(one, stored=1), TurnRecord), lambda: bench.turn(2) == one
    if name == "claim over a gap":
        far = bench.running(6, text="mine")
        return lambda: isinstance(ledger.claim(far, stored=1), TurnRecord), lambda: bench.turn(6).run_id == far.run_id
    claimed, shown = bench.claim(text="mine"), bench.shown()
    if name == "commit":
        after = bench.complete(claimed)
        return lambda: ledger.commit(claimed, after, shown) == after, lambda: bench.turn(2) == after
    if name == "segments":
        write = lambda: ledger.write_segments(claimed, 1, "messages", 1, [answered("a")]) == 2  # noqa: E731
        return write, lambda: bench.history() == ["before", "re: before", "mine", "a"]
    if name == "hand back":
        return lambda: ledger.hand_back(claimed) is None, lambda: bench.turn(2).lease_until_ms == 0
    bench.clock.advance_ms(LEASE_MS)
    if name == "take over":
        taken = bench.next_attempt(claimed)
        return lambda: ledger.take_over(claimed, taken, shown) is not None, lambda: bench.turn(2) == taken
    return lambda: bench.close_dead(claimed, ledger) is not None, lambda: bench.turn(2).status is Status.FAILED


FAULTS: dict[str, dict[str, Any]] = {
    "throttled twice": {"kind": "throttle", "times": 2},
    "an internal error": {"kind": "error", "status": 500, "code": "InternalServerError"},
    "unavailable": {"kind": "error", "status": 503, "code": "ServiceUnavailable"},
    "no code at all": {"kind": "error", "status": 502, "code": "BadGateway"},
    "a conflict": {"kind": "error", "status": 400, "code": "TransactionConflictException"},
    "limits of requests": {"kind": "error", "status": 400, "code": "RequestLimitExceeded"},
    "cut before": {"kind": "cut"},
    "its answer lost": {"kind": "lost"},
    "its answer lost twice": {"kind": "lost", "times": 2},
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_passes_is_waited_out_and_each_move_is_made_once(
    bench: Bench, dynamo_server: DynamoServer, move: str, fault: str
) -> None:
    act, is_made = move_of(move, bench, bench.ledger)
    met = [
        dynamo_server.faults.add(service="dynamodb", operation=operation, **FAULTS[fault])
        for operation in ("PutItem", "UpdateItem", "TransactWriteItems")
    ]
    assert act(), "its own retried write is no defeat"
    assert sum(one.met for one in met) > 0
    assert is_made()


@pytest.mark.parametrize("move", MOVES)
def test_an_answer_that_comes_too_late_is_waited_for_by_the_retry(
    bench: Bench, dynamo_server: DynamoServer, table: str, move: str
) -> None:
    hasty = bench.seen_by(DynamoItemStore(dynamo_server.client(impatient(0.25)), table, left_ms=lambda: 4_000))
    act, is_made = move_of(move, bench, hasty)
    for operation in ("PutItem", "UpdateItem", "TransactWriteItems"):
        dynamo_server.faults.add("slow_answer", service="dynamodb", operation=operation, delay_ms=600)
    assert act()
    assert is_made()


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("kind", ["throttle", "cut", "lost"])
def test_when_the_time_runs_out_sending_it_again_finds_out(
    bench: Bench, dynamo_server: DynamoServer, table: str, move: str, kind: str
) -> None:
    ledger = short_of_time(dynamo_server, table, bench)
    act, is_made = move_of(move, bench, ledger)
    # Of these a request that is sent again sees what came of them, before it would make them again.
    seen_by_everybody = ("close", "take over")
    met: list[SetFault] = [
        dynamo_server.faults.add(kind, service="dynamodb", operation=operation, times=None)
        for operation in ("PutItem", "UpdateItem", "TransactWriteItems")
    ]
    before = bench.everything()
    with pytest.raises(StoreUnavailableError):
        act()
    assert sum(one.met for one in met) > 0
    if kind != "lost":
        assert bench.everything() == before, "what was refused, or cut before, is not there"
    dynamo_server.faults.clear()
    if kind != "lost" or move not in seen_by_everybody:
        act()
    assert is_made()
    turns = [turn for turn in bench.look().turns() if turn.status is not Status.SKIPPED]
    assert len([turn for turn in turns if turn.user == {"role": "user", "content": "mine"}]) == (move != "create")


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded", "InternalServerError"]
)
def test_a_transaction_that_was_cancelled_for_a_passing_reason_is_sent_again(
    bench: Bench, dynamo_server: DynamoServer, code: str, at: int
) -> None:
    reasons: list[dict[str, Any]] = [{"Code": "None"}, {"Code": "None"}]
    reasons[at] = {"Code": code, "Message": "Injected."}
    fault = dynamo_server.faults.add(
        "cancelled", service="dynamodb", operation="TransactWriteItems", reasons=reasons, times=2
    )
    far = bench.running(4)
    assert isinstance(bench.ledger.claim(far, stored=0), TurnRecord)
    assert fault.met == 2
    assert [turn.turn for turn in bench.look().turns()] == [1, 4]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("code", ["ValidationError", "AccessDenied", "ItemCollectionSizeLimitExceeded"])
def test_one_that_was_cancelled_for_good_is_told_at_once_and_not_retried(
    bench: Bench, dynamo_server: DynamoServer, code: str, at: int
) -> None:
    reasons: list[dict[str, Any]] = [{"Code": "TransactionConflict"}, {"Code": "TransactionConflict"}]
    reasons[at] = {"Code": code, "Message": "Injected."}
    fault = dynamo_server.faults.add(
        "cancelled", service="dynamodb", operation="TransactWriteItems", reasons=reasons, times=None
    )
    with pytest.raises(ClientError):
        bench.ledger.claim(bench.running(4), stored=0)
    assert fault.met == 1
    assert bench.everything() == {}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("beside", ["None", "TransactionConflict", "ThrottlingError"])
def test_a_failed_condition_is_an_answer_whatever_stands_beside_it(
    bench: Bench, dynamo_server: DynamoServer, at: int, beside: str
) -> None:
    item = {"pk": {"S": bench.key.pk}, "sk": {"S": "x"}, "n": {"N": "1"}}
    reasons: list[dict[str, Any]] = [{"Code": beside}, {"Code": beside}]
    reasons[at] = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", "Item": item}
    fault = dynamo_server.faults.add(
        "cancelled", service="dynamodb", operation="TransactWriteItems", reasons=reasons, times=None
    )
    pair = [Put({"pk": bench.key.pk, "sk": sk}, Missing("pk")) for sk in "xy"]
    answers = bench.store.transact(pair)
    assert answers[at] == Refused({"pk": bench.key.pk, "sk": "x", "n": 1})
    assert answers[1 - at] == Refused(HELD)
    assert fault.met == 1


def test_a_transaction_that_is_in_progress_is_asked_for_again(bench: Bench, dynamo_server: DynamoServer) -> None:
    fault = dynamo_server.faults.add("in_progress", service="dynamodb", operation="TransactWriteItems", times=3)
    assert isinstance(bench.ledger.claim(bench.running(4), stored=0), TurnRecord)
    assert fault.met == 3


@pytest.mark.parametrize("code", ["ValidationException", "AccessDeniedException", "ResourceNotFoundException"])
def test_what_trying_again_does_not_mend_is_not_tried_again(
    bench: Bench, dynamo_server: DynamoServer, code: str
) -> None:
    fault = dynamo_server.faults.add("error", service="dynamodb", status=400, code=code, times=None)
    for act in (bench.look, lambda: bench.store.write([Put({"pk": bench.key.pk, "sk": "a"})])):
        met = fault.met
        with pytest.raises(ClientError):
            act()
        assert fault.met - met <= 3, "one try of each of the calls side by side"


@pytest.mark.parametrize("kind", ["throttle", "cut", "lost", "slow_answer"])
def test_a_read_is_asked_for_again_and_is_whole(
    bench: Bench, dynamo_server: DynamoServer, table: str, kind: str
) -> None:
    bench.take("one")
    bench.take("two")
    hasty = DynamoItemStore(dynamo_server.client(impatient(0.25)), table, left_ms=lambda: 4_000)
    for operation in ("GetItem", "Query"):
        dynamo_server.faults.add(kind, service="dynamodb", operation=operation, times=2, delay_ms=500)
    assert [turn.turn for turn in bench.seen_by(hasty).hydrate(bench.key).turns()] == [1, 2]


def test_a_read_that_nobody_answers_says_so_in_time(bench: Bench, dynamo_server: DynamoServer, table: str) -> None:
    dynamo_server.faults.add("throttle", service="dynamodb", operation="Query", times=None)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        short_of_time(dynamo_server, table, bench).hydrate(bench.key)
    assert time.monotonic() - began < 2


def test_nobody_listens_at_all(bench: Bench, dynamo_server: DynamoServer, table: str) -> None:
    import boto3

    from local.settings import CREDENTIALS
    from turnkeep.adapters.dynamo import client_config

    session = boto3.session.Session(**CREDENTIALS)
    client = session.client("dynamodb", endpoint_url="http://127.0.0.1:9", config=client_config())
    store = DynamoItemStore(client, table, left_ms=lambda: 200)
    with pytest.raises(StoreUnavailableError):
        bench.seen_by(store).hydrate(bench.key)


def test_of_calls_side_by_side_one_may_fail_for_itself(bench: Bench, dynamo_server: DynamoServer, table: str) -> None:
    store = DynamoItemStore(dynamo_server.client(), table, left_ms=lambda: 150)
    dynamo_server.faults.add("throttle", service="dynamodb", contains=["unlucky"], times=None)
    results = store.write([Put({"pk": bench.key.pk, "sk": sk}) for sk in ("a", "unlucky", "b")])
    assert [type(result).__name__ for result in results] == ["Applied", "Unavailable", "Applied"]
    dynamo_server.faults.clear()
    assert sorted(bench.everything()) == ["a", "b"]


@pytest.mark.parametrize("leave", [1, 7, 24])
def test_a_batch_of_which_some_is_left_is_gone_on_with(bench: Bench, dynamo_server: DynamoServer, leave: int) -> None:
    keys = [(bench.key.pk, f"{at:02d}") for at in range(40)]
    bench.put(*({"pk": pk, "sk": sk} for pk, sk in keys))
    fault = dynamo_server.faults.add("partial", service="dynamodb", operation="BatchWriteItem", leave=leave, times=2)
    bench.store.delete(keys)
    assert fault.met == 2
    assert bench.everything() == {}


def test_a_batch_that_never_ends_says_so_and_may_be_asked_for_again(
    bench: Bench, dynamo_server: DynamoServer, table: str
) -> None:
    keys = [(bench.key.pk, f"{at:02d}") for at in range(5)]
    bench.put(*({"pk": pk, "sk": sk} for pk, sk in keys))
    dynamo_server.faults.add("partial", service="dynamodb", operation="BatchWriteItem", leave=2, times=None)
    store = DynamoItemStore(dynamo_server.client(), table, left_ms=lambda: 150)
    with pytest.raises(StoreUnavailableError):
        store.delete(keys)
    dynamo_server.faults.clear()
    store.delete(keys)
    assert bench.everything() == {}


def test_a_lost_answer_does_not_turn_a_real_defeat_into_a_win(bench: Bench, dynamo_server: DynamoServer) -> None:
    loser = bench.running(text="loser")
    bench.claim(text="winner")
    dynamo_server.faults.add("lost", service="dynamodb", operation="PutItem")
    answer = bench.ledger.claim(loser, stored=0)
    assert isinstance(answer, Contended)
    assert answer.winner is not None
    assert answer.winner.user == {"role": "user", "content": "winner"}


def test_a_counter_is_what_cannot_be_sent_twice(bench: Bench, dynamo_server: DynamoServer) -> None:
    """Which is why no move of a turn adds to anything: every one of them sets, on a condition."""
    dynamo_server.faults.add("lost", service="dynamodb", operation="UpdateItem")
    bench.store.write([Update((bench.key.pk, "n"), add={"n": 1})])
    assert bench.everything()["n"]["n"] == 2
    dynamo_server.faults.add("lost", service="dynamodb", operation="UpdateItem")
    set_on_condition = Update((bench.key.pk, "n"), set={"n": 3}, condition=Equals("n", 2))
    (answer,) = bench.store.write([set_on_condition])
    assert isinstance(answer, Refused)
    assert answer.item == {"pk": bench.key.pk, "sk": "n", "n": 3}
    assert answer != Applied()
