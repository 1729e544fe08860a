"""Atomic replacement of files: on a disk that fails, and by many processes at once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bartack.core.disk import FILE_MODE, RealDisk
from bartack.core.files import make_file, replace_file, write_file
from bartack.testing import FaultyDisk, PowerCut

OLD = b"old content"
NEW = b"new content"


class _Recorder(RealDisk):
    """The real disk, which notes what is done to it and fails at one operation on demand."""

    def __init__(self, fail_at: str = "", short: int | None = None) -> None:
        self.done: list[str] = []
        self._fail_at = fail_at
        self._short = short

    def _note(self, operation: str) -> None:
        self.done.append(operation)
        if operation == self._fail_at:
            raise OSError(5, "no")

    def write(self, fd: int, data: bytes, offset: int) -> int:
        self._note("write")
        return super().write(fd, data[: self._short], offset)

    def sync(self, fd: int) -> None:
        self._note("sync")
        super().sync(fd)

    def close(self, fd: int) -> None:
        super().close(fd)
        self._note("close")

    def rename(self, source: str, target: str) -> None:
        assert Path(source).parent == Path(target).parent
        self._note("rename")
        super().rename(source, target)

    def sync_dir(self, path: str) -> None:
        self._note(f"sync_dir {path}")
        super().sync_dir(path)


def test_makes_a_file_that_only_its_owner_may_read(tmp_path: Path) -> None:
    target = tmp_path / "file"

    replace_file(target, NEW)

    assert target.read_bytes() == NEW
    assert target.stat().st_mode & 0o777 == FILE_MODE
    assert os.listdir(tmp_path) == ["file"]


def test_gives_the_file_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "file"

    replace_file(str(target), NEW, mode=0o644)

    assert target.stat().st_mode & 0o777 == 0o644


def test_syncs_the_content_before_the_rename_and_the_directory_after(tmp_path: Path) -> None:
    disk = _Recorder()

    replace_file(tmp_path / "file", NEW, disk=disk)

    assert disk.done == ["write", "sync", "close", "rename", f"sync_dir {tmp_path}"]


def test_what_can_be_made_again_is_replaced_whole_and_not_synced(tmp_path: Path) -> None:
    disk = _Recorder()
    target = tmp_path / "file"
    target.write_bytes(OLD)

    replace_file(target, NEW, disk=disk, synced=False)

    assert disk.done == ["write", "close", "rename"]
    assert target.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [target]


def test_continues_after_short_writes(tmp_path: Path) -> None:
    disk = _Recorder(short=3)

    replace_file(tmp_path / "file", NEW, disk=disk)

    assert (tmp_path / "file").read_bytes() == NEW
    assert disk.done.count("write") == 4


@pytest.mark.parametrize("operation", ["write", "sync", "close", "rename"])
def test_keeps_the_old_content_and_leaves_nothing_on_failure(tmp_path: Path, operation: str) -> None:
    target = tmp_path / "file"
    target.write_bytes(OLD)

    with pytest.raises(OSError, match="no"):
        replace_file(target, NEW, disk=_Recorder(fail_at=operation))

    assert target.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["file"]


def test_reports_a_directory_that_cannot_be_synced(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no"):
        replace_file(tmp_path / "file", NEW, disk=_Recorder(fail_at=f"sync_dir {tmp_path}"))

    assert os.listdir(tmp_path) == ["file"]


def test_cleans_up_when_it_is_interrupted(tmp_path: Path) -> None:
    class Interrupted(RealDisk):
        def sync(self, fd: int) -> None:
            del fd
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "file", NEW, disk=Interrupted())

    assert os.listdir(tmp_path) == []


def test_refuses_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "none" / "file", NEW)


def test_does_not_replace_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()

    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "file", NEW)

    assert os.listdir(tmp_path) == ["file"]


def test_works_beside_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    replace_file("file", NEW)

    assert (tmp_path / "file").read_bytes() == NEW


def test_takes_names_of_the_greatest_length(tmp_path: Path) -> None:
    for name in ("n" * 255, "\u00e4" * 127, "\U0001f600" * 63):
        replace_file(tmp_path / name, NEW)

        assert (tmp_path / name).read_bytes() == NEW


def test_replaces_a_symbolic_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(OLD)
    (tmp_path / "file").symlink_to("other")

    replace_file(tmp_path / "file", NEW)

    assert (tmp_path / "other").read_bytes() == OLD
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("operations", range(1, 6))
def test_a_power_cut_leaves_the_old_content_or_the_new(operations: int) -> None:
    disk = FaultyDisk()
    disk.put("/run/file", OLD)
    disk.crash_after(operations)

    with contextlib.suppress(PowerCut):
        replace_file("/run/file", NEW, disk=disk)

    found = {after.tree().get("/run/file") for after in disk.survivors(samples=20)}
    assert found <= {OLD, NEW}
    assert OLD in found or operations == 5


def test_the_new_content_survives_a_power_cut_right_after() -> None:
    disk = FaultyDisk()
    disk.put("/run/file", OLD)

    replace_file("/run/file", NEW, disk=disk)

    assert [after.tree() for after in disk.survivors(samples=20)] == [{"/run/file": NEW}]


def test_directories_that_were_missing_survive_a_power_cut_right_after() -> None:
    disk = FaultyDisk()
    replace_file("/a/b/file", b"new", disk=disk, parents=True)

    assert disk.after_power_cut().tree() == {"/a/b/file": b"new"}


def test_a_directory_that_a_killed_process_made_survives_a_power_cut() -> None:
    disk = FaultyDisk()
    disk.mkdir("/a")
    replace_file("/a/file", b"new", disk=disk, parents=True)

    assert disk.after_power_cut().tree() == {"/a/file": b"new"}


def test_a_full_disk_keeps_the_old_content() -> None:
    disk = FaultyDisk()
    disk.put("/run/file", OLD)
    disk.fail_write(errno.ENOSPC, after_bytes=4)

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        replace_file("/run/file", NEW, disk=disk)

    assert disk.tree() == {"/run/file": OLD}


WRITER = """
import sys
from collections.abc import Iterator
from bartack.core.files import replace_file

print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    replace_file(sys.argv[1], sys.argv[2].encode() * 20_000)
"""


def test_many_writers_of_one_file_never_mix_their_contents(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"0" * 20_000)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(1, 6)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    seen = [target.read_bytes()]
    while any(writer.poll() is None for writer in writers):
        seen.append(target.read_bytes())
    for writer in writers:
        writer.communicate(timeout=120)

    assert [writer.returncode for writer in writers] == [0] * 5
    assert {len(content) for content in seen} == {20_000}
    assert all(len(set(content)) == 1 for content in seen)
    assert os.listdir(tmp_path) == ["file"]


@pytest.fixture
def read_pipe(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A named pipe, which stands for everything that is not a regular file, and the end that reads it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    yield pipe, reader
    os.close(reader)


def test_what_is_not_a_regular_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(OSError, match="Not a regular file"):
        replace_file(pipe, b"x")

    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_named_target_that_is_a_pipe_is_written_to(read_pipe: tuple[Path, int]) -> None:
    pipe, reader = read_pipe

    write_file(pipe, b"words")

    assert os.read(reader, 100) == b"words"
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_pipe_that_no_process_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="No such device"):
        write_file(tmp_path / "pipe", b"words")


def test_a_named_target_reached_through_a_link_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")

    write_file(tmp_path / "link", b"new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


def test_an_empty_file_is_made_for_its_owner_only_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")

    make_file(tmp_path / "link")

    assert (tmp_path / "file").read_bytes() == b""
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == FILE_MODE


def test_making_a_file_that_exists_keeps_its_content_and_the_locks_on_it(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(OLD)
    probe = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with target.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)

        make_file(target)

        found = subprocess.run([sys.executable, "-c", probe, str(target)], capture_output=True, check=False)
    assert b"BlockingIOError" in found.stderr
    assert target.read_bytes() == OLD


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file"
    target.write_bytes(OLD)

    def refuse(path: str, mode: int) -> bool:
        return False

    monkeypatch.setattr(os, "access", refuse)  # root may write everything

    with pytest.raises(PermissionError, match="file"):
        make_file(target)
