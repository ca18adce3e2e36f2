"""Ledger items as a person reads them: the wire's types taken off, deflated JSON inflated by the library's codec."""

from __future__ import annotations

import sys
from typing import Any

from local.settings import ROOT


def decoded(item: dict[str, Any]) -> dict[str, str]:
    """An item's attributes as text, by name. What cannot be inflated (a part of something large) is described."""
    raw = {name: next(iter(value.values())) for name, value in item.items()}
    texts: dict[str, str] = {}
    for name in sorted(raw, key=lambda name: name == "body"):
        behind = texts.get("user", "") if name == "body" else ""
        texts[name] = _text(raw[name], behind)
    return {name: texts[name] for name in item}


def size_bytes(item: dict[str, Any]) -> int:
    """About what the item takes in the table: names and values."""
    values = ((name, next(iter(value.values()))) for name, value in item.items())
    return sum(len(name.encode()) + len(v if isinstance(v, bytes) else str(v).encode()) for name, v in values)


def _text(value: Any, behind: str) -> str:
    if not isinstance(value, bytes):
        return str(value)
    layer = str(ROOT / "layers" / "turnkeep")
    if layer not in sys.path:
        sys.path.append(layer)
    from turnkeep.ledger.codec import unpack_text

    try:
        return unpack_text(value, behind=behind)
    except ValueError:
        return f"({len(value)} bytes, a part of something larger)"
