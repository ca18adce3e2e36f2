"""Makes the README's pictures of the local console: `make screenshots` writes docs/images/*.png.

Starts a stack of its own, uses the page as a person would, and needs Chromium (`chromium` on PATH, or CHROMIUM).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from local.console.page import Page as Console
from local.stack import LocalStack

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
LIMIT_BYTES = 300_000
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
SETTLED_MS = 1_500  # a round of reading and drawing
PATIENCE_MS = 60_000


def main() -> int:
    """Makes every picture. Exit code 2: there is no Chromium; 1: a picture is too large."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("screenshots: there is no Chromium here; install one, or name it in CHROMIUM", file=sys.stderr)
        return 2
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as state,
        LocalStack(state_dir=Path(state)) as stack,
        sync_playwright() as playwright,
    ):
        console = Console(stack.api_url, stack.aws_url, state_dir=Path(state))
        console.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1240, "height": 780}, locale="en-GB", timezone_id="UTC")
        page.set_default_timeout(PATIENCE_MS)
        page.goto(console.url)
        play(page)
        browser.close()
        console.stop()
    large = [path.name for path in sorted(IMAGES.glob("console-*.png")) if path.stat().st_size >= LIMIT_BYTES]
    if large:
        print(f"screenshots: larger than {LIMIT_BYTES} bytes: {', '.join(large)}", file=sys.stderr)
    return 1 if large else 0


def play(page: Page) -> None:
    """A short conversation, and a picture at each of its high points."""
    page.fill("#new-id", "a-lamp-and-a-chair")
    say(page, "Where is order A-100?")
    page.wait_for_selector("h2:text-is('a-lamp-and-a-chair')")
    say(page, "Refund order A-100, please")
    say(page, "And where is order B-200?", "#contest")
    page.wait_for_selector(".lanes")
    take(page, "console-double-submit")
    say(page, "Refund order B-200, please")
    page.wait_for_selector(".ask")
    take(page, "console-chat")
    page.click("nav [data-view=paused]")
    page.wait_for_selector(".state.active")
    take(page, "console-paused")
    page.click(".waiting button.good")
    page.wait_for_selector(".detail .is-succeeded")
    page.emulate_media(color_scheme="dark")
    take(page, "console-resumed-dark")
    page.emulate_media(color_scheme="light")
    page.click("nav [data-view=why]")
    page.wait_for_selector(".step.answer")
    take(page, "console-why")
    page.click("nav [data-view=chat]")
    for message in ("Thank you", "Where is order A-100?", "Hello again", "Where is order B-200?"):
        say(page, message)
    page.click("nav [data-view=ledger]")
    page.wait_for_selector(".plot")
    take(page, "console-ledger")
    page.set_viewport_size({"width": 390, "height": 780})
    page.click("nav [data-view=chat]")
    page.wait_for_selector(".turn")
    take(page, "console-phone")


def say(page: Page, message: str, button: str = "#send") -> None:
    """Sends a message and waits for its answer."""
    page.fill("#message", message)
    page.click(button)
    page.wait_for_selector("#send:enabled")


def take(page: Page, name: str) -> None:
    """One picture of what is seen."""
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")
    print(f"docs/images/{name}.png")


if __name__ == "__main__":
    sys.exit(main())
