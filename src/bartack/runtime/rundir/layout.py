"""The directory of a run: where each file is that the runtime has beside the journal, and what its processes are started with.

A run is found, read, owned and watched through ``KeptRun``, which ``bartack.depot`` implements. If the directory is only the
working copy of a run in a database (``depot/placed.py``), ``RunDir`` gets it from there. A function that needs no more than
that takes a ``KeptRun``; one that needs files of the run on this machine takes a ``RunDir``. What the files contain is written
elsewhere: ``mirror.py`` (run.json, .failed), ``transcript.py`` and ``inbox.py``. Runs are found by ``find.py``.
"""

from __future__ import annotations

import os

import msgspec

from bartack.core.batch import Batch
from bartack.core.disk import Disk
from bartack.depot import KeptRun
from bartack.depot.placed import PlacedRun
from bartack.errors import WorkspaceError
from bartack.runtime.protocol.frames import Order
from bartack.runtime.state.run_state import State


class RunDir(PlacedRun):
    """A run that has a directory on this machine. Creating this object creates no files."""

    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        super().__init__(path, disk)
        self.failed = self.path / ".failed"
        self.program = self.path / "program"
        self.work = self.path / "work"
        self.agents = self.path / "agents"
        self.inbox = self.path / "inbox"
        self.transcript = self.path / "transcript.txt"
        self.log = self.path / "hub.log"
        self.copies = self.path / "copies.git"
        self.own_workspace = self.path / "workspace"
        beside = self.path.parent.name == "runs"
        self.worktrees = self.path.parents[1] / "worktrees" / self.id if beside else self.path / "worktrees"

    def make(self, batch: Batch | None = None) -> None:
        """Make the directories that a run needs; they become durable with the batch."""
        batch = batch or Batch()
        for folder in (self.path, self.program, self.work, self.inbox):
            batch.make_dirs(str(folder))

    def workspace(self, state: State, given: str | None = None) -> str:
        """Where the run's commands and relative paths are from now on.

        Args:
            state: The run.
            given: Where the caller says it is. Without it, the place as seen from the run's directory, or where it was.

        Raises:
            WorkspaceError: It is not there.
        """
        assert state.run is not None
        own = [str(self.own_workspace)] if state.copies.latest is not None else []
        beside = [*own, self._beside(state.run.place), state.run.workspace]
        wanted = [os.path.realpath(given)] if given else beside
        found = next((path for path in wanted if path and os.path.isdir(path)), None)
        if found is None:
            raise WorkspaceError(wanted[-1])
        return found

    def _beside(self, place: str) -> str:
        """The workspace that the run's directory is in, if the directory is still at the same place inside it."""
        path, tail = str(self.path), os.sep + place
        inside = bool(place) and not place.startswith(os.pardir) and path.endswith(tail)
        return path.removesuffix(tail) if inside else ""

    def seed(self, state: State) -> int:
        """The hash seed of the run's workers: the same in every process of it."""
        assert state.run is not None
        return state.run.seed

    def environment(self, state: State) -> dict[str, str]:
        """The variables that every process of the run has in its environment."""
        return {"BARTACK_RUN": self.id, "BARTACK_RUN_DIR": str(self.path), "BARTACK_HUB": str(state.hub)}

    def worker_payload(self, state: State, path: str, incarnation: int) -> bytes:
        """What a new worker process gets, encoded."""
        assert state.run is not None
        order = Order(
            path=path,
            incarnation=incarnation,
            blobs=self.blob_port(),
            workspace=state.run.workspace,
            program=str(self.program),
            root=state.run.root,
            folder=os.path.relpath(os.path.dirname(state.run.program), state.run.root),
            paths=state.run.paths,
        )
        return msgspec.json.encode(order)


def kept_run(where: KeptRun | str | os.PathLike[str]) -> KeptRun:
    """A run that is given as such, or by its directory."""
    return RunDir(where) if isinstance(where, str | os.PathLike) else where
