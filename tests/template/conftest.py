"""template.yaml as it is written, and as CloudFormation gets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from local.template import load_yaml, transform_template

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def source() -> dict[str, Any]:
    """The SAM template, short forms spelled out."""
    loaded: dict[str, Any] = load_yaml((ROOT / "template.yaml").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="session")
def plain() -> dict[str, Any]:
    """The plain template that the SAM transform makes of it."""
    return transform_template(ROOT / "template.yaml", {}, None).plain
