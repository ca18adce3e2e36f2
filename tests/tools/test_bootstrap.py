"""tools/bootstrap.py, run as make runs it, against environments in a folder of their own and without a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BEGINS = "installing what is needed"


def bootstrap(venv: Path, wanted: str, *flags: str) -> subprocess.CompletedProcess[str]:
    # Whatever it wants to install, it cannot: a run that tries ends with an error.
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
    command = [sys.executable, str(ROOT / "tools" / "bootstrap.py"), *flags, "--venv", str(venv), wanted]
    return subprocess.run(
        command, env=os.environ | offline, capture_output=True, text=True, check=False, timeout=100, cwd=venv.parent
    )


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment without pip, as if everything had been installed into it."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    stamp(folder, folder, "dev")
    return folder


def stamp(venv: Path, path: Path, *locks: str) -> None:
    from tools.bootstrap import digest_of

    stamps = {lock: digest_of(lock) for lock in locks}
    (venv / "turnkeep-setup.json").write_text(json.dumps({"path": str(path), "stamps": stamps}), encoding="utf-8")


@pytest.mark.parametrize("wanted", ["dev", "run"])
def test_what_is_installed_is_left_alone(venv: Path, wanted: str) -> None:
    """All that `run` needs is in `dev` too."""
    done = bootstrap(venv, wanted, "--this-python")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_run_is_not_enough_for_dev(venv: Path) -> None:
    stamp(venv, venv, "run")
    done = bootstrap(venv, "dev")
    assert done.returncode == 1
    assert BEGINS in done.stderr


def test_a_changed_lock_is_installed(venv: Path) -> None:
    noted = json.loads((venv / "turnkeep-setup.json").read_text(encoding="utf-8"))
    noted["stamps"]["dev"] = "another"
    (venv / "turnkeep-setup.json").write_text(json.dumps(noted), encoding="utf-8")
    assert BEGINS in bootstrap(venv, "dev").stderr


def test_an_environment_that_was_moved_is_made_anew(venv: Path) -> None:
    moved = venv.with_name("moved")
    venv.rename(moved)
    done = bootstrap(moved, "dev")
    assert BEGINS in done.stderr
    assert not (moved / "turnkeep-setup.json").exists(), "it is another environment now"


def test_an_environment_whose_python_is_gone_is_made_anew(venv: Path) -> None:
    for name in venv.glob("bin/python*"):
        name.unlink()
    done = bootstrap(venv, "dev")
    assert BEGINS in done.stderr
    assert (venv / "bin" / "python").exists()


def test_a_folder_that_is_no_environment_is_not_touched(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work", encoding="utf-8")
    done = bootstrap(precious, "run")
    assert done.returncode == 1
    assert "is no virtual environment" in done.stderr
    assert (precious / "thesis.txt").read_text(encoding="utf-8") == "years of work"


def test_without_a_registry_it_says_so(venv: Path) -> None:
    shutil.rmtree(venv)
    done = bootstrap(venv, "run")
    assert done.returncode == 1
    assert "is a package registry reachable" in done.stderr
    assert "Traceback" not in done.stderr
