"""The report of a failure for people: which worker failed, where in the source, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bartack.cli.app._options import with_on
from bartack.cli.app._runs import short_path
from bartack.cli.app._terminal import Screen, printable
from bartack.runtime.protocol.frames import ErrorData, Site, StackLine
from bartack.runtime.protocol.remedies import known_error, needs_update, spent_setting
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State

SHOWN_FRAMES = 12
"""The largest number of traceback lines shown; the middle of a longer one is left out."""


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
        from bartack.language import Diagnostic, Source, Span  # noqa: PLC0415 - only failures need it
        from bartack.language.syntax.render import render  # noqa: PLC0415 - only failures need it

        name = self._source(frame.file)
        source = Source(text, name)
        if frame.line > len(source.line_starts):
            return []
        start = source.line_starts[frame.line - 1] + frame.column - 1
        label = f"in {printable(frame.function)}"
        found = Diagnostic(error.code, "error", "", name, Span(start, start + frame.width), label)
        return render(found, {name: source}).rstrip().splitlines()[1:]

    def site(self, site: Site, *, as_recorded: bool, indent: str = "  ") -> Iterator[str]:
        """The lines of a place in the program: file and line and, if the program is still the recorded one, its source."""
        file = os.path.join(self._pinned, site.file)
        place = f"{self._source(file)}:{site.line}"
        yield f"{indent}{self._screen.paint(place, 'cyan')}"
        text = _line_at(file, site.line) if as_recorded else ""
        if text:
            yield f"{indent}    {printable(text)}"

    def _source(self, file: str) -> str:
        """The path of a source file in the workspace, not of its copy in the run."""
        if file.startswith(self._pinned):
            file = os.path.join(self._root, file.removeprefix(self._pinned))
        return printable(short_path(file))


def _line_at(file: str, line: int) -> str:
    try:
        with open(file, encoding="utf-8-sig") as source:
            return next(islice(source, max(line - 1, 0), None), "").strip()
    except (OSError, ValueError):
        return ""


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
    text = FailureText(screen, run, root)
    text.write(failure.error)
    for line in _chain(screen, text, state, failure.worker):
        screen.line(line)
    if state.suppressed:
        screen.line(f"  and {state.suppressed} more failed after it")
    known = known_error(failure.error)
    if known is not None:
        resume = f"bartack resume {run.id}"
        remedy = re.sub(r"\bRUN\b", run.id, known.remedy).replace(resume, with_on(resume))
        screen.line(f"  {screen.paint('help', 'bold')}: {printable(remedy)}")
        screen.line(f"  {screen.paint('more', 'bold')}: bartack explain {known.code}")


def _chain(screen: Screen, text: FailureText, state: State, path: str) -> Iterator[str]:
    """Where the failing worker was started, and the workers above it, from the inside out."""
    worker = state.workers.get(path)
    while worker is not None and worker.parent[0]:
        p, n = worker.parent
        above = state.worker_of(p)
        how = "spawned" if worker.spawned else "delegated"
        by = printable(p if above is None else above.path)
        yield f"  {screen.paint(f'{how} by', 'dim')} {by} at step {printable(f'{p}:{n}')}"
        if worker.site is not None:
            yield from text.site(worker.site, as_recorded=worker.seq > state.pinned_seq, indent="    ")
        worker = above


def write_decision(screen: Screen, run_id: str, state: State) -> bool:
    """Write what a person has to decide before a failed run is resumed, if that can be known; returns whether it is."""
    resume = f"bartack resume {run_id}"
    if state.undecided:
        screen.line("  find out whether that step happened, then choose:")
        screen.line(f"    {with_on(resume)} --unknown retry | done VALUE | fail")
    elif state.failure is not None and needs_update(state.failure.error):
        screen.line(f"  fix the program, then: {with_on(f'{resume} --update')}")
    elif state.failure is not None and (setting := spent_setting(state.failure.error)):
        screen.line(f"  to raise the budget: {with_on(resume)} --set {setting}=AMOUNT")
    else:
        return False
    return True
