"""The files of a conversation in a person's home, and their copies in the run.

A program that uses the login of a person keeps its sessions in the home of that person, which no other machine has. So they are
copied into the run, which travels. Where they come back, the copy counts: files and conversations of a run are of one moment, and
an agent must not remember changes that are not there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bartack.core.trust import make_private

COPIES: Final = "copies"
"""Where they are copied to, beside the stream of the conversation."""


class HomeFiles(NamedTuple):
    """The files of one conversation.

    Attributes:
        home: The directory in which the program keeps its sessions.
        copies: Where the run has them.
        pattern: Which they are, seen from either.
    """

    home: Path
    copies: Path
    pattern: str

    def save(self) -> None:
        """Copy those of the home into the run."""
        for name in _names(self.home, self.pattern):
            _copy(self.home / name, self.copies / name)

    def restore(self) -> None:
        """Copy those of the run back, unless the home has some."""
        if not any(_names(self.home, self.pattern)):
            self.set_back()

    def set_back(self) -> None:
        """Have in the home what the run has, and nothing else of the conversation."""
        kept = [*_names(self.copies, self.pattern)]
        for name in _names(self.home, self.pattern):
            if name not in kept:
                (self.home / name).unlink(missing_ok=True)
        for name in kept:
            _copy(self.copies / name, self.home / name)


def _names(place: Path, pattern: str) -> Iterator[Path]:
    return (found.relative_to(place) for found in sorted(place.glob(pattern)))


def _copy(source: Path, target: Path) -> None:
    """Copy a file that a program may be writing to, unless that was done."""
    if _facts(source) == _facts(target):
        return
    make_private(target.parent)
    part = target.with_suffix(".part")
    shutil.copy2(source, part)
    part.chmod(0o600)
    part.replace(target)


def _facts(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
