"""The product's first page: `make demo` plays twelve turns against a running stack and checks every promise itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from local.demo import Demo
from local.demo_view import View

if TYPE_CHECKING:
    from local.stack import LocalStack


@pytest.mark.process
def test_the_demo_keeps_its_promises_and_shows_them(stack: LocalStack) -> None:
    shown = io.StringIO()

    view = View(Console(file=shown, width=110))
    Demo(stack.api_url, stack.aws_url, view, state_dir=Path(stack.settings.state_dir)).play()

    text = shown.getvalue()
    assert text.count(" 409 ") == 9
    assert "Order B-200 is refunded: 250.00." in text
    assert "TURN#12" in text
    assert "SUCCEEDED" in text
