"""``bartack daemon``: the process that delivers what hooks and programs have recorded."""

from __future__ import annotations

import os
import sys
from typing import cast

import click

from bartack.cli.app._app import PlainGroup
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.errors import ResilienceError
from bartack.resilience import DaemonLink, user_home


@click.group(cls=PlainGroup, short_help="Deliver what hooks and programs have recorded.")
def daemon() -> None:
    """Deliver what hooks and programs have recorded.

    One daemon per user. It starts by itself with the first event and ends by itself when there is nothing to do.
    """


@daemon.command(short_help="Be the daemon, in the foreground.")
def run() -> None:
    """Be the daemon, in the foreground. Ends at once, and says so, if one is running already."""
    from bartack.tracking import run_daemon  # noqa: PLC0415 - only this command is one

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


@daemon.command(short_help="Say whether the daemon runs.")
@json_option
def status(*, as_json: bool) -> int:
    """Say whether the daemon runs. Exit code 0 if it does, 9 if not."""
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
    return f"no: port {facts.get('port')} is taken"


@daemon.command(short_help="Stop the daemon.")
@click.option("--timeout", type=float, default=10.0, show_default=True, help="Seconds to wait for its end.")
def stop(timeout: float) -> int:
    """Stop the daemon. What is under way is finished, what waits stays."""
    from bartack.tracking import stop_daemon  # noqa: PLC0415 - not every command needs it

    was = DaemonLink().is_running()
    if not stop_daemon(timeout_s=timeout):
        Screen(sys.stderr).line("the daemon has not ended in time")
        return Exit.TIMED_OUT
    Screen(sys.stdout).line("stopped" if was else "the daemon was not running")
    return Exit.OK


@daemon.command(short_help="Stop the daemon and start it again.")
@click.pass_context
def restart(ctx: click.Context) -> int:
    """Stop the daemon and start it again."""
    stopped: int = ctx.invoke(stop, timeout=10.0)
    return stopped or int(ctx.invoke(start))


def start_on_demand() -> None:
    """Start the daemon for somebody who does not wait for it, if the settings allow it."""
    from bartack.resilience import load_settings  # noqa: PLC0415 - few commands need it
    from bartack.tracking import start_daemon  # noqa: PLC0415 - as above

    try:
        if load_settings().autostart and not os.path.exists(user_home() / "autostart-off"):
            start_daemon(timeout_s=0.0)
    except (OSError, ResilienceError) as error:
        Screen(sys.stderr).line(f"the daemon was not started: {error}")
