"""The hubs of a node, processes that outlive it: starting one, finding one of an earlier node, seeing how one has ended."""

from __future__ import annotations

import os
import select
import signal
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from bartack.core.disk import is_disk_trouble
from bartack.depot import Job
from bartack.depot.ledger import busy_workspace
from bartack.errors import (
    BartackError,
    DeadlineExceededError,
    HubStoppedError,
    JournalLockedError,
    TreeLockedError,
    WorkspaceBusyError,
    WorkspaceGoneError,
)
from bartack.node._core import REST_AFTER_S, Ending
from bartack.runtime.client.start_hub import SERVER, SERVERS, Spawn, spawn_interpreter, start_hub
from bartack.runtime.rundir.find import TERMINAL, UNREADABLE, read_state, status_of, summarise
from bartack.runtime.rundir.inbox import times_left
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.entries import StepFinished
from bartack.runtime.state.run_state import State
from bartack.supervision.process.system import open_pidfd, read_command

ROOM: Final = 256 * 1024
DETACHED: Final = frozenset({SERVER, *SERVERS.values()})
"""The programs of hubs without a terminal."""


class Hub(Protocol):
    """A hub that runs."""

    @property
    def fd(self) -> int | None:
        """A descriptor that is readable when it is dead; ``None`` where the system has none."""
        ...

    def is_gone(self) -> bool:
        """Whether its process has ended."""
        ...

    def terminate(self) -> None:
        """Ask it to stop, such that the run can be resumed."""
        ...

    def close(self) -> None:
        """It is gone."""
        ...


class RealHub:
    """See ``Hub``: a process of this machine."""

    def __init__(self, run: RunDir, pid: int) -> None:
        self.run = run
        self.pid = pid
        self.fd = open_pidfd(pid)

    def is_gone(self) -> bool:
        """See ``Hub.is_gone``."""
        if self.fd is None:
            return not self.run.is_active()
        poller = select.poll()  # unlike select, it takes any descriptor
        poller.register(self.fd, select.POLLIN)
        return bool(poller.poll(0))

    def terminate(self) -> None:
        """See ``Hub.terminate``."""
        try:
            if self.fd is not None:
                signal.pidfd_send_signal(self.fd, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)
        except ProcessLookupError:
            return

    def close(self) -> None:
        """See ``Hub.close``."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class Hubs(Protocol):
    """How a node gets at hubs; tests have their own."""

    def start(self, job: Job) -> Hub | Ending:
        """Start the hub of a run, or return why that is not possible."""
        ...

    def find(self, job: Job) -> Hub | None:
        """The hub that runs a run already."""
        ...

    def is_asking(self, job: Job) -> bool:
        """Whether a run waits for a person."""
        ...

    def ending(self, job: Job, *, rebooted: bool = False) -> Ending:
        """How the last hub of a run has ended."""
        ...

    def outcome(self, job: Job, since_us: int) -> str:
        """How a run that this node does not run has ended since a time; empty if it has not."""
        ...

    def has_mail(self, job: Job, since_us: int) -> bool:
        """Whether an answer or a message was left for a run since a time."""
        ...


def has_room(place: Path) -> bool:
    """Whether a run can write as much to its disk as its journal takes at a time."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(bytes(ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return not is_disk_trouble(error)
    return True


def _refused(error: BartackError) -> Ending:
    """What a hub that could not begin means for its run."""
    match error:
        case WorkspaceBusyError():
            return Ending(busy=busy_workspace(error.owner or "another process"))
        case TreeLockedError():
            return Ending(busy="waits for processes of its last start that cannot be terminated")
        case _:
            return Ending(problem=f"{error.code}: {error}")


def _meet_owner(run: RunDir) -> Hub | Ending:
    """What a run that another process owns means: a hub without a terminal is ours, one of a person is not.

    A node that is killed when it has started a hub leaves one that no node knows of. A command may own a run for a moment.
    """
    if not run.is_active():
        return Ending(busy="waits for a process that has its journal open")
    owner = run.owner_pid()
    return Ending(elsewhere=True) if DETACHED.isdisjoint(read_command(owner)) else RealHub(run, owner)


def find_outcome(job: Job, since_us: int) -> str:
    """How a run has ended, in whatever process, since a time: its status or ``deleted``; empty if it has not ended.

    A failure from before that time was known to the node, which has decided what follows from it.
    """
    run = RunDir(job.path)
    summary = summarise(run)
    if summary.status in TERMINAL:
        return summary.status
    if summary.status == "failed":
        failed_us = datetime.fromisoformat(summary.updated_at).timestamp() * 1e6
        return "failed" if failed_us >= since_us else ""
    # Without the directory around it, its disk is not mounted.
    is_deleted = summary.status == UNREADABLE and not os.path.lexists(run.path) and run.path.parent.is_dir()
    return "deleted" if is_deleted else ""


class RealHubs:
    """See ``Hubs``: processes of this machine.

    Args:
        environ: The environment of the node; the variables that are kept with a run come before it.
        spawn: Starts their processes.
        rest_after_s: They stop when there is nothing to do for longer than this.
        moves: The workspace of a run is where its job says, also if that is another place than before.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        spawn: Spawn = spawn_interpreter,
        rest_after_s: float = REST_AFTER_S,
        *,
        moves: bool = False,
    ) -> None:
        self._environ = environ
        self._spawn = spawn
        self._rest_after_s = rest_after_s
        self._moves = moves

    def start(self, job: Job) -> Hub | Ending:
        """See ``Hubs.start``."""
        run = RunDir(job.path)
        try:
            if not Path(job.workspace).is_dir():
                raise WorkspaceGoneError(job.run, job.workspace)
            state = read_state(run)
            if state.ended is not None and state.ended.status in TERMINAL:
                return Ending(status=state.ended.status)
            environ = {**self._environ, **job.environ}
            pid = start_hub(
                run,
                workspace=job.workspace if self._moves else None,
                environ=environ,
                spawn=self._spawn,
                rest_after_s=self._rest_after_s,
            )
        except (JournalLockedError, HubStoppedError):
            return _meet_owner(run)
        except DeadlineExceededError:
            return self.ending(job)  # it may still come: then the next start meets it
        except BartackError as error:
            return _refused(error)
        except OSError as error:
            return Ending(problem=f"{error.filename or job.path}: {error.strerror or error}")
        return RealHub(run, pid)

    def find(self, job: Job) -> Hub | None:
        """See ``Hubs.find``."""
        run = RunDir(job.path)
        return RealHub(run, run.owner_pid()) if run.is_active() else None

    def is_asking(self, job: Job) -> bool:
        """See ``Hubs.is_asking``."""
        return summarise(RunDir(job.path)).status == "waiting"

    def ending(self, job: Job, *, rebooted: bool = False) -> Ending:
        """See ``Hubs.ending``."""
        run, state, finished = RunDir(job.path), State(), 0
        try:
            with run.open_reader() as reader:
                for entry in reader.read():
                    apply_all(state, [entry])
                    finished += entry.kind == StepFinished.kind
        except (BartackError, OSError) as error:
            return Ending(problem=f"its journal cannot be read: {error}")
        is_killed = not state.stopped and state.ended is None
        return Ending(
            status=status_of(run, state, active=False),
            # A hub whose disk is full cannot even record that it stops.
            stop="disk" if is_killed and not has_room(run.path) else state.stopped,
            progress=finished,
            rebooted=rebooted,
            due_us=state.rests_until,
            about=state.rests_for,
            last_us=state.last_at,
        )

    def outcome(self, job: Job, since_us: int) -> str:
        """See ``Hubs.outcome``."""
        return find_outcome(job, since_us)

    def has_mail(self, job: Job, since_us: int) -> bool:
        """See ``Hubs.has_mail``."""
        return any(at_us >= since_us for at_us in times_left(RunDir(job.path)))
