"""Looks at what `sam build` made: everything that is needed, nothing else, and small enough.

`python tools/check_build.py [--python python3.13]`; with a Python of the template's version it also imports every
function from the built folders alone (boto3 aside, which Lambda's runtime brings), and asks for the layers' byte code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".aws-sam" / "build"
FUNCTIONS = ("TurnFunction", "AnswerFunction", "ReadFunction", "ResumeFunction", "WorkerFunction", "ReconcileFunction")
LAYERS = ("TurnkeepLayer", "AgentLayer")
ARCHITECTURES = ("aarch64", "x86_64")
# The budget for the zipped layer. Without boto3: Lambda's runtime has one, and it is larger than all the rest.
LARGEST_LAYER_BYTES = 15 * 1024 * 1024
NEVER_SHIPPED = ("boto3", "botocore", "tests", "pip", "Makefile", "requirements.txt")
# The one kind of byte code that Lambda's Python takes as it is: its own, without a look at the source's date.
BYTE_CODE = ".cpython-313.pyc"
UNCHECKED = (1).to_bytes(4, "little")
NO_BYTE_CODE = (
    "come without byte code: every start compiles them anew and takes twice as long. With a Python 3.13 at hand "
    "(python3.13 on PATH, or pyenv's) delete .aws-sam and run make build again"
)
# Run with -I: neither the checkout nor an environment variable lends the built folders anything.
IMPORTS = """
import sys
layer, agent, function, runtime = sys.argv[1:5]
sys.path[:0] = [function, agent, layer]
sys.path.append(runtime)
import app, pydantic, turnkeep
assert callable(app.handler)
for module in (pydantic, turnkeep):
    assert module.__file__.startswith(layer), module.__file__
"""


def main() -> int:
    """Checks, says what it found, and returns 1 where something is wrong."""
    parser = argparse.ArgumentParser(description="Check what sam build made.")
    parser.add_argument("--python", help="a Python of the template's version, with boto3")
    python = parser.parse_args().python
    faults = [*_layer_faults(), *_function_faults()]
    bare = [layer for layer in LAYERS if not any((BUILD / layer).rglob("*.pyc"))]
    without = [f"{' and '.join(bare)} {NO_BYTE_CODE}"] if bare else []
    if python:
        faults += without
        unimportable = _import_faults(python)
        faults += unimportable
        print(f"build: {len(FUNCTIONS) - len(unimportable)} of {len(FUNCTIONS)} functions import as built")
    else:
        print("build: imports not tried (name a Python of the template's version by --python)")
        for sentence in without:
            print(f"build: {sentence}")
    for fault in faults:
        print(f"build: {fault}", file=sys.stderr)
    return 1 if faults else 0


def _layer_faults() -> list[str]:
    faults = []
    for layer in LAYERS:
        folder = BUILD / layer
        zipped = _zipped_bytes(folder)
        print(f"build: {layer} is {zipped / 1024:,.0f} KiB zipped")
        if zipped > LARGEST_LAYER_BYTES:
            faults.append(f"{layer} is over its budget of {LARGEST_LAYER_BYTES:,} bytes")
        faults += [f"{layer} holds {path.relative_to(folder)}" for path in _never_shipped(folder)]
        faults += [f"{layer} holds {path.relative_to(folder)}, which Lambda cannot use" for path in useless(folder)]
    python = BUILD / "TurnkeepLayer" / "python"
    wanted = {_module(name) for name in _locked()} | {"turnkeep"}
    there = {path.stem if path.suffix == ".py" else path.name for path in python.iterdir()}
    found = {name for name in there if not name.endswith((".dist-info", "__pycache__"))}
    faults += [f"TurnkeepLayer lacks {name}" for name in sorted(wanted - found)]
    faults += [f"TurnkeepLayer holds {name}, which nothing asks for" for name in sorted(found - wanted)]
    compiled = [path.name for path in python.rglob("*.so")]
    for architecture in ARCHITECTURES:
        if not any(architecture in name for name in compiled):
            faults.append(f"TurnkeepLayer has no compiled modules for {architecture}")
    return faults


def _function_faults() -> list[str]:
    faults = []
    for function in FUNCTIONS:
        held = sorted(path.name for path in (BUILD / function).iterdir())
        if held != ["app.py"]:
            faults.append(f"{function} holds {', '.join(held)} instead of app.py alone")
    return faults


def _import_faults(python: str) -> list[str]:
    runtime = subprocess.run(
        [python, "-c", "import boto3, pathlib; print(pathlib.Path(boto3.__file__).parent.parent)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    faults = []
    for function in FUNCTIONS:
        folders = [str(BUILD / "TurnkeepLayer" / "python"), str(BUILD / "AgentLayer" / "python"), str(BUILD / function)]
        done = subprocess.run(
            [python, "-I", "-B", "-c", IMPORTS, *folders, runtime], capture_output=True, text=True, check=False
        )
        if done.returncode:
            faults.append(f"{function} cannot be imported as built: {done.stderr.strip().splitlines()[-1]}")
    return faults


def _locked() -> list[str]:
    text = (ROOT / "layers" / "turnkeep" / "requirements.txt").read_text(encoding="utf-8")
    return re.findall(r"^([A-Za-z0-9_.-]+)==", text, re.MULTILINE)


def _module(distribution: str) -> str:
    return distribution.replace("-", "_").lower()


def _never_shipped(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name in NEVER_SHIPPED]


def useless(folder: Path) -> list[Path]:
    """Byte code of another Python, of no source, or such as is compared with its source's date: a zip changes that."""
    useless = []
    for path in folder.rglob("*.pyc"):
        source = path.parent.parent / path.name.replace(BYTE_CODE, ".py")
        with path.open("rb") as file:
            head = file.read(8)
        if not path.name.endswith(BYTE_CODE) or head[4:] != UNCHECKED or not source.exists():
            useless.append(path)
    return useless


def _zipped_bytes(folder: Path) -> int:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                zipped.write(path, path.relative_to(folder))
    return len(archive.getvalue())


if __name__ == "__main__":
    sys.exit(main())
