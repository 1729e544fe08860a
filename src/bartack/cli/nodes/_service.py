"""``bartack node install`` and ``uninstall``: the node as a service that starts at login."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import click

from bartack.cli.app._exit import Exit
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.core.files import replace_file
from bartack.depot import user_depot
from bartack.errors import ServiceError, UsageError
from bartack.node import Service, describe_service, node_log, stop_node

ANSWER_S: Final = 15.0
COMMAND_S: Final = 120.0
"""How long a command of the system may take: stopping the node takes up to 90 s."""
FILE_MODE: Final = 0o644
"""Managers of services read it; there is nothing secret in it."""
LINGER: Final = ("loginctl", "enable-linger")


def own_service() -> Service:
    """The service of this user.

    Raises:
        ServiceError: There is none on this system.
    """
    return describe_service(sys.platform, sys.executable, os.environ, node_log(user_depot()), os.getuid())


def installed_service() -> Service | None:
    """The service of this user, if it is installed."""
    try:
        service = own_service()
        found = service.read()
    except ServiceError:
        return None
    return service if found is not None and service.is_own(found) else None


@click.command(short_help="Start the node at login, as a service.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--linger", is_flag=True, help="Also start it at boot, before a login (Linux).")
def install(*, yes: bool, linger: bool) -> Exit:
    """Start the node at login, as a service of systemd (Linux) or launchd (macOS), and now.

    The file of the service is shown before it is written. A node that is running in the background is stopped; its runs continue
    with the service. The service has the PATH of this terminal and none of its secrets.

    On Linux a service of a user runs from the first login to the last logout. With --linger it runs from boot on, which 'loginctl
    enable-linger' allows.
    """
    service = own_service()
    if linger and service.kind != "systemd":
        raise UsageError("bartack node install", "--linger is for systemd; launchd starts agents at login")
    found = service.read()
    if found is not None and not service.is_own(found):
        raise ServiceError(f"{service.path} was not written by 'bartack node install'; move it away first")
    _show(service, found)
    if found != service.text:
        if not (yes or _confirm(f"Write {printable(str(service.path))} and start the service?")):
            return Exit.FAILED
        replace_file(service.path, service.text.encode(), mode=FILE_MODE, parents=True)
    _enable(service, changed=found != service.text)
    _linger(service, wanted=linger)
    return Exit.OK


@click.command(short_help="Stop the service and remove it.")
def uninstall() -> Exit:
    """Stop the service and remove it. Its runs stay queued: the next detached run starts a node in the background."""
    service = own_service()
    found = service.read()
    if found is None:
        write_note("the node is not installed as a service")
        return Exit.OK
    if not service.is_own(found):
        raise ServiceError(f"{service.path} was not written by 'bartack node install', so it stays")
    answers = _answers(service.probe)
    if answers:
        _call(service.disable)
    service.path.unlink(missing_ok=True)
    write_note(f"removed {printable(str(service.path))}")
    if answers:
        _call(service.forget)
    else:
        _remove_links(service)
        stop_node(user_depot())
    return Exit.OK


def _show(service: Service, found: str | None) -> None:
    """Show the file before it is written; the difference if there is one already."""
    screen = Screen(sys.stderr)
    screen.line(printable(str(service.path)))
    if found == service.text:
        screen.line("  is up to date")
        return
    lines = service.text.splitlines()
    if found is not None:
        from difflib import unified_diff  # noqa: PLC0415 - only a service that changes needs it

        lines = list(unified_diff(found.splitlines(), lines, "now", "new", lineterm=""))
    for line in lines:
        screen.line(f"  {printable(line)}")
    screen.flush()


def _confirm(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(
            "bartack node install", "it can only be confirmed on a terminal; --yes installs without asking"
        )
    return click.confirm(question, err=True)


def _enable(service: Service, *, changed: bool) -> None:
    if not _answers(service.probe):
        write_note(f"{service.kind} does not answer here. Where it does, start the service with:")
        _print(service.enable)
        return
    is_active = _answers(service.active)
    if is_active and not changed:
        write_note("the service is running already")
        return
    if is_active:
        _call(service.disable)
    stop_node(user_depot())  # one that was started in the background; the service takes over its runs
    _call(service.enable)
    write_note("the service is running; 'bartack node status' shows it")
    write_note(f"  its log: {printable(service.log)}")


def _linger(service: Service, *, wanted: bool) -> None:
    if service.kind != "systemd":
        return
    if not wanted:
        write_note("  it runs while you are logged in; from boot on with: bartack node install --linger")
    elif _answers(service.probe):
        _call([LINGER])
    else:
        write_note("to start it at boot, before a login:")
        _print([LINGER])


def _answers(words: Sequence[str]) -> bool:
    """Whether a command of the system succeeds."""
    try:
        return _run(words, ANSWER_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _call(commands: Sequence[Sequence[str]]) -> None:
    """Call commands of the system, one after the other.

    Raises:
        ServiceError: One failed.
    """
    for words in commands:
        try:
            done = _run(words, COMMAND_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServiceError(f"{shlex.join(words)}: {error}") from None
        if done.returncode:
            why = done.stderr.strip().splitlines()[-1:] or [f"it ended with code {done.returncode}"]
            raise ServiceError(f"{shlex.join(words)}: {why[0]}")


def _run(words: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - fixed words, without a shell
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )


def _print(commands: Sequence[Sequence[str]]) -> None:
    for words in commands:
        write_note(f"  {printable(shlex.join(words))}")


def _remove_links(service: Service) -> None:
    """Remove the link that an earlier 'enable' has made, which leads nowhere now."""
    link = service.path.parent / "default.target.wants" / service.path.name
    if link.is_symlink() and os.path.realpath(link) == os.path.realpath(service.path):
        link.unlink()
