"""What the commands print: plain text, and a table drawn by rich where that is installed and somebody looks."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from turnkeep.ids import to_base64url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.operator import PausedTurn

DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60


def iso(time_ms: int) -> str:
    """A time as people read it: ISO 8601 in UTC, to the second."""
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{time_ms} ms"
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


def span(duration_ms: int) -> str:
    """A span of time in its largest two units, such as ``2 d 3 h``."""
    left_s = max(0, duration_ms) // 1000
    parts: list[str] = []
    for name, size_s in (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1)):
        count, left_s = divmod(left_s, size_s)
        if count or (name == "s" and not parts):
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def paused_rows(rows: Sequence[PausedTurn], now_ms: int) -> list[tuple[str, ...]]:
    """The lines of ``turnkeep paused``, the header first."""
    lines: list[tuple[str, ...]] = [("CONVERSATION", "TURN", "ASK", "FOR", "AGE", "EXPIRES", "QUESTION")]
    for row in rows:
        where = named(row.key.conversation_id)
        if row.key.tenant is not None:
            where = f"{where} ({row.key.tenant})"
        if row.unreadable is not None:
            lines.append((one_line(where), str(row.turn), "?", "?", "?", "?", f"unreadable: {row.unreadable}"))
            continue
        left_ms = row.expires_at_ms - now_ms
        lines.append(
            (
                one_line(where),
                str(row.turn),
                row.ask_id,
                row.audience,
                span(now_ms - row.asked_at_ms),
                f"in {span(left_ms)}" if left_ms > 0 else "expired",
                one_line(row.question or "(no words)"),
            )
        )
    return lines


def named(conversation_id: str) -> str:
    """An id as it is printed, and as a command takes it: as it is where it can be typed, else as in a path."""
    return conversation_id if _is_typed(conversation_id) else f"~{to_base64url(conversation_id.encode())}"


def _is_typed(conversation_id: str) -> bool:
    return conversation_id.isprintable() and not conversation_id.startswith(("~", "-", " "))


def show_table(lines: Sequence[tuple[str, ...]]) -> None:
    """Prints lines in columns."""
    if sys.stdout.isatty() and _show_rich(lines):
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        print("  ".join([*cells, line[-1]]).rstrip())


def _show_rich(lines: Sequence[tuple[str, ...]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(*lines[0], box=None, pad_edge=False)
    for line in lines[1:]:
        table.add_row(*(Text(cell) for cell in line))
    Console().print(table)
    return True


def one_line(text: str) -> str:
    """A text without control characters, so that what somebody asked cannot move a terminal's cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def why_text(record: TurnRecord) -> list[str]:
    """A turn's evidence as lines to read: what was looked at, what was called, what was decided, how it ended."""
    lines = [f"Turn {record.turn}: {record.status.value}, run {record.run_id or '-'}, attempt {record.attempt}"]
    agent = " ".join(part for part in (record.agent_id, record.agent_version) if part)
    if agent:
        lines.append(f"Agent: {agent}")
    lines.append(f"Began {iso(record.started_at_ms)}" + _ended(record))
    if record.usage:
        lines.append("Used: " + ", ".join(f"{count} {name}" for name, count in record.usage.items()))
    evidence = dict(record.evidence)
    for name, title in (("modelCalls", "Model calls"), ("toolCalls", "Tool calls")):
        entries = evidence.pop(name, None)
        if isinstance(entries, list) and entries:
            lines.append(f"{title}:")
            lines += [f"  {number}. {_entry(entry)}" for number, entry in enumerate(entries, 1)]
    lines += [f"{name}: {_short(value)}" for name, value in evidence.items()]
    lines += _decided(record)
    if record.error is not None:
        lines.append(f"Error: {record.error.get('code', '-')}: {record.error.get('message', '-')}")
    return [one_line(line) for line in lines]


def _ended(record: TurnRecord) -> str:
    if record.is_open or not record.saved_at_ms:
        return ""
    return f", ended {iso(record.saved_at_ms)} ({span(record.saved_at_ms - record.started_at_ms)})"


def _entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        return _short(entry)
    facts = dict(entry)
    name = facts.pop("name", None)
    head = (
        f"{name}({_short(facts.pop('args', {}))})" if name is not None else f"iteration {facts.pop('iteration', '?')}"
    )
    tail = "; ".join(f"{key} {_short(value)}" for key, value in facts.items())
    return f"{head}: {tail}" if tail else head


def _decided(record: TurnRecord) -> list[str]:
    lines = []
    if record.ask is not None and record.decision is None:
        lines.append(f"Asks {record.ask.audience} since {iso(record.ask.asked_at_ms)}, {record.ask.ask_id}")
    lines += [f"Asked before: {past.ask_id}, {past.ended} {iso(past.at_ms)}" for past in record.past_asks]
    if record.decision is not None:
        by = record.decision.answered_by or "nobody verified"
        lines.append(f"Decided {iso(record.decision.answered_at_ms)} by {by}: {_short(record.decision.value)}")
    return lines


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:199]}…"
