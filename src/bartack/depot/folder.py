"""The runs in a directory of this machine: a state directory has one of these, named ``runs``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bartack.core.batch import Batch
from bartack.core.disk import Disk
from bartack.core.ids import claim_run_dir
from bartack.depot._directory import SUMMARY_FILE, TREE_LOCK_FILE, FileRun
from bartack.depot._order import newest_first, note_newest
from bartack.errors import FileAccessError
from bartack.journal.file import JOURNAL_FILE

_LEFT_BY_HUBS: Final = frozenset({SUMMARY_FILE, TREE_LOCK_FILE, "hub.log", "transcript.txt", ".failed"})
"""Files that a run has once a process has run it. A directory with one of them and without a journal was deleted in part."""


class FileRuns:
    """See ``RunStore``.

    Args:
        directory: Where the directories of the runs are.
        disk: Where the journals are kept; the operating system's files by default.
    """

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self._disk = disk

    def paths(self) -> list[Path]:
        """The directories of the runs that are there, the newest first.

        Raises:
            FileAccessError: The operating system refused.
        """
        try:
            found = [name for name in os.listdir(self.directory) if name.startswith("run-")]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise FileAccessError(str(self.directory), error.strerror or str(error)) from error
        places = (self.directory / name for name in newest_first(self.directory, found))
        return [place for place in places if is_run(place)]

    def runs(self) -> list[FileRun]:
        """See ``RunStore.runs``."""
        return [FileRun(path, self._disk) for path in self.paths()]

    def run(self, run_id: str) -> FileRun:
        """See ``RunStore.run``."""
        return FileRun(self.directory / run_id, self._disk)

    def new_run(self) -> FileRun:
        """See ``RunStore.new_run``."""
        return FileRun(self.claim(), self._disk)

    def claim(self, batch: Batch | None = None) -> Path:
        """Make the directory of a new run. It becomes durable with a batch, or with the journal that is made in it."""
        run_id, path = claim_run_dir(self.directory, batch=batch)
        if self._disk is None:
            note_newest(self.directory, run_id)
        return path


def is_run(place: Path) -> bool:
    """Whether a directory holds a run, or the rest of a deleted one. A run that is being made has no journal yet."""
    try:
        os.lstat(place / JOURNAL_FILE)
    except NotADirectoryError:
        return False
    except FileNotFoundError:
        return _is_left(place)
    except OSError:
        return True  # the directory of another user: ``KeptRun.check_readable`` reports that
    return True


def _is_left(place: Path) -> bool:
    try:
        return not _LEFT_BY_HUBS.isdisjoint(os.listdir(place))
    except OSError:
        return False
