"""Updates a run's program: keeps the edited source with the run, if it still matches the run's history."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bartack.config.project import project_root
from bartack.core.share import share_tree
from bartack.errors import BartackError, ReplayMismatchError, ResumeRefusedError
from bartack.journal import Journal
from bartack.runtime.program.check import check_sources
from bartack.runtime.program.environment import read_lock
from bartack.runtime.program.inspect import probe
from bartack.runtime.program.pin import finish_update, prepare_update, read_sources
from bartack.runtime.program.replay import Difference, check_replay
from bartack.runtime.protocol.probing import ProbeRequest, ProbeResult
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.find import load_state
from bartack.runtime.rundir.inside import check_outside
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.owning import own_journal
from bartack.runtime.rundir.run_as import account_of, share_run
from bartack.runtime.state import entries as e


def update_program(run: RunDir, source: Path | None = None, workspace: str | None = None) -> int:
    """Let a run continue with the source as it is now; returns how many recorded steps were checked against it.

    Args:
        run: The run, which must not be active.
        source: Another file to take the program from; else the one that the run was started from.
        workspace: Where the sources of its workspace are on this machine, if the run itself is on another one.

    Raises:
        ReplayMismatchError: The program asks for other steps than the journal has; the run keeps the program it had.
        ProgramImportError: The program cannot be imported; the run keeps the program it had.
        ProgramFaultError: The program has errors; the run keeps the program it had.
        ConfigError: Nodes make its environment, and the project has no lock file for that; the run keeps the program it had.
        JournalLockedError: The run is active.
        JournalLostError: Its journal has lost acknowledged entries; nothing was changed.
        HubStoppedError: A process runs the run and is stopped.
        PeerRefusedError: This process belongs to a run.
    """
    check_outside(f"changing the program of {run.id}", run)
    with own_journal(run) as journal:
        run.bring_here()  # another machine may have changed it since it came here
        state = load_state(run, journal)
        assert state.run is not None
        recorded = state.run.workspace if workspace else ""
        here = SourceWorkspace(Path(run.workspace(state, workspace)), recorded)
        file = Path(source or here.find(state.run.program)).resolve()
        module, _, name = state.run.worker.partition(":")
        root = project_root(file, here.path, module)
        account = account_of(run, state.run)
        request = ProbeRequest(str(file), str(root), name, call=CallArgs(), module=module)
        result = probe(request, here.path, account)
        if result.worker.partition(":")[2] != name:
            raise ResumeRefusedError(run.id, f"{file} has no worker {state.run.name!r}")
        folder = os.path.relpath(file.parent, root)
        sources = read_sources(result.files, root, account)
        check_sources(sources, root)
        sources |= read_lock(state.run.environment_rule, root, account)
        _keep_module_name(module, result, os.path.join(folder, file.name), sources)
        finish_update(run.path, state.next_program)
        waiting = prepare_update(run.path, sources, journal.fence)
        if account is not None:
            account = share_run(run, account)
            share_tree(run.path / waiting, account.groups[-1])
        place, seed = str(here.path), state.run.seed
        report = check_replay(
            run, run.path / waiting, str(root), folder, seed, place, account=account, paths=result.paths
        )
        if report.differences:
            shutil.rmtree(run.path / waiting, ignore_errors=True)
            raise _refusal(run.id, report.differences[0])
        program, top = here.as_recorded(file), here.as_recorded(root)
        pinned = e.ProgramPinned(program, top, result.environment, waiting, result.paths)
        _record(run, journal, pinned)
    return report.steps


def _record(run: RunDir, journal: Journal, pinned: e.ProgramPinned) -> None:
    """Record that the run has another program, which is beside the one that it has, and put it in its place."""
    run.keep_program()  # other machines need both: this process may be killed before or after the commit
    journal.stage(e.draft(pinned))
    journal.commit()
    finish_update(run.path, pinned.waiting)
    run.keep_program()


class SourceWorkspace:
    """The workspace of a run on this machine, with the sources of its program, and where the run itself has it.

    Args:
        path: Where it is on this machine.
        recorded: Where it is for the run; empty: there, too.
    """

    def __init__(self, path: Path, recorded: str) -> None:
        self.path = path
        self._recorded = Path(recorded) if recorded else path

    def find(self, file: str) -> Path:
        """The file on this machine that the run has at this place."""
        path = Path(file)
        inside = path.is_relative_to(self._recorded)
        return self.path / path.relative_to(self._recorded) if inside else path

    def as_recorded(self, path: Path) -> str:
        """Where the run has what is at this place on this machine."""
        inside = path.is_relative_to(self.path)
        return str(self._recorded / path.relative_to(self.path) if inside else path)


def _refusal(run_id: str, first: Difference) -> BartackError:
    if not first.step:
        return ResumeRefusedError(run_id, f"the program does not fit its history: {first.message}")
    return ReplayMismatchError(
        first.worker, first.step, first.recorded, first.asked, first.where, first.source
    )


def _keep_module_name(recorded: str, result: ProbeResult, file: str, sources: dict[str, bytes]) -> None:
    """A Python program from a file of another name is found under the name it had: the journal names its workers by that."""
    found = result.worker.partition(":")[0]
    own = os.path.normpath(file)
    path = f"{found.replace('.', os.sep)}.py"
    if found != recorded and own.endswith(path):
        sources[f"{own.removesuffix(path)}{recorded.replace('.', os.sep)}.py"] = sources[own]
