"""Runs whose processes have another user than their hub (``--run-as``): which user that is, and what it can reach.

The hub stays root's and owns the run. Everything that executes the program runs as the user: the probe, the replay, workers,
commands and agents. Each such run has a group of its own, a number that no account has. Its processes are in that group, which can

- enter the run's directory, but not list or change it (0710, and 0711 above it);
- read the program, the journal and the blobs, and hold the lock of the tree;
- write to ``work`` and ``drop`` (large values; see ``journal/_shared.py``);
- connect to ``hub.sock``, where the user has the rights of a step token and never those of a person (``hub/admission.py``).

Everything that this relies on is checked before a run is made: only root can rename a directory above the run.
"""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bartack.core.accounts import Account, find_account
from bartack.core.files import open_private
from bartack.core.share import RUN_GROUPS, SHARED_FILE, share, share_tree
from bartack.core.sockets import SOCKET_LIMIT
from bartack.errors import RunAsError
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e

ENTERED: Final = 0o710
"""The mode of the run's directory."""
PASSED: Final = 0o711
"""The mode of the directories above it that belong to Bartack."""
WRITTEN: Final = 0o770

_LONGEST_ID: Final = 39
_CHECK_S: Final = 60.0
_NO_WORKSPACE, _NO_PACKAGE = 71, 72
_CHECK: Final = f"""
import os, sys
try:
    os.chdir(sys.argv[1])
    os.listdir('.')
except OSError:
    sys.exit({_NO_WORKSPACE})
try:
    import bartack.runtime.worker_process.child
except BaseException:
    sys.exit({_NO_PACKAGE})
"""


def open_account(name: str) -> Account:
    """The account that a run shall be executed as.

    Raises:
        RunAsError: This process is not root's, or the account does not exist.
    """
    if sys.platform != "linux":
        raise RunAsError(name, "it is supported on Linux only", "Use a container.")
    if os.geteuid() != 0:
        raise RunAsError(name, "only root can start processes as another user", "Start bartack as root.")
    account = find_account(name)
    if account is None:
        raise RunAsError(name, "this system has no such user", "Name a user that exists.")
    if account.uid == 0:
        raise RunAsError(name, "it is root itself", "Name another user, or leave --run-as out.")
    return account


def check_account(account: Account, workspace: Path, state_dir: Path) -> None:
    """Raise unless a user can execute runs here, and cannot change them in any other way. Nothing is made.

    Raises:
        RunAsError: It cannot, with the reason.
    """
    _check_place(account, state_dir)
    check_program(account, workspace)


def check_program(account: Account, directory: Path) -> None:
    """Raise unless a user can execute Bartack, and enter and list a directory.

    Raises:
        RunAsError: It cannot, with the reason.
    """
    command = [sys.executable, "-P", "-s", "-c", _CHECK, str(directory)]
    try:
        code = run_as(account, command, cwd="/").returncode
    except OSError:
        code = -1
    if code == _NO_WORKSPACE:
        problem, action = f"it cannot enter and list {directory}", "Give it access to that directory."
    elif code == _NO_PACKAGE:
        problem, action = "it cannot read Bartack or its dependencies", f"Give it access to {sys.prefix}."
    elif code:
        problem = f"it cannot execute {sys.executable}"
        action = "Install Python and Bartack where every user can read them."
    else:
        return
    raise RunAsError(account.name, problem, action)


def run_as(account: Account, command: list[str], cwd: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program of ours as an account, without input and output."""
    return subprocess.run(  # noqa: S603 - our own interpreter
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=account.environment(os.environ),
        user=account.uid,
        group=account.gid,
        extra_groups=account.groups,
        timeout=_CHECK_S,
        check=False,
    )


def _check_place(account: Account, state_dir: Path) -> None:
    """Raise if the runs would be where another user can replace them, where the user cannot get, or too deep for a socket."""
    action = "Set BARTACK_STATE_DIR to a directory that only root can change and every user can pass through."
    for place in _above(os.path.realpath(state_dir)):
        facts = os.stat(place)
        if _is_open(facts):
            raise RunAsError(
                account.name, f"{place}, where its runs would be, can be changed by others", action
            )
    if not state_dir.parent.is_dir():
        raise RunAsError(account.name, f"{state_dir.parent} is not a directory", action)
    with account.acting():
        below = next(
            (place for place in _above(os.path.realpath(state_dir.parent)) if not _can_pass(place)), ""
        )
    if below:
        raise RunAsError(account.name, f"it cannot pass through {below}, where its runs would be", action)
    longest = RunDir(state_dir / "runs" / ("x" * _LONGEST_ID)).socket.path
    if len(os.fsencode(longest)) > SOCKET_LIMIT:
        action = "Set BARTACK_STATE_DIR to a directory with a shorter name."
        raise RunAsError(account.name, f"a socket in {state_dir} would have a name that is too long", action)


def _above(path: str) -> Iterator[str]:
    """The directories that a path leads through, from the root on, as far as they exist."""
    place = Path(path)
    return (str(folder) for folder in (*reversed(place.parents), place) if folder.is_dir())


def _is_open(facts: os.stat_result) -> bool:
    """Whether a user other than root can rename what is in a directory. In a sticky one, only the owner of the entry can."""
    if facts.st_uid != 0:
        return True
    by_group = facts.st_mode & stat.S_IWGRP and facts.st_gid != 0
    return bool(by_group or facts.st_mode & stat.S_IWOTH) and not facts.st_mode & stat.S_ISVTX


def is_safe_place(place: Path) -> bool:
    """Whether only root can rename or make anything on the way to a directory, as far as that exists, and in it."""
    return not any(_is_open(os.stat(folder)) for folder in _above(os.path.realpath(place)))


def _can_pass(folder: str) -> bool:
    return os.access(folder, os.X_OK, effective_ids=True)


# A run.


def share_run(run: RunDir, account: Account) -> Account:
    """Open a run to the group of its own, which it gets here if it has none; returns the account with that group.

    Raises:
        RunAsError: The system has no group numbers for this.
    """
    gid = os.stat(run.path).st_gid
    if gid not in RUN_GROUPS:
        gid = secrets.choice(RUN_GROUPS)
        try:
            os.chown(run.path, -1, gid)
        except OSError as error:
            action = "Run it outside of a user namespace (a rootless container)."
            problem = f"no group can be made for its run ({error.strerror})"
            raise RunAsError(account.name, problem, action) from None
    _settle_access(run, gid)
    return account.with_group(gid)


def _settle_access(run: RunDir, gid: int) -> None:
    """Give everything in a shared run the required rights."""
    for folder in (run.path.parent, run.path.parent.parent):
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | PASSED)
    os.close(open_private(run.tree_lock, os.O_RDWR | os.O_CREAT))
    share(str(run.work), gid, WRITTEN)
    share_tree(run.program, gid)
    share(str(run.tree_lock), gid, SHARED_FILE)
    run.share(gid)
    share(str(run.path), gid, ENTERED)


def check_run_as(run: RunDir, created: e.RunCreated, wanted: str | None) -> None:
    """Raise if a run cannot be resumed as its own user, or another one is wanted.

    Raises:
        RunAsError: It cannot, with the reason.
    """
    if wanted is not None and wanted != created.run_as:
        has = f"{run.id} runs as {created.run_as or 'the user that started it'} from its first step on"
        raise RunAsError(wanted, has, "Resume it without --run-as, or start a new run.")
    account_of(run, created)


def account_of(run: RunDir, created: e.RunCreated) -> Account | None:
    """The account that the processes of a run have; ``None`` for that of its hub.

    Raises:
        RunAsError: The account cannot be used now.
    """
    if not created.run_as:
        return None
    account = open_account(created.run_as)
    if account.uid != created.run_uid:
        problem = f"{run.id} was started with user id {created.run_uid}, and the user has {account.uid} now"
        raise RunAsError(account.name, problem, "Start a new run.")
    return account
