"""Nothing of the caller's own AWS settings takes part in what is measured here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bench.turnkeep_turn import REGION

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def _no_account_of_the_callers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
            patch.delenv(name)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        yield
