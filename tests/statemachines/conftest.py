"""Moto with its Step Functions interpreter switched on, for one test."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from tests.statemachines.machine import REGION, LambdaError, Machine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The machine, its table and its function; nothing of them is left behind."""
    from jsonata import Jsonata
    from moto.awslambda_simple.models import LambdaSimpleBackend
    from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
    from moto.stepfunctions.parser.asl.jsonata import jsonata

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr(jsonata, "_eval_jsonata", lambda expression: Jsonata(expression).evaluate(None))
    made: list[Machine] = []

    def invoke(
        _backend: Any, _name: str, _qualifier: Any, body: Any, _headers: Any, response_headers: dict[str, str]
    ) -> bytes:
        try:
            return json.dumps(made[0].invoke(json.loads(body))).encode()
        except LambdaError as error:
            response_headers["x-amz-function-error"] = "Unhandled"
            return json.dumps({"errorType": error.error_type, "errorMessage": str(error)}).encode()

    monkeypatch.setattr(LambdaSimpleBackend, "invoke", invoke)
    with mock_aws(config={"stepfunctions": {"execute_state_machine": True}, "lambda": {"use_docker": False}}):
        made.append(Machine())
        monkeypatch.setattr(retrier_decl, "time", SimpleNamespace(sleep=made[0].waits_s.append))
        try:
            yield made[0]
        finally:
            made[0].stop()
