"""The replay test: holds a program as it is now against recorded runs. Nothing of a run is executed, paid for or changed.

``resume --update`` asks whether one run can continue with a changed program, so it replays the workers that have something left to
do. This asks whether the program still does what it did, so it replays every worker, also those that have ended: each must ask
for the recorded steps, and end where it ended. ``replay.py`` does the replay itself for both.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from bartack.config.project import project_root
from bartack.core.batch import Batch
from bartack.errors import BartackError, RecordingError
from bartack.runtime.program.inspect import probe
from bartack.runtime.program.pin import pin, read_sources
from bartack.runtime.program.recording import open_recording
from bartack.runtime.program.replay import Difference, check_replay
from bartack.runtime.protocol.probing import ProbeRequest
from bartack.runtime.protocol.steps import CallArgs
from bartack.runtime.rundir.find import status_of
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.origin import check_own
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import add_entry
from bartack.runtime.state.run_state import State

_SIGN: Final = re.compile(rb"env:")
_SECRET: Final = re.compile(rb"[$]env:([A-Za-z_][A-Za-z0-9_]*)")
_OWN: Final = "bartack."
"""Workers of such modules are Bartack's own, as it is installed: those of the pipeline."""


class Rehearsal(msgspec.Struct, frozen=True):
    """What the replay of one recorded run found."""

    run: str
    recording: str
    """The directory or the bundle."""
    program: str
    """The file that it was held against; empty for the pipeline."""
    status: str
    workers: int
    steps: int
    """How many outcomes the workers have that were replayed."""
    differences: list[Difference]


def rehearse(
    recording: Path, workspace: Path, program: Path | None = None, *, trusted: bool = False
) -> Rehearsal:
    """Replay a recorded run against a program as it is now.

    Args:
        recording: The directory of a run, or a bundle.
        workspace: Where the program is, at the place that it had in the workspace of the run.
        program: The file with the program instead.
        trusted: The program may also be where the recording says, even if another user made the recording.

    Raises:
        RecordingError: The recording cannot be replayed, or its program is not found.
        ProgramImportError: The program cannot be imported.
        ProgramFaultError: The program has errors.
        JournalError: The journal is missing or damaged.
    """
    state, stand_ins = _read(recording)
    created = state.run
    assert created is not None
    module, _, name = created.worker.partition(":")
    with tempfile.TemporaryDirectory(prefix="bartack-") as scratch:
        pinned = Path(scratch, "program")
        pinned.mkdir()
        if module.startswith(_OWN):
            file, root, folder, paths = "", str(pinned), ".", list[str]()
            place = workspace
        else:
            found = _program_of(recording, created, workspace, program, trusted=trusted)
            place = _place_of(found, created, workspace, Path(scratch))
            base = project_root(found, place, module)
            result = probe(ProbeRequest(str(found), str(base), name, call=CallArgs(), module=module), place)
            pin(read_sources(result.files, base), pinned, Batch(synced=False))
            file, root, paths = str(found), str(base), result.paths
            folder = os.path.relpath(found.parent, base)
        run = RunDir(recording)
        report = check_replay(
            run, pinned, root, folder, created.seed, str(place), paths=paths, every=True, stand_ins=stand_ins
        )
    status = status_of(run, state) if recording.is_dir() else status_of(run, state, active=False)
    return Rehearsal(
        created.run, str(recording), file, status, report.workers, report.steps, report.differences
    )


def _read(recording: Path) -> tuple[State, dict[str, str]]:
    """What a recording adds up to, and values for the secrets in it that are not set here: their names, as fingerprints have them.

    So recordings can be replayed where the secrets must not be, in CI.
    """
    state = State()
    names = set[str]()
    with open_recording(recording) as opened:
        for entry in opened.read():
            add_entry(state, entry)
            for part in (entry.raw, entry.value or b""):
                if _SIGN.search(part):
                    text = msgspec.json.encode(msgspec.json.decode(part))
                    names.update(name.decode() for name in _SECRET.findall(text))
    if state.run is None:
        raise RecordingError(str(recording), "it has no run in it")
    if state.run.run_as and os.geteuid() == 0:
        raise RecordingError(
            str(recording), f"its program runs as {state.run.run_as}; replay a bundle of it as that user"
        )
    return state, {name: f"$env:{name}" for name in names if name not in os.environ}


def _program_of(
    recording: Path, created: e.RunCreated, workspace: Path, program: Path | None, *, trusted: bool
) -> Path:
    """The program: the named one, else the one at its place in this workspace, else where the recording says.

    The last one only if this user made the recording: one that came from elsewhere must not choose what is executed.
    """
    if program is not None:
        if not program.is_file():
            raise RecordingError(str(recording), f"there is no program {program}")
        return program.resolve()
    recorded = Path(os.path.normpath(created.program))
    if recorded.is_relative_to(created.workspace):
        here = workspace / recorded.relative_to(created.workspace)
        if here.is_file():
            return here.resolve()
    if recorded.is_file() and (trusted or _is_own(recording)):
        return recorded.resolve()
    raise RecordingError(
        str(recording), f"its program {created.program} is not in {workspace}; name it with --program FILE"
    )


def _is_own(recording: Path) -> bool:
    try:
        check_own(RunDir(recording))
    except (BartackError, OSError):
        return False
    return recording.is_dir()


def _place_of(program: Path, created: e.RunCreated, workspace: Path, scratch: Path) -> Path:
    """The workspace in which the program is imported."""
    if program.is_relative_to(workspace.resolve()):
        return workspace
    recorded = Path(created.workspace)
    return recorded if recorded.is_dir() else scratch
