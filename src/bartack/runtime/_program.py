"""The program of a run: found, looked at, and compared with its source. ``_pinning.py`` keeps it with the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from bartack.core import Account
from bartack.errors import ProgramImportError, UsageError
from bartack.runtime._config_problem import CONFIG_FILE
from bartack.runtime._errors_out import errors_passed_on
from bartack.runtime._exceptions import revive_error
from bartack.runtime._frames import PATCHWORK, ErrorData
from bartack.runtime._steps import CallArgs
from bartack.supervision import run_guarded

PROBE: Final = "bartack.runtime._probe"
PROBE_TIMEOUT_S: Final = 60.0


class Inquiry(msgspec.Struct):
    """What to look at."""

    file: str
    root: str
    worker: str = ""
    argv: list[str] = []
    input: dict[str, msgspec.Raw] = {}
    call: CallArgs | None = None
    """Arguments that are encoded already; ``argv`` and ``input`` are not used then."""


class Finding(msgspec.Struct, omit_defaults=True):
    """What was found. ``problem`` says why the program cannot run."""

    worker: str = ""
    name: str = ""
    call: CallArgs | None = None
    files: list[str] = []
    environment: dict[str, str] = {}
    usage: str = ""
    agents: list[str] = []
    """The agents that it may ask, as far as that can be seen; empty names stand for the default one."""
    warnings: str = ""
    """What its check has to say, as people read it."""
    problem: str = ""
    is_usage: bool = False
    error: ErrorData | None = None
    """The problem, as the error that it is."""


def find_program(program: str, workspace: Path) -> tuple[Path, str]:
    """The file and the worker that ``FILE`` or ``FILE:worker`` means.

    Raises:
        ProgramImportError: There is no such file.
    """
    name, colon, worker = program.rpartition(":")
    file = Path(workspace, name if colon else program)
    if colon and not file.is_file() and Path(workspace, program).is_file():
        file, worker = Path(workspace, program), ""
    if not colon:
        worker = ""
    if not file.is_file():
        raise ProgramImportError(program, "there is no such file")
    if file.suffix not in {".py", PATCHWORK}:
        raise ProgramImportError(program, "this is neither a Patchwork file (.pw) nor a Python file (.py)")
    return file.resolve(), worker


def project_root(file: Path, workspace: Path) -> Path:
    """The directory whose modules belong to the program.

    For Python it is the workspace, if the file is in it, for Patchwork that of the nearest ``bartack.toml``; else the file's own.
    """
    if file.suffix == PATCHWORK:
        return next((folder for folder in file.parents if (folder / CONFIG_FILE).is_file()), file.parent)
    resolved = workspace.resolve()
    return resolved if file.is_relative_to(resolved) else file.parent


def probe_python(inquiry: Inquiry, workspace: Path, account: Account | None = None) -> Finding:
    """Look at a Python program in a process of its own, because looking at it executes it.

    Raises:
        ProgramImportError: It cannot run.
        WorkerDefinitionError: It defines a worker or a step that cannot be one.
        UsageError: The arguments do not fit.
    """
    environ = os.environ if account is None else account.environment(os.environ)
    env = {**environ, "BARTACK_PROBE": "1"}
    text = msgspec.json.encode(inquiry)
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
        raise ProgramImportError(inquiry.file, f"importing it took longer than {PROBE_TIMEOUT_S:g} s")
    if ran.code != 0 or not ran.output:
        raise ProgramImportError(inquiry.file, f"importing it ended the process (status {ran.code})")
    finding = msgspec.json.decode(ran.output, type=Finding)
    if finding.problem:
        if finding.is_usage:
            raise UsageError(Path(inquiry.file).name, finding.problem)
        if finding.error is not None and not _is_import_error(finding.error):
            raise revive_error(finding.error)
        raise ProgramImportError(inquiry.file, finding.problem.removeprefix(f"{inquiry.file}: "))
    return finding


def _is_import_error(error: ErrorData) -> bool:
    return error.code == ProgramImportError.code


def differences(files: list[str], root: Path, pinned: Path) -> list[str]:
    """The files of a pinned program whose source is no longer the same."""
    return [relative for relative in files if not _same(root / relative, pinned / relative)]


def pinned_files(pinned: Path) -> list[str]:
    """The files of a pinned program."""
    kept = (path for path in pinned.rglob("*") if path.suffix in {".py", PATCHWORK})
    return sorted(str(path.relative_to(pinned)) for path in kept)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.is_file() and one.read_bytes() == other.read_bytes()
    except OSError:
        return False
