"""``bartack fmt``: format Patchwork programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Literal, NamedTuple

import click

from bartack.cli.app._edge import own
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option, write_json
from bartack.cli.app._terminal import Screen, printable
from bartack.cli.project.check._check import files_of
from bartack.core.files import write_file
from bartack.language import Diagnostic, Source, render_all
from bartack.language.formatting.format import LeftOld, Upgraded, reformat, upgraded
from bartack.language.syntax.render import to_json
from bartack.runtime.patchwork import upgrade_file

Status = Literal["unchanged", "changed", "errors", "left alone"]


class Outcome(NamedTuple):
    """The result for one file."""

    name: str
    status: Status
    before: str
    after: str
    diagnostics: tuple[Diagnostic, ...] = ()
    old: tuple[LeftOld, ...] = ()
    """Spellings that could not be upgraded."""


@click.command(short_help="Format Patchwork programs.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--check", is_flag=True, help="Only list the files that would change (exit code 1).")
@click.option("--diff", is_flag=True, help="Only show the changes.")
@click.option("--upgrade", "upgrades", is_flag=True, help="Also replace old spellings by modern ones.")
@json_option
def fmt(paths: tuple[str, ...], *, check: bool, diff: bool, upgrades: bool, as_json: bool) -> Exit:
    """Format Patchwork programs. Formatting never changes the meaning of a program.

    PATH is a file, or a directory whose programs are all formatted; the default is the current directory. With '-' the command
    reads a program from stdin and prints it formatted. A file with syntax errors is reported and not changed (exit code 1).
    """
    if paths == ("-",):
        outcome = _formatted("<stdin>", sys.stdin.buffer.read(), upgrades=upgrades)
        return _filtered(outcome, check=check, diff=diff, as_json=as_json)
    changed = failed = False
    files = [file for path in paths or (".",) for file in _files_of(Path(path))]
    for file in files:
        outcome = _formatted(str(file), file.read_bytes(), upgrades=upgrades, file=file)
        changed = changed or outcome.status == "changed"
        failed = failed or outcome.status in {"errors", "left alone"}
        if outcome.status == "changed" and not (check or diff):
            _write(file, outcome.after)
        _write_outcome(outcome, diff=diff, as_json=as_json, would=check or diff)
        _report_old(outcome)
    return Exit.FAILED if failed or (check and changed) else Exit.OK


def _files_of(path: Path) -> Iterator[Path]:
    """The programs of a path. Symbolic links out of a directory are skipped: they can lead to any file of the user."""
    root = os.path.realpath(path)
    for file in files_of("fmt", path):
        real = os.path.realpath(file)
        if path.is_dir() and os.path.commonpath([root, real]) != root:
            sys.stderr.write(
                f"{printable(str(file))}: not changed, because it is a symbolic link out of {printable(str(path))}\n"
            )
        else:
            yield file


def _filtered(outcome: Outcome, *, check: bool, diff: bool, as_json: bool) -> Exit:
    """Print the result for a program from stdin: the formatted program, or what the options ask for."""
    changed = outcome.status == "changed"
    failed = outcome.status in {"errors", "left alone"}
    if failed or as_json or (diff and changed):
        _write_outcome(outcome, diff=diff, as_json=as_json, would=True)
    if outcome.status != "errors" and not (as_json or check or diff):
        sys.stdout.write(outcome.after)
    _report_old(outcome)
    return Exit.FAILED if failed or (check and changed) else Exit.OK


def _formatted(name: str, data: bytes, *, upgrades: bool, file: Path | None = None) -> Outcome:
    """Format the bytes of a file; a text with errors is returned unchanged."""
    done = reformat(data, name)
    text = done.parsed.source.text
    errors = tuple(one for one in done.parsed.diagnostics if one.severity == "error")
    if errors:
        return Outcome(name, "errors", text, text, errors)
    old: tuple[LeftOld, ...] = ()
    if upgrades:
        done = reformat(_upgraded(file, name, text).text, name)
        old = _upgraded(file, name, done.text).left
    if done.kept:
        return Outcome(name, "left alone", text, text, old=old)
    status: Status = "unchanged" if done.text.encode() == data else "changed"
    return Outcome(name, status, data.decode(), done.text, old=old)


def _upgraded(file: Path | None, name: str, text: str) -> Upgraded:
    return upgrade_file(file, text) if file else upgraded(text, name)


def _write(file: Path, text: str) -> None:
    """Replace a file, keeping its permissions; a symbolic link stays one."""
    write_file(file, text.encode())


def _write_outcome(outcome: Outcome, *, diff: bool, as_json: bool, would: bool) -> None:
    if as_json:
        found = [json.loads(to_json(one, _sources(outcome))) for one in outcome.diagnostics]
        write_json({"file": outcome.name, "status": outcome.status, "diagnostics": found})
    elif outcome.status == "errors":
        _report(outcome)
    elif outcome.status == "left alone":
        sys.stderr.write(f"{outcome.name}: not changed, because formatting would change its meaning\n")
    elif outcome.status == "changed" and diff:
        sys.stdout.writelines(_difference(outcome))
    elif outcome.status == "changed":
        sys.stdout.write(f"would format {outcome.name}\n" if would else f"formatted {outcome.name}\n")


def _report_old(outcome: Outcome) -> None:
    """Report which old spellings are left, and why."""
    source = Source(outcome.after, outcome.name)
    for one, why in outcome.old:
        line = source.place(one.span.start).line
        sys.stderr.write(
            f"{printable(outcome.name)}:{line}: not upgraded: {one.message} ({one.code}): {why}\n"
        )


def _report(outcome: Outcome) -> None:
    screen = Screen(sys.stderr)
    screen.line(
        render_all(outcome.diagnostics, _sources(outcome), files=1, colour=own if screen.colour else None)
    )


def _sources(outcome: Outcome) -> dict[str, Source]:
    return {outcome.name: Source(outcome.before, outcome.name)}


def _difference(outcome: Outcome) -> Iterator[str]:
    lines = unified_diff(
        outcome.before.splitlines(keepends=True),
        outcome.after.splitlines(keepends=True),
        outcome.name,
        outcome.name,
    )
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
