"""Mends a run's program: keeps the edited source with the run, if the run's history still fits it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bartack.core import DIR_MODE
from bartack.errors import ReplayMismatchError, ResumeRefusedError
from bartack.runtime import _entries as e
from bartack.runtime._inside import check_outside
from bartack.runtime._inspection import probe
from bartack.runtime._launch import load_state
from bartack.runtime._layout import RunDir
from bartack.runtime._owning import own_journal
from bartack.runtime._program import Inquiry, pin, project_root
from bartack.runtime._replay import check_replay
from bartack.runtime._steps import CallArgs


def update_program(run: RunDir, source: Path | None = None) -> int:
    """Let a run go on with the source as it is now; returns how many recorded steps were checked against it.

    Args:
        run: The run; nobody may be running it.
        source: Another file to take the program from; else the one that the run was started from.

    Raises:
        ReplayMismatchError: The program asks for other steps than the journal has; the run keeps the program it had.
        ProgramImportError: The program cannot be imported; the run keeps the program it had.
        JournalLockedError: Somebody runs the run.
        JournalLostError: Its journal has lost acknowledged entries; nothing was changed.
        PeerRefusedError: This process belongs to a run.
    """
    check_outside(f"changing the program of {run.id}", run)
    with own_journal(run) as journal:
        state = load_state(run, journal)
        assert state.run is not None
        file = Path(source or state.run.program).resolve()
        workspace = Path(run.workspace(state))
        root = project_root(file, workspace)
        finding = probe(
            Inquiry(str(file), str(root), state.run.worker.partition(":")[2], call=CallArgs()), workspace
        )
        if finding.worker.partition(":")[2] != state.run.worker.partition(":")[2]:
            raise ResumeRefusedError(run.id, f"{file} has no worker {state.run.name!r}")
        next_program = run.path / "program.next"
        shutil.rmtree(next_program, ignore_errors=True)
        next_program.mkdir(mode=DIR_MODE)
        pin(finding.files, root, next_program)
        folder = os.path.relpath(file.parent, root)
        _keep_module_name(state.run.worker.partition(":")[0], file, next_program / folder)
        report = check_replay(run, next_program, str(root), folder, state.run.seed, str(workspace))
        if report.differences:
            shutil.rmtree(next_program, ignore_errors=True)
            first = report.differences[0]
            if not first.recorded:
                raise ResumeRefusedError(run.id, f"the program does not fit its history: {first.message}")
            raise ReplayMismatchError(first.worker, first.step, first.recorded, first.asked)
        _swap(run)
        pinned = e.ProgramPinned(program=str(file), root=str(root), environment=finding.environment)
        journal.stage(e.draft(pinned))
        journal.commit()
    return report.steps


def _keep_module_name(module: str, file: Path, folder: Path) -> None:
    """A program from a file of another name is found under the name it had: the journal names its workers by that."""
    if file.stem != module:
        shutil.copy(folder / file.name, folder / f"{module}.py")


def _swap(run: RunDir) -> None:
    """Put the new program into its place; the one before is kept beside it."""
    number = 1
    while (run.path / f"program.{number}").exists():
        number += 1
    os.rename(run.program, run.path / f"program.{number}")
    os.rename(run.path / "program.next", run.program)
