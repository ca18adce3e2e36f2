"""The commands: each takes what was said on the command line and prints what came of it."""

from __future__ import annotations

import getpass
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnkeep.cli.connect import UsageError
from turnkeep.cli.text import iso, named, one_line, paused_rows, show_table, why_text
from turnkeep.ids import check_conversation_id, parse_path_id
from turnkeep.ledger.keys import ConversationKey
from turnkeep.usecases.erase import Erased, erase_as_operator, go_on_erasing
from turnkeep.usecases.export_conversation import export_conversation
from turnkeep.usecases.import_conversation import import_conversation
from turnkeep.usecases.operator import answer_as_operator, cancel_as_operator, list_paused, turn_as_operator
from turnkeep.usecases.shell import is_foreign_pause

if TYPE_CHECKING:
    import argparse

    from turnkeep.cli.connect import Connection


def export(connection: Connection, said: argparse.Namespace) -> None:
    """``export ID [--out FILE]``."""
    envelope = export_conversation(connection.deps, _key(said))
    text = json.dumps(envelope, ensure_ascii=False, indent=1) + "\n"
    if said.out is None:
        sys.stdout.write(text)
        return
    try:
        with open(said.out, "w", encoding="utf-8", opener=_for_me_alone) as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {said.out}: {error.strerror}") from error
    print(f"Conversation {said.id} is in {said.out} ({envelope['format']}).")


def import_file(connection: Connection, said: argparse.Namespace) -> None:
    """``import FILE [--id ID]``."""
    envelope = _read_json(said.file)
    done = import_conversation(connection.deps, envelope, conversation_id=said.id and _id(said.id), tenant=said.tenant)
    shown = named(done.conversation.key.conversation_id)
    if done.unchanged:
        print(f"Conversation {shown} is there already, just like this; nothing was changed.")
        return
    print(f"Imported conversation {shown}: {_count(done.turns, 'turn')}, {done.conversation.status}.")
    if done.conversation.owner is None:
        print("Nobody signed it, so nobody owns it: only anonymous callers may open it.")
    if done.ask is not None and done.ask.ask is not None:
        print(f"Turn {done.ask.turn} asks ({done.ask.ask.ask_id}) until {iso(done.ask.ask.expires_at_ms)}.")
        if is_foreign_pause(done.ask):
            print(
                "Another engine paused it: it cannot be answered here. Cancel the turn to let the conversation go on."
            )


def erase(connection: Connection, said: argparse.Namespace) -> None:
    """``erase ID --yes``."""
    if not said.yes:
        raise UsageError(f"erasing {said.id} cannot be undone; say so with --yes")
    key = _key(said)
    erased = erase_as_operator(connection.deps, key, deadline=connection.deadline())
    items, stopped, done = erased.items, erased.stopped, erased.done
    while not done:
        more: Erased = erase_as_operator(connection.deps, key, deadline=connection.deadline())
        items, stopped, done = items + more.items, stopped + more.stopped, more.done
    go_on_erasing(connection.deps, key, deadline=connection.deadline())
    stopped -= len(connection.gate.left)
    print(f"Erased conversation {said.id}: {_count(items, 'item')} removed, {_count(stopped, 'execution')} stopped.")
    if connection.gate.left:
        left = ", ".join(sorted(connection.gate.left))
        print(f"The execution of {left} was not reached (name it with --state-machine); it ends by itself.")
    print("The id is free in a quarter of an hour, after a second pass for whatever was still being written.")
    print("Point-in-time backups of the table keep what was erased for up to 35 days.")


def paused(connection: Connection, said: argparse.Namespace) -> None:
    """``paused``."""
    rows = list_paused(connection.deps, tenant=said.tenant)
    if not rows:
        print("Nothing waits for a person.")
        return
    show_table(paused_rows(rows, connection.deps.clock.now_ms()))


def answer(connection: Connection, said: argparse.Namespace) -> None:
    """``answer ID ASK --decision JSON``."""
    try:
        decision = json.loads(said.decision, parse_constant=_refuse_constant)
    except ValueError as error:
        raise UsageError('--decision is JSON, such as \'{"approved": true, "by": "me"}\' or \'"yes"\'') from error
    operator = said.operator or _user()
    taken = answer_as_operator(connection.deps, _key(said), ask_id=said.ask, decision=decision, operator=operator)
    print(f"Answered turn {taken.turn} of {said.id} as operator:{operator}; it goes on within a minute.")


def cancel(connection: Connection, said: argparse.Namespace) -> None:
    """``cancel ID TURN``."""
    done = cancel_as_operator(connection.deps, _key(said), said.turn)
    print(f"Turn {done.turn} of {said.id} is {done.status.value}; the conversation can go on.")


def why(connection: Connection, said: argparse.Namespace) -> None:
    """``why ID TURN``."""
    print("\n".join(why_text(turn_as_operator(connection.deps, _key(said), said.turn))))


def _key(said: argparse.Namespace) -> ConversationKey:
    conversation_id = _id(said.id)
    return ConversationKey(check_conversation_id(conversation_id, said.tenant), said.tenant)


def _id(text: str) -> str:
    """An id as it is, or in a path's form for what cannot be typed."""
    return parse_path_id(text) if text.startswith("~") else text


def _for_me_alone(path: str, flags: int) -> int:
    """Opens a file that nobody else may read where it is new: a conversation is in it."""
    return os.open(path, flags, 0o600)


def _read_json(name: str) -> Any:
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    try:
        return json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{one_line(name)} holds no JSON") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError("NaN or Infinity, which JSON does not have")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise UsageError("say who you are with --operator NAME") from error
