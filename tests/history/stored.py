"""Stored items as JSON files and back: what a release really put into the table, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnkeep.ledger.memory import MemoryItemStore
from turnkeep.ledger.store import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.store import Item, Value

HERE = Path(__file__).parent
CHECKSUMS = "SHA256SUMS"
LONG = 300


def to_json(item: Item) -> dict[str, dict[str, str]]:
    """An item in DynamoDB's own JSON: ``{"S": text}``, ``{"N": digits}``, ``{"B": base64}``."""
    return {name: _typed(value) for name, value in sorted(item.items())}


def _typed(value: Value) -> dict[str, str]:
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode()}
    return {"N": str(value)}


def from_json(found: dict[str, dict[str, str]]) -> Item:
    """The inverse of ``to_json``."""
    return {name: _plain(typed) for name, typed in found.items()}


def _plain(typed: dict[str, str]) -> Value:
    ((kind, text),) = typed.items()
    return text if kind == "S" else base64.b64decode(text, validate=True) if kind == "B" else int(text)


@dataclass(frozen=True)
class History:
    """One recorded conversation.

    Attributes:
        path: its file.
        about: what happened in it, in words.
        now_ms: when it was recorded.
        items: what lay in the table then.
        expect: what the release that recorded it read there.
    """

    path: Path
    about: str
    now_ms: int
    items: Sequence[Item]
    expect: dict[str, Any]

    def table(self) -> MemoryItemStore:
        """A table that holds exactly these items."""
        store = MemoryItemStore()
        store.write([Put(item) for item in self.items])
        return store


def shortened(value: Any) -> Any:
    """The value with long texts as their hashes: enough to tell them apart, and short enough to read a file."""
    if isinstance(value, str) and len(value) > LONG:
        return {"sha256": hashlib.sha256(value.encode()).hexdigest(), "characters": len(value)}
    if isinstance(value, list):
        return [shortened(one) for one in value]
    if isinstance(value, dict):
        return {name: shortened(one) for name, one in value.items()}
    return value


def checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each history in a release's folder."""
    files = sorted(folder.glob("*.json"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def write_checksums(folder: Path) -> None:
    """Writes them beside the histories, in the form of ``sha256sum``."""
    lines = [f"{digest}  {name}\n" for name, digest in checksums(folder).items()]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def histories() -> list[History]:
    """Every conversation of every release, oldest release first."""
    return [_read(path) for path in sorted(HERE.glob("*/*.json"))]


def _read(path: Path) -> History:
    found = json.loads(path.read_text(encoding="utf-8"))
    items = [from_json(item) for item in found["items"]]
    return History(path, found["about"], found["nowMs"], items, found["expect"])


def write(path: Path, about: str, now_ms: int, items: Sequence[Item], expect: dict[str, Any]) -> None:
    """Writes a history, once: a file that is there stays as it is.

    Raises:
        FileExistsError: it is there.
    """
    text = json.dumps(
        {"about": about, "nowMs": now_ms, "expect": expect, "items": [to_json(item) for item in items]},
        ensure_ascii=False,
        indent=1,
    )
    path.parent.mkdir(exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text + "\n")
