"""Reads what a Google docstring says of a function and of its arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"(Args|Arguments|Returns|Raises|Yields|Examples?|Notes?|Attributes|Todo|Warnings?):\s*$")
_ARGUMENT = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\([^)]*\))?:\s*(?P<text>.*)$")


@dataclass(frozen=True)
class Documented:
    """What a docstring says.

    Attributes:
        description: the text before the first section; paragraphs stay apart, lines of one are joined.
        arguments: by name, what ``Args:`` says of each.
    """

    description: str = ""
    arguments: dict[str, str] = field(default_factory=dict)


def parse_docstring(docstring: str) -> Documented:
    """Reads a docstring whose common indentation was removed (``inspect.getdoc``)."""
    about: list[str] = []
    arguments: dict[str, list[str]] = {}
    section = ""
    current: list[str] | None = None
    base: int | None = None
    for line in docstring.splitlines():
        if heading := _SECTION.match(line):
            section, current, base = heading.group(1), None, None
            continue
        if not section:
            about.append(line.strip())
            continue
        if section not in ("Args", "Arguments") or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        base = indent if base is None else base
        found = _ARGUMENT.match(line.strip()) if indent <= base else None
        if found:
            current = arguments.setdefault(found["name"], [])
            current.append(found["text"])
        elif current is not None:
            current.append(line.strip())
    paragraphs = [" ".join(part.split()) for part in "\n".join(about).split("\n\n")]
    return Documented(
        "\n\n".join(part for part in paragraphs if part),
        {name: " ".join(" ".join(parts).split()) for name, parts in arguments.items()},
    )
