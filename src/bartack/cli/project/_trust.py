"""``bartack trust``: the list of directories whose settings and runs are used although other users can change them."""

from __future__ import annotations

import os
import stat
import sys

import click

from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.core.trust import TrustedDirectory, add_trusted, list_trusted, remove_trusted
from bartack.errors import PeerRefusedError, UsageError
from bartack.runtime.rundir.inside import find_enclosing


@click.command(short_help="Trust the settings and runs of a directory.")
@click.argument("directories", nargs=-1, metavar="[DIR]...")
@click.option("--list", "listed", is_flag=True, help="List the directories that you trust.")
@click.option("--remove", is_flag=True, help="Stop trusting DIR.")
@json_option
def trust(directories: tuple[str, ...], *, listed: bool, remove: bool, as_json: bool) -> None:
    """Trust DIR and everything below it: Bartack uses settings and runs there like your own.

    Without trust, Bartack refuses settings that belong to another user or that other users can change, and runs that came with a
    clone, an archive or a copy. Inspect them first: a run executes the program in its directory, and settings name commands. The
    list is in your own configuration directory. A process of a run cannot change it with this command.
    """
    if listed == bool(directories) or (listed and remove):
        raise UsageError("bartack trust", "name directories, or use --list alone")
    if listed:
        _show(list_trusted(), as_json=as_json)
        return
    if "BARTACK_RUN" in os.environ or find_enclosing(os.getpid()) is not None:
        raise PeerRefusedError("trust", "a process of a run cannot change the list of trusted directories")
    changed = [_remove(name) if remove else _add(name) for name in directories]
    if as_json:
        write_json({"removed" if remove else "trusted": changed})
        return
    for path in changed:
        Screen(sys.stdout).line(f"{'no longer trusted' if remove else 'trusted'}: {printable(path)}")


def _add(name: str) -> str:
    place = os.path.realpath(name)
    if not os.path.isdir(place):
        raise UsageError("bartack trust", f"{name} is not a directory")
    if os.path.dirname(place) == place or os.stat(place).st_mode & stat.S_ISVTX:
        raise UsageError(
            "bartack trust", f"every user can have files below {place}; trust a directory inside it"
        )
    return add_trusted(place).path


def _remove(name: str) -> str:
    if not remove_trusted(name):
        raise UsageError(
            "bartack trust", f"{os.path.realpath(name)} is not on the list that 'bartack trust --list' shows"
        )
    return os.path.realpath(name)


def _show(rows: list[TrustedDirectory], *, as_json: bool) -> None:
    if as_json:
        write_json([row._asdict() for row in rows])
        return
    screen = Screen(sys.stdout)
    if not rows:
        screen.line("No directory is trusted except your own.")
    screen.listing([(printable(row.path), row.at) for row in rows])
