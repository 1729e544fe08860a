"""A place where root runs programs as another user: a project of that user, and runs that only root can change."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from tests.security.users import User

import bartack
from bartack.runtime.rundir.layout import RunDir

TIMEOUT_S: Final = 120.0
Done = subprocess.CompletedProcess[str]


class Site:
    """See the module.

    Attributes:
        place: A directory of root that every user can pass through.
        project: The workspace, which belongs to the user.
        state: The state directory.
        user: The user that runs are executed as.
        python: An interpreter that the user can read.
    """

    def __init__(self, place: Path, user: User) -> None:
        self.place = place
        self.user = user
        self.project = user.owns(_made(place / "project"))
        self.state = place / "state"
        self.home = _made(place / "root", 0o700)
        self.python = readable_python(user)

    def write(self, name: str, text: str) -> Path:
        """A file of the user in the project."""
        file = self.project / name
        file.write_text(text, "utf-8")
        return self.user.owns(file)

    def environment(self, **more: str) -> dict[str, str]:
        """What root has in its environment."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "USER": "root",
            "LANG": "C.UTF-8",
            "BARTACK_STATE_DIR": str(self.state),
            **python_path(),
            **more,
        }

    def command(self, *words: str) -> list[str]:
        """A command line of bartack."""
        return [self.python, "-m", "bartack", *words]

    def bartack(self, *words: str, **environ: str) -> Done:
        """A command line of root, in the project."""
        return subprocess.run(
            self.command(*words),
            cwd=self.project,
            env=self.environment(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def run(self, *words: str) -> Done:
        """``bartack run`` as the user."""
        return self.bartack("run", "--run-as", self.user.name, *words)

    def as_user(self, *words: str, groups: Sequence[int] = ()) -> Done:
        """A program of the user that no run has started."""
        return subprocess.run(
            words,
            user=self.user.uid,
            group=self.user.uid,
            extra_groups=groups,
            cwd=self.project,
            env={**self.user.environment(), "BARTACK_STATE_DIR": str(self.state), **python_path()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def only_run(self) -> RunDir:
        """The one run that there is."""
        (found,) = (self.state / "runs").iterdir()
        return RunDir(found)

    def processes(self) -> list[str]:
        """The commands of the living processes of the user."""
        found: list[str] = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdigit() and process.stat().st_uid == self.user.uid:
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except (FileNotFoundError, ProcessLookupError):
                continue
        return [command for command in found if command]


def _made(place: Path, mode: int = 0o755) -> Path:
    place.mkdir()
    place.chmod(mode)
    return place


def python_path() -> dict[str, str]:
    """Where another interpreter of the same version finds Bartack and what it needs."""
    places = [os.path.dirname(os.path.dirname(bartack.__file__)), sysconfig.get_path("purelib")]
    return {"PYTHONPATH": os.pathsep.join(places)}


def readable_python(user: User) -> str:
    """An interpreter that a user can execute; a loud skip where there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError):
            done = subprocess.run(
                [python, "-c", "import bartack.runtime.worker_process.child"],
                env={"PATH": os.environ["PATH"], **python_path()},
                user=user.uid,
                group=user.uid,
                extra_groups=[],
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return python
    pytest.skip(f"no {version} with Bartack that another user can read: runs as another user were NOT tried")
