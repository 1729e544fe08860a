"""The program of a run: found, looked at, and compared with its source. ``pin.py`` keeps it with the run."""

from __future__ import annotations

import contextlib
import difflib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.project import PATCHWORK, with_absolute_path
from bartack.core import typed
from bartack.core.accounts import Account
from bartack.errors import ProgramImportError, UsageError
from bartack.runtime.program.stderr import errors_passed_on
from bartack.runtime.protocol.exceptions import revive_error
from bartack.runtime.protocol.probing import ProbeRequest, ProbeResult
from bartack.supervision.parent.guarded import run_guarded

PROBE: Final = "bartack.runtime.program.probe"
PROBE_TIMEOUT_S: Final = 60.0


def find_program(program: str, workspace: Path) -> tuple[Path, str]:
    """The file and the worker that ``FILE`` or ``FILE:worker`` means.

    Raises:
        ProgramImportError: The file does not exist.
    """
    name, colon, worker = program.rpartition(":")
    file = Path(workspace, name if colon else program)
    if colon and not file.is_file() and Path(workspace, program).is_file():
        file, worker = Path(workspace, program), ""
    if not colon:
        worker = ""
    if not file.is_file():
        raise _not_a_file(program, file)
    if file.suffix not in _SUFFIXES:
        problem = "this is neither a Patchwork file (.pw) nor a Python file (.py)"
        raise ProgramImportError(program, problem, remedy=_NAME_A_PROGRAM)
    return file.resolve(), worker


_SUFFIXES: Final = (PATCHWORK, ".py")
_NAME_A_PROGRAM: Final = (
    "Name a Patchwork file (.pw), or a Python file (.py) with a worker: bartack run team.py"
)


def _not_a_file(program: str, file: Path) -> ProgramImportError:
    """The error for a path that leads to no program, with the programs that may be meant."""
    if file.is_dir():
        inside = [one.name for one in _programs_in(file)]
        named = (
            f"Name a program in it: bartack run {program.rstrip('/')}/{inside[0]}"
            if inside
            else _NAME_A_PROGRAM
        )
        return ProgramImportError(program, "this is a directory", remedy=named)
    near = difflib.get_close_matches(file.name, [one.name for one in _programs_in(file.parent)], 1, 0.75)
    meant = os.path.join(os.path.dirname(program), near[0]) if near else ""
    remedy = (
        f"Did you mean this one? bartack run {meant}"
        if near
        else f"Check the path; it was looked for at {file}"
    )
    return ProgramImportError(program, "there is no such file", remedy=remedy)


def _programs_in(folder: Path) -> list[Path]:
    """The programs of a directory; those that people call ``main`` first."""
    try:
        found = [one for one in folder.iterdir() if one.suffix in _SUFFIXES and one.is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda one: (one.stem != "main", one.stem.startswith("_"), one.name))


_NO_EFFECTS: Final = "Move work from the top level of the program into its workers and steps; importing it must have no effects."


def _outputs() -> list[tuple[int, int]]:
    """The regular files that stdout and stderr of this process go to."""
    found: list[tuple[int, int]] = []
    for fd in (1, 2):
        with contextlib.suppress(OSError):  # it may be closed
            facts = os.fstat(fd)
            if stat.S_ISREG(facts.st_mode):
                found.append((facts.st_dev, facts.st_ino))
    return found


def probe_python(request: ProbeRequest, workspace: Path, account: Account | None = None) -> ProbeResult:
    """Look at a Python program in a process of its own, because looking at it executes it.

    Raises:
        ProgramImportError: It cannot run.
        WorkerDefinitionError: It defines a worker or a step that cannot be one.
        UsageError: The arguments do not fit.
    """
    environ = os.environ if account is None else account.environment(os.environ)
    env = {**with_absolute_path(environ), "BARTACK_PROBE": "1"}
    text = msgspec.json.encode(msgspec.structs.replace(request, outputs=_outputs()))
    with errors_passed_on() as errors:
        ran = run_guarded(
            PROBE,
            text,
            cwd=workspace,
            env=env,
            errors=errors,
            timeout_s=PROBE_TIMEOUT_S,
            account=account,
        )
    if ran is None:
        problem = f"importing it took longer than {PROBE_TIMEOUT_S:g} s"
        raise ProgramImportError(request.file, problem, remedy=_NO_EFFECTS)
    if ran.code != 0 or not ran.output:
        problem = f"importing it ended the process (status {ran.code})"
        raise ProgramImportError(request.file, problem, remedy=_NO_EFFECTS)
    result = typed.decode(ran.output, type=ProbeResult)
    if result.problem:
        if result.is_usage:
            raise UsageError(Path(request.file).name, result.problem)
        if result.error is not None:
            raise revive_error(result.error)
        raise ProgramImportError(request.file, result.problem)
    return result


def differences(files: list[str], root: Path, pinned: Path) -> list[str]:
    """The files of a pinned program whose source has changed."""
    return [relative for relative in files if not _same(root / relative, pinned / relative)]


def pinned_files(pinned: Path) -> list[str]:
    """The files of a pinned program; bytecode was made for it, and is not of its source."""
    files = (path.relative_to(pinned) for path in pinned.rglob("*") if path.is_file())
    return sorted(str(file) for file in files if "__pycache__" not in file.parts)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.is_file() and one.read_bytes() == other.read_bytes()
    except OSError:
        return False
