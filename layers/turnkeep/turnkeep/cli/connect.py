"""From a command line to the ports: clients as the environment says, and a gate to executions where one is named.

botocore reads AWS_ENDPOINT_URL, profiles and regions by itself, so the same command works on AWS and on a local stack.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from turnkeep.clock import SystemClock
from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.ledger import Ledger
from turnkeep.usecases.deps import Deps, FixedDeadline, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from turnkeep.adapters.step_functions import StepFunctionsGate
    from turnkeep.agent.port import HostedAgent, TurnInfo
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import TurnRecord

STEP_MS = 60_000
"""How long a command may take for one step of its work."""

MACHINE_SUFFIX = "-paused-run"
"""What the template's state machine is called, behind the stack's name."""


class UsageError(Exception):
    """The command line, or a file that it names, is not what it has to be; the text says what to do."""


@dataclass
class OperatorGate:
    """Executions, as far as an operator's machine reaches them.

    Attributes:
        find: looks for the state machine's ARN, when an execution has to be named; empty where it is not known.
        open: a gate to the state machine of an ARN.
        left: turns whose execution could not be stopped here; it ends by itself.
    """

    find: Callable[[], str]
    open: Callable[[str], StepFunctionsGate]
    left: set[str] = field(default_factory=set)

    @cached_property
    def machine(self) -> StepFunctionsGate | None:
        """The gate to the state machine; None where it is not known: only tokens reach executions then."""
        arn = self.find()
        return self.open(arn) if arn else None

    def start(self, record: TurnRecord) -> None:
        """Starts the ask's execution, or leaves it to ``reconcile``."""
        if self.machine is None:
            raise StoreUnavailableError
        self.machine.start(record)

    def signal(self, token: str) -> bool:
        """Tells the execution that the decision is recorded. A token needs no name of a machine."""
        return self.open("").signal(token)

    def stop(self, record: TurnRecord, cause: str) -> None:
        """Ends the ask's execution; without the machine's name by its token, with which it sees its ask closed."""
        if self.machine is not None:
            self.machine.stop(record, cause)
        elif record.task_token is None or not self._told(record.task_token):
            self.left.add(f"turn {record.turn}")

    def _told(self, token: str) -> bool:
        try:
            return self.signal(token)
        except StoreUnavailableError:
            return False


class _Nobody:
    """Ports that an operator's command has no use for."""

    def build(self, info: TurnInfo) -> HostedAgent:
        raise RuntimeError("no agent runs at the command line")

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        return None

    def tell(self, kind: str, record: TurnRecord) -> None:
        return None


@dataclass(frozen=True)
class Connection:
    """What a command works with."""

    deps: Deps
    gate: OperatorGate
    table: str

    def deadline(self) -> FixedDeadline:
        """The time of one step."""
        return FixedDeadline.after(self.deps.clock, STEP_MS)


def connect(
    variables: Mapping[str, str],
    *,
    table: str | None,
    region: str | None,
    state_machine: str | None,
) -> Connection:
    """Clients and ports for one command.

    Args:
        variables: the environment.
        table: the ledger's name; None takes TURNKEEP_TABLE.
        region: None takes the environment's, or the profile's.
        state_machine: the ARN of PausedRun; None takes TURNKEEP_STATE_MACHINE_ARN, or looks for the only one there is.

    Raises:
        UsageError: no table or no region is named, botocore is not installed, or a number in the environment is none.
    """
    name = table or variables.get("TURNKEEP_TABLE", "")
    if not name:
        raise UsageError("name the ledger's table with --table, or in TURNKEEP_TABLE")
    # botocore reads AWS_DEFAULT_REGION and profiles, and not AWS_REGION, which Lambda and other SDKs go by.
    where = region or variables.get("AWS_REGION") or None
    try:
        from botocore.exceptions import NoRegionError
        from botocore.session import Session
    except ImportError as error:
        raise UsageError("install boto3 first (pip install 'turnkeep[aws]')") from error
    from turnkeep.adapters.dynamo import DynamoItemStore, client_config
    from turnkeep.adapters.step_functions import StepFunctionsGate

    session = Session()
    clock = SystemClock()
    try:
        dynamo: Any = session.create_client("dynamodb", region_name=where, config=client_config())
    except NoRegionError as error:
        raise UsageError("name the region with --region, or in AWS_REGION") from error
    made: list[Any] = []

    def functions() -> Any:
        if not made:
            made.append(session.create_client("stepfunctions", region_name=where))
        return made[0]

    named = state_machine or variables.get("TURNKEEP_STATE_MACHINE_ARN", "")
    gate = OperatorGate(lambda: named or _only_machine(functions), partial(StepFunctionsGate, functions))
    nobody = _Nobody()
    deps = Deps(
        ledger=Ledger(DynamoItemStore(dynamo, name, left_ms=lambda: STEP_MS, clock=clock), clock),
        clock=clock,
        factory=nobody.build,
        gate=gate,
        doorbell=nobody,
        events=nobody,
        settings=Settings(
            ask_expires_s=_number(variables, "TURNKEEP_ASK_EXPIRES_S", Settings.ask_expires_s),
            retention_days=_number(variables, "TURNKEEP_RETENTION_DAYS", Settings.retention_days),
        ),
        random_id=secrets.token_urlsafe,
    )
    return Connection(deps, gate, name)


def _only_machine(functions: Any) -> str:
    """The ARN of PausedRun where the account has exactly one; empty where that cannot be told."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        pages = functions().get_paginator("list_state_machines").paginate()
        found = [
            str(machine["stateMachineArn"])
            for page in pages
            for machine in page["stateMachines"]
            if str(machine["name"]).endswith(MACHINE_SUFFIX)
        ]
    except (BotoCoreError, ClientError):
        return ""
    return found[0] if len(found) == 1 else ""


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    said = variables.get(name, "").strip()
    if not said:
        return default
    if not (said.isascii() and said.isdigit()):
        raise UsageError(f"the environment variable {name} has to be a whole number")
    return int(said)
