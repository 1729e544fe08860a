"""What agents leave in a workspace and no person would: it stops neither copies nor the machine that restores them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.runtime.copies.places import Host, git, listing, make_repository

from bartack.errors import WorkspaceCarryError
from bartack.runtime.copies.copies import open_copies
from bartack.runtime.copies.values import Limits, Sources


def begin(place: Path) -> None:
    make_repository(place)
    (place / "folder").mkdir()
    (place / "folder/file").write_text("file")


# Files.


@pytest.mark.parametrize("path", [".GIT/config", "below/.g\u200cit/config", ".Bartack/state", ".GIT"])
@pytest.mark.parametrize("include", [[], ["config", "state"]], ids=["ignoring", "including"])
def test_a_name_that_would_be_refused_is_left_out(
    here: Host, there: Host, tmp_path: Path, path: str, include: list[str]
) -> None:
    begin(here.workspace)
    expected = listing(here.workspace)
    (here.workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (here.workspace / path).write_text("odd")
    copies = open_copies(tmp_path / "copies.git", include=include)

    copy = copies.take(here.sources, "")
    there.copies.add_pack(copies.pack(copy.commit))
    there.copies.restore(copy.commit, there.sources)

    (sentence,) = copy.left_out
    assert sentence.startswith(f"{path} has a name that is never copied")
    assert listing(there.workspace) == expected


def test_directories_with_such_a_name_are_left_out(here: Host, there: Host) -> None:
    (here.workspace / "below/.Bartack").mkdir(parents=True)

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert listing(there.workspace) == {}


def test_a_file_that_becomes_a_pipe_is_left_out(here: Host, there: Host) -> None:
    begin(here.workspace)
    first = here.copies.take(here.sources, "")
    here.send(there, first.commit)
    for host in (here, there):
        for name in ("kept.txt", "folder/file"):
            (host.workspace / name).unlink()
            os.mkfifo(host.workspace / name)

    second = here.copies.take(here.sources, first.commit)
    there.copies.restore(first.commit, there.sources)

    why = "is not copied: it is not a file, a link or a directory"
    assert second.left_out == (f"folder/file {why}", f"kept.txt {why}")
    assert (there.workspace / "folder/file").read_text() == "file"


def test_a_directory_that_cannot_be_read_is_named(here: Host, there: Host) -> None:
    begin(here.workspace)
    expected = listing(here.workspace)
    name = "d" * 200
    folder = os.open(here.workspace, os.O_RDONLY)
    for _ in range(25):  # its path is longer than any that the system takes
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    (sentence,) = copy.left_out
    assert sentence.startswith(f"{name}/{name}")
    assert sentence.endswith("is not copied: it cannot be read")
    assert listing(there.workspace) == expected


def test_directories_are_opened_to_be_restored(here: Host, there: Host) -> None:
    begin(here.workspace)
    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)
    (there.workspace / "folder/file").write_text("other")
    (there.workspace / "folder/extra").write_text("extra")
    (there.workspace / "folder").chmod(0o500)

    there.copies.restore(copy.commit, there.sources)

    assert listing(there.workspace) == listing(here.workspace)
    assert (there.workspace / "folder").stat().st_mode & 0o700 == 0o700


def test_files_that_were_ignored_before_are_removed_if_the_copy_does_not_ignore_them(
    here: Host, there: Host
) -> None:
    begin(here.workspace)
    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)
    for folder, ignored in ((there.workspace, "cache/"), (there.workspace / "cache/below", "x")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text(f"{ignored}\n")
        (folder / "x").write_text("ignored")

    there.copies.restore(copy.commit, there.sources)

    assert listing(there.workspace) == listing(here.workspace)
    assert there.copies.take(there.sources, copy.commit).is_same


# Names that are not text.


def test_names_that_are_not_text_are_shown_as_text(here: Host, there: Host, tmp_path: Path) -> None:
    begin(here.workspace)
    odd = os.fsdecode(b"n\xff")
    git(here.workspace, "init", "--quiet", odd)
    head = git(here.workspace, "rev-parse", "HEAD")
    (here.workspace / ".git/refs/heads" / odd).write_text(f"{head}\n")
    git(here.workspace, "symbolic-ref", "HEAD", f"refs/heads/{odd}")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert json.loads(msgspec.json.encode(copy.left_out)) == [
        "n\\xff is a repository without a commit and is not copied",
        "HEAD: refs/heads/n\\xff is not copied, only its commit",
        "refs/heads/n\\xff: a reference whose name is not text is not copied",
    ]
    assert copy.refs.keys() == {"refs/heads/main"}
    assert git(there.workspace, "rev-parse", "HEAD") == head
    (here.workspace / odd / "large").write_bytes(b"x" * 101)
    shutil.rmtree(here.workspace / odd / ".git")
    limited = open_copies(tmp_path / "limited.git", Limits(file_bytes=100))
    with pytest.raises(WorkspaceCarryError, match=r"n\\xff/large"):
        limited.take(here.sources, "")


def test_a_workspace_whose_path_is_not_text_is_copied(there: Host, tmp_path: Path) -> None:
    here = Host(tmp_path / os.fsdecode(b"here\xff"))
    begin(here.workspace)

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert listing(there.workspace) == listing(here.workspace)
    assert here.copies.take(here.sources, copy.commit).is_same


# Repositories.


def test_a_head_that_is_not_a_branch_is_copied_as_its_commit(here: Host, there: Host) -> None:
    begin(here.workspace)
    git(here.workspace, "update-ref", "refs/odd/name", "HEAD")
    git(here.workspace, "symbolic-ref", "HEAD", "refs/odd/name")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert copy.left_out == ("HEAD: refs/odd/name is not copied, only its commit",)
    assert git(there.workspace, "rev-parse", "HEAD") == copy.head
    assert there.copies.take(there.sources, copy.commit).is_same


def test_changes_that_were_put_aside_are_named(here: Host) -> None:
    begin(here.workspace)
    (here.workspace / "kept.txt").write_text("aside\n")
    git(here.workspace, "stash", "--quiet")

    copy = here.copies.take(here.sources, "")

    assert copy.left_out == ("refs/stash: changes that were put aside by 'git stash' are not copied",)


def test_a_repository_inside_with_other_names_is_named(here: Host, there: Host) -> None:
    begin(here.workspace)
    git(here.workspace, "init", "--quiet", "--object-format=sha256", "nested")
    (here.workspace / "nested/file").write_text("nested")
    git(here.workspace / "nested", "add", "-A")
    git(here.workspace / "nested", "commit", "--quiet", "-m", "nested")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert copy.left_out == ("nested is a repository with names of sha256 and is not copied",)
    assert (there.workspace / "folder/file").read_text() == "file"


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_directory_that_only_looks_like_a_repository_is_one_like_others(
    here: Host, there: Host, *, is_folder: bool
) -> None:
    begin(here.workspace)
    (here.workspace / "looks/below").mkdir(parents=True)
    for name in ("looks/file", "looks/below/file"):
        (here.workspace / name).write_text(name)
    if is_folder:
        (here.workspace / "looks/.git").mkdir()
    else:
        (here.workspace / "looks/.git").write_text("odd")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert copy.left_out == ()
    assert listing(there.workspace) == listing(here.workspace)


def test_a_repository_elsewhere_in_a_path_with_a_line_break_is_not_copied(here: Host, tmp_path: Path) -> None:
    begin(here.workspace)
    (here.workspace / ".git").rename(tmp_path / "two\nlines")
    (here.workspace / ".git").write_text(f"gitdir: {tmp_path}/two\nlines\n")

    copy = here.copies.take(here.sources, "")

    assert copy.left_out == (
        "the repository is not copied, only the files: the path of its repository has a line break",
    )


def test_objects_in_a_path_with_a_colon_are_copied(here: Host, there: Host, tmp_path: Path) -> None:
    begin(here.workspace)
    objects = here.workspace / ".git/objects"
    shutil.move(objects, tmp_path / "more: objects")
    (objects / "info").mkdir(parents=True)
    (objects / "info/alternates").write_text(f"{tmp_path}/more: objects\n")

    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)

    assert git(there.workspace, "fsck", "--strict") == ""
    assert git(there.workspace, "rev-parse", "HEAD") == copy.head


def corrupt_objects(own: Path) -> None:
    for file in [path for path in (own / "objects").rglob("*") if path.is_file()]:
        file.chmod(0o600)
        file.write_text("damaged")


def index_as_a_folder(own: Path) -> None:
    (own / "index").unlink()
    (own / "index/below").mkdir(parents=True)


DAMAGES: list[Callable[[Path], object]] = [
    lambda own: (own / "config").write_text("[[["),
    lambda own: (own / "HEAD").write_text("odd"),
    lambda own: (own / "packed-refs").write_text("odd"),
    lambda own: (own / "refs/heads/main").write_text("odd"),
    lambda own: git(own, "config", "core.repositoryFormatVersion", "99"),
    lambda own: (own / "shallow").write_text("odd"),
    corrupt_objects,
    index_as_a_folder,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_repository_that_was_damaged_is_made_anew(
    here: Host, there: Host, damage: Callable[[Path], object]
) -> None:
    begin(here.workspace)
    copy = here.copies.take(here.sources, "")
    here.send(there, copy.commit)
    damage(there.workspace / ".git")

    there.copies.restore(copy.commit, there.sources)

    assert git(there.workspace, "rev-parse", "HEAD") == copy.head
    assert git(there.workspace, "status", "--porcelain") == "?? folder/"
    assert git(there.workspace, "fsck", "--strict") == ""
    assert there.copies.take(there.sources, copy.commit).is_same


def test_a_repository_without_its_history_gets_it_from_a_copy_that_has_it(
    here: Host, there: Host, tmp_path: Path
) -> None:
    begin(here.workspace)
    git(here.workspace, "commit", "--quiet", "--allow-empty", "-m", "second")
    copy = here.copies.take(here.sources, "")
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{here.workspace}", "clone")
    (tmp_path / "clone/.git").rename(there.workspace / ".git")

    here.send(there, copy.commit)

    assert git(there.workspace, "log", "--format=%s") == "second\nbegin"


# Commands that a repository names.

PROGRAMS = (
    "core.fsmonitor",
    "core.sshCommand",
    "core.gitProxy",
    "core.pager",
    "core.alternateRefsCommand",
    "credential.helper",
    "diff.external",
    "diff.trap.command",
    "diff.trap.textconv",
    "filter.trap.clean",
    "filter.trap.smudge",
    "filter.trap.process",
    "merge.trap.driver",
    "gpg.program",
    "uploadpack.packObjectsHook",
    "remote.origin.uploadpack",
    "alias.rev-parse",
    "alias.ls-files",
)


def test_no_command_of_a_repository_is_executed(here: Host, there: Host, tmp_path: Path) -> None:
    begin(here.workspace)
    trap = tmp_path / "trap"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction", "pre-auto-gc", "post-checkout"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{trap}'\n")
        (hooks / name).chmod(0o755)
    included = "".join(
        f"[{name.rpartition('.')[0].replace('.', chr(32) + chr(34), 1)}{chr(34) if name.count('.') > 1 else ''}]\n"
        f"{name.rpartition('.')[2]} = touch '{trap}'\n"
        for name in PROGRAMS
    )
    (tmp_path / "included").write_text(f"{included}[core]\nhooksPath = {hooks}\n")
    git(here.workspace, "config", "include.path", str(tmp_path / "included"))
    git(here.workspace, "config", "remote.origin.url", f"ext::sh -c touch% {trap}")
    git(here.workspace, "config", "remote.origin.promisor", "true")
    git(here.workspace, "config", "extensions.partialClone", "origin")
    git(here.workspace, "config", "protocol.ext.allow", "always")
    (here.workspace / ".gitattributes").write_text("* filter=trap diff=trap merge=trap text eol=crlf ident\n")
    (here.workspace / "lines").write_bytes(b"one\r\n$Id$\n")
    shutil.copytree(here.workspace / ".git", here.workspace / "nested/.git")
    sources = Sources(here.workspace, here.run)

    first = here.copies.take(sources, "")
    (here.workspace / "lines").write_bytes(b"two\r\n$Id$\n")
    second = here.copies.take(sources, first.commit)
    here.copies.restore(first.commit, sources)
    here.copies.deliver(second.commit, here.workspace, "run-1", first.commit)
    here.send(there, second.commit)

    assert not trap.exists()
    assert (here.workspace / "lines").read_bytes() == b"one\r\n$Id$\n"
    assert (there.workspace / "lines").read_bytes() == b"two\r\n$Id$\n"
