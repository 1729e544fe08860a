"""``bartack daemon``: the process that delivers the events of hooks and programs."""

from __future__ import annotations

import os
import sys
from typing import cast

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.core.user_home import user_home
from bartack.errors import ResilienceError
from bartack.resilience.link import DaemonLink


@click.group(cls=PlainGroup, short_help="Deliver the events that hooks and programs have recorded.")
def daemon() -> None:
    """Deliver the events that hooks and programs have recorded.

    There is one daemon per user. It starts automatically with the first event and stops automatically when it is idle.
    """


@daemon.command(short_help="Run the daemon in the foreground.")
def run() -> None:
    """Run the daemon in the foreground. If a daemon is running already, the command reports that and ends."""
    from bartack.tracking import run_daemon  # noqa: PLC0415 - only this command needs it

    if DaemonLink().is_running():
        Screen(sys.stderr).line("the daemon is running already")
        return
    run_daemon()


@daemon.command(short_help="Start the daemon in the background.")
def start() -> int:
    """Start the daemon in the background."""
    from bartack.tracking import start_daemon  # noqa: PLC0415 - not every command needs it

    screen = Screen(sys.stdout)
    if DaemonLink().is_running():
        screen.line("the daemon is running already")
        return Exit.OK
    if not start_daemon():
        Screen(sys.stderr).line(
            f"the daemon does not answer; see {printable(str(user_home() / 'daemon.log'))}"
        )
        return Exit.TIMED_OUT
    screen.line(f"started, pid {DaemonLink().facts().get('pid')}")
    return Exit.OK


@daemon.command(short_help="Check whether the daemon is running.")
@json_option
def status(*, as_json: bool) -> int:
    """Check whether the daemon is running. The exit code is 0 if it is, 9 if not."""
    link = DaemonLink()
    running = link.is_running()
    facts = link.facts() if running else {}
    if as_json:
        write_json({"running": running, **facts})
        return Exit.OK if running else Exit.NOT_ACTIVE
    screen = Screen(sys.stdout)
    if not running:
        screen.line("the daemon is not running")
        return Exit.NOT_ACTIVE
    screen.table(
        [
            ("running", f"pid {facts.get('pid')}, version {facts.get('version')}"),
            ("since", str(facts.get("started_at"))),
            ("socket", printable(str(facts.get("socket")))),
            ("http", _http_line(facts.get("http"))),
            *[("outbox", printable(str(path))) for path in _listed(facts.get("outboxes"))],
            ("log", printable(str(link.home / "daemon.log"))),
        ],
        indent=0,
    )
    return Exit.OK


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _http_line(http: object) -> str:
    facts = cast("dict[str, object]", http) if isinstance(http, dict) else {}
    if facts.get("state") == "listening":
        return f"127.0.0.1:{facts.get('port')}"
    return f"off: port {facts.get('port')} is in use"


@daemon.command(short_help="Stop the daemon.")
@click.option(
    "--timeout",
    type=float,
    default=10.0,
    show_default=True,
    help="Wait at most this many seconds for its end.",
)
def stop(timeout: float) -> int:
    """Stop the daemon. It finishes deliveries that are in progress; other events stay in the outbox."""
    from bartack.tracking import stop_daemon  # noqa: PLC0415 - not every command needs it

    was = DaemonLink().is_running()
    if not stop_daemon(timeout_s=timeout):
        Screen(sys.stderr).line("the daemon did not stop in time")
        return Exit.TIMED_OUT
    Screen(sys.stdout).line("stopped" if was else "the daemon was not running")
    return Exit.OK


@daemon.command(short_help="Restart the daemon.")
@click.pass_context
def restart(ctx: click.Context) -> int:
    """Stop the daemon and start it again."""
    stopped: int = ctx.invoke(stop, timeout=10.0)
    return stopped or int(ctx.invoke(start))


def start_on_demand() -> None:
    """Start the daemon without waiting for it, if the settings allow it."""
    from bartack.resilience import load_settings  # noqa: PLC0415 - few commands need it
    from bartack.tracking import start_daemon  # noqa: PLC0415 - as above

    try:
        if load_settings().autostart and not os.path.exists(user_home() / "autostart-off"):
            start_daemon(timeout_s=0.0)
    except (OSError, ResilienceError) as error:
        Screen(sys.stderr).line(f"the daemon was not started: {error}")
