"""What a function imports while it starts: what its requests need. How long that takes is `make bench-start`'s."""

from __future__ import annotations

import pytest

from tests.functions.fresh import FUNCTIONS, HTTP_FUNCTIONS, said

IMPORTED = "import json, sys, app; print(json.dumps(sorted(sys.modules)))"
SERVED = """
import json, sys
import app
from turnkeep.entry.wiring import deps_for, process
deps_for(None)
print(json.dumps([list(process().clients._made), sorted(sys.modules)]))
"""

NOBODYS = {
    "boto3", "s3transfer", "pydantic", "pydantic_core", "aws_xray_sdk", "requests", "moto", "yaml", "rich", "asyncio",
    "aws_lambda_powertools.event_handler", "aws_lambda_powertools.utilities.data_classes",
    "aws_lambda_powertools.utilities.idempotency",
    "aws_lambda_powertools.utilities.parameters", "aws_lambda_powertools.utilities.parser",
    "aws_lambda_powertools.utilities.validation", "aws_lambda_powertools.utilities.batch",
    "refund_desk", "turnkeep.cli", "turnkeep.frameworks", "turnkeep.memory", "turnkeep.sessions",
    "turnkeep.agent.loop", "turnkeep.agent.tools", "turnkeep.agent.scripted", "turnkeep.adapters.bedrock",
    "turnkeep.usecases.operator", "turnkeep.usecases.import_conversation", "turnkeep.usecases.export_conversation",
}  # fmt: skip
"""What no function imports before it serves: the agent, and what it is made of, comes with the first turn that runs."""

MADE_FIRST_WHEN_NEEDED = {"botocore.session", "botocore.client", "urllib3", "turnkeep.adapters.dynamo"}
"""What the first request imports that is not refused at the door."""

HTTP = {"turnkeep.entry.http"}
RUNS = {"turnkeep.usecases.attempt", "turnkeep.agent.port", "turnkeep.durability"}
OTHERS = {
    "turn": {"turnkeep.usecases.answer_ask", "turnkeep.usecases.resume_turn", "turnkeep.usecases.listing",
             "turnkeep.usecases.reconcile", "turnkeep.usecases.work_queue"},
    "answer": {"turnkeep.usecases.attempt", "turnkeep.durability", "turnkeep.usecases.take_turn",
               "turnkeep.usecases.erase", "turnkeep.usecases.reconcile", "turnkeep.usecases.listing"},
    "read": RUNS | {"turnkeep.usecases.take_turn", "turnkeep.usecases.answer_ask", "turnkeep.usecases.erase"},
    "resume": HTTP | {"turnkeep.usecases.take_turn", "turnkeep.usecases.erase", "turnkeep.usecases.listing"},
    "worker": HTTP | {"turnkeep.usecases.take_turn", "turnkeep.usecases.erase", "turnkeep.usecases.listing"},
    "reconcile": HTTP | {"turnkeep.usecases.take_turn", "turnkeep.usecases.listing"},
}  # fmt: skip
"""What other functions' requests need."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_imports_what_its_requests_need(function: str) -> None:
    imported = set(said(function, IMPORTED))
    assert imported & (NOBODYS | MADE_FIRST_WHEN_NEEDED | OTHERS[function]) == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_first_request_makes_one_client_and_imports_no_more_than_it_needs(function: str) -> None:
    made, imported = said(
        function,
        SERVED,
        TURNKEEP_STATE_MACHINE_ARN="arn:aws:states:eu-central-1:123456789012:stateMachine:m",
        TURNKEEP_QUEUE_URL="https://sqs.eu-central-1.amazonaws.com/123456789012/q.fifo",
        TURNKEEP_EVENT_BUS="default",
        **CREDENTIALS,
    )
    assert made == ["dynamodb"]
    assert set(imported) >= MADE_FIRST_WHEN_NEEDED
    assert set(imported) & (NOBODYS | OTHERS[function]) == set()


COLLECTED = """
import gc, json, app
while_starting = gc.isenabled()
{served}
print(json.dumps([while_starting, gc.isenabled()]))
"""
REFUSED = 'app.handler({"routeKey": "GET /x", "requestContext": {"http": {"method": "GET"}}}, None)'
COMPOSED = "from turnkeep.entry.wiring import deps_for; deps_for(None)"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_garbage_is_collected_again_as_soon_as_the_start_is_over(function: str) -> None:
    assert said(function, COLLECTED.format(served=COMPOSED), **CREDENTIALS) == [False, True]


@pytest.mark.parametrize("function", HTTP_FUNCTIONS)
def test_garbage_is_collected_again_where_the_first_request_needs_no_client(function: str) -> None:
    assert said(function, COLLECTED.format(served=REFUSED)) == [False, True]
