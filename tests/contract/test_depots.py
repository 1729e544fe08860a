"""The depot contract, on each engine; and what only the depot of files has: files, and processes that share them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bartack.depot import (
    Depot,
    FileDepot,
    FileRuns,
    Job,
    KeptRun,
    MemoryDepot,
    NodeFacts,
    RunStore,
    Verdict,
)
from bartack.depot._directory import FileRun
from bartack.depot._memory_run import MemoryRun
from bartack.errors import NodeRunningError, ScheduleError
from bartack.testing import DepotContract
from bartack.testing._depot_contract import NIGHTLY

JOB = Job(run="run-1", path="runs/run-1", workspace="w")
CLAIMER = """
import sys
from bartack.depot import FileDepot
depot = FileDepot(sys.argv[1])
print(*[claim.job.run for _ in range(40) for claim in depot.claim(sys.argv[2], 1, 10)])
"""
SITTER = """
import sys
from bartack.depot import FileDepot, NodeFacts
with FileDepot(sys.argv[1]).sit(NodeFacts(id="other", pid=0, boot="", version="")):
    print("sits", flush=True)
    sys.stdin.read()
"""


class TestMemoryDepot(DepotContract):
    def make_depot(self, most: int) -> Depot:
        self._depot = MemoryDepot(most)
        return self._depot

    def make_runs(self) -> RunStore:
        return self._depot

    @contextmanager
    def serve(self, run: KeptRun) -> Generator[None]:
        assert isinstance(run, MemoryRun)
        run.has_hub = True
        yield
        run.has_hub = False

    def lose_last(self, run: KeptRun) -> None:
        assert isinstance(run, MemoryRun)
        run.store.entries.pop()


class TestFileDepot(DepotContract):
    def make_depot(self, most: int) -> Depot:
        self._place = TemporaryDirectory()
        return FileDepot(Path(self._place.name) / "depot", most)

    def make_runs(self) -> RunStore:
        runs = Path(self._place.name) / "runs"
        runs.mkdir(mode=0o700)
        return FileRuns(runs)

    @contextmanager
    def serve(self, run: KeptRun) -> Generator[None]:
        assert isinstance(run, FileRun)
        with run.socket.listen():
            yield
        run.socket.remove()

    def lose_last(self, run: KeptRun) -> None:
        assert isinstance(run, FileRun)
        file = run.path / "journal.ndjson"
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
        # It knows, too, how far the journal had got. A disk that loses one may lose both.
        (run.path / "lock").unlink()

    def teardown_method(self) -> None:
        self._place.cleanup()


@pytest.fixture
def depot(tmp_path: Path) -> FileDepot:
    return FileDepot(tmp_path / "depot")


def test_a_depot_that_nothing_was_written_to_is_empty_and_makes_no_files(depot: FileDepot) -> None:
    assert depot.standings() == []
    assert depot.schedules() == []
    assert depot.seated() is None
    assert not depot.directory.exists()


def test_files_are_for_their_owner_only(depot: FileDepot) -> None:
    depot.submit(JOB, 1)
    depot.put_schedule(NIGHTLY)

    places = [depot.directory, *depot.directory.rglob("*")]

    assert {stat.S_IMODE(place.stat().st_mode) for place in places if place.is_dir()} == {0o700}
    assert {stat.S_IMODE(place.stat().st_mode) for place in places if place.is_file()} == {0o600}


@pytest.mark.parametrize("text", ["", "{", '{"format":2,"value":{}}', '{"format":1,"value":{"job":7}}'])
def test_a_file_that_cannot_be_read_counts_for_nothing_and_stays(depot: FileDepot, text: str) -> None:
    depot.submit(JOB, 1)
    bad = depot.directory / "runs" / "run-0.json"
    bad.write_text(text, encoding="utf-8")

    assert [one.job.run for one in depot.standings()] == ["run-1"]
    assert [claim.job.run for claim in depot.claim("node-1", 5, 2)] == ["run-1"]
    assert bad.read_text(encoding="utf-8") == text


def test_a_run_that_follows_one_whose_file_cannot_be_read_is_held(depot: FileDepot) -> None:
    depot.submit(JOB, 1)
    depot.submit(Job(run="run-2", path="runs/run-2", workspace="w", after=("run-1",)), 2)
    (depot.directory / "runs" / "run-1.json").write_text("{", encoding="utf-8")

    assert depot.claim("node-1", 5, 3) == []
    (found,) = depot.standings()
    assert (found.state, found.reason) == (
        "held",
        "it was to follow run-1, which is not in the queue any more",
    )


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "café", "a\nb"])
def test_no_name_leads_out_of_the_directory(depot: FileDepot, name: str) -> None:
    depot.submit(JOB, 1)

    assert depot.find(name) is None
    with pytest.raises(ScheduleError):
        depot.put_schedule(
            NIGHTLY.__class__(name=name, cron="* * * * *", zone="UTC", workspace="w", words=())
        )


def test_processes_that_claim_at_once_own_each_run_once(depot: FileDepot) -> None:
    for number in range(30):
        depot.submit(Job(run=f"run-{number}", path="p", workspace="w"), number)
    argv = [sys.executable, "-c", CLAIMER, str(depot.directory)]

    claimers = [
        subprocess.Popen([*argv, f"node-{number}"], stdout=subprocess.PIPE, text=True) for number in range(3)
    ]
    found = [claimer.communicate(timeout=120)[0].split() for claimer in claimers]

    assert sorted(run for runs in found for run in runs) == sorted(f"run-{number}" for number in range(30))


def test_the_seat_of_a_killed_node_is_free(depot: FileDepot) -> None:
    depot.submit(JOB, 1)
    me = NodeFacts(id="me", pid=os.getpid(), boot="", version="")
    with subprocess.Popen(
        [sys.executable, "-c", SITTER, str(depot.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "sits\n"
        with pytest.raises(NodeRunningError):
            depot.sit(me)
        other.kill()

    with depot.sit(me):
        assert depot.seated() == me


def test_a_process_that_only_asks_who_has_the_seat_does_not_take_it_from_a_node(depot: FileDepot) -> None:
    """It looks at the lock, and must not be mistaken for a node meanwhile."""
    me = NodeFacts(id="me", pid=os.getpid(), boot="", version="")
    depot.submit(JOB, 1)
    asked = threading.Event()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            FileDepot(depot.directory).seated()
            asked.set()

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    assert asked.wait(60)
    try:
        for _ in range(200):
            depot.sit(me).close()
    finally:
        over.set()
        for thread in asking:
            thread.join(60)


def test_a_run_survives_in_its_state_between_processes(depot: FileDepot) -> None:
    depot.submit(JOB, 1)
    (claim,) = depot.claim("node-1", 1, 2)
    depot.release(claim, Verdict(state="held", reason="it died 5 times", strikes=5), 3)

    (found,) = FileDepot(depot.directory).standings()

    assert (found.state, found.reason, found.strikes, found.node) == ("held", "it died 5 times", 5, "")
