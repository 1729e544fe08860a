"""Nodes of a database that are killed, stopped, drained and cut off: real commands, each node with a seat of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from tests.history import check_history, rows_of
from tests.postgres import cluster, new_database
from tests.waiting import until

from bartack.depot.postgres._database import Database

PROGRAM = Path(__file__).with_name("programs") / "kept.py"
HUBS = {b"bartack.runtime.hub.serve", b"bartack.pipeline._serve"}
"""The programs of hubs."""
STEPS = 12
LEASE = "3"
LIMIT_S = 60
SECRET = "secret-of-the-node"  # noqa: S105 - it is not one
AGENT = """\
[agents.stub]
kind = "ndjson"
command = ["/bin/sh", "-c", "sleep 602; :"]
"""


class Fleet:
    """A database, nodes that take runs from it, and a workspace that all of them see.

    Args:
        folder: Where all of it is.
        environ: Variables of its nodes and commands.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.url = new_database()
        self.database = Database(self.url)
        self.effects = folder / "effects"
        self._folder = folder
        self._workspace = folder / "workspace"
        self._workspace.mkdir()
        (self._workspace / PROGRAM.name).write_bytes(PROGRAM.read_bytes())
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._env = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "PGAPPNAME": SECRET,
            "PGPASSWORD": SECRET,
            "PGPASSFILE": f"/{SECRET}/pass",
            "PGSERVICEFILE": f"/{SECRET}/services",
            "PGSSLKEY": f"/{SECRET}/key",
            "BARTACK_ON": f"service:{SECRET}",
            "BARTACK_DEPOT_ON": f"service:{SECRET}",
            "BARTACK_DEPOT_BLOBS": f"s3://{SECRET}/runs",
            "AWS_ACCESS_KEY_ID": SECRET,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://{SECRET}",
            "AWS_WEB_IDENTITY_TOKEN_FILE": f"/{SECRET}/token",
            **(environ or {}),
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "bartack", *words],
                cwd=self._workspace,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def node(self, name: str, *options: str, lease: str = LEASE) -> subprocess.Popen[bytes]:
        """Start a node, and wait until it has joined; with the lease that nodes have by default if none is given."""
        words = ("--name", name, "--state-dir", str(self._folder / name), *options)
        words += ("--lease", lease) if lease else ()
        known = self.rows("SELECT count(*) FROM bartack.node")
        self._nodes[name] = made = self.start("node", "run", "--on", self.url, *words)
        until(lambda: self.rows("SELECT count(*) FROM bartack.node") != known, f"{name} to join")
        return made

    def submit_large(self) -> subprocess.Popen[bytes]:
        """Submit a run whose first step returns a large value, and follow it."""
        program = PROGRAM.with_name("large.py")
        (self._workspace / program.name).write_bytes(program.read_bytes())
        return self.start("run", "--on", self.url, program.name, str(self.effects), str(STEPS))

    def submit(self, steps: int = STEPS) -> subprocess.Popen[bytes]:
        """Submit a run and follow it."""
        return self.start("run", "--on", self.url, PROGRAM.name, str(self.effects), str(steps))

    def submit_looking(self) -> subprocess.Popen[bytes]:
        """Submit a run that waits with a worker, a command and an agent, and follow it."""
        program = PROGRAM.with_name("looking.py")
        (self._workspace / program.name).write_bytes(program.read_bytes())
        (self._workspace / "bartack.toml").write_text(AGENT, encoding="utf-8")
        return self.start("run", "--on", self.url, program.name)

    def owner(self) -> str:
        rows = self.rows(
            "SELECT n.name FROM bartack.owner o JOIN bartack.node n ON n.id = o.node WHERE o.alive"
        )
        return str(rows[0][0]) if rows else ""

    def owning(self) -> subprocess.Popen[bytes]:
        """The node that runs the run, after its first effects."""
        until(lambda: len(self.done()) >= 3 and bool(self.owner()), "the first effects")
        return self._nodes[self.owner()]

    def done(self) -> list[str]:
        return self.effects.read_text(encoding="utf-8").split() if self.effects.exists() else []

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.shared.rows(statement)

    def output(self) -> str:
        return (self._folder / "output").read_text(encoding="utf-8", errors="replace")

    def seat(self, name: str) -> Path:
        return self._folder / name

    def hub_log(self) -> str:
        return "".join(path.read_text(encoding="utf-8") for path in self._folder.glob("*/runs/*/hub.log"))

    def hub_pids(self) -> list[int]:
        """The hubs below all nodes of this fleet."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if HUBS.intersection(words.split(b"\0")) and os.fsencode(self._folder) in words:
                found.append(int(entry.name))
        return found

    def check(self, follower: subprocess.Popen[bytes], repeated: int) -> None:
        """The run has completed; every effect happened, and at most this many happened again."""
        assert follower.wait(LIMIT_S) == 0, self.output()
        counts = Counter(self.done())
        assert sorted(counts, key=int) == [str(number) for number in range(STEPS)]
        assert sum(counts.values()) - STEPS <= repeated
        assert self.output().splitlines().count("100000") == 1, "the large value survived, and was shown once"
        ((number,),) = self.database.shared.rows("SELECT no FROM bartack.run")
        check_history(rows_of(self.database.shared, number))

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()
            node.wait(LIMIT_S)
        until(lambda: not self.hub_pids(), "the hubs to end with their nodes")
        self.database.close()


def below(pid: int) -> list[int]:
    """The processes below another one; some may end meanwhile."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text(encoding="ascii").split()):
                found += [child, *below(child)]
    return found


def command_of(pid: int) -> str:
    """The command line of a process, and the name that it has given itself."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
        return words.replace("\0", " ") + Path(f"/proc/{pid}/comm").read_text(encoding="utf-8")
    return ""


def descriptors_of(pid: int) -> list[str]:
    """What the descriptors of a process lead to; some may be closed meanwhile."""
    found: list[str] = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(fd))
    return found


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    yield made
    made.close()


@pytest.mark.requirement("fleet-takeover")
def test_the_run_of_a_killed_node_continues_on_another_one(fleet: Fleet) -> None:
    fleet.node("one")
    fleet.node("two")
    follower = fleet.submit()
    owning = fleet.owning()
    first = fleet.owner()
    owning.kill()
    owning.wait(LIMIT_S)

    fleet.check(follower, repeated=1)
    states = dict(fleet.database.shared.rows("SELECT name, state FROM bartack.node"))
    assert states.pop(first) == "dead"
    assert [*states.values()] == ["live"]


def test_a_node_that_is_started_again_continues_its_runs_at_once(fleet: Fleet) -> None:
    fleet.node("one")
    follower = fleet.submit()
    owning = fleet.owning()
    owning.kill()
    owning.wait(LIMIT_S)
    fleet.rows("UPDATE bartack.node SET until = until + interval '1 hour'")

    fleet.node("one")

    fleet.check(follower, repeated=1)


def test_a_drained_node_hands_its_run_over_and_ends(fleet: Fleet) -> None:
    fleet.node("one")
    follower = fleet.submit()
    owning = fleet.owning()
    fleet.node("two")
    assert fleet.start("nodes", "drain", "one", "--on", fleet.url).wait(LIMIT_S) == 0

    assert owning.wait(LIMIT_S) == 0, fleet.output()
    fleet.check(follower, repeated=1)
    assert fleet.rows("SELECT state FROM bartack.node WHERE name = 'one'") == [("left",)]


def test_a_node_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes(fleet: Fleet) -> None:
    fleet.node("one")
    fleet.node("two")
    follower = fleet.submit()
    owning = fleet.owning()
    first = fleet.owner()
    os.kill(owning.pid, signal.SIGSTOP)
    until(lambda: fleet.owner() not in {"", first}, "the other node to take over")
    os.kill(owning.pid, signal.SIGCONT)

    fleet.check(follower, repeated=1)
    until(
        lambda: len(fleet.rows("SELECT 1 FROM bartack.node WHERE state = 'live'")) == 2,
        "the woken node to join anew",
    )


def test_a_killed_hub_is_started_again_by_a_node(fleet: Fleet) -> None:
    fleet.node("one")
    follower = fleet.submit()
    fleet.owning()
    (hub,) = fleet.hub_pids()
    os.kill(hub, signal.SIGKILL)

    fleet.check(follower, repeated=1)


def test_no_node_is_buried_when_the_database_was_away_for_all(fleet: Fleet) -> None:
    fleet.node("one")
    fleet.node("two")
    follower = fleet.submit()
    fleet.owning()
    until(lambda: bool(fleet.rows("SELECT 1 FROM bartack.awake")), "a beat")
    before = fleet.rows("SELECT since FROM bartack.awake")
    cluster().stop()
    until(lambda: "stands still" in fleet.hub_log(), "the run to stand still")
    cluster().start()

    fleet.check(follower, repeated=0)
    assert fleet.rows("SELECT DISTINCT state FROM bartack.node") == [("live",)]
    since = fleet.rows("SELECT since FROM bartack.awake")
    assert since != before, "the crash was noted"
    assert since


@pytest.mark.requirement("fleet-credentials")
def test_a_hub_and_everything_below_it_know_nothing_of_the_database(fleet: Fleet) -> None:
    fleet.node("one")
    follower = fleet.submit_looking()
    commands = ("sleep 601", "sleep 602", "zygote", "keeper")
    found: dict[int, str] = {}

    def all_are_there() -> bool:
        found.update({pid: command_of(pid) for hub in fleet.hub_pids() for pid in (hub, *below(hub))})
        return all(any(one in command for command in found.values()) for one in commands)

    until(all_are_there, "a worker, a command and an agent")
    traces = [SECRET, "postgresql:", str(cluster().place), "BARTACK_ON", "BARTACK_DEPOT", "PGSQL"]
    try:
        for pid, command in found.items():
            shown = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace") + command
            shown += "\n".join(descriptors_of(pid))
            assert [trace for trace in traces if trace in shown] == [], command
            assert "\0PG" not in f"\0{shown}", command
            assert "\0AWS_" not in f"\0{shown}", command
        files = [path for path in fleet.seat("one").glob("runs/**/*") if path.is_file()]
        assert {"kept.json", "hub.log", "journal.ndjson"} <= {path.name for path in files}
        for path in files:
            kept = path.read_text(encoding="utf-8", errors="replace")
            assert [trace for trace in traces if trace in kept] == [], path
    finally:
        follower.kill()
        follower.wait(LIMIT_S)
