"""Worktrees of tasks, on real repositories: nothing of the user's is touched, and any call of git may be the last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.pipeline.repository import DiedError, age, dying_after, git, make, put, trees, user_state

from bartack.errors import GitError, WorktreeError
from bartack.pipeline.worktree import _git
from bartack.pipeline.worktree._git import Git, check_version
from bartack.pipeline.worktree._left_out import find_left
from bartack.pipeline.worktree._removal import drop_branches
from bartack.pipeline.worktree._worktrees import (
    RESULT,
    Trees,
    branch_of,
    find_marks,
    lane_name,
    look_at,
    trees_of,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make(tmp_path / "project", {"a.txt": "a\n", "b.txt": "b\n", ".gitignore": ".bartack/\n*.o\n"})


# Names.


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("T-1", "T-1"),
        ("v1.2_x", "v1.2_x"),
        ("a..b", "a.%2Eb"),
        ("end.", "end%2E"),
        ("x.lock", "x%2Elock"),
        ("result", "%72esult"),
        ("größe/1", "gr%C3%B6%C3%9Fe%2F1"),
        ("@{", "%40%7B"),
    ],
)
def test_a_task_has_a_name_that_a_branch_can_have(repository: Path, task: str, name: str) -> None:
    assert lane_name(task) == name
    assert git(repository, "check-ref-format", "--branch", branch_of("/runs/run-1", name))


def test_no_task_is_called_like_the_result_or_like_the_next_attempt_at_another() -> None:
    names = [lane_name(task, attempt) for task in ("a", "b", RESULT) for attempt in (1, 2)]

    assert RESULT not in names
    assert len(set(names)) == len(names)
    assert lane_name("a", 2) == "a@2"


def test_worktrees_are_seen_from_the_run_so_that_both_can_be_moved() -> None:
    assert trees_of("/x/.bartack/runs/run-1") == "/x/.bartack/runs/run-1/../../worktrees/run-1"
    assert trees_of("/tmp/memory") == "/tmp/memory/worktrees"


# The base.


def test_a_clean_workspace_begins_with_its_head(repository: Path) -> None:
    base = trees(repository).make_base(setup=False)

    assert (base.commit, base.branch, base.dirty) == (
        git(repository, "rev-parse", "HEAD"),
        "refs/heads/main",
        False,
    )
    assert git(repository, "for-each-ref", "refs/bartack") == ""


@pytest.mark.requirement("worktrees-leave-the-checkout-alone")
def test_what_is_not_committed_is_part_of_the_base_and_stays_as_it_is(repository: Path) -> None:
    put(repository, {"a.txt": "staged\n", "new.txt": "new\n", "junk.o": "ignored"})
    git(repository, "add", "a.txt")
    put(repository, {"a.txt": "worked on\n"})
    os.unlink(repository / "b.txt")
    before = user_state(repository)

    base = trees(repository).make_base(setup=False)

    assert user_state(repository) == before
    assert base.dirty
    assert git(repository, "rev-parse", f"{base.commit}^") == git(repository, "rev-parse", "HEAD")
    assert git(repository, "ls-tree", "-r", "--name-only", base.commit).split() == [
        ".gitignore",
        "a.txt",
        "new.txt",
    ]
    assert git(repository, "show", f"{base.commit}:a.txt") == "worked on"
    assert git(repository, "rev-parse", "refs/bartack/run-1/base") == base.commit
    assert trees(repository).make_base(setup=False).commit == base.commit


def test_the_runs_are_no_part_of_the_base_even_where_git_would_take_them(tmp_path: Path) -> None:
    place = make(tmp_path / "project")
    for state in (".bartack", "[state] dir"):
        run = place / state / "runs/run-1"
        (run / "work").mkdir(parents=True)
        put(place / state, {"secret": "x", "deeper/.bartack/y": "y"})

    base = Trees(str(place), str(place / "[state] dir/runs/run-1")).make_base(setup=False)

    assert base.commit == git(place, "rev-parse", "HEAD")


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--template=", "--initial-branch=main")
    put(tmp_path, {"a.txt": "a\n"})

    with pytest.raises(WorktreeError, match="there is no commit yet"):
        trees(tmp_path).make_base(setup=False)


def test_a_detached_head_and_a_shallow_clone_can_begin(repository: Path, tmp_path: Path) -> None:
    put(repository, {"a.txt": "2\n"})
    git(repository, "commit", "--quiet", "--all", "--message=second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(clone))
    git(clone, "checkout", "--quiet", "--detach")
    made = trees(clone)

    base = made.make_base(setup=False)
    made.open("T-1", base.commit)
    put(Path(made.path("T-1")), {"c.txt": "c\n"})
    made.commit("T-1", "work")
    made.merge("T-1", base.commit, "merge")
    delivered = made.deliver(base, move=True)

    assert base.branch == ""
    assert (delivered.moved, delivered.command) == (False, "git merge bartack/run-1/result")
    assert "not on a branch" in delivered.problem
    assert git(clone, "rev-parse", "HEAD") == base.commit


def test_the_workspace_may_be_a_part_of_its_repository(tmp_path: Path) -> None:
    top = make(tmp_path / "with space\nand line", {"sub/deep/a.txt": "a\n"})
    made = trees(top / "sub/deep")

    base = made.make_base(setup=False)
    made.open("T-1", base.commit)

    assert base.prefix == "sub/deep"
    assert (Path(made.path("T-1")) / "sub/deep/a.txt").read_text() == "a\n"
    put(Path(made.path("T-1")), {"sub/deep/b.txt": "b\n"})
    made.commit("T-1", "work")
    assert made.merge("T-1", base.commit, "merge").commit


# What cannot be begun with.


def test_a_directory_outside_of_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorktreeError, match="not a git repository"):
        trees(tmp_path).make_base(setup=False)


def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "--template=", ".")
    with pytest.raises(WorktreeError, match="work tree"):
        look_at(Git(str(tmp_path)))


def test_git_has_to_be_there(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(GitError, match="not installed"):
        look_at(Git(str(repository)))


@pytest.mark.parametrize("told", ["git version 2.37.4", "git version 1.9", "nothing"])
def test_git_has_to_be_new_enough(told: str) -> None:
    with pytest.raises(GitError, match=r"need version 2\.38 or newer"):
        check_version(told)
    check_version("git version 2.39.5 (Apple Git-154)")
    check_version("git version 3.0")


def test_an_unfinished_merge_is_refused(repository: Path) -> None:
    git(repository, "switch", "--quiet", "--create", "other")
    put(repository, {"a.txt": "other\n"})
    git(repository, "commit", "--quiet", "--all", "--message=other")
    git(repository, "switch", "--quiet", "main")
    put(repository, {"a.txt": "mine\n"})
    git(repository, "commit", "--quiet", "--all", "--message=mine")
    with pytest.raises(AssertionError):  # there is a conflict
        git(repository, "merge", "other")
    assert (repository / ".git/MERGE_HEAD").exists()

    with pytest.raises(WorktreeError, match="merge is not finished"):
        trees(repository).make_base(setup=False)


def test_submodules_need_a_command_that_brings_them_and_must_be_committed(
    repository: Path, tmp_path: Path
) -> None:
    library = make(tmp_path / "library")
    git(repository, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(repository, "commit", "--quiet", "--message=vendor")
    made = trees(repository)

    with pytest.raises(WorktreeError, match=r"'vendor/lib'.*parallel\.setup"):
        made.make_base(setup=False)
    assert made.make_base(setup=True).commit == git(repository, "rev-parse", "HEAD")

    put(repository / "vendor/lib", {"a.txt": "changed\n"})
    with pytest.raises(WorktreeError, match="not committed there"):
        made.make_base(setup=True)


# Worktrees.


def test_a_branch_that_is_checked_out_elsewhere_is_refused(repository: Path, tmp_path: Path) -> None:
    made = trees(repository)
    base = made.make_base(setup=False)
    git(repository, "branch", made.branch("T-1"))
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "else where"), made.branch("T-1"))

    with pytest.raises(WorktreeError, match="else where"):
        made.open("T-1", base.commit)


def test_a_result_that_somebody_looks_at_is_not_moved_under_their_feet(repository: Path) -> None:
    made, base = finished(repository, T={"c.txt": "c\n"})
    git(repository, "branch", made.branch(RESULT))
    git(repository, "switch", "--quiet", made.branch(RESULT))

    with pytest.raises(WorktreeError, match="it is checked out at"):
        made.merge("T", base, "merge")


def test_hooks_have_no_say(repository: Path) -> None:
    hooks = repository / ".git/hooks"
    hooks.mkdir()
    for name in ("pre-commit", "commit-msg", "post-checkout", "post-commit", "pre-merge-commit"):
        (hooks / name).write_text("#!/bin/sh\necho no >&2\nexit 1\n")
        (hooks / name).chmod(0o755)

    made, base = finished(repository, T={"c.txt": "c\n"})

    assert made.merge("T", base, "merge").commit == git(repository, "rev-parse", made.branch("T"))


@pytest.mark.requirement("caches-are-not-committed")
def test_caches_that_git_does_not_track_are_not_committed(repository: Path) -> None:
    put(repository, {"old/__pycache__/kept.pyc": "1"})
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=a cache that is tracked")
    made = trees(repository)
    base = made.make_base(setup=False).commit
    made.open("T", base)
    place = Path(made.path("T"))
    written = {"pkg/a.py": "a", "pkg/__pycache__/a.pyc": "1", ".pytest_cache/v/x": "1", "b.pyc": "1"}
    put(place, {**written, "old/__pycache__/kept.pyc": "2", "old/__pycache__/new.pyc": "1", "c.pyc": "work"})

    commit = made.commit("T", "work of T", reported={"c.pyc"})

    changed = git(place, "diff-tree", "-r", "--name-only", base, commit).splitlines()
    assert changed == ["c.pyc", "old/__pycache__/kept.pyc", "pkg/a.py"]
    assert all((place / path).exists() for path in written), "they stay where they are"
    put(place, {"pkg/__pycache__/a.pyc": "2"})
    assert made.commit("T", "again") == commit, "a cache is nothing to commit"


def test_a_worktree_that_is_gone_is_an_error_and_never_the_repository_above_it(repository: Path) -> None:
    git(repository, "init", "--quiet", "--template=", ".bartack")
    made, _ = finished(repository, T={"c.txt": "c\n"})
    os.unlink(Path(made.path("T")) / ".git")

    with pytest.raises(WorktreeError, match=r"is gone; the branch bartack/run-1/T has its last commit"):
        made.commit("T", "again")


def test_an_agent_that_left_its_branch_is_told_and_nothing_is_committed(repository: Path) -> None:
    made, _ = finished(repository, T={"c.txt": "c\n"})
    git(Path(made.path("T")), "switch", "--quiet", "--create", "elsewhere")
    put(Path(made.path("T")), {"d.txt": "d\n"})

    with pytest.raises(WorktreeError, match="it is on elsewhere, not on bartack/run-1/T"):
        made.commit("T", "again")
    assert git(Path(made.path("T")), "status", "--porcelain") == "?? d.txt"


def test_a_commit_has_an_author_also_where_git_knows_none(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    made, _ = finished(repository, T={"c.txt": "c\n"})
    assert (
        git(repository, "log", "-1", "--format=%an <%ae>", made.branch("T")) == "Bartack <bartack@localhost>"
    )

    git(repository, "config", "user.name", "Eve")
    git(repository, "config", "user.email", "eve@example.com")
    put(Path(made.path("T")), {"d.txt": "d\n"})
    made.commit("T", "again")
    assert git(repository, "log", "-1", "--format=%an <%ae>", made.branch("T")) == "Eve <eve@example.com>"


def test_variables_of_a_hook_that_starts_a_run_lead_nowhere(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))

    assert look_at(Git(str(repository)))[1] == "refs/heads/main"


def test_a_lock_that_a_killed_command_left_in_a_worktree_is_taken_away(repository: Path) -> None:
    made, _ = finished(repository, T={"c.txt": "c\n"})
    admin = repository / ".git/worktrees/T"
    ref = repository / ".git/refs/heads/bartack/run-1/T.lock"
    for lock in (admin / "index.lock", ref):
        lock.write_text("")
        age(lock)
    put(Path(made.path("T")), {"d.txt": "d\n"})

    commit = made.commit("T", "again")

    assert git(repository, "show", f"{commit}:d.txt") == "d"


def test_a_lock_of_somebody_else_is_waited_for_and_then_told(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_git, "PATIENCE_S", 0.1)
    made, _ = finished(repository, T={"c.txt": "c\n"})
    lock = repository / ".git/worktrees/T/index.lock"
    lock.write_text("")
    put(Path(made.path("T")), {"d.txt": "d\n"})

    with pytest.raises(GitError, match=r"index\.lock"):
        made.commit("T", "again")
    assert lock.exists()


# Merges.


@pytest.mark.requirement("worktrees-conflicts-are-asked")
def test_a_conflict_moves_nothing_and_names_the_paths(repository: Path) -> None:
    made, base = finished(repository, T={"a.txt": "t\n", "c.txt": "c\n"}, U={"a.txt": "u\n"})
    first = made.merge("T", base, "merge T")

    second = made.merge("U", base, "merge U")

    assert (second.commit, second.conflicts) == ("", ["a.txt"])
    assert git(repository, "rev-parse", made.branch(RESULT)) == first.commit
    marked = made.mark(second, "marked")
    made.open("U@2", marked)
    folder = Path(made.path("U@2"))
    assert find_marks(str(folder), ["a.txt", "missing.txt", "c.txt"]) == ["a.txt"]

    put(folder, {"a.txt": "both\n"})
    settled = made.commit("U@2", "settled", amends=marked)
    assert find_marks(str(folder), ["a.txt"]) == []
    merged = made.merge("U@2", base, "merge U")
    assert merged.commit == settled
    parents = git(repository, "log", "-1", "--format=%P", settled).split()
    assert parents == [git(repository, "rev-parse", made.branch("U")), first.commit]


def test_a_conflict_is_marked_where_only_what_references_name_has_come_and_stays_there(
    repository: Path, tmp_path: Path
) -> None:
    made, base = finished(repository, T={"a.txt": "t\n"}, U={"a.txt": "u\n"})
    made.merge("T", base, "merge T")
    conflict = made.merge("U", base, "merge U")
    elsewhere = tmp_path / "elsewhere"
    git(tmp_path, "clone", "--quiet", "--mirror", f"file://{repository}", str(elsewhere / ".git"))
    git(elsewhere, "config", "core.bare", "false")
    there = trees(elsewhere)

    marked = there.mark(conflict, "marked")

    assert marked in git(elsewhere, "for-each-ref", "--format=%(objectname)", "refs/bartack")
    there.open("U@2", marked)
    assert find_marks(there.path("U@2"), ["a.txt"]) == ["a.txt"]

    drop_branches(there)
    assert git(elsewhere, "for-each-ref", "refs/bartack") == ""


def test_a_resolution_that_git_remembers_does_not_settle_a_conflict(repository: Path) -> None:
    git(repository, "config", "rerere.enabled", "true")
    git(repository, "config", "rerere.autoUpdate", "true")
    made, base = finished(repository, T={"a.txt": "t\n"}, U={"a.txt": "u\n"})
    made.merge("T", base, "merge T")

    assert made.merge("U", base, "merge U").conflicts == ["a.txt"]


def test_a_task_that_changed_nothing_is_merged_all_the_same(repository: Path) -> None:
    made, base = finished(repository, T={})

    assert made.merge("T", base, "merge").commit == base
    assert git(repository, "rev-parse", made.branch(RESULT)) == base


# The end.


def test_the_users_branch_is_moved_only_where_it_still_is_the_base(repository: Path) -> None:
    made, base = finished(repository, T={"c.txt": "c\n"})
    commit = made.merge("T", base, "merge").commit
    begun = made.make_base(setup=False)
    put(repository, {"mine.txt": "untracked\n"})

    delivered = made.deliver(begun, move=True)

    assert (delivered.moved, delivered.command) == (True, "")
    assert git(repository, "rev-parse", "main") == commit
    assert (repository / "c.txt").read_text() == "c\n"
    assert (repository / "mine.txt").read_text() == "untracked\n"
    assert made.deliver(begun, move=True).moved, "once more, after a kill"


@pytest.mark.parametrize("case", ["moved on", "other branch", "in the way", "dirty", "branch"])
def test_the_users_branch_is_left_where_it_is_and_the_reason_is_told(repository: Path, case: str) -> None:
    made = trees(repository)
    if case == "dirty":
        put(repository, {"a.txt": "changed\n"})
    base = made.make_base(setup=False)
    made.open("T", base.commit)
    put(Path(made.path("T")), {"c.txt": "c\n"})
    made.commit("T", "work")
    made.merge("T", base.commit, "merge")
    if case == "moved on":
        git(repository, "commit", "--quiet", "--allow-empty", "--message=mine")
    elif case == "other branch":
        git(repository, "switch", "--quiet", "--create", "other")
    elif case == "in the way":
        put(repository, {"c.txt": "precious\n"})
    before = user_state(repository)

    delivered = made.deliver(base, move=case != "branch")

    assert not delivered.moved
    assert delivered.command == "git merge bartack/run-1/result"
    told = {
        "moved on": "has moved on",
        "other branch": "not on a branch that the run began with",
        "in the way": "error: The following untracked",
        "dirty": "had changes that were not committed",
        "branch": "",
    }
    assert told[case] in delivered.problem
    assert user_state(repository) == before


@pytest.mark.parametrize("begun", ["clean", "dirty", "detached"])
def test_a_workspace_of_the_runs_own_gets_the_result_wherever_it_is_killed(
    tmp_path: Path, begun: str
) -> None:
    pattern = make(tmp_path / "pattern", {"a.txt": "a\n", "b.txt": "b\n", ".gitignore": ".bartack/\n"})
    if begun == "dirty":
        put(pattern, {"a.txt": "edited\n", "new.txt": "new\n"})
        git(pattern, "rm", "--quiet", "b.txt")
    elif begun == "detached":
        git(pattern, "switch", "--quiet", "--detach")
    for count in range(5):
        place = tmp_path / f"killed {count}"
        shutil.copytree(pattern, place)
        made = trees(place)
        base = made.make_base(setup=False)
        made.open("T", base.commit)
        put(Path(made.path("T")), {"c.txt": "c\n", "a.txt": "by an agent\n"})
        made.commit("T", "work")
        commit = made.merge("T", base.commit, "merge").commit
        with dying_after(count), suppress(DiedError):
            made.bring(base)
        (place / ".git/index.lock").touch()
        age(place / ".git/index.lock")

        delivered = made.bring(base)

        assert (delivered.moved, delivered.problem, delivered.command) == (True, "", "")
        assert git(place, "rev-parse", "HEAD") == commit
        assert git(place, "status", "--porcelain") == ""
        assert (place / "a.txt").read_text() == "by an agent\n"
        assert (place / "c.txt").exists()
        assert (place / "new.txt").exists() == (begun == "dirty")


def test_what_is_in_the_way_of_the_result_in_a_workspace_of_the_runs_own_stays(repository: Path) -> None:
    made, base = finished(repository, T={"c.txt": "c\n"})
    made.merge("T", base, "merge")
    begun = made.make_base(setup=False)
    put(repository, {"c.txt": "of another process\n"})

    delivered = made.bring(begun)

    assert not delivered.moved
    assert "c.txt" in delivered.problem
    assert delivered.command == ""
    assert (repository / "c.txt").read_text() == "of another process\n"


def test_files_that_are_in_the_way_of_the_result_are_named(repository: Path) -> None:
    names = [f"{number} new.txt" for number in range(5)]
    made, base = finished(repository, T=dict.fromkeys(names, "theirs\n"))
    made.merge("T", base, "merge")
    begun = made.make_base(setup=False)
    put(repository, dict.fromkeys(names, "mine\n"))

    told = made.deliver(begun, move=True).problem

    assert told.endswith("by merge: 0 new.txt, 1 new.txt, 2 new.txt and 2 more")


# Any call of git may be the last.


def finished(repository: Path, **tasks: dict[str, str]) -> tuple[Trees, str]:
    """Tasks whose work is committed; and the base."""
    made = trees(repository)
    base = made.make_base(setup=False)
    for name, files in tasks.items():
        made.open(name, base.commit)
        put(Path(made.path(name)), files)
        made.commit(name, f"work of {name}")
    return made, base.commit


def one_task(place: Path) -> None:
    """What is done for a task until its work is committed."""
    made = trees(place)
    base = made.make_base(setup=False)
    made.open("T", base.commit)
    put(Path(made.path("T")), {"t.txt": "t\n"})
    made.commit("T", "work of T")


def two_merges(place: Path) -> None:
    """What is done when two tasks are through."""
    made = trees(place)
    base = made.make_base(setup=False)
    for name in ("T", "U"):
        assert made.merge(name, "main~0", f"merge {name}").commit
    made.open(RESULT, git(place, "rev-parse", made.branch(RESULT)))
    made.deliver(base, move=True)


def outcome(repository: Path) -> tuple[str, ...]:
    """What is there in the end, without what a commit owes to the time."""
    log = git(repository, "log", "--branches", "--topo-order", "--format=%s %T %D")
    listed = git(repository, "worktree", "list", "--porcelain").count("worktree ")
    files = sorted(path.name for path in repository.iterdir() if path.name != ".git")
    return log, str(listed), *files


CHANGING = {"update-ref", "worktree", "add", "commit", "commit-tree", "write-tree", "merge", "merge-tree"}


@pytest.mark.requirement("worktrees-survive-kill")
@pytest.mark.parametrize("story", [one_task, two_merges])
def test_killed_behind_any_call_of_git_and_begun_again_it_comes_to_the_same_end(
    tmp_path: Path, story: Callable[[Path], None]
) -> None:
    pattern = make(tmp_path / "pattern", {"a.txt": "a\n", ".gitignore": ".bartack/\n"})
    if story is one_task:
        put(pattern, {"not committed.txt": "x\n"})
    for name in ("T", "U") if story is two_merges else ():
        git(pattern, "switch", "--quiet", "--create", f"bartack/run-1/{name}", "main")
        put(pattern, {f"{name}.txt": f"{name}\n"})
        git(pattern, "add", "--all")
        git(pattern, "commit", "--quiet", f"--message={name}")
        git(pattern, "switch", "--quiet", "main")
    first = tmp_path / "whole"
    shutil.copytree(pattern, first)
    with dying_after(0) as calls:
        story(first)
    whole = outcome(first)
    changing = [count for count, words in enumerate(calls, 1) if words[0] in CHANGING]
    assert len(changing) > 5

    for count in changing:
        place = tmp_path / f"killed {count}"
        shutil.copytree(pattern, place)
        with dying_after(count), pytest.raises(DiedError):
            story(place)

        story(place)

        assert outcome(place) == whole, calls[count - 1]


@pytest.mark.parametrize("state", ["half checked out", "no directory", "no note", "a file in the way"])
def test_a_worktree_whose_making_was_killed_is_made_again_and_nothing_is_deleted(
    repository: Path, state: str
) -> None:
    made = trees(repository)
    base = made.make_base(setup=False)
    made.open("T", base.commit)
    path, admin = Path(made.path("T")), repository / ".git/worktrees/T"
    (admin / "locked").write_text("initializing")
    breakages: dict[str, Callable[[], object]] = {
        "half checked out": lambda: (path / "a.txt").write_text(""),
        "no directory": lambda: path.rename(repository / "elsewhere"),
        "no note": lambda: (admin / "gitdir").rename(path / ".git"),
        "a file in the way": lambda: (path.rename(repository / "elsewhere"), path.write_text("precious")),
    }
    breakages[state]()

    made.open("T", base.commit)

    assert sorted(child.name for child in path.iterdir()) == [".git", ".gitignore", "a.txt", "b.txt"]
    assert git(path, "status", "--porcelain") == ""
    assert git(repository, "worktree", "list").count("bartack/run-1/T]") == 1
    if state == "a file in the way":
        assert path.with_name("T.left-1").read_text() == "precious"
    if state == "half checked out":
        assert (path.with_name("T.left-1") / "b.txt").read_text() == "b\n"


def test_work_in_a_submodule_is_named_because_no_branch_has_it(repository: Path, tmp_path: Path) -> None:
    library = make(tmp_path / "library")
    git(repository, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(repository, "commit", "--quiet", "--message=vendor")
    made = trees(repository)
    start = made.make_base(setup=True).commit
    made.open("T-1", start)
    inside = Path(made.path("T-1"))
    git(inside, "submodule", "--quiet", "update", "--init")

    assert find_left(made.inside("T-1"), start, []) == []

    put(inside / "vendor/lib", {"a.txt": "changed\n"})
    made.commit("T-1", "work")
    assert ["not committed there" in note for note in find_left(made.inside("T-1"), start, [])] == [True]

    git(inside / "vendor/lib", "commit", "--quiet", "--all", "--message=work")
    made.commit("T-1", "work")
    [note] = find_left(made.inside("T-1"), start, [])
    assert note.startswith("vendor/lib is a repository of its own")
