"""The demo of a team on the screen: what happens, the proof, a receipt, and what to type next. ``_team.py`` performs it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bartack.cli.app._options import write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.cli.demo import _team as team
from bartack.cli.demo._custodian import MARK
from bartack.cli.demo._project import BIN, GOAL, prepare
from bartack.cli.demo._proof import Check, Event, show_proof
from bartack.runtime import Run

if TYPE_CHECKING:
    from bartack.cli.demo._page import Page

PAUSE_S: Final = 0.8
"""How long a scripted agent works on an answer while a person watches."""
SEEN_S: Final = 1.5
"""How long the live view of an agent at work is on the screen before everything is killed."""
_OURS: Final = ("BARTACK_", "PATTERN_")
"""Variables with settings: the demo has settings of its own."""


def perform_team(directory: Path, agent: str | None, *, keep: bool, web: bool, as_json: bool) -> bool:
    """Perform the demo, show it and its proof; return whether the proof holds."""
    screen = None if as_json else Screen(sys.stdout)
    watched = not as_json and sys.stderr.isatty()
    stage = _set(directory, agent, watched=watched, quiet=as_json, keep=keep)
    with ExitStack() as stack:
        page = _open_page(stack, stage, directory) if web else None
        return _perform(stage, screen, directory, agent, page, keep=keep)


def _open_page(stack: ExitStack, stage: team.Stage, directory: Path) -> Page:
    from bartack.cli.demo._page import open_page  # noqa: PLC0415 - the demo in the terminal does not need the web server

    return stack.enter_context(open_page(stage, directory))


def _perform(
    stage: team.Stage,
    screen: Screen | None,
    directory: Path,
    agent: str | None,
    page: Page | None,
    *,
    keep: bool,
) -> bool:
    events: list[Event] = []

    def show(event: Event) -> None:
        events.append(event)
        if screen is not None:
            _show_event(screen, event)

    if screen is not None:
        _show_opening(screen, agent, page)
    try:
        run, killed = team.perform(stage, show)
    except team.NoRunError as error:
        raise click.exceptions.Exit(error.code) from None
    facts = team.read_facts(run, stage, killed, directory / "proof")
    checks = team.prove(facts, stage)
    proved = all(check.ok for check in checks)
    kept = keep or not proved
    if screen is None:
        write_json(_as_json(checks, events, facts, stage.project, kept=kept))
    else:
        show_proof(screen, checks, "from the journal and the repository")
        _show_receipt(screen, facts)
        _show_end(screen, run, facts, stage.project, kept=kept, web=page is not None)
        if page is not None:
            _hold_page(screen, page, run)
    return proved


def _set(directory: Path, agent: str | None, *, watched: bool, quiet: bool, keep: bool) -> team.Stage:
    """Create the project of the demo."""
    project = directory / "shop"
    pause_s = PAUSE_S if watched else 0.0
    prepare(project, directory / "agents", pause_s=pause_s, agent=agent, configured_in=Path())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    environment[MARK] = str(directory)
    environment["PATH"] = os.pathsep.join((BIN, environment.get("PATH", os.defpath)))
    if agent is None:  # a configured agent keeps the state of this user, with its login and its limits
        environment["XDG_STATE_HOME"] = str(directory / "state")
        if not keep:  # a run that is kept has the mark of this user, so that its owner can resume it
            environment["XDG_CONFIG_HOME"] = str(directory / "config")
    return team.Stage(
        project=project,
        environment=environment,
        plan=team.KILLED_AFTER if agent is None else team.KILLED_AFTER_CONFIGURED,
        seen_s=SEEN_S if watched else 0.0,
        quiet=quiet,
        scripted=agent is None,
    )


def _show_opening(screen: Screen, agent: str | None, page: Page | None) -> None:
    team_ = (
        "A builder, a reviewer and a spec maintainer (scripted: no model, no network, no cost) add"
        if agent is None
        else f"The agent {printable(agent)}, as builder, reviewer and spec maintainer, adds"
    )
    screen.paragraph(f"{team_} a feature to a small Python project in a git repository of its own.", indent=0)
    screen.paragraph(f"Task: {GOAL}", indent=0)
    if page is not None:
        screen.line()
        screen.line(f"Watch it in the browser: {page.link}")
        screen.line("The link works once, within a minute; the run appears in the list there.")
    screen.flush()


def _show_event(screen: Screen, event: Event) -> None:
    after = screen.paint(f"{event.after_s:5.1f} s", "dim")
    screen.line()
    screen.line(
        f"{after}  {screen.paint(event.what, 'red') if event.killed else screen.paint(f'$ {event.what}', 'bold')}"
    )
    screen.flush()


def _show_receipt(screen: Screen, facts: team.Facts) -> None:
    """Show the receipt of the last answer that had to be asked for twice."""
    repeated = [receipt for receipt in facts.receipts if len(receipt.attempts) > 1] or facts.receipts
    if not repeated:
        return
    receipt = repeated[-1]
    number = facts.receipts.index(receipt) + 1
    verdict = receipt.status or receipt.event
    attempts = [f"{one.started_at[11:19]} {one.cause.replace('_', ' ')}" for one in receipt.attempts]
    head = f"Receipt {number} of {len(facts.receipts)}"
    screen.line()
    screen.line(f"{screen.paint(head, 'bold')}, of a step that was killed:")
    rows = [
        ("step", f"{receipt.action} round {receipt.round} by {receipt.agent.agent_id}: {verdict}"),
        ("key", f"{receipt.idempotency_key[:19]}..., the same in every attempt"),
        ("attempts", ", ".join(attempts)),
        ("files", f"{receipt.snapshot_id} before, {receipt.result_snapshot_id} after"),
    ]
    screen.table([(screen.paint(name, "dim"), printable(text)) for name, text in rows])


def _show_end(
    screen: Screen, run: Run, facts: team.Facts, project: Path, *, kept: bool, web: bool = False
) -> None:
    merge = _merge(facts)
    screen.line()
    if kept:
        screen.line(screen.paint("Look at it:", "bold"))
        rows = [
            (f"cd {project}", ""),
            ("bartack show", "every step, with its time and outcome"),
            ("bartack web", "the same in the browser"),
            ("bartack report", "what was done, what it cost, what is open"),
            (merge, "take the work over") if merge else (f"bartack resume {run.id}", "continue the run"),
        ]
    else:
        screen.line(screen.paint("What to do next:", "bold"))
        rows = [
            *_activation(),
            *([] if web else [("bartack demo --web", "the demo again, beside its page in the browser")]),
            ("bartack demo --keep", "keep its repository: look with bartack show or bartack web"),
            ("bartack init --example -C first", "a first run of your own, with a scripted agent"),
            ("bartack init", "set up your project, with the agents on this machine"),
            ("docs/index.md", "tutorials, how-to pages and reference, in the source"),
        ]
    screen.table(rows)


def _activation() -> list[tuple[str, str]]:
    """The command that puts ``bartack`` on the path, where this shell does not have it: ``make demo`` changes no shell."""
    script = Path(sys.prefix, "bin/activate")
    if shutil.which("bartack") is not None or not script.is_file():
        return []
    shown = os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)
    return [(f". {shlex.quote(shown)}", "put bartack on the path of this shell")]


def _hold_page(screen: Screen, page: Page, run: Run) -> None:
    """Give a link to the page of the run, and let a person look until Enter, Ctrl-C or the end of the input."""
    link = page.new_link(run.id)
    if not link:
        return
    screen.line()
    screen.line(f"The whole run in the browser: {link}")
    screen.line("The link works once, within a minute. The page ends with the demo: press Enter to end it.")
    screen.flush()
    with suppress(KeyboardInterrupt):
        sys.stdin.readline()


def _merge(facts: team.Facts) -> str:
    """The command that takes the work over; empty if there is none."""
    return facts.report.takeover.command if facts.report.takeover is not None else ""


def _as_json(
    checks: list[Check], events: list[Event], facts: team.Facts, project: Path, *, kept: bool
) -> dict[str, object]:
    return {
        "ok": all(check.ok for check in checks),
        "checks": [check._asdict() for check in checks],
        "events": [event._asdict() for event in events],
        "run": facts.report.run,
        "usd": facts.report.total.usd,
        "merge": _merge(facts),
        "directory": str(project),
        "kept": kept,
    }
