"""The transcript of a run: what it printed and logged, and what happened, as lines for people.

What workers print and log is in the journal and comes here afterwards. Whoever is killed in between leaves a transcript that
lacks the last of it; it is added when the run is resumed, or when somebody reads the transcript. So each text is here once.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import FILE_MODE
from bartack.journal import open_reader
from bartack.runtime._ledger import Show
from bartack.runtime._places import worker_path

CHUNK: Final = 64 * 1024

_OUTPUT: Final = re.compile(rb"^\d\d:\d\d:\d\d\.\d{3} [^ \n]+: ", re.MULTILINE)
"""How the line of a text begins that a worker printed or logged, and no other line."""


class Transcript:
    """Writes the transcript of one run.

    Args:
        run_dir: The directory of the run.
        file: Where it is.
        head: Says what it begins with.
    """

    def __init__(self, run_dir: Path, file: Path, head: Callable[[], str]) -> None:
        self._run_dir = run_dir
        self._file = file
        self._head = head
        self._fd = -1

    def add(self, shown: Show) -> None:
        """Add a line."""
        self._open()
        if shown.channel in {"print", "log"}:
            said = _said(shown.worker, shown.channel, shown.text)
        else:
            said = f"{shown.worker} [{shown.channel}] {_indented(shown.text)}"
        self._write(_line(datetime.now(UTC), said))

    def mend(self, outputs: int) -> None:
        """Add what is missing.

        Args:
            outputs: How many texts the journal has.
        """
        with contextlib.suppress(OSError):
            if count_outputs(self._file) < outputs:
                lost = lost_lines(self._run_dir, self._file)
                self._open()
                for line in lost:
                    self._write(line)

    def close(self) -> None:
        """Nothing more is added."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fd, line.encode("utf-8", "replace"))

    def _open(self) -> None:
        if self._fd >= 0:
            return
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._file, flags, FILE_MODE)
        size = os.fstat(self._fd).st_size
        if size == 0:
            self._write(_line(datetime.now(UTC), self._head()))
        elif os.pread(self._fd, 1, size - 1) != b"\n":
            # A power cut has torn the last line. What it was is in the journal, if it was a text of a worker.
            os.ftruncate(self._fd, _end_of_lines(self._fd, size))


def _end_of_lines(fd: int, size: int) -> int:
    """Where the last whole line of a file ends."""
    while size > 0:
        start = max(size - CHUNK, 0)
        found = os.pread(fd, size - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        size = start
    return 0


def count_outputs(file: Path) -> int:
    """How many texts of workers a transcript has."""
    try:
        with file.open("rb") as stream:
            return sum(1 for line in stream if _OUTPUT.match(line) and line.endswith(b"\n"))
    except FileNotFoundError:
        return 0


def lost_lines(run_dir: Path, file: Path) -> list[str]:
    """The lines that a transcript lacks: texts that are in the journal, behind those that it has."""
    known = count_outputs(file)
    lost: list[str] = []
    with open_reader(run_dir) as reader:
        for entry in reader.read():
            if entry.kind != "output":
                continue
            known -= 1
            if known < 0:
                text: str = msgspec.json.decode(reader.load_value(entry) or b'""')
                at = datetime.fromtimestamp(entry.at / 1e6, UTC)
                said = _said(worker_path(str(entry.data["p"])), str(entry.data["channel"]), text)
                lost.append(_line(at, said))
    return lost


def _said(worker: str, channel: str, text: str) -> str:
    return f"{worker}: {'' if channel == 'print' else '[log] '}{_indented(text)}"


def _indented(text: str) -> str:
    """Only the first line of a text begins where lines begin."""
    return text.replace("\n", "\n" + " " * 13)


def _line(at: datetime, said: str) -> str:
    return f"{at.strftime('%H:%M:%S.%f')[:-3]} {said}\n"
