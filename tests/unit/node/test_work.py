"""What a node makes of a run that it cannot begin: whether the reason passes, is this node's, or is for a person."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import cast

import pytest

from bartack.depot.fleet import Fleet
from bartack.depot.taken import Taken
from bartack.errors import (
    DepotError,
    DepotUnavailableError,
    JournalFullError,
    JournalLockedError,
    JournalLostError,
)
from bartack.node._core import Ending
from bartack.node._environments import Environments
from bartack.node._fleet_core import CannotRun, Postponed, Rewound, WorkEnd
from bartack.node._work import RunWork, _by_wall

RUN = Taken(1, "run-20260101-000000-00000001", "default", 2, 0)


class NotPrepared:
    """A node whose runs cannot be prepared."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def prepare(self, run: Taken, runs: Path) -> Path:
        raise self._error


def end_of(error: Exception, runs: Path) -> WorkEnd:
    """What the work on a run reports whose directory cannot be prepared."""
    ended, ends = threading.Event(), list[WorkEnd]()

    def note(run: Taken, end: WorkEnd) -> None:
        ends.append(end)
        ended.set()

    fleet = cast("Fleet", NotPrepared(error))
    work = RunWork(
        RUN,
        fleet,
        runs,
        -1,
        environments=Environments(runs, {}, print),
        rest_after_s=60.0,
        say=print,
        ended=note,
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


def test_entries_that_the_database_has_lost_are_for_a_person(tmp_path: Path) -> None:
    end = end_of(JournalLostError("the database", 0, 3, 5), tmp_path)

    assert isinstance(end, Rewound)
    assert str(tmp_path / RUN.id) in end.why


@pytest.mark.requirement("fleet-time")
def test_a_run_rests_until_its_time_by_the_clock_of_its_database() -> None:
    offset_us, now_us = 3_600_000_000, 1_000_000_000_000
    stopped = Ending(due_us=now_us + offset_us + 60, last_us=now_us + offset_us - 5)

    assert _by_wall(stopped, offset_us, now_us).due_us == now_us + 60
    assert _by_wall(stopped, 0, now_us).due_us == now_us + 65, "a journal that is ahead waits no longer"
    assert _by_wall(Ending(), offset_us, now_us).due_us == 0, "no time continues it"
