"""The stack of this area: a small application that uses what the local stack has to hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator

TOY = Path(__file__).parent / "toy" / "template.yaml"


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The toy application, deployed once a test process."""
    settings = {"Greeting": "good day", "CorsOrigins": "https://shop.example"}
    with LocalStack(template=TOY, state_dir=tmp_path_factory.mktemp("toy-state"), parameters=settings) as running:
        yield running
