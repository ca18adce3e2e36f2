"""The stage as a fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from tests.functions.stage import REGION, Stage, build_stage

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield build_stage(monkeypatch.setenv)
