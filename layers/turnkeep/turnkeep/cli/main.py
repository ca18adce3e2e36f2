"""``turnkeep``: the command line itself. Exit code 0: done; 1: refused, one sentence says why; 2: said wrongly."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from turnkeep import __version__
from turnkeep.cli import commands
from turnkeep.cli.connect import UsageError, connect
from turnkeep.cli.text import one_line
from turnkeep.errors import TurnkeepError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REFUSED, SAID_WRONGLY, INTERRUPTED = 1, 2, 130

ABOUT = """\
Looks after conversations in a turnkeep table. AWS credentials, region and AWS_ENDPOINT_URL (a local stack) are read
from the environment, as the AWS CLI reads them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: without the program's name; None takes the process's own.

    Returns:
        The process's exit code.
    """
    said = _parser().parse_args(arguments)
    command: Callable[..., None] = said.command
    try:
        connection = connect(os.environ, table=said.table, region=said.region, state_machine=said.state_machine)
        command(connection, said)
        sys.stdout.flush()
    except UsageError as error:
        return _fail(str(error), SAID_WRONGLY)
    except UnreadableError as error:
        named = f" (conversation {error.conversation_id})" if error.conversation_id is not None else ""
        return _fail(f"{error.code}{named}: {error}", REFUSED)
    except TurnkeepError as error:
        return _fail(f"{error.code or type(error).__name__}: {error}", REFUSED)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - nobody reads on; a pager ended
        return REFUSED
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        sentence = _aws_sentence(error, said.table or os.environ.get("TURNKEEP_TABLE", ""))
        if sentence is None:
            raise
        return _fail(sentence, REFUSED)
    return 0


def _fail(sentence: str, code: int) -> int:
    print(f"turnkeep: {one_line(sentence)}", file=sys.stderr)
    return code


def _aws_sentence(error: Exception, table: str) -> str | None:
    """What AWS, or the way there, refused; None for what is a fault of the program."""
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return None
    if isinstance(error, ClientError):
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        if code == "ResourceNotFoundException":
            return f"there is no table {table} in this region and account"
        return f"AWS refused {error.operation_name}: {code}"
    if isinstance(error, BotoCoreError):
        return f"AWS was not reached: {error}"
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="turnkeep", description=ABOUT)
    parser.add_argument("--version", action="version", version=f"turnkeep {__version__}")
    _common(parser, is_sub=False)
    subs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Callable[..., None], about: str) -> argparse.ArgumentParser:
        sub = subs.add_parser(name, help=about, description=about)
        _common(sub, is_sub=True)
        sub.set_defaults(command=command)
        return sub

    sub = add("export", commands.export, "Writes a conversation as an envelope in the reference's JSON.")
    _conversation(sub)
    sub.add_argument("--out", metavar="FILE", help="where to write it; standard output without")

    sub = add("import", commands.import_file, "Stores an envelope as a conversation.")
    sub.add_argument("file", metavar="FILE", help="the envelope's JSON; - reads standard input")
    sub.add_argument("--id", help="the conversation's id here; the envelope's own without")

    sub = add("erase", commands.erase, "Removes everything of a conversation and stops what waits in it.")
    _conversation(sub)
    sub.add_argument("--yes", action="store_true", help="it cannot be undone")

    add("paused", commands.paused, "Lists the turns that wait for a person, the longest waiting first.")

    sub = add("answer", commands.answer, "Answers an ask; recorded as an operator's answer.")
    _conversation(sub)
    sub.add_argument("ask", metavar="ASK", help="the ask's id, as `turnkeep paused` shows it")
    sub.add_argument("--decision", required=True, metavar="JSON", help="the answer, any JSON")
    sub.add_argument("--operator", metavar="NAME", help="who you are; your user name without")

    sub = add("cancel", commands.cancel, "Withdraws a turn's open ask, or cancels it while it is queued.")
    _conversation(sub)
    _turn(sub)

    sub = add("why", commands.why, "Shows what led to a turn's answer.")
    _conversation(sub)
    _turn(sub)
    return parser


def _common(parser: argparse.ArgumentParser, *, is_sub: bool) -> None:
    """Options of every command, before or behind its name."""
    default = argparse.SUPPRESS if is_sub else None
    parser.add_argument("--table", default=default, help="the ledger's table (TURNKEEP_TABLE)")
    parser.add_argument("--tenant", default=default, help="the conversation's tenant, where the stack has tenants")
    parser.add_argument("--region", default=default, help="the AWS region (AWS_REGION)")
    parser.add_argument(
        "--state-machine", default=default, metavar="ARN", help="PausedRun's ARN (TURNKEEP_STATE_MACHINE_ARN)"
    )


def _conversation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", metavar="ID", help="the conversation's id; one that cannot be typed as ~ and its base64url"
    )


def _turn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("turn", metavar="TURN", type=_turn_number, help="the turn's number")


def _turn_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 15 and int(text) > 0):
        raise argparse.ArgumentTypeError("a turn is a whole number from 1 on")
    return int(text)
