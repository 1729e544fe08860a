"""Finds runs and their status, with or without a process that runs them.

A run is found by its directory (``layout.py``). Its status comes from its journal, or from the files that mirror it
(``mirror.py``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from bartack.config.load import find_state_dir, find_workspace
from bartack.config.problem import CONFIG_FILE
from bartack.core import check_private, check_settings
from bartack.errors import BartackError, FileAccessError, RunNotActiveError, RunNotFoundError
from bartack.journal import FileJournal, FileReader, check_beginning, open_reader
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import RunFile, describe_failure
from bartack.runtime.rundir.order import newest_first
from bartack.runtime.rundir.presence import is_active
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State

Status = Literal["running", "waiting", "failed", "completed", "cancelled", "aborted", "interrupted"]

ENDED: Final[frozenset[str]] = frozenset({"completed", "failed", "cancelled", "aborted", "interrupted"})
TERMINAL: Final[frozenset[str]] = frozenset({"completed", "cancelled", "aborted"})
GOAL_LENGTH: Final = 48
"""Characters of a goal in a list of runs."""
UNREADABLE: Final = "unreadable"
"""The status of a run in a list that this user or this version cannot read."""

_JOURNAL: Final = "journal.ndjson"
_LEFT_BY_HUBS: Final = frozenset({"run.json", "lock.tree", "hub.log", "transcript.txt", ".failed"})
"""Files that a run has once a process has run it. A directory with one of them and without a journal was deleted in part."""


def runs_dir(workspace: Path) -> Path:
    """Where the runs of a workspace are.

    Raises:
        UntrustedError: Another user can put runs there.
    """
    state_dir = find_state_dir(find_workspace(workspace))
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
    folder = runs_dir(workspace)
    try:
        found = [name for name in os.listdir(folder) if name.startswith("run-")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise FileAccessError(str(folder), error.strerror or str(error)) from error
    return [RunDir(folder / name) for name in newest_first(folder, found) if _is_run(folder / name)]


def _is_run(place: Path) -> bool:
    """Whether a directory holds a run, or the rest of a deleted one. A run that is being made has no journal yet."""
    try:
        os.lstat(place / _JOURNAL)
    except NotADirectoryError:
        return False
    except FileNotFoundError:
        return _is_left(place)
    except OSError:
        return True  # the directory of another user: ``summarise`` reports that
    return True


def _is_left(place: Path) -> bool:
    try:
        return not _LEFT_BY_HUBS.isdisjoint(os.listdir(place))
    except OSError:
        return False


def check_readable(run: RunDir) -> None:
    """Raise unless a run may be read by this user and this version. How far its journal is intact is found by reading it.

    Raises:
        UntrustedError: Another user can change it.
        JournalError: Its journal is missing, or a newer version wrote it.
        FileAccessError: The operating system refused.
    """
    check_private(run.path)
    check_beginning(run.path)


def is_readable(run: RunDir) -> bool:
    """Whether ``check_readable`` does not raise."""
    try:
        check_readable(run)
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
        if _is_run(Path(text)):
            return RunDir(text)
        raise RunNotFoundError(text)
    runs = list_runs(workspace)
    if text == "latest" and runs:
        return next((run for run in runs if is_readable(run)), runs[0])
    exact = [run for run in runs if run.id == text]
    found = exact or [run for run in runs if run.id.startswith(text) or run.id.startswith(f"run-{text}")]
    if len(found) != 1:
        raise RunNotFoundError(text, tuple(run.id for run in found[:5]))
    return found[0]


def read_state(run: RunDir) -> State:
    """What the journal of a run adds up to, read without owning it.

    Raises:
        RunNotFoundError: The journal has no run in it.
    """
    with open_reader(run.path) as reader:
        return load_state(run, reader)


def load_state(run: RunDir, journal: FileJournal | FileReader) -> State:
    """What the journal of a run adds up to, if it is open already.

    Raises:
        RunNotFoundError: The journal has no run in it.
    """
    state = State()
    apply_all(state, journal.read())
    if state.run is None:
        raise RunNotFoundError(run.id)
    return state


def check_not_ended(run: RunDir, state: State) -> None:
    """Raise if a run that no process runs has ended for good.

    Raises:
        RunNotActiveError: It has.
    """
    status = status_of(run, state, active=False)
    if status in TERMINAL:
        raise RunNotActiveError(run.id, status)


def status_of(run: RunDir, state: State, *, active: bool | None = None) -> Status:
    """The status of a run. A run that has not ended and that no process runs is interrupted, or waits for an answer."""
    if state.ended is not None:
        return state.status
    if active is None:
        active = is_active(run)
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
    goal: str = ""
    """What a run of the pipeline is to do, in a few words."""
    spent_usd: float = 0.0
    """What its agents have cost."""


def was_abandoned(run: RunDir) -> bool:
    """Whether no process runs the run and its last hub was killed: the files for people may be incomplete."""
    try:
        file = msgspec.json.decode(run.mirror.read_bytes(), type=RunFile)
    except (OSError, msgspec.DecodeError):
        return True
    return file.pid != 0 and not is_active(run)


def summarise(run: RunDir) -> RunSummary:
    """The facts in run.json, corrected by whether a process runs the run. It does not raise for a run that cannot be read.

    If the hub was killed, the status is that of the journal: the run may have ended before run.json was written. A run that cannot
    be read has the status ``unreadable`` and the reason as its error.
    """
    try:
        check_readable(run)
        return _summarise(run)
    except BartackError as problem:
        return _unreadable(run, problem.message)
    except OSError as error:
        return _unreadable(run, f"{error.filename or run.path}: {error.strerror or error}")


def _unreadable(run: RunDir, reason: str) -> RunSummary:
    return RunSummary(run.id, UNREADABLE, "", "", "", "", error=reason)


def _summarise(run: RunDir) -> RunSummary:
    try:
        file = msgspec.json.decode(run.mirror.read_bytes(), type=RunFile)
    except (OSError, msgspec.DecodeError):
        return _summarise_journal(run)
    alive = file.status not in ENDED and is_active(run)
    if not alive and file.status not in ENDED:
        if file.pid:
            return _correct(file, _summarise_journal(run))
        if file.status != "waiting":
            file.status = "interrupted"
    return _summary_of(file, pid=file.pid if alive else 0)


def _correct(file: RunFile, found: RunSummary) -> RunSummary:
    """The facts in a run.json that a killed hub left, with the status in the journal."""
    file.status = found.status
    file.error = found.error or file.error
    if found.status in TERMINAL:
        file.questions = []
    return _summary_of(file, pid=0)


def _summary_of(file: RunFile, *, pid: int) -> RunSummary:
    return RunSummary(
        run=file.run,
        status=file.status,
        worker=file.worker,
        program=file.program,
        created_at=file.created_at,
        updated_at=file.updated_at,
        pid=pid,
        questions=file.questions,
        deadlock=file.deadlock if pid else [],
        error=file.error.removeprefix(": "),
        project=file.project,
        goal=_goal_of(file.pipeline),
        spent_usd=0.0 if file.budget is None else file.budget.spent_usd,
    )


def _goal_of(pipeline: dict[str, object] | None) -> str:
    """What a run of the pipeline is to do, as far as its run.json has it."""
    try:
        described = msgspec.convert(pipeline or {}, type=_Pipeline)
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


def _summarise_journal(run: RunDir) -> RunSummary:
    state = read_state(run)
    assert state.run is not None
    error = "" if state.failure is None else describe_failure(state.failure)
    return RunSummary(run.id, status_of(run, state), state.run.name, state.run.program, "", "", error=error)
