"""The token of a user's services: one line in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from bartack.core import FILE_MODE, new_token
from bartack.errors import TokenFileError
from bartack.resilience._home import make_private

_SHORTEST: Final = 16


def load_token(path: str | os.PathLike[str]) -> str:
    """The token in a file; a file that is not there is made, for its owner only.

    Raises:
        TokenFileError: Others can read the file, or there is no token in it.
    """
    place = Path(path)
    try:
        if not place.exists():
            _make(place)
        if stat.S_IMODE(place.stat().st_mode) & 0o077:
            raise TokenFileError(str(place), "others than its owner can read or write it")
        token = place.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError as error:
        raise TokenFileError(str(place), error.strerror or str(error)) from error
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenFileError(str(place), f"its first line is no token of {_SHORTEST} characters or more")
    return token


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
