"""The composition root: from environment variables and Lambda's context to the ports that the use cases are given.

Nothing here happens at import. Clients are made by the first invocation that needs them and kept for the process, so a
snapshot (SnapStart) holds none, and a turn that does not pause never makes a Step Functions client. They come from
botocore directly: it is the same client that ``boto3.client`` returns, without the import of boto3 itself.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import secrets
import threading
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from turnkeep.clock import Clock, SystemClock
from turnkeep.entry.observability import CountedEvents, Observation
from turnkeep.entry.settings import BadSettingError, Environment, read_environment
from turnkeep.ledger.ledger import Ledger
from turnkeep.usecases.deps import Deadline, Deps, Doorbell, EventSink, FixedDeadline, PauseGate

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

    from turnkeep.agent.port import AgentFactory, HostedAgent, TurnInfo
    from turnkeep.ledger.keys import ConversationKey
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.admission import Admission

UNKNOWN_TIME_MS: Final = 28_000
"""The time that an invocation without a context is given (a test, a script): less than the gateway's 30 s."""


class Clients:
    """AWS clients of this process, each made when it is first asked for."""

    def __init__(self, region: str | None) -> None:
        self._region = region
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}

    def get(self, service: str, config: Callable[[], Any]) -> Any:
        """The client of a service, such as ``dynamodb``, made with ``config()`` the first time."""
        with self._lock:
            if service not in self._made:
                client = botocore_session().create_client(service, region_name=self._region, config=config())
                self._made[service] = client
            return self._made[service]


class Process:
    """What is kept from one invocation of this process to the next: settings, clients, the agent's factory."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.clients = Clients(environment.region)

    @cached_property
    def factory(self) -> AgentFactory:
        """The agent's factory.

        Raises:
            BadSettingError: TURNKEEP_AGENT_FACTORY names nothing that can be called.
        """
        return load_factory(self.environment.agent_factory)

    def build_agent(self, info: TurnInfo) -> HostedAgent:
        """Builds the agent of one turn; the module is imported by the first turn that runs."""
        return self.factory(info)

    def last_turns(self) -> int | None:
        """How many earlier turns the factory's agents want read; None for everything. Imports the agent's module."""
        from turnkeep.agent.window import last_turns_of

        return last_turns_of(self.factory)


class NoEvents:
    """The event sink of a stack without a bus."""

    def tell(self, kind: str, record: TurnRecord) -> None:
        """Tells nobody."""


class NoDoorbell:
    """The doorbell of a stack, or a function, without a queue."""

    def ring(self, key: ConversationKey, turn: int, *, again: str = "") -> None:
        """Refuses by name: a turn that nobody would ever run must not look queued.

        Raises:
            BadSettingError: always.
        """
        raise BadSettingError("TURNKEEP_QUEUE_URL", "is missing")


class NoGate:
    """The gate of a function that has no state machine."""

    def start(self, record: TurnRecord) -> None:
        """Refuses by name.

        Raises:
            BadSettingError: always.
        """
        raise BadSettingError("TURNKEEP_STATE_MACHINE_ARN", "is missing")

    def signal(self, token: str) -> bool:
        """Refuses by name.

        Raises:
            BadSettingError: always.
        """
        raise BadSettingError("TURNKEEP_STATE_MACHINE_ARN", "is missing")

    def stop(self, record: TurnRecord, cause: str) -> None:
        """Nothing to stop."""


class Invocation:
    """What one invocation is served with.

    Attributes:
        environment: the deployment's settings.
        deadline: when Lambda kills this process.
    """

    def __init__(self, process: Process, context: Any, observation: Observation, *, clock: Clock | None = None) -> None:
        self._process = process
        self._observation = observation
        self._clock = clock or SystemClock()
        self.environment = process.environment
        self.deadline: Deadline = FixedDeadline.after(self._clock, _time_left_ms(context))

    @cached_property
    def deps(self) -> Deps:
        """The ports; made when first asked for, as a request that is refused before needs none of them."""
        from turnkeep.adapters.dynamo import DynamoItemStore, client_config

        process, note = self._process, self._observation.note
        client = cast("DynamoDBClient", process.clients.get("dynamodb", client_config))
        start_is_over()
        store = DynamoItemStore(client, self.environment.table, left_ms=self.deadline.left_ms, clock=self._clock)
        self._observation.store = store
        return Deps(
            ledger=Ledger(store, self._clock),
            clock=self._clock,
            factory=process.build_agent,
            gate=self._gate(),
            doorbell=self._doorbell(),
            events=CountedEvents(self._events(), self._observation),
            settings=self.environment.core,
            random_id=secrets.token_urlsafe,
            note=note,
            last_turns=process.last_turns,
            admission=self._admission(),
        )

    def _admission(self) -> Admission | None:
        limit = self.environment.core.turns_per_hour
        if not limit:
            return None
        from turnkeep.usecases.admission import TurnsPerHour

        return TurnsPerHour(limit)

    def _gate(self) -> PauseGate:
        arn = self.environment.state_machine_arn
        if not arn:
            return NoGate()
        from turnkeep.adapters.step_functions import StepFunctionsGate

        clients = self._process.clients
        return StepFunctionsGate(lambda: clients.get("stepfunctions", aws_config), arn, note=self._observation.note)

    def _doorbell(self) -> Doorbell:
        url = self.environment.queue_url
        if not url:
            return NoDoorbell()
        from turnkeep.adapters.queue import SqsDoorbell

        return SqsDoorbell(lambda: self._process.clients.get("sqs", aws_config), url)

    def _events(self) -> EventSink:
        bus = self.environment.event_bus
        if not bus:
            return NoEvents()
        from turnkeep.adapters.events import EventBridgeSink

        clients = self._process.clients
        return EventBridgeSink(lambda: clients.get("events", aws_config), bus, note=self._observation.note)


_processes: dict[int, Process] = {}


def process() -> Process:
    """This process's composition, made by its first invocation and kept while its environment stays the same.

    Raises:
        BadSettingError: an environment variable is missing or wrong; the next invocation looks again.
    """
    environment = read_environment()
    # By process id: the local stack forks its invocations, and a child must not share a parent's connections.
    pid = os.getpid()
    kept = _processes.get(pid)
    if kept is None or kept.environment != environment:
        # Python seeds this when it is imported; what a snapshot holds, every process restored from it would draw again:
        # the same pauses before the same retries.
        random.seed()
        _processes.clear()
        kept = _processes[pid] = Process(environment)
    return kept


def invocation(context: Any, observation: Observation) -> Invocation:
    """Composes what one invocation is served with."""
    return Invocation(process(), context, observation)


def deps_for(context: Any, observation: Observation | None = None) -> Deps:
    """The ports for one invocation, for functions that are no HTTP door."""
    return invocation(context, observation or Observation("invocation")).deps


def start_is_over() -> None:
    """Switches garbage collection on, where a function switched it off for its start.

    Importing and making the first client allocates much and drops nothing; collecting meanwhile costs a seventh of the
    start. What is alive now stays alive, so it is set aside and never looked at again.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


@lru_cache(maxsize=1)
def botocore_session() -> Any:
    """The session of this process: what botocore has read of services' descriptions. It holds no connection."""
    from botocore.session import Session

    return Session()


def load_factory(name: str) -> AgentFactory:
    """The agent's factory, from ``module:callable``.

    Raises:
        BadSettingError: the name is missing or not of that form, the module cannot be imported, or it has no such
            callable. The module's own error is the cause.
    """
    variable = "TURNKEEP_AGENT_FACTORY"
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise BadSettingError(variable, "has to be module:callable, such as refund_desk:build")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise BadSettingError(variable, "names a module that cannot be imported") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise BadSettingError(variable, "names nothing that can be called in that module")
    return cast("AgentFactory", factory)


def aws_config() -> Any:
    """The botocore configuration of clients other than the store's: short time-outs, one quick retry."""
    from botocore.config import Config

    return Config(connect_timeout=2.0, read_timeout=5.0, retries={"mode": "standard", "total_max_attempts": 2})


def _time_left_ms(context: Any) -> int:
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return int(remaining()) if callable(remaining) else UNKNOWN_TIME_MS
