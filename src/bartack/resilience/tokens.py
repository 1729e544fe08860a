"""The token of a user's services: one line in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import hmac
import os
import stat
from pathlib import Path
from typing import Final

from bartack.core.disk import FILE_MODE
from bartack.core.ids import new_token
from bartack.core.trust import make_private
from bartack.errors import TokenFileError

_SHORTEST: Final = 16
_LONGEST: Final = 4096


def load_token(path: str | os.PathLike[str]) -> str:
    """The token in a file; a file that is not there is made, for its owner only.

    Raises:
        TokenFileError: Others can read the file, or there is no token in it.
    """
    place = Path(path)
    try:
        if not place.exists():
            _make(place)
    except OSError as error:
        raise TokenFileError(str(place), error.strerror or str(error)) from error
    return read_token(place)


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file that is there.

    Raises:
        TokenFileError: It is not there, belongs to another user, others can read it, or there is no token in it.
    """
    place = Path(path)
    try:
        # What is checked is what is read, even if the name is given to another file meanwhile; a pipe is not waited for.
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(fd, "rb") as file:
            _check_owner(place, os.fstat(fd))
            token = file.read(_LONGEST).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError as error:
        raise TokenFileError(str(place), error.strerror or str(error)) from error
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenFileError(str(place), f"its first line is not a token of {_SHORTEST} characters or more")
    return token


def hook_token(token: str) -> str:
    """The token that HTTP hooks carry. Made from the user's own; a process that gets it learns nothing of that one."""
    return hmac.new(token.encode(), b"bartack-http-hook 1", "sha256").hexdigest()


def _check_owner(place: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise TokenFileError(str(place), "it is not a regular file")
    if facts.st_uid != os.geteuid():
        raise TokenFileError(str(place), "it belongs to another user")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise TokenFileError(str(place), "users other than its owner can read or write it")


def _make(path: Path) -> None:
    """Make the file whole or not at all, and leave it alone if another process was faster."""
    make_private(path.parent)
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with open(fd, "w", encoding="ascii") as file:
            file.write(new_token() + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
