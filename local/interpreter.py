"""Makes moto hold what this stack needs of it: Step Functions above all.

Each change names what moto 5.2 does without it. Installed once in the stack's process, before anything is deployed.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import threading
import types
import warnings
from typing import TYPE_CHECKING, Any

from local import expressions, tables
from local.replacing import put, replace_everywhere
from local.settings import REGION, aws_session

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINE_AGENT = "turnkeep-local-machine"
"""A part of the user agent of every call that a state machine makes: it is made with the machine's role."""


def load_moto() -> Callable[..., Any]:
    """Imports moto without what takes seconds and serves nothing here, and returns its application."""
    import boto3

    def one_region(session: Any, service_name: str, partition_name: str = "aws", **_: Any) -> list[str]:
        return [REGION] if partition_name == "aws" else []

    # moto lays out every service in every region there is; this endpoint has one.
    put(boto3.session.Session, "get_available_regions", one_region)
    # moto's REST APIs validate OpenAPI with it; what is deployed here has an HTTP API.
    for name in ("", ".validation", ".validation.exceptions"):
        stand_in = types.ModuleType(f"openapi_spec_validator{name}")
        vars(stand_in).update(validate=None, OpenAPIValidationError=ValueError)
        sys.modules.setdefault(stand_in.__name__, stand_in)
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    # It warns of every resource that it does not deploy; what of those matters is read from the template.
    warnings.filterwarnings("ignore", "Tried to parse", UserWarning)
    logging.getLogger("moto").setLevel(logging.ERROR)
    # The interpreter writes every failed state with its data, even one that is caught; the history has it all.
    logging.getLogger("moto.stepfunctions").setLevel(logging.CRITICAL + 1)
    return DomainDispatcherApplication(create_backend_app)


def install(endpoint: Callable[[], str], on_execution: Callable[[Any], None]) -> None:
    """Changes moto in place.

    Args:
        endpoint: The AWS endpoint's address, asked for when the interpreter first calls a service.
        on_execution: Called with an execution whenever its status has changed.
    """
    from moto.core.config import default_user_config

    default_user_config["stepfunctions"] = {"execute_state_machine": True}
    default_user_config["lambda"] = {"use_docker": False}
    _create_machines_that_run()
    _leave_functions_to_the_stack()
    expressions.install()
    _call_services(endpoint)
    _report_status(on_execution)
    _judge_tokens()
    tables.install()
    _leave_polling_to_the_stack()
    _read_templates_as_json()


def _create_machines_that_run() -> None:
    """CloudFormation creates state machines in moto's backend without an interpreter, whatever is configured."""
    import moto.stepfunctions.models as plain
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    plain.stepfunctions_backends = stepfunctions_parser_backends  # type: ignore[assignment]


def _leave_functions_to_the_stack() -> None:
    """Moto fails an event whose rule names a function, and has every event match a rule that is a schedule."""
    from moto.events.models import Rule

    deliver = Rule.send_to_targets

    def send_to_targets(rule: Rule, original_event: Any, transform_input: bool = True) -> None:
        others = copy.copy(rule)
        others.targets = [target for target in rule.targets if ":lambda:" not in target["Arn"]]
        if others.targets and not rule.scheduled_expression:
            deliver(others, original_event, transform_input)

    put(Rule, "send_to_targets", send_to_targets)


def _call_services(endpoint: Callable[[], str]) -> None:
    """Moto makes a client for every task, on `localhost`, through boto3's shared session (not safe under threads)."""
    from botocore.config import Config

    # Loaded here because each of them keeps its own name of the function that is replaced.
    from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils  # noqa: F401
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (  # noqa: F401
        state_task_service_factory,
    )

    session = aws_session()
    clients: dict[str, Any] = {}
    lock = threading.Lock()

    def client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        with lock:
            if service not in clients:
                config = Config(
                    parameter_validation=False,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                    connect_timeout=10,
                    read_timeout=1000,  # longer than any function may run
                    max_pool_connections=200,
                    user_agent_extra=MACHINE_AGENT,
                )
                clients[service] = session.client(service, endpoint_url=endpoint(), config=config)
            return clients[service]

    replace_everywhere("boto_client_for", client_for)


def _report_status(on_execution: Callable[[Any], None]) -> None:
    """Moto sends no `Step Functions Execution Status Change` events, and stops nothing that waits for a token."""
    from moto.stepfunctions.parser.api import ExecutionStatus
    from moto.stepfunctions.parser.asl.eval.environment import Environment
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped
    from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution

    start, terminated = Execution.start, BaseExecutionWorkerCommunication.terminated
    stop, set_error = Execution.stop, Environment.set_error

    def start_and_tell(execution: Execution) -> None:
        start(execution)
        on_execution(execution)

    def end_and_tell(communication: BaseExecutionWorkerCommunication) -> None:
        if communication.execution.exec_status == "RUNNING":  # else it was stopped, and that was told
            terminated(communication)
            on_execution(communication.execution)

    def stop_and_tell(execution: Execution, stop_date: Any, error: str | None, cause: str | None) -> None:
        worker = execution.exec_worker
        if worker is None or worker.env is None or execution.exec_status != "RUNNING":
            return
        stop(execution, stop_date=stop_date, error=error, cause=cause)
        execution.exec_status = ExecutionStatus.ABORTED
        execution.stop_date = stop_date
        for endpoint in list(worker.env.callback_pool_manager._pool.values()):
            endpoint.interrupt_all()
        on_execution(execution)

    def stay_stopped(environment: Environment, error: Any) -> None:
        # What was interrupted looks like a failure to the state that it was interrupted in.
        if not isinstance(environment._program_state, ProgramStopped):
            set_error(environment, error)

    put(Execution, "start", start_and_tell)
    put(Execution, "stop", stop_and_tell)
    put(Environment, "set_error", stay_stopped)
    put(BaseExecutionWorkerCommunication, "terminated", end_and_tell)


def _judge_tokens() -> None:
    """Moto takes a token for a second time, forgets it with its execution, and fails while an execution starts."""
    from moto.core.exceptions import AWSError
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackPoolManager
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    notify, listed = CallbackPoolManager.notify, StepFunctionsParserBackend._get_executions

    def with_tokens(backend: StepFunctionsParserBackend, execution_status: Any = None) -> list[Any]:
        return [each for each in listed(backend) if each.exec_worker and each.exec_worker.env]

    def notify_once(pool: CallbackPoolManager, callback_id: str, outcome: Any) -> bool:
        endpoint = pool.get(callback_id)
        if endpoint is not None and endpoint._notify_event.is_set():
            raise AWSError("Task Timed Out: 'Provided task does not exist anymore'", "TaskTimedOut")
        return notify(pool, callback_id, outcome)

    put(StepFunctionsParserBackend, "_get_executions", with_tokens)
    put(CallbackPoolManager, "notify", notify_once)


def _leave_polling_to_the_stack() -> None:
    """Moto would take a queue's messages itself, while they are sent, and hand them to its own Lambda."""
    from moto.sqs.models import Queue

    # The mapping stays listed in Lambda's API; only the queue does not know it.
    put(Queue, "lambda_event_source_mappings", property(lambda queue: {}, lambda queue, value: None))


def _read_templates_as_json() -> None:
    """Moto reads every template with a YAML parser that takes seconds for a large one, twice."""
    from moto.cloudformation.models import Stack

    read = Stack.parse_template

    def parse_template(template: str) -> Any:
        return json.loads(template) if template.startswith("{") else read(template)

    put(Stack, "parse_template", staticmethod(parse_template))
