"""The transcript of a program that comes with Bartack: one line for one fact, made from the journal and from nothing else.

Made anew it is the same bytes: what was deleted, cut, or lost on a full disk comes back. Other programs have transcripts of another
kind (``transcript.py``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bartack.core import open_private, replace_file
from bartack.errors import BartackError
from bartack.journal import Entry, FileReader, open_reader
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.state import entries as e

T = TypeVar("T")

LONGEST: Final = 400
"""So many characters a line has at most."""
OURS: Final = "bartack."
"""How the modules of programs begin that come with Bartack."""
_WHO: Final = 17
_PARTY: Final = re.compile(r"(→ )?([A-Za-z0-9_.-]+)  (?=\S)")
"""How a text begins that tells who said it, or to whom it was said."""
_SAID: Final = frozenset({"output", "attempt.failed"})
"""Kinds of entries whose text begins with who it is about."""
_TOLD: Final = frozenset(
    {
        "run.created", "run.ended", "hub.started", "hub.stopped", "output", "attempt.failed", "step.started", "step.finished",
        "worker.crashed", "worker.ended", "session.failed",
    }
)  # fmt: skip
"""Kinds of entries that may make a line."""


def tells_facts(run: e.RunCreated | None) -> bool:
    """Whether the transcript of a run tells facts."""
    return run is not None and run.worker.startswith(OURS)


def cut_line(text: str) -> str:
    """A text as one line that is not too long, without characters that a terminal would obey."""
    shown = text
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


class FactLines:
    """Makes the lines of a transcript of entries as they come.

    Args:
        load: Gives the value of an entry.
    """

    def __init__(self, load: Callable[[Entry], bytes | None]) -> None:
        self._load = load
        self._questions: dict[tuple[str, int], str] = {}

    def take(self, entries: Iterable[Entry]) -> Iterator[str]:
        """The lines of the next entries."""
        for entry in entries:
            data = e.decode_entry(entry.kind, entry.raw) if entry.kind in _TOLD else None
            told = "" if data is None else self._tell(data, entry)
            if told:
                who, text = _parted(told) if entry.kind in _SAID else ("bartack", told)
                at = datetime.fromtimestamp(entry.at // 1_000_000, UTC)
                yield cut_line(f"{at:%Y-%m-%dT%H:%M:%SZ}  {who:<{_WHO}}  {text}") + "\n"

    def _tell(self, data: e.EntryData, entry: Entry) -> str:
        told = ""
        match data:
            case e.Output():
                told = self._value(entry, str)
            case e.AttemptFailed(agent=agent, text=text):
                told = f"{agent}  {text}"
            case e.RunCreated(run=run, project=project, workspace=workspace):
                told = f"run {run} of {project or os.path.basename(workspace)}"
            case e.HubStarted(hub=hub) if hub > 1:
                told = "the run goes on"
            case e.HubStopped(reason=reason):
                told = f"the run was stopped: {reason}"
            case e.WorkerCrashed(path=path, reason=reason):
                told = f"{path} crashed: {reason}"
            case e.WorkerEnded(path=path, error=error, final=True, cut=False) if error is not None:
                told = f"{path} failed: {_problem(error)}"
            case e.FailureRecorded(worker=worker, error=error, suppressed=False):
                told = f"{worker} failed: {_problem(error)}" if worker else f"failed: {_problem(error)}"
            case e.RunEnded(status=status, reason=reason):
                told = f"run {status}: {reason}" if reason else f"run {status}"
            case e.StepStarted(step="ask") | e.StepFinished(step="ask"):
                told = self._question(data, entry)
            case _:
                pass
        return told

    def _question(self, data: e.StepStarted | e.StepFinished, entry: Entry) -> str:
        if isinstance(data, e.StepStarted):
            self._questions[data.p, data.n] = data.question
            return f"question {data.question}: {self._value(entry, AskArgs).question}"
        number = self._questions.get((data.p, data.n), "a question")
        by = f" by {data.by}" if data.by else ""
        answer = msgspec.json.encode(self._value(entry, object)).decode()
        return f"{number} answered{by}: {answer}"

    def _value(self, entry: Entry, type_: type[T]) -> T:
        return msgspec.json.decode(self._load(entry) or b"null", type=type_)


def _parted(text: str) -> tuple[str, str]:
    """Who said a text, and the rest of it."""
    found = _PARTY.match(text)
    if found is None:
        return "bartack", text
    return f"bartack → {found[2]}" if found[1] else found[2], text[found.end() :]


def _problem(error: ErrorData) -> str:
    return f"{error.type.rpartition(':')[2]}: {error.message.partition(chr(10))[0]}"


def facts_told(run_dir: Path) -> bytes:
    """The whole transcript of a run whose transcript tells facts.

    Raises:
        JournalError: Its journal cannot be read.
    """
    with open_reader(run_dir) as reader:
        return _encoded(FactLines(reader.load_value).take(reader.read()))


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")


class FactTranscript:
    """Writes the transcript of one run, as its journal grows.

    Args:
        run_dir: The directory of the run.
        file: Where it is.
    """

    def __init__(self, run_dir: Path, file: Path) -> None:
        self._run_dir = run_dir
        self._file = file
        self._fd = -1
        self._size = 0
        """How long the file is to be."""
        self._reader: FileReader | None = None

    def add(self, shown: Shown) -> None:
        """Something happened: the journal says whether it is a fact."""
        self.look()

    def mend(self, outputs: int) -> None:
        """Bring the file to what the journal says, whatever became of it."""
        self._let_go()
        self.look()

    def look(self) -> None:
        """Add what the journal has more."""
        try:
            if self._reader is None or not self._is_kept():
                self._write_anew()
            else:
                self._append(_encoded(self._lines.take(self._reader.read_on())))
        except (OSError, BartackError, msgspec.MsgspecError):
            # It is for people. What is wrong with the disk or the journal is told by who runs it; this is tried again.
            self._let_go()

    def close(self) -> None:
        """Nothing more is added."""
        self.look()
        self._let_go()

    def _is_kept(self) -> bool:
        try:
            facts = os.stat(self._file)
        except FileNotFoundError:
            return False
        return facts.st_size == self._size and os.path.samestat(facts, os.fstat(self._fd))

    def _write_anew(self) -> None:
        self._let_go()
        self._reader = open_reader(self._run_dir)
        self._lines = FactLines(self._reader.load_value)
        content = _encoded(self._lines.take(self._reader.read_on()))
        if not self._file.is_file() or self._file.read_bytes() != content:
            replace_file(self._file, content)
        self._fd = open_private(self._file, os.O_WRONLY | os.O_APPEND)
        self._size = len(content)

    def _append(self, content: bytes) -> None:
        self._size += len(content)
        if content:
            # A disk that has no room for all of it leaves a file of another length: it is written anew.
            os.write(self._fd, content)

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._reader is not None:
            self._reader.close()
            self._reader = None
