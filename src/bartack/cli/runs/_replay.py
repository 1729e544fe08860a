"""``bartack replay``: hold a program against recorded runs, as a test for CI."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec

from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._runs import complete_run, locate, short_path, workspace_option
from bartack.cli.app._terminal import Screen, printable
from bartack.runtime.program.recording import find_recordings
from bartack.runtime.program.rehearsal import Rehearsal, rehearse
from bartack.runtime.program.replay import Difference


@click.command(short_help="Check that a program still does what recorded runs did.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
@click.option("--program", metavar="FILE", help="Use this program instead of that of each run.")
@click.option("-q", "--quiet", is_flag=True, help="Print only differences.")
@workspace_option
@json_option
def replay(runs: tuple[str, ...], program: str | None, workspace: str, *, quiet: bool, as_json: bool) -> None:
    """Replay recorded runs against the program as it is now, and report each difference. Nothing is executed or changed.

    RUN is a run of the workspace, the directory of a run, a bundle ('bartack bundle RUN --prompts'), or a directory: every run and
    bundle below it counts. The program is FILE, else the file at the same place in this workspace, else the file that the run was
    started from.

    Every worker is replayed, also those that have ended. It must ask for the recorded steps in their order, and end where it
    ended. The exit code is 0 if all runs match and 1 if one differs.
    """
    file = None if program is None else Path(program)
    found = [
        rehearse(recording, Path(workspace), file)
        for one in runs
        for recording in _recordings(one, workspace)
    ]
    differs = any(one.differences for one in found)
    if as_json:
        write_json({"ok": not differs, "runs": [msgspec.to_builtins(one) for one in found]})
    else:
        screen = Screen(sys.stdout)
        for one in found:
            _show(screen, one, quiet=quiet)
    if differs:
        click.get_current_context().exit(Exit.FAILED)


def _recordings(asked: str, workspace: str) -> list[Path]:
    """The recordings that an argument stands for: a path if there is one, else a run of the workspace."""
    if os.sep in asked or os.path.exists(asked):
        return find_recordings(Path(asked))
    return [locate(asked, workspace).path]


def _show(screen: Screen, found: Rehearsal, *, quiet: bool) -> None:
    if found.differences:
        screen.line(f"{screen.paint('differs', 'red')}  {_title(found)}")
        for difference in found.differences:
            _show_difference(screen, difference)
    elif not quiet:
        counts = f"{_counted(found.steps, 'step')}, {_counted(found.workers, 'worker')}"
        screen.line(f"{screen.paint('matches', 'green')}  {_title(found)}: {counts}")


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _title(found: Rehearsal) -> str:
    program = short_path(found.program) if found.program else "the pipeline"
    return printable(f"{short_path(found.recording)} ({found.status}, {program})")


def _short_place(where: str) -> str:
    """A file and a line, the file from the current directory if it is below it."""
    file, colon, line = where.rpartition(":")
    return f"{short_path(file)}{colon}{line}" if file else where


def _show_difference(screen: Screen, difference: Difference) -> None:
    if not difference.recorded:
        screen.table([(printable(difference.worker), printable(difference.message))])
        return
    same = difference.recorded == difference.asked
    rows = [
        ("step", difference.step or difference.worker),
        ("recorded", difference.recorded),
        ("requested", "the same with other arguments" if same else difference.asked),
        ("at", _short_place(difference.where)),
        ("", difference.source.strip()),
    ]
    screen.table([(name, printable(text)) for name, text in rows if text])
