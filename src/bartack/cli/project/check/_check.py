"""``bartack check``: find errors in programs and settings before anything runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from bartack.cli.app._edge import own
from bartack.cli.app._exit import Exit
from bartack.cli.app._options import json_option
from bartack.cli.app._terminal import Screen, printable, write_note
from bartack.config.problem import CONFIG_FILE
from bartack.config.project import PATCHWORK
from bartack.errors import UsageError
from bartack.language import has_errors, render_all
from bartack.language.syntax.render import to_json
from bartack.runtime.patchwork import Survey, survey
from bartack.supervision.lint import TYPES, Report, check_python, python_files

if TYPE_CHECKING:
    from bartack.cli.project.check._config import Examined
    from bartack.config.problem import SettingProblem

PYTHON: Final = ".py"
_KINDS: Final = click.Choice(sorted(TYPES))


# Long because the options and the help text are part of it.
@click.command(short_help="Check programs and settings.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]...")
@click.option(
    "--program",
    metavar="FILE",
    help="Import FILE (or FILE:worker) like 'run', and show which files a run keeps and what it takes from the environment.",
)
@json_option
@click.option("--strict", is_flag=True, help="Fail on warnings, too.")
@click.option(
    "--select",
    multiple=True,
    type=_KINDS,
    metavar="TYPE",
    help="Report only this type of findings in Python files.",
)
@click.option(
    "--ignore",
    multiple=True,
    type=_KINDS,
    metavar="TYPE",
    help="Do not report this type of findings in Python files.",
)
@click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Skip Python files and directories that match."
)
def check(
    paths: tuple[Path, ...],
    *,
    program: str | None,
    as_json: bool,
    strict: bool,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    exclude: tuple[str, ...],
) -> Exit:
    """Check programs and bartack.toml. Without --program the command does not import, execute or start your code.

    Patchwork programs are checked with every module they import. Python files are searched for what supervision cannot see: tasks
    that are never awaited, processes that are never terminated, waits without a limit, workers that would not replay.

    PATH is a file or a directory; the default is the current directory. In a directory the command checks all Patchwork programs,
    bartack.toml, and the Python files that use Bartack. It reports all problems of the settings at once: unknown keys, values of
    the wrong type, and values that cannot work. An agent that is not installed or not logged in on this machine is a warning. The
    exit code is 1 if there are errors, or findings in Python files; with --strict also if there are warnings.
    """
    if program is not None:
        return _show_program(program, paths, as_json=as_json)
    places = paths or (Path(),)
    settings = [file for path in places if (file := _settings_file(path)) is not None]
    examined = [_examine(file) for file in settings]
    problems = [problem for one in examined for problem in one.problems]
    cautions = [caution for one in examined for caution in one.cautions] if not problems else []
    programs = [file for path in places for file in _patchwork_files(path)]
    python = [file for path in places for file in _python_files(path, exclude)]
    found = survey(programs) if programs or not (python or settings) else None
    report = check_python(python, select=select, ignore=ignore) if python else None
    if as_json:
        _write_json(problems, cautions, found, report)
    else:
        _show_problems(problems, cautions, settings)
        _show(found, report)
    failed = bool(problems) or (strict and bool(cautions)) or (report is not None and bool(report.findings))
    return Exit.FAILED if failed or (found is not None and _fails(found, strict=strict)) else Exit.OK


def _show_program(program: str, paths: tuple[Path, ...], *, as_json: bool) -> Exit:
    from bartack.cli.project.check._program import show_program  # noqa: PLC0415 - only --program needs it

    if paths:
        raise UsageError("check", "--program takes one FILE and cannot be combined with PATH")
    show_program(program, as_json=as_json)
    return Exit.OK


def files_of(command: str, path: Path) -> Iterator[Path]:
    """Return the Patchwork files of a path: the file itself, or all files below a directory except in hidden directories."""
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


def _patchwork_files(path: Path) -> Iterator[Path]:
    if path.is_dir() or path.suffix == PATCHWORK:
        yield from files_of("check", path)
    elif path.suffix != PYTHON and path.name != CONFIG_FILE:
        kinds = f"a Patchwork file ({PATCHWORK}), a Python file ({PYTHON}) nor {CONFIG_FILE}"
        raise UsageError("check", f"{path} is neither {kinds}")


def _python_files(path: Path, exclude: tuple[str, ...]) -> Iterator[Path]:
    if path.is_dir():
        yield from filter(_uses_bartack, python_files(path, exclude))
    elif path.suffix == PYTHON:
        yield path


def _uses_bartack(file: Path) -> bool:
    """Whether a file mentions Bartack; the threads and processes of other files are not checked."""
    try:
        return b"bartack" in file.read_bytes()
    except OSError:
        return True


def _settings_file(path: Path) -> Path | None:
    """The settings file of a path: the file itself, or the one in a directory."""
    file = path / CONFIG_FILE if path.is_dir() else path
    return file if file.name == CONFIG_FILE and file.is_file() else None


def _examine(file: Path) -> Examined:
    from bartack.cli.project.check._config import examine_settings  # noqa: PLC0415 - only projects with settings need it

    return examine_settings(file.parent.resolve(), str(file))


def _show_problems(
    problems: list[SettingProblem], cautions: list[SettingProblem], settings: list[Path]
) -> None:
    screen = Screen(sys.stdout)
    for found in problems:
        screen.line(f"error[{found.code}]: {printable(found.place)}: {printable(found.problem)}")
    if len(problems) > 1:
        screen.line(f"{len(problems)} errors in the settings")
    if settings and not problems:
        screen.line(f"no errors in {CONFIG_FILE}")
    for caution in cautions:
        write_note(caution.problem)


def _write_json(
    problems: list[SettingProblem],
    cautions: list[SettingProblem],
    found: Survey | None,
    report: Report | None,
) -> None:
    for severity, some in (("error", problems), ("warning", cautions)):
        for problem in some:
            shown = msgspec.structs.asdict(problem) | {"severity": severity}
            sys.stdout.write(msgspec.json.encode(shown).decode() + "\n")
    for one in found.diagnostics if found is not None else ():
        sys.stdout.write(to_json(one, found.sources if found is not None else {}) + "\n")
    if report is not None:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


def _show(found: Survey | None, report: Report | None) -> None:
    screen = Screen(sys.stdout)
    if found is not None and (found.sources or report is None):
        screen.line(
            render_all(
                found.diagnostics,
                found.sources,
                files=len(found.sources),
                colour=own if screen.colour else None,
            )
        )
    if report is None:
        return
    for finding in report.findings:
        place = printable(f"{finding.file}:{finding.line}:{finding.column}")
        screen.line(f"{place}: {finding.type}: {printable(finding.message)}")
        if finding.suggestion:
            screen.line(f"    {finding.suggestion}")
    count = report.totals.findings
    findings = "nothing found" if not count else "1 finding" if count == 1 else f"{count} findings"
    files = "1 Python file" if report.totals.files == 1 else f"{report.totals.files} Python files"
    screen.line(f"{findings} in {files}")


def _fails(found: Survey, *, strict: bool) -> bool:
    warned = any(one.severity == "warning" for one in found.diagnostics)
    return has_errors(found.diagnostics) or (strict and warned)
