"""Where a process of an agent writes what it says: a pipe, or a file that outlives the hub and is followed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from bartack.core.files import open_private
from bartack.core.watch import Watch, open_watch

CHUNK: Final = 65_536
LOOK_S: Final = 0.05
"""How often a file is read where the system does not report changes."""


class Output(Protocol):
    """The stdout of a process, as its owner reads it."""

    @property
    def ready_fd(self) -> int | None:
        """Can be read when there is something to read; ``None``: look again every ``LOOK_S``."""
        ...

    def read(self) -> bytes | None:
        """Some bytes; none at the end; ``None`` if there are none now."""
        ...

    def drain(self) -> bytes | None:
        """The same after the process has ended: what is there now is all there is."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...


class PipeOutput:
    """The end of a pipe that we read."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def ready_fd(self) -> int | None:
        """See ``Output.ready_fd``."""
        return self._fd

    def read(self) -> bytes | None:
        """See ``Output.read``."""
        with suppress(BlockingIOError):
            try:
                return os.read(self._fd, CHUNK)
            except ConnectionError:
                return b""
        return None

    def drain(self) -> bytes | None:
        """See ``Output.drain``."""
        return self.read()

    def close(self) -> None:
        """See ``Output.close``."""
        os.close(self._fd)


class FileOutput:
    """A file that the process appends to. Only what is written from now on is read."""

    def __init__(self, path: Path) -> None:
        self._fd = open_private(path, os.O_RDONLY | os.O_CREAT)
        try:
            self._watch: Watch = open_watch(str(path.parent))
        except OSError:
            os.close(self._fd)
            raise
        os.lseek(self._fd, 0, os.SEEK_END)

    @property
    def ready_fd(self) -> int | None:
        """See ``Output.ready_fd``."""
        return self._watch.fileno()

    def read(self) -> bytes | None:
        """See ``Output.read``: a file has no end as long as the process lives."""
        data = os.read(self._fd, CHUNK)
        if len(data) == CHUNK:
            return data  # there may be more: what was reported stays reported
        with suppress(FileNotFoundError):
            self._watch.wait(0)
        # What was written before the report was taken; everything after that is reported again.
        left = os.fstat(self._fd).st_size - os.lseek(self._fd, 0, os.SEEK_CUR)
        return (data + os.read(self._fd, left) if left > 0 else data) or None

    def drain(self) -> bytes | None:
        """See ``Output.drain``."""
        return os.read(self._fd, CHUNK)

    def close(self) -> None:
        """See ``Output.close``."""
        self._watch.close()
        os.close(self._fd)
