"""``bartack diff``: the changes of a run or of one task, compared by git, on a pager if there is a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import Final

import click
import msgspec

from bartack.cli.app._database import shows_database
from bartack.cli.app._edge import obeyed, visible
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import complete_run, locate, workspace_option
from bartack.cli.app._terminal import Colour, Screen, Style, printable, write_note
from bartack.errors import BartackError, UsageError
from bartack.pipeline.report.read import open_work, read_tasks
from bartack.pipeline.report.report import FileLines

_STYLES: Final[tuple[tuple[str, Style], ...]] = (
    ("diff --git ", "bold"),
    ("index ", "bold"),
    ("--- ", "bold"),
    ("+++ ", "bold"),
    ("@@ ", "cyan"),
    ("+", "green"),
    ("-", "red"),
)
"""The colours of lines, by how they begin."""


def _complete_task(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Tasks of the run, for the shell's completion."""
    try:
        found = read_tasks(
            locate(context.params.get("run") or "latest", context.params.get("workspace") or ".").path
        )
    except BartackError:
        return []  # completion cannot show an error
    return [task for task in found if task.startswith(incomplete)]


@click.command(short_help="Show the changes of a run, or of one of its tasks.")
@click.argument("run", metavar="[RUN]", default="latest", shell_complete=complete_run)
@click.argument("task", required=False, shell_complete=_complete_task)
@click.option("--stat", is_flag=True, help="Show only the numbers of changed lines of each file.")
@click.option("--name-only", is_flag=True, help="Show only the names of the files.")
@click.option("--no-pager", is_flag=True, help="Do not start a pager on a terminal.")
@shows_database
@workspace_option
@json_option
def diff(
    run: str, task: str | None, workspace: str, *, stat: bool, name_only: bool, no_pager: bool, as_json: bool
) -> None:
    """Show the changes of a run of the pipeline, or of one TASK of it, as git shows them.

    Without RUN the command shows the changes of the latest run. Of tasks in parallel it compares commits. Of a run that worked in
    the workspace it compares the files with their content before the run, if your last commit has that; it names all other files.

    On a terminal the output goes to your pager (GIT_PAGER, PAGER or less), and control characters are written as escapes. On a pipe
    it is a patch, exactly as git writes it.
    """
    if stat and name_only:
        raise UsageError("bartack diff", "--stat and --name-only exclude each other")
    option = ["--stat"] if stat else ["--name-only"] if name_only else []
    with open_work(locate(run, workspace), task or "") as work:
        if as_json:
            write_json(msgspec.to_builtins(work.files()))
            return
        text = work.git.diff(work.start, work.end, *option) if work.start != work.end else b""
        colour = _colour(work.git.colours())
        unknown = work.unknown
    if name_only:
        text += "".join(f"{file.path}\n" for file in unknown).encode("utf-8", "surrogateescape")
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
    elif text:
        _show(_painted(text, colour), paged=not no_pager)
    _note_unknown(unknown)


def _colour(wanted: str) -> Colour:
    """Whether to use colour, as the settings of git decide."""
    return "never" if wanted in {"never", "false"} else "always" if wanted == "always" else "auto"


def _painted(text: bytes, colour: Colour) -> str:
    """What git wrote, with colour of our own: what was in the files cannot be distinguished from the colour of git."""
    screen = Screen(sys.stdout, colour)
    lines = text.decode("utf-8", "backslashreplace").split("\n")
    return "\n".join(_paint(screen, line) for line in lines)


def _paint(screen: Screen, line: str) -> str:
    for start, style in _STYLES:
        if line.startswith(start):
            return screen.paint(line, style)
    return line


def _show(text: str, *, paged: bool) -> None:
    words = _pager() if paged else []
    if not words:
        sys.stdout.write(text)
        return
    # The text is escaped here, so a pager cannot pass anything on but our own colours.
    given = obeyed(visible(text)).encode("utf-8", "backslashreplace")
    environ = {"LESS": "FRX", "LV": "-c", **os.environ}
    try:
        subprocess.run(  # bartack: allow[wait_without_deadline] a person reads  # noqa: S603 - the user's pager, no shell
            words, input=given, env=environ, check=False
        )
    except (OSError, KeyboardInterrupt):
        return


def _pager() -> list[str]:
    """The words of the user's pager; nothing if there is none. Settings of a repository do not count."""
    asked = next((os.environ[name] for name in ("GIT_PAGER", "PAGER") if name in os.environ), "less")
    try:
        words = shlex.split(asked)
    except ValueError:
        return []
    if not words or words == ["cat"] or shutil.which(words[0]) is None:
        return []
    return words


def _note_unknown(unknown: list[FileLines]) -> None:
    """Name the files that cannot be compared."""
    for file in unknown:
        reason = "its content before or after the run is not kept"
        write_note(f"{printable(file.path)} {file.change}: {reason}")
