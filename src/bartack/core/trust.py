"""Whose files are obeyed: those of this user and of root, and those in directories that this user trusts.

Settings name commands, and a run is a program with its history. Files that another user made, or can change, are refused unless the
person has named their directory with ``bartack trust``. The list of those directories is in the user's own configuration, next to
the key that marks the user's own runs (``runtime/rundir/origin.py``). Git decides by the same rule, down to ``SUDO_UID``.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from bartack.core.disk import DIR_MODE, FILE_MODE
from bartack.core.files import replace_file
from bartack.errors import FileAccessError, UntrustedError

TRUST_FILE: Final = "trust.json"
KEY_FILE: Final = "key"
_KEY_BYTES: Final = 32
_GROUP: Final = stat.S_IWGRP
_OTHERS: Final = stat.S_IWOTH


# Whose a file is.


def trusted_owners() -> frozenset[int]:
    """The users whose files are obeyed: this one, root, and the one who became root with sudo."""
    user = os.geteuid()
    before = os.environ.get("SUDO_UID", "")
    return frozenset({user, 0, int(before)} if user == 0 and before.isdigit() else {user, 0})


def check_settings(file: str | os.PathLike[str]) -> None:
    """Raise unless a file with settings, and the directory that it is in, can be changed by trusted users only.

    A file that is not there is fine. A group that can write is fine, too: those who share a project share its programs.

    Raises:
        UntrustedError: Another user made it or can replace it, and the directory is not trusted.
    """
    name = os.path.abspath(file)
    if not os.path.lexists(name):
        return
    folder = os.path.dirname(name)
    reason = _owner_flaw(folder) or _owner_flaw(name) or _open_flaw(folder) or _open_flaw(name)
    if reason and not is_trusted(folder):
        raise UntrustedError(name, reason, folder)


def check_private(directory: str | os.PathLike[str]) -> None:
    """Raise unless a directory with runs belongs to a trusted user and no other user can change what is in it.

    A directory that is not there is fine. A symbolic link in its place leads somewhere that its owner did not name.

    Raises:
        UntrustedError: It is another user's or open to others, and it is not trusted.
    """
    place = os.path.abspath(directory)
    try:
        facts = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return
    reason = _directory_flaw(place, facts)
    if reason and not is_trusted(place):
        raise UntrustedError(place, reason, place)


def _directory_flaw(place: str, facts: os.stat_result) -> str:
    if stat.S_ISLNK(facts.st_mode):
        return "it is a symbolic link"
    if facts.st_uid not in trusted_owners():
        return f"it belongs to {_name_of(facts.st_uid)}"
    if facts.st_mode & _OTHERS:
        return f"every user can write to it ({_shown(facts.st_mode)}; fix: chmod go-w)"
    if facts.st_mode & _GROUP and not _is_own_group(facts.st_gid):
        return f"other users can write to it ({_shown(facts.st_mode)}; fix: chmod go-w)"
    return "" if stat.S_ISDIR(facts.st_mode) else "it is not a directory"


def _owner_flaw(path: str) -> str:
    """Another user that owns a file, or the link that leads to it."""
    for facts in _both_facts(path):
        if facts.st_uid not in trusted_owners():
            kind = "the directory" if stat.S_ISDIR(facts.st_mode) else "it"
            return f"{kind} belongs to {_name_of(facts.st_uid)}"
    return ""


def _open_flaw(path: str) -> str:
    """Whether every user can change a file, or replace files in a directory."""
    mode = os.stat(path).st_mode if os.path.exists(path) else 0
    if not mode & _OTHERS or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return ""
    kind = "the directory" if stat.S_ISDIR(mode) else "it"
    return f"every user can write to {kind} ({_shown(mode)}; fix: chmod o-w)"


def _shown(mode: int) -> str:
    return f"mode {stat.S_IMODE(mode):04o}"


def _both_facts(path: str) -> Iterator[os.stat_result]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        facts = os.lstat(path)
        yield facts
        if stat.S_ISLNK(facts.st_mode):
            yield os.stat(path)


def _is_own_group(gid: int) -> bool:
    """Whether a group is this user's alone: the one of the same name that many systems give to each user."""
    import grp  # noqa: PLC0415 - only files that a group can write to need it
    import pwd  # noqa: PLC0415 - likewise

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _name_of(uid: int) -> str:
    import pwd  # noqa: PLC0415 - only a refusal needs it

    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


def make_private(directory: str | os.PathLike[str]) -> None:
    """Make a directory for its owner only, with every directory that is missing above it, whatever the umask is."""
    place = os.path.abspath(directory)
    if os.path.isdir(place):
        return
    make_private(os.path.dirname(place))
    try:
        os.mkdir(place, DIR_MODE)
    except FileExistsError:
        if not os.path.isdir(place):
            raise


# What the person trusts.


class TrustedDirectory(NamedTuple):
    """A directory that the person trusts, with everything below it."""

    path: str
    owner: int
    """Whose it was then: a directory that changed hands is trusted no more."""
    at: str


def config_home(environ: Mapping[str, str] | None = None) -> str:
    """The directory of this user's own configuration."""
    environ = os.environ if environ is None else environ
    # A relative path in the variable has no meaning, by the specification of these variables.
    base = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):
        below = "Library/Application Support" if sys.platform == "darwin" else ".config"
        base = os.path.join(_own_home(environ), below)
    return os.path.join(base, "bartack")


def _own_home(environ: Mapping[str, str]) -> str:
    """The home directory; not the one of another user that sudo has left in the environment."""
    named = environ.get("HOME", "")
    with contextlib.suppress(OSError):
        if os.path.isabs(named) and os.stat(named).st_uid == os.geteuid():
            return named
    return home_of(os.geteuid()) or named


def home_of(uid: int) -> str:
    """The home directory that the system knows for a user; empty if it knows none."""
    import pwd  # noqa: PLC0415 - few need it

    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return ""


def is_trusted(directory: str | os.PathLike[str]) -> bool:
    """Whether the person trusts this directory, or one above it."""
    place = os.path.realpath(directory)
    return any(_covers(known, place) for known in list_trusted())


def _covers(known: TrustedDirectory, place: str) -> bool:
    if place != known.path and not place.startswith(known.path.rstrip(os.sep) + os.sep):
        return False
    try:
        return os.stat(known.path).st_uid == known.owner
    except OSError:
        return False


def list_trusted() -> list[TrustedDirectory]:
    """The directories that the person trusts; none if the list is not the person's own, or cannot be read."""
    raw = _read_own(os.path.join(config_home(), TRUST_FILE))
    if not raw:
        return []
    import json  # noqa: PLC0415 - few have a list

    try:
        found: object = json.loads(raw)
    except ValueError:
        return []
    rows = cast("dict[str, object]", found).get("trusted") if isinstance(found, dict) else None
    return (
        [row for given in cast("list[object]", rows) if (row := _row(given))]
        if isinstance(rows, list)
        else []
    )


def _row(given: object) -> TrustedDirectory | None:
    if not isinstance(given, dict):
        return None
    fields = cast("dict[str, object]", given)
    path, owner, at = fields.get("path"), fields.get("owner"), fields.get("at")
    if isinstance(path, str) and isinstance(owner, int) and isinstance(at, str):
        return TrustedDirectory(path, owner, at)
    return None


def add_trusted(directory: str | os.PathLike[str]) -> TrustedDirectory:
    """Trust a directory and everything below it.

    Raises:
        FileAccessError: It is not there, or the list cannot be written.
    """
    place = os.path.realpath(directory)
    try:
        owner = os.stat(os.path.join(place, "")).st_uid
    except OSError as error:
        raise FileAccessError(place, error.strerror or str(error)) from None
    added = TrustedDirectory(place, owner, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    _write_trusted([known for known in list_trusted() if known.path != place] + [added])
    return added


def remove_trusted(directory: str | os.PathLike[str]) -> bool:
    """Trust a directory no more; returns whether it was on the list."""
    place = os.path.realpath(directory)
    known = list_trusted()
    left = [each for each in known if each.path not in {place, os.fspath(directory)}]
    if len(left) != len(known):
        _write_trusted(left)
    return len(left) != len(known)


def _write_trusted(rows: list[TrustedDirectory]) -> None:
    import json  # noqa: PLC0415 - only who changes the list needs it

    text = json.dumps({"version": 1, "trusted": [row._asdict() for row in rows]}, indent=2) + "\n"
    home = config_home()
    try:
        make_private(home)
        _check_own(home)
        replace_file(os.path.join(home, TRUST_FILE), text.encode())
    except OSError as error:
        raise FileAccessError(os.path.join(home, TRUST_FILE), error.strerror or str(error)) from error


def _check_own(home: str) -> None:
    facts = os.stat(home)
    if facts.st_uid != os.geteuid():
        raise FileAccessError(home, f"it belongs to {_name_of(facts.st_uid)}")


# The user's key.


def user_key(*, make: bool = False) -> bytes | None:
    """The secret that marks what this user made; ``None`` where there is none and none can be kept.

    Args:
        make: Make one if there is none.
    """
    place = os.path.join(config_home(), KEY_FILE)
    found = _as_key(_read_own(place))
    if found is None and make:
        with contextlib.suppress(OSError):
            _make_key(place)
        found = _as_key(_read_own(place))
    return found


def known_keys() -> list[bytes]:
    """The keys whose marks count: this user's and, for root by sudo, that of the user who became root."""
    keys = [user_key()]
    for uid in trusted_owners() - {os.geteuid(), 0}:
        # The variables are root's now, so only the usual place can be looked at.
        place = os.path.join(home_of(uid), ".config", "bartack", KEY_FILE)
        keys.append(_as_key(_read_own(place, uid)))
    return [key for key in keys if key is not None]


def _as_key(raw: bytes) -> bytes | None:
    return raw if len(raw) == 2 * _KEY_BYTES else None


def _make_key(place: str) -> None:
    """Make a key, durable before it is used; of several processes that do this at once one wins."""
    make_private(os.path.dirname(place))
    temporary = f"{place}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    replace_file(temporary, os.urandom(_KEY_BYTES).hex().encode())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(temporary, place)
    finally:
        os.unlink(temporary)
    _sync_directory(os.path.dirname(place))


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read_own(path: str, owner: int | None = None) -> bytes:
    """The content of a file that only its owner could have written; empty if it is not there or is not such a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    with open(fd, "rb") as file:
        facts = os.fstat(fd)
        own = facts.st_uid == (os.geteuid() if owner is None else owner)
        private = stat.S_ISREG(facts.st_mode) and not stat.S_IMODE(facts.st_mode) & ~FILE_MODE
        return file.read() if own and private else b""
