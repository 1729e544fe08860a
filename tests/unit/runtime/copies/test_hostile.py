"""Copies that were made to do harm: nothing is written outside of the directories that they are restored into."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.unit.runtime.copies.places import Host, git, listing, make_repository

from bartack.errors import UnsafePathError, WorkspaceKeepError
from bartack.runtime.copies._meta import FORMAT, META, Checkout, Meta, TreeMeta, encode_meta
from bartack.runtime.copies._objects import FILE, TREE, Item, ObjectWriter
from bartack.runtime.copies._writer import TreeWriter


def forge(
    host: Host,
    items: Callable[[ObjectWriter], list[Item]],
    *,
    run: Callable[[ObjectWriter], list[Item]] = lambda _: [],
    change: Callable[[Meta], Meta] = lambda meta: meta,
) -> str:
    """A copy whose trees git would not have made."""
    write = ObjectWriter(host.copies.directory)
    trees = {"workspace": write.tree(items(write)), "run": write.tree(run(write))}
    meta = change(Meta(FORMAT, {name: TreeMeta(tree) for name, tree in trees.items()}))
    root = [Item(name, TREE, tree) for name, tree in trees.items()]
    return write.commit(write.tree([*root, Item(META, FILE, write.blob(encode_meta(meta)))]), "Copy")


def below(*names: str, mode: str = FILE, content: bytes = b"harm") -> Callable[[ObjectWriter], list[Item]]:
    """One file below directories with these names."""

    def make(write: ObjectWriter) -> list[Item]:
        item = Item(names[-1], mode, write.blob(content))
        for name in reversed(names[:-1]):
            item = Item(name, TREE, write.tree([item]))
        return [item]

    return make


@pytest.mark.parametrize(
    "items",
    [
        below("..", "harm"),
        below("a", "..", "..", "harm"),
        below(".git", "config"),
        below(".GIT", "config"),
        below("a", ".g\u200cit", "hooks", "post-checkout"),
        below(".bartack", "runs"),
        below("."),
        below(".git", mode="120000", content=b"/elsewhere"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_written(
    there: Host, items: Callable[[ObjectWriter], list[Item]], tmp_path: Path
) -> None:
    commit = forge(there, lambda write: [*items(write), Item("good", FILE, write.blob(b"good"))])
    (there.workspace / "mine.txt").write_text("mine")

    for attempt in (
        lambda: there.copies.restore(commit, there.sources),
        lambda: there.copies.write_files(commit, tmp_path / "files"),
        lambda: there.copies.deliver(commit, make_repository(tmp_path / "theirs"), "run-1"),
    ):
        with pytest.raises(UnsafePathError):
            attempt()

    assert listing(there.workspace) == {b"mine.txt": ("file", b"mine")}
    assert not (tmp_path / "files").exists()


def test_nothing_is_written_through_a_link(there: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def items(write: ObjectWriter) -> list[Item]:
        inner = write.tree([Item("harm", FILE, write.blob(b"harm"))])
        return [Item("a", "120000", write.blob(os.fsencode(outside))), Item("a", TREE, inner)]

    commit = forge(there, items)

    with suppress(WorkspaceKeepError):  # one name cannot be both
        there.copies.restore(commit, there.sources)
    assert list(outside.iterdir()) == []


def test_a_link_that_is_in_the_way_is_replaced(there: Host, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (there.workspace / ".gitignore").write_text("build\n")
    (there.workspace / "build").symlink_to(outside)
    (there.workspace / "file").symlink_to(outside / "made")
    (there.run / "agents").symlink_to(outside)
    commit = forge(
        there,
        lambda write: [*below("build", "x")(write), *below("file")(write)],
        run=below("agents", "claude", "x"),
    )

    there.copies.restore(commit, there.sources)

    assert list(outside.iterdir()) == []
    assert (there.workspace / "build/x").read_bytes() == b"harm"
    assert (there.run / "agents/claude/x").read_bytes() == b"harm"


def test_of_a_run_only_its_own_folders_are_written(there: Host) -> None:
    commit = forge(there, lambda _: [], run=below("journal.ndjson"))

    with pytest.raises(UnsafePathError, match=r"journal\.ndjson"):
        there.copies.restore(commit, there.sources)


def with_tree(meta: Meta, **facts: object) -> Meta:
    workspace = msgspec.structs.replace(meta.trees["workspace"], **facts)
    return msgspec.structs.replace(meta, trees={**meta.trees, "workspace": workspace})


ELSEWHERE: list[Callable[[Meta], Meta]] = [
    lambda meta: msgspec.structs.replace(meta, refs={"refs/heads/../../config": "0" * 40}),
    lambda meta: msgspec.structs.replace(meta, refs={"HEAD": "0" * 40}),
    lambda meta: msgspec.structs.replace(meta, refs={"refs/heads/a": "--output=x"}),
    lambda meta: msgspec.structs.replace(meta, shallow=("../x",)),
    lambda meta: with_tree(meta, empty=("../outside",)),
    lambda meta: with_tree(meta, empty=("a/%2E%2E/%2E%2E/outside",)),
    lambda meta: with_tree(meta, checkout=Checkout(head="/etc/passwd")),
    lambda meta: with_tree(meta, tree="--help"),
    lambda meta: msgspec.structs.replace(meta, trees={**meta.trees, "lanes/..": meta.trees["run"]}),
    lambda meta: msgspec.structs.replace(meta, trees={**meta.trees, "elsewhere": meta.trees["run"]}),
]


@pytest.mark.parametrize("change", ELSEWHERE)
def test_a_description_that_leads_elsewhere_is_refused(there: Host, change: Callable[[Meta], Meta]) -> None:
    commit = forge(there, below("file"), change=change)

    with pytest.raises(UnsafePathError):
        there.copies.restore(commit, there.sources)
    assert listing(there.workspace) == {}


UNKNOWN: list[Callable[[Meta], Meta]] = [
    lambda meta: msgspec.structs.replace(meta, format=2),
    lambda meta: msgspec.structs.replace(meta, trees={"workspace": meta.trees["workspace"]}),
]


@pytest.mark.parametrize("change", UNKNOWN)
def test_a_copy_of_another_kind_is_refused(there: Host, change: Callable[[Meta], Meta]) -> None:
    with pytest.raises(WorkspaceKeepError):
        there.copies.restore(forge(there, below("file"), change=change), there.sources)


def test_a_repository_that_leads_elsewhere_is_made_anew(here: Host, there: Host, tmp_path: Path) -> None:
    make_repository(here.workspace)
    copy = here.copies.take(here.sources, "")
    there.copies.add_pack(here.copies.pack(copy.commit))
    victim = make_repository(tmp_path / "victim")
    before = listing(victim / ".git")
    traps: list[Callable[[Path], object]] = [
        lambda place: (place / ".git").symlink_to(victim / ".git"),
        lambda place: (place / ".git").write_text(f"gitdir: {victim}/.git\n"),
        lambda place: trap_refs(place, victim),
        lambda place: (
            shutil.copytree(victim / ".git", place / ".git"),
            (place / ".git/commondir").write_text(str(victim / ".git")),
        ),
        lambda place: (place / ".git").mkdir(),
    ]

    for trap in traps:
        shutil.rmtree(there.workspace)
        there.workspace.mkdir()
        trap(there.workspace)
        there.copies.restore(copy.commit, there.sources)
        assert git(there.workspace, "rev-parse", "HEAD") == copy.head
        assert git(there.workspace, "rev-parse", "--git-common-dir") == ".git"
        assert listing(victim / ".git") == before


def trap_refs(place: Path, victim: Path) -> None:
    shutil.copytree(victim / ".git", place / ".git")
    shutil.rmtree(place / ".git/refs/heads")
    (place / ".git/refs/heads").symlink_to(victim / ".git/refs/heads")


@pytest.mark.parametrize("stop_at", [0, 1, 2, 5, 9])
def test_an_interrupted_restore_is_repeated(
    here: Host, there: Host, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    make_repository(here.workspace)
    for number in range(8):
        (here.workspace / f"folder-{number}").mkdir()
        (here.workspace / f"folder-{number}/file").write_text(str(number))
    copy = here.copies.take(here.sources, "")
    there.copies.add_pack(here.copies.pack(copy.commit))
    for number in range(9, 12):
        (there.workspace / f"extra-{number}").mkdir()
        (there.workspace / f"extra-{number}/file").write_text("extra")
    stops = iter([False] * stop_at + [True] * 99)
    real = os.rename

    def rename(*words: object, **more: object) -> None:
        if next(stops):
            raise KeyboardInterrupt
        real(*words, **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - forwarded as given

    monkeypatch.setattr("bartack.runtime.copies._writer.os.rename", rename)
    with pytest.raises(KeyboardInterrupt):
        there.copies.restore(copy.commit, there.sources)
    monkeypatch.undo()
    (there.workspace / ".git").mkdir()
    (there.workspace / ".git/HEAD.lock").write_text("")

    there.copies.restore(copy.commit, there.sources)

    assert listing(there.workspace) == listing(here.workspace)
    assert git(there.workspace, "status", "--porcelain") == git(here.workspace, "status", "--porcelain")
    assert not (there.workspace / ".git/HEAD.lock").exists()


def test_locks_of_a_killed_git_are_removed(here: Host, there: Host) -> None:
    make_repository(here.workspace)
    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)
    locks = [there.workspace / ".git" / name for name in ("HEAD.lock", "index.lock", "refs/heads/main.lock")]
    for lock in locks:
        lock.write_text("")

    there.copies.restore(copy.commit, there.sources)

    assert [lock for lock in locks if lock.exists()] == []


def test_ignored_files_stay_and_others_go(here: Host, there: Host) -> None:
    (here.workspace / ".gitignore").write_text("cache/\n")
    (here.workspace / "kept").write_text("kept")
    copy = here.copies.take(here.sources, "")
    (there.workspace / ".gitignore").write_text("cache/\n")
    (there.workspace / "cache").mkdir()
    (there.workspace / "cache/big").write_text("made by setup")
    (there.workspace / "extra/below").mkdir(parents=True)
    (there.workspace / "extra/below/file").write_text("extra")
    (there.workspace / "hollow/below").mkdir(parents=True)

    here.send(there, copy.commit)

    assert [*listing(there.workspace)] == [b"cache", b".gitignore", b"kept", b"cache/big"]


def test_the_writer_replaces_what_is_in_the_way(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "a/b").mkdir(parents=True)
    (place / "a/b/ignored").write_text("x")
    with TreeWriter(place) as writer:
        writer.write(b"a", b"100755", b"program")
        writer.write(b"b/c/d", b"120000", b"target")
        writer.write(b"b", b"100644", b"file")
        writer.remove(b"missing/file")
        writer.make_folder(b"e/f")
        writer.remove_folders([b"e/f"])

    assert listing(place) == {b"a": ("program", b"program"), b"b": ("file", b"file")}
