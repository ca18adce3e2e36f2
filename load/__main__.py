"""``make load``: starts a local stack, lets Locust loose on it, kills some of what runs, and audits what is left.

    python -m load [--seconds 60] [--people 5] [--kills 0.15] [--seed 1] [--page docs/load.md]

Ends with 1 where anything was lost, doubled or stuck, or refused for a reason that it may not have.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from load.audit import audit
from load.faults import died_in, faults_of, out_of_time
from load.journal import read_journal, read_lines
from load.kills import Killer
from load.latency import rows_of
from load.plan import SETTLE_LIMIT_S, START_LIMIT_S, Plan, read_plan
from load.report import Outcome, as_page, as_text, took_over_and_closed
from load.stack import RunFolder, make_stack
from load.stored import read_stored
from load.watchdog import OutOfTime, watched
from local.settings import ROOT
from local.stack import StackFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = ROOT / ".turnkeep" / "load"
LOCUST = ROOT / ".venv-load" / "bin" / "locust"


def main(arguments: list[str] | None = None) -> int:
    """Runs the plan of the command line."""
    plan = read_plan(arguments)
    with tempfile.TemporaryDirectory(prefix="turnkeep-load-") as path:
        folder = RunFolder(Path(path))
        try:
            with watched(plan.limit_s):
                outcome = run(plan, folder)
        except (OutOfTime, StackFailed, KeyboardInterrupt) as error:
            _say(f"load: {error or 'interrupted'}")
            _keep(folder)
            return 1
        _say(as_text(outcome))
        if not outcome.holds:
            _keep(folder)
            return 1
    if plan.page:
        plan.page.write_text(as_page(outcome), encoding="utf-8")
        _say(f"wrote {plan.page}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _keep(folder: RunFolder) -> None:
    """What a run that does not hold leaves to be looked at: who sent what, what was logged, asked of AWS, and done."""
    shutil.rmtree(KEPT, ignore_errors=True)
    shutil.copytree(folder.path, KEPT, ignore=shutil.ignore_patterns("*.pem", "people.json"))
    _say(f"its journal, logs, calls and book are in {KEPT.relative_to(ROOT)}")


def run(plan: Plan, folder: RunFolder) -> Outcome:
    """One run on a stack of its own, which is gone afterwards."""
    people = [f"person-{number}" for number in range(plan.people)]
    with make_stack(folder) as stack:
        tokens = [(name, stack.token(name)) for name in people]
        supervisors = [stack.token(name, roles=["supervisor"]) for name in ("sam", "sue")]
        facts = {
            "api_url": stack.api_url,
            "journal": str(folder.journal),
            "book": str(folder.book),
            "people": tokens,
            "supervisors": supervisors,
            "seed": plan.seed,
        }
        folder.people.write_text(json.dumps(facts), encoding="utf-8")
        _say(f"load: {plan.people} people write for {plan.load_s} s (at most {plan.limit_s} s in all) …")
        killer = Killer(stack, plan.kill_share, plan.seed)
        settle_s, troubles = _drive(plan, folder, killer)
        messages, answers = read_journal(read_lines(folder.journal))
        _say(f"load: reading what is left of {len(messages)} messages …")
        told = {message.conversation for message in messages if message.is_accepted}
        stored = read_stored(stack, tokens, told, folder.book)
    log = read_lines(folder.log)
    folder.calls.write_text("".join(f"{json.dumps(call)}\n" for call in killer.calls), encoding="utf-8")
    took_over, closed = took_over_and_closed(log)
    verdict = audit(messages, answers, stored, died_in(log, killer.calls))
    verdict.findings += faults_of(log)
    return Outcome(
        plan=plan,
        verdict=verdict,
        killed=Counter(killer.killed.values()),
        out_of_time=out_of_time(log),
        took_over=took_over,
        closed_dead=closed,
        rows=rows_of(read_lines(folder.meter), log, killer.calls),
        waits_ms=[each.took_ms for one in messages for each in one.replies[:1] if each.turn_status == "complete"],
        settle_s=settle_s,
        troubles=troubles,
    )


def _drive(plan: Plan, folder: RunFolder, killer: Killer) -> tuple[float, list[str]]:
    """Lets Locust run until everybody knows what became of their messages; nothing is killed behind the last one.

    Returns:
        How many seconds that took behind the last message, and what went wrong with Locust.
    """
    with _locust(plan, folder) as locust:
        _until_the_first_message(folder, locust)
        began_s = time.monotonic()
        killer.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            locust.wait(plan.load_s)
        killer.stop()
        locust.wait()  # it gives itself SETTLE_LIMIT_S
        settle_s = max(0.0, time.monotonic() - began_s - plan.load_s)
        killer.close()
    words = folder.locust_log.read_text(encoding="utf-8", errors="replace")
    troubles = [f"Locust ended with {locust.returncode}: {words[-2000:]}"] if locust.returncode else []
    troubles += [f"Locust: {line.strip()}" for line in words.splitlines() if "Error" in line or "Traceback" in line]
    return settle_s, troubles


@contextlib.contextmanager
def _locust(plan: Plan, folder: RunFolder) -> Iterator[subprocess.Popen[bytes]]:
    """Locust in an environment and a process group of its own, of which nothing is left."""
    command = [
        *(str(LOCUST), "--locustfile", str(ROOT / "load" / "locustfile.py"), "--headless", "--only-summary"),
        *("--users", str(plan.people), "--spawn-rate", str(plan.people), "--run-time", f"{plan.load_s}s"),
        *("--stop-timeout", str(SETTLE_LIMIT_S), "--exit-code-on-error", "0", "--loglevel", "WARNING"),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LOCUST_", "PYTHON"))}
    environment |= {"LOAD_RUN": str(folder.people), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with folder.locust_log.open("wb") as words:
        locust = subprocess.Popen(  # noqa: S603 - our own file, by the Locust of its environment
            command, cwd=folder.path, env=environment, stdout=words, stderr=words, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield locust
        finally:
            if locust.poll() is None:
                os.killpg(locust.pid, signal.SIGKILL)
            locust.wait()


def _until_the_first_message(folder: RunFolder, locust: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + START_LIMIT_S
    while locust.poll() is None and not (folder.journal.exists() and folder.journal.stat().st_size):
        if time.monotonic() > until_s:
            raise StackFailed(f"Locust sent nothing within {START_LIMIT_S} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
