"""What the stack's two commands, ``python -m local`` and ``python -m local.sam``, share at their edges."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


def port(text: str) -> int:
    """A port as an argument: 0 takes a free one."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def stop_with_parent(stop: threading.Event) -> None:
    """Whoever started the stack holds its standard input open; when that ends, so does the stack."""
    while sys.stdin.read(1):
        pass
    stop.set()


def give_up(command: str, reason: str, *, supervised: bool) -> int:
    """Says why the stack does not start, to a person and to a program that waits for it; the exit code."""
    if supervised:
        print(json.dumps({"refused": reason}), flush=True)
    print(f"{command}: {reason}", file=sys.stderr)
    return 2
