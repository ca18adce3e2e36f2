"""The API against its own description, over HTTP: a short run of what `make api` does for longer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tools.fuzz_api import SEED, run

if TYPE_CHECKING:
    from pathlib import Path

    from local.stack import LocalStack

SECONDS = int(os.environ.get("TURNKEEP_FUZZ_S", "15"))


@pytest.mark.process
@pytest.mark.timeout(SECONDS + 120)
def test_every_reply_is_one_that_is_described(stack: LocalStack, tmp_path: Path) -> None:
    done = run(stack, seconds=SECONDS, seed=SEED, report_dir=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No issues found" in done.stdout
