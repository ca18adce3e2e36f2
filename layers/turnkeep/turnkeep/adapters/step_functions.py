"""The pause gate on Step Functions: one execution of ``PausedRun`` waits on each ask.

An execution is named by the conversation's namespace, epoch, turn, ask and a start number, so that starting twice is
one execution, and so that a console shows a paused session by itself. Its input has no history, tool result, prompt
or token.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from turnkeep.adapters.aws_faults import AWS_ERRORS, code_of, not_now
from turnkeep.decisions import question_of
from turnkeep.errors import ExecutionClosedError, StoreUnavailableError
from turnkeep.ids import path_form
from turnkeep.ledger.keys import turn_sk

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from turnkeep.ledger.records import Ask, TurnRecord

MAX_NAME_CHARACTERS: Final = 80
MAX_PREFIX_CHARACTERS: Final = 24
MAX_CARD_BYTES: Final = 4_000
MAX_QUESTION_CHARACTERS: Final = 600
MAX_SHOWN_PATH_CHARACTERS: Final = 240

TOKEN_GONE: Final = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})
"""A token that was used, has timed out, or was never one. AWS and its imitations disagree on which they say."""
STILL_WAITING: Final = frozenset({"RUNNING", "PENDING_REDRIVE"})

Note = Callable[[str, dict[str, Any]], None]


def _unnoticed(name: str, facts: dict[str, Any]) -> None:
    return None


class StepFunctionsGate:
    """Starts, signals and stops executions of one state machine.

    Args:
        client: makes, or returns, the client; asked only when a call is due.
        state_machine_arn: of ``PausedRun``.
        note: told of what failed and was left to ``reconcile``.
    """

    def __init__(self, client: Callable[[], SFNClient], state_machine_arn: str, *, note: Note = _unnoticed) -> None:
        self._client = client
        self._arn = state_machine_arn
        self._note = note

    def start(self, record: TurnRecord) -> None:
        """Starts the execution that waits on the record's ask. Starting twice is one execution.

        Raises:
            StoreUnavailableError: it could not be started now.
            ExecutionClosedError: an execution of this name has ended. (A closed name is blocked for 90 days.)
        """
        name = execution_name(record)
        try:
            self._client().start_execution(stateMachineArn=self._arn, name=name, input=execution_input(record))
        except AWS_ERRORS as error:
            if code_of(error) != "ExecutionAlreadyExists":
                raise not_now(error) from error
            if self._status(name) not in STILL_WAITING:
                raise ExecutionClosedError from error

    def signal(self, token: str) -> bool:
        """Tells the waiting execution that the decision is recorded. False when the token is used, gone or unknown.

        The execution learns nothing from it but that: the decision is in the ledger.

        Raises:
            StoreUnavailableError: it could not be told now.
        """
        try:
            self._client().send_task_success(taskToken=token, output='{"status":"answered"}')
        except AWS_ERRORS as error:
            if code_of(error) in TOKEN_GONE:
                return False
            raise not_now(error) from error
        return True

    def stop(self, record: TurnRecord, cause: str) -> None:
        """Ends the execution that waits on the record's ask; quiet when there is none.

        An ask that a resume raised waits in the execution of the turn's first ask, whose name its record does not tell.
        Its token does: signalled, that execution looks the turn up, finds it closed and ends.

        What fails here is only noted: an execution that goes on finds its ask closed when it ends.
        """
        arn = execution_arn(self._arn, execution_name(record))
        try:
            self._client().stop_execution(executionArn=arn, error="Turnkeep.AskClosed", cause=cause[:200])
            return
        except AWS_ERRORS as error:
            if code_of(error) != "ExecutionDoesNotExist":
                self._note("stop_failed", {"turn": record.turn, "cause": code_of(error)})
                return
        if record.task_token is not None:
            try:
                self.signal(record.task_token)
            except StoreUnavailableError as error:
                self._note("stop_failed", {"turn": record.turn, "cause": code_of(error.__cause__ or error)})

    def _status(self, name: str) -> str:
        try:
            found = self._client().describe_execution(executionArn=execution_arn(self._arn, name))
        except AWS_ERRORS as error:
            raise not_now(error) from error
        return str(found["status"])


def execution_name(record: TurnRecord) -> str:
    """The name of the execution that waits on the record's ask: readable in front, unique behind.

    At most 80 characters of ``A-Z a-z 0-9 - _``. Two asks never share one, however alike their ids begin, and neither
    do two lives of one id.

    Raises:
        ValueError: the record has no ask.
    """
    ask = _ask(record)
    identity = json.dumps([record.key.pk, record.epoch, record.turn, record.execution_ask or ask.ask_id])
    unique = hashlib.sha256(identity.encode()).hexdigest()[:40]
    tail = f"t{record.turn}-{unique}-{record.start_number}"
    room = min(MAX_PREFIX_CHARACTERS, MAX_NAME_CHARACTERS - len(tail) - 1)
    prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", record.key.conversation_id)[: max(0, room)].strip("-")
    return f"{prefix}-{tail}" if prefix else tail


def execution_arn(state_machine_arn: str, name: str) -> str:
    """The ARN of an execution of a state machine."""
    return f"{state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"


def execution_input(record: TurnRecord) -> str:
    """An execution's input: ``ask_card`` as JSON."""
    return _json(ask_card(record))


def ask_card(record: TurnRecord) -> dict[str, Any]:
    """What an execution shows of its ask: which session waits, for what, on whom, until when, and how to answer.

    The input of an execution, and what a resume that asks again hands to it. Ids and one question; as JSON it stays
    under ``MAX_CARD_BYTES``, and what gives way where an id is very long is the question.

    Raises:
        ValueError: the record has no ask.
    """
    ask = _ask(record)
    question = question_of(ask.pending) or ""
    room = MAX_QUESTION_CHARACTERS
    while True:
        card = _card(record, ask, _cut(question, room))
        if room == 0 or len(_json(card).encode()) <= MAX_CARD_BYTES:
            return card
        room //= 2


def _json(card: dict[str, Any]) -> str:
    return json.dumps(card, ensure_ascii=False, separators=(",", ":"))


def _card(record: TurnRecord, ask: Ask, question: str) -> dict[str, Any]:
    tool = ask.pending.get("tool")
    shown = path_form(record.key.conversation_id)
    where = f"/conversations/{shown if len(shown) <= MAX_SHOWN_PATH_CHARACTERS else '{id}'}/answers"
    found: dict[str, Any] = {
        "pk": record.key.pk,
        "sk": turn_sk(record.turn),
        "conversationId": record.key.conversation_id,
        "turn": record.turn,
        "askId": ask.ask_id,
        "question": question,
        "tool": tool[:128] if isinstance(tool, str) else "",
        "audience": ask.audience,
        "askedAt": iso(ask.asked_at_ms),
        "expiresAt": iso(ask.expires_at_ms),
        "expiresAtMs": ask.expires_at_ms,
        "howToAnswer": f'POST {where} with {{"askId": "{ask.ask_id}", "decision": …}} as {_who(ask)}',
        "start": record.start_number,
    }
    if record.key.tenant is not None:
        found["tenant"] = record.key.tenant
    return found


def _who(ask: Ask) -> str:
    return "the conversation's owner" if ask.audience == "owner" else f"somebody with the {ask.audience}"


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[:characters]}…"


def iso(time_ms: int) -> str:
    """A time as people read it: ISO 8601, UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _ask(record: TurnRecord) -> Ask:
    if record.ask is None:
        raise ValueError("only a turn that asks has an execution")
    return record.ask
