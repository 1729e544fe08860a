"""What a node finds out about runs that it does not run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bartack.core.clock import SystemClock
from bartack.depot import FileDepot, Job
from bartack.journal import open_journal
from bartack.node._hubs import find_outcome
from bartack.node._start import MOST_LOG, node_log, trim_log
from bartack.runtime.protocol.frames import ErrorData
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state import entries as e


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run that no process runs."""
    path = tmp_path / "runs" / "run-20260601-030000-00000000"
    path.mkdir(parents=True, mode=0o700)
    created = e.RunCreated(
        run=path.name, worker="main", name="main", program="p", workspace="w", root="r", seed=1
    )
    open_journal(path, first=[(e.draft(created),)]).close()
    return RunDir(path)


def end(run: RunDir, *entries: e.EntryData) -> None:
    """End a run without its files for people, as a hub does that is killed just then."""
    with open_journal(run.path) as journal:
        journal.stage(*map(e.draft, entries))
        journal.commit()


def outcome_of(run: RunDir, since_us: int = 0) -> str:
    return find_outcome(Job(run=run.id, path=str(run.path), workspace="w"), since_us)


@pytest.mark.requirement("queue-learns-of-ends")
def test_a_run_that_was_cancelled_has_that_outcome_whenever_it_was(run: RunDir) -> None:
    assert outcome_of(run) == ""

    end(run, e.RunEnded(status="cancelled"))

    assert outcome_of(run) == "cancelled"
    assert outcome_of(run, SystemClock().now_us() + 1_000_000) == "cancelled"


@pytest.mark.requirement("queue-learns-of-ends")
def test_a_failure_counts_only_if_the_node_has_not_known_it(run: RunDir) -> None:
    """A failed run that is queued again and cannot be started is held, and stays held."""
    error = ErrorData(type="builtins:ValueError", message="no")
    end(run, e.FailureRecorded(worker="", error=error), e.RunEnded(status="failed"))

    assert outcome_of(run) == "failed"
    assert outcome_of(run, SystemClock().now_us() + 1_000_000) == ""


@pytest.mark.requirement("queue-learns-of-ends")
def test_a_run_whose_directory_is_gone_was_deleted_unless_its_disk_is_gone(run: RunDir) -> None:
    shutil.rmtree(run.path)
    assert outcome_of(run) == "deleted"

    shutil.rmtree(run.path.parent)
    assert outcome_of(run) == ""


def test_a_run_that_cannot_be_read_has_not_ended(run: RunDir) -> None:
    (run.path / "journal.ndjson").write_text("{", encoding="utf-8")

    assert outcome_of(run) == ""


@pytest.mark.requirement("nodes-live-for-months")
@pytest.mark.parametrize("size", [0, MOST_LOG, MOST_LOG + 1])
def test_a_log_that_is_too_large_is_begun_anew_by_the_node_that_writes_it(tmp_path: Path, size: int) -> None:
    depot = FileDepot(tmp_path)
    trim_log(depot)
    assert not node_log(depot).exists()
    with node_log(depot).open("ab", buffering=0) as log:
        log.write(b"x" * size)

        trim_log(depot)
        log.write(b"next line\n")

    assert node_log(depot).read_bytes() == b"x" * (0 if size > MOST_LOG else size) + b"next line\n"
