"""The stacks of the end-to-end tests: one a test process each, started when a test first asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.stages import redeliver_soon, stack_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.stack import LocalStack

LAYER = Path(__file__).parent / "layer"


@pytest.fixture(scope="session")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The checkout's template with an agent that does what it is told to, and a queue that redelivers soon."""
    with stack_with(LAYER, "asking_desk:build", tmp_path_factory.mktemp("asking")) as stack:
        redeliver_soon(stack)
        yield stack


@pytest.fixture(autouse=True)
def _calm_asking(request: pytest.FixtureRequest) -> Iterator[None]:
    """No fault of one test reaches the next."""
    yield
    if "asking" in request.fixturenames:
        request.getfixturevalue("asking").reset()
