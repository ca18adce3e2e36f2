"""The stacks of the end-to-end tests: one a test process each, started when a test first asks for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.settings import ROOT
from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator

LAYER = Path(__file__).parent / "layer"


@pytest.fixture(scope="session")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The checkout's template with an agent that does what it is told to, and a queue that redelivers soon."""
    folder = tmp_path_factory.mktemp("asking")
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")
    text = text.replace("ContentUri: layers/agent\n", f"ContentUri: {LAYER}\n")
    text = re.sub(r"(CodeUri|ContentUri|DefinitionUri): (?=[a-z])", rf"\1: {ROOT}/", text)
    template = folder / "template.yaml"
    template.write_text(text, encoding="utf-8")
    parameters = {"AgentFactory": "asking_desk:build", "TurnTimeoutSeconds": "10"}
    with LocalStack(template=template, state_dir=folder, parameters=parameters) as stack:
        url = stack.deployment()["outputs"]["TurnQueueUrl"]
        stack.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "2"})
        yield stack


@pytest.fixture(autouse=True)
def _calm_asking(request: pytest.FixtureRequest) -> Iterator[None]:
    """No fault of one test reaches the next."""
    yield
    if "asking" in request.fixturenames:
        request.getfixturevalue("asking").reset()
