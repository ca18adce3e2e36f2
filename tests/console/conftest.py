"""A stack, its console and a real browser. Where there is no Chromium, what needs one is skipped and says so."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local.console.page import Page as Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.stack import LocalStack

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 30_000  # two cores, shared with the other tests


@pytest.fixture(scope="session")
def console(stack: LocalStack) -> Iterator[Console]:
    """The console of the shared stack."""
    page = Console(stack.api_url, stack.aws_url, state_dir=Path(stack.settings.state_dir))
    page.start()
    yield page
    page.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium a file: while it is there, Playwright's event loop runs in this thread, and no other test's may."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (apt-get install chromium, or name one in CHROMIUM)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any, console: Console) -> Iterator[Any]:
    """Opens a page of its own person: its own storage. At the end nothing may have failed or gone elsewhere."""
    with pages_of(browser, console) as open_one:
        yield open_one


@contextmanager
def pages_of(browser: Any, console: Console) -> Iterator[Any]:
    """Opens pages of a console; at the end nothing may have failed in them, and nothing may have gone elsewhere."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_one(fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 860}, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: None if request.url.startswith(console.url) else wrong.append(f"elsewhere: {request.url}"),
        )
        page.goto(f"{console.url}/{fragment}")
        return page

    try:
        yield open_one
    finally:
        for context in contexts:
            context.close()
    assert wrong == []
