"""Nodes of a database with credentials, and programs that look for them: with ``--run-as``, and as the same user."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.postgres import cluster, new_database
from tests.security.sites import TIMEOUT_S, Site, python_path
from tests.security.users import User
from tests.waiting import until

from bartack.depot.postgres._database import Database

PROGRAMS = Path(__file__).with_name("programs")
SECRET = "the-password-of-the-node"  # noqa: S105 - it is not one
BACKWARDS = SECRET[::-1]
REFUSED = "BT341"
LOOKERS = ("setup", "worker", "command", "agent")


class Team:
    """A database that is opened with a password, nodes of it, and programs of a user.

    Attributes:
        site: The users and their directories.
        place: A directory that only root can change, for the seats of nodes.
        home: That of the account that has the credentials.
    """

    def __init__(self, site: Site, stack: ExitStack) -> None:
        self.site = site
        self.url = new_database()
        self.database = stack.enter_context(Database(self.url))
        self.place = site.place / "nodes"
        self.place.mkdir(mode=0o755)
        self.home = site.home
        self._stack = stack
        os.chown(site.project, 0, 0)
        # The directory of the socket is closed to all users but root: to connect is a right, too.
        self.give("spy.py", PROGRAMS.joinpath("spy.py").read_text("utf-8"))
        ((name,),) = self.database.shared.rows("SELECT current_database()")
        self._service = f"[team]\nhost={cluster().place}\ndbname={name}\nuser=bartack\npassword={SECRET}\n"
        self.put_credentials(self.home)

    def give(self, name: str, text: str) -> None:
        """A file of the workspace from which runs are submitted."""
        (self.site.project / name).write_text(text, "utf-8")

    def put_credentials(self, home: Path, uid: int = 0) -> None:
        """Have the files that open the database in a home directory."""
        for name, text in ((".pg_service.conf", self._service), (".pgpass", f"*:*:*:*:{SECRET}\n")):
            file = home / name
            file.write_text(text, "utf-8")
            file.chmod(0o600)
            os.chown(file, uid, uid)

    def set_run_as(self, user: str) -> None:
        """Name the user of runs in the settings of root."""
        own = self.home / ".local/state/bartack/bartack.toml"
        own.parent.mkdir(parents=True)
        own.write_text(f"[node]\nrun_as = '{user}'\n", "utf-8")

    def start(self, name: str, *words: str, user: User | None = None) -> subprocess.Popen[bytes]:
        """Start a node, as root or as a user with the home of that user."""
        log = self.site.place / f"{name}.log"
        environ = {**self.site.environment(), "PGPASSWORD": SECRET, "BARTACK_ON": "service:team"}
        with log.open("ab") as output:
            node = subprocess.Popen(
                self.site.command("node", "run", "--name", name, "--lease", "3", *words),
                cwd="/",
                env=environ if user is None else {**environ, "HOME": str(user.home)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=None if user is None else user.uid,
                group=None if user is None else user.uid,
                extra_groups=None if user is None else [],
            )
        self._stack.callback(node.wait, TIMEOUT_S)
        self._stack.callback(node.kill)
        return node

    def node(self, name: str, *words: str, user: User | None = None) -> subprocess.Popen[bytes]:
        """Start a node, and wait until it has joined."""
        known = self.database.shared.rows("SELECT count(*) FROM bartack.node")
        node = self.start(name, *words, user=user)

        def has_joined() -> bool:
            assert node.poll() is None, self.logs()
            return self.database.shared.rows("SELECT count(*) FROM bartack.node") != known

        until(has_joined, f"{name} to join")
        return node

    def submit(self, program: str, *words: str) -> subprocess.Popen[str]:
        """Submit a run as root, and follow it."""
        run = subprocess.Popen(
            self.site.command("run", "--on", "service:team", program, "--json", "--", *words),
            cwd=self.site.project,
            env=self.site.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(run.communicate)
        self._stack.callback(run.kill)
        return run

    def spy(self, *places: object) -> dict[str, Any]:
        """What a run finds when it looks for the secret: its preparation, a worker, a command and an agent."""
        everywhere = [str(place) for place in (self.home, *places)]
        words = shlex.join([self.site.python, "spy.py", BACKWARDS, *everywhere])
        agent = (
            f"{words} > agent.json; exec {self.site.python} -m bartack agents scripted --script reply.toml"
        )
        self.give("reply.toml", '[[prompts]]\ntext = "done"\n')
        self.give(
            "bartack.toml",
            f'[agents.spy]\nkind = "ndjson"\ncommand = {json.dumps(["sh", "-c", agent])}\n'
            f"env = {{ PYTHONPATH = {json.dumps(python_path()['PYTHONPATH'])} }}\n"
            f"[workspace]\nsetup = {json.dumps(['sh', '-c', f'{words} > setup.json'])}\n",
        )
        run = self.submit("spy.py", BACKWARDS, *everywhere)
        out, problem = run.communicate(timeout=TIMEOUT_S)
        assert run.returncode == 0, problem + self.logs()
        value: dict[str, Any] = json.loads(out.splitlines()[-1])["value"]
        return value

    def columns_with(self, text: str) -> list[str]:
        """The columns of the database that have a text in them."""
        session = self.database.shared
        named = session.rows(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'bartack'"
        )
        found: list[str] = []
        for table, column, kind in named:
            held = (
                f'position(%s::bytea in "{column}")'
                if kind == "bytea"
                else f'position(%s in "{column}"::text)'
            )
            value: object = text.encode() if kind == "bytea" else text
            if session.rows(f'SELECT 1 FROM bartack."{table}" WHERE {held} > 0 LIMIT 1', value):  # noqa: S608 - names of our tables
                found.append(f"{table}.{column}")
        return found

    def logs(self) -> str:
        """What the nodes have written, and their hubs."""
        logs = [*self.site.place.glob("*.log"), *self.site.place.glob("**/hub.log")]
        return "".join(log.read_text("utf-8", "replace") for log in logs)


@pytest.fixture
def team(users: tuple[User, User]) -> Iterator[Team]:
    with tempfile.TemporaryDirectory(prefix="bt-") as place, ExitStack() as stack:
        Path(place).chmod(0o755)
        yield Team(Site(Path(place), users[0]), stack)


def everything_below(place: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in (place, *place.rglob("*")):
        yield path, path.lstat()


@pytest.mark.requirement("node-run-as", "fleet-credentials")
def test_runs_of_a_node_have_another_user_and_find_none_of_its_credentials(team: Team) -> None:
    site, seat = team.site, team.place / "one"
    node = team.node("one", "--state-dir", str(seat), "--run-as", site.user.name)

    found = team.spy(site.place, cluster().place)

    for looker in LOOKERS:
        report = found[looker]
        assert report["users"] == [site.user.uid] * 3, looker
        assert report["groups"] == [pwd.getpwuid(site.user.uid).pw_gid], looker
        assert report["found"] == [], looker
        refused, read = set(report["refused"]), set(report["read"])
        assert {f"environ {node.pid}", f"mem {node.pid}", f"fd {node.pid}", f"kill {node.pid}"} <= refused
        assert f"cmdline {node.pid}" in read, "it has looked"
        assert any(name.startswith(f"file {seat}/runs/") for name in read), "there too"
        assert not any(str(cluster().place) in name for name in read), "no connection was inherited"
    for path, facts in everything_below(seat):
        assert facts.st_uid == site.user.uid, path
    # What git makes in a directory that is closed may be open.
    closed = [seat, seat / "lock", seat / "runs", *(seat / "runs").iterdir(), *(seat / "work").iterdir()]
    closed += [path for run in (seat / "runs").iterdir() for path in run.iterdir()]
    assert [path for path in closed if path.lstat().st_mode & 0o077] == []
    assert SECRET not in team.logs()
    assert SECRET not in site.bartack("nodes", "list", "--on", "service:team", "--json").stdout
    assert team.columns_with(SECRET) == []
    assert team.columns_with(BACKWARDS) != [], "it has looked"


@pytest.mark.requirement("fleet-credentials")
def test_a_program_with_the_user_of_its_node_finds_only_the_files_of_that_user(team: Team) -> None:
    site = team.site
    files = {str(site.user.home / ".pg_service.conf"), str(site.user.home / ".pgpass")}
    team.put_credentials(site.user.home, site.user.uid)
    cluster().place.chmod(0o711)
    try:
        seat = site.user.home / "seat"
        node = team.node("one", "--state-dir", str(seat), user=site.user)
        found = team.spy(*files, site.place)
    finally:
        cluster().place.chmod(0o700)
        for file in files:
            Path(file).unlink()

    for looker in LOOKERS:
        assert set(found[looker]["found"]) == files, looker
        assert {f"environ {node.pid}", f"mem {node.pid}", f"fd {node.pid}"} <= set(found[looker]["refused"])


WAITING = """
from bartack import Context, worker

@worker
async def main(ctx: Context) -> None:
    await ctx.shell("sh", "-c", "touch $0/ready; exec sleep 600", {place!r})
"""


@pytest.mark.requirement("node-run-as")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_of_its_runs_outlives_a_node_with_another_user(team: Team, how: signal.Signals) -> None:
    site = team.site
    ready = site.user.owns(_made(site.place / "signs")) / "ready"
    team.give("waiting.py", WAITING.format(place=str(ready.parent)))
    team.set_run_as(site.user.name)
    node = team.node("one", "--state-dir", str(team.place / "one"), "--drain", "0")
    team.submit("waiting.py")
    until(ready.exists, "the command of the run")
    assert site.processes() != []

    node.send_signal(how)

    node.wait(TIMEOUT_S)
    until(lambda: site.processes() == [], "the processes of the run to end")


def _made(place: Path) -> Path:
    place.mkdir()
    return place


@pytest.mark.requirement("node-run-as")
@pytest.mark.parametrize("name", ["runs", "work"])
def test_a_link_that_the_user_has_planted_leads_a_node_of_root_nowhere(team: Team, name: str) -> None:
    """A link in its seat, in the place of the directories of its runs or of their workspaces, to a directory of root."""
    site, seat, target = team.site, team.place / "one", _made(team.place / "of-root")
    site.user.owns(_made(seat))
    (seat / name).symlink_to(target)
    site.user.owns(seat / name)
    team.give("nothing.py", "from bartack import worker\n\n@worker\nasync def main(ctx):\n    return None\n")
    team.submit("nothing.py")
    until(lambda: team.database.shared.rows("SELECT 1 FROM bartack.run") != [], "the run")
    mode = target.stat().st_mode

    node = team.start("one", "--state-dir", str(seat), "--run-as", site.user.name)
    until(lambda: os.strerror(errno.EACCES) in team.logs() or node.poll() is not None, "a refusal")

    assert "Traceback" not in team.logs()
    assert (list(target.iterdir()), target.stat().st_mode, target.stat().st_uid) == ([], mode, 0)


def _by_user(team: Team) -> str:
    return team.site.as_user(
        *team.site.command("node", "run", "--on", team.url, "--run-as", team.site.user.name)
    ).stderr


def _node(team: Team, *words: str) -> str:
    return team.site.bartack("node", "run", "--on", team.url, *words).stderr


def _of_another(team: Team) -> str:
    seat = team.place / "mine"
    seat.mkdir()
    return _node(team, "--run-as", team.site.user.name, "--state-dir", str(seat))


def _out_of_reach(team: Team) -> str:
    return _node(team, "--run-as", team.site.user.name, "--state-dir", str(team.home / "seat"))


def _by_setting(team: Team) -> str:
    team.set_run_as("no-such-user")
    return _node(team)


REFUSALS: dict[str, tuple[Callable[[Team], str], str]] = {
    "not root": (_by_user, "only root can"),
    "unknown": (lambda team: _node(team, "--run-as", "no-such-user"), "no such user"),
    "unknown, in a setting": (_by_setting, "no such user"),
    "root": (lambda team: _node(team, "--run-as", "root"), "root itself"),
    "the seat of another user": (_of_another, "belongs to another user"),
    "a seat out of reach": (_out_of_reach, "cannot enter"),
}


@pytest.mark.requirement("node-run-as-is-checked-first")
@pytest.mark.parametrize("case", REFUSALS)
def test_a_user_that_a_node_cannot_give_its_runs_is_refused_before_it_joins(team: Team, case: str) -> None:
    attempt, reason = REFUSALS[case]

    said = attempt(team)

    assert REFUSED in said
    assert reason in said
    assert team.database.shared.rows("SELECT 1 FROM bartack.node") == []


def test_the_home_of_an_account_without_one_asks_for_a_directory(team: Team) -> None:
    """The account of many services has no home directory, so its seat has to be named."""
    nobody = pwd.getpwnam("nobody")
    if Path(nobody.pw_dir).is_dir():
        pytest.skip(f"nobody has the home directory {nobody.pw_dir} here")

    said = _node(team, "--run-as", "nobody")

    assert REFUSED in said
    assert "--state-dir" in said
    assert not Path(nobody.pw_dir).exists()
