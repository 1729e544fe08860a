"""Whether a run was made here by this user: one that a clone, an archive or a copy brought is not changed or executed.

A run executes the program in its directory, so a run that is brought is a program that is brought. A new run's first entry has a
mark: a keyed hash over its id and the inode of its directory, with a key that only this user has. A directory that was moved keeps
its inode; one that was copied, unpacked or cloned has another. Runs without such a mark (from before there were marks, or where no
key can be kept) count as made here if they are where their journal says and the file system made their directory at the moment
that their id names: that time cannot be set, and cannot be known before a clone is made.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress
from typing import Final

from bartack.core.disk import birth_of
from bartack.core.ids import moment_of, parse_run_id
from bartack.core.trust import check_private, is_trusted, known_keys, user_key
from bartack.errors import BartackError, ForeignRunError, RunIdError, UntrustedError
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e

BIRTH_US: Final = 2_000_000
"""How far the moment in a run's id and the birth of its directory may be apart."""
_FIRST: Final = 4
"""The run is created by one of this number of entries."""
_FOLDERS: Final = (*RunDir.KEPT_FOLDERS, "agents", "program", "receipts", "snapshots")
"""Directories of a run whose entries are opened by name. What a process puts into ``inbox`` is set aside when it is read."""


def mark_of(run: RunDir) -> str:
    """The mark of a new run; empty where this user has no key and none can be made."""
    key = user_key(make=True)
    return "" if key is None else _mark(run, key)


def check_own(run: RunDir) -> None:
    """Raise unless a run may be changed and executed: it was made here by this user, or is trusted.

    Raises:
        UntrustedError: Another user can change it, or a symbolic link is in the place of one of its files.
        ForeignRunError: It came from elsewhere.
    """
    check_private(run.path)
    check_links(run)
    reason = _foreign_reason(run)
    if reason and not is_trusted(run.path):
        raise ForeignRunError(run.id, str(run.path), reason)


def check_links(run: RunDir) -> None:
    """Raise if a symbolic link is where a run keeps a file or a directory: none is followed, trusted or not.

    Raises:
        UntrustedError: There is one.
    """
    link = next((name for folder in ("", *_FOLDERS) if (name := _link_in(run, folder))), None)
    if link is not None:
        raise UntrustedError(
            str(run.path / link), "it is a symbolic link, and links are not followed", str(run.path)
        )


def _link_in(run: RunDir, folder: str) -> str:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(run.path / folder) as entries:
        for entry in entries:
            if entry.is_symlink() and entry.path != str(run.socket.path):
                return os.path.join(folder, entry.name)
    return ""


def _foreign_reason(run: RunDir) -> str:
    """Why a run cannot have been made here by this user; empty if it was."""
    if run.is_kept_elsewhere:
        return ""  # this user has written into the directory where the run is kept
    created = _created(run)
    if created is None and not run.exists():
        return ""  # there is nothing to execute
    if created is not None and created.origin and _is_marked(run, created.origin):
        return ""
    if not _was_born_here(run, created):
        return (
            "its directory is not the one that it was made in"
            if created and created.origin
            else "it has no mark of yours"
        )
    return ""


def _is_marked(run: RunDir, origin: str) -> bool:
    return any(hmac.compare_digest(origin, _mark(run, key)) for key in known_keys())


def _mark(run: RunDir, key: bytes) -> str:
    made = f"{run.id}\0{os.stat(run.path).st_ino}".encode()
    return hashlib.blake2b(made, key=key, digest_size=20, person=b"bartack-run").hexdigest()


def _was_born_here(run: RunDir, created: e.RunCreated | None) -> bool:
    try:
        moment = moment_of(parse_run_id(run.id))
    except (RunIdError, ValueError):
        return False
    born = birth_of(run.path)
    if born is None or abs(born - moment) > BIRTH_US:
        return False
    return created is None or _is_where_it_was(run, created)


def _is_where_it_was(run: RunDir, created: e.RunCreated) -> bool:
    made = os.path.dirname(os.path.join(created.workspace, created.place))
    return os.path.realpath(made) == os.path.realpath(run.path.parent)


def _created(run: RunDir) -> e.RunCreated | None:
    """The first entry of a run; ``None`` if its journal cannot be read, which is reported when it is opened."""
    with suppress(BartackError), run.open_reader() as reader:
        for entry in reader.read():
            if entry.kind == e.RunCreated.kind:
                return entry.decode(e.RunCreated)
            if entry.seq >= _FIRST:
                break
    return None
