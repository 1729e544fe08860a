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
from typing import NamedTuple

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
        self.gate = folder / "gate"
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

    def submit_beating(self) -> subprocess.Popen[bytes]:
        """Submit a run whose step lasts until ``gate`` is there, and follow it."""
        program = PROGRAM.with_name("beating.py")
        (self._workspace / program.name).write_bytes(program.read_bytes())
        return self.start("run", "--on", self.url, program.name, str(self.effects), str(self.gate))

    def beats(self) -> dict[str, list[int]]:
        """When each keeper has had its step at work, in nanoseconds."""
        found: dict[str, list[int]] = {}
        path = self.effects.with_name("effects.beats")
        for line in path.read_text(encoding="ascii").splitlines() if path.exists() else []:
            keeper, _, at_ns = line.partition(" ")
            if at_ns:
                found.setdefault(keeper, []).append(int(at_ns))
        return found

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


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Fleet]:
    """Runs stand still for a second."""
    made = Fleet(tmp_path, {"BARTACK_DEPOT_HOLD_S": "1"})
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


@pytest.mark.requirement("fleet-lost-claim")
def test_a_node_whose_claim_was_lost_in_a_failover_is_gone_before_the_next_owner_begins(fleet: Fleet) -> None:
    node = fleet.node("one")
    follower = fleet.submit_beating()
    until(lambda: bool(fleet.beats()), "the long step to be at work")
    fleet.node("two")
    # As the standby has it that took over: the claim of the first node is not there, and the node is. The second one claims later.
    fleet.rows(
        "UPDATE bartack.owner SET state = 'queued', refused = ARRAY[node], node = NULL, fence = fence - 1, alive = false, "
        "due = clock_timestamp() + interval '2 s'"
    )
    fleet.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    until(lambda: len(fleet.beats()) == 2, "the step to be at work again")
    fleet.gate.touch()
    assert follower.wait(LIMIT_S) == 0, fleet.output()
    earlier, later = fleet.beats().values()
    assert max(earlier) < min(later), "two owners were at work"
    assert fleet.done() == ["first"]
    assert node.poll() is None
    assert fleet.rows("SELECT DISTINCT state FROM bartack.node") == [("live",)], "no node was declared dead"
    ((number,),) = fleet.database.shared.rows("SELECT no FROM bartack.run")
    check_history(rows_of(fleet.database.shared, number))


@pytest.mark.requirement("fleet-damaged")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE bartack.journal SET lines = overlay(lines PLACING '\\x7e' FROM 40) WHERE seq = 1",
        "INSERT INTO bartack.journal SELECT run, last + 1, last + 1, fence, 7, 'another\n' "
        "FROM bartack.journal ORDER BY seq DESC LIMIT 1",
    ],
    ids=["before a node takes it", "while a node runs it"],
)
def test_a_run_whose_journal_is_damaged_in_the_database_is_held_at_once(fleet: Fleet, damage: str) -> None:
    is_early = damage.startswith("UPDATE")
    if not is_early:
        fleet.node("one")
    follower = fleet.submit_beating()
    is_there = (
        fleet.beats
        if not is_early
        else lambda: fleet.rows("SELECT 1 FROM bartack.owner WHERE state = 'queued'")
    )
    until(lambda: bool(is_there()), "the run")
    fleet.rows(damage)
    before = fleet.rows("SELECT * FROM bartack.journal ORDER BY seq")
    if is_early:
        fleet.node("one")
    fleet.gate.touch()

    until(lambda: fleet.rows("SELECT 1 FROM bartack.owner WHERE state = 'held'"), "the run to be held")

    ((fence, strikes, refused, reason),) = fleet.rows(
        "SELECT fence, strikes, refused, reason FROM bartack.owner"
    )
    assert (fence, strikes, refused) == (3, 0, []), "it was owned once, and neither retried nor refused"
    assert "bartack db check run-" in str(reason)
    assert fleet.rows("SELECT * FROM bartack.journal ORDER BY seq") == before
    assert follower.wait(LIMIT_S) != 0


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


class Refusal(NamedTuple):
    """How a database comes to refuse what nodes write.

    Attributes:
        begins: Statements after which it does.
        ends: Statements after which it does not any more.
        holds: Whether beats are refused, too, so that runs stand still.
    """

    begins: tuple[str, ...]
    ends: tuple[str, ...]
    holds: bool = True


CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
ALTER = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I {} default_transaction_read_only {}', current_database()); END $$"
REFUSALS = {
    "the database is read-only": Refusal((ALTER.format("SET", "= on"), CUT), (ALTER.format("RESET", ""),)),
    "the server is read-only": Refusal(
        ("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"),
        ("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"),
    ),
    "its disk is full": Refusal(
        (
            "CREATE SEQUENCE public.tried",
            "CREATE FUNCTION public.is_full() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN "
            "PERFORM nextval('public.tried'); "
            "RAISE EXCEPTION 'could not extend a file' USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER is_full BEFORE INSERT ON bartack.journal FOR EACH ROW EXECUTE FUNCTION public.is_full()",
        ),
        ("DROP TRIGGER is_full ON bartack.journal",),
        holds=False,
    ),
}


@pytest.mark.requirement("fleet-refused-writes")
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=list(REFUSALS))
def test_a_database_that_takes_no_writes_is_waited_for_like_one_that_is_away(
    fleet: Fleet, refusal: Refusal
) -> None:
    fleet.node("one")
    fleet.node("two")
    follower = fleet.submit()
    fleet.owning()
    fleet.rows("SET default_transaction_read_only = off")  # for the connection of this test
    try:
        for statement in refusal.begins:
            fleet.rows(statement)
        if refusal.holds:
            until(lambda: "stands still" in fleet.hub_log(), "the run to stand still")
        else:
            until(
                lambda: fleet.rows("SELECT 1 FROM public.tried WHERE last_value > 2"),
                "commits that are refused",
            )
        before = len(fleet.done())
    finally:
        for statement in refusal.ends:
            fleet.rows(statement)

    assert before < STEPS
    fleet.check(follower, repeated=0)
    assert fleet.rows("SELECT DISTINCT state FROM bartack.node") == [("live",)]
    assert fleet.rows("SELECT strikes, reason FROM bartack.owner") == [(0, "")]


@pytest.mark.requirement("fleet-hold-time")
def test_nothing_of_a_run_is_left_when_its_database_is_away_for_too_long(
    impatient: Fleet,
) -> None:
    fleet = impatient
    node = fleet.node("one")
    follower = fleet.submit()
    fleet.owning()
    refusal = REFUSALS["the database is read-only"]
    fleet.rows("SET default_transaction_read_only = off")  # for the connection of this test
    try:
        for statement in refusal.begins:
            fleet.rows(statement)
        until(lambda: "stands still" in fleet.hub_log(), "the run to stand still")
        until(lambda: not fleet.hub_pids(), "the end of all processes of the run")
    finally:
        for statement in refusal.ends:
            fleet.rows(statement)

    fleet.check(follower, repeated=1)
    assert node.poll() is None
    assert fleet.rows("SELECT strikes FROM bartack.owner") == [(0,)]


@pytest.mark.requirement("fleet-cloned-seat")
def test_a_node_in_a_copy_of_the_directory_of_a_live_one_declares_none_dead(fleet: Fleet) -> None:
    node = fleet.node("one")
    follower = fleet.submit_beating()
    until(lambda: bool(fleet.beats()), "the long step to be at work")
    before = fleet.rows("SELECT state, node, fence FROM bartack.owner")
    subprocess.run(["cp", "-a", str(fleet.seat("one")), str(fleet.seat("two"))], check=True)

    fleet.node("two")

    assert fleet.rows("SELECT count(*), count(DISTINCT seat) FROM bartack.node") == [(2, 1)]
    assert fleet.rows("SELECT DISTINCT state FROM bartack.node") == [("live",)]
    assert fleet.rows("SELECT state, node, fence FROM bartack.owner") == before
    fleet.gate.touch()
    assert follower.wait(LIMIT_S) == 0, fleet.output()
    assert len(fleet.beats()) == 1, "the step was executed once"
    assert node.poll() is None


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
