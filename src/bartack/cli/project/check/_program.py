"""``bartack check --program``: which files a run keeps, and which modules it takes from the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bartack.cli.app._terminal import Screen, printable
from bartack.config.load import find_workspace
from bartack.runtime.program.inspect import Examined, examine_program


def show_program(program: str, *, as_json: bool) -> None:
    """Show the files and modules of a program; a failed import is an error, as for ``run``."""
    found = examine_program(program, find_workspace(Path.cwd()))
    if as_json:
        sys.stdout.write(msgspec.json.encode(_facts(found)).decode() + "\n")
    else:
        _show(Screen(sys.stdout), found)


def _facts(found: Examined) -> dict[str, object]:
    finding = found.result
    return {
        "program": str(found.file),
        "worker": finding.worker,
        "root": str(found.root),
        "paths": finding.paths,
        "files": finding.kept,
        "environment": finding.taken,
        "versions": finding.environment,
        "left_out": finding.left_out,
    }


def _show(screen: Screen, found: Examined) -> None:
    finding = found.result
    screen.line(f"worker    {printable(finding.worker)}")
    screen.line(f"project   {printable(str(found.root))}")
    if finding.paths:
        screen.line(f"imports   from {printable(', '.join(finding.paths))}")
    screen.line()
    screen.line(screen.paint(f"kept with the run: {len(finding.files)} of the project's files", "bold"))
    kinds = {one.path: one.module or one.kind for one in finding.kept}
    screen.table([(printable(path), printable(kinds.get(path, ""))) for path in finding.files])
    if finding.taken:
        screen.line()
        screen.line(screen.paint("taken from the environment whenever a process starts", "bold"))
        screen.table(
            [(printable(one.module), one.version or "-", printable(one.place)) for one in finding.taken]
        )
    for one in finding.left_out:
        screen.line()
        screen.line(f"note: the data files of {printable(one.path)} are not kept: {one.reason}")
