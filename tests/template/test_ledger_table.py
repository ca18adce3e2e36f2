"""The table is what the ledger's code takes it for, and its indexes hold nothing that somebody said."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from turnkeep.ledger.items import TURN_ATTRIBUTES, conversation_attributes
from turnkeep.ledger.keys import ConversationKey
from turnkeep.ledger.parsing import conversation_record, is_expired
from turnkeep.ledger.records import ConversationRecord
from turnkeep.ledger.store import INDEX_ATTRIBUTES, INDEX_KEYS

# What a record may hold of people: their words, what was answered, who they are, the token that resumes a run.
CONTENT = {
    *("user", "body", "ask", "decision", "answered", "checkpoint", "adopted"),
    *("principal", "owner", "answeredBy", "audience", "pastAsks", "taskToken", "request", "digest"),
}
KEY = ConversationKey("c-1", "acme")
CONVERSATION = ConversationRecord(
    key=KEY,
    epoch="e",
    owner="alice",
    created_at_ms=1,
    saved_at_ms=2,
    turn=3,
    status="complete",
    message_count=4,
    delete_after_s=5,
)


@pytest.fixture
def table(plain: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plain["Resources"]["LedgerTable"]
    return found


@pytest.fixture
def indexes(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {index["IndexName"]: index for index in table["Properties"]["GlobalSecondaryIndexes"]}


def test_the_table_outlives_the_stack_and_can_be_restored(table: dict[str, Any]) -> None:
    properties = table["Properties"]
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["DeletionProtectionEnabled"] == {"Ref": "DeletionProtection"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"


def test_a_restored_table_takes_the_place_of_the_stacks_own(table: dict[str, Any], source: dict[str, Any]) -> None:
    """Retained, it only leaves the stack; nothing but it may then be named (tests/e2e/test_restored_table.py)."""
    assert table["Condition"] == "MakesItsTable"
    text = json.dumps({"everything": [source["Globals"], source["Resources"], source["Outputs"]]})
    named = re.findall(r'"Fn::If": \["MakesItsTable", \{"(?:Ref|Fn::GetAtt)": \[?"LedgerTable"', text)
    assert len(named) == text.count('"LedgerTable"') - text.count('"LedgerTable":')


def test_items_expire_by_the_ledgers_attribute(table: dict[str, Any]) -> None:
    expiry = table["Properties"]["TimeToLiveSpecification"]
    assert expiry == {"AttributeName": "deleteAfter_s", "Enabled": True}
    assert is_expired({"pk": "p", "sk": "s", expiry["AttributeName"]: 1}, now_ms=2_000)


def test_the_three_indexes_have_the_ledgers_keys(table: dict[str, Any], indexes: dict[str, Any]) -> None:
    kinds = {each["AttributeName"]: each["AttributeType"] for each in table["Properties"]["AttributeDefinitions"]}
    keys = {name: tuple(key["AttributeName"] for key in index["KeySchema"]) for name, index in indexes.items()}
    assert keys == INDEX_KEYS
    assert all((kinds[first], kinds[second]) == ("S", "N") for first, second in keys.values())
    assert [key["AttributeName"] for key in table["Properties"]["KeySchema"]] == ["pk", "sk"]


@pytest.mark.parametrize("name", INDEX_KEYS)
def test_an_index_projects_known_attributes_and_no_content(indexes: dict[str, Any], name: str) -> None:
    projection = indexes[name]["Projection"]
    assert projection["ProjectionType"] == "INCLUDE"
    projected = set(projection["NonKeyAttributes"])
    assert projected == INDEX_ATTRIBUTES[name], "what the store in memory keeps in this index"
    assert projected & CONTENT == set()
    assert "deleteAfter_s" in projected, "what has expired is dropped by every read"
    known = set(conversation_attributes(CONVERSATION)) if name == "byOwner" else set(TURN_ATTRIBUTES)
    assert projected <= known


def test_the_list_of_content_is_the_ledgers() -> None:
    """An attribute that the ledger renames must not slip through this file's list."""
    known = {*TURN_ATTRIBUTES, *conversation_attributes(CONVERSATION)}
    assert known >= CONTENT


def test_by_owner_holds_what_a_listing_shows(indexes: dict[str, Any]) -> None:
    projected = {"pk", "sk", "ownerKey", "savedAt", *indexes["byOwner"]["Projection"]["NonKeyAttributes"]}
    item = {name: value for name, value in conversation_attributes(CONVERSATION).items() if name in projected}
    listed = conversation_record({"epoch": "", **item}, KEY)
    shown = ("turn", "status", "format", "message_count", "saved_at_ms", "created_at_ms", "delete_after_s")
    assert [getattr(listed, name) for name in shown] == [getattr(CONVERSATION, name) for name in shown]
