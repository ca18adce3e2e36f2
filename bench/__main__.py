"""``make bench``: measures turnkeep and, in an environment of their own, other libraries; writes the page.

    python -m bench [--no-peers] [--page docs/performance.md]

Ends with 1 where a bound of ours does not hold.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PEERS_TIMEOUT_S = 900


def main() -> int:
    """Measures and writes."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--no-peers", action="store_true", help="measure turnkeep only")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT / "layers" / "turnkeep"), str(ROOT)]
    from bench.alone import stand_alone
    from bench.measure import broken_bounds, measure_turnkeep
    from bench.report import page
    from bench.sections import carried_over

    stand_alone()
    ours = measure_turnkeep()
    peers = [] if arguments.no_peers else _measure_peers()
    old = arguments.page.read_text(encoding="utf-8") if arguments.page.exists() else ""
    arguments.page.write_text(carried_over(old, page(ours, peers)), encoding="utf-8")
    _say(f"wrote {arguments.page}")
    broken = broken_bounds(ours)
    for sentence in broken:
        _say(f"does not hold: {sentence}")
    return 1 if broken else 0


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")


def _measure_peers() -> list[dict[str, Any]]:
    if not PEERS_PYTHON.exists():
        _say(f"no {PEERS_PYTHON.relative_to(ROOT)}: the other libraries are not measured")
        return []
    found: list[dict[str, Any]] = []
    for name in ("langgraph", "strands"):
        command = [str(PEERS_PYTHON), "-m", "bench.peers", name]
        done = subprocess.run(  # noqa: S603 - our own module, by the interpreter of its own environment
            command, cwd=ROOT, capture_output=True, text=True, timeout=PEERS_TIMEOUT_S, check=False
        )
        if done.returncode:
            _say(f"{name} could not be measured:\n{done.stderr[-2_000:]}")
            continue
        found += json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
