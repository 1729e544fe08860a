"""Two users of the machine, for real, and how to act as one of them. Only root can make them."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 60.0
_CAPABILITY: Final = "+dac_read_search"
"""Lets a user read an interpreter in a home directory of root. Who owns a file, and who may write to it, is judged as always."""


OWN: Final = "bt-"
_NAME: Final = re.compile(OWN + r"(?:owner|other)-(\d+)")
"""The last part is the process that made the user."""


class User:
    """A user that was made for one test session.

    Attributes:
        name: The login name.
        uid: The number.
        home: The home directory, for this user alone.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.home = home
        words = [
            "useradd",
            "--no-log-init",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            str(home),
            name,
        ]
        subprocess.run(words, check=True, capture_output=True)
        self.uid = pwd.getpwnam(name).pw_uid
        home.mkdir(mode=0o700)
        self.owns(home)

    def owns(self, place: Path) -> Path:
        """Give a file or directory to this user."""
        os.chown(place, self.uid, self.uid, follow_symlinks=False)
        return place

    def bartack(
        self, *words: str, at: Path, umask: int = 0o022, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """A command line of this user, in a directory."""
        return self.act(sys.executable, "-m", "bartack", *words, at=at, umask=umask, **environ)

    def act(
        self, *words: str, at: Path, umask: int = 0o022, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this user."""
        become = [f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        become += [f"--inh-caps={_CAPABILITY}", f"--ambient-caps={_CAPABILITY}"]
        return subprocess.run(
            ["setpriv", *become, *words],
            cwd=at,
            env=self.environment(**environ),
            umask=umask,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def environment(self, **more: str) -> dict[str, str]:
        """The variables of a plain login."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "USER": self.name,
            "LANG": "C.UTF-8",
            **more,
        }

    def remove(self) -> None:
        """Take the user away again; the files go with the directory of the test."""
        subprocess.run(["userdel", self.name], check=False, capture_output=True)


def remove_leftovers() -> None:
    """Take users away whose test process was killed before it could."""
    for user in pwd.getpwall():
        found = _NAME.fullmatch(user.pw_name)
        if found and not Path("/proc", found[1]).exists():
            subprocess.run(["userdel", user.pw_name], check=False, capture_output=True)


def missing() -> str:
    """Why there cannot be two users here; empty if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux can make users: the attacks of one user on another were NOT tried"
    absent = [tool for tool in ("useradd", "userdel", "setpriv") if shutil.which(tool) is None]
    return (
        f"{', '.join(absent)} not installed: the attacks of one user on another were NOT tried"
        if absent
        else ""
    )
