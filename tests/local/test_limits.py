"""AWS's limits hold here too, where moto has none or others."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from local.tables import ITEM_LIMIT_BYTES, item_size_bytes, transaction_size_bytes

if TYPE_CHECKING:
    from local.stack import LocalStack


@pytest.mark.parametrize(
    ("item", "size"),
    [
        ({"a": {"S": ""}}, 1),
        ({"ä": {"S": "ü"}}, 4),
        ({"n": {"N": "0"}}, 3),
        ({"n": {"N": "-12"}}, 4),
        ({"n": {"N": "1700000000000"}}, 3),
        ({"n": {"N": "123456789"}}, 7),
        ({"b": {"B": "AAEC"}}, 4),
        ({"b": {"B": b"abc"}}, 4),
        ({"t": {"BOOL": True}}, 2),
        ({"l": {"L": [{"S": "ab"}]}}, 1 + 3 + 1 + 2),
        ({"m": {"M": {"k": {"S": "ab"}}}}, 1 + 3 + 1 + 1 + 2),
        ({"s": {"SS": ["ab", "c"]}}, 4),
    ],
)
def test_an_items_size_is_the_documented_one(item: dict[str, Any], size: int) -> None:
    assert item_size_bytes(item) == size


def test_a_transactions_size_counts_items_keys_and_values() -> None:
    put = {"Put": {"TableName": "t", "Item": {"a": {"S": "xx"}}}}
    update = {"Update": {"Key": {"a": {"S": "x"}}, "ExpressionAttributeValues": {":v": {"S": "xyz"}}}}
    assert transaction_size_bytes([put, update]) == 3 + 2 + 5


class Things:
    def __init__(self, stack: LocalStack) -> None:
        self.client = stack.client("dynamodb", retries={"total_max_attempts": 1})
        self.name = stack.deployment()["physical"]["Things"]
        self.key = {"pk": {"S": uuid.uuid4().hex}, "sk": {"S": "a"}}

    def item(self, size_bytes: int) -> dict[str, Any]:
        rest = size_bytes - item_size_bytes(self.key) - len("blob")
        return {**self.key, "blob": {"S": "x" * rest}}

    def get(self, key: dict[str, Any] | None = None) -> dict[str, Any]:
        found = self.client.get_item(TableName=self.name, Key=key or self.key, ConsistentRead=True)
        return dict(found.get("Item", {}))

    def set(self, **values: str) -> None:
        self.client.update_item(
            TableName=self.name,
            Key=self.key,
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={f":{name}": {"S": value} for name, value in values.items()},
        )


@pytest.fixture
def things(toy: LocalStack) -> Things:
    return Things(toy)


@pytest.mark.process
def test_an_item_of_409600_bytes_is_taken_and_one_byte_more_is_not(things: Things) -> None:
    things.client.put_item(TableName=things.name, Item=things.item(ITEM_LIMIT_BYTES))
    with pytest.raises(ClientError, match="Item size has exceeded the maximum allowed size"):
        things.client.put_item(TableName=things.name, Item=things.item(ITEM_LIMIT_BYTES + 1))


@pytest.mark.process
def test_an_update_past_the_limit_changes_nothing(things: Things) -> None:
    things.client.put_item(TableName=things.name, Item={**things.key, "a": {"S": "before"}})
    with pytest.raises(ClientError, match="Item size to update has exceeded"):
        things.set(a="after", blob="x" * ITEM_LIMIT_BYTES)
    assert things.get() == {**things.key, "a": {"S": "before"}}


@pytest.mark.process
def test_an_update_past_the_limit_creates_nothing(things: Things) -> None:
    with pytest.raises(ClientError, match="Item size to update has exceeded"):
        things.set(blob="x" * ITEM_LIMIT_BYTES)
    assert things.get() == {}


@pytest.mark.process
def test_a_transaction_of_more_than_4_mb_is_refused(things: Things) -> None:
    puts = [
        {"Put": {"TableName": things.name, "Item": {**things.item(400_000), "sk": {"S": str(number)}}}}
        for number in range(11)
    ]
    with pytest.raises(ClientError, match="4 MB"):
        things.client.transact_write_items(TransactItems=puts)
    things.client.transact_write_items(TransactItems=puts[:10])


@pytest.mark.process
def test_a_cancelled_transaction_leaves_every_item_as_it_was(things: Things) -> None:
    """Each kind of write, then a condition that fails: the snapshot is not a copy of the whole table."""
    keys = {name: {**things.key, "sk": {"S": name}} for name in ("put", "update", "delete", "made", "check")}
    for name in ("put", "update", "delete"):
        things.client.put_item(
            TableName=things.name, Item={**keys[name], "v": {"S": "old"}, "l": {"L": [{"S": "old"}]}}
        )
    set_new = {
        "UpdateExpression": "SET v = :new, l[0] = :new",
        "ExpressionAttributeValues": {":new": {"S": "new"}},
    }
    parts: list[dict[str, Any]] = [
        {"Put": {"Item": {**keys["put"], "v": {"S": "new"}}}},
        {"Update": {"Key": keys["update"], **set_new}},
        {"Delete": {"Key": keys["delete"]}},
        {
            "Update": {
                "Key": keys["made"],
                "UpdateExpression": "SET v = :new",
                "ExpressionAttributeValues": {":new": {"S": "x"}},
            }
        },
        {"ConditionCheck": {"Key": keys["check"], "ConditionExpression": "attribute_exists(pk)"}},
    ]
    for part in parts:
        next(iter(part.values()))["TableName"] = things.name
    with pytest.raises(things.client.exceptions.TransactionCanceledException):
        things.client.transact_write_items(TransactItems=parts)
    for name in ("put", "update", "delete"):
        assert things.get(keys[name]) == {**keys[name], "v": {"S": "old"}, "l": {"L": [{"S": "old"}]}}
    assert things.get(keys["made"]) == {}
    things.client.transact_write_items(TransactItems=parts[:4])
    assert things.get(keys["update"])["l"] == {"L": [{"S": "new"}]}
    assert things.get(keys["delete"]) == {}


@pytest.mark.process
def test_a_transactions_cost_does_not_grow_with_the_table(things: Things) -> None:
    def cost_s() -> float:
        began_s = time.monotonic()
        for _ in range(5):
            things.client.transact_write_items(TransactItems=[{"Put": {"TableName": things.name, "Item": things.key}}])
        return time.monotonic() - began_s

    cost_s()
    for start in range(0, 4000, 25):
        batch = [{"PutRequest": {"Item": {**things.key, "sk": {"S": str(start + number)}}}} for number in range(25)]
        things.client.batch_write_item(RequestItems={things.name: batch})
    assert cost_s() < 0.5  # a copy of it all would take more than a second


@pytest.mark.process
@pytest.mark.parametrize(("size", "taken"), [(262_144, True), (262_145, False)])
def test_step_functions_takes_256_kib_of_input(toy: LocalStack, size: int, taken: bool) -> None:
    states = toy.client("stepfunctions")
    arn = toy.deployment()["outputs"]["MachineArn"]
    given = '{"filler": "' + "x" * (size - 14) + '"}'
    start = {"stateMachineArn": arn, "name": uuid.uuid4().hex, "input": given}
    if taken:
        states.start_execution(**start)
    else:
        with pytest.raises(ClientError, match="262144"):
            states.start_execution(**start)
