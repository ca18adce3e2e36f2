"""The endpoint with a table of its own, and the forge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.forge import Forge
from tests.process.worker import make_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.stack import LocalStack


@pytest.fixture(scope="session")
def forge(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    make_table(stack.aws_url)
    running = Forge(stack.aws_url, tmp_path_factory.mktemp("forge"))
    yield running
    running.stop()
