"""Whole runs in a database: the steps of one, many on one node, and how soon a node and a person learn of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from statistics import median
from threading import Event
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from bartack.config.load import load_config
from bartack.core.boot import boot_id
from bartack.depot.elsewhere import Elsewhere, Home, without_database
from bartack.runtime.hub.create import RunRequest, create_run
from bartack.runtime.rundir.layout import RunDir
from bench._depot import RUNS, database, value_of
from bench._runner import Sample

if TYPE_CHECKING:
    from psycopg import Connection

    from bartack.depot.team import Team

PROGRAM: Final = Path(__file__).parent / "programs" / "kept.py"
IN_A_FOLDER: Final = 50
PATIENCE_S: Final = 240.0
STATUSES: Final = 5
FINISHED: Final = "step.finished"


class Host:
    """A machine that runs have their workspace on, and a database.

    Attributes:
        room: For what the workers of the benchmark leave.
        workspace: Where the program is.

    Args:
        directory: Where its files go.
        url: The database.
        connection: To the database.
    """

    def __init__(self, directory: str, url: str, connection: Connection[Any]) -> None:
        from bartack.depot.team import Team  # noqa: PLC0415 - only the process of a contestant has to have it

        self.workspace = Path(directory) / f"work-{uuid4()}"
        self.room = self.workspace / "room"
        self.room.mkdir(parents=True)
        shutil.copyfile(PROGRAM, self.workspace / PROGRAM.name)
        self._url = url
        self._connection = connection
        self._team: Team = Team(Elsewhere(url))
        # What a person trusts is in the state home, which the node and its hubs have to share with this process.
        os.environ.update(XDG_STATE_HOME=str(self.workspace), XDG_CONFIG_HOME=str(self.workspace))
        self._log = self.workspace / "log"

    def fill(self, count: int) -> dict[str, bytes]:
        """Make a repository of the workspace, with this many files; returns them."""
        files = {
            f"package{number // IN_A_FOLDER}/module{number % IN_A_FOLDER}.py": b"VALUE = %d\n" % number * 20
            for number in range(count)
        }
        for name, content in files.items():
            (self.workspace / name).parent.mkdir(exist_ok=True)
            (self.workspace / name).write_bytes(content)
        (self.workspace / ".gitignore").write_text("/room/\n/seat*/\n/log\n/bartack/\n", encoding="utf-8")
        for words in (["init", "--quiet"], ["add", "-A"], ["commit", "--quiet", "--message", "Begin"]):
            subprocess.run(
                ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", *words],
                cwd=self.workspace,
                check=True,
            )
        return files

    def run_here(self, worker: str, **given: object) -> subprocess.Popen[str]:
        """A run that this machine runs; what it returns is on its output."""
        return self._start(
            "run",
            "--on",
            self._url,
            "--here",
            "--view",
            "quiet",
            f"{PROGRAM.name}:{worker}",
            "--input",
            json.dumps(given),
        )

    def _start(self, *words: str) -> subprocess.Popen[str]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "bartack", *words],
                cwd=self.workspace,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    @contextmanager
    def node(self, most: int, seat: str = "seat") -> Generator[SpawnProcess]:
        """A node that has joined, with the directory in which it keeps its runs: another one is another machine."""
        before = self.count("bartack.node")
        given = self.workspace / seat, self._log, self._url, most
        node = multiprocessing.get_context("spawn").Process(target=_serve, args=given)
        node.start()
        try:
            self.wait_for(lambda: self.count("bartack.node") > before, lambda: node.exitcode)
            yield node
        finally:
            node.terminate()
            node.join(30)
            node.kill()
            node.join()

    def make(self, worker: str, given: Mapping[str, object], *, is_carried: bool = False) -> RunDir:
        """A run that is in the database, and that no node may take yet.

        Args:
            worker: What it is to run.
            given: The arguments.
            is_carried: Whether its workspace travels with it.
        """
        values = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in given.items()}
        request = RunRequest(program=PROGRAM.name, worker=worker, input=values)
        return create_run(
            request,
            self.workspace,
            load_config(self.workspace),
            home=Home(Elsewhere(self._url)),
            is_carried=is_carried,
        )

    def enqueue(self, run: RunDir) -> None:
        """Let the nodes have it."""
        self._team.enqueue(run.id, "default")

    def follow(self, run_id: str) -> RunDir:
        """The directory of a run on another machine, which follows it."""
        return RunDir(self._team.place(run_id, self.workspace / "other"))

    def only_run(self) -> str:
        """The id of the newest run."""
        return self._team.find("latest")

    def owner(self) -> str:
        """The name of the node that owns the only run."""
        statement = (
            "SELECT n.name FROM bartack.owner o JOIN bartack.node n ON n.id = o.node WHERE o.state = 'owned'"
        )
        row = self._connection.execute(statement.encode()).fetchone()
        assert row is not None, "no node owns it"
        return str(row[0])

    def count(self, table: str, condition: str = "true") -> int:
        """How many rows a table has."""
        return value_of(self._connection, f"SELECT count(*) FROM {table} WHERE {condition}")

    def wait_for(
        self, done: Callable[[], object], code: Callable[[], int | None], every_s: float = 0.02
    ) -> float:
        """Look again and again until it is so, or a process ends with a code; returns the time of the clock."""
        until = time.monotonic() + PATIENCE_S
        while not done():
            if code() or time.monotonic() > until or self.count("bartack.owner", "state = 'held'"):
                raise RuntimeError(self._log.read_text(encoding="utf-8")[-500:].strip() or "it took too long")
            Event().wait(every_s)
        return time.time()


def name_of(seat: str) -> str:
    """The name of the node of a seat."""
    return f"bench-{seat}"


def _serve(seat: Path, log: Path, url: str, most: int) -> None:
    """Be a node. ``bartack node run`` takes no more than two runs for each processor, so it is not used here."""
    from bartack.depot.taken import LEASE_S  # noqa: PLC0415 - only the process of a contestant has to have it
    from bartack.depot.team import Team  # noqa: PLC0415 - likewise
    from bartack.node.fleet import FleetLoop, FleetSettings  # noqa: PLC0415 - likewise

    with log.open("a", encoding="utf-8") as said:
        settings = FleetSettings(
            team=Team(Elsewhere(url)),
            name=name_of(seat.name),
            seat=seat,
            slots=most,
            pools=("default",),
            labels=(),
            lease_s=LEASE_S,
            boot=boot_id(),
            say=lambda text: print(text, file=said, flush=True),
            environ=without_database(os.environ),
            rest_after_s=PATIENCE_S,
        )
        FleetLoop(settings).run()


@contextmanager
def a_host(directory: str) -> Generator[Host]:
    with database(directory) as (url, connection):
        host = Host(directory, url, connection)
        try:
            yield host
        finally:
            shutil.rmtree(host.workspace, ignore_errors=True)


def steps(directory: str, size: int) -> Sample:
    """Steps per second of a worker whose run is kept in the database."""
    with a_host(directory) as host:
        run = host.run_here("alone", count=size)
        text, _ = run.communicate(timeout=PATIENCE_S)
        host.wait_for(lambda: run.returncode == 0, run.poll)
        return Sample(value=float(text))


def steps_on_node(directory: str, size: int) -> Sample:
    """The same on a node, which the hub reaches the database through."""
    with a_host(directory) as host:
        mark = host.room / "rate"
        return _left(host, mark, host.make("alone_on_node", {"count": size, "mark": str(mark)}))


def copied_steps(directory: str, size: int, *, files: int, edited: int) -> Sample:
    """Milliseconds of a step on a node, which may change files and is finished together with a copy of the workspace."""
    with a_host(directory) as host:
        names = [*host.fill(files)][:edited]
        mark = host.room / "took"
        given = {"count": size, "edits": names, "mark": str(mark)}
        return _left(host, mark, host.make("copied", given, is_carried=True))


def _left(host: Host, mark: Path, run: RunDir) -> Sample:
    """The value that a run leaves which is executed on a node of its own."""
    with host.node(1) as node:
        host.enqueue(run)
        host.wait_for(mark.exists, lambda: node.exitcode)
        host.wait_for(lambda: not host.count("bartack.owner", "state = 'owned'"), lambda: node.exitcode)
        return Sample(value=float(mark.read_text(encoding="utf-8")))


def git_status(directory: str, size: int) -> Sample:
    """Milliseconds that ``git status`` takes in a repository, the median of some."""
    times: list[float] = []
    for _ in range(STATUSES):
        began = time.perf_counter()
        subprocess.run(["git", "status", "--porcelain"], cwd=directory, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return Sample(value=median(times) * 1e3, facts={"files": f"{size:,}"})


def runs_on_node(directory: str, size: int) -> Sample:
    """Steps per second of many runs on one node, from the moment at which all of them run."""
    each = max(size // RUNS, 1)
    with a_host(directory) as host:
        os.mkfifo(host.room / "go")
        made = [
            host.make("together", {"count": each, "mark": str(host.room / str(number))})
            for number in range(RUNS)
        ]
        gate = os.open(host.room / "go", os.O_RDWR)
        with host.node(RUNS) as node:
            for run in made:
                host.enqueue(run)
            host.wait_for(lambda: len([*host.room.glob("*.ready")]) == RUNS, lambda: node.exitcode)
            os.close(gate)
            host.wait_for(lambda: len([*host.room.glob("*.span")]) == RUNS, lambda: node.exitcode)
            host.wait_for(lambda: not host.count("bartack.owner", "state = 'owned'"), lambda: node.exitcode)
        spans = [
            [float(word) for word in file.read_text(encoding="utf-8").split()]
            for file in host.room.glob("*.span")
        ]
    return Sample(value=each * RUNS / (max(end for _, end in spans) - min(began for began, _ in spans)))


def claimed(directory: str, size: int) -> Sample:
    """Milliseconds from the first entry of a run that is submitted until an idle node has claimed it."""
    times: list[float] = []
    with a_host(directory) as host, host.node(4) as node:
        for run, _, ended in _submitted(host, node, size):
            with run.open_reader() as reader:
                times.append(ended - next(iter(reader.read())).at / 1e6)
    return Sample(value=median(times) * 1e3)


def first_step(directory: str, size: int) -> Sample:
    """Milliseconds from the moment at which a run is to be submitted until an idle node executes its first step."""
    with a_host(directory) as host, host.node(4) as node:
        times = [_first_step(run) - began for run, began, _ in _submitted(host, node, size)]
    return Sample(value=median(times) * 1e3)


def _submitted(host: Host, node: SpawnProcess, size: int) -> Generator[tuple[RunDir, float, float]]:
    """Runs that have ended on a node: each with the time when it was to be submitted, and when it was seen to be claimed."""
    for number in range(size):
        Event().wait(0.1 * (number % 7))  # the beats of a node come at even intervals
        began = time.time()
        run = host.make("first", {})
        host.enqueue(run)
        ended = host.wait_for(
            lambda: host.count("bartack.owner", "state = 'owned'"), lambda: node.exitcode, 0.001
        )
        host.wait_for(lambda: not host.count("bartack.owner", "state = 'owned'"), lambda: node.exitcode)
        yield run, began, ended


def _first_step(run: RunDir) -> float:
    with run.open_reader() as reader:
        return next(
            float(reader.load_value(entry) or b"") for entry in reader.read() if entry.kind == FINISHED
        )


def follower(directory: str, size: int) -> Sample:
    """Milliseconds from the moment at which an entry is made until another machine that follows the run sees it."""
    with a_host(directory) as host:
        run = host.run_here("paced", count=size)
        host.wait_for(lambda: host.count("bartack.owner", "alive"), run.poll)
        with host.follow(host.only_run()).open_reader() as reader:
            began_us = time.time_ns() // 1000
            times = [
                time.time() - entry.at / 1e6
                for entry in reader.follow(timeout_s=3.0)
                if entry.kind == FINISHED and entry.at > began_us
            ]
        run.communicate(timeout=PATIENCE_S)
    return Sample(value=median(times) * 1e3)
