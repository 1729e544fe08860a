"""A directory of a run whose journal is kept in a database: a file in it, ``kept.json``, names the database.

Whatever opens such a run through its directory gets it from there, so nothing above has to know. The file counts only if this user
has written it for this directory: it has a mark, a keyed hash as in ``runtime/rundir/origin.py``. One that a clone or an archive
brought leads no process to a database of strangers, and the run in it cannot be owned: its journal is only a copy.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from bartack.core import typed
from bartack.core.files import replace_file
from bartack.core.trust import known_keys, user_key
from bartack.depot.taken import TEAM, Queueing
from bartack.errors import UntrustedError

if TYPE_CHECKING:
    from bartack.depot.postgres._database import Database
    from bartack.depot.postgres._run import PostgresRun

KEPT_FILE: Final = "kept.json"
NODE: Final = "node:"
"""Instead of a database: the directory is the working copy of a node of this machine, which alone knows the database."""
LARGEST: Final = 64 * 1024


def without_database(
    environ: Mapping[str, str], *, has_bucket: bool = False, passed: Sequence[str] = ()
) -> dict[str, str]:
    """The environment of everything that a node starts: without what names its database or the object store of that, or opens one.

    Args:
        environ: The environment of the node.
        has_bucket: Variables of AWS open the object store of the database.
        passed: Names of those that are passed on all the same, ``*`` standing for anything.
    """
    prefixes = ("PG", "BARTACK_DEPOT_", *(["AWS_"] if has_bucket else []))

    def is_passed(name: str) -> bool:
        return name.startswith("AWS_") and any(fnmatchcase(name, pattern) for pattern in passed)

    return {
        name: value
        for name, value in environ.items()
        if (not name.startswith(prefixes) or is_passed(name)) and name != "BARTACK_ON"
    }


class Elsewhere(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run is kept.

    Attributes:
        on: The database, as people name it.
        insecure: Connect also where the connection is not protected.
        blobs: The object store with its largest values; empty: they are in the database.
        mark: Shows who has written this, and for which directory.
    """

    on: str
    insecure: bool = False
    blobs: str = ""
    mark: str = ""

    def place_in(self, folder: Path) -> Path:
        """A directory below a folder that only this database has."""
        name = hashlib.sha256(f"{self.on}\0{self.insecure}".encode()).hexdigest()[:16]
        return folder / name


class Home(NamedTuple):
    """Where a new run is to be kept.

    Attributes:
        where: The database.
        team: Whose run it is there; empty: as the settings say.
        key: By what the team knows it: there is one run of a key. Empty: by its id only.
        queueing: How it is queued for the nodes there, as soon as it is there; ``None``: no node takes it.
    """

    where: Elsewhere
    team: str = TEAM
    key: str = ""
    queueing: Queueing | None = None


def write_elsewhere(directory: Path, where: Elsewhere, *, synced: bool = True) -> None:
    """Note in the directory of a run where the run is kept. It is durable when this returns, if it is to be."""
    key = user_key(make=True)
    mark = "" if key is None else _mark(directory, where, key)
    text = msgspec.json.encode(msgspec.structs.replace(where, mark=mark))
    replace_file(directory / KEPT_FILE, text, synced=synced)


def read_elsewhere(directory: Path) -> Elsewhere | None:
    """Where the run of a directory is kept; ``None`` if it is kept in the directory.

    Raises:
        UntrustedError: The directory says so, but this user has not written that for it.
    """
    path = directory / KEPT_FILE
    try:
        text = _read_own(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UntrustedError(str(path), error.strerror or str(error), str(directory)) from None
    try:
        where = typed.decode(text, type=Elsewhere)
        where.on.encode()
        where.mark.encode()
        where.blobs.encode()
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UntrustedError(str(path), f"it cannot be read: {error}", str(directory)) from None
    marks = [_mark(directory, where, key).encode() for key in known_keys()]
    if not any(hmac.compare_digest(where.mark.encode(), mark) for mark in marks):
        raise UntrustedError(str(path), "it names a database, and you have not made it here", str(directory))
    return where


def _read_own(path: Path) -> bytes:
    """What a file has in it; a link is not followed, and a pipe not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a file")
        return os.read(fd, LARGEST)
    finally:
        os.close(fd)


def _mark(directory: Path, where: Elsewhere, key: bytes) -> str:
    facts = f"{directory.name}\0{os.stat(directory).st_ino}\0{where.on}\0{where.insecure}"
    facts += f"\0{where.blobs}" if where.blobs else ""
    return hashlib.blake2b(facts.encode(), key=key, digest_size=20, person=b"bartack-kept").hexdigest()


def open_elsewhere(directory: Path, where: Elsewhere) -> PostgresRun:
    """The run of a directory, as it is kept."""
    from bartack.depot.postgres._run import PostgresRun  # noqa: PLC0415 - only runs in a database need it

    return PostgresRun(directory, _database(where.on, where.blobs, insecure=where.insecure))


@lru_cache(maxsize=8)
def _database(on: str, blobs: str, *, insecure: bool) -> Database:
    """A database with one connection for all runs of it that this process reads."""
    from bartack.depot.postgres._database import Database  # noqa: PLC0415 - only runs in a database need it

    return Database(on, insecure=insecure, blobs=blobs)
