"""The operating system's refusals, as an error with a code."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bartack.errors import FileAccessError, JournalFullError, JournalSyncError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""There is no room."""
_LINK: Final = "it is a symbolic link, and links are not followed"


@contextmanager
def access(path: str) -> Generator[None]:
    """Raise an error with a code for ``path`` where the operating system raises ``OSError``.

    Raises:
        JournalFullError: There is no room. The journal is as it was, or is found out by opening it again.
        JournalSyncError: The disk is read-only.
        FileAccessError: Anything else.
    """
    try:
        yield
    except OSError as error:
        problem = _LINK if error.errno == errno.ELOOP else error.strerror or str(error)
        if error.errno in FULL:
            raise JournalFullError(path, f"no space left ({problem})") from error
        if error.errno == errno.EROFS:
            raise JournalSyncError(path, problem) from error
        raise FileAccessError(path, problem) from error
