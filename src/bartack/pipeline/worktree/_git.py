"""Git in one directory, called with exact words: how a command is run, and what a lock means that a killed one has left.

Which options and variables every call has is in ``core/git.py``; what is done with git is in ``_worktrees.py``.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from bartack.core.git import find_git, git_command, git_environment
from bartack.errors import GitError

NEEDED: Final = (2, 38)
"""The first version that merges without a work tree, which is what makes a merge safe to kill."""
TIMEOUT_S: Final = 600.0
PATIENCE_S: Final = 10.0
"""How long to wait for a lock of another process."""
MOST_SHOWN: Final = 2000
DEFAULT_AUTHOR: Final = ("user.name=Bartack", "user.email=bartack@localhost")

_LOCKED: Final = re.compile(rb"Unable to create '(.+?\.lock)': File exists", re.DOTALL)
_HALF_MADE: Final = re.compile(rb"failed to read \S*worktrees/[^\n]*/(?:commondir|gitdir|HEAD)")
"""Another command has made the directory of a worktree and not all of its files yet."""
_BEGAN: Final = time.time()
"""A lock that is older than this process was not left by anything that it runs."""


class Done(NamedTuple):
    """How a command ended."""

    status: int
    out: bytes
    err: bytes

    @property
    def problem(self) -> str:
        """What it complained about."""
        return self.err.decode("utf-8", "replace").strip()[:MOST_SHOWN]

    @property
    def line(self) -> str:
        """What it wrote, without the line break at the end."""
        return os.fsdecode(self.out.removesuffix(b"\n"))


class Git:
    """Git in one directory.

    Args:
        place: The directory.
        own: Parts of paths of locks that only Bartack takes: one that a dead process has left is removed.
    """

    def __init__(self, place: str, own: Sequence[str] = ()) -> None:
        self.place = place
        self._own = [os.fsencode(part) for part in own]
        self._identity: tuple[str, ...] | None = None

    def __call__(self, *words: str, **more: str) -> str:
        """What a command writes, without the line break at the end.

        Args:
            words: The command.
            more: Variables of its environment.

        Raises:
            GitError: It failed.
        """
        return self.done(*words, env=more).line

    def test(self, *words: str) -> bool:
        """Whether a command that answers yes or no answers yes.

        Raises:
            GitError: It answers neither.
        """
        return self.done(*words, fine=(0, 1)).status == 0

    def find(self, *words: str) -> str:
        """What a command writes; nothing if there is nothing to be found.

        Raises:
            GitError: It failed for another reason.
        """
        found = self.done(*words, fine=(0, 1))
        return "" if found.status else found.line

    def done(
        self,
        *words: str,
        given: bytes = b"",
        env: Mapping[str, str] | None = None,
        fine: Sequence[int] = (0,),
        author: bool = False,
    ) -> Done:
        """Run a command to its end.

        Args:
            words: The command.
            given: What it reads.
            env: Variables of its environment.
            fine: The statuses that are not a failure.
            author: It makes a commit, which needs an author.

        Raises:
            GitError: It failed, cannot be run, or took too long.
        """
        first = self._who() if author else ()
        until = time.monotonic() + PATIENCE_S
        while True:
            done = self._run(first, words, given, env or {})
            if done.status in fine:
                return done
            if not self._is_worth_another_try(done, until):
                raise GitError(_shown(words), done.problem or f"it ended with {done.status}")

    def _run(self, first: Sequence[str], words: Sequence[str], given: bytes, env: Mapping[str, str]) -> Done:
        try:
            ran = subprocess.run(  # noqa: S603 - exact words, no shell
                git_command(_git(), words, first),
                cwd=self.place,
                env={**git_environment(), **env},
                input=given,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GitError(_shown(words), f"not over within {TIMEOUT_S:g} s, and ended") from None
        except OSError as error:
            raise GitError(_shown(words), f"it cannot be run in {self.place!r}: {error.strerror}") from None
        return Done(ran.returncode, ran.stdout, ran.stderr)

    def _who(self) -> tuple[str, ...]:
        """Settings that name an author, where the user's name none."""
        if self._identity is None:
            known = self._run(("user.useConfigOnly=true",), ("var", "GIT_COMMITTER_IDENT"), b"", {})
            self._identity = () if known.status == 0 else DEFAULT_AUTHOR
        return self._identity

    def _is_worth_another_try(self, done: Done, until: float) -> bool:
        """Whether another command was in the way: its lock is gone or may go, or its worktree may be complete soon."""
        found = _LOCKED.search(done.err)
        if found is not None and any(part in found[1] for part in self._own) and _is_left_over(found[1]):
            with suppress(FileNotFoundError):
                os.unlink(found[1])
            return True
        if (found is None and not _HALF_MADE.search(done.err)) or time.monotonic() >= until:
            return False
        select.select([], [], [], 0.05)
        return True


def _git() -> str:
    found = find_git()
    if found is None:
        raise GitError("git", "it is not installed, and tasks side by side need it (parallel.tasks)")
    return found


def check_version(version: str) -> None:
    """Raise unless a version, as ``git --version`` prints it, is new enough.

    Raises:
        GitError: It is too old.
    """
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < NEEDED:
        raise GitError(
            "git", f"tasks side by side need version {NEEDED[0]}.{NEEDED[1]} or newer; this is {version!r}"
        )


def _is_left_over(lock: bytes) -> bool:
    try:
        return os.stat(lock).st_mtime < _BEGAN
    except FileNotFoundError:
        return True


def _shown(words: Sequence[str]) -> str:
    return "git " + " ".join(word for word in words[:3] if not word.startswith("/"))
