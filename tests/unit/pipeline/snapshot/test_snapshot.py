"""Snapshots: the same tree has the same id, and nothing that changed is missed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from bartack.errors import ManifestError, SnapshotReadError, SnapshotUnstableError
from bartack.pipeline.snapshot import snapshot as under_test
from bartack.pipeline.snapshot.listing import SnapshotOptions
from bartack.pipeline.snapshot.manifest import verify_manifest, write_manifest
from bartack.pipeline.snapshot.snapshot import capture
from bartack.runtime.rundir.snapshots import FileEntry, compare, read_manifest, snapshot_id

LONG_AGO_NS = 1_600_000_000 * 10**9
COMMIT = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
Make = Callable[[Mapping[str, bytes]], Path]


def git(place: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", *words],
        cwd=place,
        check=True,
        capture_output=True,
    )


@pytest.fixture(params=["git", "roots"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def make_tree(files: Mapping[str, bytes]) -> Path:
        place = tmp_path / f"tree{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        fill(place, files)
        if request.param == "git":
            git(place, "init", "-q")
        return place

    return make_tree


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    place.mkdir()
    git(place, "init", "-q")
    return place


def fill(place: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)


def paths(place: Path, options: SnapshotOptions | None = None) -> list[bytes]:
    return [entry.path for entry in capture(place, options).files]


S3 = {"README.md": b"hello\n", "src/main.py": b"print(1)\n"}


@pytest.mark.parametrize(
    ("files", "id_"),
    [
        ({}, "snap-0f4c6796ed28"),
        ({"a.txt": b""}, "snap-d0fc0e474fe3"),
        (S3, "snap-7e991e837a4d"),
        (
            {"a/b": b"1", "a-b": b"2", "a.b": b"3", "é.txt": b"4", "Z": b"5", "sp ace\n.txt": b"6"},
            "snap-15a980f8a0bc",
        ),
    ],
)
def test_a_tree_has_the_id_that_it_has_everywhere(make: Make, files: dict[str, bytes], id_: str) -> None:
    assert capture(make(files)).id == id_


def test_the_owner_s_execute_bit_and_links_are_part_of_the_tree(make: Make) -> None:
    place = make(S3)
    (place / "src/main.py").chmod(0o755)
    assert capture(place).id == "snap-3db0dfa4e65d"

    (place / "link").symlink_to("src/main.py")
    assert capture(place).id == "snap-c5e641366c92"


def test_names_that_are_no_text_and_submodules_have_their_place() -> None:
    binary = FileEntry(b"bad\xff.bin", "100644", 2, sha256(b"\0\1").hexdigest())
    module = FileEntry(b"vendor/lib", "160000", 40, sha256(COMMIT.encode()).hexdigest())

    assert snapshot_id([module, binary]) == "snap-cda08b6c7cc9"


def test_times_modes_of_others_and_the_order_of_creation_do_not_matter(make: Make) -> None:
    first, second = make(S3), make(dict(reversed(S3.items())))
    (second / "README.md").chmod(0o666)
    os.utime(second / "README.md", (1, 1))

    assert capture(first).id == capture(second).id


def test_dangling_and_circular_links_and_links_to_directories_are_links(make: Make) -> None:
    place = make({"d/f": b"x"})
    (place / "dangling").symlink_to("nowhere")
    (place / "loop").symlink_to("loop")
    (place / "folder").symlink_to("d")

    modes = {entry.path: entry.mode for entry in capture(place).files}

    assert modes == {b"d/f": "100644", b"dangling": "120000", b"folder": "120000", b"loop": "120000"}


def test_a_pipe_is_left_out_with_a_note(make: Make) -> None:
    place = make({"f": b"x"})
    os.mkfifo(place / "pipe")

    found = capture(place)

    assert [entry.path for entry in found.files] == [b"f"]
    # Git does not list pipes at all.
    assert found.notes in {(), ("pipe: neither a file nor a link, left out",)}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_cannot_be_read_is_named(make: Make) -> None:
    place = make({"secret": b"x"})
    (place / "secret").chmod(0)

    with pytest.raises(SnapshotReadError, match="secret"):
        capture(place)


def test_what_git_ignores_and_its_own_files_are_left_out(repository: Path) -> None:
    fill(
        repository,
        {".gitignore": b"*.log\n", "a.log": b"x", "b": b"x", ".bartack/runs/r": b"x", "d/.bartack/x": b"x"},
    )

    assert paths(repository) == [b".gitignore", b"b"]


def test_an_ignored_file_can_be_brought_back_and_any_file_left_out(repository: Path) -> None:
    fill(repository, {".gitignore": b"*.log\n", "a.log": b"x", "b.log": b"x", "docs/c": b"x", "d": b"x"})

    assert paths(repository, SnapshotOptions(include=("a.*",), exclude=("docs/",))) == [
        b".gitignore",
        b"a.log",
        b"d",
    ]


def test_only_ignore_files_in_the_tree_count_unless_asked(repository: Path) -> None:
    fill(repository, {"mine.txt": b"x", "b": b"x"})
    (repository / ".git/info/exclude").write_text("mine.txt\n")

    assert paths(repository) == [b"b", b"mine.txt"]
    assert paths(repository, SnapshotOptions(ignore="git")) == [b"b"]


def test_a_tracked_file_that_is_gone_or_below_a_link_is_left_out(repository: Path) -> None:
    fill(repository, {"a": b"x", "d/b": b"x", "e/b": b"x"})
    git(repository, "add", "-A")
    (repository / "a").unlink()
    (repository / "d/b").unlink()
    (repository / "d").rmdir()
    (repository / "d").symlink_to("e")

    assert paths(repository) == [b"d", b"e/b"]


def test_an_unmerged_path_counts_once(repository: Path) -> None:
    fill(repository, {"f": b"base\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "base")
    git(repository, "checkout", "-qb", "other")
    fill(repository, {"f": b"theirs\n"})
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "-")
    fill(repository, {"f": b"ours\n"})
    git(repository, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")

    assert paths(repository) == [b"f"]


def test_a_repository_below_is_one_entry_and_one_without_a_commit_is_noted(make: Make) -> None:
    place = make({"f": b"x", "lib/g": b"x", "new/h": b"x"})
    git(place / "lib", "init", "-q")
    git(place / "lib", "add", "-A")
    git(place / "lib", "commit", "-qm", "first")
    git(place / "new", "init", "-q")

    found = capture(place)

    assert [(entry.path, entry.mode) for entry in found.files] == [(b"f", "100644"), (b"lib", "160000")]
    assert found.notes == ("new: a repository without a commit was left out",)


def test_a_directory_of_a_repository_can_be_the_workspace(repository: Path) -> None:
    fill(repository, {"top": b"x", "sub/.gitignore": b"i\n", "sub/a": b"x", "sub/i": b"x"})

    assert paths(repository / "sub") == [b".gitignore", b"a"]


def test_outside_git_the_usual_heaps_are_left_out(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"a.py": b"", "node_modules/x/y.js": b"", "p/__pycache__/a.pyc": b"", ".hidden": b"", "b.pyc": b""},
    )

    assert paths(tmp_path) == [b".hidden", b"a.py"]
    assert paths(tmp_path, SnapshotOptions(roots=("p", "node_modules"), include=("*.js",))) == [
        b"node_modules/x/y.js"
    ]


@pytest.mark.parametrize("root", ["../elsewhere", "/etc"])
def test_a_root_outside_the_workspace_is_refused(tmp_path: Path, root: str) -> None:
    with pytest.raises(SnapshotReadError, match="inside the workspace"):
        capture(tmp_path, SnapshotOptions(roots=(root,), source="roots"))


# The cache.


class Reads:
    """Counts the files that are opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._hash = under_test._hash
        monkeypatch.setattr(under_test, "_hash", self._count)

    def _count(self, path: bytes) -> tuple[os.stat_result, bytes]:
        self.count += 1
        return self._hash(path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def age(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on it is long after all the files were written."""
    monkeypatch.setattr("bartack.pipeline.snapshot._statcache.GRAIN_NS", -(10**9) * 3600)


def test_what_has_not_changed_is_not_opened(
    make: Make, reads: Reads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, cache = make(S3), tmp_path / "cache/stat-1"
    (place / "link").symlink_to("README.md")
    age(cache, monkeypatch)
    first = capture(place, cache=cache)
    kept = cache.read_bytes()
    read_first = reads.count

    again = capture(place, cache=cache)

    assert (read_first, reads.count) == (2, 2)
    assert (again.id, again.files) == (first.id, first.files)
    assert cache.read_bytes() == kept


def test_nothing_is_written_where_no_file_has_to_be_read(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, cache = make(S3), tmp_path / "cache/stat-1"
    age(cache, monkeypatch)
    capture(place, cache=cache)
    before = {path.name: path.stat().st_mtime_ns for path in cache.parent.iterdir()}

    capture(place, cache=cache)

    assert {path.name: path.stat().st_mtime_ns for path in cache.parent.iterdir()} == before
    assert before.keys() == {"clock", "stat-1"}


def test_a_file_that_was_written_a_moment_ago_is_read_again(make: Make, reads: Reads, tmp_path: Path) -> None:
    place, cache = make({"f": b"one"}), tmp_path / "cache/stat-1"
    first = capture(place, cache=cache)
    facts = (place / "f").stat()
    (place / "f").write_bytes(b"two")
    os.utime(place / "f", ns=(facts.st_atime_ns, facts.st_mtime_ns))

    assert capture(place, cache=cache).id != first.id
    assert reads.count == 2


def add(place: Path) -> None:
    (place / "new").write_bytes(b"")


def remove(place: Path) -> None:
    (place / "README.md").unlink()


def edit(place: Path) -> None:
    (place / "README.md").write_bytes(b"hellO\n")


def make_executable(place: Path) -> None:
    (place / "README.md").chmod(0o755)


def rename(place: Path) -> None:
    (place / "src").rename(place / "lib")


@pytest.mark.parametrize("change", [add, remove, edit, make_executable, rename])
def test_every_change_shows_although_there_is_a_cache(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    place, cache = make(S3), tmp_path / "cache/stat-1"
    age(cache, monkeypatch)
    before = capture(place, cache=cache)
    capture(place, cache=cache)

    change(place)

    found = capture(place, cache=cache)
    assert found.id != before.id
    assert found.id == capture(place).id


def test_content_that_changed_under_restored_times_shows(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, cache = make({"f": b"one"}), tmp_path / "cache/stat-1"
    age(cache, monkeypatch)
    before = capture(place, cache=cache)
    facts = (place / "f").stat()
    (place / "f").write_bytes(b"two")
    os.utime(place / "f", ns=(facts.st_atime_ns, facts.st_mtime_ns))

    assert capture(place, cache=cache).id != before.id


def test_a_damaged_cache_is_made_anew(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, cache = make(S3), tmp_path / "cache/stat-1"
    age(cache, monkeypatch)
    cache.parent.mkdir()
    cache.write_bytes(b"\xff\x00 nothing of the kind")

    assert capture(place, cache=cache).id == capture(place).id
    assert capture(place, cache=cache).id == capture(place).id


def test_a_file_that_somebody_writes_all_the_time_is_named(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make({"log": b"x"})
    real_read = os.read

    def read_and_write(fd: int, size: int) -> bytes:
        data = real_read(fd, size)
        with (place / "log").open("ab") as file:
            file.write(b"more")
        return data

    monkeypatch.setattr(os, "read", read_and_write)

    with pytest.raises(SnapshotUnstableError, match="log changes"):
        capture(place)


@pytest.mark.skipif(sys.platform == "darwin", reason="names are composed there anyway")
def test_a_name_is_taken_as_the_file_system_gives_it(make: Make) -> None:
    composed, decomposed = make({"\u00e9": b""}), make({"e\u0301": b""})

    assert capture(composed).id != capture(decomposed).id


# Comparing and keeping.


def test_a_comparison_names_what_was_added_deleted_and_changed(make: Make) -> None:
    place = make({"a": b"1", "b": b"1", "c": b"1", "same": b"1"})
    before = capture(place).files
    (place / "a").unlink()
    (place / "b").write_bytes(b"2")
    (place / "c").chmod(0o755)
    (place / "d").write_bytes(b"1")

    changes = compare(before, capture(place).files)

    assert [(change.path, change.change) for change in changes] == [
        (b"a", "deleted"),
        (b"b", "modified"),
        (b"c", "mode"),
        (b"d", "added"),
    ]


def test_a_manifest_is_one_line_a_file_and_is_written_once(make: Make, tmp_path: Path) -> None:
    place = make({"a.txt": b""})
    path = write_manifest(tmp_path / "snapshots", capture(place), "2026-11-15T09:14:02.000000Z")
    text = path.read_text()

    assert path.name == "snap-d0fc0e474fe3.manifest.json"
    assert len(text.splitlines()) == 3
    assert '"path":"a.txt","mode":"100644","size":0' in text.splitlines()[1]
    assert write_manifest(tmp_path / "snapshots", capture(place), "later").read_text() == text
    assert verify_manifest(path) == "snap-d0fc0e474fe3"


def test_a_manifest_keeps_names_that_are_no_text(make: Make, tmp_path: Path) -> None:
    place = make({})
    with open(os.fsencode(place) + b"/bad\xff.bin", "wb") as file:
        file.write(b"x")
    found = capture(place)

    path = write_manifest(tmp_path / "snapshots", found, "now")

    assert read_manifest(path) == (found.id, list(found.files))
    assert "path_b64" in path.read_text()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"size":0', '"size":1', "but its files are"),
        ('"mode":"100644"', '"mode":"777"', "without a path, a mode"),
        ('{"schema"', "{schema", "malformed"),
    ],
)
def test_a_manifest_that_was_changed_is_found_out(
    make: Make, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    path = write_manifest(tmp_path / "snapshots", capture(make({"a.txt": b""})), "now")
    path.write_text(path.read_text().replace(old, new, 1))

    with pytest.raises(ManifestError, match=problem):
        verify_manifest(path)
