"""Fixtures that every area shares: one local stack a test process, started when a test first asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# How fast a machine is says nothing about a property: no example fails for being slow.
settings.register_profile("turnkeep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turnkeep")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The checkout's own template, deployed; data stays from test to test, so tests use names of their own."""
    with LocalStack(state_dir=_state_dir(tmp_path_factory)) as running:
        yield running


@pytest.fixture(autouse=True)
def _calm_stack(request: pytest.FixtureRequest) -> Iterator[None]:
    """No fault and no environment of one test reaches the next."""
    yield
    for name in ("stack", "toy"):
        if name in request.fixturenames:
            request.getfixturevalue(name).reset()


def _state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")
