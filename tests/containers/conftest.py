"""The stack in containers, as `make sam-local` starts it; `make test-containers` builds what it needs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from local.containers import CONTAINER
from local.settings import ROOT
from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAM = ROOT / ".venv-sam" / "bin" / "sam"


@dataclass(frozen=True)
class Door:
    """Where a person sends requests to."""

    api_url: str


class InContainers(LocalStack):
    """`python -m local.sam`: `api_url` is `sam local start-api`, `gateway` the same containers behind tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.config = folder / "samconfig.toml"
        self.output = folder / "output.txt"
        self.command = ("local.sam", "--port", "0", "--lambda-port", "0", "--state-dir", str(folder))
        self.command += ("--log-file", str(self.output))

    @property
    def gateway(self) -> Door:
        """The other door."""
        return Door(self.addresses["gateway_url"])

    def containers(self) -> list[str]:
        """The container of every invocation so far, in sam's own words."""
        return [found.decode() for found in CONTAINER.findall(self.output.read_bytes())]


def running() -> set[str]:
    """Every container that there is."""
    listed = ["docker", "ps", "--all", "--quiet", "--no-trunc"]
    return set(subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture(scope="session")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InContainers]:
    """The stack in containers, once a test process."""
    with InContainers(tmp_path_factory.mktemp("sam-local")) as stack:
        yield stack
    assert running().isdisjoint(stack.containers()), "containers are left behind"
