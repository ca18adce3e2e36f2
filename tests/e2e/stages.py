"""The checkout's template with another agent in it, as a stack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from local.settings import ROOT
from local.stack import LocalStack

if TYPE_CHECKING:
    from pathlib import Path


def stack_with(layer: Path, factory: str, folder: Path, **settings: Any) -> LocalStack:
    """A stack, not started, whose agent is a layer's; turns have ten seconds."""
    text = (ROOT / "template.yaml").read_text(encoding="utf-8")
    text = text.replace("ContentUri: layers/agent\n", f"ContentUri: {layer}\n")
    text = re.sub(r"(CodeUri|ContentUri|DefinitionUri): (?=[a-z])", rf"\1: {ROOT}/", text)
    template = folder / "template.yaml"
    template.write_text(text, encoding="utf-8")
    parameters = {"AgentFactory": factory, "TurnTimeoutSeconds": "10"}
    return LocalStack(template=template, state_dir=folder, parameters=parameters, **settings)


def redeliver_soon(stack: LocalStack) -> None:
    """A queue whose messages come again after two seconds."""
    url = stack.deployment()["outputs"]["TurnQueueUrl"]
    stack.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "2"})
