"""The error table against the reference's, with API.md's statuses where CONTRACT.md 17.9 changes them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.golden_cases import load
from turnkeep import errors
from turnkeep.errors import TurnkeepError, UnreadableEnvelopeError, at_the_door, can_resume
from turnkeep.resumable import can_resume as can_resume_itself

TABLE = load("errors")
KNOWN = ["conversation-v1", "flowchart-v1"]

# Why a class of the reference has no counterpart here. These rows are not collected.
NOT_HERE = {
    "HostClosedError": "there is no long-lived host to close",
    "PauseNotCarriedError": "every turn has a conversation, and every reply can say awaiting",
    "ConversationClosedError": "there is no socket to keep open",
    "FrameTooLargeError": "there is no socket to frame",
    "InvalidWireOpError": "operations are routes; an unknown one is the router's 404",
    "ArtifactSessionRequiredError": "there are no artifacts",
    "NoArtifactStoreError": "there are no artifacts",
    "ArtifactNotFoundError": "there are no artifacts",
    "ArtifactNotCarriedError": "there are no artifacts",
    "VerifierUnavailableError": "the gateway verifies, before any function runs",
    "SessionsNotCarriedError": "every reply can carry a listing",
    "RunInFlightError": "an agent lives for one turn; the ledger refuses a second one",
    "PendingQuestionError": "an agent lives for one turn; the ledger holds its question",
    "NoConversationError": "an agent lives for one turn; the ledger holds its conversation",
    "Error": "any error that is not turnkeep's",
}
# The reference's status, then API.md's (CONTRACT.md 17.9).
CHANGED_STATUS = {"StaleDecisionError": (500, 409), "ConversationMismatchError": (500, 409)}
# Facts that no error of turnkeep holds: a person.
DROPPED_FACTS = {"AdmissionRefusedError": {"userId"}}
PYTHON_FACTS = {
    "sessionId": "conversation_id",
    "activeRunId": "run_id",
    "pending": "awaiting",
    "storedPreview": "stored_preview",
    "claimedUser": "claimed_user",
    "toolName": "tool_name",
    "toolCallId": "tool_call_id",
    "storedAgentId": "stored_agent_id",
    "agentId": "agent_id",
}
ROWS = [row for row in TABLE["errors"] if row["class"] not in NOT_HERE]


def build(row: dict[str, Any]) -> TurnkeepError:
    """The error of turnkeep with the facts of a row."""
    name, facts = row["class"], row["facts"]
    if name == "TypeError":
        return errors.MalformedEnvelopeError(kind="paused-not-an-object", demand="a paused run is an object")
    named = {PYTHON_FACTS.get(key, key): value for key, value in facts.items()}
    named = {key: value for key, value in named.items() if key not in DROPPED_FACTS.get(name, set())}
    more: dict[str, Any] = {
        "ConcurrentRunError": {"turn": 3},
        "AwaitingDecisionError": {"turn": 3},
        "UnreadableEnvelopeError": {"found": "a string", "known": KNOWN},
        "RunCheckpointError": {"checkpoint": {}, "cause": ValueError()},
    }.get(name, {})
    cls = getattr(errors, name)
    if name in ("SessionOpNeedsIdentityError", "SessionIndexUnavailableError", "SessionRetentionUnavailableError"):
        return cls(*named.values())
    if name in ("NoPendingAskError", "SessionNotFoundError", "SessionOwnershipConflictError"):
        return cls(named["conversation_id"])
    return cls(**named, **more)


def test_what_has_no_counterpart_is_known_and_really_has_none() -> None:
    assert set(NOT_HERE) <= {row["class"] for row in TABLE["errors"]}
    assert [name for name in NOT_HERE if hasattr(errors, name)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['class']} {sorted(row['facts'])}")
def test_golden_row(row: dict[str, Any]) -> None:
    error = build(row)
    assert isinstance(error, TypeError) == row["isTypeError"]
    if row["class"] == "TypeError":
        assert (error.code, error.status) == ("ERR_MALFORMED_ENVELOPE", 500)  # API.md gives it a code
        return
    assert (type(error).__name__, error.code) == (row["class"], row["code"])
    before, after = CHANGED_STATUS.get(row["class"], (row["httpStatus"], row["httpStatus"]))
    assert (row["httpStatus"], error.status) == (before, after)
    for key, value in row["facts"].items():
        if key not in DROPPED_FACTS.get(row["class"], set()):
            assert getattr(error, PYTHON_FACTS.get(key, key)) == value


def test_at_a_door_an_ownership_conflict_is_the_not_found() -> None:
    heard = at_the_door(errors.SessionOwnershipConflictError("s-1"))
    missing = errors.SessionNotFoundError("s-2")
    assert (heard.status, heard.code, str(heard), heard.facts()) == (404, missing.code, str(missing), missing.facts())
    other = errors.NoPendingAskError("s-1")
    assert at_the_door(other) is other


def test_an_unreadable_refusal_gains_its_conversation_once() -> None:
    expect = TABLE["unreadableWithSession"]
    original = UnreadableEnvelopeError(stored_preview='"junk"', found="a string", known=KNOWN)
    assert original.conversation_id is expect["original"]
    named = original.with_conversation(expect["named"])
    assert named.conversation_id == expect["named"]
    assert expect["named"] in str(named)
    assert (named is not original) == expect["namedIsACopy"]
    assert (named.__cause__ is original) == expect["causeIsOriginal"]
    assert (named.with_conversation("s-10") is named) == expect["alreadyNamedIsKept"]
    assert (named.stored_preview == original.stored_preview) == expect["previewKept"]
    assert (named.found, named.known, named.kind) == (original.found, original.known, original.kind)


def test_a_preview_is_neither_in_the_message_nor_in_a_reply() -> None:
    error = UnreadableEnvelopeError(stored_preview='"junk"', found="a string", known=KNOWN)
    assert "junk" not in str(error) + repr(error) + str(error.facts())
    assert error.facts() == {"found": "a string", "known": KNOWN, "kind": "unreadable"}


def test_every_refusal_has_a_status_and_a_code_of_the_right_form() -> None:
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, TurnkeepError)]
    assert len(classes) > 30
    for cls in classes:
        assert 400 <= cls.status <= 504
        assert cls.code is None or (cls.code.startswith("ERR_") and cls.code == cls.code.upper())


# --- can_resume -----------------------------------------------------------------------------------------------


def foreign(name: str, message: str = "x", **attributes: Any) -> Exception:
    """An error of some library, by its class name and attributes."""
    error: Exception = type(name, (Exception,), {})(message)
    for attribute, value in attributes.items():
        setattr(error, attribute, value)
    return error


def aws(code: str, status: int) -> Exception:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return foreign("ClientError", response=response)


@pytest.mark.parametrize("row", TABLE["canResume"], ids=str)
def test_golden_can_resume(row: dict[str, Any]) -> None:
    facts = {key: row[key] for key in ("status", "statusCode") if key in row}
    if "$metadata" in row:
        facts["response"] = {"ResponseMetadata": {"HTTPStatusCode": row["$metadata"]["httpStatusCode"]}}
    assert can_resume(foreign(row["name"], row["message"], **facts)) is row["canResume"]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (aws("ThrottlingException", 400), True),
        (aws("ProvisionedThroughputExceededException", 400), True),
        (aws("ValidationException", 400), False),
        (aws("ExpiredTokenException", 403), False),
        (aws("InternalServerException", 500), True),
        (foreign("ContextWindowOverflowException"), False),
        (foreign("NoCredentialsError"), False),
        (foreign("APIStatusError", status_code=422), False),
        (foreign("HTTPError", response=foreign("Response", status_code=404)), False),
        (foreign("APIError", "INVALID X-API-KEY"), False),
        (foreign("Odd", status="400", response="400"), True),
        (errors.StoreUnavailableError(), True),
        (errors.InvalidRequestError("Send a message."), False),
    ],
)
def test_more_errors_that_may_or_may_not_pass(error: Exception, verdict: bool) -> None:
    assert can_resume(error) is verdict


def test_an_error_that_cannot_speak_may_be_resumed() -> None:
    class Mute(Exception):
        @property
        def status(self) -> int:
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

    assert can_resume(Mute()) is True
    assert can_resume is can_resume_itself


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.lists(st.integers(), max_size=2)))
def test_odd_facts_never_break_the_verdict(value: Any) -> None:
    error = foreign("Odd", "x", status=value, statusCode=value, response={"Error": value, "ResponseMetadata": value})
    hopeless = isinstance(value, int) and value in (400, 401, 403, 404, 422)
    assert can_resume(error) is not hopeless
