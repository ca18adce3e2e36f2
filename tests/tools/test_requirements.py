"""The locked requirement files: what is tested is what runs, and nothing in them names a machine or a registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYER = "layers/turnkeep/requirements.txt"
LOCKS = (
    "requirements/dev.txt",
    "requirements/run.txt",
    "requirements/sam.txt",
    "requirements/load.txt",
    "requirements/checkov.txt",
    "requirements/uv.txt",
    LAYER,
)


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", text, re.MULTILINE)
    assert found
    return dict(found)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_by_hashes(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_a_registry_or_a_path(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|file:|^\s*#.*/", text, re.MULTILINE)


@pytest.mark.parametrize("lock", ["requirements/run.txt", LAYER])
def test_what_runs_is_what_was_tested(lock: str) -> None:
    assert pins(lock).items() <= pins("requirements/dev.txt").items()


def test_one_uv_installs_everything() -> None:
    uv = pins("requirements/uv.txt")["uv"]
    locks = ("dev", "run", "sam", "load", "checkov")
    assert {pins(f"requirements/{name}.txt")["uv"] for name in locks} == {uv}


def test_the_layer_holds_what_turnkeep_asks_for_and_no_boto3() -> None:
    project = tomllib.loads((ROOT / "layers/turnkeep/pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=~!\[]", dependency)[0] for dependency in project["dependencies"]}
    assert wanted <= set(pins(LAYER))
    assert not {"boto3", "botocore"} & set(pins(LAYER)), "Lambda's runtime brings them"
