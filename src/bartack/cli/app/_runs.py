"""Shared by the commands for runs: how a run is named on the command line, and how its parts are shown."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from bartack.cli.app._options import is_given
from bartack.cli.app._options import workspace_option as workspace_option  # noqa: PLC0414 - the commands for runs take it from here
from bartack.cli.app._pipeline_options import PIPELINE_FILE
from bartack.cli.app._terminal import Screen, Style, human_time, local_moment, printable, write_note
from bartack.depot import KeptRun
from bartack.errors import BartackError, RunNotFoundError
from bartack.runtime.rundir.asked import load_question
from bartack.runtime.rundir.find import ENDED, TERMINAL, RunSummary, find_run, list_runs, summarise
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.run_state import State
from bartack.runtime.state.timeline import Timeline, name_deadlock, value_of
from bartack.runtime.state.worker_state import AskedQuestion, Value

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
    found = [name for name in [*ids, "latest"] if name.startswith(incomplete)]
    if found or not incomplete.startswith("run-"):
        return found
    from bartack.runtime.client.everywhere import ids_elsewhere  # noqa: PLC0415 - only ids of other workspaces need it

    return ids_elsewhere(incomplete)


run_argument = click.argument("run", metavar="RUN", shell_complete=complete_run)
"""A required run."""

latest_argument = click.argument("run", metavar="[RUN]", default="latest", shell_complete=complete_run)
"""A run; the newest by default."""

_CHOSEN: Final = "bartack.newest"
"""In the context of a command: it was called without a run."""


class RunFirst(click.Command):
    """A command whose first word may name a run, and that has other words after it. Without that name it is for the newest run.

    A first word is a run if it is ``latest``, begins with ``run-`` or with the year of an id, or is a path; a step (``PATH:N``) is
    none.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See ``click.Command.parse_args``."""
        if "--help" in args or "-h" in args:
            return super().parse_args(ctx, args)
        words, _, _ = self.make_parser(ctx).parse_args(list(args))
        first = words.get("run")
        is_named = isinstance(first, str) and (_IS_RUN.match(first) is not None or self._has_no_other_words())
        ctx.meta[_CHOSEN] = not is_named
        return super().parse_args(ctx, args if is_named or not isinstance(first, str) else ["latest", *args])

    def _has_no_other_words(self) -> bool:
        return sum(isinstance(parameter, click.Argument) for parameter in self.params) == 1


_IS_RUN: Final = re.compile(r"(?!.*:\d+$)(?:latest$|run-|20\d\d[\d-]*[0-9a-f]*$|\.{1,2}$|.*/)")


def locate_or_newest(asked: str, workspace: str) -> RunDir:
    """Find the run that a command with ``RunFirst`` is for, and report which one it is if it was not named."""
    found = locate(asked, workspace)
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(_CHOSEN):
        write_note(f"the newest run is {found.id}")
    return found


def locate(asked: str, workspace: str) -> RunDir:
    """Find the run that a name stands for: in the workspace, else by its id or a unique prefix in all workspaces of the user.

    A command that can show runs of a database looks in the user's own one last.

    Raises:
        RunNotFoundError: No run matches, or several do.
    """
    try:
        found = find_run(asked, Path(workspace))
    except RunNotFoundError as missing:
        if is_given("workspace"):
            raise
        from bartack.runtime.client.everywhere import find_elsewhere  # noqa: PLC0415 - most runs are in the workspace

        try:
            placed = find_elsewhere(missing)
        except RunNotFoundError as error:
            from bartack.cli.app._database import find_in_own_database  # noqa: PLC0415 - likewise

            there = find_in_own_database(error)
            if there is None:
                raise
            return there
        write_note(f"{placed.run.id} is a run of {printable(placed.workspace)}")
        return placed.run
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


def read_timeline(run: KeptRun, newest: int | None = None) -> Timeline:
    """Read the timeline of a run; with ``newest``, at most that many finished items.

    Raises:
        RunNotFoundError: The journal does not contain a run.
    """
    timeline = Timeline(newest)
    with run.open_reader() as reader:
        timeline.add_all(reader.read())
    if newest is not None:
        timeline.compact(newest)
    if timeline.state.run is None:
        raise RunNotFoundError(run.id)
    return timeline


def load_value(run: KeptRun, value: Value) -> bytes:
    """Load a payload of the run, as encoded JSON, from the entry or its blob."""
    return value_of(value, run.open_blobs().get)


class QuestionFacts(msgspec.Struct, omit_defaults=True):
    """An open question; with an agent's, which agent asks, and for a permission the tool and its input."""

    id: str
    worker: str
    question: str
    type: str
    options: list[str] | None
    kind: str
    agent: str = ""
    tool: str = ""
    input: str = ""

    @property
    def asker(self) -> str:
        """Who asks: the worker, or an agent for it."""
        return f"agent {self.agent} for {self.worker}" if self.agent else self.worker

    @property
    def hint(self) -> str:
        """What to type as its answer: a choice of a permission, or any other value."""
        return "|".join(self.options or ()) if self.kind == "permission" else "VALUE"

    @property
    def use(self) -> str:
        """What an agent wants to use its tool with, in one line; empty if that is not the question."""
        return f"{self.tool} {self.input}".rstrip()


def open_questions(run: KeptRun, state: State) -> list[QuestionFacts]:
    """The unanswered questions of a run."""
    return [_facts(run, question) for question in state.questions.values()]


def _facts(run: KeptRun, question: AskedQuestion) -> QuestionFacts:
    args, tool_input = load_question(run, question)
    return QuestionFacts(
        question.id,
        question.worker,
        args.question,
        args.type,
        args.options,
        question.kind,
        question.agent,
        question.tool,
        tool_input,
    )


def program_name(program: str) -> str:
    """The short name of a program."""
    name = Path(program).name
    return "pipeline" if name == PIPELINE_FILE else name


def may_be_queued(summary: RunSummary) -> bool:
    """Whether nodes of a database may be going to run a run."""
    return summary.status not in TERMINAL and not summary.pid


def remark_of(summary: RunSummary) -> str:
    """What a run waits for, or why it ended, in a few words."""
    if summary.questions and summary.status not in ENDED - {"interrupted"}:
        return f"waits for an answer: {', '.join(summary.questions)}"
    if summary.rests_until and summary.status == "interrupted":
        return describe_rest(summary.rests_until, summary.rests_for)
    if summary.deadlock:
        return name_deadlock(summary.deadlock)
    if not summary.error:
        return ""
    first = summary.error.splitlines()[0]
    # The status shows already that it was cancelled.
    cancelled = summary.status in {"aborted", "cancelled"}
    return printable(first.removeprefix("cancelled: ") if cancelled else first)


def describe_rest(until: str, about: str) -> str:
    """What a run that no process runs waits for; ``until`` is a time in UTC."""
    moment = round(datetime.fromisoformat(until).timestamp() * 1e6)
    return f"rests until {local_moment(moment)}, {printable(about)}"


def iso(at: int) -> str:
    """Format microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cost_of(summary: RunSummary) -> str:
    """What a run has cost, in a list; ``~`` if that is an estimate."""
    mark = "~" if summary.usd_estimated else ""
    return f"{mark}{summary.spent_usd:.2f}" if summary.spent_usd else ""


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


def from_home(path: str) -> str:
    """Make a path relative to the current directory, or to the home directory, if it is below one."""
    short = short_path(path)
    home = os.path.expanduser("~")
    inside = os.path.isabs(home) and home != os.sep and short.startswith(home + os.sep)
    return f"~{short.removeprefix(home)}" if inside else short


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
