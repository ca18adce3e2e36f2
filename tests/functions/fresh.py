"""A fresh process with a function's code on its path and nothing of ours imported, as Lambda starts one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FUNCTIONS = ("turn", "answer", "read", "resume", "worker", "reconcile")
HTTP_FUNCTIONS = FUNCTIONS[:3]


def start(function: str, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process that finds the function's module as ``app``; no variable of the caller's is handed on."""
    layers = (ROOT / "functions" / function, ROOT / "layers" / "turnkeep", ROOT / "layers" / "agent")
    environment = {
        "PYTHONPATH": ":".join(map(str, layers)),
        "AWS_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "TURNKEEP_TABLE": "Ledger",
        "TURNKEEP_AGENT_FACTORY": "refund_desk:build",
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def said(function: str, code: str, **variables: str) -> Any:
    """What the code's last line says, as JSON."""
    done = start(function, code, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
