"""What a node makes of a run that it cannot begin: whether the reason passes, is this node's, or is for a person."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.waiting import until

from bartack.config.load import load_config
from bartack.depot.fleet import Fleet
from bartack.depot.link import NodeLink
from bartack.depot.taken import Taken
from bartack.errors import (
    DepotError,
    DepotUnavailableError,
    JournalCorruptError,
    JournalFullError,
    JournalLockedError,
    JournalLostError,
)
from bartack.journal import BlobRef
from bartack.node._core import Ending
from bartack.node._environments import Environments
from bartack.node._fleet_core import CannotRun, Damaged, Postponed, Rewound, WorkEnd
from bartack.node._work import RunWork, _by_wall, spawn_linked
from bartack.runtime.client.start_hub import HubOrder
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.hub.serve import Instructions
from bartack.runtime.rundir.layout import RunDir

RUN = Taken(1, "run-20260101-000000-00000001", "default", 2, 0)


PROGRAM = (
    "from bartack import Context, worker\n\n@worker\nasync def main(ctx: Context) -> int:\n    return 1\n"
)


def refuse(*given: object) -> None:
    raise AssertionError(given)


class NotPrepared:
    """A node whose runs cannot be prepared."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def prepare(self, run: Taken, runs: Path) -> Path:
        raise self._error


def end_of(error: Exception, runs: Path) -> WorkEnd:
    """What the work on a run reports whose directory cannot be prepared."""
    return end_of_work(cast("Fleet", NotPrepared(error)), runs)


def end_of_work(
    fleet: Fleet, runs: Path, restored: Callable[[Taken, float], object] = lambda _run, _took_s: None
) -> WorkEnd:
    """What the work on a run reports when it ends."""
    ended, ends = threading.Event(), list[WorkEnd]()

    def note(run: Taken, end: WorkEnd) -> None:
        ends.append(end)
        ended.set()

    work = RunWork(
        RUN,
        fleet,
        runs,
        -1,
        environments=Environments(runs, {}, print),
        rest_after_s=60.0,
        say=print,
        ended=note,
        restored=restored,
    )
    assert ended.wait(5)
    assert work.join(5)
    return ends[0]


@pytest.mark.parametrize(
    "error",
    [
        DepotUnavailableError("the database", "it is away"),
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        JournalFullError("journal.ndjson", "no space left"),
        JournalLockedError("run", None, "an earlier hub"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_is_not_the_fault_of_the_node(error: Exception, tmp_path: Path) -> None:
    assert isinstance(end_of(error, tmp_path), Postponed)


@pytest.mark.parametrize("error", [DepotError("the database", "no program"), PermissionError(13, "no")])
def test_another_node_may_run_what_this_one_cannot(error: Exception, tmp_path: Path) -> None:
    assert isinstance(end_of(error, tmp_path), CannotRun)


@pytest.mark.requirement("fleet-hold-time")
def test_a_hub_learns_from_its_node_how_long_it_may_stand_still(tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text("import sys; print(sys.stdin.read())", encoding="utf-8")
    environ = {"PYTHONPATH": str(tmp_path)}
    order = HubOrder(module="reading", words=(), workspace=str(tmp_path), environ=environ)
    lease, out = os.open(os.devnull, os.O_RDONLY), tmp_path / "out"
    with NodeLink(refuse, refuse) as link, out.open("wb") as log:
        hub = spawn_linked(link, RUN, lease, sys.executable, None, order, log.fileno(), lease, hold_s=4000.0)
        until(hub.is_gone, "the end of the process")
    os.close(lease)

    read = msgspec.json.decode(out.read_bytes(), type=Instructions)
    assert (read.hold_s, read.lease, read.fence) == (4000.0, lease, 2)


@pytest.mark.requirement("fleet-damaged")
def test_a_journal_that_is_damaged_in_the_database_is_for_a_person_and_not_for_other_nodes(
    tmp_path: Path,
) -> None:
    end = end_of(JournalCorruptError("the database: run", 7, "checksum does not match"), tmp_path)

    assert isinstance(end, Damaged)
    assert "checksum does not match" in end.why
    assert f"bartack db check {RUN.id}" in end.why


def test_entries_that_the_database_has_lost_are_for_a_person(tmp_path: Path) -> None:
    end = end_of(JournalLostError("the database", 0, 3, 5), tmp_path)

    assert isinstance(end, Rewound)
    assert str(tmp_path / RUN.id) in end.why


class Carrying:
    """A node whose run is here, and cannot be asked anything."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def prepare(self, run: Taken, runs: Path) -> Path:
        return self._run.path

    def load_blob(self, run: Taken, path: Path, ref: BlobRef) -> bytes:
        return self._run.open_blobs().get(ref)


@pytest.mark.requirement("fleet-events")
def test_a_workspace_that_is_restored_is_reported(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.py").write_text(PROGRAM, "utf-8")
    run = create_run(RunRequest(program="main.py"), project, load_config(project), is_carried=True)
    restored = list[tuple[Taken, float]]()
    runs = tmp_path / "seat/runs"

    end_of_work(
        cast("Fleet", Carrying(run)), runs, restored=lambda run, took_s: restored.append((run, took_s))
    )

    ((taken, took_s),) = restored
    assert taken == RUN
    assert took_s > 0
    assert len([*tmp_path.glob(f"seat/*/{run.id}/main.py")]) == 1


@pytest.mark.requirement("fleet-time")
def test_a_run_rests_until_its_time_by_the_clock_of_its_database() -> None:
    offset_us, now_us = 3_600_000_000, 1_000_000_000_000
    stopped = Ending(due_us=now_us + offset_us + 60, last_us=now_us + offset_us - 5)

    assert _by_wall(stopped, offset_us, now_us).due_us == now_us + 60
    assert _by_wall(stopped, 0, now_us).due_us == now_us + 65, "a journal that is ahead waits no longer"
    assert _by_wall(Ending(), offset_us, now_us).due_us == 0, "no time continues it"
