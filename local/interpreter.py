"""Makes moto's Step Functions interpreter and DynamoDB hold what this stack needs of them.

Each change names what moto 5.2 does without it. Installed once in the stack's process, before anything is deployed.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
import types
import warnings
from typing import TYPE_CHECKING, Any

from local.settings import REGION, aws_session

if TYPE_CHECKING:
    from collections.abc import Callable


def load_moto() -> Callable[..., Any]:
    """Imports moto without what takes seconds and serves nothing here, and returns its application."""
    import boto3

    def one_region(session: Any, service_name: str, partition_name: str = "aws", **_: Any) -> list[str]:
        return [REGION] if partition_name == "aws" else []

    # moto lays out every service in every region there is; this endpoint has one.
    _put(boto3.session.Session, "get_available_regions", one_region)
    # moto's REST APIs validate OpenAPI with it; what is deployed here has an HTTP API.
    for name in ("", ".validation", ".validation.exceptions"):
        stand_in = types.ModuleType(f"openapi_spec_validator{name}")
        vars(stand_in).update(validate=None, OpenAPIValidationError=ValueError)
        sys.modules.setdefault(stand_in.__name__, stand_in)
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    # It warns of every resource that it does not deploy; what of those matters is read from the template.
    warnings.filterwarnings("ignore", "Tried to parse", UserWarning)
    logging.getLogger("moto").setLevel(logging.ERROR)
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
    _leave_schedules_out_of_events()
    _evaluate_jsonata()
    _call_services(endpoint)
    _report_status(on_execution)
    _accept_early_signals()
    _let_large_attributes_be_replaced()
    _leave_polling_to_the_stack()
    _read_templates_as_json()


def _create_machines_that_run() -> None:
    """CloudFormation creates state machines in moto's backend without an interpreter, whatever is configured."""
    import moto.stepfunctions.models as plain
    from moto.stepfunctions.parser.models import stepfunctions_parser_backends

    plain.stepfunctions_backends = stepfunctions_parser_backends  # type: ignore[assignment]


def _leave_schedules_out_of_events() -> None:
    """A rule with a schedule has no pattern, which moto reads as one that every event matches."""
    from moto.events.models import Rule

    send_to_targets = Rule.send_to_targets

    def send(rule: Rule, original_event: Any, transform_input: bool = True) -> None:
        if not rule.scheduled_expression:
            send_to_targets(rule, original_event, transform_input)

    _put(Rule, "send_to_targets", send)


def _evaluate_jsonata() -> None:
    """Moto has no evaluator, and quotes a text variable without escaping what is in it."""
    import moto.stepfunctions.parser.asl.jsonata.jsonata as moto_jsonata
    import moto.stepfunctions.parser.models  # noqa: F401 - so that whatever keeps a name of what is replaced is loaded
    from jsonata import Jsonata

    def evaluate(expression: str) -> Any:
        try:
            return _plain(Jsonata(expression).evaluate(None))
        except Exception as error:
            raise moto_jsonata.JSONataException(type(error).__name__, str(error)) from error

    def declare(bindings: dict[str, Any]) -> str:
        # Text as it is: an escaped character outside the basic plane would come back as two halves.
        return "".join(f"{name}:={json.dumps(_plain(value), ensure_ascii=False)};" for name, value in bindings.items())

    moto_jsonata._eval_jsonata = evaluate
    _replace_everywhere("encode_jsonata_variable_declarations", declare)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)  # JSON knows one kind of number
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


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
                )
                clients[service] = session.client(service, endpoint_url=endpoint(), config=config)
            return clients[service]

    _replace_everywhere("boto_client_for", client_for)


def _report_status(on_execution: Callable[[Any], None]) -> None:
    """Moto sends no `Step Functions Execution Status Change` events."""
    from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution

    start, terminated = Execution.start, BaseExecutionWorkerCommunication.terminated

    def start_and_tell(execution: Execution) -> None:
        start(execution)
        on_execution(execution)

    def end_and_tell(communication: BaseExecutionWorkerCommunication) -> None:
        terminated(communication)
        on_execution(communication.execution)

    _put(Execution, "start", start_and_tell)
    _put(BaseExecutionWorkerCommunication, "terminated", end_and_tell)


def _accept_early_signals() -> None:
    """Moto fails any SendTask… with a 500 while some execution has started but has no environment yet."""
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    listed = StepFunctionsParserBackend._get_executions

    def ready(backend: StepFunctionsParserBackend, execution_status: Any = None) -> list[Any]:
        return [each for each in listed(backend, execution_status) if each.exec_worker and each.exec_worker.env]

    _put(StepFunctionsParserBackend, "_get_executions", ready)


def _let_large_attributes_be_replaced() -> None:
    """Moto adds old and new size when an attribute is replaced, and refuses at half of the real limit."""
    from moto.dynamodb.models import dynamo_type

    def set_item(items: dict[Any, Any], key: Any, value: Any) -> None:
        dict.__setitem__(items, key, value)

    _put(dynamo_type.LimitedSizeDict, "__setitem__", set_item)


def _leave_polling_to_the_stack() -> None:
    """Moto would take a queue's messages itself, while they are sent, and hand them to its own Lambda."""
    from moto.sqs.models import Queue

    # The mapping stays listed in Lambda's API; only the queue does not know it.
    _put(Queue, "lambda_event_source_mappings", property(lambda queue: {}, lambda queue, value: None))


def _read_templates_as_json() -> None:
    """Moto reads every template with a YAML parser that takes seconds for a large one, twice."""
    from moto.cloudformation.models import Stack

    read = Stack.parse_template

    def parse_template(template: str) -> Any:
        return json.loads(template) if template.startswith("{") else read(template)

    _put(Stack, "parse_template", staticmethod(parse_template))


def _put(owner: type, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _replace_everywhere(name: str, value: Any) -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("moto.stepfunctions") and name in vars(module):
            setattr(module, name, value)
