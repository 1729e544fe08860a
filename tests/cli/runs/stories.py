"""Runs that are told by hand, entry by entry."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from bartack.cli.app._pipeline_options import PIPELINE
from bartack.journal import open_journal
from bartack.runtime.protocol.frames import ErrorData, StackLine
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.rundir.origin import mark_of
from bartack.runtime.state import entries as e
from bartack.runtime.state.apply import apply_all
from bartack.runtime.state.run_state import State
from bartack.testing import VirtualClock

Result = subprocess.CompletedProcess[str]
Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]
Begin = Callable[[str], "Story"]


class Story:
    """A run that is told entry by entry, with a clock that the teller moves."""

    def __init__(self, directory: Path) -> None:
        self.run = RunDir(directory)
        self.run.make()
        self.clock = VirtualClock()
        self.journal = open_journal(directory, clock=self.clock)
        self.state = State()

    @property
    def id(self) -> str:
        return self.run.id

    def begin(self, name: str = "main", worker: str = "", args: bytes = b'{"args":[]}') -> Story:
        root = self.run.path.parent.parent.parent
        worker = worker or f"team:{name}"
        created = e.RunCreated(
            run=self.id,
            worker=worker,
            name=name,
            program=str(root / ("_pipeline.py" if worker == PIPELINE else "team.py")),
            workspace=str(root),
            root=str(root),
            seed=1,
            origin=mark_of(self.run),
        )
        self.tell(created)
        spawned = e.WorkerSpawned(path=name, worker=worker)
        return self.tell(spawned, args).tell(e.HubStarted(hub=1))

    def tell(self, data: e.EntryData, value: bytes | None = None, *, after_s: float = 0.0) -> Story:
        self.clock.advance(after_s)
        self.journal.stage(e.draft(data, value))
        self.journal.commit()
        return self

    def end(self, *, mirror: bool = True) -> Story:
        """The process that told it is gone."""
        apply_all(self.state, self.journal.read())
        if mirror:
            Mirror(self.run, self.state).write(self.journal.synced_seq, active=False)
        self.journal.close()
        return self


def an_error(message: str = "it broke", cause: ErrorData | None = None, file: str = "team.py") -> ErrorData:
    stack = [StackLine(file=file, line=7, function="main", text="raise ValueError('it broke')")]
    return ErrorData(type="builtins:ValueError", message=message, worker="main", stack=stack, cause=cause)


def finished(n: int, kind: str = "shell", about: str = "wc -l a.txt", p: str = "main") -> e.StepFinished:
    return e.StepFinished(p=p, n=n, step=kind, fp=f"fp{n}", about=about)


def started(n: int, kind: str = "shell", about: str = "wc -l a.txt", p: str = "main") -> e.StepStarted:
    return e.StepStarted(p=p, n=n, step=kind, fp=f"fp{n}", about=about)
