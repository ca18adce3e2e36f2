"""What a person at the terminal sees: where the stack listens, what to try, and each request as it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from local.settings import REGION

if TYPE_CHECKING:
    from local.function import Function, Outcome
    from local.server import Server
    from local.web import Request, Response

_COLOURS = {2: "green", 3: "cyan", 4: "yellow", 5: "red"}


def greet(server: Server, page_url: str, seconds: float) -> None:
    """Says where the stack listens and what to try, and from then on what it answers."""
    console = Console(highlight=False)
    where = Table.grid(padding=(0, 2))
    where.add_row("API", f"[bold]{server.api_url}[/bold]")
    where.add_row("AWS endpoint", f"[bold]{server.aws_url}[/bold]")
    where.add_row("functions", ", ".join(function.logical_id for function in server.deployment.functions))
    where.add_row(
        "callers", "a token is checked (make token USER=alice); [yellow]without one you are anonymous[/yellow]"
    )
    console.print(f"\nThe console, a page to look at and to try it: [bold]{page_url}[/bold]\n", soft_wrap=True)
    console.print(Panel(where, title=f"turnkeep runs locally (up in {seconds:.1f} s)", title_align="left"))
    console.print("\nThree commands to try:\n")
    console.print(Syntax(_commands(server), "bash", background_color="default"), soft_wrap=True)
    console.print("\nCtrl-C stops all of it.\n", style="dim")
    server.api.on_answer = lambda request, response, ms: _say_answer(console, request, response, ms)
    server.lambdas.on_failure = lambda function, outcome: _say_failure(console, server, function, outcome)


def _commands(server: Server) -> str:
    table = server.deployment.physical.get("LedgerTable", "TABLE")
    say = f"curl -sS {server.api_url}/conversations/demo/turns -H 'content-type: application/json'"
    return f"""\
{say} -d '{{"message": "Where is order A-100?"}}'

{say} -i -d '{{"message": "Refund order B-200, please"}}'

AWS_ENDPOINT_URL={server.aws_url} AWS_REGION={REGION} AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local \\
  aws dynamodb scan --table-name {table}"""


def _say_answer(console: Console, request: Request, response: Response, duration_ms: int) -> None:
    line = Text(f"{request.method:6} {unquote(request.target)}  ")
    line.append(str(response.status), _COLOURS.get(response.status // 100, "white"))
    line.append(f"  {duration_ms} ms", "dim")
    console.print(line, soft_wrap=True)


def _say_failure(console: Console, server: Server, function: Function, outcome: Outcome) -> None:
    failure = outcome.value
    line = Text(f"{function.logical_id} failed: ", "red")
    line.append(f"{failure.get('errorType')}: {failure.get('errorMessage')}")
    console.print(line, soft_wrap=True)
    address = f"{server.aws_url}/_local/logs?request_id={outcome.request_id}"
    console.print(f"  its output: {address}", style="dim", soft_wrap=True)
