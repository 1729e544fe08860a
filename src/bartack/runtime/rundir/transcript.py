"""The transcript of a run: what it printed and logged, and what happened, as lines for people.

What workers print and log is in the journal and comes here afterwards. A hub that is killed in between, or a full disk, leaves a
transcript that lacks some lines. They are added in their places when the run is resumed, or when the transcript is read, so that
each text is here once. Programs that come with Bartack have another kind of transcript (``pipeline_transcript.py``).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from bartack.core.files import open_private, replace_file
from bartack.depot import KeptRun
from bartack.errors import BartackError
from bartack.journal import Entry, JournalReader
from bartack.runtime.protocol.paths import worker_path
from bartack.runtime.rundir.pipeline_transcript import FactLines, is_made_of_facts
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.entries import OutputWritten, RunCreated
from bartack.runtime.state.run_state import State

CHUNK: Final = 64 * 1024
TIME: Final = 13
"""How long the time is that a line begins with."""

_OUTPUT: Final = re.compile(rb"^\d\d:\d\d:\d\d\.\d{3} [^ \n]+: ", re.MULTILINE)
"""How the line of a text begins that a worker printed or logged, and no other line."""


class Transcript:
    """Writes the transcript of one run.

    Args:
        run: The run.
        file: Where it is.
        head: Returns its first line, complete.
    """

    def __init__(self, run: KeptRun, file: Path, head: Callable[[], str]) -> None:
        self._run = run
        self._file = file
        self._head = head
        self._fd = -1
        self._lost = False
        """A line could not be written."""

    def add(self, shown: Shown) -> None:
        """Add a line."""
        if shown.channel in {"print", "log"}:
            text = _output(shown.worker, shown.channel, shown.text)
        else:
            text = f"{shown.worker} [{shown.channel}] {_indented(shown.text)}"
        try:
            self._open()
            at = datetime.fromtimestamp(shown.at / 1e6, UTC) if shown.at else datetime.now(UTC)
            self._write(_line(at, text))
        except OSError:
            self._lost = True

    def look(self) -> None:
        """Do nothing: each line was added when it was shown."""

    def repair(self, outputs: int) -> None:
        """Add missing texts in their places.

        Args:
            outputs: How many texts the journal has.
        """
        with contextlib.suppress(OSError, BartackError):
            if count_outputs(self._file) < outputs:
                self._close_file()
                self._open()  # it has its head, and ends with a whole line
                self._close_file()
                replace_file(self._file, read_transcript(self._run, self._file))
                self._lost = False

    def close(self) -> None:
        """Nothing more is added."""
        if self._lost:
            self.repair(sys.maxsize)
        self._close_file()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, line: str) -> None:
        content = line.encode("utf-8", "replace")
        written = os.write(self._fd, content)
        if written < len(content):
            # The disk had room for a part of it only. The next line must not begin in the middle of this one.
            self._lost = True
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)

    def _open(self) -> None:
        if self._fd >= 0:
            return
        self._fd = open_private(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        size = os.fstat(self._fd).st_size
        if size == 0:
            self._write(self._head())
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


def head_of(run: RunCreated, at: int) -> str:
    """The line that a transcript begins with: which run of which project it is.

    Args:
        run: The run.
        at: When it was created.
    """
    text = f"bartack [run] {run.run} of {run.project or os.path.basename(run.workspace)}"
    return _line(datetime.fromtimestamp(at / 1e6, UTC), text)


class JournalLines:
    """Makes the lines of a transcript of the entries of a journal, as they come. A hub also notes what no journal has.

    Attributes:
        state: What the entries add up to.
        has_facts: Whether the transcript is made from the journal alone.
        head: The line that it begins with if there are texts; empty as long as there are none.

    Args:
        load: Gives the value of an entry.
        texts: Also make the lines of a transcript that has more than the journal.
    """

    def __init__(self, load: Callable[[Entry], bytes | None], *, texts: bool = True) -> None:
        self.state = State()
        self.has_facts = False
        self.head = b""
        self._load = load
        self._texts = texts
        self._facts: FactLines | None = None

    def take(self, entry: Entry) -> list[bytes]:
        """The lines of the next entry, without the head."""
        add_entry(self.state, entry)
        if self._facts is None and entry.kind == RunCreated.kind and is_made_of_facts(self.state.run):
            self.has_facts, self._facts = True, FactLines(self._load)
        if self._facts is not None:
            return [line.encode("utf-8", "replace") for line in self._facts.take([entry])]
        if not self._texts or entry.kind != OutputWritten.kind:
            return []
        if not self.head and self.state.run is not None:
            self.head = head_of(self.state.run, self.state.created_at).encode("utf-8", "replace")
        return [_text_of(entry, self._load)]


class RecordedTexts:
    """What the journal of a run has of its transcript; made by ``read_texts``.

    Attributes:
        state: What the journal adds up to.
        has_facts: Whether the transcript is made from the journal alone.
    """

    def __init__(self) -> None:
        self.state = State()
        self.has_facts = False
        self._head = b""
        self._lines: list[bytes] = []

    def read(self, reader: JournalReader, *, texts: bool) -> None:
        """Read the journal once."""
        made = JournalLines(reader.load_value, texts=texts)
        self.state = made.state
        for entry in reader.read():
            self._lines += made.take(entry)
        self.has_facts, self._head = made.has_facts, made.head

    def transcript(self, file: Path) -> bytes:
        """The complete transcript, whatever became of its file."""
        if self.has_facts:
            return b"".join(self._lines)
        merged = _merge(self._lines, file)[0]
        return merged if file.exists() else self._head + merged

    def lost(self, file: Path) -> list[str]:
        """The lines that are missing in the file of the transcript."""
        if not self.has_facts:
            return [line.decode() for line in _merge(self._lines, file)[1]]
        whole, known = self._lines, file.read_bytes().splitlines(keepends=True) if file.exists() else []
        same = (place for place, line in enumerate(known) if whole[place : place + 1] != [line])
        return [line.decode() for line in whole[next(same, len(known)) :]]


def read_texts(run: KeptRun, *, texts: bool = True) -> RecordedTexts:
    """What the journal of a run has of its transcript, in one pass. No hub is needed.

    Args:
        run: The run.
        texts: Also of a transcript that has more than the journal.

    Raises:
        JournalError: The journal cannot be read.
    """
    found = RecordedTexts()
    with run.open_reader() as reader:
        found.read(reader, texts=texts)
    return found


def read_transcript(run: KeptRun, file: Path) -> bytes:
    """The complete transcript of a run, whatever became of the file.

    Raises:
        JournalError: Its journal cannot be read.
    """
    return read_texts(run).transcript(file)


def _merge(texts: list[bytes], file: Path) -> tuple[bytes, list[bytes]]:
    """The complete transcript, each text of the journal in its place; and the lines that were missing."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, line in enumerate(texts):
        places[line[TIME:]].append(place)
    merged: list[bytes] = []
    lost: list[bytes] = []
    done = 0
    for record in _records(file):
        known = places.get(record[TIME:], []) if _OUTPUT.match(record) else []
        place = bisect_left(known, done)
        if place < len(known):
            merged += texts[done : known[place]]
            lost += texts[done : known[place]]
            done = known[place] + 1
        merged.append(record)
    return b"".join(merged + texts[done:]), lost + texts[done:]


def _records(file: Path) -> list[bytes]:
    """The whole lines of a transcript, each with the lines that continue its text."""
    records: list[bytes] = []
    with contextlib.suppress(FileNotFoundError), file.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            if records and line.startswith(b" " * TIME):
                records[-1] += line
            else:
                records.append(line)
    return records


def _text_of(entry: Entry, load: Callable[[Entry], bytes | None]) -> bytes:
    """The lines of a text that a worker has printed or logged."""
    text: str = msgspec.json.decode(load(entry) or b'""')
    at = datetime.fromtimestamp(entry.at / 1e6, UTC)
    shown = _output(worker_path(str(entry.data["p"])), str(entry.data["channel"]), text)
    return _line(at, shown).encode("utf-8", "replace")


def _output(worker: str, channel: str, text: str) -> str:
    return f"{worker}: {'' if channel == 'print' else '[log] '}{_indented(text)}"


def _indented(text: str) -> str:
    """Only the first line of a text begins where lines begin."""
    return text.replace("\n", "\n" + " " * TIME)


def _line(at: datetime, text: str) -> str:
    return f"{at.strftime('%H:%M:%S.%f')[:-3]} {text}\n"
