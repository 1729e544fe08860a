from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bartack.core.git import find_git, git_command, git_environment

TRAPS = (
    "core.fsmonitor",
    "core.sshCommand",
    "core.askPass",
    "core.editor",
    "core.pager",
    "core.alternateRefsCommand",
    "gpg.program",
    "credential.helper",
    "remote.origin.uploadpack",
    "remote.origin.vcs",
)


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Path, Path]:
    """A repository whose own settings name programs wherever they can, and the file that each of them would write."""
    proof = tmp_path / "executed"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho $0 $* >> {proof}\nexit 1\n", "utf-8")
    trap.chmod(0o755)
    place = tmp_path / "repository"
    place.mkdir()
    run(place, "init", "-q")
    (place / "file").write_text("text", "utf-8")
    run(place, "add", "file")
    run(place, "commit", "-q", "-m", "one")
    hooks = place / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        "pre-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "prepare-commit-msg",
    ):
        (hooks / name).symlink_to(trap)
    settings = dict.fromkeys(TRAPS, str(trap)) | {
        "remote.origin.url": f"ext::{trap}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }
    for name, value in settings.items():
        run(place, "config", name, value)
    return place, proof


def run(place: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    identity = ("-c", "user.name=A", "-c", "user.email=a@localhost")
    return subprocess.run(["git", *identity, *words], cwd=place, check=True, capture_output=True)


def ask(place: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    git = find_git()
    assert git is not None
    return subprocess.run(
        git_command(git, words, ("user.name=A", "user.email=a@localhost")),
        cwd=place,
        env=git_environment(),
        capture_output=True,
        check=False,
    )


@pytest.mark.requirement("git-starts-nothing")
def test_a_repository_starts_nothing_by_its_own_settings(hostile: tuple[Path, Path]) -> None:
    place, proof = hostile
    (place / "other").write_text("more", "utf-8")

    listed = ask(place, "ls-files", "-z", "-t", "--stage", "--others", "--exclude-standard")
    added = ask(place, "add", "--all")
    made = ask(place, "commit", "-q", "-m", "two")
    ask(place, "worktree", "add", "-q", "--detach", str(place.parent / "tree"))

    assert listed.returncode == added.returncode == made.returncode == 0, made.stderr
    assert b"other" in listed.stdout
    assert not proof.exists(), proof.read_text("utf-8")


@pytest.mark.requirement("git-starts-nothing")
def test_missing_objects_are_not_fetched_by_a_command_of_the_repository(hostile: tuple[Path, Path]) -> None:
    place, proof = hostile

    found = ask(place, "cat-file", "-p", "0123456789012345678901234567890123456789")

    assert found.returncode != 0
    assert not proof.exists(), proof.read_text("utf-8")


def test_the_same_repository_would_execute_programs_without_the_options(hostile: tuple[Path, Path]) -> None:
    place, proof = hostile

    subprocess.run(["git", "status"], cwd=place, check=False, capture_output=True)
    fetched = ["git", "cat-file", "-p", "0123456789012345678901234567890123456789"]
    subprocess.run(fetched, cwd=place, check=False, capture_output=True)

    assert proof.read_text("utf-8").count("trap") >= 2


def test_variables_that_lead_elsewhere_are_left_out_and_those_of_the_person_stay() -> None:
    given = {
        "HOME": "/h",
        "GIT_DIR": "/x",
        "GIT_SSH_COMMAND": "x",
        "GIT_EXTERNAL_DIFF": "x",
        "GIT_CONFIG_COUNT": "1",
        "GIT_PROXY_COMMAND": "x",
        "SSH_ASKPASS": "x",
        "GIT_AUTHOR_NAME": "A",
    }

    kept = git_environment(given)

    assert {name for name in kept if name in given} == {"HOME", "GIT_AUTHOR_NAME"}
