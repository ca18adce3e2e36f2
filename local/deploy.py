"""Deploys a transformed template through CloudFormation and reads back what stands: nothing is repeated by hand."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from local.aws import OWN_HEADER
from local.function import Function
from local.intrinsics import Resolver
from local.routes import Cors, Route, read_cors, read_routes
from local.settings import BUCKET, STACK_NAME, Settings, aws_session

if TYPE_CHECKING:
    from local.template import Transformed


@dataclass(frozen=True)
class QueueSource:
    """An event source mapping: this queue's messages go to this function."""

    function: str
    queue_arn: str
    queue_url: str
    batch_size: int
    report_item_failures: bool
    max_concurrency: int


@dataclass(frozen=True)
class Rule:
    """A schedule (with `period_s`) or an event rule (with `pattern`) that invokes a function."""

    name: str
    function: str
    period_s: float | None = None
    pattern: dict[str, Any] | None = None
    bus: str = "default"
    input: str | None = None


@dataclass(frozen=True)
class Deployment:
    """What stands after a deploy.

    Attributes:
        physical: Physical id of every resource, by logical id.
        outputs: The stack's outputs that could be resolved (the API's own address is the local one).
    """

    functions: list[Function]
    routes: list[Route]
    cors: Cors | None
    queues: list[QueueSource]
    rules: list[Rule]
    physical: dict[str, str]
    outputs: dict[str, str]
    parameters: dict[str, str] = field(default_factory=dict)


_session = functools.cache(aws_session)


@functools.cache
def internal_client(service: str, endpoint: str) -> Any:
    """A client whose calls the endpoint neither counts nor troubles."""
    config = Config(read_timeout=60, retries={"mode": "standard", "total_max_attempts": 2}, max_pool_connections=50)
    client = _session().client(service, endpoint_url=endpoint, config=config)
    client.meta.events.register("before-sign", lambda request, **_: request.headers.add_header(OWN_HEADER, "1"))
    return client


def deploy(template: Transformed, settings: Settings, endpoint: str, api_url: str) -> Deployment:
    """Creates the stack in moto and reads it back.

    Raises:
        RuntimeError: CloudFormation refused the stack; its words are the message.
    """
    plain = template.plain
    physical = _create_stack(plain, template.parameters, endpoint)
    known = {"AWS::StackName": STACK_NAME} | _apis(plain, api_url)
    # A layer stands for its folder, which its logical id leads to; moto deploys it without a name.
    known |= {logical_id: logical_id for logical_id, _ in _resources(plain, "AWS::Lambda::LayerVersion")}
    resolver = Resolver(plain, template.parameters, physical, known)
    folders = template.folders
    functions = [
        _function(logical_id, properties, resolver, folders, settings, endpoint)
        for logical_id, properties in _resources(plain, "AWS::Lambda::Function")
    ]
    return Deployment(
        functions=functions,
        routes=read_routes(template.source, plain, resolver),
        cors=read_cors(plain, resolver),
        queues=_queues(plain, resolver, endpoint),
        rules=_rules(plain, resolver),
        physical=physical,
        outputs=_outputs(plain, resolver),
        parameters=template.parameters,
    )


def _create_stack(plain: dict[str, Any], parameters: dict[str, str], endpoint: str) -> dict[str, str]:
    from botocore.exceptions import ClientError

    storage = internal_client("s3", endpoint)
    storage.create_bucket(Bucket=BUCKET)
    placeholder = io.BytesIO()
    with zipfile.ZipFile(placeholder, "w") as archive:
        archive.writestr("README", "The local stack runs the folder in the checkout.")
    for logical_id, resource in plain["Resources"].items():
        code = resource.get("Properties", {}).get("Code") or resource.get("Properties", {}).get("Content")
        if isinstance(code, dict) and code.get("S3Bucket") == BUCKET:
            storage.put_object(Bucket=BUCKET, Key=code["S3Key"], Body=placeholder.getvalue())
        elif resource["Type"] in ("AWS::Lambda::Function", "AWS::Lambda::LayerVersion"):
            raise RuntimeError(f"{logical_id}: only code in a local folder can be run")
    formation = internal_client("cloudformation", endpoint)
    declared = [
        {"ParameterKey": name, "ParameterValue": value}
        for name, value in parameters.items()
        if name in plain.get("Parameters", {})
    ]
    body = json.dumps(plain)
    storage.put_object(Bucket=BUCKET, Key="template.json", Body=body.encode())
    try:
        formation.create_stack(
            StackName=STACK_NAME,
            TemplateBody=body,
            Parameters=declared,
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
    except ClientError as error:
        raise RuntimeError(f"CloudFormation refuses the stack: {error.response['Error']['Message']}") from error
    status = formation.describe_stacks(StackName=STACK_NAME)["Stacks"][0]
    if status["StackStatus"] != "CREATE_COMPLETE":
        raise RuntimeError(
            f"the stack is {status['StackStatus']}: {status.get('StackStatusReason', 'no reason given')}"
        )
    resources = formation.describe_stack_resources(StackName=STACK_NAME)["StackResources"]
    # What moto's CloudFormation does not know is listed without a name.
    named = [each for each in resources if "LogicalResourceId" in each and each.get("PhysicalResourceId")]
    return {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in named}


def _resources(plain: dict[str, Any], *types: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (logical_id, resource.get("Properties", {}))
        for logical_id, resource in plain["Resources"].items()
        if resource["Type"] in types
    ]


def _function(
    logical_id: str,
    properties: dict[str, Any],
    resolver: Resolver,
    folders: dict[str, Any],
    settings: Settings,
    endpoint: str,
) -> Function:
    deployed = internal_client("lambda", endpoint).get_function(FunctionName=resolver.physical[logical_id])
    facts = deployed["Configuration"]
    paths = [str(folders[properties["Code"]["S3Key"]])]
    for layer in resolver.value(properties.get("Layers", [])):
        content = resolver.plain["Resources"].get(layer, {}).get("Properties", {}).get("Content")
        if content:  # a layer of somebody else's is an ARN, and has no folder here
            paths.append(str(folders[content["S3Key"]]))
    retries, failure_arn = _event_invoke(logical_id, resolver)
    logging = resolver.value(properties.get("LoggingConfig", {})) or {}
    reserved = resolver.value(properties.get("ReservedConcurrentExecutions"))
    return Function(
        logical_id=logical_id,
        name=facts["FunctionName"],
        handler=facts["Handler"],
        environment={
            name: str(value)
            for name, value in (
                facts.get("Environment", {}).get("Variables", {}) | settings.environment_of(logical_id)
            ).items()
        },
        timeout_s=float(facts["Timeout"]),
        memory_mb=int(facts["MemorySize"]),
        paths=tuple(paths),
        reserved_concurrency=None if reserved is None else int(reserved),
        retries=retries,
        failure_arn=failure_arn,
        dead_letter_arn=(resolver.value(properties.get("DeadLetterConfig")) or {}).get("TargetArn", ""),
        log_group=str(logging.get("LogGroup") or ""),
    )


def _event_invoke(logical_id: str, resolver: Resolver) -> tuple[int, str]:
    """How often an asynchronous invocation is retried, and the queue that its failure is told to."""
    for _, properties in _resources(resolver.plain, "AWS::Lambda::EventInvokeConfig"):
        facts = resolver.value(properties)
        if facts.get("FunctionName") == resolver.physical[logical_id]:
            destination = facts.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination", "")
            return int(facts.get("MaximumRetryAttempts", 2)), destination
    return 2, ""


def _queues(plain: dict[str, Any], resolver: Resolver, endpoint: str) -> list[QueueSource]:
    found = []
    for _, properties in _resources(plain, "AWS::Lambda::EventSourceMapping"):
        facts = resolver.value(properties)
        arn = str(facts.get("EventSourceArn", ""))
        if ":sqs:" not in arn or facts.get("Enabled") is False:
            continue
        url = internal_client("sqs", endpoint).get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]
        found.append(
            QueueSource(
                function=facts["FunctionName"],
                queue_arn=arn,
                queue_url=url,
                batch_size=int(facts.get("BatchSize", 10)),
                report_item_failures="ReportBatchItemFailures" in (facts.get("FunctionResponseTypes") or []),
                max_concurrency=int((facts.get("ScalingConfig") or {}).get("MaximumConcurrency", 20)),
            )
        )
    return found


def _rules(plain: dict[str, Any], resolver: Resolver) -> list[Rule]:
    rules = []
    for logical_id, properties in _resources(plain, "AWS::Events::Rule"):
        facts = resolver.value(properties)
        for target in facts.get("Targets", []):
            if facts.get("State") == "DISABLED" or ":function:" not in str(target.get("Arn")):
                continue
            expression = facts.get("ScheduleExpression")
            rules.append(
                Rule(
                    name=resolver.physical.get(logical_id) or logical_id,
                    function=target["Arn"],
                    period_s=_period_s(expression) if expression else None,
                    pattern=facts.get("EventPattern"),
                    bus=str(facts.get("EventBusName") or "default").rpartition("/")[2],
                    input=target.get("Input"),
                )
            )
    for logical_id, properties in _resources(plain, "AWS::Scheduler::Schedule"):
        facts = resolver.value(properties)
        target = facts["Target"]
        if facts.get("State") != "DISABLED" and ":function:" in str(target.get("Arn")):
            period_s = _period_s(facts["ScheduleExpression"])
            rules.append(Rule(logical_id, target["Arn"], period_s=period_s, input=target.get("Input")))
    return rules


def _period_s(expression: str) -> float:
    """Seconds of a `rate(…)`; a `cron(…)` runs once a day here."""
    if not expression.startswith("rate("):
        return 86_400.0
    number, unit = expression[5:-1].split()
    return float(number) * {"minute": 60, "hour": 3600, "day": 86_400}[unit.rstrip("s")]


def _apis(plain: dict[str, Any], api_url: str) -> dict[str, str]:
    """Moto deploys no HTTP API; whatever asks for its address is told the local one."""
    return {logical_id: api_url for logical_id, _ in _resources(plain, "AWS::ApiGatewayV2::Api")}


def _outputs(plain: dict[str, Any], resolver: Resolver) -> dict[str, str]:
    outputs = {}
    for name, output in plain.get("Outputs", {}).items():
        if resolver.holds(output.get("Condition")):
            value = resolver.value(output.get("Value"))
            if isinstance(value, str):
                outputs[name] = value
    return outputs
