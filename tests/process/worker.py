"""What one forked process does: takes a turn on a real endpoint, and dies or stops itself at a named point.

The points are those of ``tests.usecases.plant``, but real: around every call of the DynamoDB client, on whatever thread
it is made, and around what every tool does to the world, whose book is a file.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.session import Session

from tests.usecases.plant import Did, Plant, Process, World
from tests.usecases.workshop import ALICE, Workshop, key_of
from turnkeep.adapters.dynamo import DynamoItemStore, client_config
from turnkeep.clock import SystemClock
from turnkeep.errors import SessionNotFoundError, TurnkeepError
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.store import Put, Query
from turnkeep.usecases.read import read_conversation, read_transcript, read_turn, read_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.ledger.store import Check, Page, Read, Result, Write

REGION, TABLE = "eu-central-1", "Ledger-process"

_NAMES = {
    "get_item": "get",
    "query": "query",
    "put_item": "put",
    "update_item": "update",
    "delete_item": "delete",
    "transact_write_items": "transact",
}


class FileWorld(World):
    """A world whose book is a file: what was done is done, whatever becomes of who did it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def book(self) -> list[Did]:  # type: ignore[override]
        if not self._path.exists():
            return []
        return [Did(**json.loads(line)) for line in self._path.read_text("utf-8").splitlines()]

    def enter(self, did: Did) -> None:
        with self._path.open("ab", buffering=0) as book:
            book.write(json.dumps(asdict(did)).encode() + b"\n")


class AheadClock(SystemClock):
    """The clock of a machine that is ahead: to it, leases are over."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


class RealProcess(Process):
    """A process on DynamoDB: its points lie around the calls of its client."""

    def __init__(self, name: str, world: World, client: Any, clock: SystemClock, at: Callable[[str], None]) -> None:
        hooked: Any = _Hooked(client, self)
        self._table = DynamoItemStore(hooked, TABLE, clock=clock)
        super().__init__(name, world, self._table, at)

    def read(self, reads: Sequence[Read]) -> list[Page]:
        return self._table.read(reads)

    def write(self, writes: Sequence[Write]) -> list[Result]:
        return self._table.write(writes)

    def transact(self, writes: Sequence[Write | Check]) -> list[Result]:
        return self._table.transact(writes)

    def around(self, what: str, work: Callable[[], Any]) -> Any:
        return self._around(what, work)


class _Hooked:
    """A DynamoDB client with a point before and after every call."""

    def __init__(self, client: Any, process: RealProcess) -> None:
        self._client, self._process = client, process

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self._client, operation)
        if operation not in _NAMES:
            return call
        return lambda **arguments: self._process.around(_what(operation, arguments), lambda: call(**arguments))


def _what(operation: str, arguments: dict[str, Any]) -> str:
    if operation == "query":
        low = arguments["ExpressionAttributeValues"][":l"]["S"].split("#")[0]
        return f"query {low} {'strong' if arguments.get('ConsistentRead') else 'eventual'}"
    if operation == "transact_write_items":
        (first,) = arguments["TransactItems"][0].values()
        arguments = first
    key = arguments.get("Item") or arguments["Key"]
    return f"{_NAMES[operation]} {key['sk']['S'].split('#')[0]}"


def client_of(endpoint: str) -> Any:
    """A DynamoDB client of this process's own."""
    return Session().create_client(
        "dynamodb",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=client_config(),
    )


def make_table(endpoint: str) -> None:
    """The table of all workers: the ledger's keys and nothing else."""
    client_of(endpoint).create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    )


def run(job: dict[str, Any], client: Any) -> dict[str, Any]:
    """Does one job.

    Args:
        client: a DynamoDB client that has made no call yet; making one costs as much as a turn.
        job: ``conversation``, ``world`` (the book's file), ``mode``, ``name``; ``message`` and ``key`` of
            the request; ``at`` and ``signal`` (the point, and what this process sends itself there); ``ahead_ms`` and
            ``time_ms`` of its clock; ``look`` to report what readers see before and after; ``again`` to send the
            request twice.
    """
    clock = AheadClock(job.get("ahead_ms", 0))
    point, number = job.get("at"), job.get("signal")

    def at(passed: str) -> None:
        if passed == point and number is not None:
            os.kill(os.getpid(), number)
            # It arrives soon, at whichever thread: nothing may be done meanwhile.
            time.sleep(0.1)

    world = FileWorld(Path(job["world"]))
    plain = DynamoItemStore(client, TABLE, clock=clock)
    shop = Workshop(clock=clock, store=plain, random_id=secrets.token_urlsafe)
    plant = Plant(job["mode"], shop=shop, world=world, key=ConversationKey(job["conversation"]))
    process = RealProcess(job["name"], world, client, clock, at)
    process.wait_for_writes = job["mode"] == "async" and job["name"] == "first"
    report: dict[str, Any] = {}
    if job.get("look"):
        report["before"] = look(plant)
    if "message" in job:
        report |= _take(plant, process, job)
    if job.get("look"):
        report["after"] = look(plant)
    if job.get("again"):
        report["again"] = _take(plant, process, job)
    report["points"] = process.points
    report["requests"] = [list(request.messages) for request in process.requests]
    return report


def _take(plant: Plant, process: RealProcess, job: dict[str, Any]) -> dict[str, Any]:
    request: dict[str, Any] = {"time_ms": job.get("time_ms", 29_000)}
    if job.get("key"):
        request["idempotency"] = key_of(job["key"])
    try:
        turn = plant.take(process, job["message"], **request)
        turn = plant.decide_doubts(turn, process)
    except TurnkeepError as error:
        return {"error": type(error).__name__}
    return {"turn": turn.turn, "status": turn.status.value, "output": turn.output, "runId": turn.run_id}


def look(plant: Plant) -> dict[str, Any] | None:
    """What readers are shown, and what is stored of the first turn; None where there is nothing yet.

    The readers read a copy: the endpoint is asked once, for everything.
    """
    (page,) = plant.shop.store.read([Query(plant.key.pk, " ", "~")])
    copy = MemoryItemStore()
    copy.write([Put(item) for item in page.items])
    deps, key = plant.shop.deps(store=copy), plant.key
    try:
        conversation = read_conversation(deps, ALICE, key)
    except SessionNotFoundError:
        return None
    turns, _ = read_turns(deps, ALICE, key, after=None, limit=100)
    transcript, _ = read_transcript(deps, ALICE, key, after=None, limit=1000, max_bytes=10**6)
    whole = [read_turn(deps, ALICE, key, turn.turn) for turn in turns]
    return {
        "conversation": [conversation.record.turn, conversation.record.status, conversation.record.message_count],
        "turns": [[turn.turn, turn.status.value, turn.run_id, turn.output] for turn in whole],
        "transcript": transcript,
        "said": deps.ledger.messages_of(turns)[turns[0].turn] if turns else [],
    }


KILL, STOP = int(signal.SIGKILL), int(signal.SIGSTOP)
