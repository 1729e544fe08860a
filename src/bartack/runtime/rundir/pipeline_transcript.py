"""The transcript of a program that comes with Bartack: one line for one fact, made from the journal and from nothing else.

Writing it again produces the same bytes, so lines that were deleted, cut, or lost on a full disk come back. Other programs have
another kind of transcript (``transcript.py``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from bartack.core import typed
from bartack.core.files import open_private, replace_file
from bartack.core.text import cut
from bartack.depot import KeptRun
from bartack.errors import BartackError
from bartack.journal import Entry, JournalReader
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.shown import Shown
from bartack.runtime.state import entries as e

T = TypeVar("T")

LONGEST: Final = 400
"""The largest number of characters of a line."""
OURS: Final = "bartack."
"""How the modules of programs begin that come with Bartack."""
_WHO: Final = 17
_PARTY: Final = re.compile(r"(→ )?([A-Za-z0-9_.-]+)  (?=\S)")
"""How a text begins that names its author, or whom it is for."""
_NAMED: Final = frozenset({"output", "attempt.failed"})
"""Kinds of entries whose text begins with who it is about."""
_SHOWN: Final = frozenset(
    {
        "run.created", "run.ended", "hub.started", "hub.stopped", "output", "attempt.failed", "step.started", "step.finished",
        "worker.crashed", "worker.ended", "session.failed", "question.asked", "question.settled",
    }
)  # fmt: skip
"""Kinds of entries that may make a line."""


def is_made_of_facts(run: e.RunCreated | None) -> bool:
    """Whether the transcript of a run is made of facts of its journal."""
    return run is not None and run.worker.startswith(OURS)


def cut_line(text: str) -> str:
    """A text as one line that is not too long, without characters that a terminal would obey."""
    shown = text
    if not text.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return cut(shown, LONGEST)


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
            data = e.decode_entry(entry.kind, entry.raw) if entry.kind in _SHOWN else None
            made = "" if data is None else self._text_of(data, entry)
            if made:
                who, text = _parted(made) if entry.kind in _NAMED else ("bartack", made)
                at = datetime.fromtimestamp(entry.at // 1_000_000, UTC)
                yield cut_line(f"{at:%Y-%m-%dT%H:%M:%SZ}  {who:<{_WHO}}  {text}") + "\n"

    def _text_of(self, data: e.EntryData, entry: Entry) -> str:
        text = ""
        match data:
            case e.OutputWritten():
                text = self._value(entry, str)
            case e.AttemptFailed(agent=agent, text=problem):
                text = f"{agent}  {problem}"
            case e.RunCreated(run=run, project=project, workspace=workspace):
                text = f"run {run} of {project or os.path.basename(workspace)}"
            case e.HubStarted(hub=hub) if hub > 1:
                text = "run resumed"
            case e.HubStopped(reason=reason):
                text = f"the run was stopped: {reason}"
            case e.WorkerCrashed(path=path, reason=reason):
                text = f"{path} crashed: {reason}"
            case e.WorkerEnded(path=path, error=error, final=True, cut=False) if error is not None:
                text = f"{path} failed: {_problem(error)}"
            case e.FailureRecorded(worker=worker, error=error, suppressed=False):
                text = f"{worker} failed: {_problem(error)}" if worker else f"failed: {_problem(error)}"
            case e.RunEnded(status=status, reason=reason):
                text = f"run {status}: {reason}" if reason else f"run {status}"
            case e.StepStarted(step="ask") | e.StepFinished(step="ask"):
                text = self._question(data, entry)
            case e.QuestionAsked() | e.QuestionSettled():
                text = _of_agent(data)
            case _:
                pass
        return text

    def _question(self, data: e.StepStarted | e.StepFinished, entry: Entry) -> str:
        if isinstance(data, e.StepStarted):
            self._questions[data.p, data.n] = data.question
            return f"question {data.question}: {self._value(entry, AskArgs).question}"
        number = self._questions.get((data.p, data.n), "a question")
        by = f" by {data.by}" if data.by else ""
        answer = msgspec.json.encode(self._value(entry, object)).decode()
        return f"{number} answered{by}: {answer}"

    def _value(self, entry: Entry, type_: type[T]) -> T:
        return typed.decode(self._load(entry) or b"null", type=type_)


def _of_agent(data: e.QuestionAsked | e.QuestionSettled) -> str:
    """A question of an agent, or what became of it."""
    if isinstance(data, e.QuestionAsked):
        tool = f" [{data.tool}]" if data.tool else ""
        return f"question {data.id}: agent {data.agent} asks: {data.about}{tool}"
    by = f" by {data.by}" if data.by else ""
    return f"{data.id} {data.how}{by}{f': {data.answer}' if data.answer else ''}"


def _parted(text: str) -> tuple[str, str]:
    """The author of a text, and the rest of it."""
    found = _PARTY.match(text)
    if found is None:
        return "bartack", text
    return f"bartack → {found[2]}" if found[1] else found[2], text[found.end() :]


def _problem(error: ErrorData) -> str:
    return f"{error.type.rpartition(':')[2]}: {error.message.partition(chr(10))[0]}"


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(lines).encode("utf-8", "replace")


class FactTranscript:
    """Writes the transcript of one run, as its journal grows.

    Args:
        run: The run.
        file: Where it is.
    """

    def __init__(self, run: KeptRun, file: Path) -> None:
        self._run = run
        self._file = file
        self._fd = -1
        self._size = 0
        """How long the file is to be."""
        self._reader: JournalReader | None = None

    def add(self, shown: Shown) -> None:
        """Something happened: the journal shows whether it is a fact."""
        self.look()

    def repair(self, outputs: int) -> None:
        """Make the file match the journal, whatever became of it."""
        self._close_file()
        self.look()

    def look(self) -> None:
        """Add the lines of new entries."""
        try:
            if self._reader is None or not self._is_kept():
                self._write_anew()
            else:
                self._append(_encoded(self._lines.take(self._reader.read_on())))
        except (OSError, BartackError, msgspec.MsgspecError):
            # It is for people. The hub reports what is wrong with the disk or the journal; this is tried again.
            self._close_file()

    def close(self) -> None:
        """Nothing more is added."""
        self.look()
        self._close_file()

    def _is_kept(self) -> bool:
        try:
            facts = os.stat(self._file)
        except FileNotFoundError:
            return False
        return facts.st_size == self._size and os.path.samestat(facts, os.fstat(self._fd))

    def _write_anew(self) -> None:
        self._close_file()
        self._reader = self._run.open_reader()
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

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._reader is not None:
            self._reader.close()
            self._reader = None
