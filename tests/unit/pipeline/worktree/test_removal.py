"""A worktree goes only when everything in it is saved elsewhere; whenever that is in doubt, it stays."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.unit.pipeline.repository import git, make, put, trees

import bartack.pipeline
from bartack.errors import WorktreeDirtyError
from bartack.pipeline.worktree import _removal
from bartack.pipeline.worktree._removal import drop_branches, list_trees, remove_tree
from bartack.pipeline.worktree._worktrees import RESULT, Trees
from bartack.pipeline.worktree.old_worktrees import clear_trees


@pytest.fixture
def made(tmp_path: Path) -> Trees:
    """A run with the worktree T, which has work that is on no other branch."""
    place = make(tmp_path / "project", {"a.txt": "a\n", ".gitignore": ".bartack/\n*.o\n"})
    found = trees(place)
    found.open("T", found.make_base(setup=False).commit)
    put(Path(found.path("T")), {"t.txt": "t\n"})
    found.commit("T", "work of T")
    return found


def folder(made: Trees) -> Path:
    return Path(made.path("T"))


@pytest.mark.requirement("worktrees-are-saved-before-removal")
def test_everything_is_committed_and_ignored_files_are_archived_before_a_worktree_goes(made: Trees) -> None:
    put(folder(made), {"untracked.txt": "u\n", "a.txt": "changed\n", "deep/x.o": "object"})
    (folder(made) / "deep/link.o").symlink_to("x.o")

    archive = remove_tree(made, "T")

    assert not folder(made).exists()
    assert git(Path(made.root), "show", f"{made.branch('T')}:untracked.txt") == "u"
    assert git(Path(made.root), "show", f"{made.branch('T')}:a.txt") == "changed"
    assert archive == made.path("T.ignored.tar")
    with tarfile.open(archive) as tar:
        assert sorted(tar.getnames()) == ["deep/link.o", "deep/x.o"]
        content = tar.extractfile("deep/x.o")
        assert content is not None
        assert content.read() == b"object"
    assert list_trees(made) == []


@pytest.mark.requirement("caches-are-not-committed")
def test_caches_do_not_keep_a_worktree(made: Trees) -> None:
    put(folder(made), {"pkg/__pycache__/a.pyc": "1", ".mypy_cache/x/y.json": "{}"})

    assert remove_tree(made, "T") == ""
    assert not folder(made).exists()
    assert git(Path(made.root), "ls-tree", "-r", "--name-only", made.branch("T")).split() == [
        ".gitignore",
        "a.txt",
        "t.txt",
    ]


def test_ignored_files_that_are_too_large_keep_a_worktree(
    made: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_removal, "MOST_IGNORED", 5)
    put(folder(made), {"x.o": "object"})

    with pytest.raises(WorktreeDirtyError, match="6 bytes, which is too much to keep"):
        remove_tree(made, "T")
    assert (folder(made) / "x.o").read_text() == "object"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only there is it known who works where")
def test_a_process_inside_keeps_a_worktree(made: Trees) -> None:
    with subprocess.Popen(["cat"], cwd=folder(made), stdin=subprocess.PIPE) as inside:
        with pytest.raises(WorktreeDirtyError, match=f"a process works there: {inside.pid}"):
            remove_tree(made, "T")
        inside.communicate(timeout=60)

    remove_tree(made, "T")
    assert not folder(made).exists()


def test_commits_that_no_branch_has_keep_a_worktree(made: Trees) -> None:
    git(folder(made), "checkout", "--quiet", "--detach")
    git(folder(made), "commit", "--quiet", "--allow-empty", "--message=nowhere else")

    with pytest.raises(WorktreeDirtyError, match="it is on no branch"):
        remove_tree(made, "T")
    assert folder(made).exists()


def test_a_repository_inside_keeps_a_worktree(made: Trees) -> None:
    inner = make(folder(made) / "inner")
    put(inner, {"a.txt": "not committed\n"})

    with pytest.raises(WorktreeDirtyError, match="'inner' cannot be committed"):
        remove_tree(made, "T")
    assert (inner / "a.txt").read_text() == "not committed\n"


def test_an_ignored_repository_inside_keeps_a_worktree(made: Trees) -> None:
    make(folder(made) / "inner.o")

    with pytest.raises(WorktreeDirtyError, match=r"inner\.o"):
        remove_tree(made, "T")
    assert (folder(made) / "inner.o/a.txt").exists()


def test_branches_go_only_where_another_one_has_their_work(made: Trees) -> None:
    place = Path(made.root)
    made.open("U", git(place, "rev-parse", "main"))
    put(Path(made.path("U")), {"u.txt": "u\n"})
    made.commit("U", "work of U")
    made.merge("T", "main", "merge T")
    for name in ("T", "U"):
        remove_tree(made, name)

    assert drop_branches(made) == [made.branch("U"), made.branch(RESULT)]
    git(place, "merge", "--quiet", made.branch(RESULT))
    assert drop_branches(made) == [made.branch("U")]
    assert git(place, "for-each-ref", "--format=%(refname:short)").split() == [made.branch("U"), "main"]


def test_clearing_a_run_tells_what_went_and_what_stays(made: Trees) -> None:
    put(folder(made), {"x.o": "object"})
    made.open("U", git(Path(made.root), "rev-parse", "main"))
    git(Path(made.path("U")), "checkout", "--quiet", "--detach")

    cleared = clear_trees(Path(made.run_dir), Path(made.root))

    assert cleared.removed == [made.path("T")]
    assert cleared.archives == [made.path("T.ignored.tar")]
    assert list(cleared.kept) == [made.path("U")]
    assert "it is on no branch" in cleared.kept[made.path("U")]
    git(Path(made.path("U")), "switch", "--quiet", made.branch("U"))
    again = clear_trees(Path(made.run_dir), Path(made.root))
    assert (again.kept, again.branches) == ({}, [made.branch("T")])


@pytest.mark.requirement("worktrees-are-never-forced")
def test_git_is_never_told_to_force_anything() -> None:
    forced = re.compile(r"\"(--force|-f|-ff|--hard|-D|--discard-changes|prune)\"|\+refs/")
    place = Path(bartack.pipeline.__file__).parent
    found = [path.name for path in place.rglob("*.py") if forced.search(path.read_text())]

    assert found == []
