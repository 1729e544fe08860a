"""What a run has to report since a cursor: its lines, its state, and whether there is news that a client waits for.

Everything comes from the journal, read without owning it. So a cursor means the same to every server, before and after any kill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from bartack.core.closing import Closing
from bartack.journal import Entry
from bartack.runtime.protocol.paths import worker_path
from bartack.runtime.rundir.find import ENDED, Status, status_of
from bartack.runtime.rundir.follower import RunFollower
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.receipts import Receipt, receipts_of
from bartack.runtime.state.entries import OutputWritten, RunEnded
from bartack.runtime.state.run_state import State

MOST_LINES: Final = 40
MOST_BYTES: Final = 8 * 1024
"""Of all lines of an answer, as they are written in it."""
LONGEST_LINE: Final = 2000
LOOK_S: Final = 1.0
"""How often a call that waits looks whether it is still wanted, and whether the hub is alive."""

_PARTS: Final = 1_000_000


class Cursor(NamedTuple):
    """How far a client has read: all entries up to ``seq``, and this many lines of the next text.

    As a number it is opaque to clients; a later cursor is a greater number.
    """

    seq: int = 0
    lines: int = 0

    @classmethod
    def parse(cls, number: int) -> Cursor:
        """The cursor that a client was given as a number."""
        return cls(*divmod(number, _PARTS))

    @property
    def number(self) -> int:
        """As a client gets it."""
        return self.seq * _PARTS + self.lines


class Follow(Closing):
    """One look at a run, which can be continued.

    Attributes:
        run: The run.
        lines: What was printed and logged since the cursor, as much as one answer holds.
        newest: The last line of all.
        result: The entry that ended the run, if it has ended.
    """

    def __init__(self, run: RunDir, cursor: Cursor) -> None:
        self.run = run
        self._follower = RunFollower(run, each=self._add, anew=self._begin)
        self._start = cursor
        self._begin()

    def _begin(self) -> None:
        """The first entry is next."""
        self.lines: list[str] = []
        self.newest = ""
        self.result: Entry | None = None
        self.is_full = False
        self._cursor = self._start
        self._size = 0

    @property
    def state(self) -> State:
        """What the journal adds up to."""
        return self._follower.spans.state

    @property
    def cursor(self) -> int:
        """What the client passes to see what follows."""
        return self._cursor.number

    @property
    def status(self) -> Status:
        """The status of the run now."""
        return status_of(self.run, self.state)

    @property
    def has_new_question(self) -> bool:
        """Whether a question is open that was asked after the cursor."""
        return any(asked.seq > self._start.seq for asked in self.state.questions.values())

    def read(self) -> None:
        """Take what was written since the last call.

        Raises:
            JournalError: The journal cannot be read.
        """
        self._follower.read_all()
        self._follower.check()

    def wait(
        self, timeout_s: float, is_withdrawn: Callable[[], bool], progress: Callable[[str], None]
    ) -> None:
        """Read until there is news: the end, a new question, a full answer, or the time is over."""
        limit = time.monotonic() + timeout_s
        shown = ""
        while True:
            self.read()
            left = limit - time.monotonic()
            if self.has_news() or left <= 0 or is_withdrawn():
                return
            if self.newest != shown:
                shown = self.newest
                progress(shown)
            self._follower.wait(min(left, LOOK_S))

    def has_news(self) -> bool:
        """Whether a client that waits should be answered."""
        return self.is_full or self.has_new_question or self.status in ENDED

    def value(self) -> object:
        """The result of a run that is completed."""
        found = None if self.result is None else self._follower.load(self.result)
        return None if found is None else msgspec.json.decode(found)

    def receipts(self) -> list[Receipt]:
        """What agents did in a run of the pipeline, each with its proof."""
        return receipts_of(self._follower)

    def close(self) -> None:
        """Close the journal."""
        self._follower.close()

    # Inside.

    def _add(self, entry: Entry) -> None:
        if entry.kind == RunEnded.kind:
            self.result = entry
        if entry.seq <= self._start.seq:
            return
        if entry.kind == OutputWritten.kind:
            self._take(entry)
        elif not self.is_full and self._cursor.lines == 0:
            self._cursor = Cursor(entry.seq)

    def _take(self, entry: Entry) -> None:
        data = entry.decode(OutputWritten)
        text: str = msgspec.json.decode(self._follower.load(entry) or b'""')
        mark = "" if data.channel == "print" else "[log] "
        lines = [_cut(f"{worker_path(data.p)}: {mark}{line}") for line in text.split("\n")]
        self.newest = lines[-1]
        if self.is_full:
            return
        given = self._cursor.lines
        for line in lines[given:]:
            self._size += len(json.dumps(line)) + 1
            if len(self.lines) >= MOST_LINES or self._size > MOST_BYTES:
                self.is_full = True
                self._cursor = Cursor(self._cursor.seq, given)
                return
            self.lines.append(line)
            given += 1
        self._cursor = Cursor(entry.seq)
        self.is_full = len(self.lines) >= MOST_LINES


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"
