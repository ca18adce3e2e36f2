"""The PausedRun definition as CloudFormation would fill it in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

DEFINITION = Path(__file__).resolve().parents[2] / "statemachines" / "paused_run.asl.yaml"
TABLE = "Ledger"
FUNCTION_ARN = "arn:aws:lambda:us-east-1:123456789012:function:resume"
SUBSTITUTIONS = {"Partition": "aws", "LedgerTable": TABLE, "ResumeFunctionArn": FUNCTION_ARN}


def load_definition() -> dict[str, Any]:
    """The definition with its substitutions made; fails where a name in braces is not declared."""
    text = json.dumps(yaml.safe_load(DEFINITION.read_text(encoding="utf-8")))
    filled = re.sub(r"\$\{(\w+)\}", lambda match: SUBSTITUTIONS[match[1]], text)
    loaded: dict[str, Any] = json.loads(filled)
    return loaded
