"""What a copy has, and that it is restored on another host as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.runtime.copies.places import Host, git, listing, make_repository

from bartack.core.git import find_git
from bartack.errors import UnsafePathError, WorkspaceCarryError, WorkspaceKeepError
from bartack.runtime.copies.copies import find_top, open_copies
from bartack.runtime.copies.values import Limits, Sources


def test_files_of_every_kind_are_restored_as_they_were(here: Host, there: Host) -> None:
    place = here.workspace
    (place / "empty/below").mkdir(parents=True)
    (place / "binary").write_bytes(bytes(range(256)) * 300)
    (place / "lines.txt").write_bytes(b"one\r\ntwo\n$Id$\r\n")
    (place / ".gitattributes").write_text(
        "* text=auto eol=lf ident filter=missing working-tree-encoding=UTF-16\n"
    )
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o755)
    (place / "link").symlink_to("run.sh")
    (place / "dangling").symlink_to("/nowhere/at all")
    (place / "naïve ☃.txt").write_text("snow")
    (place / "two\nlines\t").write_text("odd")
    (place / "-n").write_text("option")
    (place / "back\\slash").write_text("slash")
    with open(os.fsencode(place) + b"/\xff\xfe", "w") as file:
        file.write("not text")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert listing(there.workspace) == listing(place)
    assert copy.left_out == ()
    assert (copy.head, dict(copy.refs)) == ("", {})


def test_of_a_run_only_its_own_files_are_copied_and_stay_private(here: Host, there: Host) -> None:
    (here.run / "agents/claude").mkdir(parents=True)
    (here.run / "agents/claude/.gitignore").write_text("*\n")
    (here.run / "agents/claude/conversation.jsonl").write_text("{}")
    (here.run / "journal.ndjson").write_text("not copied")
    (here.run / "receipts").mkdir()

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    expected = listing(here.run)
    del expected[b"journal.ndjson"]
    assert listing(there.run) == expected
    assert (there.run / "agents/claude/conversation.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_same_files_are_the_same_copy_and_no_new_one(here: Host, there: Host) -> None:
    for host in (here, there):
        make_repository(host.workspace)
        (host.workspace / "new.txt").write_text("new")
    git(there.workspace, "fetch", "--quiet", str(here.workspace), "main")
    git(there.workspace, "reset", "--quiet", "--hard", "FETCH_HEAD")

    first = here.copies.take(here.sources, "")
    again = here.copies.take(here.sources, first.commit)
    (here.workspace / "new.txt").touch()
    touched = here.copies.take(here.sources, first.commit)

    assert (again.commit, again.is_same) == (first.commit, True)
    assert (touched.commit, touched.is_same, dict(touched.refs)) == (first.commit, True, {})
    assert not first.is_same
    assert first.refs.keys() == {"refs/heads/main"}


def test_what_is_not_committed_is_copied_and_stays_uncommitted(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    (here.workspace / "kept.txt").write_text("staged\n")
    git(here.workspace, "add", "kept.txt")
    (here.workspace / "kept.txt").write_text("changed again\n")
    (here.workspace / "untracked.txt").write_text("new\n")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert listing(there.workspace) == listing(here.workspace)
    assert git(there.workspace, "status", "--porcelain") == "MM kept.txt\n?? untracked.txt"
    assert git(there.workspace, "show", ":kept.txt") == "staged"
    assert git(there.workspace, "rev-parse", "HEAD") == copy.head
    assert git(there.workspace, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert git(there.workspace, "fsck", "--strict") == ""


def test_commits_and_branches_made_later_come_with_a_later_copy(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    git(here.workspace, "branch", "topic/one")
    git(here.workspace, "tag", "-a", "-m", "first", "v1")
    first = here.copies.take(here.sources, "")
    here.send(there, first.commit)
    git(here.workspace, "branch", "-D", "topic/one")
    git(here.workspace, "switch", "--quiet", "-c", "topic")
    (here.workspace / "made.txt").write_text("by an agent\n")
    git(here.workspace, "add", "-A")
    git(here.workspace, "commit", "--quiet", "-m", "work")
    git(here.workspace, "switch", "--quiet", "--detach")

    second = here.copies.take(here.sources, first.commit)
    here.send(there, second.commit, first.commit)

    show = ("for-each-ref", "--format=%(refname) %(objectname)")
    assert git(there.workspace, *show) == git(here.workspace, *show)
    assert git(there.workspace, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    assert git(there.workspace, "log", "--format=%s") == "work\nbegin"
    assert git(there.workspace, "status", "--porcelain") == ""


def test_ignored_files_are_copied_only_if_they_are_included(here: Host, there: Host, tmp_path: Path) -> None:
    make_repository(here.workspace)
    (here.workspace / ".gitignore").write_text("*.log\n.env\nbuild/\nforced.bin\n")
    (here.workspace / "build/out/deep").mkdir(parents=True)
    (here.workspace / "build/other").mkdir()
    (here.workspace / "sub").mkdir()
    for name in ("a.log", ".env", "sub/.env", "build/out/deep/x", "build/other/y", "forced.bin"):
        (here.workspace / name).write_text(name)
    git(here.workspace, "add", "--force", "forced.bin")
    info = here.workspace / ".git/info"
    info.mkdir(exist_ok=True)
    (info / "exclude").write_text("mine\n")
    (here.workspace / "mine").write_text("only here")
    copies = open_copies(tmp_path / "included.git", include=[".env", "build/out"])

    copy = copies.take(here.sources, "")
    there.copies.add_pack(copies.pack(copy.commit))
    there.copies.restore(copy.commit, there.sources)

    found = {os.fsdecode(name) for name, (kind, _) in listing(there.workspace).items() if kind == "file"}
    assert found == {".gitignore", "kept.txt", ".env", "sub/.env", "build/out/deep/x", "forced.bin"}
    assert copies.take(here.sources, copy.commit).is_same
    later = there.copies.take(there.sources, copy.commit)
    assert later.is_same


def test_files_of_bartack_are_never_copied(here: Host, there: Host) -> None:
    (here.workspace / ".gitignore").write_text("!.bartack\n")
    (here.workspace / "sub/.bartack").mkdir(parents=True)
    (here.workspace / "sub/.bartack/state").write_text("x")
    state = here.workspace / "state"
    run = state / "runs/run-2"
    (run / "work").mkdir(parents=True)
    (run / "work/file").write_text("of the run")
    sources = Sources(here.workspace, run)
    copies = open_copies(state / "copies.git")

    copy = copies.take(sources, "")
    there.copies.add_pack(copies.pack(copy.commit))
    there.copies.restore(copy.commit, there.sources)

    assert [name for name, (kind, _) in listing(there.workspace).items() if kind == "file"] == [b".gitignore"]
    assert (there.run / "work/file").read_text() == "of the run"


def test_the_users_index_hooks_and_filters_are_left_alone(here: Host, tmp_path: Path) -> None:
    make_repository(here.workspace)
    trap = tmp_path / "trap"
    spring = f"touch '{trap}'; cat"
    hooks = here.workspace / ".git/hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout", "fsmonitor"):
        (hooks / name).write_text(f"#!/bin/sh\n{spring}\n")
        (hooks / name).chmod(0o755)
    for key in (
        "filter.trap.clean",
        "filter.trap.smudge",
        "filter.trap.process",
        "core.fsmonitor",
        "diff.trap.textconv",
    ):
        git(here.workspace, "config", key, spring)
    (here.workspace / ".gitattributes").write_text("* filter=trap diff=trap\n")
    (here.workspace / "new.txt").write_text("new")
    index = (here.workspace / ".git/index").read_bytes()
    refs = (here.workspace / ".git/HEAD").read_bytes()

    first = here.copies.take(here.sources, "")
    (here.workspace / "new.txt").write_text("newer")
    second = here.copies.take(here.sources, first.commit)
    here.copies.restore(first.commit, here.sources)

    assert not trap.exists()
    assert first.commit != second.commit
    assert (here.workspace / "new.txt").read_text() == "new"
    assert (here.workspace / ".git/HEAD").read_bytes() == refs
    assert (here.workspace / ".git/index").read_bytes()[:4] == index[:4]


def test_taking_a_copy_changes_nothing_in_the_repository(here: Host) -> None:
    make_repository(here.workspace)
    (here.workspace / "new.txt").write_text("new")
    before = listing(here.workspace / ".git")

    here.copies.take(here.sources, "")

    assert listing(here.workspace / ".git") == before


def test_a_submodule_is_copied_as_the_name_of_its_commit(here: Host, there: Host, tmp_path: Path) -> None:
    library = make_repository(tmp_path / "library")
    make_repository(here.workspace)
    allow = ("-c", "protocol.file.allow=always")
    git(here.workspace, *allow, "submodule", "--quiet", "add", str(library), "lib")
    git(here.workspace, "commit", "--quiet", "-m", "library")
    make_repository(here.workspace / "nested")
    (here.workspace / "unborn").mkdir()
    git(here.workspace / "unborn", "init", "--quiet", ".")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert [sentence.split(" ")[0] for sentence in copy.left_out] == ["lib", "nested", "unborn"]
    assert git(there.workspace, "ls-files", "--stage", "lib").split(" ")[0] == "160000"
    assert list((there.workspace / "lib").iterdir()) == []
    assert git(there.workspace, "status", "--porcelain") == ""
    again = there.copies.take(there.sources, copy.commit)
    assert again.is_same, again


def test_worktrees_of_tasks_come_with_their_branches(here: Host, there: Host, tmp_path: Path) -> None:
    make_repository(here.workspace)
    lane = tmp_path / "lanes here/task"
    git(here.workspace, "worktree", "add", "--quiet", "-b", "bartack/run-1/task", str(lane))
    (lane / "done.txt").write_text("done")
    git(lane, "add", "-A")
    git(lane, "commit", "--quiet", "-m", "task")
    (lane / "open.txt").write_text("open")
    sources = Sources(here.workspace, here.run, {"task": lane, "gone": tmp_path / "gone"})
    copy = here.copies.take(sources, "")
    target = Sources(there.workspace, there.run, {"task": tmp_path / "there/trees/task"})

    there.copies.add_pack(here.copies.pack(copy.commit))
    assert there.copies.lanes(copy.commit) == ("task",)
    for _ in range(2):
        there.copies.restore(copy.commit, target)

    restored = target.lanes["task"]
    assert listing(restored) == listing(lane)
    assert git(restored, "status", "--porcelain", "--branch") == "## bartack/run-1/task\n?? open.txt"
    assert git(there.workspace, "worktree", "list").count("\n") == 1
    assert git(restored, "log", "--format=%s") == "task\nbegin"
    assert there.copies.take(target, copy.commit).is_same


def test_a_large_file_is_refused_at_first_and_left_out_later(here: Host, there: Host, tmp_path: Path) -> None:
    copies = open_copies(tmp_path / "limited.git", Limits(file_bytes=100, workspace_bytes=150))
    (here.workspace / "large.bin").write_bytes(b"x" * 101)
    with pytest.raises(WorkspaceCarryError, match=r"large\.bin"):
        copies.take(here.sources, "")
    (here.workspace / "large.bin").write_bytes(b"x" * 90)
    first = copies.take(here.sources, "")
    (here.workspace / "large.bin").write_bytes(b"x" * 101)
    (here.workspace / "small.bin").write_bytes(b"y" * 80)

    second = copies.take(here.sources, first.commit)
    third = copies.take(here.sources, second.commit)

    assert second.left_out == third.left_out == ("large.bin is not copied: it has 101 bytes",)
    assert third.is_same
    there.copies.add_pack(copies.pack(second.commit))
    there.copies.restore(second.commit, there.sources)
    assert [*listing(there.workspace)] == [b"small.bin"]


def test_a_workspace_that_is_too_large_is_refused_at_first_and_cut_later(here: Host, tmp_path: Path) -> None:
    copies = open_copies(tmp_path / "limited.git", Limits(workspace_bytes=150))
    for number in range(2):
        (here.workspace / f"{number}.bin").write_bytes(b"x" * 70)
    first = copies.take(here.sources, "")
    for _ in range(5):
        (here.workspace / "0.bin").write_bytes(os.urandom(75))
        first = copies.take(here.sources, first.commit)
        assert first.left_out == ()
    (here.workspace / "2.bin").write_bytes(b"x" * 60)

    second = copies.take(here.sources, first.commit)

    assert second.left_out == ("2.bin is not copied: with it, the copy would have more than 150 bytes",)
    with pytest.raises(WorkspaceCarryError, match="205 bytes"):
        open_copies(tmp_path / "other.git", Limits(workspace_bytes=150)).take(here.sources, "")


def test_files_that_keep_changing_are_not_copied_half(here: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.workspace / "log.txt").write_text("begin")
    first = here.copies.take(here.sources, "")
    tries: list[str] = []
    real = find_git

    def grow() -> str | None:
        tries.append("git")
        with open(here.workspace / "log.txt", "a") as file:
            file.write("more")
        return real()

    monkeypatch.setattr("bartack.runtime.copies._git.find_git", grow)
    with pytest.raises(WorkspaceKeepError, match=r"change while they are read: log\.txt"):
        here.copies.take(here.sources, first.commit)
    meanwhile = here.copies.take(here.sources, first.commit, during=True)
    monkeypatch.undo()

    assert not meanwhile.is_same

    assert not here.copies.take(here.sources, first.commit).is_same


def test_a_change_that_keeps_size_and_second_is_seen(here: Host) -> None:
    file = here.workspace / "file"
    file.write_text("aaaa")
    last = here.copies.take(here.sources, "").commit
    for text in ("bbbb", "cccc", "dddd"):
        here.copies.take(here.sources, last)
        file.write_text(text)
        copy = here.copies.take(here.sources, last)
        assert not copy.is_same
        last = copy.commit


def test_files_directories_and_links_can_take_each_others_place(here: Host, there: Host) -> None:
    place = here.workspace
    (place / "a").mkdir()
    (place / "a/x").write_text("x")
    (place / "b").write_text("b")
    (place / "c").mkdir()
    (place / "c/x").write_text("x")
    first = here.copies.take(here.sources, "")
    here.send(there, first.commit)
    before = listing(place)
    (place / "a/x").unlink()
    (place / "a").rmdir()
    (place / "a").write_text("a file now")
    (place / "b").unlink()
    (place / "b").mkdir()
    (place / "b/y").write_text("below")
    (place / "d").mkdir()
    (place / "d/x").write_text("x")
    (place / "c/x").unlink()
    (place / "c").rmdir()
    (place / "c").symlink_to("d")

    second = here.copies.take(here.sources, first.commit)
    here.send(there, second.commit, first.commit)

    assert listing(there.workspace) == listing(place)
    there.copies.restore(first.commit, there.sources)
    assert listing(there.workspace) == before


def test_a_repository_above_four_folders_is_found(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "top")
    (top / "a/b").mkdir(parents=True)
    (tmp_path / "plain").mkdir()

    assert find_top(top / "a/b") == top
    assert find_top(tmp_path / "plain") == tmp_path / "plain"


def test_a_workspace_can_begin_empty(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    (here.run / "work/file").write_text("of the run")

    copy = here.copies.take(here.sources, "", carry="none")
    here.send(there, copy.commit)

    assert listing(there.workspace) == {}
    assert (there.run / "work/file").read_text() == "of the run"


def test_a_history_that_is_too_large_stays_behind(
    here: Host, there: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(here.workspace)
    (here.workspace / "second.txt").write_text("2")
    git(here.workspace, "add", "-A")
    git(here.workspace, "commit", "--quiet", "-m", "second")
    monkeypatch.setattr("bartack.runtime.copies._repository.AUTO_BYTES", 0)

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)
    (there.workspace / "third.txt").write_text("3")
    git(there.workspace, "add", "-A")
    git(there.workspace, "commit", "--quiet", "-m", "third")
    later = there.copies.take(there.sources, copy.commit)
    here.copies.add_pack(there.copies.pack(later.commit, copy.commit))
    delivered = here.copies.deliver(later.commit, here.workspace, "run-1", copy.commit)

    assert any("history" in sentence for sentence in copy.left_out)
    assert git(there.workspace, "log", "--format=%s") == "third\nsecond"
    assert git(there.workspace, "status", "--porcelain") == ""
    assert git(here.workspace, "log", "--format=%s", delivered.command.split()[-1]) == "third\nsecond\nbegin"


def test_a_part_of_a_checkout_is_refused(here: Host) -> None:
    make_repository(here.workspace)
    git(here.workspace, "config", "core.sparseCheckout", "true")

    with pytest.raises(WorkspaceCarryError, match="sparse-checkout"):
        here.copies.take(here.sources, "")


def test_a_merge_that_is_half_done_is_named(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    git(here.workspace, "switch", "--quiet", "-c", "other")
    (here.workspace / "kept.txt").write_text("other\n")
    git(here.workspace, "commit", "--quiet", "-am", "other")
    git(here.workspace, "switch", "--quiet", "main")
    (here.workspace / "kept.txt").write_text("main\n")
    git(here.workspace, "commit", "--quiet", "-am", "main")
    with pytest.raises(Exception, match="merge"):
        git(here.workspace, "merge", "other")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert [sentence.split(":")[0] for sentence in copy.left_out] == [
        "MERGE_HEAD",
        "the index is not copied",
    ]
    assert listing(there.workspace) == listing(here.workspace)


@pytest.mark.parametrize("name", ["", ".", "..", ".git", "a/b", ".GIT"])
def test_the_name_of_a_lane_is_one_component(here: Host, name: str) -> None:
    with pytest.raises(UnsafePathError):
        here.copies.take(Sources(here.workspace, here.run, {name: here.workspace}), "")


NAMES = st.sampled_from(["a", "b", "c d", "é", "x.log", "-z", "new\nline"])
LEAVES = st.one_of(
    st.binary(max_size=20),
    st.just("program"),
    st.sampled_from(["link:a", "link:../..", "link:/etc"]),
)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=4),
    lambda below: st.dictionaries(NAMES, st.one_of(LEAVES, below), max_size=4),
    max_leaves=8,
)


def plant(place: Path, tree: object) -> None:
    """Make files of a description."""
    assert isinstance(tree, dict)
    place.mkdir(exist_ok=True)
    for name, what in tree.items():  # pyright: ignore[reportUnknownVariableType] - a tree of any depth
        path = place / str(name)  # pyright: ignore[reportUnknownArgumentType] - a tree of any depth
        if isinstance(what, dict):
            plant(path, what)  # pyright: ignore[reportUnknownArgumentType] - a tree of any depth
        elif isinstance(what, bytes):
            path.write_bytes(what)
        elif what == "program":
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        else:
            path.symlink_to(str(what).removeprefix("link:"))  # pyright: ignore[reportUnknownArgumentType] - see above


@settings(max_examples=8)
@given(trees=st.lists(TREES, min_size=2, max_size=3))
def test_any_tree_is_restored_over_any_other(
    trees: list[object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("trees")
    sender, receiver = Host(place / "here"), Host(place / "there")
    parent = ""
    for number, tree in enumerate(trees):
        workspace = place / f"tree-{number}"
        plant(workspace, tree)
        copy = sender.copies.take(Sources(workspace, sender.run), parent)
        if not copy.is_same:
            receiver.copies.add_pack(sender.copies.pack(copy.commit, parent))
        receiver.copies.restore(copy.commit, receiver.sources)
        parent = copy.commit

        assert listing(receiver.workspace) == listing(workspace)
        assert receiver.copies.take(receiver.sources, parent).is_same


@pytest.mark.requirement("fleet-credentials")
def test_git_gets_nothing_that_opens_the_database_of_a_node(
    here: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node brings workspaces itself, and processes of its user can read the environment of its git."""
    real, shown = shutil.which("git"), tmp_path / "environ"
    git_that_shows = tmp_path / "bin" / "git"
    git_that_shows.parent.mkdir()
    git_that_shows.write_text(f"#!/bin/sh\nenv >> '{shown}'\nexec '{real}' \"$@\"\n")
    git_that_shows.chmod(0o755)
    monkeypatch.setenv("PATH", str(git_that_shows.parent), prepend=os.pathsep)
    for name in ("PGPASSWORD", "PGSERVICEFILE", "BARTACK_ON", "BARTACK_DEPOT_ON"):
        monkeypatch.setenv(name, "secret-of-the-node")

    here.copies.take(here.sources, "")

    assert "GIT_DIR=" in shown.read_text()
    assert "secret-of-the-node" not in shown.read_text()
