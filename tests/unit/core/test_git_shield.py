from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from bartack.core.git_shield import shield

OWN = ("-c", "user.name=A", "-c", "user.email=a@localhost", "-c", "protocol.file.allow=always")


def git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", *OWN, *words], cwd=place, capture_output=True, text=True, check=True)
    return done.stdout


def repository(place: Path) -> Path:
    place.mkdir()
    git(place, "init", "-q")
    (place / "file").touch()
    git(place, "add", "file")
    git(place, "commit", "-q", "-m", "one")
    return place


def state(place: Path, name: str = ".bartack") -> Path:
    (place / name / "runs").mkdir(parents=True, mode=0o700)
    (place / name / "runs/journal").touch()
    return place / name


def is_safe(place: Path, folder: Path) -> bool:
    """Whether git neither shows, nor adds, nor cleans away a directory."""
    shown = git(place, "status", "--short", "--untracked-files=all")
    git(place, "add", "-A")
    added = git(place, "diff", "--cached", "--name-only")
    git(place, "clean", "-q", "-fd")
    git(place, "clean", "-q", "-fdx")
    return (shown, added, (folder / "runs/journal").exists()) == ("", "", True)


@pytest.mark.requirement("runs-are-kept-from-git")
@pytest.mark.parametrize("name", [".bartack", "state of *[a] #!"])
def test_git_around_a_directory_leaves_it_alone(tmp_path: Path, name: str) -> None:
    place = repository(tmp_path / "repository")
    folder = state(place, name)

    shield(str(folder))

    assert is_safe(place, folder)


def test_a_directory_deep_in_a_repository_is_left_alone(tmp_path: Path) -> None:
    place = repository(tmp_path / "repository")
    (place / "a b").mkdir()
    folder = state(place / "a b")

    shield(str(folder))

    assert is_safe(place, folder)
    assert (place / ".git/info/exclude").read_text("utf-8").splitlines()[-1] == "/a\\ b/.bartack/"


def test_worktrees_and_submodules_are_repositories_too(tmp_path: Path) -> None:
    place = repository(tmp_path / "repository")
    git(place, "worktree", "add", "-q", str(tmp_path / "worktree"))
    git(place, "submodule", "--quiet", "add", str(repository(tmp_path / "other")), "module")
    for there in (tmp_path / "worktree", place / "module"):
        folder = state(there)

        shield(str(folder))

        assert is_safe(there, folder), there


def test_a_directory_that_is_ignored_already_gets_no_line(tmp_path: Path) -> None:
    place = repository(tmp_path / "repository")
    (place / ".gitignore").write_text(".bartack/\n", "utf-8")
    exclude = place / ".git/info/exclude"
    before = exclude.read_bytes()
    folder = state(place)

    shield(str(folder))

    assert exclude.read_bytes() == before
    git(place, "clean", "-q", "-fdx")
    assert (folder / "runs/journal").exists()


def test_a_line_without_an_end_stays_as_it_is(tmp_path: Path) -> None:
    place = repository(tmp_path / "repository")
    (place / ".git/info/exclude").write_bytes(b"*.log")
    folder = state(place)

    shield(str(folder))
    shield(str(folder))

    assert (place / ".git/info/exclude").read_bytes() == b"*.log\n/.bartack/\n"


def test_a_repository_that_comes_later_does_not_show_it_and_the_next_run_does_the_rest(
    tmp_path: Path,
) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    folder = state(place)

    shield(str(folder))
    git(place, "init", "-q")
    git(place, "add", ".")
    shown = git(place, "status", "--short", "--untracked-files=all")
    shield(str(folder))

    assert shown == ""
    assert is_safe(place, folder)


def test_without_git_nothing_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = repository(tmp_path / "repository")
    folder = state(place)
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        shield(str(folder))

    assert git(place, "status", "--short", "--untracked-files=all") == ""


def test_a_link_in_the_place_of_the_list_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    place = repository(tmp_path / "repository")
    outside = tmp_path / "outside"
    outside.write_text("mine\n", "utf-8")
    (place / ".git/info/exclude").unlink()
    (place / ".git/info/exclude").symlink_to(outside)
    folder = state(place)

    shield(str(folder))

    assert outside.read_text("utf-8") == "mine\n"
    assert git(place, "status", "--short", "--untracked-files=all") == ""


def test_what_it_makes_is_private(tmp_path: Path) -> None:
    folder = state(repository(tmp_path / "repository"))
    before = os.umask(0)
    try:
        shield(str(folder))
    finally:
        os.umask(before)

    modes = [stat.S_IMODE(path.stat().st_mode) for path in [folder / ".git", *(folder / ".git").rglob("*")]]
    assert [mode for mode in modes if mode & 0o077] == []


def test_a_directory_that_is_safe_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [state(repository(tmp_path / "repository")), state(tmp_path)]
    for folder in folders:
        shield(str(folder))

    def refuse(*words: object, **options: object) -> None:
        raise AssertionError(words)

    monkeypatch.setattr(subprocess, "run", refuse)
    for folder in folders:
        shield(str(folder))
