"""``workspace.setup``: the command that makes what copies of a workspace do not have, such as installed packages.

It is executed once on each machine that continues a run: after the workspace was made from a copy, and before the hub starts. It is
a command like those of the run: words without a shell, below a keeper that ends with this process, that holds the lock of the tree,
and that stands still while the lease is not valid. What it has done is noted beside the workspace (``SetupDone``).

The workspace is compared with its copy before the command. Files that the command changes, and that are copied, are in the next
copy. If no copy has them when the files are restored, the command is executed again.
"""

from __future__ import annotations

import os
import select
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from bartack.config.project import with_absolute_path
from bartack.config.sections import WorkspaceConfig
from bartack.core import typed
from bartack.core.files import replace_file
from bartack.errors import WorkspaceKeepError, WorkspaceSetupError
from bartack.runtime.copies.copies import open_copies
from bartack.runtime.copies.lanes import find_lanes
from bartack.runtime.copies.values import Sources
from bartack.runtime.hub.workspace.prepared import SETUP, Prepared
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.secrets import open_veil_of
from bartack.runtime.state.run_state import State
from bartack.supervision.parent.client import KEEPER, ParentClient
from bartack.supervision.parent.wire import Exited, Gone, ParentDied, ParentEvent, Started, StartFailed
from bartack.supervision.process.lease import LeasePage

LOG: Final = "setup.log"
"""The file of a run with what the command has written on this machine."""
MOST_OUTPUT: Final = 16 << 20
KEPT_BYTES: Final = 16 << 10
"""How much of the end of the output is kept in the journal."""
SHOWN: Final = 300
"""How many characters of the end of the output a failure shows."""
LOOK_S: Final = 0.5
_TOKEN: Final = 1


class SetupDone(msgspec.Struct, frozen=True):
    """What is noted beside a workspace that was prepared.

    Attributes:
        words: The command.
        changes: Whether it has changed files that are copied.
    """

    words: tuple[str, ...]
    changes: bool = True


class Terms(NamedTuple):
    """Under what conditions a command is executed on this machine.

    Attributes:
        environ: The environment of its hub.
        lease: The descriptor of a lease page that it needs, if there is one.
        is_stopped: Whether it is to be given up; asked again and again.
        begins: Called right before it is executed.
    """

    environ: Mapping[str, str]
    lease: int | None = None
    is_stopped: Callable[[], bool] = bool
    begins: Callable[[], object] = bool


def prepare_workspace(
    run: RunDir, state: State, top: Path, workspace: str, config: WorkspaceConfig, terms: Terms
) -> Prepared | None:
    """Execute the command, unless there is none, or it was executed on this machine before.

    Args:
        run: The run.
        state: What its journal adds up to.
        top: The directory that is copied for its workspace, as its latest copy has it.
        workspace: Where its workspace is.
        config: The settings.
        terms: See there.

    Returns:
        What was executed; ``None``: nothing, or it was given up.

    Raises:
        WorkspaceSetupError: It failed.
    """
    words = tuple(config.setup)
    done = _read_done(top)
    if not words or state.copies.latest is None or (done is not None and done.words == words):
        return None
    assert state.run is not None
    if state.run.run_as:
        raise WorkspaceSetupError(run.id, shlex.join(words), f"it is not executed as {state.run.run_as}")
    terms.begins()
    with tempfile.TemporaryFile(dir=run.path) as output:
        environ = {**with_absolute_path(terms.environ), **run.environment(state)}
        ran = _Command(run, words, workspace, environ, config.setup_timeout_s, output).execute(terms)
        if terms.is_stopped():
            return None
        veil = open_veil_of(run, workspace)
        text = veil.hide_text(_end_of(output, MOST_OUTPUT))
        replace_file(run.path / LOG, text.encode(), synced=False)
        if ran.problem:
            shown = " ".join(text[-SHOWN:].split())
            problem = f"{ran.problem}: {shown}" if shown else ran.problem
            raise WorkspaceSetupError(run.id, veil.hide_text(shlex.join(words)), problem)
        _write_done(top, SetupDone(words, _changes(run, state, top, config.include)))
        return Prepared(words, int(ran.took_s * 1e6), veil.hide_text(_end_of(output, KEPT_BYTES)))


def note_restored(top: Path) -> None:
    """The files of a workspace are about to be restored: forget a command whose work that undoes."""
    done = _read_done(top)
    if done is not None and (done.changes or not top.exists()):
        _place_of(top).unlink(missing_ok=True)


def _changes(run: RunDir, state: State, top: Path, include: Sequence[str]) -> bool:
    assert state.copies.latest is not None
    copies = open_copies(run.copies, include=include)
    try:
        sources = Sources(top, run.path, find_lanes(run.worktrees))
        return not copies.take(sources, state.copies.latest.copy).is_same
    except WorkspaceKeepError:
        return True


def _place_of(top: Path) -> Path:
    return top.with_name(f"{top.name}{SETUP}")


def _read_done(top: Path) -> SetupDone | None:
    with suppress(OSError, msgspec.MsgspecError):
        return typed.decode(_place_of(top).read_bytes(), type=SetupDone)
    return None


def _write_done(top: Path, done: SetupDone) -> None:
    replace_file(_place_of(top), msgspec.json.encode(done), synced=False)


def _end_of(file: IO[bytes], size: int) -> str:
    length = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, max(0, length - size)).decode("utf-8", "replace")


class _Ran(NamedTuple):
    """How the command ended, and what was wrong."""

    took_s: float
    problem: str = ""


class _Command:
    """One execution of the command, below a keeper of its own."""

    def __init__(
        self,
        run: RunDir,
        words: Sequence[str],
        workspace: str,
        environ: Mapping[str, str],
        timeout_s: float,
        output: IO[bytes],
    ) -> None:
        self._run = run
        self._words = words
        self._workspace = workspace
        self._environ = environ
        self._timeout_s = timeout_s
        self._output = output
        self._spent_s = 0.0
        self._status: int | None = None

    def execute(self, terms: Terms) -> _Ran:
        """Execute it to its end, or until it is given up; nothing of it is left then."""
        out = self._output.fileno()
        page = None if terms.lease is None else LeasePage.open(terms.lease)
        try:
            lock = str(self._run.tree_lock)
            with ParentClient.start(
                KEEPER, lock, self._environ, self._workspace, stdout=out, stderr=out, lease=terms.lease
            ) as keeper:
                keeper.exec(_TOKEN, [self._words], self._workspace, self._environ, stdout=out, stderr=out)
                return _Ran(self._spent_s, self._wait(keeper, page, terms.is_stopped))
        except OSError as error:
            return _Ran(self._spent_s, error.strerror or str(error))
        finally:
            if page is not None:
                page.close()

    def _wait(self, keeper: ParentClient, page: LeasePage | None, is_stopped: Callable[[], bool]) -> str:
        """Wait for its end; returns what was wrong. Only the time counts in which it may run."""
        poller = select.poll()
        while True:
            if is_stopped():
                return "its node stops"
            if self._spent_s > self._timeout_s:
                return f"it was not over after {self._timeout_s:g} s (workspace.setup_timeout_s)"
            if os.fstat(self._output.fileno()).st_size > MOST_OUTPUT:
                return f"it wrote more than {MOST_OUTPUT >> 20} MiB"
            may_run = page is None or page.left_s() > 0
            began = time.monotonic()
            poller.register(keeper, select.POLLIN | (select.POLLOUT if keeper.wants_write else 0))
            poller.poll(LOOK_S * 1000)
            self._spent_s += time.monotonic() - began if may_run else 0.0
            for event in keeper.read_events():
                problem = self._problem_of(event)
                if problem is not None:
                    return problem

    def _problem_of(self, event: ParentEvent) -> str | None:
        """What is wrong, when an event ends the command; empty: nothing."""
        match event:
            case Started(pidfds=pidfds):
                for fd in pidfds:
                    os.close(fd)
            case Exited(statuses=statuses):
                self._status = statuses[-1]
            case Gone():
                return _describe(self._status)
            case StartFailed(problem=problem):
                return problem
            case ParentDied():
                return "its parent program was killed"
            case _:
                pass
        return None


def _describe(status: int | None) -> str:
    if not status:
        return ""
    return f"it ended with {status}" if status > 0 else f"signal {-status} ended it"
