"""The environments that a node makes from the lock files of programs, once for each content, in a directory of its seat.

    KEY/                an environment; KEY is a digest of pyproject.toml, uv.lock and the version of Python
    KEY/bartack.json    which Bartack it has; its time is when the environment was last used
    .making-KEY-*/      one that is being made, or that was when a node was killed
    .lost-*/            one that is being removed

An environment has its name when it is whole. ``_environment_maker.py`` makes it. It stays until no run has used it for a week.
Only one process at a time has a seat, so what its threads do here is kept apart by locks of this process.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bartack._version import __version__
from bartack.config.project import with_absolute_path
from bartack.core import typed
from bartack.core.files import replace_file
from bartack.core.redact import Redactor
from bartack.core.trust import make_private
from bartack.depot.taken import READS
from bartack.errors import EnvironmentUnavailableError
from bartack.node._environment_maker import MAKE_S, Made, MakeOrder
from bartack.runtime.program.environment import LOCK, PROJECT
from bartack.runtime.rundir.layout import RunDir
from bartack.runtime.state.entries import RunCreated
from bartack.supervision.parent.guarded import run_guarded

MAKER: Final = "bartack.node._environment_maker"
MADE: Final = "bartack.json"
MAKING: Final = ".making-"
LOST: Final = ".lost-"
UNUSED_US: Final = 7 * 24 * 3600 * 1_000_000
"""How long an environment stays that no run uses."""
LOOK_S: Final = 0.2
"""How often a run that waits for the environment that another one makes looks whether its node stops."""
MOST_PROBLEM: Final = 600
"""Characters of a problem that are kept."""
_OF_ANOTHER: Final = frozenset({"PYTHONPATH", "PYTHONHOME"})
"""Variables that would bring packages from elsewhere into an environment."""
_CREDENTIAL: Final = re.compile(r"://[^/\s@]+@")


class NotNeededError(Exception):
    """The node stops, so the environment is not made."""


class Interpreter(NamedTuple):
    """With what the hub of a run is started.

    Attributes:
        python: The interpreter.
        environ: The environment of the process.
    """

    python: str
    environ: Mapping[str, str]


class Wanted(NamedTuple):
    """What an environment is made of.

    Attributes:
        project: The content of ``pyproject.toml``, and
        lock: of ``uv.lock``.
        python: The version of Python, of which the last part does not matter.
    """

    project: bytes
    lock: bytes
    python: str

    @property
    def key(self) -> str:
        """What the environment is called."""
        whole = hashlib.sha256()
        for part in (self.project, self.lock, self.python.encode()):
            whole.update(hashlib.sha256(part).digest())
        return whole.hexdigest()[:32]


Make = Callable[[MakeOrder, Mapping[str, str], Callable[[], bool]], Made | None]
"""Makes an environment; ``None`` if it took too long, or was not needed any more."""


def make_guarded(order: MakeOrder, environ: Mapping[str, str], is_needed: Callable[[], bool]) -> Made | None:
    """See ``Make``: in a process that ends with this one."""
    text = msgspec.json.encode(order)
    with tempfile.TemporaryFile() as errors:
        done = run_guarded(
            MAKER,
            text,
            cwd=order.project,
            env=with_absolute_path(environ),
            errors=errors.fileno(),
            timeout_s=MAKE_S,
            is_needed=is_needed,
        )
        if done is None:
            return None
        if done.code or not done.output:
            errors.seek(0)
            last = errors.read()[-MOST_PROBLEM:].decode(errors="replace").strip().rpartition("\n")[2]
            return Made(problem=f"the process that makes it has ended with status {done.code}: {last}")
    return typed.decode(done.output, type=Made)


class Environments:
    """See the module.

    Args:
        directory: Where they are.
        environ: The environment of the hubs of the node.
        say: Takes a line about what is made.
        make: Makes one.
    """

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str],
        say: Callable[[str], object],
        make: Make = make_guarded,
    ) -> None:
        self._directory = directory
        self._environ = environ
        self._say = say
        self._make_it = make
        self._mutex = threading.Lock()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._uses = Counter[str]()
        self._making = set[str]()

    @contextmanager
    def use(
        self,
        run: RunDir,
        created: RunCreated,
        is_needed: Callable[[], bool],
        begins: Callable[[], object] = bool,
    ) -> Generator[Interpreter]:
        """Provide what a run is executed with, and keep it until the end of the block.

        Args:
            run: The run, with its program in its directory.
            created: What it is.
            is_needed: Whether the node still wants to run it.
            begins: Called before anything is executed for the run.

        Raises:
            EnvironmentUnavailableError: There is no uv, it has failed, or Bartack in the environment does not fit this node.
            NotNeededError: The node does not want to run it any more.
        """
        if created.environment_rule != "uv":
            yield Interpreter(sys.executable, self._environ)
            return
        wanted = _read_wanted(run, created)
        place = self._directory / wanted.key
        with self._using(place):
            made = self._provide(run.id, wanted, place, is_needed, begins)
            if made.reads != READS:
                problem = (
                    f"Bartack {made.bartack} in it reads journals of level {made.reads}, and this node those of level {READS}; "
                    f"lock the version of the node ({__version__}), or replace the node"
                )
                raise EnvironmentUnavailableError(run.id, problem)
            yield Interpreter(str(place / "bin" / "python"), _activated(self._environ, place))

    def remove_unused(self, now_us: int) -> list[str]:
        """Remove those that no run has used for a week, and what killed nodes have left; returns the names of the former."""
        gone: list[str] = []
        for path in sorted(self._directory.iterdir()) if self._directory.is_dir() else ():
            with self._mutex:
                is_left = path.name.startswith((MAKING, LOST)) and path.name not in self._making
                is_old = not path.name.startswith(".") and not self._uses[path.name] and _is_old(path, now_us)
                aside = _put_aside(path) if is_old else path
            if is_left or is_old:
                shutil.rmtree(aside, ignore_errors=True)
            if is_old:
                gone.append(path.name)
        return gone

    @contextmanager
    def _using(self, place: Path) -> Generator[None]:
        with self._mutex:
            self._uses[place.name] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._uses[place.name] -= 1
                with suppress(OSError):  # it could not be made
                    os.utime(place / MADE)

    def _provide(
        self,
        run: str,
        wanted: Wanted,
        place: Path,
        is_needed: Callable[[], bool],
        begins: Callable[[], object],
    ) -> Made:
        """The environment, which is made unless it is there; one thread makes it, and the others wait."""
        with self._mutex:
            lock = self._locks[place.name]
        while not lock.acquire(timeout=LOOK_S):
            if not is_needed():
                raise NotNeededError
        try:
            return _read_made(place) or self._make(run, wanted, place, is_needed, begins)
        finally:
            lock.release()

    def _make(
        self,
        run: str,
        wanted: Wanted,
        place: Path,
        is_needed: Callable[[], bool],
        begins: Callable[[], object],
    ) -> Made:
        uv = _find_uv(self._environ)
        if uv is None:
            raise EnvironmentUnavailableError(run, "there is no uv on the PATH of this node; install it")
        self._say(f"{run}: uv makes the environment of its {LOCK}")
        begins()
        make_private(self._directory)
        with self._beside(place) as making:
            (making / PROJECT).write_bytes(wanted.project)
            (making / LOCK).write_bytes(wanted.lock)
            own = ".".join(map(str, sys.version_info[:2]))
            python = sys.executable if wanted.python == own else wanted.python
            order = MakeOrder(uv=uv, python=python, project=str(making), place=str(making / "environment"))
            made = self._make_it(order, self._environ, is_needed)
            if made is None and not is_needed():
                raise NotNeededError
            if made is None:
                raise EnvironmentUnavailableError(
                    run, f"uv has not ended in {MAKE_S:g} s, and was terminated"
                )
            if made.problem:
                raise EnvironmentUnavailableError(run, self._without_secrets(made.problem))
            replace_file(making / "environment" / MADE, msgspec.json.encode(made))
            if place.exists():  # its interpreter is gone
                shutil.rmtree(_put_aside(place), ignore_errors=True)
            (making / "environment").rename(place)
        return made

    @contextmanager
    def _beside(self, place: Path) -> Generator[Path]:
        """A directory for what is being made, which nothing else removes."""
        with self._mutex:
            making = Path(tempfile.mkdtemp(prefix=f"{MAKING}{place.name}-", dir=self._directory))
            self._making.add(making.name)
        try:
            yield making
        finally:
            shutil.rmtree(making, ignore_errors=True)
            with self._mutex:
                self._making.discard(making.name)

    def _without_secrets(self, problem: str) -> str:
        hidden = (
            Redactor({**os.environ, **self._environ}).hide_lines(problem.encode()).decode(errors="replace")
        )
        return _CREDENTIAL.sub("://***@", hidden)[:MOST_PROBLEM]


def _read_wanted(run: RunDir, created: RunCreated) -> Wanted:
    try:
        project, lock = ((run.program / name).read_bytes() for name in (PROJECT, LOCK))
    except FileNotFoundError as error:
        problem = f"its program was kept without {Path(error.filename).name}"
        raise EnvironmentUnavailableError(run.id, problem) from None
    version = created.environment.get("python") or ".".join(map(str, sys.version_info))
    return Wanted(project, lock, ".".join(version.split(".")[:2]))


def _read_made(place: Path) -> Made | None:
    """What an environment has; ``None`` if there is none, or its interpreter was removed from the machine."""
    if not os.access(place / "bin" / "python", os.X_OK):
        return None
    try:
        return typed.decode((place / MADE).read_bytes(), type=Made)
    except (OSError, msgspec.MsgspecError):
        return None


def _find_uv(environ: Mapping[str, str]) -> str | None:
    """The program, also if it was installed beside Bartack."""
    places = environ.get("PATH", os.defpath), os.path.dirname(sys.executable)
    return shutil.which("uv", path=os.pathsep.join(places))


def _activated(environ: Mapping[str, str], place: Path) -> dict[str, str]:
    """The variables of a process that works in an environment."""
    kept = {name: value for name, value in environ.items() if name not in _OF_ANOTHER}
    path = os.pathsep.join((str(place / "bin"), environ.get("PATH", os.defpath)))
    return {**kept, "PATH": path, "VIRTUAL_ENV": str(place)}


def _is_old(place: Path, now_us: int) -> bool:
    file = place / MADE if (place / MADE).exists() else place
    return now_us - file.stat().st_mtime_ns // 1000 > UNUSED_US


def _put_aside(place: Path) -> Path:
    return place.rename(place.with_name(f"{LOST}{place.name}-{os.urandom(4).hex()}"))
