"""The texts of the workload: one kilobyte each, the same in every run."""

from __future__ import annotations

import argparse
import inspect
import random
import re
import string
import textwrap
from functools import cache
from typing import Final

KILOBYTE: Final = 1024

KINDS: Final = {
    "words": "English words at random; deflates to 54 %",
    "tokens": "letters, digits and two signs at random, as in identifiers and keys; deflates to 78 %",
    "symbols": "every printable sign at random, which no text is; deflates to 86 %",
}


def text(kind: str, seed: str) -> str:
    """A kilobyte of a kind; the same for the same seed."""
    rand = random.Random(f"{kind} {seed}")
    if kind == "words":
        words = _words()
        made = ""
        while len(made) < KILOBYTE:
            made += rand.choice(words) + " "
        return made[:KILOBYTE]
    alphabet = string.ascii_letters + string.digits + "+/" if kind == "tokens" else string.printable[:95]
    return "".join(rand.choice(alphabet) for _ in range(KILOBYTE))


@cache
def _words() -> list[str]:
    source = " ".join(inspect.getsource(module) for module in (argparse, textwrap, random))
    return sorted({word.lower() for word in re.findall(r"[A-Za-z]{3,10}", source)})
