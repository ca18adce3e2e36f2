"""Sets up a virtual environment in the checkout: `python bootstrap.py --venv .venv dev`.

Standard library only, and readable by any Python 3, so that an old one gets a sentence instead of a syntax error. The
environment gets a pinned uv from pip, and uv installs a locked requirement file by its hashes. A stamp in the
environment makes the next call return at once; an environment that is broken, has moved, or was made by a Python that
does not fit is made anew.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
OLDEST = (3, 11)
# What holds for one holds for the other: dev contains run, at the same versions.
CONTAINED_IN = {"run": ("run", "dev"), "dev": ("dev",), "sam": ("sam",), "load": ("load",), "checkov": ("checkov",)}


def main() -> int:
    """Reads the arguments, sets up, and says what went wrong in one sentence."""
    parser = argparse.ArgumentParser(description="Set up a virtual environment from a locked requirement file.")
    parser.add_argument("requirements", choices=sorted(CONTAINED_IN))
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--this-python", action="store_true", help="an environment of another version is made anew")
    arguments = parser.parse_args()
    venv = (ROOT / arguments.venv).resolve()
    try:
        set_up(venv, arguments.requirements, this_python=arguments.this_python)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


class SetupError(Exception):
    """A sentence for the person at the terminal."""


def set_up(venv: Path, name: str, *, this_python: bool) -> None:
    """Makes the environment hold the requirements; does nothing where it does already."""
    if sys.version_info < OLDEST:
        raise SetupError(
            f"turnkeep needs Python {_dotted(OLDEST)} or newer, and {sys.executable} is "
            f"{_dotted(sys.version_info[:2])}; name another one: make run PYTHON=/path/to/python3"
        )
    wanted = {lock: digest_of(lock) for lock in CONTAINED_IN[name]}
    found = _inspect(venv)
    if found and this_python and tuple(found["python"][:2]) != sys.version_info[:2]:
        found = None
    if found and any(found["stamps"].get(lock) == digest for lock, digest in wanted.items()):
        return
    print(f"setup: installing what is needed into {_shown(venv)} (once; about half a minute) …", file=sys.stderr)
    if not found:
        _create(venv)
    _install(venv, name)
    stamps = dict(found["stamps"]) if found else {}
    stamps[name] = wanted[name]
    _stamp_file(venv).write_text(json.dumps({"path": str(venv), "stamps": stamps}), encoding="utf-8")


def _dotted(version: "tuple[int, ...]") -> str:
    return ".".join(map(str, version))


def digest_of(lock: str) -> str:
    """What a stamp notes of a requirement file: two that differ are installed anew."""
    content = (REQUIREMENTS / f"{lock}.txt").read_bytes() + (REQUIREMENTS / "uv.txt").read_bytes()
    return hashlib.sha256(content).hexdigest()


def _stamp_file(venv: Path) -> Path:
    return venv / "turnkeep-setup.json"


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"


def _inspect(venv: Path) -> "dict[str, Any] | None":
    """What the environment is: its Python's version and its stamps; None where it cannot be used."""
    if not _python(venv).exists():
        return None
    question = "import json, sys; print(json.dumps(sys.version_info[:3]))"
    answer = subprocess.run([_python(venv), "-c", question], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return None
    python = json.loads(answer.stdout)
    try:
        noted = json.loads(_stamp_file(venv).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        noted = {"path": str(venv), "stamps": {}}
    # Scripts name their Python by its full path: a folder that was moved or copied would start another place's.
    if tuple(python[:2]) < OLDEST or noted["path"] != str(venv):
        return None
    return {"python": python, "stamps": noted["stamps"]}


def _create(venv: Path) -> None:
    if venv.exists() and not (venv / "pyvenv.cfg").exists():
        raise SetupError(f"{_shown(venv)} exists and is no virtual environment; move it away, or set VENV=other-folder")
    shutil.rmtree(venv, ignore_errors=True)
    try:
        import ensurepip  # noqa: F401
        import venv as venv_module  # noqa: F401
    except ImportError as error:
        raise SetupError(
            f"this Python ({sys.executable}) has no {error.name}; on Debian and Ubuntu: "
            f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        ) from None
    _run((sys.executable, "-m", "venv", str(venv)))


def _install(venv: Path, name: str) -> None:
    """Installs by uv; where uv cannot (a company's certificate, an index that only pip is told of), by pip."""
    requirements = ("--require-hashes", "-r", str(REQUIREMENTS / f"{name}.txt"))
    pip = (str(_python(venv)), "-m", "pip", "install", "--disable-pip-version-check", "-qq")
    _run((*pip, "--require-hashes", "-r", str(REQUIREMENTS / "uv.txt")))
    uv = (str(venv / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(_python(venv)))
    attempts = ((*uv, *requirements), (*uv, "--system-certs", *requirements), (*pip, *requirements))
    for attempt in attempts[:-1]:
        if _run(attempt, last=False):
            return
    _run(attempts[-1])


def _run(command: "tuple[str, ...]", *, last: bool = True) -> bool:
    """Runs a command. Its complaint is shown, and ends the set-up, only where nothing else can be tried."""
    # An environment that is active in the caller's shell is not the one that is meant.
    environment = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONHOME")}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=not last)
    if done.returncode != 0 and last:
        raise SetupError(f"`{' '.join(command)}` failed (see above); is a package registry reachable from here?")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
