"""Resolves the requirement files: `python tools/lock.py [--upgrade]`.

Every file is resolved for all platforms and for Python 3.11 and newer, with hashes and without the address of any
registry. `dev` comes first; `run` and the layer take its versions, so that what is tested is what runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYER = "layers/turnkeep/pyproject.toml"
DEV = "requirements/dev.txt"

# (what is wanted, where it goes, further options)
LOCKS = (
    (("requirements/uv.in",), "requirements/uv.txt", ()),
    (
        (LAYER, "requirements/run.in", "requirements/dev.in", "requirements/uv.in"),
        DEV,
        ("--extra", "aws", "--extra", "strands", "--extra", "pydantic-ai"),
    ),
    ((LAYER, "requirements/run.in", "requirements/uv.in"), "requirements/run.txt", ("--extra", "aws", "-c", DEV)),
    ((LAYER,), "layers/turnkeep/requirements.txt", ("--python-version", "3.13", "-c", DEV)),
    (("requirements/sam.in", "requirements/uv.in"), "requirements/sam.txt", ()),
    (("requirements/load.in", "requirements/uv.in"), "requirements/load.txt", ()),
    (("requirements/checkov.in", "requirements/uv.in"), "requirements/checkov.txt", ()),
)


def main() -> int:
    """Runs uv for each file; what is locked already stays unless it is asked to be upgraded."""
    upgrade = [flag for flag in sys.argv[1:] if flag == "--upgrade"]
    for wanted, lock, options in LOCKS:
        version = () if "--python-version" in options else ("--python-version", "3.11")
        command = [
            *("uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
            *("--no-emit-index-url", "--no-emit-find-links", "--no-annotate"),
            *("--custom-compile-command", "make lock", *version, *options, *upgrade),
            *(*wanted, "--output-file", lock),
        ]
        done = subprocess.run([Path(sys.executable).with_name("uv"), *command[1:]], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
        print(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
