"""The stack in containers, as `make sam-local` starts it; `make test-containers` builds what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from local.containers import docker_gateway
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
        lines = self.output.read_text("utf-8", "replace").splitlines()
        return [line.split()[1] for line in lines if line.startswith("SAM_CONTAINER_ID:")]


@pytest.fixture(scope="session")
def _docker() -> None:
    try:
        docker_gateway()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def contained(_docker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InContainers]:
    """The stack in containers, once a test process."""
    with InContainers(tmp_path_factory.mktemp("sam-local")) as stack:
        yield stack
