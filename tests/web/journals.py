"""Journals for tests of the web server: runs in a workspace, written without a hub."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bartack.journal import Draft, Entry, FileJournal, open_journal
from bartack.runtime.rundir.find import read_state
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.rundir.mirror import Mirror
from bartack.runtime.state import entries as e
from bartack.runtime.state.entries import draft

RUN = "run-20261118-101010-0123abcd"


class Writer:
    """A run that a test writes, entry by entry."""

    def __init__(self, run: RunDir, journal: FileJournal) -> None:
        self.run = run
        self.journal = journal

    @property
    def file(self) -> Path:
        """The file of the journal."""
        return self.run.path / "journal.ndjson"

    @property
    def seq(self) -> int:
        """The last entry."""
        return self.journal.synced_seq

    def write(self, *facts: e.EntryData, value: object = None) -> int:
        """Write entries in one commit; returns the last one."""
        raw = None if value is None else msgspec.json.encode(value)
        for data in facts:
            self.journal.stage(draft(data, raw))
        self.journal.commit()
        return self.seq

    def mirror(self, *, active: bool = False) -> None:
        """Write run.json, as a hub that has stopped leaves it, or as one that is alive has it."""
        Mirror(self.run, read_state(self.run)).write(self.seq, active=active)

    def begin(self, worker: str = "team:main", **members: object) -> None:
        """The beginning of a run: its first worker is alive."""
        place = self.run.path.parents[2]
        created = {
            "run": self.run.id,
            "worker": worker,
            "name": "main",
            "program": str(place / "team.py"),
            "workspace": str(place),
            "root": str(place),
            "seed": 0,
            **members,
        }
        self.write(msgspec.convert(created, e.RunCreated), e.HubStarted(hub=1))
        self.write(e.WorkerSpawned(path="main", worker=worker), value={"args": []})


@contextmanager
def written_run(workspace: Path, run: str = RUN) -> Generator[Writer]:
    """A run below a workspace, owned by the test."""
    place = RunDir(workspace / ".bartack" / "runs" / run)
    (workspace / ".bartack" / "runs").mkdir(mode=0o700, parents=True, exist_ok=True)
    (workspace / ".bartack").chmod(0o700)
    place.make()
    with open_journal(place.path, durability="process") as journal:
        yield Writer(place, journal)


def keep(entries: Sequence[Entry], workspace: Path, name: str) -> RunDir:
    """Write the journal of a run in memory into the directory of a run."""
    place = RunDir(workspace / ".bartack" / "runs" / name)
    place.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    (workspace / ".bartack").chmod(0o700)
    place.make()
    with open_journal(place.path, durability="process") as journal:
        # The engine writes its own first entry. Places stay as they are: entries refer to each other.
        for entry in entries[1:]:
            value = None if entry.value is None else bytes(entry.value)
            kind = "test.nothing" if entry.kind.startswith("journal.") else entry.kind
            journal.stage(Draft(kind, entry.data, value, entry.ref))
        journal.commit()
    return place


def started(n: int, p: str = "main", step: str = "shell", **members: object) -> e.StepStarted:
    """A step begins."""
    return msgspec.convert({"p": p, "n": n, "step": step, "fp": "f", **members}, e.StepStarted)


def finished(n: int, p: str = "main", step: str = "shell", **members: object) -> e.StepFinished:
    """A step has its outcome."""
    return msgspec.convert({"p": p, "n": n, "step": step, "fp": "f", **members}, e.StepFinished)
