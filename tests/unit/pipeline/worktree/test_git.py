"""Git commands that another one disturbs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bartack.errors import GitError
from bartack.pipeline.worktree import _git

HALF_MADE = "fatal: failed to read .git/worktrees/one/commondir: Success"


def disturbed(place: Path, message: str) -> str:
    """A git whose first call fails with a message."""
    stub = place / "git"
    real = shutil.which("git")
    stub.write_text(
        f'#!/bin/sh\nif test ! -e {place}/called; then touch {place}/called; echo "{message}" >&2; exit 128; fi\n'
        f'exec {real} "$@"\n'
    )
    stub.chmod(0o755)
    return str(stub)


def test_a_command_that_meets_a_half_made_worktree_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = disturbed(tmp_path, HALF_MADE)
    monkeypatch.setattr(_git, "find_git", lambda: stub)

    assert _git.Git(str(tmp_path))("--version").startswith("git version")


def test_a_command_that_fails_otherwise_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = disturbed(tmp_path, "fatal: not a git repository")
    monkeypatch.setattr(_git, "find_git", lambda: stub)

    with pytest.raises(GitError, match="not a git repository"):
        _git.Git(str(tmp_path))("--version")
