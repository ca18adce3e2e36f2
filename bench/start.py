"""``make bench-start``: how long a function takes to start, beside the least that any function on DynamoDB takes.

    python -m bench.start [--python PATH …] [--rounds 25] [--page docs/performance.md]

Each start is a fresh process that imports what `sam build` made, as Lambda does, and makes the first client as the
first request would. It is held against ``import boto3; boto3.client("dynamodb")`` in another fresh process of the same
round. Ends with 1 where the turn function costs more than ``BOUND`` of that.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.sections import with_section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / ".aws-sam" / "build"
LAMBDA_PYTHON: Final = ROOT / ".venv-3.13" / "bin" / "python"
FUNCTIONS: Final = ("TurnFunction", "AnswerFunction", "ReadFunction", "ResumeFunction", "WorkerFunction",
                    "ReconcileFunction")  # fmt: skip
LAYERS: Final = ("TurnkeepLayer", "AgentLayer")
BOUND: Final = 1.35
ROUNDS: Final = 25
IMPORT_RUNS: Final = 9
SHOWN_IMPORTS: Final = 12
CONTROL: Final = "boto3's client"
NO_BYTE_CODE: Final = "TurnFunction, without byte code"

# Both are run with -I -B: no environment variable takes part, and nothing is written beside what is measured.
BEGUN = "import sys, time; cpu, wall = time.process_time(), time.perf_counter()"
ENDED = """
cpu, wall, alone = time.process_time() - cpu, time.perf_counter() - wall, cpu
import json
print(json.dumps({"alone": alone, "cpu": cpu, "wall": wall, "modules": len(sys.modules)}))
"""
CONTROL_START = """
import boto3
boto3.client("dynamodb")
"""
FUNCTION_START = """
sys.path[:0] = sys.argv[1:]
import app
from turnkeep.entry.wiring import deps_for
deps_for(None)
"""

# What the template's variables are set to where they name something of the stack.
PLACES: Final = {
    "TURNKEEP_TABLE": "turnkeep-Ledger",
    "TURNKEEP_STATE_MACHINE_ARN": "arn:aws:states:eu-central-1:123456789012:stateMachine:turnkeep-paused-run",
    "TURNKEEP_QUEUE_URL": "https://sqs.eu-central-1.amazonaws.com/123456789012/turnkeep-turns.fifo",
    "POWERTOOLS_SERVICE_NAME": "turnkeep",
}


@dataclass(frozen=True)
class Start:
    """One start of one process.

    Attributes:
        alone_s: processor time of the interpreter before the first line ran.
        cpu_s: processor time of the start itself, all threads.
        wall_s: the same by the clock.
        modules: imported in the end.
    """

    alone_s: float
    cpu_s: float
    wall_s: float
    modules: int


@dataclass(frozen=True)
class Measured:
    """What a Python's starts came to, each by its name, in the order of the rounds."""

    version: str
    botocore: str
    starts: dict[str, list[Start]]
    imports: list[Import]

    def times(self, name: str) -> float:
        """How many times the control's processor time a start takes, the least of the rounds each.

        What else a machine does adds to some rounds and never takes away; on a busy one medians tell of that.
        """
        least_s, control_s = (min(start.cpu_s for start in self.starts[which]) for which in (name, CONTROL))
        return least_s / control_s


@dataclass(frozen=True)
class Import:
    """A module's own time in the turn function's start, without what it imports itself.

    Attributes:
        is_shared: whether the control imports it as well.
    """

    module: str
    own_us: int
    is_shared: bool


def main() -> int:
    """Measures, prints, and writes the page's section anew."""
    parser = argparse.ArgumentParser(prog="bench.start", description=__doc__)
    parser.add_argument("--python", action="append", type=Path, help="measured with; the first is the page's")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
    arguments = parser.parse_args()
    if not (BUILD / "TurnFunction" / "app.py").exists():
        sys.stderr.write("bench: there is no build to measure; run make build\n")
        return 1
    found = []
    for python in arguments.python or _pythons():
        with tempfile.TemporaryDirectory() as folder:
            found.append(measure(python.absolute(), Path(folder), arguments.rounds))
        sys.stdout.write(f"Python {found[-1].version}\n\n{as_tables(found[-1])}\n\n")
    page: Path = arguments.page
    page.write_text(with_section(page.read_text("utf-8"), "bench/start.py", as_section(found)), "utf-8")
    broken = [one for one in found if one.times("TurnFunction") > BOUND]
    for one in broken:
        sys.stderr.write(
            f"bench: on Python {one.version} the turn function's start is {one.times('TurnFunction'):.2f} times "
            f"boto3's client; the bound is {BOUND}\n"
        )
    return 1 if broken else 0


def _pythons() -> list[Path]:
    """Lambda's Python where there is an environment of it, and this one."""
    ours = Path(sys.executable)
    return [LAMBDA_PYTHON, ours] if LAMBDA_PYTHON.exists() and sys.version_info[:2] != (3, 13) else [ours]


# --- measuring ----------------------------------------------------------------------------------------------


def measure(python: Path, folder: Path, rounds: int) -> Measured:
    """Starts everything once a round, one after the other, in an order that moves on from round to round."""
    built, bare = folder / "built", folder / "bare"
    shutil.copytree(BUILD, built)
    shutil.copytree(BUILD, bare, ignore=shutil.ignore_patterns("__pycache__"))
    version, tag, botocore = _ask(python)
    if not any(built.rglob(f"*.{tag}.pyc")) and tag != "cpython-313":
        # The build is for Lambda's Python. Another one is given what the build gives that.
        _run([str(python), "-m", "compileall", "-qq", *(str(built / layer) for layer in LAYERS)], folder, check=False)
    _warm(python, folder)
    commands = {CONTROL: _code(CONTROL_START)}
    commands |= {function: _code(FUNCTION_START, *_paths(built, function)) for function in FUNCTIONS}
    commands[NO_BYTE_CODE] = _code(FUNCTION_START, *_paths(bare, "TurnFunction"))
    names = list(commands)
    starts: dict[str, list[Start]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            starts[name].append(_start([str(python), "-I", "-B", *commands[name]], folder))
    return Measured(version, botocore, starts, _imports(python, commands, folder))


def _ask(python: Path) -> tuple[str, str, str]:
    code = (
        "import sys, json, platform, botocore; "
        "print(json.dumps([platform.python_version(), sys.implementation.cache_tag, botocore.__version__]))"
    )
    version, tag, botocore = json.loads(_run([str(python), "-I", "-c", code], ROOT).stdout)
    return version, tag, botocore


def _warm(python: Path, folder: Path) -> None:
    """Lets Python keep the byte code of boto3 and of its own library, which Lambda's runtime brings."""
    _run([str(python), "-I", *_code(CONTROL_START)], folder)


def _code(body: str, *arguments: str) -> list[str]:
    return ["-c", f"{BEGUN}\n{body}\n{ENDED}", *arguments]


def _paths(tree: Path, function: str) -> list[str]:
    return [str(tree / function), *(str(tree / layer / "python") for layer in LAYERS)]


def _start(command: Sequence[str], folder: Path) -> Start:
    said = json.loads(_run(command, folder).stdout.splitlines()[-1])
    return Start(said["alone"], said["cpu"], said["wall"], said["modules"])


def _imports(python: Path, commands: Mapping[str, list[str]], folder: Path) -> list[Import]:
    """The turn function's modules by their own time, the least of some runs, dearest first."""
    turn, control = (
        _own_us([str(python), "-I", "-B", "-X", "importtime", *commands[name]], folder)
        for name in ("TurnFunction", CONTROL)
    )
    found = [Import(module, own_us, module in control) for module, own_us in turn.items()]
    return sorted(found, key=lambda one: -one.own_us)


def _own_us(command: Sequence[str], folder: Path) -> dict[str, int]:
    least: dict[str, int] = {}
    for _ in range(IMPORT_RUNS):
        said = _run(command, folder).stderr
        for own_us, module in re.findall(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", said, re.MULTILINE):
            least[module] = min(int(own_us), least.get(module, sys.maxsize))
    return least


def _run(command: Sequence[str], folder: Path, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(  # noqa: S603 - our own code, by the interpreters that the caller named
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        raise RuntimeError(f"a start failed:\n{done.stderr[-2_000:]}")
    return done


def environment(home: Path) -> dict[str, str]:
    """A function's environment: the template's variables at their parameters' defaults, and Lambda's own."""
    from local.template import load_yaml

    template = load_yaml((ROOT / "template.yaml").read_text("utf-8"))
    variables = {}
    for name, value in template["Globals"]["Function"]["Environment"]["Variables"].items():
        if isinstance(value, dict) and set(value) == {"Ref"} and value["Ref"] in template["Parameters"]:
            variables[name] = str(template["Parameters"][value["Ref"]].get("Default", ""))
        elif not isinstance(value, dict):
            variables[name] = str(value)
    return {
        **variables,
        **PLACES,
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_SESSION_TOKEN": "bench",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "LANG": "en_US.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),  # nobody's own settings of AWS
    }


# --- telling ------------------------------------------------------------------------------------------------


def as_tables(one: Measured) -> str:
    """A Python's figures as two tables of Markdown."""
    lines = [
        "| start | processor ms: least | median | by the clock, median ms | modules | times boto3's client |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    alone_ms = [1000 * start.alone_s for start in one.starts[CONTROL]]
    lines.append(f"| Python alone | {min(alone_ms):.0f} | {statistics.median(alone_ms):.0f} | | | |")
    for name, starts in one.starts.items():
        cpu_ms, wall_ms = ([1000 * value for value in values] for values in _columns(starts))
        by_the_clock = statistics.median(wall_ms)
        lines.append(
            f"| {_shown(name)} | {min(cpu_ms):.0f} | {statistics.median(cpu_ms):.0f} | {by_the_clock:.0f} "
            f"| {starts[0].modules} | {one.times(name):.2f} |"
        )
    return "\n".join([*lines, "", *_import_lines(one.imports)])


def _columns(starts: Iterable[Start]) -> tuple[list[float], list[float]]:
    return [start.cpu_s for start in starts], [start.wall_s for start in starts]


def _shown(name: str) -> str:
    return f"`{name}`" if name in FUNCTIONS else name


def _import_lines(imports: Sequence[Import]) -> list[str]:
    lines = ["| imported by the turn function | modules | own time, ms | of them not boto3's |", "|---|---:|---:|---:|"]
    packages: dict[str, list[Import]] = {}
    for one in imports:
        packages.setdefault(_package(one.module), []).append(one)
    for package, members in sorted(packages.items(), key=lambda item: -sum(one.own_us for one in item[1])):
        own_ms, more_ms = (
            sum(one.own_us for one in members if not (is_more and one.is_shared)) / 1000 for is_more in (False, True)
        )
        lines.append(f"| {package} | {len(members)} | {own_ms:.1f} | {more_ms:.1f} |")
    more = [one for one in imports if not one.is_shared][:SHOWN_IMPORTS]
    told = ", ".join(f"`{one.module}` {one.own_us / 1000:.1f}" for one in more)
    return [*lines, "", f"The dearest of those that boto3's client does not need (own ms): {told}."]


def _package(module: str) -> str:
    top = module.partition(".")[0]
    return f"`{top}`" if top in {"turnkeep", "app", "aws_lambda_powertools", "botocore", "urllib3"} else "the others"


def as_section(found: Sequence[Measured]) -> str:
    """What the page says."""
    first = found[0]
    others = "".join(
        f" On Python {one.version} the turn function's is {one.times('TurnFunction'):.2f} (not Lambda's Python)."
        for one in found[1:]
    )
    return f"""## How long a function takes to start

Written by `make bench-start`, which fails where the turn function's start costs more than {BOUND} times
`import boto3; boto3.client("dynamodb")`, the least that a function on DynamoDB pays. It is
**{first.times("TurnFunction"):.2f}** here.{others}

Each start is a fresh process: {len(first.starts[CONTROL])} rounds, each of which starts everything once, in an order
that moves on. What runs is what `sam build` made, on Python {first.version} with botocore {first.botocore}, in the
environment that the template sets: the handler's module is imported, and the ports of a first request are made, the
client of DynamoDB among them. It is measured inside the process, from its first line on, so that Python's own start
counts for neither. Processor time (user and system, all threads) is what is compared, the least of the rounds with the
least: the clock, and medians on a busy machine, also count what else that does. boto3 has its byte code, as Lambda's
own is taken to have.

{as_tables(first)}
"""


if __name__ == "__main__":
    sys.exit(main())
