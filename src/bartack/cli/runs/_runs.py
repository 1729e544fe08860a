"""Shared by the commands for runs: how a run is named on the command line, and how its parts are shown."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from bartack.cli.app._options import workspace_option as workspace_option  # noqa: PLC0414 - the commands for runs take it from here
from bartack.cli.app._terminal import Screen, Style, human_time, printable, write_note
from bartack.core import RealDisk
from bartack.errors import BartackError, RunNotFoundError
from bartack.journal import FileBlobs, open_reader
from bartack.runtime.protocol.steps import AskArgs
from bartack.runtime.rundir.find import RunSummary, find_run, list_runs, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import Timeline, value_of
from bartack.runtime.state.worker_state import Value

STYLES: Final[dict[str, Style]] = {
    "running": "cyan",
    "waiting": "yellow",
    "interrupted": "yellow",
    "completed": "green",
    "failed": "red",
    "unreadable": "red",
    "cancelled": "dim",
    "aborted": "dim",
    "done": "green",
    "skipped": "yellow",
}


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Run ids for the shell's completion."""
    workspace = Path(context.params.get("workspace") or ".")
    try:
        ids = [run.id for run in list_runs(workspace)]
    except BartackError:
        return []  # completion cannot show an error
    return [name for name in [*ids, "latest"] if name.startswith(incomplete)]


run_argument = click.argument("run", metavar="RUN", shell_complete=complete_run)
"""A required run."""

latest_argument = click.argument("run", metavar="[RUN]", default="latest", shell_complete=complete_run)
"""A run; the newest by default."""


def locate(asked: str, workspace: str) -> RunDir:
    """Find the run that a name stands for.

    Raises:
        RunNotFoundError: No run matches, or several do.
    """
    found = find_run(asked, Path(workspace))
    if asked == "latest":
        _note_newer(found, Path(workspace))
    return found


def _note_newer(found: RunDir, workspace: Path) -> None:
    """Report the runs that are newer than the latest readable one."""
    for run in list_runs(workspace):
        if run.id == found.id:
            return
        note_unreadable(summarise(run))


def note_unreadable(summary: RunSummary) -> None:
    """Report a run that a command skips."""
    reason = summary.error.splitlines()[0] if summary.error else "it is unreadable"
    write_note(f"{summary.run} is skipped: {printable(reason)}")


def read_timeline(run: RunDir, newest: int | None = None) -> Timeline:
    """Read the timeline of a run; with ``newest``, at most that many finished items.

    Raises:
        RunNotFoundError: The journal does not contain a run.
    """
    timeline = Timeline(newest)
    with open_reader(run.path) as reader:
        timeline.add_all(reader.read())
    if newest is not None:
        timeline.compact(newest)
    if timeline.state.run is None:
        raise RunNotFoundError(run.id)
    return timeline


def load_value(run: RunDir, value: Value) -> bytes:
    """Load a payload of the run, as encoded JSON, from the entry or its blob."""
    return value_of(value, FileBlobs(str(run.path / "blobs"), RealDisk()).get)


class QuestionFacts(msgspec.Struct):
    """An open question."""

    id: str
    worker: str
    question: str
    type: str
    options: list[str] | None


def open_questions(run: RunDir, state: State) -> list[QuestionFacts]:
    """The unanswered questions of a run."""
    found: list[QuestionFacts] = []
    for number, (path, p, n) in state.questions.items():
        opened = state.workers[path].open[p, n]
        args = msgspec.json.decode(load_value(run, opened.asked), type=AskArgs)
        found.append(QuestionFacts(number, path, args.question, args.type, args.options))
    return found


def iso(at: int) -> str:
    """Format microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(then: str) -> str:
    """Format how long ago a time in UTC was."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(then)).total_seconds()
    except ValueError:
        return ""
    return f"{human_time(round(max(seconds, 0.0)))} ago" if seconds >= 1 else "now"


def short_path(path: str) -> str:
    """Make a path relative to the current directory if it is below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def paint_status(screen: Screen, status: str) -> str:
    """Return a status in its colour."""
    style = STYLES.get(status)
    return screen.paint(status, style) if style else status


def pretty(encoded: bytes) -> str:
    """Format encoded JSON for people: a string without quotes, everything else indented."""
    value: object = msgspec.json.decode(encoded)
    if isinstance(value, str):
        return value
    return msgspec.json.format(encoded, indent=2).decode()
