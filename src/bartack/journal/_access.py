"""The operating system's refusals, as an error with a code."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from bartack.errors import FileAccessError


@contextmanager
def access(path: str) -> Generator[None]:
    """Raise ``FileAccessError`` for ``path`` where the operating system raises ``OSError``."""
    try:
        yield
    except OSError as error:
        raise FileAccessError(path, error.strerror or str(error)) from error
