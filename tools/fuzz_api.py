"""Holds the API against its description: Schemathesis sends what ``docs/openapi.json`` allows, and what it does not.

``python -m tools.fuzz_api --seconds 300`` starts a local stack of its own and fails where a reply is a 500, has a
status that its route does not describe, or a body, header or content type other than described; where a request that
breaks the description is taken; where the token is not asked about; where something deleted is still served.

The seed is fixed, so that a failure is found again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from local.stack import LocalStack

ROOT = Path(__file__).parents[1]
SECONDS, SEED = 60, 20_260_101

LEFT_OUT = {
    "unsupported_method": "API Gateway answers a method that no route has with 404, not with 405",
    "positive_data_acceptance": "a 400 may mean what no schema says: a cursor's seal, an id's UTF-8, the floor's reach",
}
"""Checks of Schemathesis that do not fit, and why."""


def run(stack: LocalStack, *, seconds: int, seed: int, report_dir: Path) -> subprocess.CompletedProcess[str]:
    """One run against a stack that serves. Its output says what was found, with a command that shows it again."""
    token = stack.token("fuzz", "acme", ["supervisor"])
    command = [
        str(Path(sys.executable).parent / "schemathesis"),
        *("--no-color", "run", str(ROOT / "docs" / "openapi.json")),
        *("--url", stack.api_url, "--header", f"Authorization: Bearer {token}"),
        *("--max-time", str(seconds), "--seed", str(seed)),
        *("--exclude-checks", ",".join(LEFT_OUT), "--warnings", "off", "--continue-on-failure"),
        *("--report-dir", str(report_dir)),
    ]
    environment = {**os.environ, "NO_COLOR": "1"}
    return subprocess.run(command, cwd=report_dir, env=environment, capture_output=True, text=True, check=False)


def main() -> int:
    """Starts a stack, runs, and prints what was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_api", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=SECONDS, help="how long, at most")
    parser.add_argument("--seed", type=int, default=SEED, help="the seed of what is sent")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state, report = Path(folder, "state"), Path(folder, "report")
        report.mkdir()
        with LocalStack(state_dir=state) as stack:
            done = run(stack, seconds=options.seconds, seed=options.seed, report_dir=report)
    print(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
