"""``bartack check``: what is wrong with programs, before they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from bartack.cli._exit import Exit
from bartack.cli._options import json_option
from bartack.cli._terminal import Screen
from bartack.errors import UsageError
from bartack.language import has_errors, render_all, to_json
from bartack.runtime.operate import PATCHWORK, Survey, survey


@click.command(short_help="Find what is wrong with programs before they run.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@json_option
@click.option("--strict", is_flag=True, help="Let warnings fail the check, too.")
def check(paths: tuple[Path, ...], *, as_json: bool, strict: bool) -> Exit:
    """Check Patchwork programs with every module they import; nothing of them is executed.

    PATH is a file, or a directory whose programs are all checked; without PATH it is the current directory. The exit code
    is 1 when there are errors.
    """
    found = survey([file for path in paths or (Path(),) for file in files_of("check", path)])
    if as_json:
        for one in found.diagnostics:
            sys.stdout.write(to_json(one, found.sources) + "\n")
    else:
        _show(found)
    return Exit.FAILED if _fails(found, strict=strict) else Exit.OK


def files_of(command: str, path: Path) -> Iterator[Path]:
    """The Patchwork files that a path names: itself, or all below it but those in hidden directories."""
    if not path.is_dir():
        if path.suffix != PATCHWORK:
            raise UsageError(command, f"{path} is not a Patchwork file ({PATCHWORK})")
        if not path.is_file():
            raise UsageError(command, f"there is no file {path}")
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(PATCHWORK))


def _show(found: Survey) -> None:
    screen = Screen(sys.stdout)
    text = render_all(found.diagnostics, found.sources, files=len(found.sources), colour=screen.colour)
    screen.line(text)


def _fails(found: Survey, *, strict: bool) -> bool:
    warned = any(one.severity == "warning" for one in found.diagnostics)
    return has_errors(found.diagnostics) or (strict and warned)
