"""Git on a repository of our own, and with care on one of the user: no hook, no filter and no setting of either decides anything.

Which options every call of git has is in ``core/git.py``. Beyond these, the settings of the user and of the system are not read:
the same files have to make the same copy on every machine.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from bartack.core.accounts import user_of_children
from bartack.core.git import find_git, git_command, git_environment
from bartack.depot.elsewhere import without_database
from bartack.errors import WorkspaceKeepError

TIMEOUT_S: Final = 600.0
MOST_SHOWN: Final = 2000
SETTINGS: Final = (
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.autocrlf=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.ignoreCase=false",
    "core.precomposeUnicode=false",
    "core.quotePath=false",
    # A file may have a name that another system would take for .git; what must not be written is decided in _writer.py.
    "core.protectNTFS=false",
    "core.protectHFS=false",
    "core.sparseCheckout=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.looseCompression=1",
    "core.bigFileThreshold=16m",
    "safe.bareRepository=all",
    "advice.addEmbeddedRepo=false",
    "pack.writeBitmaps=false",
    "transfer.unpackLimit=1",
)
UNSYNCED: Final = ("core.fsync=none",)
"""For what a power cut may damage: what a copy has is durable where its pack is kept."""
_ALONE: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}
"""Replacements (``git replace``) are of one repository; a copy has the objects themselves."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: bytes
    err: bytes

    @property
    def problem(self) -> str:
        """What it complained about."""
        return self.err.decode("utf-8", "replace").strip()[:MOST_SHOWN] or f"git ended with {self.status}"

    @property
    def line(self) -> str:
        """What it wrote, without the line break at the end."""
        return os.fsdecode(self.out.removesuffix(b"\n"))


class PlainGit:
    """Git on one repository, with variables for all of its calls.

    Args:
        directory: The directory of the repository (``GIT_DIR``).
        variables: Further variables, as ``GIT_WORK_TREE``.
        place: Where it runs; the directory itself unless it is given.
        settings: Further settings.
        is_online: Whether it may reach other repositories, as the user of this process has set that up.
    """

    def __init__(
        self,
        directory: Path,
        variables: Mapping[str, str] | None = None,
        place: Path | None = None,
        settings: Sequence[str] = (),
        *,
        is_online: bool = False,
    ) -> None:
        self._is_online = is_online
        self._settings = tuple(dict.fromkeys((*SETTINGS, *settings)))
        self.directory = directory
        self._variables = dict(variables or {})
        self._place = place or directory

    def using(self, place: Path | None = None, **variables: str) -> PlainGit:
        """The same repository with further variables."""
        return PlainGit(
            self.directory,
            {**self._variables, **variables},
            place or self._place,
            self._settings,
            is_online=self._is_online,
        )

    def online(self) -> PlainGit:
        """The same repository for commands that reach others. It has to be one of our own."""
        return PlainGit(self.directory, self._variables, self._place, self._settings, is_online=True)

    def __call__(self, *words: str, given: bytes = b"") -> bytes:
        """What a command writes.

        Raises:
            WorkspaceKeepError: It failed.
        """
        return self.run(words, given=given).out

    def line(self, *words: str, given: bytes = b"") -> str:
        """What a command writes, without the line break at the end.

        Raises:
            WorkspaceKeepError: It failed.
        """
        return self.run(words, given=given).line

    def run(
        self,
        words: Sequence[str],
        *,
        given: bytes | IO[bytes] = b"",
        into: IO[bytes] | None = None,
        fine: Sequence[int] = (0,),
        timeout_s: float = TIMEOUT_S,
    ) -> Ended:
        """Run a command to its end.

        Args:
            words: The command.
            given: What it reads, or the file with it.
            into: The file that it writes to.
            fine: The statuses that are not a failure.
            timeout_s: How long it may take.

        Raises:
            WorkspaceKeepError: It failed, cannot be run, or took too long.
        """
        done = self._start(words, given, into, timeout_s)
        if done.status not in fine:
            raise WorkspaceKeepError(str(self._place), f"git {_name_of(words)}: {done.problem}")
        return done

    def _start(
        self, words: Sequence[str], given: bytes | IO[bytes], into: IO[bytes] | None, timeout_s: float
    ) -> Ended:
        git = find_git()
        if git is None:
            raise WorkspaceKeepError(str(self._place), "git is not installed")
        try:
            ran = subprocess.run(  # noqa: S603 - exact words, no shell
                git_command(git, words, self._settings, online=self._is_online),
                cwd=self._place,
                user=user_of_children(),
                env=self._environment(),
                stdout=into or subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=timeout_s,
                start_new_session=self._is_online,  # no terminal, so that nothing asks there for a password
                check=False,
                input=given if isinstance(given, bytes) else None,
                stdin=None if isinstance(given, bytes) else given,
            )
        except subprocess.TimeoutExpired:
            raise WorkspaceKeepError(
                str(self._place), f"git {_name_of(words)} was not over within {timeout_s:g} s"
            ) from None
        except OSError as error:
            raise WorkspaceKeepError(str(self._place), f"git cannot be run: {error.strerror}") from None
        return Ended(ran.returncode, ran.stdout or b"", ran.stderr)

    def _environment(self) -> dict[str, str]:
        alone = {} if self._is_online else _ALONE
        own = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_DIR": str(self.directory)}
        # A node may have there what opens its database, and its runs can read the environment of git.
        inherited = without_database(git_environment(online=self._is_online), has_bucket=True)
        return {**inherited, **alone, **own, **self._variables}


def _name_of(words: Sequence[str]) -> str:
    """The name of a command, which settings may precede."""
    return next((word for word in words if word != "-c" and "=" not in word), "")


@contextmanager
def spool(git: PlainGit, words: Sequence[str], given: bytes) -> Generator[IO[bytes]]:
    """What a command writes, in a temporary file: it may be larger than the memory.

    Raises:
        WorkspaceKeepError: It failed.
    """
    with tempfile.TemporaryFile(dir=git.directory) as file:
        git.run(words, given=given, into=file)
        file.seek(0)
        yield file


def alternates(objects: Path) -> str:
    """The value of ``GIT_ALTERNATE_OBJECT_DIRECTORIES`` for one directory: with a colon or a quote in it, it has to be quoted."""
    text = str(objects)
    if ":" not in text and not text.startswith('"'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
