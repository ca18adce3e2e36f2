"""What the demo looks like in a terminal."""

from __future__ import annotations

import json
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from local.decoded import decoded, size_bytes


class View:
    """Prints the demo's steps."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)

    def title(self, conversation: str, api_url: str) -> None:
        """What is going to be seen."""
        self.console.print()
        self.console.print(
            Panel(
                Text.assemble(
                    ("A customer and the refund desk, twelve turns, every one in a fresh process.\n", "bold"),
                    f"conversation {conversation} on {api_url}\n",
                    ("Every request says turn 1, as a host that was just born would. The ledger knows better.", "dim"),
                ),
                title="turnkeep",
                title_align="left",
                border_style="cyan",
            )
        )

    def turn(self, number: int, message: str, output: str, duration_ms: int) -> None:
        """One turn that completed."""
        self.console.print(_exchange(number, message, output, f"{duration_ms} ms"))

    def contest(self, number: int, message: str, output: str, statuses: list[int]) -> None:
        """Ten double submits, and who won."""
        marks = Text("  ")
        for status in statuses:
            marks.append(f" {status} ", "bold green" if status == 200 else "red")
            marks.append(" ")
        self.console.print(
            Panel(
                Group(
                    Text("Ten processes submit this turn at once. The winner is held until the others are refused."),
                    marks,
                    _exchange(number, message, output, "one of ten"),
                ),
                title="double submit",
                title_align="left",
                border_style="magenta",
            )
        )

    def pause(self, number: int, message: str, ask: dict[str, Any]) -> None:
        """A turn that waits for a person."""
        card = Table.grid(padding=(0, 2))
        card.add_row("asks", f"[bold]{ask.get('question', '')}[/bold]")
        card.add_row("for", ask["audience"])
        card.add_row("with", json.dumps(ask.get("checkIn", {}).get("args", {})))
        card.add_row("ask", f"[dim]{ask['askId']}[/dim]")
        self.console.print(_exchange(number, message, "(202: the turn waits for a person)", "awaiting"))
        self.console.print(Panel(card, title="GET /asks, as a supervisor", title_align="left", border_style="yellow"))

    def resumed(self, output: str, decision: dict[str, Any], seconds: float) -> None:
        """The answer, and how the turn went on."""
        said = f"approved by {decision['by']}: {decision['note']}"
        self.console.print(
            Text.assemble("     ", ("✔ ", "bold green"), said, (f"  ({seconds:.1f} s to the end)", "dim"))
        )
        self.console.print(Text.assemble("     ", ("desk      ", "bold cyan"), output))

    def transcript(self, messages: list[dict[str, str]]) -> None:
        """The transcript as the API gives it."""
        self.console.print()
        self.console.print(Rule("GET …/transcript", align="left"))
        for message in messages:
            who = ("customer  ", "bold green") if message["role"] == "user" else ("desk      ", "bold cyan")
            self.console.print(Text.assemble(who, message["content"]))

    def ledger(self, items: list[dict[str, Any]], name: str) -> None:
        """The conversation's items as they lie in the table, in order, JSON decoded."""
        table = Table(
            box=box.SIMPLE_HEAD, title=f"the ledger, item by item ({name})", title_justify="left", expand=True
        )
        table.add_column("sk", no_wrap=True, style="bold", min_width=15)
        table.add_column("bytes", justify="right", min_width=5)
        table.add_column("status", no_wrap=True, min_width=8)
        table.add_column("attempt", justify="right", min_width=7)
        table.add_column("what it says", overflow="ellipsis", no_wrap=True, ratio=1)
        for item in items:
            facts = decoded(item)
            status, attempt = facts.get("status", ""), facts.get("attempt", "")
            table.add_row(_short_key(facts["sk"]), str(size_bytes(item)), status, attempt, _says(facts))
        self.console.print()
        self.console.print(table)

    def executions(self, executions: list[dict[str, Any]]) -> None:
        """The executions of PausedRun."""
        for one in executions:
            self.console.print(Text.assemble(("PausedRun ", "bold"), one["name"], "  ", (one["status"], "green")))

    def closing(self, turns: int, submits: int) -> None:
        """What was promised and held."""
        self.console.print()
        self.console.print(
            Panel(
                f"{turns} turns, each run once · {submits - 1} of {submits} double submits refused by name · "
                "one question asked, answered once, resumed in a fresh process",
                border_style="green",
            )
        )

    def broken(self, what: str) -> None:
        """A promise that did not hold."""
        self.console.print(Panel(Text(what[:2000]), title="not what was promised", border_style="red"))


def _exchange(number: int, message: str, output: str, note: str) -> Text:
    return Text.assemble(
        (f"{number:>3}  ", "dim"),
        ("customer  ", "bold green"),
        message,
        ("  " + note, "dim"),
        "\n     ",
        ("desk      ", "bold cyan"),
        output,
    )


def _short_key(sk: str) -> str:
    """A sort key without the zeros that pad its numbers, and with a hash cut."""
    parts = [part.lstrip("0") or "0" if part.isdigit() and len(part) == 16 else part[:10] for part in sk.split("#")]
    return "#".join(parts) if len(parts) > 1 else sk


def _says(facts: dict[str, str]) -> str:
    """One line of what an item holds, JSON decoded."""
    kind = facts["sk"].split("#")[0]
    if kind == "CONVERSATION":
        return f"owner {facts.get('owner', 'nobody')}, last turn {facts['turn']}, {facts['messageCount']} messages"
    if kind == "SEG":
        return facts["data"]
    if kind == "ONCE":
        return facts.get("result", "begun")
    said = [json.loads(facts["user"])["content"]] if "user" in facts else []
    messages = json.loads(facts.get("body", "{}")).get("messages", [])
    said += [message["content"] for message in messages if message["role"] == "assistant" and message["content"]]
    return " → ".join(said)
