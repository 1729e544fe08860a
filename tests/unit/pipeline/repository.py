"""Git repositories for tests: small, without anything of the user's, and calls of git that die where a test says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bartack.pipeline.worktree._git import Done, Git
from bartack.pipeline.worktree._worktrees import Trees

FILES = {"a.txt": "a\n", "b.txt": "b\n"}


def git(place: Path, *words: str) -> str:
    """What git says."""
    settings = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always"]
    done = subprocess.run(
        ["git", *settings, *words], cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def make(place: Path, files: Mapping[str, str] = FILES) -> Path:
    """A repository with one commit on the branch main; its author is nobody's business."""
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "--quiet", "--template=", "--initial-branch=main")
    put(place, files)
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message=first")
    return place


def put(place: Path, files: Mapping[str, str]) -> None:
    """Write files."""
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def trees(place: Path, run: str = "run-1") -> Trees:
    """The worktrees of a run in a repository; its state is kept out of git."""
    run_dir = place / ".bartack/runs" / run
    (run_dir / "work").mkdir(parents=True, exist_ok=True)
    return Trees(str(place), str(run_dir))


def user_state(place: Path) -> tuple[str, str, str, str]:
    """What must not change: the user's HEAD, branch, index and files."""
    index = git(place, "ls-files", "--stage")
    status = git(place, "status", "--porcelain", "--untracked-files=all")
    return git(place, "rev-parse", "HEAD"), git(place, "symbolic-ref", "HEAD"), index, status


class DiedError(BaseException):
    """The process was killed here."""


@contextmanager
def dying_after(count: int) -> Generator[list[Sequence[str]]]:
    """Let the process die behind so many calls of git; yields the calls."""
    calls: list[Sequence[str]] = []
    real = Git._run

    def run(
        self: Git, first: Sequence[str], words: Sequence[str], given: bytes, env: Mapping[str, str]
    ) -> Done:
        done = real(self, first, words, given, env)
        calls.append(words)
        if len(calls) == count:
            raise DiedError(words)
        return done

    Git._run = run  # type: ignore[method-assign]  # - the one place at which every call of git passes
    try:
        yield calls
    finally:
        Git._run = real  # type: ignore[method-assign]  # - as above


def age(path: Path) -> None:
    """Make a file older than this process."""
    os.utime(path, (1, 1))
