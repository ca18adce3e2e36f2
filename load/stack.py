"""The local stack that is driven: the checkout's template, with an agent whose acts can be counted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from load.plan import TURN_TIME_S
from local.settings import ROOT
from local.stack import LocalStack

if TYPE_CHECKING:
    from pathlib import Path

LAYER = ROOT / "load" / "layer"
RECONCILE_S = 10
"""Each round reads eight shards of an index, which the emulator does by going through the whole table."""

# What differs from the template that ships, each at exactly one place of it.
_CHANGES = (
    ("    Handler: app.handler\n", "    Handler: metered.handler\n"),
    ("    Timeout: 29\n", f"    Timeout: {TURN_TIME_S}\n"),
    ("      ContentUri: layers/agent\n", f"      ContentUri: {LAYER}\n"),
)


class RunFolder:
    """Where one run keeps its files; removed with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.book = path / "book.jsonl"
        self.calls = path / "calls.jsonl"
        self.meter = path / "meter.jsonl"
        self.journal = path / "journal.jsonl"
        self.log = path / "functions.log"
        self.people = path / "people.json"
        self.locust_log = path / "locust.log"


def make_stack(folder: RunFolder) -> LocalStack:
    """A stack on free ports that is not started yet. Its schedule fires every few seconds instead of every minute."""
    template = folder.path / "template.yaml"
    template.write_text(load_template((ROOT / "template.yaml").read_text(encoding="utf-8")), encoding="utf-8")
    return LocalStack(
        template=template,
        state_dir=folder.path,
        parameters={"AgentFactory": "load_desk:build", "TurnTimeoutSeconds": str(TURN_TIME_S)},
        env_overrides={"LOAD_BOOK": str(folder.book), "LOAD_METER": str(folder.meter)},
        schedule_s=RECONCILE_S,
        log_file=folder.log,
    )


def load_template(text: str) -> str:
    """The template with load's agent, metered handlers and shorter turns; its paths are those of the checkout.

    Raises:
        ValueError: it no longer has one of the places that are changed.
    """
    for old, new in _CHANGES:
        if text.count(old) != 1:
            raise ValueError(f"template.yaml has {text.count(old)} lines like {old.strip()!r}, not one")
        text = text.replace(old, new)
    return re.sub(r"(CodeUri|ContentUri|DefinitionUri): (?=[a-z])", rf"\1: {ROOT}/", text)
