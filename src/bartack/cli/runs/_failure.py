"""The report of a failure for people: which worker failed, where in the source, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bartack.cli.app._terminal import Screen, printable
from bartack.cli.runs._runs import short_path
from bartack.errors import (
    AgentBudgetError,
    BartackError,
    BudgetExceededError,
    ForeignAwaitError,
    ForgottenAwaitError,
    MessageTooLargeError,
    MessageValueError,
    NestedStepError,
    NotInWorkerError,
    ProgramNotPinnedError,
    ReplayMismatchError,
    TypeMismatchError,
    WorkerDefinitionError,
)
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.frames import ErrorData, StackLine
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

SHOWN_FRAMES = 12
"""The largest number of traceback lines shown; the middle of a longer one is left out."""


_CAP = re.compile(r"budget\.[a-z_]+")
_OWN_ERRORS = f"{BartackError.__module__}:"

_OF_THE_PROGRAM = (
    ForeignAwaitError,
    ForgottenAwaitError,
    MessageTooLargeError,
    MessageValueError,
    NestedStepError,
    NotInWorkerError,
    ProgramNotPinnedError,
    ReplayMismatchError,
    TypeMismatchError,
    WorkerDefinitionError,
)
"""Errors that occur again when the same program is resumed."""


def error_name(error: ErrorData) -> str:
    """Return the class name of an error, with its code."""
    name = error.type.rpartition(":")[2]
    return f"{name} [{error.code}]" if error.code else name


class FailureText:
    """Writes failures of one run."""

    def __init__(self, screen: Screen, run: RunDir, root: str) -> None:
        self._screen = screen
        self._pinned = str(run.program) + os.sep
        self._root = root

    def write(self, error: ErrorData, indent: str = "  ") -> None:
        """Write an error with its traceback and its causes."""
        for line in self.lines(error, indent):
            self._screen.line(line)

    def lines(self, error: ErrorData, indent: str = "  ") -> Iterator[str]:
        """The lines of an error: message, traceback, causes."""
        yield from self._error(error, indent)
        cause, seen = error.cause, 0
        while cause is not None and seen < SHOWN_FRAMES:
            yield f"{indent}{self._screen.paint('caused by', 'dim')}"
            yield from self._error(cause, indent)
            cause, seen = cause.cause, seen + 1

    def _error(self, error: ErrorData, indent: str) -> Iterator[str]:
        first, *rest = error.message.splitlines() or [""]
        yield f"{indent}{self._screen.paint(error_name(error), 'red')}: {printable(first)}"
        for line in rest:
            yield f"{indent}  {printable(line)}"
        half = SHOWN_FRAMES // 2
        for index, frame in enumerate(error.stack):
            left_out = len(error.stack) - SHOWN_FRAMES
            if left_out > 0 and half <= index < half + left_out:
                if index == half:
                    yield f"{indent}  ... {left_out} more ..."
                continue
            yield from (f"{indent}  {line}" for line in self._frame(error, frame))
            if frame.repeated:
                yield f"{indent}  ... the same {_times(frame.repeated)} more ..."

    def _frame(self, error: ErrorData, frame: StackLine) -> Iterator[str]:
        """One frame of a traceback: the place and the source line."""
        drawn = self._drawn(error, frame)
        if drawn:
            yield from drawn
            return
        place = f"{self._source(frame.file)}:{frame.line}"
        yield f"{self._screen.paint(place, 'cyan')} in {printable(frame.function)}"
        if frame.text:
            yield f"    {printable(frame.text.strip())}"

    def _drawn(self, error: ErrorData, frame: StackLine) -> list[str]:
        """A line of a Patchwork program in the form of the checker; nothing if its source is missing."""
        if not frame.column:
            return []
        try:
            text = Path(frame.file).read_text("utf-8-sig")
        except (OSError, ValueError):
            return []
        from bartack.language import Diagnostic, Source, Span, render  # noqa: PLC0415 - only failures need it

        name = self._source(frame.file)
        source = Source(text, name)
        if frame.line > len(source.line_starts):
            return []
        start = source.line_starts[frame.line - 1] + frame.column - 1
        label = f"in {printable(frame.function)}"
        found = Diagnostic(error.code, "error", "", name, Span(start, start + frame.width), label)
        return render(found, {name: source}).rstrip().splitlines()[1:]

    def _source(self, file: str) -> str:
        """The path of a source file in the workspace, not of its copy in the run."""
        if file.startswith(self._pinned):
            file = os.path.join(self._root, file.removeprefix(self._pinned))
        return printable(short_path(file))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def write_failure(screen: Screen, run: RunDir, state: State) -> None:
    """Write why a session failed."""
    failure = state.failure
    assert failure is not None
    who = failure.worker or "the session"
    step = f" at step {failure.p}:{failure.n}" if failure.n else ""
    screen.line(f"{screen.paint('failed', 'red')}: {printable(who)}{step}")
    root = state.run.root if state.run else ""
    FailureText(screen, run, root).write(failure.error)
    if state.suppressed:
        screen.line(f"  and {state.suppressed} more failed after it")
    known = known_error(failure.error)
    if known is not None:
        remedy = re.sub(r"\bRUN\b", run.id, known.remedy)
        screen.line(f"  {screen.paint('help', 'bold')}: {printable(remedy)}")
        screen.line(f"  {screen.paint('more', 'bold')}: bartack explain {known.code}")


def known_error(data: ErrorData) -> BartackError | None:
    """Return the Bartack error that is a failure or its cause; ``None`` if the program raised an error of its own."""
    cause: ErrorData | None = data
    while cause is not None:
        if cause.code and cause.type.startswith(_OWN_ERRORS):
            # Without its cause: that may be of a class of the program, which must not be imported here.
            error = revive_error(msgspec.structs.replace(cause, cause=None))
            return error if isinstance(error, BartackError) else None
        cause = cause.cause
    return None


def needs_update(data: ErrorData) -> bool:
    """Whether the program has to be changed, because a resume without a change fails in the same place."""
    return isinstance(known_error(data), _OF_THE_PROGRAM)


def spent_setting(data: ErrorData) -> str:
    """Return the setting to raise if the run failed because its budget is used up, else an empty string."""
    known = known_error(data)
    if isinstance(known, BudgetExceededError):
        return f"budget.{known.unit}"
    if not isinstance(known, AgentBudgetError):
        return ""
    named = _CAP.search(known.message)
    return named[0] if named else ""
