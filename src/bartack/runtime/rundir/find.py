"""Finds runs and their status, with or without a process that runs them.

A run is found by its directory (``layout.py``). Its status comes from its journal, or from the summary that mirrors it
(``mirror.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from bartack.config.load import find_state_dir, find_workspace
from bartack.config.problem import CONFIG_FILE
from bartack.core import typed
from bartack.core.trust import check_private, check_settings
from bartack.depot import FileRuns, KeptRun
from bartack.depot.folder import is_run
from bartack.errors import BartackError, RunNotActiveError, RunNotFoundError
from bartack.journal import Journal, JournalReader
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import RunFile, describe_failure
from bartack.runtime.rundir.moments import iso_time
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.entries import (
    FailureRecorded,
    HubStarted,
    HubStopped,
    RunCreated,
    RunEnded,
    decode_entry,
)
from bartack.runtime.state.run_state import State, status_of_end

Status = Literal["running", "waiting", "failed", "completed", "cancelled", "aborted", "interrupted"]

ENDED: Final[frozenset[str]] = frozenset({"completed", "failed", "cancelled", "aborted", "interrupted"})
TERMINAL: Final[frozenset[str]] = frozenset({"completed", "cancelled", "aborted"})
GOAL_LENGTH: Final = 48
"""Characters of a goal in a list of runs."""
LAST: Final = 64
"""Entries at the end of the journal of a killed hub that show how its run ended, if it did."""
UNREADABLE: Final = "unreadable"
"""The status of a run in a list that this user or this version cannot read."""


def runs_dir(workspace: Path) -> Path:
    """Where the runs of a workspace are.

    Raises:
        UntrustedError: Another user can put runs there.
    """
    return _runs_below(find_state_dir(find_workspace(workspace)))


def _runs_below(state_dir: Path) -> Path:
    check_private(state_dir)
    check_private(state_dir / "runs")
    return state_dir / "runs"


def check_place(workspace: Path) -> None:
    """Raise unless the settings and the runs of a workspace are this user's own, or trusted.

    Raises:
        UntrustedError: Another user made them or can change them.
        ConfigError: The settings that name the directory of the runs are invalid.
    """
    check_settings(workspace / CONFIG_FILE)
    runs_dir(workspace)


def list_runs(workspace: Path) -> list[RunDir]:
    """The runs of a workspace in the order of their creation, the newest first; also those that cannot be read.

    Raises:
        FileAccessError: The directory of the runs cannot be read.
    """
    return _list(runs_dir(workspace))


def list_kept_runs(state_dir: Path) -> list[RunDir]:
    """The runs of a state directory, whichever settings their workspaces have now. See ``list_runs``.

    Raises:
        UntrustedError: Another user can put runs there.
        FileAccessError: The directory of the runs cannot be read.
    """
    return _list(_runs_below(state_dir))


def _list(folder: Path) -> list[RunDir]:
    return [RunDir(path) for path in FileRuns(folder).paths()]


def is_readable(run: KeptRun) -> bool:
    """Whether a run may be read by this user and this version. How far its journal is intact is found by reading it."""
    try:
        run.check_readable()
    except BartackError:
        return False
    return True


def find_run(asked: str | os.PathLike[str], workspace: Path) -> RunDir:
    """The run that is meant: an id, a unique beginning of one, ``latest`` (the newest that can be read), or a directory.

    Raises:
        RunNotFoundError: There is none, or more than one.
        UntrustedError: Another user can change it.
    """
    found = _find_run(asked, workspace)
    check_private(found.path)
    return found


def _find_run(asked: str | os.PathLike[str], workspace: Path) -> RunDir:
    text = os.fspath(asked)
    if os.sep in text or text in {".", ".."}:
        if is_run(Path(text)):
            return RunDir(text)
        raise RunNotFoundError(text)
    exact = RunDir(runs_dir(workspace) / text)
    if text.startswith("run-") and is_run(exact.path):
        return exact
    runs = list_runs(workspace)
    if text == "latest" and runs:
        return next((run for run in runs if is_readable(run)), runs[0])
    found = match_runs(text, runs)
    if len(found) != 1:
        raise RunNotFoundError(text, tuple(run.id for run in found[:5]))
    return found[0]


def match_runs(text: str, runs: Sequence[RunDir]) -> list[RunDir]:
    """The runs that an id, or the beginning of one, can mean: the whole id counts alone."""
    exact = [run for run in runs if run.id == text]
    return exact or [run for run in runs if run.id.startswith((text, f"run-{text}"))]


def read_state(run: KeptRun) -> State:
    """What the journal of a run adds up to, read without owning it.

    Raises:
        RunNotFoundError: The journal has no run in it.
    """
    with run.open_reader() as reader:
        return load_state(run, reader)


def load_state(run: KeptRun, journal: Journal | JournalReader) -> State:
    """What the journal of a run adds up to, if it is open already.

    Raises:
        RunNotFoundError: The journal has no run in it.
    """
    state = State()
    apply_all(state, journal.read())
    if state.run is None:
        raise RunNotFoundError(run.id)
    return state


def check_not_ended(run: KeptRun, state: State) -> None:
    """Raise if a run that no process runs has ended for good.

    Raises:
        RunNotActiveError: It has.
    """
    status = status_of(run, state, active=False)
    if status in TERMINAL:
        raise RunNotActiveError(run.id, status)


def status_of(run: KeptRun, state: State, *, active: bool | None = None) -> Status:
    """The status of a run. A run that has not ended and that no process runs is interrupted, or waits for an answer."""
    if state.ended is not None:
        return state.status
    if active is None:
        active = run.is_active()
    if active:
        return state.status
    return "waiting" if state.stopped == "waiting" and state.questions else "interrupted"


class RunSummary(msgspec.Struct, omit_defaults=True):
    """One line about a run."""

    run: str
    status: str
    worker: str
    program: str
    created_at: str
    updated_at: str
    pid: int = 0
    questions: list[str] = []
    deadlock: list[str] = []
    error: str = ""
    project: str = ""
    workspace: str = ""
    goal: str = ""
    """What a run of the pipeline is to do, in a few words."""
    spent_usd: float = 0.0
    """What its agents have cost."""
    usd_estimated: bool = False
    """That was computed from a table of prices, or in part."""
    rests_until: str = ""
    """When a run that no process runs has something to do again by itself."""
    rests_for: str = ""
    """What it waits for until then."""


def was_abandoned(run: KeptRun) -> bool:
    """Whether no process runs the run and its last hub was killed: the files for people may be incomplete."""
    try:
        file = typed.decode(run.summary() or b"", type=RunFile)
    except msgspec.DecodeError:
        return True
    return file.pid != 0 and not run.is_active()


class Looked(NamedTuple):
    """A look at a run.

    Attributes:
        summary: One line about it.
        state: What its journal adds up to, if the journal had to be read for the summary.
    """

    summary: RunSummary
    state: State | None = None


def summarise(run: KeptRun, state: State | None = None) -> RunSummary:
    """The facts in run.json, corrected by whether a process runs the run. It does not raise for a run that cannot be read.

    If the hub was killed, the status is that of the journal: the run may have ended before run.json was written. A run that cannot
    be read has the status ``unreadable`` and the reason as its error.

    Args:
        run: The run.
        state: What its journal adds up to, if that was read already.
    """
    if state is not None:
        return look_at(run, state).summary
    return _guarded(run, lambda: Looked(_summary_of(current_file(run)))).summary


def look_at(run: KeptRun, state: State | None = None) -> Looked:
    """Like ``summarise``, for callers that need the state as well: returns it if the journal had to be read."""
    return _guarded(run, lambda: _look(run, state))


def _guarded(run: KeptRun, look: Callable[[], Looked]) -> Looked:
    try:
        run.check_readable()
        return look()
    except BartackError as problem:
        return Looked(_unreadable(run, problem.message))
    except OSError as error:
        return Looked(_unreadable(run, f"{error.filename or run.id}: {error.strerror or error}"))


def _unreadable(run: KeptRun, reason: str) -> RunSummary:
    return RunSummary(run.id, UNREADABLE, "", "", "", "", error=reason)


def _look(run: KeptRun, state: State | None) -> Looked:
    file = _kept_file(run)
    if file is None or _was_killed(file, run):
        state = state or read_state(run)
        file = file or _file_of_journal(run, state)
    return Looked(_summary_of(_corrected(file, run, state)), state)


def _was_killed(file: RunFile, run: KeptRun) -> bool:
    return file.pid != 0 and file.status not in ENDED and not run.is_active()


def _summary_of(file: RunFile) -> RunSummary:
    return RunSummary(
        run=file.run,
        status=file.status,
        worker=file.worker,
        program=file.program,
        created_at=file.created_at,
        updated_at=file.updated_at,
        pid=file.pid,
        questions=file.questions,
        deadlock=file.deadlock,
        error=file.error,
        project=file.project,
        workspace=file.workspace,
        goal=goal_of(file.pipeline),
        spent_usd=0.0 if file.budget is None else file.budget.spent_usd,
        usd_estimated=file.budget is not None and file.budget.usd_estimated,
        rests_until=file.rests_until,
        rests_for=file.rests_for,
    )


def current_file(run: KeptRun, *, quickly: bool = False) -> RunFile:
    """The facts in run.json, corrected by whether a process runs the run; from the journal if there is no such file.

    If the hub was killed, the status is that at the end of the journal: the run may have ended before run.json was written.

    Args:
        run: The run.
        quickly: Without run.json, read the beginning and the end of the journal only; then not all is known.

    Raises:
        RunNotFoundError: There is no run.json, and the journal has no run in it.
        JournalError: The journal is needed, and cannot be read.
    """
    file = _kept_file(run)
    if file is None:
        file = _file_of_ends(run) if quickly else _file_of_journal(run, read_state(run))
    return _corrected(file, run)


def _kept_file(run: KeptRun) -> RunFile | None:
    try:
        return typed.decode(run.summary() or b"", type=RunFile)
    except msgspec.DecodeError:
        return None


def _corrected(file: RunFile, run: KeptRun, state: State | None = None) -> RunFile:
    alive = file.status not in ENDED and run.is_active()
    if not alive and file.status not in ENDED:
        if file.pid:
            _correct_status(file, run, state)
        elif file.status != "waiting":
            file.status = "interrupted"
    if alive:
        file.rests_until = file.rests_for = ""
    else:
        file.deadlock = []
    file.pid = max(file.pid, 0) if alive else 0
    file.error = file.error.removeprefix(": ")
    return file


def _correct_status(file: RunFile, run: KeptRun, state: State | None) -> None:
    """Give the run.json that a killed hub left the status of the journal, which is read only if its state is not known."""
    if state is None:
        _take_status_at_end(file, run)
    else:
        file.status = status_of(run, state, active=False)
        file.error = file.error if state.failure is None else describe_failure(state.failure)
    if file.status in TERMINAL:
        file.questions = []


def _take_status_at_end(file: RunFile, run: KeptRun) -> None:
    file.status = "interrupted"
    with run.open_reader() as reader:
        last = reader.read_last(LAST)
    for entry in reversed(last):
        match decode_entry(entry.kind, entry.raw):
            case RunEnded() as ended:
                file.status = status_of_end(ended)
            case HubStopped(reason="waiting") if file.questions:
                file.status = "waiting"
            case FailureRecorded(suppressed=False) as failure if file.status == "failed":
                file.error = describe_failure(failure)
                break
            case HubStarted():
                break
            case _:
                pass


def goal_of(pipeline: dict[str, object] | None) -> str:
    """What a run of the pipeline is to do, as far as its run.json has it."""
    try:
        described = typed.convert(pipeline or {}, type=_Pipeline)
    except msgspec.ValidationError:
        return ""
    titles = [task.title or task.id for task in described.tasks]
    return described.goal or shorten_goal(titles[0] if titles else "", len(titles))


def shorten_goal(text: str, tasks: int = 1) -> str:
    """The first words of what is to be done, and how many tasks more there are."""
    words = " ".join(text.split())
    more = f" (+{tasks - 1} more)" if tasks > 1 else ""
    return (words if len(words) <= GOAL_LENGTH else f"{words[: GOAL_LENGTH - 1].rstrip()}…") + more


class _Task(msgspec.Struct):
    id: str = ""
    title: str = ""


class _Pipeline(msgspec.Struct):
    """The part of the pipeline's facts in run.json that is used here."""

    goal: str = ""
    tasks: list[_Task] = []


def _file_of_ends(run: KeptRun) -> RunFile:
    """What the beginning of the journal says of the run; its end decides the status."""
    with run.open_reader() as reader:
        first = list(islice(reader.read(), LAST))
        last = reader.read_last(1)
    created = next(
        (data for entry in first if isinstance(data := decode_entry(entry.kind, entry.raw), RunCreated)), None
    )
    if created is None:
        raise RunNotFoundError(run.id)
    return RunFile(
        run=run.id,
        status="running",
        worker=created.name,
        program=created.program,
        workspace=created.workspace,
        created_at=iso_time(first[0].at),
        updated_at=iso_time(last[-1].at if last else first[-1].at),
        seq=last[-1].seq if last else 0,
        hub=0,
        project=created.project,
        # So that its end is looked at, as that of a killed hub is.
        pid=-1,
    )


def _file_of_journal(run: KeptRun, state: State) -> RunFile:
    assert state.run is not None
    return RunFile(
        run=run.id,
        status=status_of(run, state),
        worker=state.run.name,
        program=state.run.program,
        workspace=state.run.workspace,
        created_at=iso_time(state.created_at),
        updated_at=iso_time(state.last_at),
        seq=0,
        hub=state.hub,
        project=state.run.project,
        resumes=max(state.hub - 1, 0),
        questions=list(state.questions),
        error="" if state.failure is None else describe_failure(state.failure),
    )
