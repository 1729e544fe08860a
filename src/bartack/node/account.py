"""A node of a database whose runs have another user than itself (``--run-as``).

The node is started by root, and connects to the database as root: only root reads the passwords, services and certificates. In
everything else it acts as the user of its runs, from before its first run on. So what it writes is that user's, and no link that a
program has planted leads it to a file that the program could not read or write itself. What it starts (hubs, and git for
workspaces) has that user alone, and no way back. The real user of the node stays root, so its runs can neither read it nor stop
it.

``core/accounts.py`` has the two sides of such a process. ``runtime/rundir/run_as.py`` does this for the processes of one run, under
a hub that stays root's.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from bartack.core.accounts import Account, act_as, can_act_as
from bartack.depot.postgres.home import find_own_files
from bartack.errors import RunAsError
from bartack.runtime.rundir.run_as import check_program, is_safe_place, open_account
from bartack.supervision.process.system import hide_process


def open_runs_account(name: str) -> Account:
    """The account that a node shall execute runs as.

    Raises:
        RunAsError: This process is not root's, the account does not exist, or this machine cannot do that.
    """
    account = open_account(name)
    if not can_act_as():
        problem = f"a node on {os.uname().machine} cannot act as two users"
        raise RunAsError(name, problem, "Start the node as that user.")
    return account


def describe_account(account: Account, environ: MutableMapping[str, str]) -> None:
    """Let the environment of this process describe the account, and name the files of root that open the database."""
    found = {**account.environment(environ), **find_own_files(environ)}
    for name in set(environ) - set(found):
        del environ[name]
    environ.update(found)


def become(account: Account, seat: Path) -> None:
    """Act as the account from now on, with a seat that belongs to it.

    Raises:
        RunAsError: It cannot have the seat, or cannot execute runs there.
    """
    _give_seat(account, seat)
    check_program(account, seat)
    act_as(account)
    hide_process()  # to have another user has undone that


def _give_seat(account: Account, seat: Path) -> None:
    """Make the seat, unless it is there. In a directory that only root can change, root makes it for the account."""
    try:
        if is_safe_place(seat.parent):
            seat.mkdir(mode=0o700)
            os.chown(seat, account.uid, account.gid, follow_symlinks=False)
        else:
            with account.acting():
                seat.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    except OSError as error:
        problem = f"{seat} cannot be made for it: {error.strerror}"
        raise RunAsError(account.name, problem, "Name another directory with --state-dir.") from None
    facts = os.lstat(seat)
    if facts.st_uid != account.uid:
        problem = f"{seat} belongs to another user"
        raise RunAsError(account.name, problem, "Name another directory with --state-dir.")
