"""The demo of nodes on the screen. ``_nodes.py`` performs it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bartack.cli.app._database import open_named, open_team
from bartack.cli.app._options import write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.cli.demo._custodian import MARK, remove
from bartack.cli.demo._nodes import NODES, STEPS, Ground, NodesFacts, perform, prove
from bartack.cli.demo._proof import Check, Event, show_proof
from bartack.depot.elsewhere import Elsewhere
from bartack.depot.postgres.server import OwnServer, find_servers
from bartack.errors import UsageError

_OURS = ("BARTACK_", "PG")


def perform_nodes(directory: Path, on: str, *, insecure: bool, keep: bool, as_json: bool) -> bool:
    """Perform the demo, show it and its proof; return whether the proof holds."""
    screen = None if as_json else Screen(sys.stdout)
    events: list[Event] = []

    def show(event: Event) -> None:
        events.append(event)
        if screen is not None:
            _show_event(screen, event)

    environ = {name: value for name, value in os.environ.items() if on or not name.startswith(_OURS)}
    environ[MARK] = str(directory)
    if screen is not None:
        _show_opening(screen, is_own=not on)
    with _database(directory, on, environ) as url:
        team = open_named(url, insecure=insecure) if on else open_team(Elsewhere(url))
        team.prepare()
        facts = perform(Ground(directory, team, environ), show)
        checks = prove(facts)
    if screen is None:
        write_json(_as_json(checks, events, facts, directory, kept=keep))
    else:
        show_proof(screen, checks, "from the database and a file that the steps wrote to")
        _show_end(screen, facts, directory, on, kept=keep)
    return all(check.ok for check in checks)


@contextmanager
def _database(directory: Path, on: str, environ: dict[str, str]) -> Generator[str]:
    """The database that was named, or one on a server of the demo."""
    if on:
        yield on
        return
    programs = find_servers()
    if not programs:
        raise UsageError(
            "bartack demo",
            "--nodes found no PostgreSQL server on this machine: install one (Debian: postgresql), or name a database with --on",
        )
    place = tempfile.mkdtemp(prefix="bartack-demo-pg-")  # its path is short, as that of a socket has to be
    try:
        with OwnServer(programs[0], Path(place), {MARK: str(directory)}) as server:
            yield server.url()
    finally:
        remove(place)


def _show_opening(screen: Screen, *, is_own: bool) -> None:
    server = "A PostgreSQL server of the demo" if is_own else "Your database"
    screen.paragraph(
        f"{server}, {len(NODES)} nodes that take runs from it, and a run of {STEPS} steps. Each node could be "
        "on a machine of its own.",
        indent=0,
    )
    screen.flush()


def _show_event(screen: Screen, event: Event) -> None:
    is_command = event.what.startswith("bartack ")
    text = f"$ {event.what}" if is_command else event.what
    painted = screen.paint(text, "red" if event.killed else "bold" if is_command else "green")
    screen.line()
    screen.line(f"{screen.paint(f'{event.after_s:5.1f} s', 'dim')}  {painted}")
    screen.flush()


def _show_end(screen: Screen, facts: NodesFacts, directory: Path, on: str, *, kept: bool) -> None:
    screen.line()
    screen.line(screen.paint("What to do next:", "bold"))
    rows = [
        *(
            [
                (
                    f"bartack show {facts.run} --on DATABASE",
                    "every step of the run, which is kept in your database",
                )
            ]
            if on
            else []
        ),
        *([(f"ls {printable(str(directory))}", "what the nodes and the steps wrote")] if kept else []),
        ("bartack db init --on DATABASE", "prepare a database of your own"),
        ("bartack node --on DATABASE", "on every machine that is to run runs"),
        ("bartack run --on DATABASE FILE", "from anywhere"),
        ("docs/tutorial/two-nodes.md", "the same, step by step, in the source"),
    ]
    screen.table(rows)


def _as_json(
    checks: list[Check], events: list[Event], facts: NodesFacts, directory: Path, *, kept: bool
) -> dict[str, object]:
    return {
        "ok": all(check.ok for check in checks),
        "checks": [check._asdict() for check in checks],
        "events": [event._asdict() for event in events],
        "run": facts.run,
        "killed": facts.killed,
        "pause_s": round(facts.pause_s, 3),
        "directory": str(directory),
        "kept": kept,
    }
