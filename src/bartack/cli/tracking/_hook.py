"""``bartack hook``: install tracking hooks in the settings of a coding agent, and uninstall them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, cast

import click

from bartack.agents.guard.policy import PolicyFlawError
from bartack.agents.guard.project import find_project, open_guard
from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.errors import GuardPolicyError
from bartack.plugin.events import SCOPES
from bartack.plugin.guard_hook import run_guard_hook
from bartack.plugin.hooks import (
    EVENTS,
    MODES,
    HookChange,
    hook_status,
    install_hooks,
    shim_path,
    uninstall_hooks,
)

if TYPE_CHECKING:
    from bartack.plugin.events import Scope
    from bartack.plugin.hooks import Mode

scope_option = click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="local",
    show_default=True,
    help="Choose the settings file: user (all projects), project (shared) or local (this project, only you).",
)
dry_option = click.option("--dry-run", is_flag=True, help="Only show the changes.")


@click.group(cls=PlainGroup, short_help="Record and guard what a coding agent does.")
def hook() -> None:
    """Record the code that a coding agent writes, and guard its tool calls, with hooks in its settings.

    The commands never change other entries of the settings.
    """


@hook.command(short_help="Install the hooks in a settings file.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="async",
    show_default=True,
    help="async: the agent does not wait for the hooks of tool events; command: it waits; http: it sends events to the daemon.",
)
@scope_option
@click.option(
    "--events", default=",".join(EVENTS), show_default=True, help="Record these events, separated by commas."
)
@dry_option
@json_option
def install(mode: Mode, scope: Scope, events: str, *, dry_run: bool, as_json: bool) -> None:
    """Install the hooks in a settings file, in place of hooks that are installed already."""
    names = tuple(name.strip() for name in events.split(",") if name.strip())
    change = install_hooks(mode=mode, scope=scope, events=names, dry_run=dry_run)
    _show(change, "installed in", "installed already in", dry_run=dry_run, as_json=as_json)


@hook.command(short_help="Remove the hooks from a settings file.")
@scope_option
@dry_option
@json_option
def uninstall(scope: Scope, *, dry_run: bool, as_json: bool) -> None:
    """Remove the hooks from a settings file, and nothing else."""
    change = uninstall_hooks(scope=scope, dry_run=dry_run)
    _show(change, "removed from", "not installed in", dry_run=dry_run, as_json=as_json)


@hook.command(short_help="Check whether the hooks work.")
@json_option
def status(*, as_json: bool) -> int:
    """Check whether the hooks work. The exit code is 0 if they do, 1 if there is a problem, 9 if none are installed."""
    found = hook_status()
    if as_json:
        write_json(found)
    else:
        _show_status(found)
    return {"working": Exit.OK, "problems": Exit.FAILED}.get(str(found["state"]), Exit.NOT_ACTIVE)


@hook.command(short_help="Record one event from stdin.")
@click.argument("event")
def record(event: str) -> None:
    """Record one event of the agent from stdin, as the installed hooks do. The exit code is always 0."""
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(shim_path()), event])  # noqa: S606 - a fixed command; the name of the event is one argument


@hook.command(short_help="Judge one tool call from stdin, or explain a command.")
@click.option(
    "--explain", metavar="COMMAND", help="Show the simple commands of a shell command and the rule for each."
)
@json_option
def guard(explain: str | None, *, as_json: bool) -> int:
    """Judge the tool call on stdin, as a hook of the agent. Anything that goes wrong blocks the call with the exit code 2.

    With --explain nothing is read from stdin. The exit code is 0 if the command is allowed, 1 if it is denied and 3 if a person
    has to decide.
    """
    if explain is None:
        return run_guard_hook()
    here = os.getcwd()
    try:
        found, _ = open_guard(find_project(here), here, (here,))
    except PolicyFlawError as error:
        raise GuardPolicyError(error.setting, error.problem) from None
    rows = found.explain(explain)
    if as_json:
        write_json([{"command": row.command, **row.verdict._asdict()} for row in rows])
    else:
        screen = Screen(sys.stdout)
        names = {"none": "allowed", "ask": "ask", "deny": "denied"}
        screen.table(
            [
                (names[row.verdict.decision], row.verdict.rule, printable(row.command), row.verdict.reason)
                for row in rows
            ]
        )
    decisions = {row.verdict.decision for row in rows}
    return Exit.FAILED if "deny" in decisions else Exit.WAITING if "ask" in decisions else Exit.OK


def _show(change: HookChange, done: str, same: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        write_json(change._asdict())
        return
    screen = Screen(sys.stdout)
    if dry_run:
        screen.line(change.after or "the file would be removed")
        return
    screen.line(f"{done if change.changed else same} {printable(change.path)}")
    if change.left_out:
        screen.line(f"recorded by a plugin already: {', '.join(change.left_out)}")


def _show_status(found: dict[str, object]) -> None:
    screen = Screen(sys.stdout)
    screen.line(str(found["state"]))
    rows: list[tuple[str, str]] = []
    for scope, one in _members(found["scopes"]).items():
        facts = _members(one)
        events = [str(event) for event in cast("tuple[object, ...]", facts["events"])]
        if events:
            rows.append((scope, f"{facts['mode']}: {', '.join(events)}"))
    daemon = _members(found["daemon"])
    rows += [
        ("daemon", "running" if daemon["running"] else "not running; the next event starts it"),
        ("last event", str(found["last_event"] or "none")),
        ("spool", f"{found['spool']} waiting"),
        (
            "outbox",
            ", ".join(f"{count} {state}" for state, count in _members(found["outbox"]).items()) or "none",
        ),
    ]
    screen.table(rows)
    for problem in cast("list[object]", found["problems"]):
        screen.line(f"{screen.paint('problem', 'red')}: {printable(str(problem))}")


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
